"""The real clock."""

from __future__ import annotations

import asyncio
import time


class SystemClock:
    """`ports.Clock` on Linux. The boot clock goes on during suspend, so that no deadline is slept over."""

    def boot(self) -> float:
        """Seconds on the boot clock."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    async def sleep(self, seconds: float) -> None:
        """Wait without blocking the loop."""
        await asyncio.sleep(seconds)
