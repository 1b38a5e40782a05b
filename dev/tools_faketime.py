"""libfaketime, which sets a process's wall clock: that of the machine, else Debian's package.

`python -m dev.tools_faketime` sees to it. Only the wall clock is faked: a real one that is set leaves the boot
clock alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from dev.tools_prometheus import ToolsMissing, apt_get

INSTALL = ("apt-get", "install", "-q", "-y", "--no-install-recommends", "faketime")
ADVICE = "run as root: apt-get install --no-install-recommends faketime"
# It fails `time.sleep` (clock_nanosleep by the monotonic clock); threads wait well.
_SLEEP = "import threading, time\ntime.sleep = lambda seconds: threading.Event().wait(seconds) and None\n"


def library() -> Path | None:
    """Where it is, None where it is not."""
    return next(iter(sorted(Path("/usr/lib").glob("**/faketime/libfaketimeMT.so.1"))), None)


def ensure(find: Callable[[], Path | None] = library, run: Callable[[Sequence[str]], str] = apt_get) -> Path:
    """Where it is, installed first when it is missing. ToolsMissing."""
    found = find()
    if found is None:
        run(("apt-get", "update", "-q"))  # when the mirror is away, lists of yesterday may do
        refused = run(INSTALL)
        found = find()
        if found is None:
            why = f" (apt-get: {refused})" if refused else ""
            raise ToolsMissing(f"libfaketime is missing and could not be installed{why}: {ADVICE}")
    return found


class FakeClock:
    """The wall clock of one Python process to be started with `environment`."""

    def __init__(self, found: Path, directory: Path) -> None:
        """`found`: the library; `directory`: an empty one of its own, made if needed."""
        directory.mkdir(parents=True, exist_ok=True)
        self._file = directory / "clock"
        (directory / "sitecustomize.py").write_text(_SLEEP, encoding="utf-8")
        self.environment = {
            "LD_PRELOAD": str(found),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            # Looked at once a second: without it each question for the time reads the file, and a busy machine is
            # kept busy by its clock.
            "FAKETIME_CACHE_DURATION": "1",
            "DONT_FAKE_MONOTONIC": "1",
            "PYTHONPATH": str(directory),
        }
        self.set(0)

    def set(self, seconds: int, rate: float = 1.0) -> None:
        """From now on so far from the true time, and so fast."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{seconds:+d} x{rate}\n", encoding="utf-8")
        fresh.replace(self._file)


if __name__ == "__main__":
    try:
        print(ensure())
    except ToolsMissing as error:
        sys.exit(str(error))
