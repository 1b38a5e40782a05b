"""An asyncio event loop in virtual time: instead of waiting, the loop advances its time to the next timer."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from bundlekeel.simulator.reports import START_MS

T = TypeVar("T")
# Time of the boot clock at the start of a loop. It is above 0, so that a deadline of 0 is in the past.
START_BOOT: Final = 1_000.0


class _JumpingSelector(selectors.DefaultSelector):
    """Advances the loop's time to the next timer instead of waiting for it."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Advance the time by `timeout`. Raises RuntimeError if every task waits and no timer is set."""
        if timeout is None:
            raise RuntimeError("every task waits, and no timer is set")
        self.loop.now += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time. `now`: seconds since its start.

    `run_in_executor` runs the function immediately in the loop's own thread, and no virtual time passes.
    """

    def __init__(self) -> None:
        self.now = 0.0
        selector = _JumpingSelector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Log the error of a task, unless it is KeyboardInterrupt or SystemExit."""
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
    """A `ports.Clock` that shows the virtual time of the running loop."""

    def boot(self) -> float:
        """Return the virtual time in seconds since the machine's boot."""
        return START_BOOT + asyncio.get_running_loop().time()

    def wall_ms(self) -> int:
        """Return the virtual time, Unix ms."""
        return START_MS + int(asyncio.get_running_loop().time() * 1000)

    async def sleep(self, seconds: float) -> None:
        """Wait for these seconds of virtual time."""
        await asyncio.sleep(seconds)


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in virtual time and return its result. Tasks that still run are then cancelled."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
