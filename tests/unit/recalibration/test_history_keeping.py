"""The history store kept tidy: hours put together, old days deleted, torn files set aside; a crash changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bundlekeel.model.errors import StoreError
from bundlekeel.recalibration.history.ports import HOUR_MS, HistoryFile, in_force
from bundlekeel.recalibration.history.record import SCHEMA, HistoryRecord
from bundlekeel.recalibration.parquet import ParquetStore
from bundlekeel.recalibration.recorder.history_keeping import GRACE_MS, set_torn_aside, tidy_store
from bundlekeel.recalibration.recorder.history_reading import HistoryReading, check, listing, replayed
from tests.support.history_cases import START_MS, records_of, sequence
from tests.support.memory_history import MemoryStore

OVER_MS = START_MS + HOUR_MS + GRACE_MS


def filled(store: MemoryStore | ParquetStore, *, cycles: int = 6, leave_out: int = 0) -> list[HistoryFile]:
    """Two cycles a segment; one segment left out."""
    records = records_of(sequence(cycles, 1))
    return [
        store.publish(1, seq, records[2 * seq - 2 : 2 * seq]) for seq in range(1, cycles // 2 + 1) if seq != leave_out
    ]


def test_an_hour_is_put_together_only_when_it_is_over() -> None:
    """Not before its last minutes can have arrived; afterwards one file is left, with every cycle."""
    store = MemoryStore()
    filled(store)
    assert tidy_store(store, OVER_MS - 1, None).merged == 0
    assert tidy_store(store, OVER_MS, None).merged == 3
    assert [file.name for file in store.files()] == ["1-1-3.parquet"]
    assert tidy_store(store, OVER_MS, None).merged == 0
    assert replayed(store)["same"] == 6


def test_a_segment_that_comes_late_is_not_stood_for() -> None:
    """Files are put together up to a missing segment; when that one comes after all, it counts."""
    store = MemoryStore()
    filled(store, cycles=10, leave_out=3)
    tidy_store(store, OVER_MS, None)
    assert {file.name for file in store.files()} == {"1-1-2.parquet", "1-4-5.parquet"}
    store.publish(1, 3, records_of(sequence(10, 1))[4:6])
    assert len(in_force(store.files())) == 3
    tidy_store(store, OVER_MS, None)
    assert [file.name for file in store.files()] == ["1-1-5.parquet"]
    assert replayed(store)["same"] == 10


def test_a_crash_between_writing_and_deleting_doubles_nothing() -> None:
    """With the large file and its parts there, each cycle counts once; the next round deletes the parts."""
    store = MemoryStore()
    parts = filled(store)
    store.merge(parts)
    assert len(store.files()) == 4
    result = check(store)
    assert (result["ok"], result["cycles"], result["superseded"]) == (True, 6, 3)
    assert tidy_store(store, OVER_MS, None).removed == 3
    assert [file.name for file in store.files()] == ["1-1-3.parquet"]


def test_a_torn_large_file_does_not_take_its_parts_along(tmp_path: Path) -> None:
    """It is set aside, the parts stay and are put together again."""
    store = ParquetStore(tmp_path)
    parts = filled(store)
    merged = store.merge(parts)
    path = tmp_path / merged.path
    path.write_bytes(path.read_bytes()[:-100])
    done = tidy_store(store, OVER_MS, None)
    assert (done.aside, done.merged) == ([f"_aside/{merged.path}"], 3)
    assert (tmp_path / "_aside" / merged.path).is_file()
    assert replayed(store)["same"] == 6


def test_a_torn_minute_costs_its_hour_no_more_than_itself(tmp_path: Path) -> None:
    """It is set aside, said by `check` as missing cycles, and its neighbours stay to the last byte."""
    store = ParquetStore(tmp_path)
    first, second, third = filled(store)
    remaining = {file.path: (tmp_path / file.path).read_bytes() for file in (first, third)}
    path = tmp_path / second.path
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    before = check(store)
    assert [row["file"] for row in before["unreadable"]] == [second.path]
    assert set_torn_aside(store, store.files()) == [f"_aside/{second.path}"]
    assert {file.path: (tmp_path / file.path).read_bytes() for file in store.files()} == remaining
    result = check(store)
    assert (result["ok"], result["gaps"]) == (False, [{"epoch": 1, "after": 2, "before": 5, "missing": 2}])
    assert [row["cycle"] for row in result["broken"]] == [5, 6]


def test_a_file_broken_in_the_middle_is_found_when_it_is_copied(tmp_path: Path) -> None:
    store = ParquetStore(tmp_path)
    files = filled(store, cycles=8)
    path = tmp_path / files[3].path
    data = bytearray(path.read_bytes())
    data[4 : len(data) // 2] = bytes(len(data) // 2 - 4)
    path.write_bytes(bytes(data))
    assert tidy_store(store, OVER_MS, None).aside == [f"_aside/{files[3].path}"]
    tidy_store(store, OVER_MS, None)
    assert [file.name for file in store.files()] == ["1-1-3.parquet"]


def test_what_is_too_old_is_deleted() -> None:
    store = MemoryStore()
    filled(store)
    later = START_MS + 10 * 24 * HOUR_MS
    assert tidy_store(store, later, None).removed == 0
    assert tidy_store(store, later, 10).removed == 0
    assert tidy_store(store, later, 9).removed == 1
    assert store.files() == []


def test_foreign_files_are_left_alone(tmp_path: Path) -> None:
    """Names that are not ours are neither listed, nor read, nor deleted."""
    store = ParquetStore(tmp_path)
    filled(store)
    foreign = [tmp_path / "notes.txt", tmp_path / "date=2020-01-01" / "hour=01" / "part-0.parquet"]
    for path in foreign:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    tidy_store(store, OVER_MS, 1)
    assert len(store.files()) == 1
    assert [path.read_text() for path in foreign] == ["mine", "mine"]


def test_a_publication_that_was_torn_is_written_again(tmp_path: Path) -> None:
    """A half-written file under the segment's name (an object store that lost its connection) is set aside."""
    store = ParquetStore(tmp_path)
    records = records_of(sequence(2, 3))
    file = store.publish(1, 1, records)
    path = tmp_path / file.path
    whole = path.read_bytes()
    path.write_bytes(whole[:50])
    assert store.publish(1, 1, records) == file
    assert (tmp_path / "_aside" / file.path).read_bytes() == whole[:50]
    assert replayed(store)["same"] == 2


