"""Many small reads at once, but not too many."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

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
