"""A counter of changes that tasks can wait for. Implements `wait_changed` of several ports."""

from __future__ import annotations

import asyncio
import contextlib


class Generations:
    """Counts changes, and wakes the tasks that wait for the next change. Use it on one event loop."""

    def __init__(self) -> None:
        self.newest = 0
        self._published = asyncio.Event()

    def publish(self) -> None:
        """Count a change and wake all waiting tasks."""
        self.newest += 1
        self._published.set()
        self._published = asyncio.Event()

    async def wait_newer(self, generation: int, timeout: float) -> bool:
        """Wait up to `timeout` seconds for a change after `generation`. Returns whether there is one."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self.newest <= generation:
                    await self._published.wait()
        return self.newest > generation
