"""Fake and real places of proposals keep the same promises."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from bundlekeel.model.errors import StoreError
from bundlekeel.recalibration.history.ports import CalibrationStore
from bundlekeel.recalibration.parquet.threshold_files import CalibrationFolder, calibration_folder
from tests.support.contracts.calibration import CHECKS, Put
from tests.support.memory_calibration import MemoryCalibration


def _memory(_: Path) -> tuple[CalibrationStore, Put]:
    calibration = MemoryCalibration()
    return calibration, calibration.put


def _put_into(folder: Path) -> Put:
    def put(path: str, data: bytes) -> None:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)

    return put


def _object_store(_: Path) -> tuple[CalibrationStore, Put]:
    """pyarrow's own file system in memory."""
    files, root = pafs.FileSystem.from_uri("mock:bucket/calibration")

    def put(path: str, data: bytes) -> None:
        files.create_dir(f"{root}/{path}".rpartition("/")[0], recursive=True)
        with files.open_output_stream(f"{root}/{path}") as stream:
            stream.write(data)

    return CalibrationFolder(files, root), put


PLACES: dict[str, Callable[[Path], tuple[CalibrationStore, Put]]] = {
    "memory": _memory,
    "folder": lambda folder: (calibration_folder(folder), _put_into(folder)),
    "file URI": lambda folder: (calibration_folder(folder.as_uri()), _put_into(folder)),
    "object store": _object_store,
}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("kind", PLACES)
def test_place(kind: str, check: Callable[[CalibrationStore, Put], None], tmp_path: Path) -> None:
    """Each promise, by each place."""
    check(*PLACES[kind](tmp_path / "calibration"))


def test_a_name_that_is_no_text_is_passed_over(tmp_path: Path) -> None:
    _put_into(tmp_path)("2026-09-15T020000Z/thresholds.json", b"{}")
    (tmp_path / os.fsdecode(b"\xff")).touch()
    folder = calibration_folder(tmp_path).newest()
    assert folder is not None and folder.path == "2026-09-15T020000Z/thresholds.json"


def test_a_uri_nobody_knows_is_a_store_error() -> None:
    """It is tried again later, and said."""
    with pytest.raises(StoreError, match=r"calibration\.uri"):
        calibration_folder("nosuch://bucket/x")
