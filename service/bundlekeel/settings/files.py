"""Reads files that operators name, up to a limit, because a file such as `/dev/zero` has no end."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

from bundlekeel.model.errors import ConfigError

MAX_FILE_BYTES: Final = 2**20
# One input line of `decide` with 1,000 brokers and 100,000 bundles has about 60 MB.
MAX_LINE_BYTES: Final = 2**28


def read_bounded(path: Path) -> bytes:
    """Read a file of at most `MAX_FILE_BYTES`. Raises OSError if it is larger or cannot be read."""
    with path.open("rb") as stream:
        data = stream.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise OSError(errno.EFBIG, f"it has more than {MAX_FILE_BYTES:,} bytes")
    return data


def bounded_lines(stream: BinaryIO, name: str) -> Iterator[bytes]:
    """Yield the lines of a stream, each with its line feed. Raises ConfigError if one exceeds `MAX_LINE_BYTES`."""
    for line in iter(partial(stream.readline, MAX_LINE_BYTES + 1), b""):
        if len(line) > MAX_LINE_BYTES:
            raise ConfigError(f"{name} cannot be read: a line has more than {MAX_LINE_BYTES:,} bytes", field="file")
        yield line
