"""History as immutable Parquet files below a URI: a directory, or any file system of pyarrow."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from bundlekeel.model.errors import CodecError, HistoryError, StoreError
from bundlekeel.model.numbers import integer
from bundlekeel.recalibration.history.ports import MOST_FILE_BYTES, HistoryFile, HistorySpan, hour_of
from bundlekeel.recalibration.history.record import OTHER_SCHEMA, SCHEMA, HistoryRecord
from bundlekeel.recalibration.parquet.rows import ARROW, PLACE, REPEATED, records_of, tables_of

_PATH: Final = re.compile(r"date=(\d{4}-\d\d-\d\d)/hour=(\d\d)/(\d+)-(\d+)(?:-(\d+))?\.parquet")
_META: Final = b"bundlekeel"
_SPAN: Final = tuple(item.name for item in fields(HistorySpan) if item.name != "cluster")
# Readers of directories (Spark, Hive, Arrow) ignore names with this prefix.
_HIDDEN: Final = "_"
_ASIDE: Final = "_aside"
_PIECE: Final = 8 * 1024 * 1024
_HOURS: Final = 24
# Limits of one file, which are checked in its footer before rows are read. A usual minute with 100,000 bundles has one
# row group of at most 600,000 rows.
_MOST_ROWS: Final = 1 << 26
_MOST_GROUPS: Final = 1 << 13
_MOST_GROUP_BYTES: Final = 1 << 28
_BATCH_ROWS: Final = 1 << 16


class ParquetStore:
    """`HistoryStore` below a directory or a URI (`file://`, `s3://`, `gs://`, `hdfs://`, ...).

    `cluster`: name of the cluster that is written into published files.
    """

    def __init__(self, place: str | Path, cluster: str = "") -> None:
        self._cluster = cluster
        try:
            if local := "://" not in str(place):
                self._fs, self._root = pafs.LocalFileSystem(), str(Path(place).resolve())
            else:
                self._fs, self._root = pafs.FileSystem.from_uri(place)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise StoreError(f"the history store {place} cannot be opened: {_short(error)}") from None
        self.place = self._root if local else str(place)
        # On all other file systems a file is visible only when it is complete, and to rename a file is to copy it.
        self._renames = self._fs.type_name in ("local", "hdfs")

    def files(self) -> list[HistoryFile]:
        """Return every file of recorded cycles."""
        with _answering():
            infos = [info for info in self._fs.get_file_info(self._selected()) if info.is_file]
        sizes = {info.path[len(self._root) :].lstrip("/"): info.size or 0 for info in infos}
        named = (_file(path, size) for path, size in sizes.items())
        # Ignore names with another spelling of the numbers (`01-7`, `1-7-7`): such a file is a copy of the original.
        return sorted(file for file in named if file is not None and file.path in sizes)

    def _selected(self) -> pafs.FileSelector | list[str]:
        """Return the paths to list. A local directory can contain cyclic links, so only dates and hours are listed."""
        if self._fs.type_name != "local":
            return pafs.FileSelector(self._root, recursive=True, allow_not_found=True)
        root = Path(self._root)
        hours = _below(_below([root] if root.exists() else [], "date="), "hour=")
        paths = [path for hour in hours for path in hour.iterdir()]
        return [str(path) for path in paths if _PATH.fullmatch(path.relative_to(root).as_posix())]

    def span(self, file: HistoryFile) -> HistorySpan:
        """Return the contents of the file's footer. Only if that fails, the whole file is read to find the reason."""
        try:
            with self._fs.open_input_file(self._at(file.path)) as stream, pq.ParquetFile(stream) as parquet:
                footer = parquet.metadata.metadata or {}
        except (pa.ArrowException, OSError, ValueError):
            with self._reading(file) as parquet:
                footer = parquet.metadata.metadata or {}
        try:
            values = json.loads(footer[_META])
            span = {name: integer(values[name], field=name, lowest=-1) for name in _SPAN}
            return HistorySpan(**span, cluster=str(values["cluster"]))
        except (CodecError, KeyError, AttributeError, ValueError, TypeError, OverflowError, RecursionError):
            raise HistoryError(f"{file.path} was not recorded by Bundlekeel") from None

    def records(self, file: HistoryFile) -> list[HistoryRecord]:
        """Return all records of a file."""
        with self._reading(file) as parquet:
            table = parquet.read(use_threads=False)
        try:
            return records_of([table])
        except HistoryError as error:
            version = self._version(file)
            if version in (0, SCHEMA):
                raise HistoryError(f"{file.path} is {error}") from None
            raise HistoryError(f"{file.path} is of {OTHER_SCHEMA.format(version)}") from None

    def _version(self, file: HistoryFile) -> int:
        """Return the version of the record format in a file's footer; 0: the footer has none."""
        try:
            return self.span(file).schema
        except HistoryError:
            return 0

    def dataset(self, files: Sequence[HistoryFile]) -> ds.Dataset:
        """Return the rows of these files, with the columns of `PLACE`. Rows are read only where they are used.

        Raises HistoryError if a footer is unreadable or another release recorded the file.
        """
        # Reading a footer takes one or two requests.
        with ThreadPoolExecutor(8) as pool:
            spans = list(pool.map(self.span, files))
        for file, span in zip(files, spans, strict=True):
            if span.schema != SCHEMA:
                raise HistoryError(f"{file.path} is of {OTHER_SCHEMA.format(span.schema)}")
        date, hour, cluster = map(ds.field, PLACE)
        return ds.FileSystemDataset.from_paths(
            [self._at(file.path) for file in files],
            schema=pa.schema([*PLACE.items(), *ARROW]),
            format=ds.ParquetFileFormat(),
            filesystem=self._fs,
            partitions=[
                (date == file.date) & (hour == file.hour) & (cluster == span.cluster)
                for file, span in zip(files, spans, strict=True)
            ],
        )

    def verify(self, file: HistoryFile) -> None:
        """Decode the known columns of all rows in small batches, without keeping them."""
        for _ in self._batches([file], ARROW.names):
            pass

    def publish(self, epoch: int, seq: int, records: Sequence[HistoryRecord]) -> HistoryFile:
        """Write the file of a segment, unless it exists."""
        date, hour = hour_of(records[0].wall_ms)
        file = HistoryFile(date=date, hour=hour, epoch=epoch, first=seq, last=seq)
        span = HistorySpan(
            schema=max(record.schema for record in records),
            first_cycle=records[0].cycle,
            last_cycle=records[-1].cycle,
            first_ms=records[0].wall_ms,
            last_ms=records[-1].wall_ms,
            cycles=len(records),
            rows=sum(1 + len(record.brokers.index) + len(record.bundles.index) for record in records),
            cluster=self._cluster,
        )
        if self._exists(file) and self._is_whole(file, span):
            return self._sized(file)
        return self._write(file, span, iter(tables_of(records)))

    def merge(self, files: Sequence[HistoryFile]) -> HistoryFile:
        """Write one file with the rows of these files."""
        ordered = sorted(files, key=lambda file: file.first)
        spans = [self.span(file) for file in ordered]
        clusters = sorted({item.cluster for item in spans})
        if len(clusters) > 1:
            raise HistoryError(f"{ordered[0].path} and its neighbours are of clusters {', '.join(clusters)}")
        span = HistorySpan(
            schema=max(item.schema for item in spans),
            first_cycle=spans[0].first_cycle,
            last_cycle=spans[-1].last_cycle,
            first_ms=spans[0].first_ms,
            last_ms=spans[-1].last_ms,
            cycles=sum(item.cycles for item in spans),
            rows=sum(item.rows for item in spans),
            cluster=clusters[0],
        )
        return self._write(replace(ordered[0], last=ordered[-1].last), span, self._batches(ordered))

    def remove(self, file: HistoryFile) -> None:
        """Delete a file."""
        with _answering():
            if self._exists(file):
                self._fs.delete_file(self._at(file.path))

    def set_aside(self, file: HistoryFile) -> str:
        """Move a file below `_aside`."""
        to = f"{_ASIDE}/{file.path}"
        with _answering():
            self._fs.create_dir(self._at(f"{_ASIDE}/{file.folder}"), recursive=True)
            self._fs.move(self._at(file.path), self._at(to))
        return to

    def _is_whole(self, file: HistoryFile, span: HistorySpan) -> bool:
        """Return whether an earlier attempt wrote the file completely. Sets aside an incomplete or too large file."""
        try:
            if self._sized(file).size > MOST_FILE_BYTES:
                raise HistoryError(f"{file.path} has more than {MOST_FILE_BYTES} bytes")
            there = self.span(file)
        except HistoryError:
            self.set_aside(file)
            return False
        # Compare the whole footer: another cluster that records into the same store can have the same numbers.
        if there != span:
            of = f" of cluster {there.cluster}" if there.cluster != span.cluster else ""
            raise HistoryError(f"{file.path} is there with other cycles{of}")
        return True

    def _at(self, path: str) -> str:
        return f"{self._root.rstrip('/')}/{path}"

    def _exists(self, file: HistoryFile) -> bool:
        with _answering():
            return bool(self._fs.get_file_info(self._at(file.path)).is_file)

    def _sized(self, file: HistoryFile) -> HistoryFile:
        with _answering():
            return replace(file, size=self._fs.get_file_info(self._at(file.path)).size or 0)

    @contextmanager
    def _reading(self, file: HistoryFile) -> Iterator[Any]:
        """Read the file completely, then open it, so that a failure of the store does not look like a broken file."""
        with _answering(), self._fs.open_input_file(self._at(file.path)) as stream:
            data = stream.read_buffer()
        try:
            with pq.ParquetFile(pa.BufferReader(data)) as parquet:
                _demand_bounded(file, parquet.metadata)
                yield parquet
        except MemoryError:
            raise
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _torn(file, error) from None

    def _batches(self, files: Sequence[HistoryFile], columns: list[str] | None = None) -> Iterator[pa.Table]:
        """Yield the rows of these files in small tables, because decoded rows need much more memory than the file.

        `columns`: names of known columns; other columns are ignored. None: a file with unknown columns is refused.
        """
        for file in files:
            with self._reading(file) as parquet:
                batches = parquet.iter_batches(batch_size=_BATCH_ROWS, columns=columns, use_threads=False)
            while (table := self._next(file, batches)) is not None:
                yield table

    def _next(self, file: HistoryFile, batches: Iterator[pa.RecordBatch]) -> pa.Table | None:
        try:
            batch = next(batches, None)
            # Unexpected columns mean that the file is broken, not that the store failed.
            return None if batch is None else pa.Table.from_batches([batch]).cast(ARROW)
        except MemoryError:
            raise
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _torn(file, error) from None

    def _write(self, file: HistoryFile, span: HistorySpan, tables: Iterator[pa.Table]) -> HistoryFile:
        """Write a complete file or nothing: as a hidden file that is renamed, or as one upload to an object store."""
        final = self._at(file.path)
        with _answering():
            self._fs.create_dir(self._at(file.folder), recursive=True)
            if not self._renames:
                self._send(final, span, tables)
                return self._sized(file)
            at = self._at(f"{file.folder}/{_HIDDEN}{file.name}.part")
            with self._fs.open_output_stream(at) as stream:
                _write_parquet(stream, span, tables)
            if self._fs.type_name == "local":
                _sync(Path(at))
            self._fs.move(at, final)
            if self._fs.type_name == "local":
                _sync(Path(final).parent)
        return self._sized(file)

    def _send(self, final: str, span: HistorySpan, tables: Iterator[pa.Table]) -> None:
        with tempfile.TemporaryFile() as local:
            _write_parquet(local, span, tables)
            local.seek(0)
            with self._fs.open_output_stream(final) as stream:
                while piece := local.read(_PIECE):
                    stream.write(piece)


