"""The store of proposed thresholds (parameters of the strategy). pyarrow is loaded only if calibration is on."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from bundlekeel.model.errors import ConfigError, StoreError
from bundlekeel.recalibration.history.ports import CalibrationStore
from bundlekeel.recalibration.settings import CalibrationSettings
from bundlekeel.settings.load import LoadedSettings


def proposals(loaded: LoadedSettings) -> Callable[[], CalibrationStore]:
    """Return a function that opens the store of proposed thresholds. Raises ConfigError if pyarrow is missing."""
    section = loaded.settings.section(CalibrationSettings)
    if section.mode == "off" or section.uri is None:
        return _open_nothing
    try:
        adapter = import_module("bundlekeel.recalibration.parquet.threshold_files")
    except ModuleNotFoundError as error:
        if error.name != "pyarrow":
            raise
        raise ConfigError(
            "calibration needs pyarrow: pip install '.[history]' in the sources",
            field="calibration.mode",
            allowed="off",
        ) from None
    place: str | Path | None = section.uri if "://" in section.uri else loaded.located(Path(section.uri))

    def open_store() -> CalibrationStore:
        store: CalibrationStore = adapter.calibration_folder(place)
        return store

    return open_store


def _open_nothing() -> CalibrationStore:
    raise StoreError("calibration is off")
