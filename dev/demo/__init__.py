"""Demonstrate on a real cluster how Bundlekeel balances the load: `python -m dev.demo` (or `make demo`)."""
