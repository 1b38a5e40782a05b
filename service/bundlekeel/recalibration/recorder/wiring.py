"""Build the recorder of a sidecar, and the history store of the command line. Imports pyarrow only when needed."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from bundlekeel.model.errors import ConfigError
from bundlekeel.model.uris import folder_named
from bundlekeel.ports import Clock, Telemetry
from bundlekeel.recalibration.history.ports import HistoryStore
from bundlekeel.recalibration.recorder.compaction import tidied
from bundlekeel.recalibration.recorder.history_keeping import UpkeepResult
from bundlekeel.recalibration.recorder.recorder import Places, Recorder
from bundlekeel.recalibration.settings import HistorySettings
from bundlekeel.settings.load import LoadedSettings
from bundlekeel.settings.types import InvalidSetting, history_place


def recorder(loaded: LoadedSettings, telemetry: Telemetry, clock: Clock, leads: Callable[[], bool]) -> Recorder | None:
    """Return the recorder; None: the settings contain no `history.uri`. Raises ConfigError if pyarrow is missing."""
    section = loaded.settings.section(HistorySettings)
    if section.uri is None:
        return None
    adapter, place, wal = _adapter(), _place(loaded, section.uri), loaded.located(section.wal)

    def places() -> Places:
        return adapter.FileWal(wal), adapter.ParquetStore(place, loaded.settings.cluster)

    def tidy(_store: HistoryStore, now_ms: int, keep_days: int | None) -> UpkeepResult:
        return tidied(place, now_ms, keep_days)

    return Recorder(
        places,
        telemetry,
        clock,
        leads=leads,
        keep_days=section.keep_days,
        wal_max_bytes=section.wal_max_bytes,
        tidy=tidy,
    )


def history_store(loaded: LoadedSettings, uri: str | None) -> HistoryStore:
    """Open the history store at `uri`, a URI or directory; None: the store in the settings. Raises ConfigError."""
    if uri is not None:
        # Check the URI first: `file:/x` would be taken for a relative directory, and look like an empty store.
        try:
            history_place(uri)
        except InvalidSetting as error:
            allowed = error.allowed or "a folder or a URI with ://"
            raise ConfigError(f"--history: {error}", field="--history", allowed=allowed) from None
        # `Path.is_dir` raises an error if a parent directory is not readable.
        if (folder := folder_named(uri)) and not os.path.isdir(folder):  # noqa: PTH112
            what = f"--history: there is no folder {folder}"
            raise ConfigError(what, field="--history", allowed="a folder that is there, or a URI with ://")
        return _store(uri)
    named = loaded.settings.section(HistorySettings).uri
    if named is None:
        raise ConfigError(
            "history.uri is not set: nothing is recorded; name a store with --history",
            field="history.uri",
            allowed="a folder or a URI",
        )
    return _store(_place(loaded, named))


def _store(place: str | Path) -> HistoryStore:
    store: HistoryStore = _adapter().ParquetStore(place)
    return store


def _place(loaded: LoadedSettings, uri: str) -> str | Path:
    if "://" in uri:
        return uri
    located = loaded.located(Path(uri))
    assert located is not None
    return located


def _adapter() -> Any:
    try:
        return import_module("bundlekeel.recalibration.parquet")
    except ModuleNotFoundError as error:
        if error.name != "pyarrow":
            raise
        raise ConfigError(
            "history needs pyarrow: pip install '.[history]' in the sources",
            field="history.uri",
            allowed="null, without pyarrow",
        ) from None