def by_another_release(path: Path, columns: Callable[[pa.Table], pa.Table], **more: Any) -> bytes:
    """Write a file again as one of the next schema, with other columns, and more to say of itself."""
    with pq.ParquetFile(path) as file:
        parsed, table = json.loads(file.metadata.metadata[b"bundlekeel"]), columns(file.read())
    with pq.ParquetWriter(path, table.schema) as writer:
        writer.add_key_value_metadata({"bundlekeel": json.dumps(parsed | {"schema": SCHEMA + 1} | more)})
        writer.write_table(table)
    return path.read_bytes()


OTHER: dict[str, Callable[[pa.Table], pa.Table]] = {
    "a column more": lambda table: table.append_column("shade", pa.nulls(table.num_rows, pa.int32())),
    "a column less": lambda table: table.drop(["seal"]),
    "the same columns": lambda table: table,
}


@pytest.mark.parametrize("schema", [SCHEMA - 1, SCHEMA + 1])
@pytest.mark.parametrize("columns", OTHER.values(), ids=OTHER)
def test_what_another_release_recorded_stays_as_it_is(
    tmp_path: Path, columns: Callable[[pa.Table], pa.Table], schema: int
) -> None:
    store = ParquetStore(tmp_path)
    newer, *_ = filled(store)
    path = tmp_path / newer.path
    whole = by_another_release(path, columns, cluster="blue", schema=schema)
    done = tidy_store(store, OVER_MS, None)
    assert (done.merged, done.aside, set_torn_aside(store, store.files())) == (2, [], [])
    assert path.read_bytes() == whole
    assert {file.name for file in store.files()} == {"1-1.parquet", "1-2-3.parquet"}
    assert [row["why"] for row in listing(store)] == ["", ""]


def test_a_file_of_another_release_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    """Not that it is torn."""
    store = ParquetStore(tmp_path)
    newer, *_ = filled(store)
    by_another_release(tmp_path / newer.path, OTHER["a column less"])
    (row,) = check(store)["unreadable"]
    assert "another release recorded it" in row["why"]


def test_foreign_columns_do_not_end_the_housekeeping(tmp_path: Path) -> None:
    """A file of our schema with a column too many cannot be merged: nothing is lost, other hours are put together."""
    store = ParquetStore(tmp_path)
    strange, *_ = filled(store)
    by_another_release(tmp_path / strange.path, OTHER["a column more"], schema=SCHEMA)
    later = records_of(sequence(4, 2, start_ms=START_MS + HOUR_MS), first=7)
    for seq in (4, 5):
        store.publish(1, seq, later[2 * seq - 8 : 2 * seq - 6])
    done = tidy_store(store, OVER_MS + HOUR_MS, None)
    assert (done.merged, done.aside) == (2, [])
    assert replayed(store)["same"] == 10


class Kept(MemoryStore):
    """Store in which a leader tidies up after this number of reads."""

    def __init__(self, after: int, now_ms: int, keep_days: int | None = None) -> None:
        super().__init__()
        self.after, self.now_ms, self.keep_days = after, now_ms, keep_days
        self.reads: int | None = None

    def records(self, file: HistoryFile) -> list[HistoryRecord]:
        """Then first the house."""
        if self.reads is not None:
            self.reads += 1
            if self.reads > self.after:
                self.reads = None
                tidy_store(self, self.now_ms, self.keep_days)
        return super().records(file)


@pytest.mark.parametrize("after", [0, 1, 2])
def test_reading_goes_on_where_minutes_are_put_together_meanwhile(after: int) -> None:
    """Every cycle is read once, from the small file or from the large one."""
    store = Kept(after, OVER_MS)
    filled(store)
    store.reads = 0
    result = check(store)
    assert [file.name for file in store.files()] == ["1-1-3.parquet"]
    assert (result["ok"], result["cycles"], result["doubles"], result["gaps"]) == (True, 6, [], [])


def test_reading_passes_over_what_is_deleted_as_too_old_meanwhile() -> None:
    """And a store that is away is still an error."""
    store = Kept(0, OVER_MS + 3 * 24 * HOUR_MS, 1)
    filled(store)
    store.reads = 0
    assert check(store)["cycles"] == 0
    other = MemoryStore()
    filled(other)
    reading, files = HistoryReading(other), other.files()
    other.away = True
    with pytest.raises(StoreError):
        list(reading.records(files))
