"""Kinds of input that are text inside valid documents, or values of the right type: how the product uses them.

Settings of a broker, names of ZooKeeper nodes, values of labels, and ranges of Bundlekeel's own documents.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import cache
from typing import Any, Final, cast

from bundlekeel.leader.state.effective_parameters import merging
from bundlekeel.model.channel_states import ChannelTable, ServiceUnit, UnitState
from bundlekeel.model.errors import BundlekeelError, SnapshotError, WrongCluster
from bundlekeel.model.members import Member
from bundlekeel.model.names import namespace_of, parse_bundle
from bundlekeel.ports import BrokerEndpoint
from bundlekeel.pulsar.admin.hosts import KnownHosts
from bundlekeel.pulsar.channel.findings import Deadlines, findings
from bundlekeel.pulsar.counters.prometheus_reader import _matching
from bundlekeel.pulsar.formats.broker_metrics import (
    NAMES,
    PROCESS_CPU,
    decode_counters,
    decode_lookup_failures,
    decode_scrapes,
)
from bundlekeel.pulsar.formats.external_input import text_of
from bundlekeel.pulsar.formats.records import decode_settings
from bundlekeel.pulsar.formats.report import is_bundle
from bundlekeel.pulsar.sources.broker_settings import KEPT_SECONDS, BrokerConfig
from bundlekeel.pulsar.sources.extensible_brokers import ExtensibleBrokers
from bundlekeel.pulsar.zookeeper.broker_records import make_picture, read_record
from bundlekeel.pulsar.zookeeper.client import MAX_REQUEST_BYTES, Stat, ZkClient
from bundlekeel.pulsar.zookeeper.coordination import ZkCoordination
from bundlekeel.pulsar.zookeeper.metadata import MANAGED_LEDGERS, POLICIES, ZkMetadata
from bundlekeel.quotas.published import usage_listener
from bundlekeel.settings.load import LoadedSettings
from tests.support.foreign_input import BUNDLE, Kind
from tests.support.world import BROKERS, FakeCluster, FakeSidecar, TestClock

_LOOP: Final = asyncio.new_event_loop()


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine on the one loop of all kinds."""
    return _LOOP.run_until_complete(coroutine)


# --- settings of a broker ---

_STORES: Final = ("zk:zk1:2181/pulsar", None)
SETTINGS: Final = {
    **dict.fromkeys(("statsUpdateFrequencyInSecs", "loadBalancerReportUpdateMaxIntervalMinutes"), "60"),
    **dict.fromkeys(("loadBalancerReportUpdateMinIntervalMillis", "loadBalancerReportUpdateThresholdPercentage"), "10"),
    **dict.fromkeys(
        ("loadBalancerMaxNumberOfBundlesInBundleLoadReport", "loadBalancerBrokerOverloadedThreshold"), "10"
    ),
    **dict.fromkeys(("loadBalancerServiceUnitStateMonitorIntervalInSeconds", usage_listener._PERIOD_KEY), "60"),
    **dict.fromkeys(("loadBalancerInFlightServiceUnitStateWaitingTimeInMillis", "maxUnloadPercentage"), "0.2"),
    **dict.fromkeys(("loadBalancerEnabled", "loadBalancerSheddingEnabled"), "true"),
    "clusterName": "local",
    "metadataStoreUrl": "zk:zk1:2181/pulsar",
    "configurationStoreServers": "zk1:2181/b",
    "zookeeperServers": "zk1:2181",
    "configurationMetadataStoreUrl": "zk:zk1:2181/pulsar",
}


@cache
def _config() -> tuple[FakeCluster, BrokerConfig]:
    cluster = FakeCluster()

    async def follow(_store: str) -> None:
        """A store that is not opened."""

    return cluster, BrokerConfig(FakeSidecar(cluster).admin, cluster.clock, stores=_STORES, follow=follow)


