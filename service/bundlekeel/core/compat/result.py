"""The result of a compat shedder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bundlekeel.core.model.plan import Verdict
from bundlekeel.core.planning.memory import CompatMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class CompatResult:
    """`unload`: (bundle row, broker row) in the order in which the class selects; `to`: target row by bundle row,
    for a class that couples the destination. `brokers`: a verdict for each broker that stands out."""

    unload: tuple[tuple[int, int], ...]
    memory: CompatMemory
    verdict: Verdict
    to: Mapping[int, int] = field(default_factory=dict)
    brokers: tuple[Verdict, ...] = ()
