"""The machine's clocks, behind the protocol `ports.Clock`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class SystemClock:
    """`ports.Clock` on Linux. The boot clock continues during suspend, so that no deadline is missed."""

    def __init__(self, wall: Callable[[], int] = _wall_ms) -> None:
        """Start the clock. `wall`: reads the machine's wall clock, in Unix ms."""
        self._wall = wall
        self._began_ms, self._began = wall(), self.boot()

    def boot(self) -> float:
        """Return seconds on the boot clock."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def wall_ms(self) -> int:
        """Return Unix time in ms: the wall clock at the start of this process plus the boot time since then.

        So a later change of the machine's wall clock does not change any cool-down or deadline.
        """
        return self._began_ms + int(1000 * (self.boot() - self._began))

    def stepped_ms(self) -> int:
        """Return the milliseconds by which the wall clock was set forward (negative: back) since this process started.

        Add it only to times for people: in the journal, and for maintenance windows.
        """
        return self._wall() - self.wall_ms()

    async def sleep(self, seconds: float) -> None:
        """Wait without blocking the event loop."""
        await asyncio.sleep(seconds)
