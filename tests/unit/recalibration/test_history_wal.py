"""The local log of history as files: what others do to its folder, and two threads at once."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bundlekeel.model.errors import StoreError
from bundlekeel.recalibration.history.ports import Segment
from bundlekeel.recalibration.parquet import FileWal
from tests.support.history_cases import records_of, sequence


def filled(folder: Path, segments: int) -> FileWal:
    """A record a segment."""
    wal = FileWal(folder)
    for record in records_of(sequence(segments, 1)):
        wal.append(1, record)
        wal.roll()
    return wal


def test_a_deleted_segment_does_not_hold_up_those_after_it(tmp_path: Path) -> None:
    """Somebody made room by hand: what is gone is counted, and the rest can be published."""
    wal = filled(tmp_path, 3)
    (tmp_path / "1-2.wal").unlink()
    assert [len(wal.records(segment)) for segment in wal.closed()] == [1, 0, 1]
    assert wal.torn == 1
    wal.discard(Segment(epoch=1, seq=2))
    assert wal.closed() == [Segment(epoch=1, seq=1), Segment(epoch=1, seq=3)]
    wal.close()


def test_segments_may_be_discarded_while_the_next_one_gets_its_number(tmp_path: Path) -> None:
    """One thread publishes, the other one writes."""
    wal = filled(tmp_path, 3)
    numbers = wal._segments_of(1)
    found = [next(numbers)]
    wal.discard(Segment(epoch=1, seq=2))
    found.extend(numbers)
    assert max(found) == Segment(epoch=1, seq=3)
    wal.close()


@contextmanager
def most_bytes_of_a_file(limit: int) -> Iterator[None]:
    """The kernel itself writes no file further than this."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def only_file(folder: Path) -> Path:
    """The one segment in it."""
    (found,) = folder.glob("*.wal")
    return found


def test_a_short_write_leaves_nothing_in_front_of_the_next_record(tmp_path: Path) -> None:
    """The disk took a part of a record: the part goes, the record is refused, and the next one can be read."""
    wal = FileWal(tmp_path)
    first, second, third = records_of(sequence(3, 1))
    wal.append(1, first)
    whole = only_file(tmp_path).stat().st_size
    with most_bytes_of_a_file(whole + 100), pytest.raises(StoreError, match="full"):
        wal.append(1, second)
    assert only_file(tmp_path).stat().st_size == wal.size == whole
    wal.append(1, third)
    wal.roll()
    assert [record.cycle for record in wal.records(wal.closed()[0])] == [first.cycle, third.cycle]
    assert wal.torn == 0
    wal.close()


def test_records_after_a_failed_truncation_go_into_a_new_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of a record that cannot be taken away again ends its segment: what came after it could not be read."""

    def refused(fd: int, length: int) -> None:
        raise OSError(errno.EIO, "input/output error")

    wal = FileWal(tmp_path)
    first, second, third = records_of(sequence(3, 1))
    wal.append(1, first)
    with monkeypatch.context() as faulty, most_bytes_of_a_file(only_file(tmp_path).stat().st_size + 100):
        faulty.setattr(os, "ftruncate", refused)
        with pytest.raises(StoreError):
            wal.append(1, second)
    wal.append(1, third)
    wal.roll()
    assert [[record.cycle for record in wal.records(segment)] for segment in wal.closed()] == [
        [first.cycle],
        [third.cycle],
    ]
    assert wal.torn == 1
    wal.close()


def test_a_record_is_on_the_disk_when_append_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Synced once a record, when all of it is written."""
    synced: list[int] = []
    really = os.fsync

    def noted(fd: int) -> None:
        really(fd)
        synced.append(os.fstat(fd).st_size)

    monkeypatch.setattr(os, "fsync", noted)
    wal, written = FileWal(tmp_path), []
    for record in records_of(sequence(2, 1)):
        wal.append(1, record)
        written.append(only_file(tmp_path).stat().st_size)
        assert synced == written
    wal.close()
