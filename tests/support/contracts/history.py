"""Contract of every `HistoryStore` and every `HistoryWal`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from bundlekeel.model.errors import HistoryError, StoreError
from bundlekeel.recalibration.history.ports import HistoryStore, HistoryWal, Segment, in_force
from bundlekeel.recalibration.history.record import SCHEMA, HistoryRecord
from bundlekeel.recalibration.history.replay import rebuilt, replay
from tests.support.history_cases import START_MS, records_of, sequence

OTHER_HOUR_MS = START_MS + 3_600_000


def same(actual: Sequence[HistoryRecord], expected: Sequence[HistoryRecord]) -> bool:
    """Whether these are the records, to the last bit: each frame's checksum holds, each plan comes out the same."""
    if [(r.epoch, r.cycle, r.seal, r.outcome) for r in actual] != [
        (r.epoch, r.cycle, r.seal, r.outcome) for r in expected
    ]:
        return False
    return all(replay(item).same for item in rebuilt(actual))


def holds_what_was_published(store: HistoryStore) -> None:
    """A segment's file is in its hour's folder, says what it covers, and gives the records back."""
    records = records_of(sequence(6, 1))
    file = store.publish(1, 7, records)
    assert (file.path, file.first, file.last) == ("date=2023-11-14/hour=22/1-7.parquet", 7, 7)
    assert store.files() == [file]
    span = store.span(file)
    assert (span.first_cycle, span.last_cycle, span.cycles, span.schema) == (1, 6, 6, SCHEMA)
    assert (span.first_ms, span.last_ms) == (START_MS, START_MS + 50_000)
    # Whose name the store was opened with.
    assert span.cluster == "east"
    assert same(store.records(file), records)


def publishing_again_changes_nothing(store: HistoryStore) -> None:
    """The second attempt of a segment is the first one's file; other cycles under the same name are refused."""
    records = records_of(sequence(3, 2))
    file = store.publish(1, 1, records)
    assert store.publish(1, 1, records) == file
    with pytest.raises(HistoryError):
        store.publish(1, 1, records[:2])
    with pytest.raises(HistoryError):
        store.publish(1, 1, records_of(sequence(3, 3, start_ms=START_MS + 7)))
    assert same(store.records(file), records)


def merged_files_hold_all(store: HistoryStore) -> None:
    """The larger file has the records of its parts, which stay, and stands for them."""
    records = records_of(sequence(9, 3))
    parts = [store.publish(4, seq, records[3 * seq - 3 : 3 * seq]) for seq in (1, 2, 3)]
    merged = store.merge(parts)
    assert (merged.name, merged.folder) == ("4-1-3.parquet", parts[0].folder)
    assert set(store.files()) == {*parts, merged}
    assert in_force(store.files()) == [merged]
    assert same(store.records(merged), [r for part in parts for r in store.records(part)])
    assert (store.span(merged).cycles, store.span(merged).cluster) == (9, "east")


def removed_files_are_gone(store: HistoryStore) -> None:
    """A file can be deleted, twice as well, and the others stay."""
    first = store.publish(1, 1, records_of(sequence(1, 4)))
    second = store.publish(1, 2, records_of(sequence(1, 5)))
    store.remove(first)
    store.remove(first)
    assert store.files() == [second]
    with pytest.raises(StoreError):
        store.records(first)


def aside_files_are_not_listed(store: HistoryStore) -> None:
    file = store.publish(1, 1, records_of(sequence(1, 6)))
    assert file.name in store.set_aside(file)
    assert store.files() == []


def hours_are_folders(store: HistoryStore) -> None:
    """Files of several hours and epochs are told apart, and come in order."""
    late = store.publish(2, 1, records_of(sequence(2, 7, start_ms=OTHER_HOUR_MS), epoch=2))
    early = store.publish(1, 1, records_of(sequence(2, 8)))
    assert (early.hour, late.hour) == (22, 23)
    assert in_force(store.files()) == [early, late]


STORE_CHECKS: tuple[Callable[[HistoryStore], None], ...] = (
    holds_what_was_published,
    publishing_again_changes_nothing,
    merged_files_hold_all,
    removed_files_are_gone,
    aside_files_are_not_listed,
    hours_are_folders,
)


def segments_hold_what_was_appended(wal: HistoryWal) -> None:
    """Records come back in order; the open segment is not closed until it is rolled."""
    records = records_of(sequence(5, 1))
    for record in records:
        wal.append(1, record)
    assert wal.closed() == []
    wal.roll()
    assert wal.closed() == [Segment(epoch=1, seq=1)]
    assert same(wal.records(Segment(epoch=1, seq=1)), records)
    assert wal.torn == 0


def numbers_go_on(wal: HistoryWal) -> None:
    """A segment's number is never given twice within an epoch, also when earlier ones were discarded; another epoch
    has its own segment."""
    record = records_of(sequence(1, 2))[0]
    wal.append(1, record)
    wal.roll()
    wal.discard(Segment(epoch=1, seq=1))
    wal.append(1, record)
    wal.append(2, record)
    assert wal.closed() == [Segment(epoch=1, seq=2)]
    wal.roll()
    assert wal.closed() == [Segment(epoch=1, seq=2), Segment(epoch=2, seq=1)]


def size_tells_what_is_kept(wal: HistoryWal) -> None:
    """Bytes grow with records and shrink with segments. A segment that was set aside is not returned again."""
    record = records_of(sequence(1, 3))[0]
    assert wal.size == 0
    wal.append(1, record)
    one = wal.size
    wal.append(1, record)
    assert wal.size == 2 * one > 0
    wal.append(2, record)
    wal.roll()
    wal.discard(Segment(epoch=1, seq=1))
    assert wal.size == one
    wal.set_aside(Segment(epoch=2, seq=1))
    assert (wal.size, wal.closed()) == (0, [])


WAL_CHECKS: tuple[Callable[[HistoryWal], None], ...] = (
    segments_hold_what_was_appended,
    numbers_go_on,
    size_tells_what_is_kept,
)

__all__ = ["STORE_CHECKS", "WAL_CHECKS", "same"]
