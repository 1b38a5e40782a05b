"""The main job on a real cluster: `python -m dev.demo` (or `make demo`)."""
