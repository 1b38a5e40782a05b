"""Fake and real history stores and logs keep the same promises."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bundlekeel.adapters.history import FileWal, ParquetStore
from bundlekeel.ports.history import HistoryStore, HistoryWal
from tests.support.contracts.history import STORE_CHECKS, WAL_CHECKS
from tests.support.memory_history import MemoryStore, MemoryWal

# `mock:`: pyarrow's own file system in memory, which stands for those where renaming is copying.
STORES: dict[str, Callable[[Path], HistoryStore]] = {
    "memory": lambda _folder: MemoryStore("east"),
    "folder": lambda folder: ParquetStore(folder, "east"),
    "file URI": lambda folder: ParquetStore(folder.as_uri(), "east"),
    "object store": lambda _folder: ParquetStore("mock:bucket/history", "east"),
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
