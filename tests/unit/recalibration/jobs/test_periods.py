"""Reading and digest of a period in a task, without Spark."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bundlekeel.model.load import BANDWIDTH_IN, CPU
from bundlekeel.recalibration.jobs.backtest import recorded_inputs
from bundlekeel.recalibration.jobs.columns import CYCLES, DIGEST, SLICES
from bundlekeel.recalibration.jobs.digest import ABSURD_RATE, digest, find_impossible
from bundlekeel.recalibration.jobs.periods import (
    BROKEN,
    DOUBLE,
    MISPLACED,
    OK,
    HistoryPeriod,
    RecordedCycle,
    UnreadableFile,
    periods_of,
    read,
)
from bundlekeel.recalibration.jobs.places import OutputFolder
from bundlekeel.recalibration.parquet import ParquetStore
from dev.history_model import World
from dev.history_worlds import records, write

WORLD = World(seed=5, days=1, brokers=3, bundles=20, period_seconds=600)
DATE = "2023-11-13"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a day of history. Tests must not change it."""
    folder = tmp_path_factory.mktemp("day")
    write(WORLD, folder)
    return folder


@pytest.fixture
def history(written: Path, tmp_path: Path) -> Path:
    """Copy the day, so that a test can damage it."""
    return Path(shutil.copytree(written, tmp_path / "day"))


def period(folder: Path, hour: int) -> HistoryPeriod:
    """Return one hour of the day."""
    return next(item for item in periods_of(ParquetStore(folder).files()) if item.hour == hour)


def statuses(folder: Path, hour: int) -> list[str]:
    """Return the status of each cycle of an hour."""
    return [
        item.status if isinstance(item, RecordedCycle) else "unreadable"
        for item in read(ParquetStore(folder), period(folder, hour))
    ]


def test_an_hour_is_rebuilt_by_itself(written: Path) -> None:
    """There are 24 periods of six cycles. Each starts with its own full snapshot."""
    hours = periods_of(ParquetStore(written).files())
    assert [(item.date, item.hour, item.epoch) for item in hours] == [(DATE, hour, 1) for hour in range(24)]
    assert statuses(written, 7) == [OK] * 6


def test_a_copied_file_does_not_break_the_chain(history: Path) -> None:
    """Cycles of the second copy are duplicates. The first copy stays usable."""
    file = period(history, 3).files[0]
    place = history / file.folder
    shutil.copy(place / file.name, place / "1-99999.parquet")
    assert statuses(history, 3) == [OK] * 6 + [DOUBLE] * 6


def test_a_file_in_the_wrong_folder_is_told(history: Path) -> None:
    """The cycles of such a file belong to another hour or leader."""
    file = period(history, 3).files[0]
    shutil.copy(history / file.folder / file.name, history / f"date={DATE}" / "hour=09" / "1-99999.parquet")
    shutil.copy(history / file.folder / file.name, history / f"date={DATE}" / "hour=03" / "2-1.parquet")
    assert statuses(history, 9) == [OK] * 6 + [MISPLACED] * 6
    other = next(item for item in periods_of(ParquetStore(history).files()) if item.epoch == 2)
    items = list(read(ParquetStore(history), other))
    assert [item.status for item in items if isinstance(item, RecordedCycle)] == [MISPLACED] * 6


def test_a_torn_file_is_told_and_left(history: Path) -> None:
    """The file is not moved, and the other files of the day are read."""
    file = period(history, 3).files[0]
    path = history / file.path
    path.write_bytes(path.read_bytes()[:1000])
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    items = list(read(ParquetStore(history), period(history, 3)))
    assert len(items) == 1
    assert isinstance(items[0], UnreadableFile)
    assert (items[0].path, "torn" in items[0].why) == (file.path, True)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before
    assert statuses(history, 4) == [OK] * 6