def _use_settings(data: bytes) -> None:
    values = decode_settings(data)
    cluster, config = _config()
    cluster.model.static[BROKERS[0]] = values
    endpoints = {BROKERS[0]: BrokerEndpoint(broker_id=BROKERS[0], web_url="http://b1:8080")}
    run(config.refresh(endpoints, force=True))
    with suppress(WrongCluster, SnapshotError):
        config.demand_configuration_store()
    with suppress(BundlekeelError):
        merging(LoadedSettings.defaults())(config.adoptable())
    Deadlines.of(config.values(BROKERS[0]) or {})
    brokers = ExtensibleBrokers(bundles="all", stats_interval=KEPT_SECONDS)
    brokers.settings_of = config.values
    brokers.stats_seconds(BROKERS[0])
    listener = usage_listener.UsageListener(feed=cast("Any", None), config=config, clock=cluster.clock)
    listener._period(BROKERS[0])
    config.unusable(BROKERS[0])


# --- names of nodes ---


class StoredNodes:
    """The reads of `ZkClient` over one listing: each path has the names `children` below it, and the same data."""

    connected, session_id, hosts, chroot = True, 1, "zk", ""

    def __init__(self, folder: str, name: str, data: bytes) -> None:
        self._folder, self._name, self._data = folder, name, data

    def add_listener(self, _listener: object) -> None:
        """Connections never change."""

    async def sync(self, _path: str) -> None:
        """It is up to date."""

    async def children(self, path: str, _watch: object = None) -> list[str]:
        """The one name below the folder. Other nodes exist, too, and have no children."""
        return [self._name] if path == self._folder else []

    async def get(self, _path: str, _watch: object = None) -> tuple[bytes, Stat]:
        return self._data, Stat(1, 1, 1, 1)

    get_synced = get

    async def exists(self, path: str, _watch: object = None) -> Stat:
        """All nodes exist."""
        return (await self.get(path))[1]

    async def set(self, path: str, _data: bytes, *, version: int) -> Stat:
        """No write has an effect."""
        return await self.exists(path)

    async def create(self, path: str, _data: bytes, *, ephemeral: bool) -> str:
        """No write has an effect."""
        return path


# A byte that is not UTF-8 becomes three bytes.
_LONGEST_NAME: Final = MAX_REQUEST_BYTES // 3


def node_name(data: bytes) -> str:
    """A name as ZooKeeper allows it: within a request, no control character, no slash, neither `.` nor `..`."""
    return text_of(data[:_LONGEST_NAME]).replace("/", "").replace("\n", "").strip(".")


def _node_name(folder: str, node: bytes, use: Callable[[ZkClient, str], Awaitable[object]]) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        if name := node_name(data):
            run(cast("Any", use(cast("ZkClient", StoredNodes(folder, name, node)), name)))

    return read


async def _use_seats(client: ZkClient, _name: str) -> None:
    coordination = ZkCoordination(client, root="/b", clock=TestClock())
    await coordination.members()
    await coordination.take_seat(Member(id="m"), seats=3)


async def _use_namespaces(client: ZkClient, _name: str) -> None:
    metadata = ZkMetadata(client, client)
    for namespace in (await metadata.namespaces())[:1]:
        await metadata.boundaries(namespace)
        await metadata.policies("c", [namespace])


async def _use_topics(client: ZkClient, _name: str) -> None:
    metadata = ZkMetadata(client, client)
    await metadata.topics(BUNDLE)


def _use_topic(data: bytes) -> None:
    client = cast("ZkClient", StoredNodes("", "", b'{"partitions":1}'))
    run(ZkMetadata(client, client).partitions(text_of(data[:_LONGEST_NAME])))


def _use_broker(data: bytes) -> None:
    if name := node_name(data):
        record = read_record(name, b'{"webServiceUrl":"http://b:8080"}', 1, max_bytes=10_000, last=None)
        hosts = KnownHosts(make_picture({name: record}, generation=1).endpoints)
        with suppress(BundlekeelError):
            hosts.base_url(name)


