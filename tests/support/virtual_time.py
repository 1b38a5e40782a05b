"""Clocks and decorators for tests that run in virtual time (`bundlekeel.simulator.virtual_time`)."""

from __future__ import annotations

import asyncio
import functools
import inspect
import random
from collections.abc import Callable, Coroutine
from typing import Any

from bundlekeel.simulator.reports import START_MS
from bundlekeel.simulator.virtual_time import START_BOOT, VirtualClock, run_virtually
from tests.support.world import TestClock

# Within what a lease's margin covers.
CLOCK_RATES = (0.95, 1.05)
_APART = 7200.0


class LoopClock(VirtualClock, TestClock):
    """Both clocks of a sidecar, by the running loop's time, with an offset that a test can push forward."""

    def boot(self) -> float:
        """Seconds."""
        return super().boot() + self.offset

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return super().wall_ms() + int(self.offset * 1000)


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
        return START_BOOT + self._elapsed()

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return START_MS + int((self._elapsed() + self._ahead_seconds) * 1000)

    def boot_of(self, wall_ms: int) -> float:
        """The boot clock of the world at a reading of this wall clock."""
        elapsed = (wall_ms - START_MS) / 1000 - self._ahead_seconds
        return START_BOOT + self._began + (elapsed - self._began) / self._rate


Scene = Callable[..., Coroutine[Any, Any, None]]


def staged(run: Callable[[Scene], object]) -> Callable[[Scene], Callable[..., None]]:
    """Makes a test of a scene: `run` runs it with the stage as its first argument, pytest gives the others."""

    def decorate(scene: Scene) -> Callable[..., None]:
        def test(**arguments: Any) -> None:
            run(functools.partial(scene, **arguments))

        functools.update_wrapper(test, scene)
        del test.__wrapped__  # type: ignore[attr-defined]
        _, *others = inspect.signature(scene).parameters.values()
        test.__signature__ = inspect.Signature(others)  # type: ignore[attr-defined]
        return test

    return decorate


def in_virtual_time(scene: Scene) -> Callable[..., None]:
    """Makes a test of a coroutine: it runs in virtual time."""

    @functools.wraps(scene)
    def test(**arguments: Any) -> None:
        run_virtually(scene(**arguments))

    return test
