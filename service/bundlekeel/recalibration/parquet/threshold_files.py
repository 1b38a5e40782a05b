"""Read the proposals of the nightly job from a directory or any URI for which pyarrow has a file system."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.fs as pafs

from bundlekeel.model.errors import StoreError
from bundlekeel.recalibration.history.ports import MAX_BYTES, NAME, FoundDocument

_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d{6}Z")
# A failed job leaves a directory without a proposal. At most this many directories are checked, newest first.
_NIGHTS: Final = 30


class CalibrationFolder:
    """The store of proposals (`recalibration.history.ports.CalibrationStore`) on a file system of pyarrow."""

    def __init__(self, files: pafs.FileSystem, root: str) -> None:
        self._fs = files
        self._root = root.rstrip("/")

    def newest(self) -> FoundDocument | None:
        """Return the proposal in the directory of the latest time, else in the root; None: there is no proposal."""
        with _answering():
            selector = pafs.FileSelector(self._root, recursive=False, allow_not_found=True)
            there = self._fs.get_file_info(selector)
            nights = sorted(filter(_TIME.fullmatch, map(_name, there)), reverse=True)
            for path in (*(f"{night}/{NAME}" for night in nights[:_NIGHTS]), NAME):
                if self._fs.get_file_info(f"{self._root}/{path}").is_file:
                    with self._fs.open_input_stream(f"{self._root}/{path}") as stream:
                        return FoundDocument(path=path, data=stream.read(MAX_BYTES + 1))
        return None


def calibration_folder(place: str | Path) -> CalibrationFolder:
    """Return the store of proposals below this directory or URI. Raises StoreError if it cannot be opened."""
    try:
        if isinstance(place, Path):
            return CalibrationFolder(pafs.LocalFileSystem(), str(place.resolve()))
        return CalibrationFolder(*pafs.FileSystem.from_uri(place))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise StoreError(f"calibration.uri: {place} cannot be opened: {error}") from None


def _name(info: pafs.FileInfo) -> str:
    """Return the name of a file; "": the name is not valid UTF-8."""
    try:
        return str(info.base_name)
    except UnicodeDecodeError:
        return ""


@contextmanager
def _answering() -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        text = str(error).split("\n", 1)[0][:200]
        raise StoreError(f"the store of calibrations does not answer: {text}") from None
