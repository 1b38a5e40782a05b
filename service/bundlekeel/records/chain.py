"""The journal's hash chain: each line contains the hash of the line before, so that changes and removals are visible.

A line is one JSON object. Its last two members are `prev` and `hash`:

    {"kind":"move",...,"prev":"<64 hex digits>","hash":"<64 hex digits>"}

`hash` is the SHA-256 of the line's bytes (not of the parsed JSON) without `,"hash":"..."`. `prev` is the `hash` of the
line before, also across files and restarts; in the very first line it is 64 zeros. Two optional members come before
`prev`: `torn` (bytes of an unfinished line that were moved to another file before this line) and `lost` (number of
records before this line that could not be written).

The chain does not show whether lines at the end were removed. To detect that, compare the chain's newest hash with a
copy that is stored elsewhere.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

GENESIS: Final = "0" * 64
# Members that belong to the line and not to the record, and their contents.
MEMBERS: Final = {
    "torn": "only if there was one: bytes of an unfinished line that were set aside before this line",
    "lost": "only if there were any: how many records before this line could not be written",
    "prev": "`hash` of the line before, also of the file before; 64 zeros: this is the first line of all",
    "hash": "SHA-256 of the bytes of this line without `hash` itself",
}
_SEALED = re.compile(rb',"prev":"([0-9a-f]{64})","hash":"([0-9a-f]{64})"\}')
_SEAL_BYTES: Final = len(b',"prev":"","hash":""}') + 128
_HASH_BYTES: Final = len(b',"hash":""}') + 64


def seal(record: Mapping[str, Any], prev: str, *, torn: int = 0, lost: int = 0) -> tuple[bytes, str]:
    """Return the line of a record, without a line feed, and its hash, which is the `prev` of the next line."""
    marks = {name: count for name, count in (("torn", torn), ("lost", lost)) if count}
    plain = {key: value for key, value in record.items() if key not in MEMBERS}
    body = msgspec.json.encode(plain | marks | {"prev": prev})
    digest = hashlib.sha256(body).hexdigest()
    return b'%b,"hash":"%b"}' % (body[:-1], digest.encode()), digest


def seal_of(line: bytes) -> tuple[str, str] | None:
    """Return `prev` and `hash` of a journal line; None: it is not part of a hash chain."""
    match = _SEALED.fullmatch(line[-_SEAL_BYTES:])
    return None if match is None else (match[1].decode(), match[2].decode())


def is_intact(line: bytes) -> bool:
    """Return whether the hash in a journal line is correct for the line's bytes."""
    seal = seal_of(line)
    return seal is not None and hashlib.sha256(line[:-_HASH_BYTES] + b"}").hexdigest() == seal[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainBreak:
    """The first wrong line of a chain. `name`: its file. `line`: its number in the file, from 1. `why`: the reason."""

    name: str
    line: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainVerification:
    """Result of a check of a journal's hash chain.

    `begins_at`: `prev` of the first line with a hash. `head`: the newest hash; "": no line has a hash. `torn`, `lost`:
    sums of these members over all lines. `has_expected`: whether the chain contains the expected hash. `unfinished`:
    whether the newest file's last line is incomplete: it is being written, or writing was interrupted, and the sidecar
    will move it to another file when it starts."""

    lines: int
    torn: int
    lost: int
    begins_at: str
    head: str
    has_expected: bool
    unfinished: bool
    broken: ChainBreak | None = None

    @property
    def whole(self) -> bool:
        """Whether the chain starts with the first line that was ever written."""
        return self.begins_at in ("", GENESIS)


class ChainVerifier:
    """Checks one hash chain through its files, oldest first, until the first wrong line."""

    def __init__(self, expected: str = "") -> None:
        self._expected = expected
        self._counts = {"lines": 0, "torn": 0, "lost": 0}
        self._begins_at = self._head = ""
        self._has_expected = self._unfinished = False
        self._broken: ChainBreak | None = None

    def read(self, name: str, lines: Iterable[bytes]) -> bool:
        """Check the lines of one file, each with its line feed. Returns False after a wrong line."""
        if self._unfinished:
            self._broken = ChainBreak(name=name, line=1, why="the file before it ends with an unfinished line")
            return False
        for number, raw in enumerate(lines, start=1):
            self._unfinished = not raw.endswith(b"\n")
            why = "" if self._unfinished else self._take(raw.removesuffix(b"\n"))
            if why:
                self._broken = ChainBreak(name=name, line=number, why=why)
                return False
        return True

    def result(self) -> ChainVerification:
        """Return the result of the lines that were read so far."""
        return ChainVerification(
            **self._counts,
            begins_at=self._begins_at,
            head=self._head,
            has_expected=self._has_expected,
            unfinished=self._unfinished,
            broken=self._broken,
        )

    def _take(self, line: bytes) -> str:
        seal = seal_of(line)
        if seal is None:
            return "it has no hash"
        if not is_intact(line):
            return "its hash is not that of its content: it was changed"
        prev, digest = seal
        if self._head and prev != self._head:
            return "it does not follow the line before: lines were removed, added or reordered"
        try:
            marks = _MARKS.decode(line)
        except msgspec.DecodeError:
            return "it is not a JSON object"
        self._begins_at = self._begins_at or prev
        self._head = digest
        self._has_expected = self._has_expected or digest == self._expected
        self._counts["lines"] += 1
        self._counts["torn"] += marks.torn > 0
        self._counts["lost"] += marks.lost
        return ""


class _Marks(msgspec.Struct):
    torn: int = 0
    lost: int = 0


# Not built at the first use: msgspec crashes if several threads do that at the same time.
_MARKS: Final = msgspec.json.Decoder(_Marks)
