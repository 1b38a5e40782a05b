"""Creates the connections (adapters) of one process to brokers, stores and other sidecars of one cluster."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote

from bundlekeel import __version__
from bundlekeel.model.errors import SnapshotError, StoreError
from bundlekeel.model.store_urls import parse_store_url
from bundlekeel.model.uris import LOOPBACK
from bundlekeel.ports import BrokerEndpoint, Metadata, Peers
from bundlekeel.pulsar.admin import AdminOptions, HttpBrokerAdmin
from bundlekeel.pulsar.channel.channel_watch import ChannelWatch
from bundlekeel.pulsar.counters.counters import LiveLoads
from bundlekeel.pulsar.counters.demand import CounterOptions
from bundlekeel.pulsar.counters.prometheus_reader import PrometheusCounters, PrometheusOptions
from bundlekeel.pulsar.sources.broker_settings import BrokerConfig
from bundlekeel.pulsar.sources.extensible_source import ClusterSource, ExtensibleOptions
from bundlekeel.pulsar.sources.ownership import ChannelByVariant, ChannelOwnership, OwnershipByMode
from bundlekeel.pulsar.topics.channel import TopicChannel
from bundlekeel.pulsar.topics.feed import TopicLoadFeed
from bundlekeel.pulsar.topics.process import TopicsOptions, TopicsProcess
from bundlekeel.pulsar.zookeeper import ZkChannel, ZkClient, ZkCoordination, ZkLoadSource, ZkMetadata, ZkOwnership
from bundlekeel.records.metrics import PrometheusTelemetry
from bundlekeel.requests.doctor import DoctorContext, describe_store_failure
from bundlekeel.settings.load import LoadedSettings
from bundlekeel.settings.model import Settings
from bundlekeel.settings.parameters import to_parameters
from bundlekeel.settings.tls import ClientTls
from bundlekeel.wiring.clock import SystemClock
from bundlekeel.wiring.features import installed
from bundlekeel.wiring.security import broker_tls, peers_of, served_hosts, store_identity, token_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """The adapters of one process: its connections to brokers, stores and other sidecars."""

    clock: SystemClock
    telemetry: PrometheusTelemetry
    store: ZkClient
    coordination: ZkCoordination
    source: ClusterSource
    channel: ChannelByVariant
    ownership: OwnershipByMode
    metadata: ZkMetadata
    configuration: ZkClient
    admin: HttpBrokerAdmin
    config: BrokerConfig
    peers: Callable[[], Peers]
    """Creates the client of the other sidecars. Only sidecars call it, because it opens files with credentials."""
    adapters: Mapping[str, Any]
    """Adapters of the optional features, by the feature's name."""


def open_outside(loaded: LoadedSettings) -> Outside:
    """Create the adapters, not connected yet. Raises ConfigError if a setting or file cannot be used."""
    loaded.demand_store()
    settings, clock, telemetry = loaded.settings, SystemClock(), PrometheusTelemetry()
    store = _client(loaded, settings.store_url, "metadata_store")
    other = settings.configuration_store
    configuration = store
    if other is not None and other != settings.store_url:
        configuration = _client(loaded, other, "configuration_store")
    admin = _admin(loaded, telemetry, clock)
    metadata = ZkMetadata(store, configuration)
    follow = partial(_follow, loaded, metadata, clock)
    config = BrokerConfig(admin, clock, cluster=settings.cluster, stores=settings.stores, follow=follow)
    topics = TopicsProcess(topics_options(loaded), clock=clock)
    source = _source(settings, store, topics, admin, clock, telemetry, live_loads(loaded, admin, metadata, clock))
    source.use_settings(config.values)
    channel = ChannelByVariant(
        {
            "system_topic": lambda: TopicChannel(topics, clock=clock),
            "metadata_store": lambda: ZkChannel(store, clock=clock),
        },
        config,
        service_url=settings.extensible.service_url,
        prefer_tls=settings.admin.encrypted_first,
    )
    return Outside(
        clock=clock,
        telemetry=telemetry,
        store=store,
        coordination=ZkCoordination(store, root=settings.root_path, clock=clock),
        source=source,
        channel=channel,
        ownership=OwnershipByMode(ZkOwnership(store), ChannelOwnership(channel, source), source),
        metadata=metadata,
        configuration=configuration,
        admin=admin,
        config=config,
        peers=partial(peers_of, loaded),
        adapters={feature.name: feature.adapters(loaded, admin, clock) for feature in installed()},
    )


