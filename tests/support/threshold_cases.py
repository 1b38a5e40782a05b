"""Documents of calibrated thresholds for tests: one that may come into force, and changes to it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

DAY_MS = 86_400_000
NOW_MS = 1_790_000_000_000


def interval(mean: float, spread: float = 0.1) -> dict[str, float]:
    """Return a confidence interval around a mean."""
    return {"mean": mean, "low": mean - spread * abs(mean), "high": mean + spread * abs(mean)}


def measures(imbalance: float, moves: float, overloaded: float = 0.0) -> dict[str, Any]:
    """Return the four measures of one setting."""
    return {
        "imbalance": interval(imbalance),
        "moves_per_hour": interval(moves),
        "client_seconds_per_hour": interval(30 * moves),
        "overloaded_minutes_per_day": interval(overloaded),
    }


def proposed(value: float, previous: float, **more: Any) -> dict[str, Any]:
    """Return the proposal for one parameter."""
    row = {"value": value, "previous": previous, "minimum": 1.0, "maximum": 50.0, "step": 1.0}
    return row | {"evidence": "fewer moves at equal imbalance"} | more


def document(now_ms: int = NOW_MS, parameters: Mapping[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """A proposal made an hour ago on fourteen days: the low threshold from 15 to 20, a third fewer moves."""
    days = [f"2026-09-{day:02d}" for day in range(6, 21) if day != 15]
    values: dict[str, Any] = {
        "format": 1,
        "created_ms": now_ms - 3_600_000,
        "software": "bundlekeel 0.1.0",
        "strategy": "avg",
        "parameters": dict(parameters or {"avg_low_threshold_percent": proposed(20.0, 15.0)}),
        "evidence": {
            "held_out": days[-3:],
            "confidence": 0.95,
            "prefer": "calm",
            "placements": 3,
            "previous": measures(0.12, 6.0),
            "chosen": measures(0.12, 4.0),
            "difference": measures(0.0, -2.0),
            "strategies": {"TransferShedder": measures(0.2, 9.0)},
        },
        "data": {
            "from_ms": now_ms - 15 * DAY_MS,
            "until_ms": now_ms - 2 * 3_600_000,
            "days": days,
            "coverage": 0.99,
            "cycles": 100_000,
            "bad_days": {"2026-09-15": "hours 3 to 9 are missing"},
        },
        "decision": "avg_low_threshold_percent 15 -> 20: 33 % fewer client-seconds (95 %: 21 to 44), balance unchanged",
        "advice": ["none of the other 20 tested candidates has lower client-seconds an hour"],
        "cluster": "",
    }
    return values | changes


def as_bytes(values: Mapping[str, Any]) -> bytes:
    """Encode a document as the job does."""
    return json.dumps(values).encode()
