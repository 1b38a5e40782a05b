"""The real clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class SystemClock:
    """`ports.Clock` on Linux. The boot clock goes on during suspend, so that no deadline is slept over."""

    def __init__(self, wall: Callable[[], int] = _wall_ms) -> None:
        """`wall`: the machine's wall clock, in milliseconds."""
        self._wall = wall
        self._began_ms, self._began = wall(), self.boot()

    def boot(self) -> float:
        """Seconds on the boot clock."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def wall_ms(self) -> int:
        """What the wall clock showed when this process began, and since then the boot clock: setting the wall clock
        changes no rest and no deadline."""
        return self._began_ms + int(1000 * (self.boot() - self._began))

    def stepped_ms(self) -> int:
        """How far the wall clock has been set forward (or back) since this process began, in milliseconds. Only what
        people read by their own clocks needs it: the journal and the windows of the calendar."""
        return self._wall() - self.wall_ms()

    async def sleep(self, seconds: float) -> None:
        """Wait without blocking the loop."""
        await asyncio.sleep(seconds)
