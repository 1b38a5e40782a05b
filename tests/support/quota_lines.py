"""Columns of quotas from single values, and back, for tests."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from bundlekeel.core.quotas.groups import Rates
from bundlekeel.core.quotas.lines import Lines
from bundlekeel.core.quotas.usage import Key, Line, TopicRates


def told(samples: Iterable[tuple[str, str, Rates]]) -> list[TopicRates]:
    """What brokers tell, from broker, name and rates of each topic, in any order."""
    found: dict[str, dict[str, Rates]] = {}
    for broker, name, rates in samples:
        found.setdefault(broker, {})[name] = rates
    return [
        TopicRates(broker, tuple(sorted(rows)), np.array([rows[name] for name in sorted(rows)], dtype=np.float64))
        for broker, rows in found.items()
    ]


def single(lines: Lines) -> dict[str, dict[Key, Line]]:
    """The single lines of those participants that have any."""
    found: dict[str, dict[Key, Line]] = {}
    for row in range(len(lines)):
        usage, peak, pinched = (column[row].tolist() for column in (lines.usage, lines.peak, lines.pinched))
        line = Line(tuple(usage), tuple(peak), tuple(pinched), int(lines.partitions[row]))
        found.setdefault(lines.participants[lines.participant[row]], {})[lines.keys[lines.key[row]]] = line
    return found
