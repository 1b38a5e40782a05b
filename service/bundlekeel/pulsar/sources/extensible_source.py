"""`ClusterSource`: the loads in a cluster with either load manager.

Modular brokers report everything in their registry node, so the view of the registry is passed on unchanged. Extensible
brokers (PIP-192) only register their addresses there. They publish their load to two topics, and return their bundles'
loads over REST; `extensible_brokers` builds reports from topics and REST, which are read only while an extensible
broker is registered.
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

from bundlekeel.model.codes import Code
from bundlekeel.model.errors import AdminApiError, AdminUnreachable, SnapshotError, StoreError
from bundlekeel.model.load import BrokerEndpoint, BrokerReport, BundleAverages, ExcludedBroker
from bundlekeel.ports import BrokerAdmin, Clock, FeedState, LoadFeed, LoadSource, LoadTables, RawClusterView, Telemetry
from bundlekeel.pulsar.counters.counters import LiveLoads
from bundlekeel.pulsar.sources.extensible_brokers import (
    CPU_FIRST_SECONDS,
    BrokerSettings,
    BundlesSetting,
    ExtensibleBrokers,
    Instant,
)

_log = structlog.get_logger(__name__)

FEED_STATES: Final[tuple[FeedState, ...]] = ("off", "connecting", "ok", "stuck", "down")
_EXTENSIONS: Final = ".extensions."
_RETRY_SECONDS: Final = 0.2
# The first view waits at most this long for the brokers' first responses, because a broker may hang.
_FIRST_ANSWERS_SECONDS: Final = 3.0
# No bundle moves for this long while the JVMs of brokers without load data have not responded yet.
_FIRST_SCORES_SECONDS: Final = _FIRST_ANSWERS_SECONDS + CPU_FIRST_SECONDS + 3.0
# Seconds until a JVM is queried again after its first response.
_SECOND_ANSWER_SECONDS: Final = 2.0
# Reports are rebuilt after this long without changes, because received values become too old.
_REBUILD_SECONDS: Final = 1.0


class _CachedReports(NamedTuple):
    """Reports, the versions of their inputs, and when they were built (`boot`: seconds since the machine's boot)."""

    versions: tuple[int, int, FeedState]
    boot: float
    reports: list[BrokerReport]
    excluded: list[ExcludedBroker]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensibleOptions:
    """How extensible brokers are queried. Times are in seconds."""

    bundles: BundlesSetting = "all"
    """`all`: query every broker for all its bundles. `top`: use only the bundles that brokers publish."""
    stats_interval: float = 5.0
    """Time between two queries of a broker, or its statistics interval if that is shorter; at least 1."""
    service_urls: tuple[str, ...] = ()
    """Replaces the addresses that brokers registered."""
    prefer_tls: bool = False
    """Use a broker's encrypted address."""
    batch_window: float = 0.25
    """Changes within this time cause only one new view."""
    at_once: int = 8
    """Number of brokers that are queried in parallel, in addition to as many that failed last time."""
    force_mixed: bool = False
    """If brokers run different load managers, use only the brokers with the load manager that started last."""


class ClusterSource:
    """`ports.LoadSource` over the registry of brokers, the load topics (`feed`) and the brokers' REST API.

    Closes `registry` and `feed` at the end. The admin client may be shared.
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
        self._reports: _CachedReports | None = None
        self._something = asyncio.Event()
        self._published = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._polls: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._usual = asyncio.Semaphore(options.at_once)
        self._failing = asyncio.Semaphore(options.at_once)

    # --- LoadSource --------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start to follow the registry. Load topics and queries start with the first extensible broker in it."""
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
            self.live.buffers_pages = self._book.buffers_pages
            self._tasks.append(asyncio.create_task(self.live.run(), name="cluster-source-counters"))

    async def picture(self) -> RawClusterView:
        """Return the registry's view, in which extensible brokers have reports, or are excluded with a code.

        Newer loads from counters replace the loads of reports. Raises SnapshotError before the first view, and for some
        seconds until all brokers have responded once. Raises StoreError if the registry cannot be read.
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
        versions = (generation, tables.generation, tables.status.state)
        if (
            self._reports is None
            or self._reports.versions != versions
            or now.boot - self._reports.boot >= _REBUILD_SECONDS
        ):
            self._reports = _CachedReports(versions, now.boot, *self._book.reports(now))
        return replace(
            base,
            generation=generation,
            reports=tuple(sorted([*base.reports, *self._reports.reports], key=lambda item: item.broker_id)),
            excluded=tuple(sorted([*base.excluded, *self._reports.excluded], key=lambda item: item.broker_id)),
            # A broker that never responds must not block all others.
            awaited=tuple(self._book.awaited(now)) if since < _FIRST_SCORES_SECONDS else (),
        )

    async def wait_changed(self, generation: int, timeout: float) -> bool:
        """Wait for a view newer than `generation`: a change of the registry, the load topics or a broker's load."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self._registered + self._news <= generation:
                    await self._published.wait()
        return self._registered + self._news > generation

    async def seeds(self, bundles: Sequence[str]) -> list[BundleAverages]:
        """Return stored averages of these bundles. Only the modular load manager stores some."""
        return await self._registry.seeds(bundles)

    async def close(self) -> None:
        """Stop all tasks, and close the registry's source and the feed."""
        tasks = [*self._tasks, *self._polls.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks, self._polls = [], {}
        if self.live is not None:
            await self.live.close()
        await self._feed.close()
        await self._registry.close()

    # --- for the sidecar --------------------------------------------------------------------------------------

    def use_settings(self, settings_of: BrokerSettings) -> None:
        """Set the function that returns a broker's settings (statistics interval, time to live of its load data)."""
        self._book.settings_of = settings_of

    @property
    def feed(self) -> LoadTables:
        """The newest data of the load topics; its state is `off` if no extensible broker was ever registered."""
        return self._feed.tables()

    # --- tasks ------------------------------------------------------------------------------------------------

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
        """Query exactly the extensible brokers of this view, and read the load topics through them."""
        endpoints = extensible_endpoints(picture)
        self._book.register(endpoints)
        keys = {(broker, endpoint.start_timestamp) for broker, endpoint in endpoints.items()}
        for key in set(self._polls) - keys:
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
        for key in sorted(keys - set(self._polls)):
            self._start_poll(key)

    def _start_poll(self, key: tuple[str, int]) -> None:
        self._polls[key] = asyncio.create_task(self._poll(key[0]), name=f"broker-stats {key[0]}")

    async def _follow_feed(self) -> None:
        generation, state = -1, ""
        while True:
            await self._feed.wait_changed(generation, 5.0)
            tables = self._feed.tables()
            self._take_in(tables, self._now())
            if tables.status.state != state:
                _log.info("load topics", state=tables.status.state, detail=tables.status.detail)
            if (tables.generation, tables.status.state) != (generation, state):
                self._something.set()
            generation, state = tables.generation, tables.status.state

    async def _poll(self, broker: str) -> None:
        """Query one broker for its bundles' loads until cancelled. After a failure it does not delay other brokers."""
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
            _log.info("statistics of a broker could not be fetched; retrying", broker=broker, error=str(error))
            if self._book.failed(broker, str(error), unreachable=isinstance(error, AdminUnreachable)):
                self._something.set()
            return False
        if self._book.wants_cpu(broker, self._now()):
            await self._ask_cpu(broker)
        if self._book.polled(broker, loads, self._now()):
            self._something.set()
        return True

    async def _ask_cpu(self, broker: str) -> float | None:
        """Request the CPU load of a broker's JVM: a steady broker may publish no load for 15 minutes."""
        try:
            load: float | None = await self._admin.cpu_load(broker)
        except AdminApiError as error:
            text = "CPU load could not be fetched; it is estimated from traffic"
            _log.info(text, broker=broker, error=str(error))
            load = None
        self._book.reported_cpu(broker, load, self._now())
        return load

    async def _share_of(self, broker: str) -> float | None:
        if not self._book.lacks_score(broker, self._now()):
            return None
        share = await self._ask_cpu(broker)
        if self._book.brokers[broker].cpu_awaited:
            # The first response of a JVM covers an unknown time, so request another one.
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
            self._telemetry.gauge("feed_up", float(state == tables.status.state), state=state)

    def _await_first_answers(self, now: Instant) -> float:
        """Return the seconds since the first extensible broker was registered.

        Raises SnapshotError until all brokers have responded once, for at most `_FIRST_ANSWERS_SECONDS`.
        """
        if self._first_boot is None:
            self._first_boot = now.boot
        unasked = self._book.unasked()
        if unasked and now.boot - self._first_boot < _FIRST_ANSWERS_SECONDS:
            raise SnapshotError(f"no answer yet from {', '.join(unasked)}")
        return now.boot - self._first_boot

    def _check_tasks(self) -> None:
        """Raise StoreError if an unexpected error ended a task, because the view would no longer change.

        The task that queries a single broker is restarted instead.
        """
        for task in self._tasks:
            if task.done() and not task.cancelled() and task.exception() is not None:
                raise StoreError(f"internal error in {task.get_name()}: {task.exception()!r}")
        for key, task in self._polls.items():
            if task.done():
                error = None if task.cancelled() else task.exception()
                _log.error("internal error in requests to a broker; restarting", broker=key[0], error=repr(error))
                self._start_poll(key)

    def _publish(self) -> None:
        self._published.set()
        self._published = asyncio.Event()

    def _now(self) -> Instant:
        return Instant(self._clock.wall_ms(), self._clock.boot())


def of_newest_class(picture: RawClusterView) -> RawClusterView:
    """Return the view of a mixed cluster with only the brokers that run the same load manager as the broker that
    started last. All other brokers are excluded. Brokers use the same rule to choose the target of lookups.
    """
    newest = max(picture.endpoints.values(), key=lambda item: (item.start_timestamp, item.broker_id)).load_manager
    others = {item.broker_id for item in picture.endpoints.values() if item.load_manager != newest}
    kind = "extensible" if _EXTENSIONS in newest else "modular"
    skipped = [
        ExcludedBroker(broker_id=broker, code=Code.MIXED_LOAD_MANAGERS, detail=f"does not run {newest}")
        for broker in sorted(others)
    ]
    excluded = [item for item in picture.excluded if item.broker_id not in others]
    return replace(
        picture,
        mode=kind,
        reports=tuple(report for report in picture.reports if report.broker_id not in others),
        excluded=tuple(sorted([*excluded, *skipped], key=lambda item: item.broker_id)),
    )


def extensible_endpoints(picture: RawClusterView) -> dict[str, BrokerEndpoint]:
    """Return the brokers of a registry's view that run the extensible load manager and have a readable record."""
    if picture.mode not in ("extensible", "mixed"):
        return {}
    listed = {item.broker_id for item in picture.reports} | {item.broker_id for item in picture.excluded}
    return {
        broker: endpoint
        for broker, endpoint in picture.endpoints.items()
        if broker not in listed and (picture.mode == "extensible" or _EXTENSIONS in endpoint.load_manager)
    }