def _demand_bounded(file: HistoryFile, metadata: Any) -> None:
    """Raise HistoryError if the footer announces more than a recorded hour can have."""
    sizes = [metadata.row_group(number).total_byte_size for number in range(min(metadata.num_row_groups, _MOST_GROUPS))]
    for what, value, most in (
        ("rows", metadata.num_rows, _MOST_ROWS),
        ("row groups", metadata.num_row_groups, _MOST_GROUPS),
        ("columns", metadata.num_columns, 2 * len(ARROW)),
        ("bytes in a row group", max(sizes, default=0), _MOST_GROUP_BYTES),
    ):
        if not 0 <= value <= most:
            raise HistoryError(f"{file.path} has {value} {what}: at most {most} are read")


def _torn(file: HistoryFile, error: Exception) -> HistoryError:
    return HistoryError(f"{file.path} is torn or no Parquet file: {_short(error)}")


def _write_parquet(stream: Any, span: HistorySpan, tables: Iterator[pa.Table]) -> None:
    with pq.ParquetWriter(
        stream,
        ARROW,
        compression="zstd",
        use_dictionary=list(REPEATED),
    ) as writer:
        writer.add_key_value_metadata({_META.decode(): json.dumps(asdict(span))})
        for table in tables:
            writer.write_table(table)


@contextmanager
def _answering() -> Iterator[None]:
    """Raise the errors of a file system as StoreError."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"the history store does not answer: {_short(error)}") from None


def _below(folders: Iterable[Path], prefix: str) -> list[Path]:
    return [path for folder in folders for path in folder.iterdir() if path.name.startswith(prefix) and path.is_dir()]


def _short(error: Exception) -> str:
    return str(error).split("\n", 1)[0][:200]


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _file(path: str, size: int) -> HistoryFile | None:
    """Return the file of this path; None: the path is not that of a history file, or its day or hour is invalid."""
    match = _PATH.fullmatch(path)
    if match is None:
        return None
    try:
        hour, epoch, first, last = (integer(text, field=path) for text in (*match.groups()[1:4], match[5] or match[4]))
    except CodecError:
        return None
    file = HistoryFile(date=match[1], hour=hour, epoch=epoch, first=first, last=last, size=size)
    return file if file.hour < _HOURS and _is_day(file.date) else None


@lru_cache(maxsize=4096)
def _is_day(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True
