"""The local log of history as files: what others do to its folder, and two threads at once."""

from __future__ import annotations

from pathlib import Path

from bundlekeel.adapters.history import FileWal
from bundlekeel.ports.history import Segment
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
    numbers = wal._seen(1)
    found = [next(numbers)]
    wal.discard(Segment(epoch=1, seq=2))
    found.extend(numbers)
    assert max(found) == Segment(epoch=1, seq=3)
    wal.close()
