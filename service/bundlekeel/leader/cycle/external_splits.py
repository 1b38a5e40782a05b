"""Detect brokers that split bundles although a takeover of their load shedding turned their splits off.

The result is a finding in the journal and a metric. A split moves nothing, so moves continue. Bundlekeel's own splits
wait while brokers split, and brokers may also unload the bundles they split, so an operator must be informed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import structlog

from bundlekeel.leader.state.takeover_record import SPLITTING, TakeoverRecord
from bundlekeel.model.codes import Code
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
        self._reported: dict[str, int] = {}

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
        lasting = {at: since for at, since in self._since.items() if picture.wall_ms - since >= LASTING_MS}
        appeared, ended = lasting.keys() - self._reported.keys(), self._reported.keys() - self._since.keys()
        if appeared:
            self._report("appeared", appeared, lasting, picture.wall_ms)
        if ended:
            self._report("gone", ended, self._reported, picture.wall_ms)
        self._reported = {broker: at for broker, at in (self._reported | lasting).items() if broker not in ended}

    def _report(self, event: str, brokers: Collection[str], since: Mapping[str, int], now_ms: int) -> None:
        names, since_ms = sorted(brokers), min(since[broker] for broker in brokers)
        unload = any(self._config.unloads_splits(broker) for broker in names)
        texts = {
            "appeared": f"{', '.join(names)} split bundles themselves again, although the takeover turned that off"
            + (", and unload the split bundles" if unload else ""),
            "gone": f"{', '.join(names)} no longer split bundles themselves, after {(now_ms - since_ms) // 1000} s",
        }
        record = {
            "kind": "finding",
            "wall_ms": now_ms,
            "event": event,
            "code": Code.BROKERS_SPLIT_THEMSELVES.value,
            "count": len(names),
            "bundles": [],
            "brokers": names,
            "since_ms": since_ms,
            "sentence": f"{Code.BROKERS_SPLIT_THEMSELVES.value}: {texts[event]}",
            "remedy": REMEDY if event == "appeared" else "",
        }
        self._record(record)
        _log.warning(
            "brokers started or stopped splitting bundles themselves",
            change=event,
            brokers=names,
            sentence=record["sentence"],
        )
