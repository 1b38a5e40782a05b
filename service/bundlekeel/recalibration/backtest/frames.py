"""Convert recorded frames (one cycle's input of `plan()` each) to the dense arrays of a back-test."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from bundlekeel.model.errors import HistoryError
from bundlekeel.model.load import (
    BANDWIDTH_IN,
    BANDWIDTH_OUT,
    CPU,
    KILOBIT_PER_BYTE,
    MSG_RATE,
    RATE_IN,
    RATE_OUT,
    RESOURCES,
    THROUGHPUT,
    THROUGHPUT_IN,
    THROUGHPUT_OUT,
    Floats,
    Ints,
)
from bundlekeel.model.snapshot import Bools
from bundlekeel.recalibration.backtest.traffic import NO_BROKER, RecordedTraffic
from bundlekeel.recalibration.history.record import BROKERS, Frame, dumped

# Paths of a frame's document that a back-test reads for every period: operators' requests, policies, unusable brokers.
# Effects of the recorded moves are not among them, because a candidate makes other moves.
CIRCUMSTANCES: Final = (
    "mode",
    "registered",
    "excluded",
    "seed",
    "brokers_split",
    "policies",
    "guard.pinned",
    "guard.cordoned",
    "guard.draining",
    "guard.warming",
    "guard.excluded",
    "guard.changed_brokers",
    "guard.rolling_ms",
    "guard.rate",
    "guard.relief_until",
)
_OWN: Final = ("params.", "memory.", "ledger.", "guard.")
_WIDTH: Final = len(RESOURCES)
# Half of a broker's CPU is attributed to messages and half to bytes, as in plans (planning/pressure.py).
_HALF: Final = 0.5
# If traffic varies by less than a tenth (0.01 is the variance), usage without traffic cannot be estimated.
_STEADY: Final = 0.01


def traffic_of(
    frames: Iterable[Frame],
    *,
    period_ms: int = 60_000,
    dtype: DTypeLike = np.float32,
    per_unit: Mapping[str, Floats] | None = None,
) -> RecordedTraffic:
    """Return the traffic of recorded frames, using only the last frame of each period of `period_ms`.

    frames: in order of time. dtype: type of the bundles' rates; float32 needs half the memory, float64 gives plans
    identical to the recorded ones. per_unit: usage per unit of traffic by broker, shape (6, 4); for other brokers it is
    estimated. Raises HistoryError if there is no frame or the order is wrong.
    """
    collector = _FrameCollector(np.dtype(dtype))
    for frame in _last_of_each(frames, period_ms):
        collector.add(frame)
    if not collector.wall_ms:
        raise HistoryError("there is no recorded cycle to take traffic from")
    return collector.traffic(per_unit or {})


def _last_of_each(frames: Iterable[Frame], period_ms: int) -> Iterator[Frame]:
    before: Frame | None = None
    for frame in frames:
        if before is not None:
            here, then = (int(item.document["wall_ms"]) // period_ms for item in (frame, before))
            if here < then:
                raise HistoryError("recorded cycles are not in order of time")
            if here != then:
                yield before
        before = frame
    if before is not None:
        yield before


@dataclass(slots=True)
class _Names:
    """Assigns an index to each name, in order of first appearance. The last result of `indices_of` is cached."""

    place: dict[str, int] = field(default_factory=dict)
    _last: tuple[list[str], Ints] | None = None

    def indices_of(self, names: list[str]) -> Ints:
        """Return the index of each name; new names are added."""
        if self._last is None or self._last[0] != names:
            index = self.place
            indices = np.fromiter((index.setdefault(n, len(index)) for n in names), dtype=np.int64, count=len(names))
            self._last = names, indices
        return self._last[1]

    def sorted(self) -> tuple[tuple[str, ...], Ints]:
        """Return all names sorted, and the place of each index in that order."""
        names = tuple(sorted(self.place))
        rank = np.empty(len(names), dtype=np.int64)
        rank[[self.place[name] for name in names]] = np.arange(len(names))
        return names, rank


@dataclass(slots=True)
class _FrameCollector:
    """Collects recorded frames (one per period), until `traffic` converts them to dense arrays.

    `averages`: averages of bundles at their first report. `first`: number of different bundles so far.
    """

    dtype: np.dtype[Any]
    wall_ms: list[int] = field(default_factory=list)
    bundles: _Names = field(default_factory=_Names)
    brokers: _Names = field(default_factory=_Names)
    bundle_rows: list[tuple[Ints, NDArray[Any], NDArray[np.int32], Ints]] = field(default_factory=list)
    broker_rows: list[tuple[Ints, Floats, Ints]] = field(default_factory=list)
    averages: list[tuple[Ints, Floats, Ints]] = field(default_factory=list)
    first: int = 0
    texts: dict[str, int] = field(default_factory=dict)
    members: list[list[int]] = field(default_factory=list)
    traits: dict[str, list[Any]] = field(default_factory=dict)
    start: str = ""

    def add(self, frame: Frame) -> None:
        document, brokers, bundles = frame.document, frame.brokers, frame.bundles
        here, rows = self.brokers.indices_of(brokers.names.tolist()), self.bundles.indices_of(bundles.names.tolist())
        owner = self.brokers.indices_of(bundles.texts[:, 0].tolist())
        if not self.wall_ms:
            own = {path: value for path, value in document.items() if path.startswith(_OWN)}
            self.start = dumped(own)
        new = np.flatnonzero(rows >= self.first) if len(self.bundles.place) > self.first else rows[:0]
        if len(new):
            self.first = len(self.bundles.place)
            self.averages.append((rows[new], bundles.floats[new, 4:12], bundles.whole[new, 0:2]))
        self.wall_ms.append(int(document["wall_ms"]))
        counts = bundles.whole[:, 2:5].astype(np.int32)
        self.bundle_rows.append((rows, bundles.floats[:, 0:4].astype(self.dtype), counts, owner))
        # If a cycle has no recorded intervals, its loads are from the brokers' reports: store 0.
        intervals = document.get("intervals") or np.zeros(len(here), dtype=np.int64)
        self.broker_rows.append((here, brokers.floats, np.column_stack([brokers.whole, intervals])))
        self.members.append([self._text(document, path) for path in CIRCUMSTANCES])
        whole = brokers.whole.tolist()
        for name, bits, texts in zip(brokers.names.tolist(), whole, brokers.texts.tolist(), strict=True):
            self.traits[name] = [bits[0], bits[4], bits[5], *texts]

    def _text(self, document: Mapping[str, Any], path: str) -> int:
        """Return the index in `texts` of the JSON value at this path of the document; -1: the path is not recorded."""
        if path in document:
            value = document[path]
        else:
            value = {key: item for key, item in document.items() if key.startswith(f"{path}.")}
            if not value:
                return NO_BROKER
        return self.texts.setdefault(dumped(value), len(self.texts))

    def traffic(self, per_unit: Mapping[str, Floats]) -> RecordedTraffic:
        bundles, bundle_rank = self.bundles.sorted()
        brokers, broker_rank = self.brokers.sorted()
        arrays = self._of_bundles(bundle_rank, broker_rank) | self._of_brokers(broker_rank)
        slopes = estimate_slopes(arrays["usage"], arrays["limit"], arrays["carried"], arrays["present"])
        for row, broker in enumerate(brokers):
            if broker in per_unit:
                slopes[row] = per_unit[broker]
        return RecordedTraffic(
            wall_ms=np.array(self.wall_ms, dtype=np.int64),
            bundles=bundles,
            brokers=brokers,
            per_unit=slopes,
            members=np.array(self.members, dtype=np.int32),
            texts=tuple(self.texts),
            traits=json.dumps(self.traits, ensure_ascii=False, sort_keys=True),
            start=self.start,
            **arrays,
        )

    def _of_bundles(self, rank: Ints, broker_rank: Ints) -> dict[str, Any]:
        shape = len(self.wall_ms), len(rank)
        rates = np.zeros((*shape, 4), dtype=self.dtype)
        counts = np.zeros((*shape, 3), dtype=np.int32)
        owner = np.full(shape, NO_BROKER, dtype=np.int32)
        for period, (rows, carried, counted, owners) in enumerate(self.bundle_rows):
            place = rank[rows]
            rates[period, place], counts[period, place] = carried, counted
            owner[period, place] = broker_rank[owners]
        averages, samples = np.zeros((len(rank), 8)), np.zeros((len(rank), 2), dtype=np.int64)
        for rows, values, sample_counts in self.averages:
            averages[rank[rows]], samples[rank[rows]] = values, sample_counts
        return {
            "rates": rates,
            "counts": _once(counts),
            "owner": owner,
            "short": averages[:, :4].copy(),
            "long": averages[:, 4:].copy(),
            "samples": samples,
        }

    def _of_brokers(self, rank: Ints) -> dict[str, Any]:
        shape = len(self.wall_ms), len(rank)
        floats = np.zeros((*shape, len(BROKERS.floats)))
        whole = np.zeros((*shape, len(BROKERS.whole) + 1), dtype=np.int64)
        present = np.zeros(shape, dtype=bool)
        for period, (rows, values, stamps) in enumerate(self.broker_rows):
            place = rank[rows]
            floats[period, place], whole[period, place] = values, stamps
            present[period, place] = True
        return {
            "usage": floats[:, :, :_WIDTH],
            "limit": _once(floats[:, :, _WIDTH : 2 * _WIDTH]),
            "carried": floats[:, :, 2 * _WIDTH :],
            "reported": whole[:, :, 1],
            "started": whole[:, :, 2],
            "topics": whole[:, :, 3],
            "intervals": _once(whole[:, :, -1]),
            "present": present,
        }


def _once(values: NDArray[Any]) -> NDArray[Any]:
    """Return only the first row if all rows (periods) are equal, to save memory; else all rows."""
    return values[:1].copy() if (values == values[:1]).all() else values


def estimate_slopes(usage: Floats, limit: Floats, carried: Floats, present: Bools) -> Floats:
    """Return each broker's usage of each resource per message or byte per second; shape (B, 6, 4).

    CPU: the part that depends on traffic (least squares over time; all CPU if the traffic hardly changed) is attributed
    to messages and bytes by half. Network: usage per byte. Memory: 0. A broker without traffic gets the median of the
    other brokers, in proportion to its limit. Shapes: usage (T, B, 6), limit (T or 1, B, 6), carried (T, B, 4), present
    (T, B).
    """
    times = np.maximum(present.sum(axis=0), 1)[:, None]
    there = present[:, :, None]
    mean = np.where(there, usage, 0.0).sum(axis=0) / times
    flow = np.where(there, carried, 0.0).sum(axis=0) / times
    ceiling = limit.max(axis=0)
    slopes = np.zeros((usage.shape[1], _WIDTH, 4))
    rate, size = flow[:, RATE_IN] + flow[:, RATE_OUT], flow[:, THROUGHPUT_IN] + flow[:, THROUGHPUT_OUT]
    moving = _moving_cpu(usage[:, :, CPU], carried, present)
    slopes[:, CPU, RATE_IN] = slopes[:, CPU, RATE_OUT] = _fill_unknown(_ratio(_HALF * moving, rate), ceiling[:, CPU])
    by_bytes = _fill_unknown(_ratio(_HALF * moving, size), ceiling[:, CPU])
    slopes[:, CPU, THROUGHPUT_IN] = slopes[:, CPU, THROUGHPUT_OUT] = by_bytes
    for resource, column in ((BANDWIDTH_IN, THROUGHPUT_IN), (BANDWIDTH_OUT, THROUGHPUT_OUT)):
        slope = _ratio(mean[:, resource], flow[:, column])
        slopes[:, resource, column] = np.where(slope > 0, slope, KILOBIT_PER_BYTE)
    slopes[:, MSG_RATE, RATE_IN] = slopes[:, MSG_RATE, RATE_OUT] = 1.0
    slopes[:, THROUGHPUT, THROUGHPUT_IN] = slopes[:, THROUGHPUT, THROUGHPUT_OUT] = 1.0
    return slopes


def _moving_cpu(cpu: Floats, carried: Floats, present: Bools) -> Floats:
    """Return the part of each broker's mean CPU usage that depends on its traffic; shape (B,)."""
    times = np.maximum(present.sum(axis=0), 1)
    rate, size = carried[:, :, RATE_IN:THROUGHPUT_IN].sum(axis=2), carried[:, :, THROUGHPUT_IN:].sum(axis=2)
    flow = np.zeros_like(rate)
    for part in (rate, size):
        mean = np.where(present, part, 0.0).sum(axis=0) / times
        flow += _HALF * np.divide(part, mean, out=np.zeros_like(part), where=mean > 0)
    usual = np.where(present, cpu, 0.0).sum(axis=0) / times
    middle = np.where(present, flow, 0.0).sum(axis=0) / times
    off, above = np.where(present, flow - middle, 0.0), np.where(present, cpu - usual, 0.0)
    spread = (off * off).sum(axis=0)
    slope = np.divide((off * above).sum(axis=0), spread, out=usual.copy(), where=spread > _STEADY * times)
    moving: Floats = np.clip(slope, 0.0, usual)
    return moving


def _ratio(part: Floats, whole: Floats) -> Floats:
    ratio: Floats = np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
    return ratio


def _fill_unknown(slope: Floats, limit: Floats) -> Floats:
    """Replace a broker's unknown usage per unit of traffic by the other brokers' median, in proportion to the
    limits."""
    measured = (slope > 0) & (limit > 0)
    if not measured.any() or measured.all():
        return slope
    usual = float(np.median(slope[measured] / limit[measured]))
    filled: Floats = np.where(measured, slope, usual * np.maximum(limit, 0.0))
    return filled
