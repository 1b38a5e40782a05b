"""Many calls at once, but not too many, and waited for only so long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final, Generic, TypeVar

import structlog

T = TypeVar("T")

CONCURRENCY = 64


async def bounded(jobs: Sequence[Callable[[], Awaitable[T]]], *, limit: int = CONCURRENCY) -> list[T]:
    """Run the jobs, `limit` at a time, and give their results in order.

    The first failure is raised after the jobs already under way have ended; the rest never start.
    """
    results: dict[int, T] = {}
    failures: list[BaseException] = []
    todo = iter(enumerate(jobs))

    async def worker() -> None:
        for index, job in todo:
            if failures:
                return
            try:
                results[index] = await job()
            except Exception as error:  # noqa: BLE001 - raised again below, once its siblings are done
                failures.append(error)

    await asyncio.gather(*(worker() for _ in range(min(limit, len(jobs)))))
    if failures:
        raise failures[0]
    return [results[index] for index in range(len(jobs))]


async def within(
    jobs: Sequence[Callable[[], Coroutine[Any, Any, T]]], *, limit: int = CONCURRENCY, seconds: float | None = None
) -> list[asyncio.Task[T]]:
    """Run the jobs in order, `limit` at a time, and wait no longer than so many seconds (None: until all are done).

    Gives the tasks begun, in order: so many of the first jobs, `limit` at least. What is not done then goes on; it is
    the caller's to await or to cancel. A failure is raised, and like a cancellation ends the others.
    """
    loop = asyncio.get_running_loop()
    until = None if seconds is None else loop.time() + seconds
    tasks: list[asyncio.Task[T]] = []
    pending: set[asyncio.Task[T]] = set()
    kept = False
    try:
        for job in jobs:
            if len(pending) >= limit:
                pending = await _first_done(pending, until)
            if len(pending) >= limit or (len(tasks) >= limit and until is not None and loop.time() >= until):
                break
            tasks.append(asyncio.create_task(job()))
            pending.add(tasks[-1])
        over = False
        while pending and not over:
            # What needs no time gets done even when there is none left.
            over = until is not None and loop.time() >= until
            pending = await _first_done(pending, until)
        kept = True
        return tasks
    finally:
        if not kept:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _first_done(pending: set[asyncio.Task[T]], until: float | None) -> set[asyncio.Task[T]]:
    """Who is still under way when one has ended or the time is over. Raises what one failed with."""
    timeout = None if until is None else max(0.0, until - asyncio.get_running_loop().time())
    done, rest = await asyncio.wait(pending, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
    return rest


# Calls to brokers that a cycle of quotas waits for only so long.
# A broker may take a minute and a half to answer about a topic's policy. What has not begun when the time is over
# comes in the next cycle; what has goes on beside the cycles, since it would be unknown what became of a call that is
# cut off.


Name = TypeVar("Name", bound=object)
_log = structlog.get_logger(__name__)

# Calls at a time.
PARALLEL: Final = 16
# So many at a time in any case, whatever still hangs: brokers that answer are not to wait for those that do not.
LEAST: Final = 2


class BoundedCalls(Generic[Name]):
    """Calls of one kind, each by a name. `under_way`: those that their cycle did not wait for."""

    def __init__(self) -> None:
        self.under_way: dict[Name, asyncio.Task[None]] = {}

    async def run(self, jobs: Mapping[Name, Callable[[], Coroutine[Any, Any, None]]], seconds: float | None) -> int:
        """Run jobs in their order, no longer than so many seconds (None: all of them to their end); how many of them
        were begun. None may be under way."""
        free = max(LEAST, PARALLEL - len(self.under_way))
        tasks = await within(list(jobs.values()), limit=free, seconds=seconds)
        for name, task in zip(jobs, tasks, strict=False):
            if not task.done():
                self.under_way[name] = task
                task.add_done_callback(partial(self._ended, name))
        return len(tasks)

    def _ended(self, name: Name, task: asyncio.Task[None]) -> None:
        self.under_way.pop(name, None)
        # A term that is over, say: a caller that needs the answer asks again, and gets it then.
        if not task.cancelled() and task.exception() is not None:
            _log.info("a call failed after its cycle had stopped waiting", error=str(task.exception()))

    async def stop(self) -> None:
        """End what is under way."""
        tasks = list(self.under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
