"""Read recorded history by period; one task reads one period.

A period is one hour of one leader's epoch. Its first record contains all values, so the other periods are not needed to
rebuild its cycles. Files are never written, moved or deleted. Unreadable files are reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bundlekeel.model.errors import HistoryError
from bundlekeel.recalibration.history.ports import HistoryFile, HistoryStore, hour_of, in_force, records_in_force
from bundlekeel.recalibration.history.record import Frame, HistoryRecord
from bundlekeel.recalibration.history.replay import rebuilt

OK = "ok"
DOUBLE = "double"
MISPLACED = "misplaced"
BROKEN = "broken"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class HistoryPeriod:
    """One hour of history in one epoch, and its files in order."""

    date: str
    hour: int
    epoch: int
    files: tuple[HistoryFile, ...]

    @property
    def size(self) -> int:
        """Size of the files in bytes."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableFile:
    """A file that is incomplete, empty, or has the format of another program or release. The file is not changed."""

    path: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCycle:
    """One recorded cycle.

    `status`: ok (`frame` is its input), double (recorded twice), misplaced (in a file of another hour) or broken.
    """

    record: HistoryRecord
    status: str
    frame: Frame | None = None
    why: str = ""


def periods_of(files: Iterable[HistoryFile]) -> list[HistoryPeriod]:
    """Return the periods of these files, oldest first. Files that a merged file replaces are not used."""
    by_period: dict[tuple[str, int, int], list[HistoryFile]] = {}
    for file in in_force(files):
        by_period.setdefault((file.date, file.hour, file.epoch), []).append(file)
    return [
        HistoryPeriod(
            date=date, hour=hour, epoch=epoch, files=tuple(sorted(together, key=lambda file: (file.first, file.last)))
        )
        for (date, hour, epoch), together in sorted(by_period.items())
    ]


def read(store: HistoryStore, period: HistoryPeriod) -> Iterator[RecordedCycle | UnreadableFile]:
    """Yield the cycles of a period, rebuilt and in order, and its unreadable files.

    Duplicate cycles and cycles of another hour are yielded without a frame (input), so that a copied file does not make
    the following cycles unusable. If the leader has merged files since they were listed, the merged file is read.
    Raises StoreError if the store does not respond.
    """
    aside: list[RecordedCycle | UnreadableFile] = []
    instead: set[HistoryFile] = set()

    def chain() -> Iterator[HistoryRecord]:
        last = -1
        for file in period.files:
            merged_before = len(instead)
            try:
                records = records_in_force(store, file, instead)
            except HistoryError as error:
                aside.append(UnreadableFile(path=file.path, why=str(error)))
                continue
            if records is None:
                continue
            if not records:
                aside.append(UnreadableFile(path=file.path, why=f"{file.path} has no cycles"))
            for record in records:
                date, hour = hour_of(record.wall_ms)
                cycle = f"cycle {record.epoch}:{record.cycle}"
                if (date, hour, record.epoch) != (period.date, period.hour, period.epoch):
                    why = f"{file.path} contains {cycle} of {date} {hour:02d}:00"
                    aside.append(RecordedCycle(record=record, status=MISPLACED, why=why))
                elif record.cycle <= last and len(instead) > merged_before:
                    continue  # the merged file repeats the cycles of the smaller ones
                elif record.cycle <= last:
                    aside.append(RecordedCycle(record=record, status=DOUBLE, why=f"{file.path} repeats {cycle}"))
                else:
                    last = record.cycle
                    yield record

    for item in rebuilt(chain()):
        yield from _drain(aside)
        if item.frame is None:
            why = f"cycle {item.record.epoch}:{item.record.cycle}: {item.why}"
            yield RecordedCycle(record=item.record, status=BROKEN, why=why)
        else:
            yield RecordedCycle(record=item.record, status=OK, frame=item.frame)
    yield from _drain(aside)


def _drain(aside: list[RecordedCycle | UnreadableFile]) -> list[RecordedCycle | UnreadableFile]:
    items, aside[:] = list(aside), []
    return items
