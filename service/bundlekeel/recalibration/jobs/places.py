"""Write the results of the jobs into a directory or URI, each file completely or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from bundlekeel.model.errors import StoreError
from bundlekeel.model.uris import below


class OutputFolder:
    """A directory on a local file system or in an object store. Every method raises StoreError if access fails."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        try:
            if "://" in uri:
                self._fs, self._root = pafs.FileSystem.from_uri(uri)
            else:
                self._fs, self._root = pafs.LocalFileSystem(), str(Path(uri).resolve())
        except (pa.ArrowException, OSError, ValueError) as error:
            raise StoreError(f"{uri} cannot be opened: {error}") from None
        # In an object store a file is visible only when it is complete, and to rename a file is to copy it.
        self._renames = self._fs.type_name in ("local", "hdfs")

    def check(self) -> None:
        """Check that the store responds, and that a local directory is writable."""
        with self._answering():
            self._fs.get_file_info(self._root)
        if self._fs.type_name == "local":
            there = next(path for path in (Path(self._root), *Path(self._root).parents) if path.exists())
            if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
                raise StoreError(f"{self.uri} cannot be written to: {there} is not a writable directory")

    def write(self, name: str, data: bytes) -> str:
        """Write a file below the directory, replacing an older one, and return its place."""
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
                # Remove the partial file: the disk may be full.
                if self._renames:
                    with suppress(OSError):
                        self._fs.delete_file(at)
                raise
        return below(self.uri, name)

    def _at(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

    @contextmanager
    def _answering(self) -> Iterator[Any]:
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            raise StoreError(f"{self.uri} does not answer: {str(error).splitlines()[0][:200]}") from None
