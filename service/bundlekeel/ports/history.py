"""Where history is kept (a store of immutable files, and the log on this machine that fills it), and where the nightly
job stores its proposals.

All of these calls block: they are called in threads and by the command line, never on the event loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Protocol

from bundlekeel.core.history.record import CycleRecord
from bundlekeel.core.model.errors import HistoryError, StoreError
from bundlekeel.core.model.numbers import MAX_TIME_MS, number

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
# Larger files are neither read as segments nor merged, because a file is in memory while its rows are copied. A minute
# of 1,000 brokers with 100 bundles each has 8 MB.
MOST_FILE_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class HistoryFile:
    """One immutable file: the segments `first` to `last` of an epoch, all of one hour (`date`: YYYY-MM-DD, UTC).

    One segment is `{epoch}-{seq}.parquet`; several, put together when their hour was over, are
    `{epoch}-{first}-{last}.parquet` and stand for the files of those segments, also where these are still there.
    """

    date: str
    hour: int
    epoch: int
    first: int
    last: int
    size: int = 0

    @property
    def name(self) -> str:
        """Its name in the folder."""
        seqs = f"{self.first}" if self.first == self.last else f"{self.first}-{self.last}"
        return f"{self.epoch}-{seqs}.parquet"

    @property
    def folder(self) -> str:
        """Its folder below the store's root."""
        return f"date={self.date}/hour={self.hour:02d}"

    @property
    def path(self) -> str:
        """Folder and name."""
        return f"{self.folder}/{self.name}"

    def covers(self, other: HistoryFile) -> bool:
        """Whether this file stands for that one, which is smaller."""
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
    """One segment of the local log: what becomes one file."""

    epoch: int
    seq: int


def hour_of(wall_ms: int) -> tuple[str, int]:
    """Return the date and hour (UTC) by which files are partitioned. Raises CodecError for a time out of range."""
    moment = datetime.fromtimestamp(number(wall_ms, field="wall_ms", highest=MAX_TIME_MS) / 1000, UTC)
    return moment.strftime("%Y-%m-%d"), moment.hour


def in_force(files: Iterable[HistoryFile]) -> list[HistoryFile]:
    """The files that count, in the order of epochs and segments: those that no larger one stands for."""
    by_place: dict[tuple[str, int, int], list[HistoryFile]] = {}
    for file in files:
        by_place.setdefault((file.date, file.hour, file.epoch), []).append(file)
    found = [
        file for together in by_place.values() for file in together if not any(other.covers(file) for other in together)
    ]
    return sorted(found, key=lambda file: (file.epoch, file.first))


def records_in_force(store: HistoryStore, file: HistoryFile, instead: set[HistoryFile]) -> Sequence[CycleRecord] | None:
    """The records of a file. A leader may tidy the store meanwhile: those of the larger file that it was put into then,
    which is added to `instead`; None: they were read there already, or it was deleted as too old. StoreError,
    HistoryError."""
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
    """By name of the cluster, in order, the files of it; those that cannot be read are left out. StoreError: the
    store does not answer."""

    def named(file: HistoryFile) -> str:
        try:
            return store.span(file).cluster
        except HistoryError:
            return ""
        except StoreError:
            # A leader may tidy the store meanwhile: what it put together or deleted is gone.
            if file.path in {item.path for item in store.files()}:
                raise
            return ""

    found: dict[str, list[HistoryFile]] = {}
    # A footer is a request or two, and there are as many files as hours.
    with ThreadPoolExecutor(8) as pool:
        for file, cluster in zip(files, pool.map(named, files), strict=True):
            if cluster:
                found.setdefault(cluster, []).append(file)
    return dict(sorted(found.items()))


def mixed(clusters: Mapping[str, Sequence[HistoryFile]]) -> str:
    """Which clusters recorded into one place, and into which files, in a sentence; empty: not more than one did."""
    if len(clusters) < 2:
        return ""
    told = []
    for cluster, files in clusters.items():
        more = f" and {len(files) - 3} more" if len(files) > 3 else ""
        told.append(f"{cluster} ({', '.join(file.path for file in files[:3])}{more})")
    return f"{len(clusters)} clusters recorded here: {', '.join(told)}; give each a history.uri of its own"


class HistoryStore(Protocol):
    """Files by date and hour. StoreError: the store does not answer or is full; HistoryError: a file cannot be read."""

    @property
    def place(self) -> str:
        """The folder or URI, as messages name it."""

    def files(self) -> list[HistoryFile]:
        """Every file, larger and smaller ones of the same segments included; foreign names and aside files are not."""

    def span(self, file: HistoryFile) -> HistorySpan:
        """What a file covers."""

    def records(self, file: HistoryFile) -> list[CycleRecord]:
        """Its records, in order."""

    def verify(self, file: HistoryFile) -> None:
        """Read all rows of a file in bounded memory, and keep none. HistoryError: the file cannot be read."""

    def publish(self, epoch: int, seq: int, records: Sequence[CycleRecord]) -> HistoryFile:
        """Write a segment's file, whole or not at all. It is left as it is when it is there; HistoryError when that
        one has other cycles. All records are of one epoch and one hour."""

    def merge(self, files: Sequence[HistoryFile]) -> HistoryFile:
        """Write the one file that stands for these, neighbours of one hour and epoch; they stay. HistoryError: one of
        them cannot be read, or they are of several clusters, and nothing was written."""

    def remove(self, file: HistoryFile) -> None:
        """Delete a file; nothing happens when it is gone."""

    def set_aside(self, file: HistoryFile) -> str:
        """Move a file to where it is not read; its new path."""


class HistoryWal(Protocol):
    """The write-ahead log on this machine, in segments. One process at a time. StoreError: the disk refuses."""

    def append(self, epoch: int, record: CycleRecord) -> None:
        """Write a record to the open segment, or to a new one when the epoch is another; on disk when this returns,
        or not there at all (StoreError)."""

    def roll(self) -> None:
        """Close the open segment; the next record opens one."""

    def closed(self) -> list[Segment]:
        """Segments that nothing is added to, those of earlier processes included, oldest first."""

    def records(self, segment: Segment) -> list[CycleRecord]:
        """A segment's records up to a torn end, which is counted (`torn`)."""

    def discard(self, segment: Segment) -> None:
        """Delete a segment whose file is published."""

    def set_aside(self, segment: Segment) -> None:
        """Keep a segment that cannot be published, out of the way."""

    @property
    def size(self) -> int:
        """Bytes of all segments."""

    @property
    def torn(self) -> int:
        """Torn ends met so far."""

    def close(self) -> None:
        """Close files and let another process in."""


NAME: Final = "thresholds.json"
# A document has about ten kilobytes; what is larger is something else.
MAX_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundDocument:
    """A document as it lies there. `path` below the root; `data`: at most `MAX_BYTES` + 1 bytes of it."""

    path: str
    data: bytes


class CalibrationStore(Protocol):
    """A folder of proposals: `{root}/{date}/thresholds.json`, the date of the run as 2026-11-21 (UTC); the latest date
    that has one counts, and a `thresholds.json` in the root where there is no date. Nothing is ever written to it."""

    def newest(self) -> FoundDocument | None:
        """The newest document, None when there is none. StoreError: the store does not answer."""
