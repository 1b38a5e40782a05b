"""Memory limits of child processes that decode what other processes wrote."""

from __future__ import annotations

import resource
from contextlib import suppress
from pathlib import Path
from typing import Final

from bundlekeel.core.model.errors import CodecError
from bundlekeel.core.model.numbers import integer

_MOST_BYTES: Final = 1 << 30
_CGROUP: Final = Path("/sys/fs/cgroup/memory.max")
# Environment of a child. Arrow's own allocators reserve more memory than they use, and idle threads of libraries
# count, too.
LEAN: Final = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
}


def memory_limit() -> int:
    """Return the bytes that a child may allocate: a quarter of the container's limit, at most 1 GiB.

    Two children may run at the same time, one decodes and one compacts; the sidecar needs the other half."""
    with suppress(OSError, CodecError):
        return min(_MOST_BYTES, integer(_CGROUP.read_text().strip(), field=str(_CGROUP)) // 4)
    return _MOST_BYTES


def limit_memory(nbytes: int) -> None:
    """Let this process allocate at most so many bytes. More is a MemoryError, or ends the process."""
    resource.setrlimit(resource.RLIMIT_DATA, (nbytes, nbytes))
