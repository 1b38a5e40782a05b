"""Measure splits and merges of scalable topics' segments under load, with Bundlekeel in mode act: `python -m`."""
