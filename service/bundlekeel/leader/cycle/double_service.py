"""Report topics that two brokers serve at the same time, in the journal and as a metric.

The leader detects them by the brokers' counters (`model.double_service`). The guard does not move their bundles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import structlog

from bundlekeel.model.codes import Code
from bundlekeel.model.double_service import ServedTwice
from bundlekeel.model.findings import Finding, finding_records
from bundlekeel.model.text_format import numbered
from bundlekeel.ports import RawClusterView, Telemetry

_log = structlog.get_logger(__name__)

REMEDY: Final = "restart the broker that does not own the bundle (runbook BundlekeelServedTwice)"


class DoubleServiceWatch:
    """Reports bundles that two brokers serve, once when they appear and once at the end. Call `look` in each cycle."""

    def __init__(self, record: Callable[[Mapping[str, Any]], None], telemetry: Telemetry) -> None:
        self._record = record
        self._telemetry = telemetry
        self._reported: dict[str, Finding] = {}

    def look(self, picture: RawClusterView, *, leading: bool) -> None:
        """Compare the view with the last one. Never raises. Only the leader reads counters, so only it reports."""
        if not leading:
            self._reported = {}
        now = {item.bundle: _finding(item) for item in picture.served_twice}
        self._telemetry.gauge("bundles_served_twice", float(len(now)))
        for record in finding_records(self._reported, now, picture.wall_ms):
            self._record(record)
            _log.warning("topics served by two brokers", change=record["event"], sentence=record["sentence"])
        self._reported = now


def _finding(item: ServedTwice) -> Finding:
    return Finding(
        code=Code.SERVED_TWICE.value,
        bundle=item.bundle,
        brokers=item.brokers,
        since_ms=item.since_ms,
        detail=f"{' and '.join(item.brokers)} serve {numbered(item.topics, 'topic')} of it at the same time, so it "
        "does not move",
        remedy=REMEDY,
    )
