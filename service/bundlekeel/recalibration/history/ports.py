"""Protocols for the storage of history (a local log and a store of immutable files) and of the nightly job's proposals.

All methods block. They are called in threads and by the command line, never on the event loop.
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
# Larger files are neither accepted as the file of a segment nor merged, because a file is in memory while its rows are
# copied. A minute of 1,000 brokers with 100 bundles each has 8 MB.
MOST_FILE_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class HistoryFile:
    """One immutable file with the segments `first` to `last` of an epoch, all of one hour (`date`: YYYY-MM-DD, UTC).

    A segment is usually one minute of recorded cycles. Its file is `{epoch}-{seq}.parquet`. After their hour, the files
    of several segments are merged into `{epoch}-{first}-{last}.parquet`, which replaces them even if they still exist.
    """

    date: str
    hour: int
    epoch: int
    first: int
    last: int
    size: int = 0

    @property
    def name(self) -> str:
        """Name of the file, without its directory."""
        seqs = f"{self.first}" if self.first == self.last else f"{self.first}-{self.last}"
        return f"{self.epoch}-{seqs}.parquet"

    @property
    def folder(self) -> str:
        """Directory of the file, relative to the store's root."""
        return f"date={self.date}/hour={self.hour:02d}"

    @property
    def path(self) -> str:
        """Directory and name of the file, relative to the store's root."""
        return f"{self.folder}/{self.name}"

    def covers(self, other: HistoryFile) -> bool:
        """Return whether this file contains all segments of the smaller file `other`, and thus replaces it."""
        place = (self.date, self.hour, self.epoch) == (other.date, other.hour, other.epoch)
        inside = self.first <= other.first and other.last <= self.last
        return place and inside and (self.first, self.last) != (other.first, other.last)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySpan:
    """Contents of a file's footer: first and last cycle, their times, version of the format, rows, and cluster name."""

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
    """One segment of the local log, usually a minute of cycles. It is published as one file of the history store."""

    epoch: int
    seq: int


def hour_of(wall_ms: int) -> tuple[str, int]:
    """Return the date and hour (UTC) by which files are partitioned. Raises CodecError for a time out of range."""
    moment = datetime.fromtimestamp(number(wall_ms, field="wall_ms", highest=MAX_TIME_MS) / 1000, UTC)
    return moment.strftime("%Y-%m-%d"), moment.hour


def in_force(files: Iterable[HistoryFile]) -> list[HistoryFile]:
    """Return the files that no merged file replaces, in the order of epochs and segments."""
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
    """Return the records of a file, or of the larger file into which a leader has merged the file meanwhile.

    That larger file is added to `instead`. None: the larger file is in `instead` already, or the file was deleted
    because it was too old. Raises StoreError or HistoryError.
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
    """Return the files by the name of the cluster that recorded them, without unreadable files.

    Raises StoreError if the store does not respond.
    """

    def named(file: HistoryFile) -> str:
        try:
            return store.span(file).cluster
        except HistoryError:
            return ""
        except StoreError:
            # The file is missing if a leader has merged or deleted it meanwhile. Any other failure is an error.
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
    """Return a sentence if several clusters recorded into one store, with their names and files; else ""."""
    if len(clusters) < 2:
        return ""
    places = []
    for cluster, files in clusters.items():
        more = f" and {len(files) - 3} more" if len(files) > 3 else ""
        places.append(f"{cluster} ({', '.join(file.path for file in files[:3])}{more})")
    return f"{len(clusters)} clusters recorded here: {', '.join(places)}; set a separate history.uri for each"


class HistoryStore(Protocol):
    """The store of the history (recorded cycles of leaders): files by date and hour.

    Methods raise StoreError if the store fails or is full, and HistoryError if a file is unreadable.
    """

    @property
    def place(self) -> str:
        """The directory or URI of the store, for messages."""

    def files(self) -> list[HistoryFile]:
        """Return all files of recorded cycles, also those that a larger file replaces, without files set aside."""

    def span(self, file: HistoryFile) -> HistorySpan:
        """Return the contents of a file's footer."""

    def records(self, file: HistoryFile) -> list[HistoryRecord]:
        """Return the records of a file, in order."""

    def verify(self, file: HistoryFile) -> None:
        """Read all rows of a file in bounded memory, without keeping them. Raises HistoryError if the file is
        unreadable.
        """

    def publish(self, epoch: int, seq: int, records: Sequence[HistoryRecord]) -> HistoryFile:
        """Write the file of segment `seq`, completely or not at all. An existing file stays unchanged.

        The records must be of one epoch and one hour. Raises HistoryError if the existing file has other cycles.
        """

    def merge(self, files: Sequence[HistoryFile]) -> HistoryFile:
        """Write one file that replaces these files, which have consecutive segments of one hour and epoch.

        The old files stay. Raises HistoryError, and writes nothing, if a file is unreadable or the files are of several
        clusters.
        """

    def remove(self, file: HistoryFile) -> None:
        """Delete a file; do nothing if it is absent."""

    def set_aside(self, file: HistoryFile) -> str:
        """Move a file into the directory `_aside`, where it is not read. Returns its new path."""


class HistoryWal(Protocol):
    """The local log, in segments: it stores records until they are published. Only one process can use the log.

    Methods raise StoreError if the disk fails.
    """

    def append(self, epoch: int, record: HistoryRecord) -> None:
        """Write a record to the open segment, or to a new segment if this epoch has no open one.

        The record is on disk when this returns, and not at all if it raises StoreError.
        """

    def roll(self) -> None:
        """Close the open segment. The next record opens a new segment."""

    def closed(self) -> list[Segment]:
        """Return the closed segments, oldest first, including segments that earlier processes left."""

    def records(self, segment: Segment) -> list[HistoryRecord]:
        """Return a segment's complete records. If its last record is incomplete, `torn` is incremented."""

    def discard(self, segment: Segment) -> None:
        """Delete a segment. Call this after its file was published."""

    def set_aside(self, segment: Segment) -> None:
        """Rename a segment that cannot be published, so that it is not read again."""

    @property
    def size(self) -> int:
        """Size of all segments in bytes."""

    @property
    def torn(self) -> int:
        """Number of segments so far that end with an incomplete record."""

    def close(self) -> None:
        """Close the files and release the log for another process."""


NAME: Final = "thresholds.json"
# A proposal has about ten kilobytes. A file larger than this limit is not a proposal.
MAX_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundDocument:
    """The nightly job's proposal as stored. `path`: path below the store's root. `data`: at most the first `MAX_BYTES`
    + 1 bytes."""

    path: str
    data: bytes


class CalibrationStore(Protocol):
    """A directory of the nightly job's proposals: `{root}/{time}/thresholds.json` (start of the run in UTC, such as
    2026-11-21T020000Z).

    The newest proposal is the one of the latest time. Without directories of times, it is a `thresholds.json` in the
    root. The sidecar never writes to this store.
    """

    def newest(self) -> FoundDocument | None:
        """Return the newest proposal; None: there is no proposal. Raises StoreError if the store does not respond."""
