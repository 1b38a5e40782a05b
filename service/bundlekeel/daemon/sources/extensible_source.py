"""`ClusterSource`: the picture of a cluster whatever load manager its brokers run.

Modular brokers tell everything in their registry node, and the registry's picture is handed on as it is. Extensible
ones (PIP-192) leave their addresses there, publish their load to two topics, and their bundles' figures are asked of
each over REST; `extensible_brokers` makes
reports of that. Nothing of this is begun before such a broker is registered.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import structlog

from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.errors import AdminApiError, AdminUnreachable, SnapshotError, StoreError
from bundlekeel.core.model.load import BrokerEndpoint, BrokerReport, BundleAverages, ExcludedBroker
from bundlekeel.daemon.sources.counters import LiveLoads
from bundlekeel.daemon.sources.extensible_brokers import (
    CPU_FIRST_SECONDS,
    BrokerSettings,
    BundlesSetting,
    ExtensibleBrokers,
    Instant,
)
from bundlekeel.ports import BrokerAdmin, Clock, FeedState, LoadFeed, LoadSource, LoadTables, RawClusterView, Telemetry

_log = structlog.get_logger(__name__)

FEED_STATES: Final[tuple[FeedState, ...]] = ("off", "connecting", "ok", "stuck", "down")
_EXTENSIONS: Final = ".extensions."
_RETRY_SECONDS: Final = 0.2
# So long the first picture waits for the brokers' first answers; a hung one must not keep the others out.
_FIRST_ANSWERS_SECONDS: Final = 3.0
# And this long nothing moves while the JVMs of brokers without load data have not answered yet.
_FIRST_SCORES_SECONDS: Final = _FIRST_ANSWERS_SECONDS + CPU_FIRST_SECONDS + 3.0
# After its first answer a JVM is asked again.
_SECOND_ANSWER_SECONDS: Final = 2.0
# Reports are made anew after this long without news: what was received grows old.
_MADE_ANEW_SECONDS: Final = 1.0


class _Made(NamedTuple):
    """Reports, what they were made of and when: a picture is asked for at each move, and 100,000 bundles take time."""

    versions: tuple[int, int, FeedState]
    boot: float
    reports: list[BrokerReport]
    excluded: list[ExcludedBroker]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensibleOptions:
    """How extensible brokers are looked at. Seconds.

    `bundles`: `all` of them, asked of each broker each `stats_interval` (or as often as the broker computes its
    statistics, if that is oftener, but not more than once a second), or only the `top` ones that brokers publish.
    `force_mixed`: of brokers with different load managers, those of the class that started last are the cluster.
    `service_urls` replaces those that brokers registered; of a broker's own two `prefer_tls` takes the encrypted one.
    `batch_window`: how long news is gathered. `at_once`: so many brokers are asked at the same time, and as many again
    of those that did not answer last time.
    """

    bundles: BundlesSetting = "all"
    stats_interval: float = 5.0
    service_urls: tuple[str, ...] = ()
    prefer_tls: bool = False
    batch_window: float = 0.25
    at_once: int = 8
    force_mixed: bool = False


class ClusterSource:
    """`ports.LoadSource` over the registry's own source, the load topics and the brokers' REST API.

    Owns the feed and closes it and the registry's source; the admin client may be shared.
    """

    def __init__(
        self,
        *,
        registry: LoadSource,
        feed: LoadFeed,
        admin: BrokerAdmin,
        clock: Clock,
        telemetry: Telemetry,
        options: ExtensibleOptions,
        live: LiveLoads | None = None,
    ) -> None:
        self._registry = registry
        self._feed = feed
        self._admin = admin
        self._clock = clock
        self._telemetry = telemetry
        self._options = options
        self.live = live
        self._book = ExtensibleBrokers(
            bundles=options.bundles,
            stats_interval=options.stats_interval,
        )
        self._urls: tuple[str, ...] = ()
        self._listens = False
        self._registered = 0
        self._news = 0
        self._first_boot: float | None = None
        self._made: _Made | None = None
        self._something = asyncio.Event()
        self._published = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._polls: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._usual = asyncio.Semaphore(options.at_once)
        self._failing = asyncio.Semaphore(options.at_once)

    # --- LoadSource --------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to follow the registry; the rest begins with the first extensible broker in it."""
        if self._tasks:
            return
        await self._registry.start()
        self._tasks = [
            asyncio.create_task(self._follow_registry(), name="cluster-source-registry"),
            asyncio.create_task(self._gather_news(), name="cluster-source-news"),
        ]
        if self.live is not None:
            self.live.on_news = self._something.set
            self.live.statistics_seconds = self._book.stats_seconds
            self.live.share_of = self._share_of
            self.live.other_assigner = self._book.other_assigner
            self._tasks.append(asyncio.create_task(self.live.run(), name="cluster-source-counters"))

    async def picture(self) -> RawClusterView:
        """The registry's picture; extensible brokers in it have reports, or are excluded with a code. Figures by
        counters stand in place of older ones.

        SnapshotError before the first, and for a moment until brokers have answered once; StoreError as the registry
        says.
        """
        picture = await self._reported()
        if self.live is None:
            return picture
        fused = self.live.fused(picture)
        states, ages = Counter(self.live.states().values()), self.live.ages()
        for state, count in states.items():
            self._telemetry.gauge("live_load_brokers", count, state=state)
        self._telemetry.retain("live_load_brokers", "state", set(states))
        self._telemetry.table("live_load_age_seconds", list(ages), np.array(list(ages.values())))
        return fused

    async def _reported(self) -> RawClusterView:
        self._check_tasks()
        base = await self._registry.picture()
        if self._options.force_mixed and base.mode == "mixed":
            base = of_newest_class(base)
        endpoints = extensible_endpoints(base)
        self._book.register(endpoints)
        generation = base.generation + self._news
        if not endpoints:
            return base if generation == base.generation else replace(base, generation=generation)
        now = self._now()
        tables = self._feed.tables()
        self._take_in(tables, now)
        since = self._await_first_answers(now)
        versions = (generation, tables.generation, tables.state)
        if self._made is None or self._made.versions != versions or now.boot - self._made.boot >= _MADE_ANEW_SECONDS:
            self._made = _Made(versions, now.boot, *self._book.reports(now))
        return replace(
            base,
            generation=generation,
            reports=tuple(sorted([*base.reports, *self._made.reports], key=lambda item: item.broker_id)),
            excluded=tuple(sorted([*base.excluded, *self._made.excluded], key=lambda item: item.broker_id)),
            # A broker that never answers must not keep everybody else waiting.
            awaited=tuple(self._book.awaited(now)) if since < _FIRST_SCORES_SECONDS else (),
        )

    async def wait_changed(self, generation: int, timeout: float) -> bool:
        """Wait for a picture newer than `generation`: news of the registry, the load topics or a broker's figures."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self._registered + self._news <= generation:
                    await self._published.wait()
        return self._registered + self._news > generation

    async def seeds(self, bundles: Sequence[str]) -> list[BundleAverages]:
        """What the registry's source has stored: extensible brokers store nothing, but what a modular load manager
        left behind of a bundle is better than Pulsar's defaults."""
        return await self._registry.seeds(bundles)

    async def close(self) -> None:
        """Stop following, and the client's process with it."""
        tasks = [*self._tasks, *self._polls.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks, self._polls = [], {}
        if self.live is not None:
            await self.live.close()
        await self._feed.close()
        await self._registry.close()

    # --- for the daemon --------------------------------------------------------------------------------------

    def use_settings(self, settings_of: BrokerSettings) -> None:
        """Take the brokers' statistics interval and time to live from here; stock values where it says None."""
        self._book.settings_of = settings_of

    @property
    def feed(self) -> LoadTables:
        """The load topics as they are now; `off` where no extensible broker was ever registered."""
        return self._feed.tables()

    # --- what is followed ------------------------------------------------------------------------------------

    async def _follow_registry(self) -> None:
        generation = -1
        while True:
            if not await self._registry.wait_changed(generation, 5.0):
                continue
            try:
                picture = await self._registry.picture()
            except (StoreError, SnapshotError):
                await self._clock.sleep(_RETRY_SECONDS)
                continue
            generation = picture.generation
            await self._attend(picture)
            self._registered = generation
            self._publish()

    async def _attend(self, picture: RawClusterView) -> None:
        """Listen to and ask exactly the extensible brokers of this picture."""
        endpoints = extensible_endpoints(picture)
        self._book.register(endpoints)
        wanted = {(broker, endpoint.start_timestamp) for broker, endpoint in endpoints.items()}
        for key in set(self._polls) - wanted:
            self._polls.pop(key).cancel()
        if self.live is not None:
            self._admin.set_endpoints(picture.endpoints)
            self.live.register(picture.endpoints)
        if not endpoints:
            return
        self._admin.set_endpoints(picture.endpoints)
        if not self._listens:
            self._listens = True
            self._tasks.append(asyncio.create_task(self._follow_feed(), name="cluster-source-feed"))
        registered = {endpoint.client_url(tls=self._options.prefer_tls) for endpoint in endpoints.values()} - {""}
        urls = self._options.service_urls or tuple(sorted(registered))
        if urls and urls != self._urls:
            self._urls = urls
            await self._feed.start(urls)
        for key in sorted(wanted - set(self._polls)):
            self._start_poll(key)

    def _start_poll(self, key: tuple[str, int]) -> None:
        self._polls[key] = asyncio.create_task(self._poll(key[0]), name=f"broker-stats {key[0]}")

    async def _follow_feed(self) -> None:
        generation, state = -1, ""
        while True:
            await self._feed.wait_changed(generation, 5.0)
            tables = self._feed.tables()
            self._take_in(tables, self._now())
            if tables.state != state:
                _log.info("load topics", state=tables.state, detail=tables.detail)
            if (tables.generation, tables.state) != (generation, state):
                self._something.set()
            generation, state = tables.generation, tables.state

    async def _poll(self, broker: str) -> None:
        """Ask one broker for its bundles, for ever. Brokers that did not answer last time wait for each other only."""
        slots = self._usual
        while True:
            if self._book.wants_stats(broker, self._now()):
                async with slots:
                    answered = await self._ask(broker)
                slots = self._usual if answered else self._failing
            often = max(1.0, min(self._options.stats_interval, self._book.stats_seconds(broker)))
            if broker in self._book.awaited(self._now()):
                often = min(often, CPU_FIRST_SECONDS)
            await self._clock.sleep(often)

    async def _ask(self, broker: str) -> bool:
        try:
            loads = await self._admin.bundle_loads(broker)
        except AdminApiError as error:
            _log.info("statistics could not be fetched", broker=broker, error=str(error))
            if self._book.failed(broker, str(error), unreachable=isinstance(error, AdminUnreachable)):
                self._something.set()
            return False
        if self._book.wants_cpu(broker, self._now()):
            await self._ask_cpu(broker)
        if self._book.polled(broker, loads, self._now()):
            self._something.set()
        return True

    async def _ask_cpu(self, broker: str) -> float | None:
        """A steady broker may publish nothing for 15 minutes: until it does, its JVM says how busy it is."""
        try:
            load: float | None = await self._admin.cpu_load(broker)
        except AdminApiError as error:
            _log.info("CPU load could not be fetched", broker=broker, error=str(error))
            load = None
        self._book.reported_cpu(broker, load, self._now())
        return load

    async def _share_of(self, broker: str) -> float | None:
        if not self._book.lacks_score(broker, self._now()):
            return None
        share = await self._ask_cpu(broker)
        if self._book.brokers[broker].cpu_awaited:
            # The first answer of a JVM covers an unknown time.
            await self._clock.sleep(_SECOND_ANSWER_SECONDS)
            share = await self._ask_cpu(broker)
        return share

    async def _gather_news(self) -> None:
        while True:
            await self._something.wait()
            await self._clock.sleep(self._options.batch_window)
            self._something.clear()
            self._news += 1
            self._publish()

    # --- small parts -----------------------------------------------------------------------------------------

    def _take_in(self, tables: LoadTables, now: Instant) -> None:
        self._book.take_in(tables, now)
        for state in FEED_STATES:
            self._telemetry.gauge("feed_up", float(state == tables.state), state=state)

    def _await_first_answers(self, now: Instant) -> float:
        """Seconds since extensible brokers were first seen; SnapshotError for a moment until each has answered once."""
        if self._first_boot is None:
            self._first_boot = now.boot
        unasked = self._book.unasked()
        if unasked and now.boot - self._first_boot < _FIRST_ANSWERS_SECONDS:
            raise SnapshotError(f"no answer yet from {', '.join(unasked)}")
        return now.boot - self._first_boot

    def _check_tasks(self) -> None:
        """An unforeseen error ends a task: say so rather than show a picture that stands still. What ended for one
        broker only is started again."""
        for task in self._tasks:
            if task.done() and not task.cancelled() and task.exception() is not None:
                raise StoreError(f"internal error in {task.get_name()}: {task.exception()!r}")
        for key, task in self._polls.items():
            if task.done():
                error = None if task.cancelled() else task.exception()
                _log.error("internal error in requests to a broker", broker=key[0], error=repr(error))
                self._start_poll(key)

    def _publish(self) -> None:
        self._published.set()
        self._published = asyncio.Event()

    def _now(self) -> Instant:
        return Instant(self._clock.wall_ms(), self._clock.boot())


def of_newest_class(picture: RawClusterView) -> RawClusterView:
    """A mixed cluster as if it were one of the load manager that started last, by which brokers decide too whom they
    send lookups to; the others are registered, but take no part."""
    newest = max(picture.endpoints.values(), key=lambda item: (item.start_timestamp, item.broker_id)).load_manager
    others = {item.broker_id for item in picture.endpoints.values() if item.load_manager != newest}
    kind = "extensible" if _EXTENSIONS in newest else "modular"
    left_out = [
        ExcludedBroker(broker_id=broker, code=Code.MIXED_LOAD_MANAGERS, detail=f"runs another one than {newest}")
        for broker in sorted(others)
    ]
    excluded = [item for item in picture.excluded if item.broker_id not in others]
    return replace(
        picture,
        mode=kind,
        reports=tuple(report for report in picture.reports if report.broker_id not in others),
        excluded=tuple(sorted([*excluded, *left_out], key=lambda item: item.broker_id)),
    )


def extensible_endpoints(picture: RawClusterView) -> dict[str, BrokerEndpoint]:
    """The brokers of a registry's picture that run the extensible load manager and have a readable record."""
    if picture.mode not in ("extensible", "mixed"):
        return {}
    known = {item.broker_id for item in picture.reports} | {item.broker_id for item in picture.excluded}
    return {
        broker: endpoint
        for broker, endpoint in picture.endpoints.items()
        if broker not in known and (picture.mode == "extensible" or _EXTENSIONS in endpoint.load_manager)
    }
