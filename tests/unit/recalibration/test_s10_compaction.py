"""A file of history that becomes gigabytes when it is decoded does not touch the leader's process."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bundlekeel.model.errors import HistoryError, StoreError
from bundlekeel.recalibration.parquet import ParquetStore, store
from bundlekeel.recalibration.parquet.rows import ARROW
from bundlekeel.recalibration.recorder import compaction
from bundlekeel.recalibration.recorder.history_keeping import tidy_store
from tests.support.history_cases import records_of, sequence
from tests.unit.recalibration.test_history_keeping import OVER_MS, filled

MEMORY = 320 << 20


def inflated(place: Path, rows: int, name: str = "") -> ParquetStore:
    """Return a store of three minutes, of which the second one has many equal rows and a true footer."""
    files = filled(parquet_store := ParquetStore(place))
    path, span = place / files[1].path, asdict(parquet_store.span(files[1]))
    columns = [
        pa.array(["x"]).cast(pa.string()) if field.name == "kind" else pa.nulls(1, field.type) for field in ARROW
    ]
    columns[ARROW.names.index("name")] = pa.array([name])
    table = pa.concat_tables([pa.Table.from_arrays(columns, schema=ARROW)] * rows)
    with pq.ParquetWriter(path, ARROW, compression="zstd") as writer:
        writer.add_key_value_metadata({"bundlekeel": json.dumps(span)})
        writer.write_table(table)
    return parquet_store


def test_s10_compaction_runs_in_another_process(tmp_path: Path) -> None:
    parquet_store = ParquetStore(tmp_path)
    filled(parquet_store)
    done = compaction.tidied(tmp_path, OVER_MS, None, memory=MEMORY)
    assert (done.merged, done.aside) == (3, []) and [file.name for file in parquet_store.files()] == ["1-1-3.parquet"]


def test_s10_a_file_that_does_not_fit_into_memory_is_set_aside(tmp_path: Path) -> None:
    """500 names of 1 MB are one name in the file, and its footer does not show it."""
    parquet_store = inflated(tmp_path, 500, "n" * (1 << 20))
    done = compaction.tidied(tmp_path, OVER_MS, None, memory=MEMORY)
    assert [Path(path).name for path in done.aside] == ["1-2.parquet"]
    assert [file.name for file in parquet_store.files()] == ["1-1.parquet", "1-3.parquet"]


@pytest.mark.parametrize("bound", ["_MOST_ROWS", "_MOST_GROUP_BYTES", "_MOST_GROUPS"])
def test_s10_what_the_footer_announces_is_bounded(tmp_path: Path, monkeypatch: Any, bound: str) -> None:
    """Before a row is read, for compaction and for all other readers."""
    parquet_store = inflated(tmp_path, 2000)
    monkeypatch.setattr(store, bound, 0 if bound == "_MOST_GROUPS" else 500)
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", lambda *_args, **_inputs: pytest.fail("rows are read"))
    monkeypatch.setattr(pq.ParquetFile, "read", lambda *_args, **_inputs: pytest.fail("rows are read"))
    for read in (parquet_store.verify, parquet_store.records):
        with pytest.raises(HistoryError, match="at most"):
            read(parquet_store.files()[1])


def test_s10_equal_rows_are_copied_in_small_batches(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(store, "_BATCH_ROWS", 100)
    parquet_store = inflated(tmp_path, 1000)
    assert max(table.num_rows for table in parquet_store._batches(parquet_store.files())) <= 100


def test_s10_a_large_file_is_left_alone(tmp_path: Path, monkeypatch: Any) -> None:
    """It is not put together with others, and in the place of a segment it is set aside unread."""
    parquet_store = ParquetStore(tmp_path)
    filled(parquet_store)
    monkeypatch.setattr("bundlekeel.recalibration.recorder.history_keeping.MOST_FILE_BYTES", 10)
    assert tidy_store(parquet_store, OVER_MS, None).merged == 0 and len(parquet_store.files()) == 3
    monkeypatch.setattr(store, "MOST_FILE_BYTES", 10)
    monkeypatch.setattr(ParquetStore, "span", lambda *_args: pytest.fail("is read"))
    parquet_store.publish(1, 2, records_of(sequence(6, 1))[2:4])
    assert (tmp_path / "_aside" / parquet_store.files()[1].path).exists()


@pytest.mark.parametrize(("memory", "timeout"), [(1, 60.0), (MEMORY, 0.001)])
def test_s10_a_child_that_ends_early_is_a_store_error(tmp_path: Path, memory: int, timeout: float) -> None:
    filled(ParquetStore(tmp_path))
    with pytest.raises(StoreError, match="not tidied"):
        compaction.tidied(tmp_path, OVER_MS, None, memory=memory, timeout=timeout)
