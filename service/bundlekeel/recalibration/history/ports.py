"""Storage of history (a store of immutable files, and the local log that fills it) and of the nightly job's proposals.

All of these calls block: they are called in threads and by the command line, never on the event loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Protocol

from bundlekeel.model.errors import HistoryError, StoreError
from bundlekeel.model.numbers import MAX_TIME_MS, number
from bundlekeel.recalibration.history.record import HistoryRecord

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
# Larger files are neither read as segments nor merged, because a file is in memory while its rows are copied. A minute
# of 1,000 brokers with 100 bundles each has 8 MB.
MOST_FILE_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class HistoryFile:
    """One immutable file: the segments `first` to `last` of an epoch, all of one hour (`date`: YYYY-MM-DD, UTC).

    A single segment is `{epoch}-{seq}.parquet`. Several, merged after their hour, are `{epoch}-{first}-{last}.parquet`.
    That file replaces the files of those segments, even if they still exist.
    """

    date: str
    hour: int
    epoch: int
    first: int
    last: int
    size: int = 0

    @property
    def name(self) -> str:
        """File name."""
        seqs = f"{self.first}" if self.first == self.last else f"{self.first}-{self.last}"
        return f"{self.epoch}-{seqs}.parquet"

    @property
    def folder(self) -> str:
        """Directory below the store's root."""
        return f"date={self.date}/hour={self.hour:02d}"

    @property
    def path(self) -> str:
        """Directory and name, below the store's root."""
        return f"{self.folder}/{self.name}"

    def covers(self, other: HistoryFile) -> bool:
        """Return whether this file replaces the other one, which is smaller."""
        place = (self.date, self.hour, self.epoch) == (other.date, other.hour, other.epoch)
        inside = self.first <= other.first and other.last <= self.last
        return place and inside and (self.first, self.last) != (other.first, other.last)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySpan:
    """Contents of a file's footer: cycles and wall time of the file, its schema and rows, and `cluster` of the
    settings."""

    schema: int
    first_cycle: int
    last_cycle: int
    first_ms: int
    last_ms: int
    cycles: int
    rows: int
    cluster: str


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Segment:
    """One segment of the local log, which becomes one file."""

    epoch: int
    seq: int


def hour_of(wall_ms: int) -> tuple[str, int]:
    """Return the date and hour (UTC) by which files are partitioned. Raises CodecError for a time out of range."""
    moment = datetime.fromtimestamp(number(wall_ms, field="wall_ms", highest=MAX_TIME_MS) / 1000, UTC)
    return moment.strftime("%Y-%m-%d"), moment.hour


def in_force(files: Iterable[HistoryFile]) -> list[HistoryFile]:
    """Return the files that no larger file replaces, in the order of epochs and segments."""
    by_place: dict[tuple[str, int, int], list[HistoryFile]] = {}
    for file in files:
        by_place.setdefault((file.date, file.hour, file.epoch), []).append(file)
    current = [
        file for together in by_place.values() for file in together if not any(other.covers(file) for other in together)
    ]
    return sorted(current, key=lambda file: (file.epoch, file.first))


def records_in_force(
    store: HistoryStore, file: HistoryFile, instead: set[HistoryFile]
) -> Sequence[HistoryRecord] | None:
    """Return the records of a file, or of the larger file into which a leader has merged it meanwhile.

    That larger file is added to `instead`. None: it was read there already, or the file was deleted as too old. Raises
    StoreError or HistoryError.
    """
    try:
        return store.records(file)
    except StoreError:
        there = in_force(store.files())
        if any(item.path == file.path for item in there):
            raise
    larger = next((item for item in there if item.covers(file)), None)
    if larger is None or larger in instead:
        return None
    instead.add(larger)
    return store.records(larger)


def clusters_of(store: HistoryStore, files: Sequence[HistoryFile]) -> dict[str, list[HistoryFile]]:
    """Return the files by name of their cluster. Unreadable files are skipped. Raises StoreError if there is no
    response.
    """

    def named(file: HistoryFile) -> str:
        try:
            return store.span(file).cluster
        except HistoryError:
            return ""
        except StoreError:
            # A leader may clean up the store meanwhile, so a merged or deleted file is gone.
            if file.path in {item.path for item in store.files()}:
                raise
            return ""

    by_cluster: dict[str, list[HistoryFile]] = {}
    # Reading a footer takes one or two requests, and there is about one file per hour.
    with ThreadPoolExecutor(8) as pool:
        for file, cluster in zip(files, pool.map(named, files), strict=True):
            if cluster:
                by_cluster.setdefault(cluster, []).append(file)
    return dict(sorted(by_cluster.items()))


