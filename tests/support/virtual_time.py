"""An event loop whose time is its own: it jumps to the next timer once nobody has anything to do."""

from __future__ import annotations

import asyncio
import functools
import inspect
import random
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tests.support.world import TestClock

T = TypeVar("T")
_START_BOOT = 1_000.0
# Within what a lease's margin covers.
CLOCK_RATES = (0.95, 1.05)
_APART = 7200.0
_START_WALL_MS = 1_700_000_000_000


class _Jumping(selectors.DefaultSelector):
    """Never waits: where it would, the time is later instead."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """See `selectors`. RuntimeError when everybody waits for something that can never come."""
        if timeout is None:
            raise RuntimeError("everybody waits, and nothing will ever happen")
        self.loop.now += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """`now` is its time in seconds, from 0. What would run in a thread runs at once and takes no time: otherwise time
    jumps while a thread works."""

    def __init__(self) -> None:
        self.now = 0.0
        selector = _Jumping()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now

    def run_in_executor(  # type: ignore[override]  # the executor is nobody's
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - it is raised where the result is asked for
            done.set_exception(error)
        return done


class LoopClock(TestClock):
    """Both clocks of a sidecar, by the running loop's time."""

    def boot(self) -> float:
        """Seconds."""
        return _START_BOOT + asyncio.get_running_loop().time() + self.offset

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return _START_WALL_MS + int((asyncio.get_running_loop().time() + self.offset) * 1000)


class MachineClock(LoopClock):
    """The clocks of one process: `rate` of both, and how far the wall clock was ahead when the process began. As with
    the real one, setting it later changes nothing."""

    def __init__(self, *, ahead_seconds: float, rate: float) -> None:
        super().__init__()
        self._ahead_seconds, self._rate = ahead_seconds, rate
        self._began = asyncio.get_running_loop().time()

    @classmethod
    def drawn(cls, dice: random.Random) -> MachineClock:
        """Up to two hours off, and a little fast or slow."""
        ahead = dice.choice((-_APART, 0.0, dice.uniform(-_APART, _APART), _APART))
        return cls(ahead_seconds=ahead, rate=dice.uniform(*CLOCK_RATES))

    def _elapsed(self) -> float:
        return self._began + self._rate * (asyncio.get_running_loop().time() - self._began)

    def boot(self) -> float:
        """Seconds."""
        return _START_BOOT + self._elapsed()

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return _START_WALL_MS + int((self._elapsed() + self._ahead_seconds) * 1000)

    def boot_of(self, wall_ms: int) -> float:
        """The boot clock of the world at a reading of this wall clock."""
        elapsed = (wall_ms - _START_WALL_MS) / 1000 - self._ahead_seconds
        return _START_BOOT + self._began + (elapsed - self._began) / self._rate


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """Run something to its end in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


Scene = Callable[..., Coroutine[Any, Any, None]]


def staged(run: Callable[[Scene], object]) -> Callable[[Scene], Callable[..., None]]:
    """Makes a test of a scene: `run` runs it with the stage as its first argument, pytest gives the others."""

    def decorate(scene: Scene) -> Callable[..., None]:
        def test(**given: Any) -> None:
            run(functools.partial(scene, **given))

        functools.update_wrapper(test, scene)
        del test.__wrapped__  # type: ignore[attr-defined]
        _, *others = inspect.signature(scene).parameters.values()
        test.__signature__ = inspect.Signature(others)  # type: ignore[attr-defined]
        return test

    return decorate


def in_virtual_time(scene: Scene) -> Callable[..., None]:
    """Makes a test of a coroutine: it runs in virtual time."""

    @functools.wraps(scene)
    def test(**given: Any) -> None:
        run_virtually(scene(**given))

    return test
