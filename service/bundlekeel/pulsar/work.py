"""Run many calls in parallel, with limits on their number and on the waiting time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

CONCURRENCY = 64


async def bounded(jobs: Sequence[Callable[[], Awaitable[T]]], *, limit: int = CONCURRENCY) -> list[T]:
    """Run the jobs, `limit` at a time, and return their results in order.

    After a failure no more jobs start, and the failure is raised when the running jobs have ended.
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
            except Exception as error:  # noqa: BLE001 - raised again below, after the running jobs have ended
                failures.append(error)

    await asyncio.gather(*(worker() for _ in range(min(limit, len(jobs)))))
    if failures:
        raise failures[0]
    return [results[index] for index in range(len(jobs))]


async def within(
    jobs: Sequence[Callable[[], Coroutine[Any, Any, T]]], *, limit: int = CONCURRENCY, seconds: float | None = None
) -> list[asyncio.Task[T]]:
    """Run the jobs in order, `limit` at a time, and wait at most `seconds` (None: until all are done).

    Returns the started tasks in order; after a time-out the last jobs may be missing. Unfinished tasks continue, and
    the caller must await or cancel them. If a task fails, all others are cancelled and the failure is raised.
    """
    loop = asyncio.get_running_loop()
    until = None if seconds is None else loop.time() + seconds
    tasks: list[asyncio.Task[T]] = []
    pending: set[asyncio.Task[T]] = set()
    complete = False
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
            # Let jobs that need no time finish even if no time is left.
            over = until is not None and loop.time() >= until
            pending = await _first_done(pending, until)
        complete = True
        return tasks
    finally:
        if not complete:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _first_done(pending: set[asyncio.Task[T]], until: float | None) -> set[asyncio.Task[T]]:
    """Wait until a task ends, or until time `until`. Returns the tasks still running. Raises the failure of a task."""
    timeout = None if until is None else max(0.0, until - asyncio.get_running_loop().time())
    done, rest = await asyncio.wait(pending, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
    return rest