def mixed(clusters: Mapping[str, Sequence[HistoryFile]]) -> str:
    """Return one sentence naming the clusters that recorded into one place and their files; empty: fewer than two."""
    if len(clusters) < 2:
        return ""
    places = []
    for cluster, files in clusters.items():
        more = f" and {len(files) - 3} more" if len(files) > 3 else ""
        places.append(f"{cluster} ({', '.join(file.path for file in files[:3])}{more})")
    return f"{len(clusters)} clusters recorded here: {', '.join(places)}; set a separate history.uri for each"


class HistoryStore(Protocol):
    """Files by date and hour. Raises StoreError if the store fails or is full, HistoryError if a file is unreadable."""

    @property
    def place(self) -> str:
        """The directory or URI, for messages."""

    def files(self) -> list[HistoryFile]:
        """Return every file, smaller ones of the same segments included, without foreign names and files set aside."""

    def span(self, file: HistoryFile) -> HistorySpan:
        """Return the contents of a file's footer."""

    def records(self, file: HistoryFile) -> list[HistoryRecord]:
        """Return the records of a file, in order."""

    def verify(self, file: HistoryFile) -> None:
        """Read all rows of a file in bounded memory, without keeping them. Raises HistoryError if the file is
        unreadable.
        """

    def publish(self, epoch: int, seq: int, records: Sequence[HistoryRecord]) -> HistoryFile:
        """Write a segment's file, completely or not at all. An existing file stays unchanged.

        All records are of one epoch and one hour. Raises HistoryError if an existing file has other cycles.
        """

    def merge(self, files: Sequence[HistoryFile]) -> HistoryFile:
        """Write the one file that replaces these, neighbors of one hour and epoch. The old files stay.

        Raises HistoryError, and writes nothing, if one of them is unreadable or they are of several clusters.
        """

    def remove(self, file: HistoryFile) -> None:
        """Delete a file; do nothing if it is absent."""

    def set_aside(self, file: HistoryFile) -> str:
        """Move a file to where it is not read. Returns its new path."""


class HistoryWal(Protocol):
    """The local write-ahead log, in segments. For one process at a time. Raises StoreError if the disk fails."""

    def append(self, epoch: int, record: HistoryRecord) -> None:
        """Write a record to the open segment, or to a new one for another epoch.

        The record is on disk when this returns, and not at all if it raises StoreError.
        """

    def roll(self) -> None:
        """Close the open segment. The next record opens one."""

    def closed(self) -> list[Segment]:
        """Return the closed segments, those of earlier processes included, oldest first."""

    def records(self, segment: Segment) -> list[HistoryRecord]:
        """Return a segment's records up to a torn end, which is counted (`torn`)."""

    def discard(self, segment: Segment) -> None:
        """Delete a segment whose file is published."""

    def set_aside(self, segment: Segment) -> None:
        """Move a segment that cannot be published out of the way."""

    @property
    def size(self) -> int:
        """Size of all segments in bytes."""

    @property
    def torn(self) -> int:
        """Number of torn ends so far."""

    def close(self) -> None:
        """Close the files and release the log for another process."""


NAME: Final = "thresholds.json"
# A document has about ten kilobytes. A larger file is not one.
MAX_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundDocument:
    """A document as stored. `path`: below the root. `data`: at most `MAX_BYTES` + 1 bytes of it."""

    path: str
    data: bytes


class CalibrationStore(Protocol):
    """A directory of proposals: `{root}/{date}/thresholds.json`, with the date of the run as 2026-11-21 (UTC).

    The latest date with a document counts. Without dates, a `thresholds.json` in the root does. Nothing is ever
    written.
    """

    def newest(self) -> FoundDocument | None:
        """Return the newest document; None: there is none. Raises StoreError if the store does not respond."""
