"""Blocks of history for the back-test: some counted hours, and the hours before them to warm up. No Spark here."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from bundlekeel.core.history.record import Frame
from bundlekeel.core.model.load import Floats
from bundlekeel.jobs.periods import HistoryPeriod, RecordedCycle, read
from bundlekeel.ports.history import HOUR_MS, HistoryStore
from bundlekeel.sim.backtest import RecordedTraffic, traffic_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One stretch. `start_ms`: from when on it counts; `periods`: what is read, warm-up included."""

    number: int
    date: str
    start_ms: int
    periods: tuple[HistoryPeriod, ...]

    @property
    def name(self) -> str:
        """Its file among the dense arrays."""
        return f"{self.number:05d}.npz"

    @property
    def size(self) -> int:
        """Bytes of the files it reads."""
        return sum(period.size for period in self.periods)


def blocks_of(periods: Sequence[HistoryPeriod], dates: Collection[str], *, hours: int, warm_hours: int) -> list[Block]:
    """Blocks of these days, `hours` long, each begun `warm_hours` earlier as far as there is history.

    Where there is nothing before a block (the first day, or one after a day that is left out), its own first
    `warm_hours` warm up and are not counted, for all candidates alike.
    """
    usable = {start_of(item) for item in periods if item.date in dates}
    found: list[Block] = []
    for date in sorted(dates):
        midnight = _midnight(date)
        for begin in range(0, 24, hours):
            start = midnight + begin * HOUR_MS
            counted = {start + hour * HOUR_MS for hour in range(min(hours, 24 - begin))} & usable
            if not counted:
                continue
            before = {start - hour * HOUR_MS for hour in range(1, warm_hours + 1)} & usable
            first = start if before else min(counted) + warm_hours * HOUR_MS
            wanted = counted | before
            taken = tuple(item for item in periods if start_of(item) in wanted)
            if first <= max(counted):
                found.append(Block(number=len(found), date=date, start_ms=first, periods=taken))
    return found


def start_of(period: HistoryPeriod) -> int:
    """When a period's hour begins, in ms since 1970."""
    return _midnight(period.date) + period.hour * HOUR_MS


def _midnight(date: str) -> int:
    return int(datetime.fromisoformat(date).replace(tzinfo=UTC).timestamp() * 1000)


def dense(
    store: HistoryStore,
    block: Block,
    *,
    period_ms: int,
    per_unit: Mapping[str, Floats],
    params: Mapping[str, Any],
) -> RecordedTraffic:
    """The block as arrays. `params`: `params.*` of a recorded document, what all candidates change (those of now, not
    those of then). HistoryError when nothing of it can be rebuilt."""
    traffic = traffic_of(_frames(store, block), period_ms=period_ms, per_unit=per_unit or None)
    return replace(traffic, start=json.dumps(json.loads(traffic.start) | dict(params), ensure_ascii=False))


def _frames(store: HistoryStore, block: Block) -> Iterator[Frame]:
    last = -1
    for period in sorted(block.periods, key=lambda item: (item.date, item.hour, item.epoch)):
        for item in read(store, period):
            # A leader that has been replaced may have gone on for some seconds.
            if isinstance(item, RecordedCycle) and item.frame is not None and item.record.wall_ms > last:
                last = item.record.wall_ms
                yield item.frame


def warm_of(traffic: RecordedTraffic, start_ms: int) -> int:
    """How many of its periods lie before the counted ones."""
    return int((traffic.wall_ms < start_ms).sum())
