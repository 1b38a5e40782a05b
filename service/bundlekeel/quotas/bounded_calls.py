"""Calls to brokers for which a quota cycle waits only a limited time.

A broker can take a minute and a half to respond about a topic's policy. Calls that have not started in time start in
the next cycle. Started calls continue: the effect of a cancelled call would be unknown.
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

# Number of calls in parallel.
PARALLEL: Final = 16
# This many calls run in any case, even if others hang: responsive brokers must not wait for the others.
LEAST: Final = 2


class BoundedCalls(Generic[Name]):
    """Calls of one kind, each with a name. `under_way`: running calls for which their cycle did not wait."""

    def __init__(self) -> None:
        self.under_way: dict[Name, asyncio.Task[None]] = {}

    async def run(self, jobs: Mapping[Name, Callable[[], Coroutine[Any, Any, None]]], seconds: float | None) -> int:
        """Run jobs in order for at most `seconds` (None: until all have ended). Returns the number of started jobs.

        No job may have the name of a running call.
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
        # For example, the term is over. A caller that needs the response repeats the call.
        if not task.cancelled() and task.exception() is not None:
            _log.info("a call failed after its cycle had stopped waiting", error=str(task.exception()))

    async def stop(self) -> None:
        """Cancel all running calls."""
        tasks = list(self.under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
