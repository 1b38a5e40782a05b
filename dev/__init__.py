"""Tools of developers: local clusters, traffic, generated pages, benchmarks."""

NOTE = "Made by `python -m dev.docs write`; do not edit."
