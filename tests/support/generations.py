"""Whoever waits for a newer generation, in the fakes that publish by generation."""

from __future__ import annotations

import asyncio
import contextlib


class Generations:
    """Mixed into a fake that tests change: each change is a new generation, and wakes who waits for one."""

    def __init__(self, first: int = 0) -> None:
        self._generation = first
        self._published = asyncio.Event()

    def _publish(self) -> None:
        self._generation += 1
        self._published.set()
        self._published = asyncio.Event()

    async def wait_changed(self, generation: int, timeout: float) -> bool:
        """See the ports."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self._generation <= generation:
                    await self._published.wait()
        return self._generation > generation