def test_a_file_without_cycles_is_told(history: Path) -> None:
    """An hour with a valid, empty file differs from an hour without a recording."""
    path = history / period(history, 3).files[0].path
    pq.write_table(pq.read_table(path).slice(0, 0), path)
    items = list(read(ParquetStore(history), period(history, 3)))
    assert [(type(item), item.why) for item in items] == [
        (UnreadableFile, f"{path.relative_to(history)} has no cycles")
    ]


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("wall_ms", None, "has no wall_ms"),
        ("wall_ms", 1 << 62, "ms since 1970"),
        ("wall_ms", -1, "is of -1 ms"),
        ("schema", None, "has no schema"),
        ("dropped", None, "has no dropped"),
    ],
)
def test_a_cycle_that_cannot_be_is_told(history: Path, column: str, value: int | None, reason: str) -> None:
    """A file with missing values or impossible times is reported as unreadable, and does not end the run."""
    path = history / period(history, 3).files[0].path
    table = pq.read_table(path)
    at = table.schema.get_field_index(column)
    kind = table.schema.field(at).type
    pq.write_table(table.set_column(at, column, pa.array([value] * table.num_rows, kind)), path)
    assert statuses(history, 3) == ["unreadable"]
    assert reason in next(item.why for item in read(ParquetStore(history), period(history, 3)))


@pytest.mark.parametrize(
    "name",
    [
        f"date={DATE}/hour=03/01-99.parquet",
        f"date={DATE}/hour=03/1-0099.parquet",
        f"date={DATE}/hour=03/1-99-99.parquet",
        f"date={DATE}/hour=24/1-4.parquet",
        "date=2023-13-45/hour=03/1-4.parquet",
        f"date={DATE}/hour=03/1-4 (copy).parquet",
    ],
)
def test_names_that_we_do_not_give_are_foreign(history: Path, name: str) -> None:
    """Files with an impossible day or another form of number are ignored, and do not end the run."""
    before, file = ParquetStore(history).files(), period(history, 3).files[0]
    (history / name).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(history / file.path, history / name)
    assert ParquetStore(history).files() == before


@pytest.mark.parametrize("name", ["01-4.parquet", "1-4-4.parquet"])
def test_a_copy_beside_its_file_is_a_double(history: Path, name: str) -> None:
    """This holds for each form of the numbers in its name."""
    file = period(history, 3).files[0]
    shutil.copy(history / file.path, history / file.folder / name)
    assert statuses(history, 3) == [OK] * 6 + [DOUBLE] * 6


def test_an_hour_that_is_put_together_meanwhile_is_read_once(history: Path, tmp_path: Path) -> None:
    """The leader deletes the parts when the merged file exists. Cycles read from them are not duplicates."""
    store = ParquetStore(tmp_path / "parts")
    cycles = ParquetStore(history).records(period(history, 3).files[0])
    parts = [store.publish(1, part + 1, cycles[2 * part : 2 * part + 2]) for part in range(3)]
    (hour,) = periods_of(store.files())
    reading = read(store, hour)
    first = next(reading)
    store.merge(parts)
    for part in parts:
        store.remove(part)
    assert [item.status for item in (first, *reading) if isinstance(item, RecordedCycle)] == [OK] * 6


def test_a_newer_schema_is_told(tmp_path: Path) -> None:
    """Each cycle of the file is broken, and the reason names the schema."""
    write(replace(WORLD, days=1), tmp_path, poison="future_schema")
    items = list(read(ParquetStore(tmp_path), period(tmp_path, 7)))
    assert {item.status for item in items if isinstance(item, RecordedCycle)} == {BROKEN}
    assert all("another release recorded it" in item.why for item in items)


def test_a_change_without_its_base_is_broken(tmp_path: Path) -> None:
    """The second file of a leader cannot be read without the first."""
    cycles = [record for record, _ in zip(records(WORLD), range(6), strict=False)]
    ParquetStore(tmp_path).publish(1, 2, cycles[3:])
    assert statuses(tmp_path, 0) == [BROKEN] * 3


def rows_of(folder: Path, hour: int) -> dict[str, list[dict[str, object]]]:
    """Return the digest of an hour, by kind."""
    batches = list(digest(ParquetStore(folder), period(folder, hour)))
    assert all(batch.schema == DIGEST for batch in batches)
    rows: dict[str, list[dict[str, object]]] = {"cycle": [], "slice": [], "file": []}
    for row in pa.Table.from_batches(batches, DIGEST).to_pylist():
        rows[row["kind"]].append(row[row["kind"]])
    return rows


