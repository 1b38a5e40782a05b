"""Recorded traffic as dense arrays: the input of a back-test, the same for all candidates."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bundlekeel.model.averages import LONG_SAMPLES, SHORT_SAMPLES
from bundlekeel.model.errors import HistoryError
from bundlekeel.model.load import Floats, Ints
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.snapshot import Bools
from bundlekeel.recalibration.history.frames import restored

DAY_MS: Final = 86_400_000
NO_BROKER: Final = -1
_HEADER: Final = "header"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTraffic:
    """T periods of N bundles on B brokers. Units and columns as in `model.load`.

    wall_ms (T,). rates (T, N, 4), float32 or float64: traffic of each bundle, 0 if no broker reported it. counts (T or
    1, N, 3): topics, consumers, producers. owner (T, N): index of the recorded owner in `brokers`, -1: no broker
    reported the bundle. usage (T, B, 6), limit (T or 1, B, 6), carried (T, B, 4), topics (T, B): values in brokers'
    reports. present (T, B): whether the broker was in the snapshot. reported, started (T, B): stamps of the report and
    of the broker's start. intervals (T or 1, B): as in `Snapshot`. per_unit (B, 6, 4): usage of a resource per message
    or byte per second. short, long (N, 4), samples (N, 2): averages at the bundle's first report. `bundles` and
    `brokers` are sorted.

    start: JSON, the first period's parameters, memory, ledger and guard state by path. texts: JSON values of other
    conditions (policies, pins, cordons, excluded brokers, ...). members (T, paths): for each path of
    `frames.CIRCUMSTANCES`, the index of its value in `texts`, -1: not recorded. traits: JSON, values by broker that
    rarely change.
    """

    wall_ms: Ints
    bundles: tuple[str, ...]
    brokers: tuple[str, ...]
    rates: NDArray[np.floating[Any]]
    counts: NDArray[np.int32]
    owner: NDArray[np.int32]
    usage: Floats
    limit: Floats
    carried: Floats
    topics: Ints
    present: Bools
    reported: Ints
    started: Ints
    intervals: Ints
    per_unit: Floats
    short: Floats
    long: Floats
    samples: Ints
    members: NDArray[np.int32]
    texts: tuple[str, ...]
    traits: str
    start: str

    @property
    def periods(self) -> int:
        """Number of periods."""
        return len(self.wall_ms)

    @property
    def days(self) -> list[int]:
        """Days (since 1970, UTC) of the periods, in order."""
        return [int(day) for day in np.unique(self.wall_ms // DAY_MS)]

    @property
    def nbytes(self) -> int:
        """Size of all arrays in bytes."""
        return sum(getattr(self, name).nbytes for name in _ARRAYS)

    @property
    def params(self) -> Parameters:
        """The recorded strategy parameters of the first period."""
        document = json.loads(self.start)
        params: Parameters = restored(Parameters, part_of(document, "params"))
        return params

    def to_bytes(self) -> bytes:
        """Return this traffic as bytes (numpy's npz, not compressed)."""
        header = json.dumps({name: getattr(self, name) for name in _TEXTS}, ensure_ascii=False)
        out = io.BytesIO()
        arrays: dict[str, Any] = {name: getattr(self, name) for name in _ARRAYS}
        arrays[_HEADER] = np.frombuffer(header.encode(), dtype=np.uint8)
        np.savez(out, **arrays)
        return out.getvalue()

    @staticmethod
    def from_bytes(data: bytes) -> RecordedTraffic:
        """Parse the result of `to_bytes`. Raises HistoryError if it is malformed."""
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as archive:
                arrays: dict[str, Any] = {name: archive[name] for name in _ARRAYS}
                header = json.loads(archive[_HEADER].tobytes().decode())
            arrays |= {name: tuple(header[name]) for name in ("bundles", "brokers", "texts")}
            return RecordedTraffic(**arrays, traits=header["traits"], start=header["start"])
        except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
            raise HistoryError(f"no traffic of a back-test: {error!r}") from None

    def part(self, begin: int, end: int, averages: Averaging) -> RecordedTraffic:
        """Return the periods from `begin` to before `end`. `averages`: of the bundles at `begin`. Copies no array."""
        cut: dict[str, Any] = {name: getattr(self, name)[begin:end] for name in _BY_PERIOD}
        cut |= {name: rows[begin:end] for name in _MAYBE if len(rows := getattr(self, name)) > 1}
        cut |= {"short": averages.short.copy(), "long": averages.long.copy(), "samples": averages.samples.copy()}
        return replace(self, **cut)


_TEXTS: Final = ("bundles", "brokers", "texts", "traits", "start")
_ARRAYS: Final = tuple(item.name for item in fields(RecordedTraffic) if item.name not in _TEXTS)
_BY_PERIOD: Final = (
    *("wall_ms", "rates", "owner", "usage", "carried", "topics", "present", "reported", "started", "members"),
)
# These arrays have only one row if all periods are equal.
_MAYBE: Final = ("counts", "limit", "intervals")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Consecutive periods. The first `warm` are not counted: a candidate first has to move bundles from recorded
    owners."""

    traffic: RecordedTraffic
    warm: int


def chunks(traffic: RecordedTraffic, length: int, warm: int) -> Iterator[Chunk]:
    """Yield the traffic in pieces of `length` counted periods, each with up to `warm` earlier periods.

    Each piece starts with the averages that the whole traffic has at that time, and with the recorded owners of
    bundles. Parameters, memory, ledger and guard state are those of the very first period, unless they have expired.
    """
    if length < 1 or warm < 0:
        raise ValueError(f"chunks of {length} periods with {warm} to warm up")
    averages = Averaging(traffic)
    for begin in range(0, traffic.periods, length):
        first = max(0, begin - warm)
        averages.advance(traffic, first)
        yield Chunk(traffic=traffic.part(first, begin + length, averages), warm=begin - first)


class Averaging:
    """Averages of all bundles, updated period by period as in the sidecar: with each new report of a bundle's owner.

    All candidates share these averages, because they depend only on recorded reports. A bundle starts with its first
    recorded averages. Children of a split thus start with the averages inherited from their parent.
    """

    def __init__(self, traffic: RecordedTraffic) -> None:
        self.short, self.long = traffic.short.copy(), traffic.long.copy()
        self.samples = traffic.samples.copy()
        self.period = 0
        self._stamp = np.stack([traffic.started[0], traffic.reported[0]])
        self._stamp[:, ~traffic.present[0]] = NO_BROKER
        self._seen = traffic.owner[0] >= 0

    def advance(self, traffic: RecordedTraffic, period: int) -> None:
        """Update the averages up to this period, which must not be before the present one."""
        while self.period < period:
            self.period += 1
            self._add(traffic, self.period)

    def _add(self, traffic: RecordedTraffic, period: int) -> None:
        owner = traffic.owner[period]
        now = np.stack([traffic.started[period], traffic.reported[period]])
        fresh = traffic.present[period] & (now != self._stamp).any(axis=0)
        self._stamp[:, fresh] = now[:, fresh]
        reported = owner >= 0
        sampled = reported & fresh[owner] & self._seen
        self._seen |= reported
        if sampled.all():
            self.samples += 1
            self._limit(self.samples)
            self._mix(slice(None), traffic.rates[period], self.samples)
        elif sampled.any():
            rows = np.flatnonzero(sampled)
            samples = self.samples[rows] + 1
            self._limit(samples)
            self.samples[rows] = samples
            self._mix(rows, traffic.rates[period][rows], samples)

    @staticmethod
    def _limit(samples: Ints) -> None:
        np.minimum(samples[:, 0], SHORT_SAMPLES, out=samples[:, 0])
        np.minimum(samples[:, 1], LONG_SAMPLES, out=samples[:, 1])

    def _mix(self, rows: Ints | slice, rates: NDArray[np.floating[Any]], samples: Ints) -> None:
        """Update the averages as `model.averages` does, in the same order of operations, for identical results."""
        traffic = rates.astype(np.float64)
        short_n, long_n = samples[:, 0:1], samples[:, 1:2]
        self.short[rows] = ((short_n - 1) * self.short[rows] + traffic) / short_n
        self.long[rows] = ((long_n - 1) * self.long[rows] + traffic) / long_n


def part_of(document: dict[str, Any], part: str) -> dict[str, Any]:
    """Return the values of one part of a recorded document, without its prefix (`params.strategy` -> `strategy`)."""
    start = f"{part}."
    return {path.removeprefix(start): value for path, value in document.items() if path.startswith(start)}
