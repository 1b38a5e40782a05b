"""The service in the thread of the API: it reads published values, and runs all other calls on the main loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, cast

from bundlekeel.api.service import Service, ServiceParts
from bundlekeel.model.errors import TooSlow
from bundlekeel.ports import Metadata, Ownership
from bundlekeel.views.published import Published
from bundlekeel.views.readings import Readings

# Seconds between two publications. The main loop also publishes after each call that may change something.
PUBLISH_SECONDS: Final = 0.5
# Highest number of concurrent read calls on the main loop: each may compute for some milliseconds.
READ_CALLS: Final = 4
# Each what-if holds a second snapshot.
LONG_CALLS: Final = 2
OTHER_CALLS: Final = 16
# Time-out of a read, including its wait in the queue.
READ_SECONDS: Final = 20.0
# Highest age of the rendered metrics.
METRICS_SECONDS: Final = 1.0
# Reads that need the main loop. All other calls may change something, and are not limited by `READ_CALLS`.
_READS: Final = frozenset(
    {"plan", "plans", "tasks", "where", "assignments", "owner", "boundaries", "namespaces", "partitions", "topics"}
    | {"operations", "task", "reviews", "view", "group", "why"}
)
# Reads that compute for many seconds or wait for each broker. Other reads do not wait for them.
_LONG: Final = frozenset({"make_plan", "doctor"})


class MainLoop:
    """Runs functions on the main loop for other threads."""

    def __init__(self, loop: asyncio.AbstractEventLoop, changed: Callable[[], None]) -> None:
        """`changed`: called on the main loop after each call that may change something."""
        self._loop = loop
        self._changed = changed
        self._reads, self._long = asyncio.Semaphore(READ_CALLS), asyncio.Semaphore(LONG_CALLS)
        self._others = asyncio.Semaphore(OTHER_CALLS)

    async def call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Await a function on the main loop, from the API's loop. Raises TooSlow if a short read takes too long."""
        short, long = function.__name__ in _READS, function.__name__ in _LONG
        try:
            async with (
                asyncio.timeout(READ_SECONDS if short else None) as limit,
                self._reads if short else self._long if long else self._others,
            ):
                work = self._run(function, args, options, reads=short or long)
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
                # The call has succeeded. If publishing fails now, `run` publishes later.
                with suppress(Exception):
                    self._changed()


class OnMainLoop:
    """Proxy of an object of the main loop. The API's loop awaits its methods."""

    def __init__(self, target: object, main: MainLoop) -> None:
        self._target, self._main = target, main

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(self._main.call, getattr(self._target, name))


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
            metadata=cast(Metadata, OnMainLoop(parts.metadata, main)),
            ownership=cast(Ownership, OnMainLoop(parts.ownership, main)),
        )
        self.requests = OnMainLoop(service.requests, main)
        self.features = {name: OnMainLoop(operations, main) for name, operations in service.features.items()}
        self._metrics: dict[str, tuple[float, bytes]] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return an operation that runs on the main loop, if it is not a read of published values."""
        if name.startswith("_"):
            raise AttributeError(name)
        return cast(Callable[..., Any], getattr(OnMainLoop(self._service, self._main), name))

    def render_metrics(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics in Prometheus format. Each format is rendered at most once per second."""
        kind, now = self._telemetry.content_type(accept), self._clock.boot()
        rendered = self._metrics.get(kind)
        if rendered is None or now - rendered[0] >= METRICS_SECONDS:
            # Delete older texts, which take megabytes.
            recent = {key: item for key, item in self._metrics.items() if now - item[0] < METRICS_SECONDS}
            # Computed here, so that the metric shows a main loop that hangs.
            due = self._loaded.settings.cycle.interval + self._latest().turned_boot - now
            self._telemetry.gauge("cycle_due_seconds", due)
            rendered = (now, self._telemetry.render(accept)[0])
            self._metrics = {**recent, kind: rendered}
        return rendered[1], kind

    def publish(self) -> None:
        """Publish the present values. Call it on the main loop only."""
        self._published = self._service.capture(self._published)

    async def run(self) -> None:
        """Publish every `PUBLISH_SECONDS`, as a task of the main loop."""
        while True:
            self.publish()
            await asyncio.sleep(PUBLISH_SECONDS)