def test_a_digest_agrees_with_the_pictures(written: Path) -> None:
    """One row per cycle, and per broker and ten minutes; sums equal those of the snapshots."""
    rows = rows_of(written, 7)
    assert [len(rows[kind]) for kind in ("cycle", "slice", "file")] == [6, 18, 0]
    assert set(rows["cycle"][0]) == set(CYCLES.names)
    assert set(rows["slice"][0]) == set(SLICES.names)
    cycles = [item for item in read(ParquetStore(written), period(written, 7)) if isinstance(item, RecordedCycle)]
    for row, item in zip(rows["cycle"], cycles, strict=True):
        assert item.frame is not None
        assert row["bytes"] == pytest.approx(item.frame.bundles.floats[:, 2:4].sum())
        assert (row["nan"], row["negative"], row["absurd"]) == (0, 0, 0)
        assert (row["params"] is not None) == (item is cycles[-1])
    for row in rows["slice"]:
        assert row["carried"] == pytest.approx(row["told"], rel=1e-3)
        assert 0 < float(str(row["score"])) < 1


def test_impossible_values_are_counted(written: Path) -> None:
    """NaN, negative and absurd values are counted. A negative limit is a network card without a known speed."""
    frame = next(
        item.frame for item in read(ParquetStore(written), period(written, 0)) if isinstance(item, RecordedCycle)
    )
    assert frame is not None
    assert find_impossible(frame) == (0, 0, 0, "")
    brokers, bundles = frame.brokers.floats.copy(), frame.bundles.floats.copy()
    brokers[0, CPU], brokers[1, CPU], brokers[2, CPU] = np.nan, -1.0, 1e9
    brokers[:, BANDWIDTH_IN], brokers[:, 6 + BANDWIDTH_IN] = -0.5, -1000.0
    bundles[0, 0], bundles[1, 2], bundles[2, 5] = 2 * ABSURD_RATE, -1.0, np.inf
    spoilt = replace(
        frame, brokers=replace(frame.brokers, floats=brokers), bundles=replace(frame.bundles, floats=bundles)
    )
    # An infinite value counts as not a number and as too large.
    assert find_impossible(spoilt) == (2, 2, 3, "usage_cpu of broker-0000:8080 is nan")


def test_whole_numbers_below_zero_are_counted(written: Path) -> None:
    """Topics and clients are counts. A flag of a broker can be -1, which means unknown."""
    frame = next(
        item.frame for item in read(ParquetStore(written), period(written, 0)) if isinstance(item, RecordedCycle)
    )
    assert frame is not None
    brokers, bundles = frame.brokers.whole.copy(), frame.bundles.whole.copy()
    brokers[0, 3], brokers[:, 4:] = -1, -1
    bundles[0, 2:5] = -7
    spoilt = replace(
        frame, brokers=replace(frame.brokers, whole=brokers), bundles=replace(frame.bundles, whole=bundles)
    )
    assert find_impossible(spoilt) == (0, 4, 0, "topics of broker-0000:8080 is -1")


def test_cycles_of_a_replaced_leader_are_read_once(written: Path, tmp_path: Path) -> None:
    """A leader that recorded while its successor was active already adds nothing."""
    store = ParquetStore(tmp_path)
    cycles = ParquetStore(written).records(period(written, 3).files[0])
    store.publish(1, 1, cycles)
    store.publish(2, 1, [replace(record, epoch=2) for record in cycles])
    inputs = recorded_inputs(store, periods_of(store.files()))
    assert [item.snapshot.wall_ms for item in inputs] == [record.wall_ms for record in cycles]


def test_a_place_writes_whole_files(tmp_path: Path) -> None:
    """A file is replaced completely, without other files next to it."""
    place = OutputFolder(str(tmp_path))
    place.check()
    assert place.write("a/b.json", b"one") == f"{tmp_path}/a/b.json"
    place.write("a/b.json", b"two")
    assert (tmp_path / "a" / "b.json").read_bytes() == b"two"
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b.json"]
