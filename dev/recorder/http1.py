"""Just enough HTTP/1.1 to see where messages begin and end; every byte is kept as it came."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

MAX_HEAD_BYTES = 1 << 16
CHUNK_BYTES = 1 << 16


class ProtocolError(Exception):
    """The peer does not speak HTTP/1 as this module understands it."""


@dataclass(frozen=True, slots=True)
class Head:
    """The start line and headers of a message; ``raw`` is exactly what was received."""

    raw: bytes
    start: tuple[str, str, str]
    headers: tuple[tuple[str, str], ...]

    def values(self, name: str) -> list[str]:
        """Return the values of a header (given in lower case), lists taken apart, in lower case."""
        return [part.strip().lower() for key, text in self.headers if key == name for part in text.split(",")]

    @property
    def status(self) -> int:
        """The status of a response; raises ProtocolError for anything else."""
        try:
            return int(self.start[1])
        except ValueError:
            raise ProtocolError(f"no status in {self.start}") from None

    @property
    def length(self) -> int | None:
        """The Content-Length, or None."""
        try:
            return next((int(text) for text in self.values("content-length")), None)
        except ValueError:
            raise ProtocolError("Content-Length is no number") from None

    @property
    def chunked(self) -> bool:
        """Whether the body is in chunks."""
        return "chunked" in self.values("transfer-encoding")

    @property
    def keeps_alive(self) -> bool:
        """Whether the connection stays open after this message."""
        options = self.values("connection")
        version = self.start[0] if self.start[0].startswith("HTTP/") else self.start[2]
        return "keep-alive" in options if version == "HTTP/1.0" else "close" not in options


async def read_head(reader: asyncio.StreamReader) -> Head | None:
    """Read one head; None when the peer closed between messages. Raises ProtocolError."""
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial.strip():
            raise ProtocolError("the connection ended inside a head") from None
        return None
    except asyncio.LimitOverrunError:
        raise ProtocolError("the head is too long") from None
    # Empty lines before a request are to be ignored (RFC 9112, 2.2) but still passed on.
    first, *lines = raw.decode("latin-1").lstrip("\r\n").split("\r\n")
    words = first.split(" ", 2)
    if len(words) < 2:
        raise ProtocolError(f"not a start line: {first[:80]!r}")
    pairs = (line.partition(":") for line in lines if line)
    headers = tuple((name.strip().lower(), value.strip()) for name, _, value in pairs)
    return Head(raw, (words[0], words[1], words[2] if len(words) == 3 else ""), headers)


async def request_body(head: Head, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yield the raw bytes of a request's body."""
    if head.chunked:
        async for piece in _chunks(reader):
            yield piece
    elif head.length:
        async for piece in _exactly(reader, head.length):
            yield piece


def response_has_body(method: str, head: Head) -> bool:
    """Say whether a body follows a response's head."""
    return method != "HEAD" and head.status not in (204, 304) and head.status >= 200


def ends_by_close(method: str, head: Head) -> bool:
    """Say whether only the end of the connection ends this response."""
    return response_has_body(method, head) and not head.chunked and head.length is None


async def response_body(method: str, head: Head, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yield the raw bytes of a response's body."""
    if not response_has_body(method, head):
        return
    if head.chunked:
        pieces = _chunks(reader)
    elif head.length is not None:
        pieces = _exactly(reader, head.length)
    else:
        pieces = _until_close(reader)
    async for piece in pieces:
        yield piece


async def _exactly(reader: asyncio.StreamReader, length: int) -> AsyncIterator[bytes]:
    while length > 0:
        piece = await reader.read(min(length, CHUNK_BYTES))
        if not piece:
            raise ProtocolError("the connection ended inside a body")
        length -= len(piece)
        yield piece


async def _until_close(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while piece := await reader.read(CHUNK_BYTES):
        yield piece


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        raise ProtocolError("the connection ended inside a chunked body") from None


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while True:
        line = await _line(reader)
        yield line
        try:
            size = int(line.partition(b";")[0], 16)
        except ValueError:
            raise ProtocolError(f"not a chunk size: {line[:40]!r}") from None
        if size == 0:
            break
        async for piece in _exactly(reader, size + 2):
            yield piece
    while True:
        trailer = await _line(reader)
        yield trailer
        if trailer == b"\r\n":
            return
