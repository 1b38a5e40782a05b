"""The cache of the development tools for downloads and builds: outside the source tree, shared by all clones."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_dir() -> Path:
    """Return ``$BUNDLEKEEL_CACHE`` or ``~/.cache/bundlekeel``; it need not exist yet."""
    configured = os.environ.get("BUNDLEKEEL_CACHE")
    return Path(configured) if configured else Path.home() / ".cache" / "bundlekeel"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock a file against other processes during the block, and create its directory. The kernel removes the lock when
    the process dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
