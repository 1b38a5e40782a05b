"""Wait for newer generations (numbered states) of the in-memory adapters."""

from __future__ import annotations

import asyncio
import contextlib


class Generations:
    """Base of in-memory adapters: each change increments the generation and wakes waiting callers."""

    def __init__(self, first: int = 0) -> None:
        self._generation = first
        self._published = asyncio.Event()

    def _publish(self) -> None:
        self._generation += 1
        self._published.set()
        self._published = asyncio.Event()

    async def wait_changed(self, generation: int, timeout: float) -> bool:
        """Wait up to `timeout` seconds for a newer generation. Return whether there is one."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self._generation <= generation:
                    await self._published.wait()
        return self._generation > generation
