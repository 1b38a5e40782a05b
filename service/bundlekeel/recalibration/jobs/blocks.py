"""Blocks of history for the back-test: some hours whose results count, and warm-up hours before."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from bundlekeel.model.load import Floats
from bundlekeel.recalibration.backtest import RecordedTraffic, traffic_of
from bundlekeel.recalibration.history.ports import HOUR_MS, HistoryStore
from bundlekeel.recalibration.history.record import Frame
from bundlekeel.recalibration.jobs.periods import HistoryPeriod, RecordedCycle, read


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block of history. `start_ms`: start of the hours that count, Unix ms. `periods`: hours to read, also for
    warm-up."""

    number: int
    date: str
    start_ms: int
    periods: tuple[HistoryPeriod, ...]

    @property
    def name(self) -> str:
        """Name of the file with the block's arrays."""
        return f"{self.number:05d}.npz"

    @property
    def size(self) -> int:
        """Size of the block's history files in bytes."""
        return sum(period.size for period in self.periods)


def blocks_of(periods: Sequence[HistoryPeriod], dates: Collection[str], *, hours: int, warm_hours: int) -> list[Block]:
    """Return the blocks of these days: each has `hours` that count and, if recorded, `warm_hours` before them.

    If there is no history before a block (the first day, or a day after an omitted one), the first `warm_hours` of the
    block itself are the warm-up and do not count.
    """
    usable = {start_of(item) for item in periods if item.date in dates}
    blocks: list[Block] = []
    for date in sorted(dates):
        midnight = _midnight(date)
        for begin in range(0, 24, hours):
            start = midnight + begin * HOUR_MS
            counted_hours = {start + hour * HOUR_MS for hour in range(min(hours, 24 - begin))} & usable
            if not counted_hours:
                continue
            before = {start - hour * HOUR_MS for hour in range(1, warm_hours + 1)} & usable
            first = start if before else min(counted_hours) + warm_hours * HOUR_MS
            needed = counted_hours | before
            block_periods = tuple(item for item in periods if start_of(item) in needed)
            if first <= max(counted_hours):
                blocks.append(Block(number=len(blocks), date=date, start_ms=first, periods=block_periods))
    return blocks


def start_of(period: HistoryPeriod) -> int:
    """Return the start of a period's hour, Unix ms."""
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
    """Read the cycles of a block and return them as arrays.

    `params`: present settings by path (`params.*`). They replace the recorded settings, so that candidates are changes
    of the present settings. Raises HistoryError if no cycle can be rebuilt.
    """
    traffic = traffic_of(_frames(store, block), period_ms=period_ms, per_unit=per_unit or None)
    return replace(traffic, start=json.dumps(json.loads(traffic.start) | dict(params), ensure_ascii=False))


def _frames(store: HistoryStore, block: Block) -> Iterator[Frame]:
    last = -1
    for period in sorted(block.periods, key=lambda item: (item.date, item.hour, item.epoch)):
        for item in read(store, period):
            # Skip cycles that a replaced leader recorded while its successor was active already.
            if isinstance(item, RecordedCycle) and item.frame is not None and item.record.wall_ms > last:
                last = item.record.wall_ms
                yield item.frame


def warm_of(traffic: RecordedTraffic, start_ms: int) -> int:
    """Return the number of periods before `start_ms`, which are the warm-up."""
    return int((traffic.wall_ms < start_ms).sum())