def _source(
    settings: Settings,
    store: ZkClient,
    topics: TopicsProcess,
    admin: HttpBrokerAdmin,
    clock: SystemClock,
    telemetry: PrometheusTelemetry,
    live: LiveLoads | None,
) -> ClusterSource:
    section = settings.extensible
    return ClusterSource(
        registry=ZkLoadSource(
            store,
            batch_window_seconds=settings.store.batch_window,
            max_report_bytes=settings.store.max_report_bytes,
            clock=clock,
        ),
        feed=TopicLoadFeed(topics, clock=clock),
        admin=admin,
        clock=clock,
        telemetry=telemetry,
        options=ExtensibleOptions(
            bundles=section.bundles,
            stats_interval=section.stats_interval,
            service_urls=(section.service_url,) if section.service_url else (),
            prefer_tls=settings.admin.encrypted_first,
            batch_window=settings.store.batch_window,
            force_mixed=settings.force_mixed,
        ),
        live=live,
    )


def topics_options(loaded: LoadedSettings) -> TopicsOptions:
    """Return the options of the process that reads topics. It uses the token and certificates of the admin API."""
    section, admin = loaded.settings.extensible, loaded.settings.admin
    return TopicsOptions(
        token=admin.token.get_secret_value() if admin.token else "",
        token_file=loaded.located(admin.token_file),
        trust_certs=loaded.located(admin.tls_trust_certs_file),
        cert=loaded.located(admin.tls_cert_file),
        key=loaded.located(admin.tls_key_file),
        verify=admin.tls_verify,
        stuck_after=section.stuck_after,
        max_bytes=loaded.settings.store.max_report_bytes,
    )


def _client(loaded: LoadedSettings, address: str, field: str) -> ZkClient:
    hosts, chroot = parse_store_url(address, field=field)
    settings = loaded.settings
    return ZkClient(
        hosts,
        chroot,
        session_seconds=settings.store.session_timeout,
        call_timeout_seconds=settings.store.call_timeout,
        identity=store_identity(loaded),
    )


async def _follow(loaded: LoadedSettings, metadata: ZkMetadata, clock: SystemClock, address: str) -> None:
    client = _client(loaded, address, "configuration_store")
    metadata.follow(client)
    # Wait for the connection, because policies are read next; but not for long, because a handback can be in progress.
    deadline = clock.boot() + loaded.settings.store.call_timeout
    while not client.connected and clock.boot() < deadline:
        await clock.sleep(0.05)


def _admin(loaded: LoadedSettings, telemetry: PrometheusTelemetry, clock: SystemClock) -> HttpBrokerAdmin:
    settings, section = loaded.settings, loaded.settings.admin
    return HttpBrokerAdmin(
        telemetry=telemetry,
        clock=clock,
        token=token_of(loaded, section),
        tls=broker_tls(loaded),
        options=AdminOptions(
            connect_timeout=section.connect_timeout,
            read_timeout=section.read_timeout,
            max_redirects=section.max_redirects,
            use_tls=section.prefer_tls,
            user_agent=f"bundlekeel/{__version__} ({quote(settings.member_id or socket.gethostname(), safe='')})",
        ),
    )


def watch(out: Outside, record: Callable[[Mapping[str, Any]], None], active: Callable[[], bool]) -> ChannelWatch:
    """Return the object that reads the ownership channel and looks for problems in it.

    `record`: adds a record to the journal. `active`: returns whether this sidecar follows the cluster.
    """
    return ChannelWatch(
        channel=out.channel,
        source=out.source,
        metadata=out.metadata,
        config=out.config,
        record=record,
        telemetry=out.telemetry,
        clock=out.clock,
        active=active,
    )


def context(settings: Settings, out: Outside, channel: ChannelWatch) -> DoctorContext:
    """Return the objects that the checks of `doctor` use."""
    return DoctorContext(
        coordination=out.coordination,
        source=out.source,
        metadata=out.metadata,
        admin=out.admin,
        config=out.config,
        clock=out.clock,
        channel=channel,
        feed=lambda: out.source.feed,
        live=out.source.live,
        mode=settings.mode,
        heartbeat_seconds=settings.leadership.heartbeat,
        store_address=settings.store_url,
        capacity=settings.capacity_overrides,
        bundles=settings.extensible.bundles,
        used=lambda values: to_parameters(settings, values),
        records=[feature.check_documents for feature in installed()],
        hosts=tuple(dict.fromkeys((*LOOPBACK, *served_hosts(settings)))),
    )


