"""The journal on disk: one JSON line per record (cycles, moves, operators' requests and others).

If the last line is incomplete after a crash, it is moved to another file. The lines form a hash chain (`records.chain`)
that continues after rotations and restarts.
"""

from __future__ import annotations

import fcntl
import os
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from bundlekeel.model.errors import CodecError, ConfigError
from bundlekeel.model.numbers import MAX_TIME_MS, integer
from bundlekeel.ports import Telemetry
from bundlekeel.pulsar.formats.external_input import clean_lines, cleaned
from bundlekeel.records import chain

_KEPT_IN_MEMORY = 2_000
# Bytes that are read at the start: 2,000 records of usual size. The whole file may be larger than the memory.
_READ_BACK_BYTES = 4 * 1024 * 1024
# Bytes that `since` reads for older records: two days of cycles of usual size.
_READ_SINCE_BYTES = 32 * 1024 * 1024
# Longest cycle. A cycle's record comes after those of its moves, but its time (of the snapshot) is earlier.
_LATE_MS = 10 * 60 * 1000


class FileJournal:
    """`ports.Journal` in one file, which is locked for this process. With `path` None it is only in memory.

    When the file exceeds `max_bytes` it is renamed to `NAME.1`, and older files to `NAME.2` and so on, up to `backups`
    files. If renaming fails, the file grows. Writing never raises: a full or read-only disk is counted in
    `journal_errors_total`, and balancing continues. Raises ConfigError at the start if another process writes the file.
    """

    def __init__(
        self, path: Path | None, *, telemetry: Telemetry, max_bytes: int = 64 * 1024 * 1024, backups: int = 5
    ) -> None:
        self._path = path
        self._telemetry = telemetry
        self._max_bytes = max_bytes
        self._backups = backups
        self._recent: deque[dict[str, Any]] = deque(maxlen=_KEPT_IN_MEMORY)
        self._fd: int | None = None
        self._head = chain.GENESIS
        self._torn = self._lost = 0
        if path is not None:
            try:
                self._open(path)
            except BlockingIOError:
                raise ConfigError(
                    f"journal.path: {path} is in use by another process; give each its own",
                    field="journal.path",
                    value=str(path),
                ) from None
            except OSError:
                self._telemetry.count("journal_errors_total")
            # Only after locking the file, so that no other process appends to it.
            self._recover(path)

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one record, without control characters in its strings. The record may reach the disk later."""
        whole: dict[str, Any] = cleaned(msgspec.to_builtins(record, str_keys=True), text=clean_lines)
        self._recent.append(whole)
        if self._path is None:
            return
        try:
            if self._fd is None:
                self._open(self._path)
            self._rotate_if_large(self._path)
            if self._fd is not None and self._write(self._fd, whole):
                return
        except OSError:
            self._telemetry.count("journal_errors_total")
        # The next line that can be written contains this number.
        self._lost += 1

    def _write(self, fd: int, record: Mapping[str, Any]) -> bool:
        """Append one line, all of it or nothing. Returns whether it was written."""
        line, head = chain.seal(record, self._head, torn=self._torn, lost=self._lost)
        before = os.fstat(fd).st_size
        if os.write(fd, line + b"\n") <= len(line):
            # A full disk may store a part of the line. Remove it, so that the next line is readable.
            self._telemetry.count("journal_errors_total")
            os.ftruncate(fd, before)
            return False
        self._head, self._torn, self._lost = head, 0, 0
        return True

    def tail(self, limit: int, *, kind: str | None = None) -> list[dict[str, Any]]:
        """Return the newest records, oldest first; with `kind` only records of this kind, for example `move`."""
        # The API's thread reads too. The copy is made in one step, which no new record can interrupt.
        recent = list(self._recent)
        matching = [record for record in recent if kind is None or record.get("kind") == kind]
        return matching[-limit:] if limit > 0 else []

    def since(self, wall_ms: int) -> list[dict[str, Any]]:
        """Return records since `wall_ms` (Unix ms), oldest first: from memory, else from the last two files."""
        recent = list(self._recent)
        newer = [record for record in recent if _at(record) >= wall_ms]
        if self._path is None or (recent and _at(recent[0]) < wall_ms - _LATE_MS):
            return newer
        records: list[dict[str, Any]] = []
        remaining_bytes = _READ_SINCE_BYTES
        for path in (self._path, self._path.with_name(f"{self._path.name}.1")):
            lines = _end_of(path, remaining_bytes)
            remaining_bytes -= sum(map(len, lines))
            for line in reversed(lines):
                record = _record_in(line)
                if record is None:
                    continue
                if _at(record) < wall_ms - _LATE_MS:
                    return records[::-1]
                if _at(record) >= wall_ms:
                    records.append(record)
        return records[::-1] or newer

    def close(self) -> None:
        """Flush to the disk and close. A second call does nothing."""
        if self._fd is not None and self._path is not None:
            fd, self._fd = self._fd, None
            self._finish(fd, self._path.parent)

    def _open(self, path: Path) -> None:
        """Open and lock the file. Raises BlockingIOError if another process uses the file, OSError for other
        failures."""
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samestat(os.fstat(fd), path.stat()):
                # The file was renamed before it was locked, so another process uses it.
                raise BlockingIOError
        except OSError:
            os.close(fd)
            raise
        self._fd = fd

    def _finish(self, fd: int, folder: Path) -> None:
        """Flush a file to the disk, then the entry in its directory, and close it."""
        try:
            os.fsync(fd)
            names = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(names)
            finally:
                os.close(names)
        except OSError:
            self._telemetry.count("journal_errors_total")
        finally:
            os.close(fd)

    def _rotate_if_large(self, path: Path) -> None:
        """Rename the file and start a new one if it is large. Raises OSError if the new file cannot be opened."""
        full = self._fd
        if full is None or os.fstat(full).st_size < self._max_bytes:
            return
        try:
            self._rename(path)
        except OSError:
            self._telemetry.count("journal_errors_total")
            return
        # Keep the lock on the full file until the new file is locked, so that no other process can start in between.
        self._fd = None
        try:
            self._open(path)
        finally:
            self._finish(full, path.parent)

    def _rename(self, path: Path) -> None:
        if not self._backups:
            path.unlink()
            return
        names = [path, *(path.with_name(f"{path.name}.{number}") for number in range(1, self._backups + 1))]
        # Rename only files before the first free name: after an error, renamed files must not be renamed again.
        free = next((at for at, name in enumerate(names) if not name.exists()), self._backups)
        for at in range(free, 0, -1):
            names[at - 1].replace(names[at])

    def _recover(self, path: Path) -> None:
        """Read the newest records back. Cut off an incomplete last line, and store a copy of it next to the journal."""
        if not path.is_file():
            return
        try:
            with path.open("rb") as stream:
                before = max(0, path.stat().st_size - _READ_BACK_BYTES)
                stream.seek(before)
                data = stream.read()
        except OSError:
            self._telemetry.count("journal_errors_total")
            return
        whole, newline, torn = data.rpartition(b"\n")
        if torn:
            self._set_aside(path, torn, keep=before + len(whole) + len(newline))
        # If this file is empty, as after a rotation, the chain continues from the rotated file.
        self._head = _head_in(whole) or _last_head(path.with_name(f"{path.name}.1")) or chain.GENESIS
        # The first line is incomplete unless the whole file was read.
        for line in whole.split(b"\n")[1 if before else 0 :][-_KEPT_IN_MEMORY:]:
            if not line:
                continue
            record = _record_in(line)
            if record is None:
                self._telemetry.count("journal_torn_records_total")
            else:
                self._recent.append(record)

    def _set_aside(self, path: Path, torn: bytes, *, keep: int) -> None:
        self._telemetry.count("journal_torn_records_total")
        self._torn = len(torn)
        try:
            with path.with_name(path.name + ".torn").open("ab") as copy:
                copy.write(torn + b"\n")
            os.truncate(path, keep)
        except OSError:
            self._telemetry.count("journal_errors_total")


def _head_in(data: bytes) -> str:
    for line in reversed(data.split(b"\n")):
        seal = chain.seal_of(line)
        if seal is not None:
            return seal[1]
    return ""


def _last_head(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, path.stat().st_size - _READ_BACK_BYTES))
            return _head_in(stream.read())
    except OSError:
        return ""


def _at(record: Mapping[str, Any]) -> int:
    return integer(record.get("wall_ms") or 0, field="wall_ms", highest=MAX_TIME_MS)


def _record_in(line: bytes) -> dict[str, Any] | None:
    """Return the record in a line, without the members of the hash chain; None: the line is not a record."""
    try:
        record = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return None
    try:
        if not isinstance(record, dict) or _at(record) < 0:
            return None
    except CodecError:
        return None
    return {key: value for key, value in record.items() if key not in chain.MEMBERS}


def _end_of(path: Path, most: int) -> list[bytes]:
    try:
        with path.open("rb") as stream:
            before = max(0, path.stat().st_size - most)
            stream.seek(before)
            lines = stream.read(most).split(b"\n")
    except OSError:
        return []
    # The first line may lack its start, and the last one its end.
    return [line for line in lines[1 if before else 0 : -1] if line]
