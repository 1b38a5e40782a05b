"""Shedders: one module a strategy. A shedder reads a draft, adds moves to it and says why it did or did not.

These are the corrected forms; Pulsar's own classes, release by release, are in `core/compat`.
"""

from __future__ import annotations

from collections.abc import Callable

from bundlekeel.core.model.parameters import add_choice
from bundlekeel.core.strategies import avg, deviation, overload, threshold, transfer, uniform
from bundlekeel.core.strategies.common import Context, Decision

Shedder = Callable[[Context], Decision]

SHEDDERS: dict[str, Shedder] = {
    "avg": avg.shed,
    "threshold": threshold.shed,
    "overload": overload.shed,
    "uniform": uniform.shed,
    "deviation": deviation.shed,
    "transfer": transfer.shed,
}


def register(name: str, shedder: Shedder) -> None:
    """Add a third party's shedder (entry point group `bundlekeel.shedders`). ConfigError when the name is bad or
    taken."""
    add_choice("strategy", name)
    SHEDDERS[name] = shedder


__all__ = ["SHEDDERS", "Context", "Decision", "Shedder", "register"]
