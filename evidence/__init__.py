"""Tools that run once per release and write measured pages: `python -m evidence.NAME`."""
