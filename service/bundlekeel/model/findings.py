"""Findings (faults of the cluster) in the journal: one record when they appear, one at their end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, TypeVar

K = TypeVar("K")

APPEARED: Final = "appeared"
BUNDLES_IN_RECORD: Final = 20


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault. `bundle`: "" if it concerns brokers or the whole cluster. `since_ms`: its start (Unix ms)."""

    code: str
    bundle: str
    brokers: tuple[str, ...]
    since_ms: int
    detail: str
    remedy: str


def finding_records(before: Mapping[K, Finding], now: Mapping[K, Finding], wall_ms: int) -> list[dict[str, Any]]:
    """Return the journal records of findings that appeared or disappeared since `before`, one per event and code."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for event, rows, others in ((APPEARED, now, before), ("gone", before, now)):
        for key, row in rows.items():
            if key not in others:
                groups.setdefault((event, row.code), []).append(row)
    return [_record(event, rows, wall_ms) for (event, _), rows in groups.items()]


def _record(event: str, rows: Sequence[Finding], wall_ms: int) -> dict[str, Any]:
    first, count, since_ms = rows[0], len(rows), min(row.since_ms for row in rows)
    subject = first.bundle or ", ".join(first.brokers)
    others = f" and {count - 1} more" if count > 1 else ""
    ending = f": {first.detail}" if event == APPEARED else f" is gone after {max(0, wall_ms - since_ms) // 1000} s"
    return {
        "kind": "finding",
        "wall_ms": wall_ms,
        "event": event,
        "code": first.code,
        "count": count,
        "bundles": [row.bundle for row in rows[:BUNDLES_IN_RECORD] if row.bundle],
        "brokers": sorted(set(chain.from_iterable(row.brokers for row in rows))),
        "since_ms": since_ms,
        "sentence": f"{first.code}{subject and f' {subject}'}{others}{ending}",
        "remedy": first.remedy if event == APPEARED else "",
    }
