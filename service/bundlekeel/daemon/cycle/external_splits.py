"""Detects that brokers split bundles again although a takeover turned that off: a finding and a metric.

A split moves nothing, so moves continue. Bundlekeel's own splits wait while brokers split, and brokers may also unload
the bundles they split: an operator has to know.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import structlog

from bundlekeel.core.model.codes import Code
from bundlekeel.daemon.sources.broker_settings import BrokerConfig
from bundlekeel.daemon.state.takeover_record import SPLITTING, TakeoverRecord
from bundlekeel.ports import RawClusterView, Telemetry

_log = structlog.get_logger(__name__)

# Taking over and handing back set brokers and record one after the other, and what brokers run with is read now and
# then: only what lasts is found.
LASTING_MS: Final = 60_000
REMEDY: Final = (
    "find out who turned it on (`pulsar-admin brokers get-runtime-config`), then run `bundlekeel takeover --split off` "
    "again; or hand back, if brokers are to split"
)


def turned_off(takeover: TakeoverRecord | None) -> bool:
    """Whether the takeover in force turned the brokers' own splits off."""
    return takeover is not None and takeover.active and SPLITTING in takeover.overrides


class SplitWatch:
    """One sidecar's watch, called in each cycle."""

    def __init__(self, config: BrokerConfig, record: Callable[[Mapping[str, Any]], None], telemetry: Telemetry) -> None:
        self._config = config
        self._record = record
        self._telemetry = telemetry
        # By broker: since when it is seen to split although it should not (wall ms); and those that were reported.
        self._since: dict[str, int] = {}
        self._reported: dict[str, int] = {}

    def look(self, picture: RawClusterView, takeover: TakeoverRecord | None) -> None:
        """Compare what the brokers run with, as last read, with what was taken over. Never raises."""
        known = {broker: self._config.splits(broker) for broker in picture.endpoints}
        shedding = {broker: self._config.sheds(broker) for broker in picture.endpoints}
        for name, found in (("broker_splits_itself", known), ("broker_sheds_itself", shedding)):
            for broker, on in found.items():
                if on is not None:
                    self._telemetry.gauge(name, float(on), broker=broker)
            self._telemetry.retain(name, "broker", set(picture.endpoints))
        wrong = turned_off(takeover)
        self._telemetry.gauge("splits_taken_over", float(wrong))
        # A broker that did not answer is taken to run with what it ran with before.
        now = {broker for broker, on in known.items() if wrong and (on or (on is None and broker in self._since))}
        self._since = {broker: self._since.get(broker, picture.wall_ms) for broker in now}
        lasting = {at: since for at, since in self._since.items() if picture.wall_ms - since >= LASTING_MS}
        appeared, gone = lasting.keys() - self._reported.keys(), self._reported.keys() - self._since.keys()
        if appeared:
            self._report("appeared", appeared, lasting, picture.wall_ms)
        if gone:
            self._report("gone", gone, self._reported, picture.wall_ms)
        self._reported = {broker: at for broker, at in (self._reported | lasting).items() if broker not in gone}

    def _report(self, event: str, brokers: Collection[str], since: Mapping[str, int], now_ms: int) -> None:
        names, begun = sorted(brokers), min(since[broker] for broker in brokers)
        unload = any(self._config.unloads_splits(broker) for broker in names)
        texts = {
            "appeared": f"{', '.join(names)} split by themselves again, though the takeover turned that off"
            + (", and unload what they cut" if unload else ""),
            "gone": f"{', '.join(names)} no longer split by themselves after {(now_ms - begun) // 1000} s",
        }
        record = {
            "kind": "finding",
            "wall_ms": now_ms,
            "event": event,
            "code": Code.BROKERS_SPLIT_THEMSELVES.value,
            "count": len(names),
            "bundles": [],
            "brokers": names,
            "since_ms": begun,
            "sentence": f"{Code.BROKERS_SPLIT_THEMSELVES.value}: {texts[event]}",
            "remedy": REMEDY if event == "appeared" else "",
        }
        self._record(record)
        _log.warning("own splits", change=event, brokers=names, sentence=record["sentence"])
