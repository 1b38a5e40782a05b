"""Where jobs write: a folder or URI by pyarrow. A file appears whole or not at all. No Spark here."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from bundlekeel.core.model.errors import StoreError


def below(uri: str, name: str) -> str:
    """The place of this name below a folder or URI, whose options (`?endpoint_override=...`) stay at its end."""
    path, mark, options = uri.partition("?") if "://" in uri else (uri, "", "")
    return f"{path.rstrip('/')}/{name}{mark}{options}"


class OutputFolder:
    """A folder, here or in an object store. Every method raises StoreError when it cannot be reached."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        try:
            if "://" in uri:
                self._fs, self._root = pafs.FileSystem.from_uri(uri)
            else:
                self._fs, self._root = pafs.LocalFileSystem(), str(Path(uri).resolve())
        except (pa.ArrowException, OSError, ValueError) as error:
            raise StoreError(f"{uri} cannot be opened: {error}") from None
        # Elsewhere a file appears when it is complete, and is renamed by copying it.
        self._renames = self._fs.type_name in ("local", "hdfs")

    def check(self) -> None:
        """Ask the store something, so that it is known to answer; a folder here must be one that may be written to."""
        with self._answering():
            self._fs.get_file_info(self._root)
        if self._fs.type_name == "local":
            there = next(path for path in (Path(self._root), *Path(self._root).parents) if path.exists())
            if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
                raise StoreError(f"{self.uri} cannot be written to: {there} is not a writable folder")

    def write(self, name: str, data: bytes) -> str:
        """Write a file below the folder and return where it is; an older one of that name is replaced."""
        final = self._at(name)
        with self._answering():
            self._fs.create_dir(final.rpartition("/")[0], recursive=True)
            at = f"{final.rpartition('/')[0]}/_{final.rpartition('/')[2]}.part" if self._renames else final
            try:
                with self._fs.open_output_stream(at) as stream:
                    stream.write(data)
                if self._renames:
                    self._fs.move(at, final)
            except OSError:
                # On a full disk what is there of it would keep it full.
                if self._renames:
                    with suppress(OSError):
                        self._fs.delete_file(at)
                raise
        return below(self.uri, name)

    def read(self, name: str) -> bytes:
        """The contents of a file."""
        with self._answering(), self._fs.open_input_file(self._at(name)) as stream:
            found: bytes = stream.read()
        return found

    def keep(self, folder: str, names: Sequence[str]) -> str:
        """Copy the files of these names into `folder/earlier/TIME`, TIME being when the last of them was written, and
        return that place; empty: there are none. They stay where they are, too: readers must not find them gone."""
        with self._answering():
            there = {info.base_name: info.mtime for info in self._fs.get_file_info(self._all(folder)) if info.is_file}
        found = {name: there[name] for name in names if name in there}
        if not found:
            return ""
        last = max((at for at in found.values() if at is not None), default=datetime.now(UTC)).astimezone(UTC)
        kept = f"{folder}/earlier/{last:%Y%m%dT%H%M%SZ}"
        for name in found:
            self.write(f"{kept}/{name}", self.read(f"{folder}/{name}"))
        return below(self.uri, kept)

    def _all(self, folder: str) -> pafs.FileSelector:
        return pafs.FileSelector(self._at(folder), allow_not_found=True)

    def remove(self, folder: str) -> None:
        """Delete a folder of ours and everything in it, and the one above it where that is empty then; nothing happens
        when it is gone."""
        above = folder.rpartition("/")[0]
        with self._answering():
            if self._fs.get_file_info(self._at(folder)).type != pafs.FileType.Directory:
                return
            self._fs.delete_dir(self._at(folder))
            if above and self._renames and not self._fs.get_file_info(pafs.FileSelector(self._at(above))):
                self._fs.delete_dir(self._at(above))

    def _at(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

    @contextmanager
    def _answering(self) -> Iterator[Any]:
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            raise StoreError(f"{self.uri} does not answer: {str(error).splitlines()[0][:200]}") from None
