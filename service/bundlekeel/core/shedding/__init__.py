"""Shedders: one module a strategy. A shedder reads a draft, adds moves to it and says why it did or did not.

`compat` forms (Pulsar's own behaviour, bare) come with issue B and register in `SHEDDERS` under their own names.
"""

from __future__ import annotations

from collections.abc import Callable

from bundlekeel.core.shedding import avg, threshold, uniform
from bundlekeel.core.shedding.common import Context, Decision

Shedder = Callable[[Context], Decision]

SHEDDERS: dict[str, Shedder] = {
    "avg": avg.shed,
    "threshold": threshold.shed,
    "uniform": uniform.shed,
}

__all__ = ["SHEDDERS", "Context", "Decision", "Shedder"]
