"""Detect brokers that split bundles although a takeover of their load shedding turned their splits off.

The result is a finding in the journal and a metric. A split moves nothing, so moves continue. Bundlekeel's own splits
wait while brokers split, and brokers may also unload the bundles they split, so an operator must be informed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import structlog

from bundlekeel.leader.state.takeover_record import SPLITTING, TakeoverRecord
from bundlekeel.model.codes import Code
from bundlekeel.model.findings import Finding, finding_records
from bundlekeel.ports import RawClusterView, Telemetry
from bundlekeel.pulsar.sources.broker_settings import BrokerConfig

_log = structlog.get_logger(__name__)

# A takeover or handback changes brokers and record one after the other, and brokers' settings are read only
# occasionally. So only a state that lasts this long is a finding.
LASTING_MS: Final = 60_000
REMEDY: Final = (
    "find out who turned it on (`pulsar-admin brokers get-runtime-config`), then run `bundlekeel "
    "takeover --split off` again; if brokers should split, run `bundlekeel handback`"
)


def turned_off(takeover: TakeoverRecord | None) -> bool:
    """Return whether an active takeover of the brokers' shedding also turned the brokers' splits off."""
    return takeover is not None and takeover.active and SPLITTING in takeover.overrides


class SplitWatch:
    """Detects brokers that split bundles despite a takeover. `look` is called in each cycle."""

    def __init__(self, config: BrokerConfig, record: Callable[[Mapping[str, Any]], None], telemetry: Telemetry) -> None:
        self._config = config
        self._record = record
        self._telemetry = telemetry
        # By broker: time (Unix ms) since which it splits despite the takeover. `_reported`: those with a finding.
        self._since: dict[str, int] = {}
        self._reported: dict[str, Finding] = {}

    def look(self, picture: RawClusterView, takeover: TakeoverRecord | None) -> None:
        """Compare the brokers' last-read settings with the takeover record. Never raises."""
        splitting = {broker: self._config.splits(broker) for broker in picture.endpoints}
        shedding = {broker: self._config.sheds(broker) for broker in picture.endpoints}
        for name, values in (("broker_splits_itself", splitting), ("broker_sheds_itself", shedding)):
            for broker, on in values.items():
                if on is not None:
                    self._telemetry.gauge(name, float(on), broker=broker)
            self._telemetry.retain(name, "broker", set(picture.endpoints))
        wrong = turned_off(takeover)
        self._telemetry.gauge("splits_taken_over", float(wrong))
        # If a broker did not respond, its previous settings count.
        now = {broker for broker, on in splitting.items() if wrong and (on or (on is None and broker in self._since))}
        self._since = {broker: self._since.get(broker, picture.wall_ms) for broker in now}
        reported = {
            broker: self._reported.get(broker) or self._finding(broker, since)
            for broker, since in self._since.items()
            if broker in self._reported or picture.wall_ms - since >= LASTING_MS
        }
        for record in finding_records(self._reported, reported, picture.wall_ms):
            self._record(record)
            _log.warning("brokers started or stopped splitting bundles themselves", sentence=record["sentence"])
        self._reported = reported

    def _finding(self, broker: str, since_ms: int) -> Finding:
        unload = ", and unloads the split bundles" if self._config.unloads_splits(broker) else ""
        return Finding(
            code=Code.BROKERS_SPLIT_THEMSELVES.value,
            bundle="",
            brokers=(broker,),
            since_ms=since_ms,
            detail=f"splits bundles itself again, although the takeover turned that off{unload}",
            remedy=REMEDY,
        )
