"""The write-ahead log of history: one file per segment, each record with length and checksum, synced to the disk."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyarrow as pa

from bundlekeel.model.errors import CodecError, HistoryError, StoreError
from bundlekeel.model.numbers import integer
from bundlekeel.recalibration.history.ports import Segment
from bundlekeel.recalibration.history.record import HistoryRecord
from bundlekeel.recalibration.parquet.rows import ARROW, records_of, tables_of

_HEAD: Final = struct.Struct("<II")
_NAME: Final = re.compile(r"(\d+)-(\d+)\.wal")


class FileWal:
    """The local log of history (`recalibration.history.ports.HistoryWal`) in a directory that is locked for this
    process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: Segment | None = None
        self._fd: int | None = None
        self._sizes: dict[Segment, int] = {}
        self._torn: set[Segment] = set()
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o750)
            self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        except OSError as error:
            raise StoreError(f"history.wal: {folder} cannot be used: {error.strerror}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise StoreError(f"history.wal: {folder} is in use by another process; give each its own") from None
        for path in folder.iterdir():
            if match := _NAME.fullmatch(path.name):
                with suppress(CodecError):
                    epoch, seq = (integer(text, field=path.name) for text in match.groups())
                    self._sizes[Segment(epoch=epoch, seq=seq)] = path.stat().st_size

    def append(self, epoch: int, record: HistoryRecord) -> None:
        """Write a record and wait until it is on the disk.

        After a failure, the partial record is removed. If that fails, too, the next record opens a new segment.
        """
        payload = _encoded(record)
        data = _HEAD.pack(len(payload), zlib.crc32(payload)) + payload
        try:
            segment, fd = self._segment(epoch)
            before = os.fstat(fd).st_size
            try:
                if os.write(fd, data) != len(data):
                    raise StoreError("the disk of history.wal is full")
                os.fsync(fd)
            except (OSError, StoreError):
                self._take_back(fd, before)
                raise
        except OSError as error:
            raise StoreError(f"history.wal cannot be written: {error.strerror}") from None
        self._sizes[segment] = before + len(data)

    def _take_back(self, fd: int, size: int) -> None:
        """Truncate the segment to this size. If that fails, start a new segment: readers stop at a partial record."""
        try:
            os.ftruncate(fd, size)
        except OSError:
            self.roll()

    def _segment(self, epoch: int) -> tuple[Segment, int]:
        if self._open is not None and self._open.epoch != epoch:
            self.roll()
        if self._open is None or self._fd is None:
            seq = 1 + max((item.seq for item in self._segments_of(epoch)), default=0)
            segment = Segment(epoch=epoch, seq=seq)
            self._fd = os.open(self._path(segment), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
            self._open = self._last = segment
            self._sizes[segment] = 0
        return self._open, self._fd

    _last: Segment | None = None

    def _segments_of(self, epoch: int) -> Iterator[Segment]:
        # Iterate over a copy, because the publishing thread deletes segments at the same time.
        yield from (item for item in list(self._sizes) if item.epoch == epoch)
        if self._last is not None and self._last.epoch == epoch:
            yield self._last

    def roll(self) -> None:
        """Close the open segment."""
        if self._fd is not None:
            os.close(self._fd)
        self._open, self._fd = None, None

    def closed(self) -> list[Segment]:
        """Return every segment except the open one."""
        return sorted(item for item in list(self._sizes) if item != self._open)

    def records(self, segment: Segment) -> list[HistoryRecord]:
        """Return the records before the first incomplete one."""
        try:
            data = self._path(segment).read_bytes()
        except FileNotFoundError:
            # Another process deleted the file. A missing segment must not block later ones.
            self._torn.add(segment)
            return []
        except OSError as error:
            raise StoreError(f"history.wal cannot be read: {error.strerror}") from None
        payloads, torn = whole_payloads(data)
        if torn:
            self._torn.add(segment)
        return [record for payload in payloads for record in _decoded(payload)]

    def discard(self, segment: Segment) -> None:
        """Delete a segment."""
        try:
            self._path(segment).unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(f"history.wal cannot be written: {error.strerror}") from None
        self._sizes.pop(segment, None)

    def set_aside(self, segment: Segment) -> None:
        """Rename a segment, so that it is not read again."""
        path = self._path(segment)
        try:
            path.rename(path.with_name(f"{path.name}.aside"))
        except OSError as error:
            raise StoreError(f"history.wal cannot be written: {error.strerror}") from None
        self._sizes.pop(segment, None)

    @property
    def size(self) -> int:
        """Size of all segments in bytes."""
        return sum(list(self._sizes.values()))

    @property
    def torn(self) -> int:
        """Number of segments that end with an incomplete record."""
        return len(self._torn)

    def close(self) -> None:
        """Close the open segment and release the lock of the directory. A second call does nothing."""
        self.roll()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _path(self, segment: Segment) -> Path:
        return self._folder / f"{segment.epoch}-{segment.seq}.wal"


def whole_payloads(data: bytes) -> tuple[list[bytes], bool]:
    """Return the encoded records before the first incomplete one, and whether there is an incomplete one."""
    payloads: list[bytes] = []
    at = 0
    while at + _HEAD.size <= len(data):
        size, checksum = _HEAD.unpack_from(data, at)
        payload = data[at + _HEAD.size : at + _HEAD.size + size]
        if not size or len(payload) != size or zlib.crc32(payload) != checksum:
            break
        payloads.append(payload)
        at += _HEAD.size + size
    return payloads, at < len(data)


def _encoded(record: HistoryRecord) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, ARROW, options=options) as stream:
        for table in tables_of([record]):
            stream.write_table(table)
    return bytes(sink.getvalue())


def _decoded(payload: bytes) -> list[HistoryRecord]:
    try:
        with pa.ipc.open_stream(payload) as stream:
            return records_of([stream.read_all()])
    except (pa.ArrowException, OSError) as error:
        raise HistoryError(f"a record of history.wal cannot be read: {error}") from None
