"""Lets the API, which has its own thread, call the service.

Reads use values that the main event loop publishes. All other calls run on the main event loop, which runs the cycles.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, cast

from bundlekeel.api.service import Service, ServiceParts
from bundlekeel.model.calls import CallKind, kind_of
from bundlekeel.model.errors import TooSlow
from bundlekeel.ports import Metadata, Ownership
from bundlekeel.views.published import Published
from bundlekeel.views.readings import Readings

# Seconds between two publications. The main loop also publishes after each call that can change something.
PUBLISH_SECONDS: Final = 0.5
# Highest number of concurrent reads on the main loop, because each can compute for some milliseconds.
READ_CALLS: Final = 4
# Highest number of concurrent dry runs and doctor calls, because a dry run can need memory for a second snapshot. Reads
# do not wait for them.
LONG_CALLS: Final = 2
CHANGE_CALLS: Final = 16
# Time-out of a read, including its wait in the queue.
READ_SECONDS: Final = 20.0
# Rendered metrics are reused for this many seconds.
METRICS_SECONDS: Final = 1.0


class MainLoop:
    """Runs functions on the main event loop for other threads."""

    def __init__(self, loop: asyncio.AbstractEventLoop, changed: Callable[[], None]) -> None:
        """Set `changed`, which is called on the main loop after each call that can change something."""
        self._loop = loop
        self._changed = changed
        limits: dict[CallKind, int] = {"read": READ_CALLS, "long": LONG_CALLS, "change": CHANGE_CALLS}
        self._running = {kind: asyncio.Semaphore(limit) for kind, limit in limits.items()}

    async def call(self, kind: CallKind, function: Callable[..., Any], /, *args: Any, **options: Any) -> Any:
        """Run a function on the main loop and await it on the API's loop. Raises TooSlow if a `read` takes too long."""
        try:
            async with asyncio.timeout(READ_SECONDS if kind == "read" else None) as limit, self._running[kind]:
                work = self._run(function, args, options, reads=kind != "change")
                return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise TooSlow(f"no answer within {READ_SECONDS:.0f} s") from error

    async def _run(self, function: Callable[..., Any], args: Any, options: Any, *, reads: bool) -> Any:
        try:
            return await function(*args, **options)
        finally:
            if not reads:
                # The call itself has ended, so ignore an error of publishing: `run` publishes again soon.
                with suppress(Exception):
                    self._changed()


class OnMainLoop:
    """Proxy of an object that belongs to the main loop. Its methods can be awaited on the API's loop.

    `kind`: kind of all calls (read, long or change); None: each method declares its own.
    """

    def __init__(self, target: object, main: MainLoop, kind: CallKind | None = None) -> None:
        self._target, self._main, self._kind = target, main, kind

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._target, name)
        return partial(self._main.call, self._kind or kind_of(method), method)


class ServiceOffLoop(Readings):
    """`Service` for the thread of the API. Create it in the thread of the main loop."""

    def __init__(self, service: Service, parts: ServiceParts, loop: asyncio.AbstractEventLoop) -> None:
        self._service, self._telemetry = service, parts.telemetry
        self._published: Published = service.capture()
        self._main = main = MainLoop(loop, self.publish)
        super().__init__(
            lambda: self._published,
            loaded=parts.loaded,
            journal=parts.journal,
            clock=parts.clock,
            metadata=cast(Metadata, OnMainLoop(parts.metadata, main, "read")),
            ownership=cast(Ownership, OnMainLoop(parts.ownership, main, "read")),
        )
        self.requests = OnMainLoop(service.requests, main)
        self.features = {name: OnMainLoop(operations, main) for name, operations in service.features.items()}
        self._metrics: dict[str, tuple[float, bytes]] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return an operation of the service as a function that runs it on the main loop.

        Python calls this only for names that the class does not have, so not for reads of published values.
        """
        if name.startswith("_"):
            raise AttributeError(name)
        return cast(Callable[..., Any], getattr(OnMainLoop(self._service, self._main), name))

    def render_metrics(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics in Prometheus format. Each format is rendered at most once per second."""
        kind, now = self._telemetry.content_type(accept), self._clock.boot()
        rendered = self._metrics.get(kind)
        if rendered is None or now - rendered[0] >= METRICS_SECONDS:
            # Delete older texts, because they take megabytes.
            recent = {key: item for key, item in self._metrics.items() if now - item[0] < METRICS_SECONDS}
            # Compute this metric here, in the API's thread, so that it shows a main loop that hangs.
            due = self._loaded.settings.cycle.interval + self._latest().turned_boot - now
            self._telemetry.gauge("cycle_due_seconds", due)
            rendered = (now, self._telemetry.render(accept)[0])
            self._metrics = {**recent, kind: rendered}
        return rendered[1], kind

    def publish(self) -> None:
        """Publish the present values for reads in other threads. Call it only on the main loop."""
        self._published = self._service.capture(self._published)

    async def run(self) -> None:
        """Publish every `PUBLISH_SECONDS`, as a task of the main loop."""
        while True:
            self.publish()
            await asyncio.sleep(PUBLISH_SECONDS)
