"""Tidies the history store in a process of its own with limited memory: others can write files into the store.

A few hundred kilobytes of Parquet can become gigabytes when they are decoded, and a footer need not be true.
`python -m bundlekeel.wiring.compaction JSON` is that process.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from bundlekeel.core.model.errors import BundlekeelError, CodecError, StoreError
from bundlekeel.core.model.numbers import integer
from bundlekeel.daemon.records.history_keeping import UpkeepResult, tidy_store

TIMEOUT_SECONDS: Final = 540.0
_MOST_BYTES: Final = 1 << 30
_CGROUP: Final = Path("/sys/fs/cgroup/memory.max")
# Arrow's own allocators reserve more memory than they use, and idle threads of libraries count, too.
_LEAN: Final = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
}


def tidied(
    place: str | Path,
    now_ms: int,
    keep_days: int | None,
    *,
    memory: int | None = None,
    timeout: float = TIMEOUT_SECONDS,
) -> UpkeepResult:
    """Run `tidy_store` in a child process and return its result. `memory`: bytes it may allocate.

    Raises StoreError if the store does not respond, or if the child ends without a result.
    """
    given = {"place": str(place), "folder": isinstance(place, Path), "now_ms": now_ms, "keep_days": keep_days}
    command = [sys.executable, "-m", __name__, json.dumps(given | {"memory": memory or _memory_limit()})]
    try:
        done = subprocess.run(
            command, env=os.environ | _LEAN, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StoreError(f"the history store is not tidied: {error}") from None
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise StoreError(f"the history store is not tidied: exit code {done.returncode}: {''.join(last)[:300]}")
    return UpkeepResult(**json.loads(done.stdout))


def _memory_limit() -> int:
    """Return the bytes that the child may allocate: half of the container's limit, at most 1 GiB."""
    with suppress(OSError, CodecError):
        return min(_MOST_BYTES, integer(_CGROUP.read_text().strip(), field=str(_CGROUP)) // 2)
    return _MOST_BYTES


def _main(given: dict[str, Any]) -> int:
    resource.setrlimit(resource.RLIMIT_DATA, (given["memory"], given["memory"]))
    from bundlekeel.adapters.history import ParquetStore  # noqa: PLC0415 - counts into the limit

    try:
        store = ParquetStore(Path(given["place"]) if given["folder"] else given["place"])
        sys.stdout.write(json.dumps(asdict(tidy_store(store, given["now_ms"], given["keep_days"]))))
    except (BundlekeelError, MemoryError) as error:
        sys.stderr.write(f"{error or type(error).__name__}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main(json.loads(sys.argv[1])))
