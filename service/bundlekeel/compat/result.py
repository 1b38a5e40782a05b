"""The result of one call of an exact copy of a Pulsar shedder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bundlekeel.model.plan import Verdict
from bundlekeel.planning.memory import CompatMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class CompatResult:
    """Result of one call of a Pulsar shedder.

    `unload`: (bundle row, broker row) in the order of selection. `to`: target row by bundle row, if the class chooses
    targets. `brokers`: verdicts of the brokers that are not balanced.
    """

    unload: tuple[tuple[int, int], ...]
    memory: CompatMemory
    verdict: Verdict
    to: Mapping[int, int] = field(default_factory=dict)
    brokers: tuple[Verdict, ...] = ()
