"""Virtual time: an event loop that never waits. Instead of waiting, its time jumps to the next timer."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from bundlekeel.simulator.reports import START_MS

T = TypeVar("T")
# The boot clock at the start of a loop, above 0 so that a deadline of 0 is in the past.
START_BOOT: Final = 1_000.0


class _JumpingSelector(selectors.DefaultSelector):
    """Moves the loop's time forward instead of waiting."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """See `selectors`. Raises RuntimeError if no task can ever continue."""
        if timeout is None:
            raise RuntimeError("every task waits, and no timer is set")
        self.loop.now += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time. `now`: seconds since its start.

    Work for a thread runs immediately and takes no time, because time must not jump while a thread works.
    """

    def __init__(self) -> None:
        self.now = 0.0
        selector = _JumpingSelector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Do not log the end of the process as a failed task."""
        if not isinstance(context.get("exception"), SystemExit | KeyboardInterrupt):
            super().call_exception_handler(context)

    def run_in_executor(  # type: ignore[override]  # the executor is not used
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - raised where the result is awaited
            done.set_exception(error)
        return done


class VirtualClock:
    """`ports.Clock` by the time of the running loop."""

    def boot(self) -> float:
        """Return seconds on the boot clock."""
        return START_BOOT + asyncio.get_running_loop().time()

    def wall_ms(self) -> int:
        """Return milliseconds since 1970."""
        return START_MS + int(asyncio.get_running_loop().time() * 1000)

    async def sleep(self, seconds: float) -> None:
        """Wait for this long in virtual time."""
        await asyncio.sleep(seconds)


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in virtual time, then cancel the tasks it left."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
