"""Change the wall clock of one Python process while it runs. Its boot clock stays correct, as when the clock of a
machine is set.
"""

from __future__ import annotations

import time
from pathlib import Path

# The process imports this module first (sitecustomize). Then `time.time` and `time.time_ns` use the offset and rate in
# a file, which is read ten times per second. Other ways to read the clock, as in lines of a log, return the real time.
_SITE = """
import time

_true, _boot = time.time, time.monotonic
_seen, _at, _given = None, -1.0, (0.0, 1.0, 0.0)


def _now():
    global _seen, _at, _given
    if _boot() - _at > 0.1:
        _at = _boot()
        with open({file!r}, encoding="ascii") as opened:
            text = opened.read()
        if text != _seen:
            offset, rate, since = map(float, text.split())
            _seen, _given = text, (offset, rate, since)
    offset, rate, since = _given
    return since + offset + (_true() - since) * rate


time.time = _now
time.time_ns = lambda: int(_now() * 1e9)
"""


class FakeClock:
    """The wall clock of one Python process to be started with `environment`."""

    def __init__(self, directory: Path) -> None:
        """`directory`: an empty directory for the files of this clock; created if it does not exist."""
        directory.mkdir(parents=True, exist_ok=True)
        self._file = directory / "clock"
        (directory / "sitecustomize.py").write_text(_SITE.format(file=str(self._file)), encoding="utf-8")
        self.environment = {"PYTHONPATH": str(directory)}
        self.set(0)

    def set(self, seconds: int, rate: float = 1.0) -> None:
        """Set the offset from the real time in seconds, and the rate (2.0: twice as fast)."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{seconds} {rate} {time.time()!r}\n", encoding="ascii")
        fresh.replace(self._file)
