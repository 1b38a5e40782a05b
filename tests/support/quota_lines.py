"""Columns of quotas from single values, and back, for tests."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from bundlekeel.core.quotas.groups import Rates
from bundlekeel.core.quotas.lines import Lines
from bundlekeel.core.quotas.usage import Key, TopicRates, UsageLine


def told(samples: Iterable[tuple[str, str, Rates]]) -> list[TopicRates]:
    """What brokers tell, from broker, name and rates of each topic, in any order."""
    found: dict[str, dict[str, Rates]] = {}
    for broker, name, rates in samples:
        found.setdefault(broker, {})[name] = rates
    return [
        TopicRates(broker, tuple(sorted(rows)), np.array([rows[name] for name in sorted(rows)], dtype=np.float64))
        for broker, rows in found.items()
    ]


def single(lines: Lines) -> dict[str, dict[Key, UsageLine]]:
    """The single lines of those participants that have any."""
    found: dict[str, dict[Key, UsageLine]] = {}
    for row in range(len(lines)):
        usage, peak, throttled = (column[row].tolist() for column in (lines.usage, lines.peak, lines.throttled))
        line = UsageLine(tuple(usage), tuple(peak), tuple(throttled), int(lines.partitions[row]))
        found.setdefault(lines.participants[lines.participant[row]], {})[lines.keys[lines.key[row]]] = line
    return found
