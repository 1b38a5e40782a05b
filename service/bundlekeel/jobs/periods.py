"""Recorded history by period, as one task reads it. No Spark here.

A period is one hour of one leader's epoch. It begins with a whole snapshot, so it is rebuilt without any other one.
Nothing is ever written, moved or deleted: what cannot be read is reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bundlekeel.adapters.history import ParquetStore
from bundlekeel.core.history.record import CycleRecord, Frame
from bundlekeel.core.history.replay import rebuilt
from bundlekeel.core.model.errors import HistoryError
from bundlekeel.ports.history import HistoryFile, HistoryStore, hour_of, in_force, records_in_force

OK = "ok"
DOUBLE = "double"
MISPLACED = "misplaced"
BROKEN = "broken"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class HistoryPeriod:
    """One hour of one epoch, and its files in order."""

    date: str
    hour: int
    epoch: int
    files: tuple[HistoryFile, ...]

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableFile:
    """A file that is torn, empty, no file of ours, or of another schema; it stays where it is."""

    path: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCycle:
    """One recorded cycle. `status`: ok (then there is a frame), double, misplaced (of another hour), broken."""

    record: CycleRecord
    status: str
    frame: Frame | None = None
    why: str = ""


def open_store(uri: str) -> HistoryStore:
    """The store at a folder or URI. StoreError when there is no such file system."""
    return ParquetStore(uri if "://" in uri else Path(uri))


def periods_of(files: Iterable[HistoryFile]) -> list[HistoryPeriod]:
    """The periods of all files that count, oldest first."""
    found: dict[tuple[str, int, int], list[HistoryFile]] = {}
    for file in in_force(files):
        found.setdefault((file.date, file.hour, file.epoch), []).append(file)
    return [
        HistoryPeriod(
            date=date, hour=hour, epoch=epoch, files=tuple(sorted(together, key=lambda file: (file.first, file.last)))
        )
        for (date, hour, epoch), together in sorted(found.items())
    ]


def read(store: HistoryStore, period: HistoryPeriod) -> Iterator[RecordedCycle | UnreadableFile]:
    """Everything recorded in a period, rebuilt, in order. StoreError when the store does not answer.

    A cycle that is there twice is told once more and not rebuilt, so that a copied file does not break the chain of
    changes; the same holds for a cycle of another hour, as of a file that lies in the wrong folder. Files that the
    leader has put together since they were listed are read there.
    """
    aside: list[RecordedCycle | UnreadableFile] = []
    instead: set[HistoryFile] = set()

    def chain() -> Iterator[CycleRecord]:
        last = -1
        for file in period.files:
            known = len(instead)
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
                if hour_of(record.wall_ms) != (period.date, period.hour) or record.epoch != period.epoch:
                    aside.append(
                        RecordedCycle(
                            record=record, status=MISPLACED, why=f"it lies in {period.date} {period.hour:02d}"
                        )
                    )
                elif record.cycle <= last and len(instead) > known:
                    continue  # the larger file begins with what was read from smaller ones
                elif record.cycle <= last:
                    aside.append(
                        RecordedCycle(record=record, status=DOUBLE, why=f"cycle {record.cycle} is there twice")
                    )
                else:
                    last = record.cycle
                    yield record

    for item in rebuilt(chain()):
        yield from _taken(aside)
        if item.frame is None:
            yield RecordedCycle(record=item.record, status=BROKEN, why=item.why)
        else:
            yield RecordedCycle(record=item.record, status=OK, frame=item.frame)
    yield from _taken(aside)


def _taken(aside: list[RecordedCycle | UnreadableFile]) -> list[RecordedCycle | UnreadableFile]:
    found, aside[:] = list(aside), []
    return found
