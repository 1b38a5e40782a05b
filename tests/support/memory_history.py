"""The history ports in memory; they pass the same contract tests as the real ones."""

from __future__ import annotations

from collections.abc import Sequence

from bundlekeel.model.errors import HistoryError, StoreError
from bundlekeel.recalibration.history.ports import HistoryFile, HistorySpan, Segment, hour_of
from bundlekeel.recalibration.history.record import HistoryRecord


class MemoryStore:
    """`HistoryStore` as a dictionary, for one `cluster`. `away`: the store does not respond. `torn`: files that cannot
    be read.
    """

    def __init__(self, cluster: str = "") -> None:
        self.cluster = cluster
        self.held: dict[HistoryFile, list[HistoryRecord]] = {}
        self.aside: list[HistoryFile] = []
        self.torn: set[HistoryFile] = set()
        self.away = False
        self.place = "memory"

    def files(self) -> list[HistoryFile]:
        """Return every file."""
        self._answer()
        return sorted(self.held)

    def span(self, file: HistoryFile) -> HistorySpan:
        records = self.records(file)
        return HistorySpan(
            schema=max(record.schema for record in records),
            first_cycle=records[0].cycle,
            last_cycle=records[-1].cycle,
            first_ms=records[0].wall_ms,
            last_ms=records[-1].wall_ms,
            cycles=len(records),
            rows=sum(1 + len(record.brokers.index) + len(record.bundles.index) for record in records),
            cluster=self.cluster,
        )

    def records(self, file: HistoryFile) -> list[HistoryRecord]:
        self._answer()
        if file not in self.held:
            raise StoreError(f"{file.path} is not there")
        if file in self.torn:
            raise HistoryError(f"{file.path} is torn")
        return list(self.held[file])

    def verify(self, file: HistoryFile) -> None:
        self.records(file)

    def publish(self, epoch: int, seq: int, records: Sequence[HistoryRecord]) -> HistoryFile:
        """Keep them."""
        self._answer()
        date, hour = hour_of(records[0].wall_ms)
        file = HistoryFile(date=date, hour=hour, epoch=epoch, first=seq, last=seq, size=len(records))
        there = next((item for item in self.held if item.path == file.path), None)
        if there in self.torn:
            self.set_aside(there)
        elif there is not None:
            if [(item.cycle, item.wall_ms) for item in self.held[there]] != [(r.cycle, r.wall_ms) for r in records]:
                raise HistoryError(f"{file.path} is there with other cycles")
            return there
        self.held[file] = list(records)
        return file

    def merge(self, files: Sequence[HistoryFile]) -> HistoryFile:
        """Store the records of several files as one file."""
        ordered = sorted(files, key=lambda file: file.first)
        together = [record for file in ordered for record in self.records(file)]
        head = ordered[0]
        merged = HistoryFile(
            date=head.date,
            hour=head.hour,
            epoch=head.epoch,
            first=head.first,
            last=ordered[-1].last,
            size=len(together),
        )
        self.held[merged] = together
        return merged

    def remove(self, file: HistoryFile) -> None:
        """Forget it."""
        self._answer()
        self.held.pop(file, None)

    def set_aside(self, file: HistoryFile) -> str:
        self._answer()
        del self.held[file]
        self.aside.append(file)
        return f"_aside/{file.path}"

    def _answer(self) -> None:
        if self.away:
            raise StoreError("the history store does not answer")


class MemoryWal:
    """`HistoryWal` as a dictionary. `full`: the disk takes nothing."""

    def __init__(self) -> None:
        self.held: dict[Segment, list[HistoryRecord]] = {}
        self.aside: list[Segment] = []
        self.full = False
        self.torn = 0
        self._open: Segment | None = None
        self._seqs: dict[int, int] = {}

    def append(self, epoch: int, record: HistoryRecord) -> None:
        """Add to the open segment."""
        if self.full:
            raise StoreError("the disk is full")
        if self._open is None or self._open.epoch != epoch:
            self._seqs[epoch] = self._seqs.get(epoch, 0) + 1
            self._open = Segment(epoch=epoch, seq=self._seqs[epoch])
        self.held.setdefault(self._open, []).append(record)

    def roll(self) -> None:
        """Close it."""
        self._open = None

    def closed(self) -> list[Segment]:
        """All but the open one."""
        return sorted(item for item in list(self.held) if item != self._open)

    def records(self, segment: Segment) -> list[HistoryRecord]:
        return list(self.held[segment])

    def discard(self, segment: Segment) -> None:
        """Forget it."""
        self.held.pop(segment, None)

    def set_aside(self, segment: Segment) -> None:
        del self.held[segment]
        self.aside.append(segment)

    @property
    def size(self) -> int:
        """Return a thousand bytes per record."""
        return 1000 * sum(map(len, list(self.held.values())))

    def close(self) -> None:
        """Do nothing."""
        self.roll()
