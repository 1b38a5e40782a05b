"""Memory limits of child processes that decode large responses."""

from __future__ import annotations

import resource
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Final

from bundlekeel.model.errors import CodecError
from bundlekeel.model.numbers import integer

_MOST_BYTES: Final = 2 << 30
_CGROUP: Final = Path("/sys/fs/cgroup/memory.max")
# Held while a child process runs, because the container has too little memory for two of them.
ONE_CHILD: Final = Lock()
# Environment of a child. Arrow's own allocators reserve more memory than they use, and idle threads of libraries
# count, too.
LEAN: Final = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
}


def memory_share(parts: int) -> int:
    """Return 1/`parts` of the container's memory limit, in bytes. A missing or higher limit counts as 2 GiB."""
    with suppress(OSError, CodecError):
        return min(_MOST_BYTES, integer(_CGROUP.read_text().strip(), field=str(_CGROUP))) // parts
    return _MOST_BYTES // parts


def limit_memory(nbytes: int) -> None:
    """Limit the memory of this process to `nbytes` bytes. Larger allocations raise MemoryError or end the process."""
    resource.setrlimit(resource.RLIMIT_DATA, (nbytes, nbytes))