@asynccontextmanager
async def connected(loaded: LoadedSettings) -> AsyncIterator[Outside]:
    """Yield connected adapters for a command that is not a sidecar, and close them at the end."""
    out = open_outside(loaded)
    await out.coordination.start()
    if out.configuration is not out.store:
        out.configuration.start()
    try:
        yield out
    finally:
        await out.channel.close()
        await out.source.close()
        await out.admin.close()
        await out.coordination.close()
        await out.metadata.close()
        if out.configuration is not out.store:
            await out.configuration.close()


async def endpoints_of(settings: Settings, out: Outside, within: float = 10.0) -> Mapping[str, BrokerEndpoint]:
    """Wait for the list of registered brokers and return it. Raises StoreError after `within` seconds."""
    await until_connected(settings, out, within)
    await out.source.start()
    picture, deadline = None, out.clock.boot() + within
    while picture is None:
        try:
            picture = await out.source.picture()
        except (StoreError, SnapshotError) as error:
            if out.clock.boot() > deadline:
                raise StoreError(
                    f"{settings.store_url} did not show the brokers within {within:.0f} s ({error}); "
                    "`bundlekeel doctor` shows the cause"
                ) from error
            await out.clock.sleep(0.05)
    if not picture.endpoints:
        raise StoreError(f"no broker is registered in {settings.store_url}; check its chroot")
    out.admin.set_endpoints(picture.endpoints)
    return picture.endpoints


def unrecorded(_record: Mapping[str, Any]) -> None:
    """Drop a journal record, for commands that are not a sidecar and have no journal."""


async def settled(out: Outside, within: float = 10.0) -> None:
    """Wait until the brokers' load and the owners of bundles can be read. Raises StoreError after `within` seconds."""
    await out.source.start()
    deadline = out.clock.boot() + within
    while True:
        try:
            await out.channel.follow(await out.source.picture())
            if out.channel.on:
                await out.channel.view()
            return
        except (StoreError, SnapshotError) as error:
            if out.clock.boot() > deadline:
                raise StoreError(f"the owners of bundles cannot be read: {error}") from error
            await out.clock.sleep(0.05)


async def until_connected(
    settings: Settings, out: Outside, within: float = 10.0, *, configuration: bool = False
) -> None:
    """Wait for the connection to the metadata store. Raises StoreError with the cause after `within` seconds.

    `configuration`: wait for the configuration store, too; `handback` does not need it.
    """
    waited = 0.0
    while not (out.coordination.connected and (out.configuration.connected or not configuration)):
        if waited >= within:
            raise StoreError(describe_store_failure(settings.store_url, out.coordination.obstacle, within))
        await out.clock.sleep(0.05)
        waited += 0.05


def live_loads(
    loaded: LoadedSettings, admin: HttpBrokerAdmin, metadata: Metadata, clock: SystemClock
) -> LiveLoads | None:
    """Return the reader of the brokers' Prometheus counters; None: the settings use only load reports."""
    section = loaded.settings.counters
    if section.source == "off":
        return None
    options = CounterOptions(
        interval=section.interval, quick_interval=section.quick_interval, max_topics=section.max_topics
    )
    if section.source == "brokers":
        return LiveLoads(admin, metadata, clock, options, cpu_seconds=admin.cpu_seconds)
    prometheus = _prometheus(loaded, clock)
    return LiveLoads(prometheus, metadata, clock, options, prometheus.close)


def _prometheus(loaded: LoadedSettings, clock: SystemClock) -> PrometheusCounters:
    section = loaded.settings.prometheus
    return PrometheusCounters(
        PrometheusOptions(
            url=section.url or "",
            cluster=loaded.settings.cluster,
            labels=section.labels,
            broker_label=section.broker_label,
            window=section.window,
            timeout=section.timeout,
        ),
        clock,
        tls=ClientTls(trust_certs=loaded.located(section.tls_trust_certs_file), verify=section.tls_verify),
        token=token_of(loaded, section),
    )
