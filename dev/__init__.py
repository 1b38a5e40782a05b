"""Tools for developers: local clusters, traffic, generated pages, checks."""

NOTE = "Made by `python -m dev.docs write`; do not edit."