def _use_bundle(data: bytes) -> None:
    name = text_of(data[:_LONGEST_NAME])
    if not is_bundle(name):
        return
    parse_bundle(name)
    namespace_of(name)
    table = ChannelTable(store=True)
    table.replace(name, ServiceUnit(state=UnitState.OWNED, destination="b", timestamp_ms=1, version=1), 1)
    findings(table.units, table.seen_ms, [], {"b"}, Deadlines(), 5)


# --- values of labels ---

# A line of a page has at most 64 KiB, and four of these labels.
_LONGEST_LABEL: Final = 12 * 1024


def _use_prometheus(data: bytes) -> None:
    """The text is each label of Pulsar's, a custom one and each sample of a response."""
    # A third: the response has three of them a series, and each byte may become three.
    text = data[: _LONGEST_LABEL // 3].decode("utf-8", "surrogateescape")
    names = ("topic", "namespace", "subscription", "cluster", "partition", "exported_topic", "x", "instance")
    labels = dict.fromkeys(names, text)
    process = {"metric": {"__name__": PROCESS_CPU, "instance": text}, "values": [[1.5, text], [16, "4"]]}
    series = [
        {"metric": labels | {"__name__": name}, "values": [[1.5, "3"], [16, text]]}
        for name in (*NAMES[:6], "pulsar_broker_topics_count")
    ]
    decode_scrapes(
        json.dumps({"data": {"result": [process, *series]}}, ensure_ascii=False).encode("utf-8", "surrogateescape")
    )


def _use_page(data: bytes) -> None:
    """The bytes are each label and value of a broker's metrics page."""
    data = data[:_LONGEST_LABEL]
    page = b"".join(
        b'pulsar_%s{cluster="c",namespace="%s",topic="%s",subscription="%s",x="%s"} %s\n'
        % (name, data, data, data, data, data)
        for name in (*(name.removeprefix("pulsar_").encode() for name in NAMES[:6]), b"broker_lookup_failures_total")
    )
    decode_lookup_failures(page)
    decode_counters(b"process_cpu_seconds_total %s\n" % data + page, from_ms=1, to_ms=2)


class _Offline(asyncio.SelectorEventLoop):
    """Resolves names as far as that needs no server."""

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        return socket.getaddrinfo(host, port, flags=socket.AI_NUMERICHOST, **options)


_OFFLINE: Final = _Offline()


def _use_instance(data: bytes) -> None:
    """The text is the value of the label that names a broker, and the broker's own address."""
    text = text_of(data[:_LONGEST_LABEL])
    for url in ("http://b1:8080", text):
        broker = BrokerEndpoint(broker_id="b1:8080", web_url=url)
        _OFFLINE.run_until_complete(_matching(broker, [text, f"{text}:8080"]))


def as_json(value: object) -> bytes:
    """Return the JSON of a value."""
    return json.dumps(value).encode()


# --- the kinds ---

_MEMBER: Final = as_json({"id": "m", "url": "http://m", "seat": 0, "epoch": 1})
USES: Final[dict[str, Kind]] = {
    "broker settings, in use": Kind(_use_settings, as_json(SETTINGS)),
    "name below seats": Kind(_node_name("/b/seats", _MEMBER, _use_seats), b"12"),
    "name of a broker": Kind(_use_broker, b"b1.example.com:8080"),
    "name of a bundle": Kind(_use_bundle, BUNDLE.encode()),
    "name of a tenant": Kind(_node_name(POLICIES, b"{}", _use_namespaces), b"tenant"),
    "name of a failure domain": Kind(
        _node_name(
            "/admin/clusters/c/failureDomain", b"{}", lambda client, _: ZkMetadata(client, client).policies("c", [])
        ),
        b"domain",
    ),
    "name of a ledger": Kind(_node_name(f"{MANAGED_LEDGERS}/t/n/persistent", b"{}", _use_topics), b"x-partition-3"),
    "name of a topic": Kind(_use_topic, b"persistent://t/n/x"),
    "label of Prometheus": Kind(_use_prometheus, b"persistent://t/n/x"),
    "label of a page": Kind(_use_page, b"persistent://t/n/x"),
    "label of an instance": Kind(_use_instance, b"[::1]:8080"),
}
