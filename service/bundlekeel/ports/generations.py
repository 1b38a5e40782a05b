"""A counter of changes that can be waited for, as every `wait_changed` of a port needs it."""

from __future__ import annotations

import asyncio
import contextlib


class Generations:
    """Counts what was published; waiters are woken on the event loop that publishes."""

    def __init__(self) -> None:
        self.newest = 0
        self._published = asyncio.Event()

    def publish(self) -> None:
        """There is something newer."""
        self.newest += 1
        self._published.set()
        self._published = asyncio.Event()

    async def wait_newer(self, generation: int, timeout: float) -> bool:
        """Wait for something newer than `generation`, up to `timeout` seconds; whether there is."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self.newest <= generation:
                    await self._published.wait()
        return self.newest > generation
