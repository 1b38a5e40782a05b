"""Calls to brokers for which a quota cycle waits only a limited time.

A broker can take a minute and a half to return a topic's policy. When the time is over, no further call starts, and
the caller starts the remaining calls in the next cycle. Started calls continue, because the effect of a cancelled call
would be unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final, Generic, TypeVar

import structlog

from bundlekeel.pulsar.work import within

Name = TypeVar("Name", bound=object)
_log = structlog.get_logger(__name__)

# At most this many calls run in parallel.
PARALLEL: Final = 16
# Start this many calls in parallel even if all others hang, so that brokers that respond do not wait for the others.
LEAST: Final = 2


class BoundedCalls(Generic[Name]):
    """Runs calls of one kind, each with a name. `under_way`: calls for which no cycle waits any more."""

    def __init__(self) -> None:
        self.under_way: dict[Name, asyncio.Task[None]] = {}

    async def run(self, jobs: Mapping[Name, Callable[[], Coroutine[Any, Any, None]]], seconds: float | None) -> int:
        """Start jobs in order, wait at most `seconds` (None: until all have ended), return the number of started jobs.

        `jobs`: by name. A job must not have the name of a call that still runs.
        """
        free = max(LEAST, PARALLEL - len(self.under_way))
        tasks = await within(list(jobs.values()), limit=free, seconds=seconds)
        for name, task in zip(jobs, tasks, strict=False):
            if not task.done():
                self.under_way[name] = task
                task.add_done_callback(partial(self._ended, name))
        return len(tasks)

    def _ended(self, name: Name, task: asyncio.Task[None]) -> None:
        self.under_way.pop(name, None)
        # It fails, for example, if another sidecar leads now. A caller that needs the response repeats the call.
        if not task.cancelled() and task.exception() is not None:
            _log.info(
                "call to a broker failed after its time limit; a later quota cycle repeats it",
                error=str(task.exception()),
            )

    async def stop(self) -> None:
        """Cancel all running calls."""
        tasks = list(self.under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
