"""Clean up the history store in a separate process with limited memory.

Other programs can write to the store, a few hundred kilobytes of Parquet can decode to gigabytes, and a footer can be
wrong. A file like that must not exhaust the memory of the sidecar.
`python -m bundlekeel.recalibration.recorder.compaction JSON` is that process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from bundlekeel.model.errors import BundlekeelError, StoreError
from bundlekeel.pulsar.child_memory import LEAN, ONE_CHILD, limit_memory, memory_share
from bundlekeel.recalibration.recorder.history_keeping import UpkeepResult, tidy_store

TIMEOUT_SECONDS: Final = 540.0


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
    options = {"place": str(place), "now_ms": now_ms, "keep_days": keep_days}
    command = [sys.executable, "-P", "-m", __name__, json.dumps(options | {"memory": memory or memory_share(2)})]
    try:
        with ONE_CHILD:
            done = subprocess.run(
                command,
                env=os.environ | LEAN,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout,
                check=False,
            )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StoreError(f"the history store is not tidied: {error}") from None
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise StoreError(f"the history store is not tidied: exit code {done.returncode}: {''.join(last)[:300]}")
    return UpkeepResult(**json.loads(done.stdout))


def _main(options: dict[str, Any]) -> int:
    limit_memory(options["memory"])
    from bundlekeel.recalibration.parquet import ParquetStore  # noqa: PLC0415 - counts into the limit

    try:
        store = ParquetStore(options["place"])
        sys.stdout.write(json.dumps(asdict(tidy_store(store, options["now_ms"], options["keep_days"]))))
    except (BundlekeelError, MemoryError) as error:
        sys.stderr.write(f"{error or type(error).__name__}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main(json.loads(sys.argv[1])))
