"""Splits and merges of segments of scalable topics (Pulsar 5.0), which move load between bundles without a move.

Pulsar splits a segment above one of four thresholds, within about two minutes (`AutoScalePolicyEvaluator`, PIP-483).
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from operator import itemgetter
from typing import Final

import numpy as np
import structlog

from bundlekeel.model.errors import CodecError, StoreError
from bundlekeel.model.names import FULL_UPPER, BundleName, parse_bundle, parse_topic
from bundlekeel.model.numbers import number
from bundlekeel.model.scalable import KEPT_MS, Segment, changed_bundles
from bundlekeel.model.snapshot import Snapshot
from bundlekeel.ports import Metadata
from bundlekeel.pulsar.work import bounded

_log = structlog.get_logger(__name__)

# A bundle waits for Pulsar's split for this long. Pulsar may never split: at the maximum of segments, or by a policy.
AWAIT_SPLIT_MS: Final = 300_000
# A bundle waits again only after its segments were below the thresholds for this long.
BELOW_MS: Final = 600_000
# Loads of segments that are read per cycle, because each is a request to the store. The oldest are replaced first.
MOST_READS: Final = 50
# Brokers' settings: thresholds in the order of `model.load.TRAFFIC`. They are missing before 5.0.
ENABLED: Final = "scalableTopicAutoScaleEnabled"
THRESHOLDS: Final = (
    "scalableTopicSplitMsgRateInThreshold",
    "scalableTopicSplitMsgRateOutThreshold",
    "scalableTopicSplitBytesRateInThreshold",
    "scalableTopicSplitBytesRateOutThreshold",
)


class SegmentChanges:
    """The bundles whose segments Pulsar split or merged recently, or is about to split, at the leader."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self.by_bundle: Mapping[str, int] = {}
        """Time of the last split or merge by bundle, by the brokers' clocks (Unix ms)."""
        self.above: Mapping[str, int] = {}
        """By bundle with a segment above a threshold: until when the bundle waits for a split, Unix ms."""
        # Of each bundle that was above a threshold recently: the end of its wait, and when it was last above (Unix ms).
        self._waits: dict[str, tuple[int, int]] = {}
        # The error that the log already names; "" after a read without error.
        self._failure = ""
        self._segments: Sequence[Segment] = ()
        # Active segments by namespace, with their hashes, sorted by hash.
        self._by_hash: dict[str, list[tuple[int, Segment]]] = {}
        # Whether each segment of a large bundle was above a threshold, by name, oldest reading first.
        self._readings: dict[str, bool] = {}

    async def read(self, snapshot: Snapshot, settings: Mapping[str, str]) -> None:
        """Read the layouts of scalable topics. `settings`: of the brokers. Never raises StoreError: the last results
        remain."""
        try:
            segments = await self._metadata.layouts()
            changed = changed_bundles(segments, snapshot.bundles.names, snapshot.wall_ms - KEPT_MS)
            above = await self._bundles_above(segments, snapshot, settings)
        except StoreError as error:
            if str(error) != self._failure:
                _log.warning("layouts of scalable topics cannot be read: splits are not noticed", error=str(error))
            self._failure = str(error)
            return
        self._failure = ""
        for bundle in sorted(changed.keys() - self.by_bundle.keys()):
            _log.info("Pulsar split or merged segments of a scalable topic", bundle=bundle)
        self.by_bundle = changed
        now_ms = snapshot.wall_ms
        self._waits = {name: wait for name, wait in self._waits.items() if now_ms - wait[1] < BELOW_MS}
        self._waits |= {name: (self._waits.get(name, (now_ms + AWAIT_SPLIT_MS, 0))[0], now_ms) for name in above}
        self.above = {name: self._waits[name][0] for name in above}

    async def _bundles_above(
        self, segments: Sequence[Segment], snapshot: Snapshot, settings: Mapping[str, str]
    ) -> list[str]:
        """Return the bundles with a segment above a threshold. Only segments of such large bundles are read."""
        thresholds = split_thresholds(settings)
        if thresholds is None or not segments:
            return []
        rows = np.flatnonzero((snapshot.bundles.latest > thresholds).any(axis=1)).tolist()
        if rows and segments != self._segments:
            self._segments, self._by_hash = segments, await asyncio.to_thread(_by_hash, segments)
        bundles = {name: self._in_bundle(parse_bundle(name)) for name in (snapshot.bundles.names[row] for row in rows)}
        current = {segment.name: segment for items in bundles.values() for segment in items}
        readings = {name: above for name, above in self._readings.items() if name in current}
        due = [*(name for name in current if name not in readings), *readings][:MOST_READS]
        loads = await bounded([partial(self._metadata.segment_load, current[name]) for name in due])
        for name, load in zip(due, loads, strict=True):
            readings.pop(name, None)
            readings[name] = any(rate > limit for rate, limit in zip(load, thresholds, strict=True))
        self._readings = readings
        return [name for name, items in bundles.items() if any(readings.get(segment.name) for segment in items)]

    def _in_bundle(self, bundle: BundleName) -> list[Segment]:
        rows, by_hash = self._by_hash.get(bundle.namespace, []), itemgetter(0)
        end = len(rows) if bundle.upper == FULL_UPPER else bisect_left(rows, bundle.upper, key=by_hash)
        return [segment for _, segment in rows[bisect_left(rows, bundle.lower, key=by_hash) : end]]


def _by_hash(segments: Sequence[Segment]) -> dict[str, list[tuple[int, Segment]]]:
    rows: dict[str, list[tuple[int, Segment]]] = {}
    for segment in segments:
        if segment.active:
            topic = parse_topic(segment.name)
            rows.setdefault(topic.namespace, []).append((topic.hash, segment))
    return {namespace: sorted(items, key=itemgetter(0)) for namespace, items in rows.items()}


def split_thresholds(settings: Mapping[str, str]) -> tuple[float, ...] | None:
    """Return the traffic above which Pulsar splits a segment (columns of `TRAFFIC`); None: it splits none."""
    if settings.get(ENABLED) != "true":
        return None
    with suppress(CodecError, KeyError):
        return tuple(number(settings[key], field=key) for key in THRESHOLDS)
    return None
