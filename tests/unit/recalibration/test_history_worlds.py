"""The history generator: it records valid history and spoils it only as requested."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bundlekeel.model.errors import HistoryError
from bundlekeel.model.load import CPU
from bundlekeel.recalibration.history.ports import HistoryStore, HistoryWal
from bundlekeel.recalibration.history.record import SCHEMA, HistoryRecord
from bundlekeel.recalibration.history.replay import rebuilt, replay
from bundlekeel.recalibration.parquet import FileWal, ParquetStore
from dev.history_worlds import POISONS, World, write
from tests.support.contracts.history import STORE_CHECKS, WAL_CHECKS
from tests.support.memory_history import MemoryStore, MemoryWal

TINY = World(days=1, brokers=3, bundles=30, period_seconds=600, noise=0.3, seed=2)


def read(store: ParquetStore) -> list[HistoryRecord]:
    """All records."""
    return [record for file in store.files() for record in store.records(file)]


class TestWrite:
    """`write`."""

    def test_every_cycle_replays_to_its_hash(self, tmp_path: Path) -> None:
        """Some of them moved something."""
        store = write(TINY, tmp_path)
        records = read(store)
        assert [file.hour for file in store.files()] == list(range(24))
        assert len(records) == TINY.periods_a_day
        assert all(replay(item).same for item in rebuilt(records))
        assert sum(record.outcome.planned for record in records) > 3

    def test_days_go_on(self, tmp_path: Path) -> None:
        """Averages, ownership and memory are carried over midnight."""
        world = World(days=2, brokers=3, bundles=30, period_seconds=1800)
        frames = [item.frame for item in rebuilt(read(write(world, tmp_path)))]
        samples = [frame.bundles.whole[:, 1].min() for frame in frames if frame is not None]
        assert samples == list(range(1, 97))

    def test_a_cluster_has_a_name(self, tmp_path: Path) -> None:
        store = write(TINY, tmp_path, cluster="pulsar-1")
        assert {store.span(file).cluster for file in store.files()} == {"pulsar-1"}

    def test_unknown_poison(self, tmp_path: Path) -> None:
        """It is an error, and nothing is written."""
        with pytest.raises(ValueError, match="none of"):
            write(TINY, tmp_path, poison="arsenic")
        assert not list(tmp_path.iterdir())


class TestPoisons:
    """Each of them, six hours of the only day (06 to 12), or all of it."""

    @pytest.mark.parametrize("kind", ["nan", "negative", "zero_day", "lying_broker"])
    def test_values(self, kind: str, tmp_path: Path) -> None:
        items = list(rebuilt(read(write(TINY, tmp_path, poison=kind))))
        frame = items[7 * 6].frame
        assert frame is not None
        brokers, bundles = frame.brokers.floats, frame.bundles.floats
        result = {
            "nan": bool(np.isnan(brokers[0, CPU])) and bool(np.isnan(bundles[0, 0])),
            "negative": bool((bundles[:, 0:4] < 0).any()),
            "zero_day": not bundles[:, 0:4].any() and not brokers[:, CPU].any(),
            "lying_broker": brokers[-1, CPU] == 0.01 and brokers[0, CPU] > 1,
        }
        assert [name for name, holds in result.items() if holds] == [kind]
        assert all(item.frame is not None for item in items)

    def test_missing_hours(self, tmp_path: Path) -> None:
        hours = [file.hour for file in write(TINY, tmp_path, poison="missing_hours").files()]
        assert hours == [*range(6), *range(12, 24)]

    def test_duplicates(self, tmp_path: Path) -> None:
        cycles = [record.cycle for record in read(write(TINY, tmp_path, poison="duplicates"))]
        assert len(cycles) == len(set(cycles)) + 36

    def test_clock_back(self, tmp_path: Path) -> None:
        """The six hours from 06:00 on are recorded as those from 05:00 on."""
        hours = [file.hour for file in write(TINY, tmp_path, poison="clock_back").files()]
        assert hours == [*range(11), *range(12, 24)]

    def test_future_schema(self, tmp_path: Path) -> None:
        items = list(rebuilt(read(write(TINY, tmp_path, poison="future_schema"))))
        refused = [item for item in items if item.frame is None]
        assert {item.record.schema for item in refused} == {SCHEMA + 1}
        assert "another release" in refused[0].why
        assert len(refused) == 36

    def test_torn(self, tmp_path: Path) -> None:
        """One file cannot be read; the others can."""
        store = write(TINY, tmp_path, poison="torn")
        torn = []
        for file in store.files():
            try:
                store.records(file)
            except HistoryError:
                torn.append(file.hour)
        assert torn == [0]

    def test_all_are_tested_here(self) -> None:
        """A new one needs a test."""
        values = {"nan", "negative", "zero_day", "lying_broker"}
        assert set(POISONS) == values | {"missing_hours", "duplicates", "clock_back", "future_schema", "torn"}


# `mock:`: pyarrow's own file system in memory, which stands for those where renaming is copying.
STORES: dict[str, Callable[[Path], HistoryStore]] = {
    "memory": lambda _folder: MemoryStore("east"),
    "folder": lambda folder: ParquetStore(folder, "east"),
    "file URI": lambda folder: ParquetStore(folder.as_uri(), "east"),
    "object store": lambda _folder: ParquetStore("mock:///bucket/history", "east"),
}
WALS: dict[str, Callable[[Path], HistoryWal]] = {"memory": lambda _folder: MemoryWal(), "files": FileWal}


@pytest.mark.parametrize("check", STORE_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("kind", STORES)
def test_store(kind: str, check: Callable[[HistoryStore], None], tmp_path: Path) -> None:
    """Each promise, by each store."""
    check(STORES[kind](tmp_path / "history"))


@pytest.mark.parametrize("check", WAL_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("kind", WALS)
def test_wal(kind: str, check: Callable[[HistoryWal], None], tmp_path: Path) -> None:
    """Each promise, by each log."""
    wal = WALS[kind](tmp_path / "wal")
    check(wal)
    wal.close()
