"""Trace the function calls of `bundlekeel run` with in-memory adapters, up to its first move.

`python -m tests.support.street` prints one line per frame of Bundlekeel, file and function, from the entry point to the
call of the admin port.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from types import FrameType
from typing import Any

import bundlekeel
from bundlekeel.model.errors import AdminRefused
from bundlekeel.ports.commands import Permit, UnloadAnswer
from bundlekeel.settings.load import LoadedSettings
from bundlekeel.wiring import main
from bundlekeel.wiring.clock import SystemClock
from bundlekeel.wiring.outside import Outside
from tests.support.memory_admin import MemoryAdmin
from tests.support.memory_coordination import MemoryCoordination
from tests.support.world import FakeCluster, fake_outside

_OURS = Path(bundlekeel.__file__).parent
# Frames without a caller, which Python 3.12 no longer has.
_NO_CALLS = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")
# Move immediately, because the loads of the in-memory brokers do not change.
_SETTINGS = """\
cluster: local
metadata_store: zk:127.0.0.1:2181
mode: act
api: {port: 0, socket: null}
journal: {path: null}
cycle: {interval: 1s}
parameters: {move_price: 0}
"""


class _Frames:
    """Collects the call stack of Bundlekeel's functions, across the asyncio tasks that they start."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._before: dict[asyncio.Task[Any], list[str]] = {}

    def task(
        self, loop: asyncio.AbstractEventLoop, body: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Task[Any]:
        """Create a task, and store the stack that created it (a task factory of asyncio)."""
        task = asyncio.Task(body, loop=loop, **options)
        self._before[task] = self.here(sys._getframe(1))
        return task

    def here(self, frame: FrameType | None) -> list[str]:
        """Return the stack of this frame, outermost first: the stack that created its task, then its own frames."""
        since: list[str] = []
        while frame is not None and not frame.f_code.co_filename.endswith("asyncio/events.py"):
            path = Path(frame.f_code.co_filename)
            if path.is_relative_to(_OURS) and frame.f_code.co_name not in _NO_CALLS:
                since.append(f"{path.relative_to(_OURS)} {frame.f_code.co_qualname}")
            frame = frame.f_back
        task = asyncio.current_task(self._loop)
        before = self._before.get(task, []) if task is not None else []
        if frame is not None and not before:
            # The first task, which runs inside of the frames that began it.
            before = self.here(frame.f_back)
        return [*before, *reversed(since)]


class _LastAdmin(MemoryAdmin):
    """Brokers that print the stack of the first unload, refuse it, and end the process as SIGTERM does."""

    frames: _Frames
    ended = False

    async def unload(self, bundle: str, *, destination: str | None, at: str, permit: Permit) -> UnloadAnswer:
        if not self.ended:
            self.ended = True
            sys.stdout.write("".join(f"{line}\n" for line in self.frames.here(sys._getframe(1))))
            os.kill(os.getpid(), signal.SIGTERM)
        raise AdminRefused("the way ends here")


class _FirstStart(MemoryCoordination):
    """Connected before any task is made: from then on the way to each task is kept."""

    admin: _LastAdmin

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self.admin.frames = _Frames(loop)
        loop.set_task_factory(self.admin.frames.task)  # type: ignore[arg-type]
        await super().start()


def _opened(loaded: LoadedSettings) -> Outside:
    cluster = FakeCluster()
    admin = _LastAdmin(cluster.model)
    coordination = _FirstStart(cluster.store)
    coordination.admin = admin
    return fake_outside(loaded, cluster, SystemClock(), coordination, admin)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "bundlekeel.yaml"
        config.write_text(_SETTINGS, encoding="utf-8")
        sys.argv = ["bundlekeel", "run", "-c", str(config)]
        main(_opened)
