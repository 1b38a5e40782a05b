"""Counts as people read them: one bundle, two bundles."""

from __future__ import annotations


def numbered(count: int, noun: str, verb: str = "") -> str:
    """`1 bundle`, `2 bundles`; with the verb of many, its form for one too: `1 bundle leaves`, `2 bundles leave`."""
    one = count == 1
    said = f"{count} {noun}{'' if one else 's'}"
    return f"{said} {verb}{'s' if one else ''}" if verb else said
