"""Shedders: one module per balancing strategy. A shedder adds moves to a draft, and returns the reasons.

They correct errors of Pulsar's classes. The package `compat` adds exact copies of Pulsar's classes.
"""

from __future__ import annotations

from collections.abc import Callable

from bundlekeel.model.parameters import add_choice
from bundlekeel.planning.strategies import avg, deviation, overload, threshold, transfer, uniform
from bundlekeel.planning.strategies.common import Context, Decision

Shedder = Callable[[Context], Decision]

SHEDDERS: dict[str, Shedder] = {
    "avg": avg.shed,
    "threshold": threshold.shed,
    "overload": overload.shed,
    "uniform": uniform.shed,
    "deviation": deviation.shed,
    "transfer": transfer.shed,
}

# Copies of Pulsar's own classes, which plans use with `compat`. The import of `bundlekeel.compat.in_plan` adds them.
PULSAR_SHEDDERS: dict[str, Shedder] = {}


def register(name: str, shedder: Shedder) -> None:
    """Add the shedder of a plugin (entry point group `bundlekeel.shedders`).

    Raises ConfigError if the name is invalid or in use.
    """
    add_choice("strategy", name)
    SHEDDERS[name] = shedder


__all__ = ["PULSAR_SHEDDERS", "SHEDDERS", "Context", "Decision", "Shedder", "register"]
