"""Laws of recorded history: any recorded sequence of plan inputs replays to the same plan hashes, also after publishing
and compaction, and after a crash during the last record.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import fields
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

from bundlekeel.planning.engine import plan
from bundlekeel.recalibration.history.frames import frame_of, input_of
from bundlekeel.recalibration.history.ports import HOUR_MS, Segment, in_force
from bundlekeel.recalibration.history.record import HistoryRecord, places_of, runs_of
from bundlekeel.recalibration.history.replay import RebuiltCycle, rebuilt, replay
from bundlekeel.recalibration.parquet import FileWal, ParquetStore
from bundlekeel.recalibration.parquet.wal import whole_payloads
from bundlekeel.recalibration.recorder.history_keeping import tidy_store
from bundlekeel.recalibration.recorder.history_reading import check, replayed
from tests.support.history_cases import START_MS, records_of, sequence

SEEDS = st.integers(0, 2**32 - 1)


def all_same(items: Sequence[RebuiltCycle]) -> bool:
    """Whether each plans as recorded."""
    return all(replay(item).same for item in items)


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, cycles=st.integers(1, 12))
def test_changes_rebuild_the_very_input(seed: int, cycles: int) -> None:
    """Frames come back to the last bit, the inputs made of them are equal field by field, and plans are the same."""
    inputs = list(sequence(cycles, seed))
    records = records_of(inputs)
    assert [record.full for record in records] == [number == 0 for number in range(cycles)]
    items = list(rebuilt(records))
    assert all_same(items)
    for given_input, item in zip(inputs, items, strict=True):
        assert item.frame is not None
        plan_input = input_of(item.frame)
        for name in ("params", "memory", "ledger", "guard", "policies", "seed", "brokers_split", "owned"):
            assert getattr(plan_input, name) == getattr(given_input, name), name
        for table in ("brokers", "bundles"):
            was, now = getattr(given_input.snapshot, table), getattr(plan_input.snapshot, table)
            for column in (item for item in fields(was) if item.compare):
                left, right = getattr(was, column.name), getattr(now, column.name)
                if isinstance(left, np.ndarray):
                    assert (left.dtype, left.shape, left.tobytes()) == (right.dtype, right.shape, right.tobytes())
                else:
                    assert left == right, column.name
        assert frame_of(plan_input).seal() == frame_of(given_input).seal() == item.record.seal


@settings(max_examples=6, deadline=None)
@given(seed=SEEDS, cuts=st.lists(st.integers(1, 11), max_size=3))
def test_published_and_compacted_history_replays(seed: int, cuts: list[int]) -> None:
    """Whatever segments the records come in, over an hour's end, before and after compaction: every cycle is there
    once and replays to the recorded hash."""
    records = records_of(sequence(12, seed, start_ms=START_MS + HOUR_MS - 60_000))
    edges = sorted({0, 6, 12, *cuts})
    with tempfile.TemporaryDirectory() as folder:
        store = ParquetStore(Path(folder))
        for seq, (start, end) in enumerate(pairwise(edges), 1):
            store.publish(3, seq, records[start:end])
        before = replayed(store)
        tidy_store(store, START_MS + 3 * HOUR_MS, None)
        assert len(in_force(store.files())) == len(store.files()) == 2
        after = replayed(store)
        assert check(store)["ok"]
    assert before == after
    assert (before["ok"], before["same"], before["cycles"]) == (True, 12, 12)


def test_a_torn_end_at_every_byte_costs_only_the_last_record(tmp_path: Path) -> None:
    """A log cut within its last record returns all records before it, and reports that it was torn. These records
    replay. A log cut exactly before that record is not torn.
    """
    records = records_of(sequence(3, 11))
    wal = FileWal(tmp_path / "whole")
    sizes = []
    for record in records:
        wal.append(5, record)
        sizes.append(wal.size)
    wal.close()
    name = "5-1.wal"
    data = (tmp_path / "whole" / name).read_bytes()
    for length in range(sizes[-2], sizes[-1]):
        payloads, torn = whole_payloads(data[:length])
        assert (len(payloads), torn) == (2, length > sizes[-2]), length
    assert whole_payloads(data)[1] is False
    folder = tmp_path / "torn"
    folder.mkdir()
    for length in (*range(sizes[-2], sizes[-2] + 10), sizes[-1] - 1):
        (folder / name).write_bytes(data[:length])
        cut = FileWal(folder)
        records_read = cut.records(Segment(epoch=5, seq=1))
        assert [record.seal for record in records_read] == [record.seal for record in records[:2]], length
        assert cut.torn == (length > sizes[-2]), length
        cut.close()
    assert all_same(list(rebuilt(records_read)))


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS)
def test_a_changed_bit_is_never_replayed_as_good(seed: int) -> None:
    """A log with any one byte changed gives fewer records, never other ones."""
    rng = np.random.default_rng(seed)
    records = records_of(sequence(2, seed))
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        wal = FileWal(folder)
        for record in records:
            wal.append(1, record)
        wal.roll()
        path = folder / "1-1.wal"
        data = bytearray(path.read_bytes())
        data[int(rng.integers(len(data)))] ^= int(rng.integers(1, 256))
        path.write_bytes(bytes(data))
        records_read = wal.records(Segment(epoch=1, seq=1))
        wal.close()
    assert len(records_read) < 2
    assert [record.seal for record in records_read] == [record.seal for record in records[: len(records_read)]]


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, lost=st.integers(1, 5))
def test_without_its_base_nothing_is_made_up(seed: int, lost: int) -> None:
    """With one record missing, those after it have no picture up to the next whole one; the others are unharmed."""
    records = records_of(sequence(6, seed)) + records_of(sequence(2, seed + 1), epoch=2, first=7)
    records_left: list[HistoryRecord] = [record for record in records if record.cycle != lost]
    items = list(rebuilt(records_left))
    assert [item.record.cycle for item in items if item.frame is not None] == [*range(1, lost), 7, 8]
    assert all_same([item for item in items if item.frame is not None])
    assert not any(replay(item).same for item in items if item.frame is None)


@given(st.lists(st.integers(-1, 30), max_size=40))
def test_runs_say_where_rows_were(places: list[int]) -> None:
    """Any order of rows, new ones among them, survives as runs."""
    array = np.array(places, dtype=np.int64)
    assert places_of(runs_of(array)).tolist() == places


def test_enough_of_the_cases_move_something() -> None:
    """The sequences are not idle clusters: a third of the plans moves bundles."""
    moved = [bool(plan(item).plan.moves) for seed in range(10) for item in sequence(12, seed)]
    assert sum(moved) > len(moved) / 3


@pytest.mark.parametrize("features", ["", "off"])
def test_another_process_replays_to_the_same_hashes(features: str, tmp_path: Path) -> None:
    """History recorded here replays in another process with another hash seed, and without the optional CPU features of
    numpy: 60 cycles, at least 20 of which move bundles.
    """
    store = ParquetStore(tmp_path)
    for epoch in range(1, 6):
        store.publish(epoch, 1, records_of(sequence(12, epoch), epoch=epoch, first=12 * epoch))
    used = [name for name in __cpu_dispatch__ if __cpu_features__.get(name)]
    env = {**os.environ, "PYTHONHASHSEED": "7", "NPY_DISABLE_CPU_FEATURES": " ".join(used) if features else ""}
    command = [sys.executable, "-m", "bundlekeel", "replay", "all", "--history", str(tmp_path), "-o", "json"]
    hashes = json.loads(subprocess.run(command, env=env, capture_output=True, check=True, timeout=110).stdout)
    assert (hashes["same"], hashes["cycles"]) == (60, 60)
    assert hashes["moved"] >= 20
