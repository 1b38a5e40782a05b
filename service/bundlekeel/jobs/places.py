"""Where jobs write: a folder or URI by pyarrow. A file appears whole or not at all. No Spark here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
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
            with self._fs.open_output_stream(at) as stream:
                stream.write(data)
            if self._renames:
                self._fs.move(at, final)
        return below(self.uri, name)

    def read(self, name: str) -> bytes:
        """The contents of a file."""
        with self._answering(), self._fs.open_input_file(self._at(name)) as stream:
            found: bytes = stream.read()
        return found

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
