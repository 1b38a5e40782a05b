"""Columns of quotas from single values, and back, for tests."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from bundlekeel.quotas.rules.groups import Rates
from bundlekeel.quotas.rules.lines import Lines
from bundlekeel.quotas.rules.usage import Key, TopicRates, UsageLine


def told(samples: Iterable[tuple[str, str, Rates]]) -> list[TopicRates]:
    """Return the brokers' reports of `samples` (broker, topic, rates), in any order."""
    rates_by_broker: dict[str, dict[str, Rates]] = {}
    for broker, name, rates in samples:
        rates_by_broker.setdefault(broker, {})[name] = rates
    return [
        TopicRates(broker, tuple(sorted(rows)), np.array([rows[name] for name in sorted(rows)], dtype=np.float64))
        for broker, rows in rates_by_broker.items()
    ]


def single(lines: Lines) -> dict[str, dict[Key, UsageLine]]:
    """The single lines of those participants that have any."""
    usage_lines: dict[str, dict[Key, UsageLine]] = {}
    for row in range(len(lines)):
        usage, peak, throttled = (column[row].tolist() for column in (lines.usage, lines.peak, lines.throttled))
        line = UsageLine(tuple(usage), tuple(peak), tuple(throttled), int(lines.partitions[row]))
        usage_lines.setdefault(lines.participants[lines.participant[row]], {})[lines.keys[lines.key[row]]] = line
    return usage_lines
