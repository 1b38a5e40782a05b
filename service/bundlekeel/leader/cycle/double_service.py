"""Report topics that two brokers serve at the same time, in the journal and as a metric.

The leader detects them by the brokers' counters (`model.double_service`). The guard does not move their bundles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import structlog

from bundlekeel.model.codes import Code
from bundlekeel.model.double_service import ServedTwice
from bundlekeel.model.text_format import numbered, some
from bundlekeel.ports import RawClusterView, Telemetry

_log = structlog.get_logger(__name__)

REMEDY: Final = "restart the broker that does not own the bundle (runbook BundlekeelServedTwice)"


class DoubleServiceWatch:
    """Reports bundles that two brokers serve, once when they appear and once at the end. Call `look` in each cycle."""

    def __init__(self, record: Callable[[Mapping[str, Any]], None], telemetry: Telemetry) -> None:
        self._record = record
        self._telemetry = telemetry
        self._reported: dict[str, ServedTwice] = {}

    def look(self, picture: RawClusterView, *, leading: bool) -> None:
        """Compare the view with the last one. Never raises. Only the leader reads counters, so only it reports."""
        if not leading:
            self._reported = {}
        now = {item.bundle: item for item in picture.served_twice}
        self._telemetry.gauge("bundles_served_twice", float(len(now)))
        for event, items in (
            ("appeared", [item for bundle, item in now.items() if bundle not in self._reported]),
            ("gone", [item for bundle, item in self._reported.items() if bundle not in now]),
        ):
            if items:
                self._report(event, items, picture.wall_ms)
        self._reported = now

    def _report(self, event: str, items: Sequence[ServedTwice], now_ms: int) -> None:
        since_ms = min(item.since_ms for item in items)
        lines = [f"{item.bundle} ({numbered(item.topics, 'topic')}) at {' and '.join(item.brokers)}" for item in items]
        text = f"no longer served by two brokers, after {max(0, now_ms - since_ms) // 1000} s"
        if event == "appeared":
            text = "served by two brokers at the same time; these bundles do not move"
        record = {
            "kind": "finding",
            "wall_ms": now_ms,
            "event": event,
            "code": Code.SERVED_TWICE.value,
            "count": len(items),
            "bundles": [item.bundle for item in items[:10]],
            "brokers": sorted({broker for item in items for broker in item.brokers}),
            "since_ms": since_ms,
            "sentence": f"{Code.SERVED_TWICE.value}: {text}: {some(lines)}",
            "remedy": "" if event == "gone" else REMEDY,
        }
        self._record(record)
        _log.warning("topics served by two brokers", change=event, sentence=record["sentence"])
