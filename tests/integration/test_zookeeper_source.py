"""The load source on a real ZooKeeper with brokers' znodes written by hand."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

from bundlekeel.model.codes import Code
from bundlekeel.model.errors import SnapshotError, StoreError
from bundlekeel.ports import RawClusterView
from bundlekeel.pulsar.zookeeper.client import ZkClient
from bundlekeel.pulsar.zookeeper.source import BROKERS, BUNDLE_DATA, RESOURCE_QUOTA, ZkLoadSource
from dev.cluster import Cluster
from tests.support.contracts.coordination import eventually
from tests.support.contracts.zookeeper import chroot, client, end_session, plain, silence, until_connected, zookeeper
from tests.support.contracts.zookeeper import put as put_node
from tests.support.memory_source import RealClock

__all__ = ["chroot", "client", "zookeeper"]

pytestmark = pytest.mark.zookeeper

WINDOW = 0.1
MAX_BYTES = 1_000_000
BUNDLE = "public/default/0x00000000_0x40000000"
MODULAR = "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl"
EXTENSIBLE = "org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl"


def modular(broker_id: str, *, rate: float = 1.0, last_update: int = 1, **more: Any) -> bytes:
    """A LocalBrokerData znode."""
    stats = {
        "msgRateIn": rate,
        "msgThroughputIn": rate,
        "msgRateOut": rate,
        "msgThroughputOut": rate,
        "consumerCount": 1,
        "producerCount": 1,
        "topics": 1,
        "cacheSize": 0,
    }
    fields = {
        "webServiceUrl": f"http://{broker_id}",
        "pulsarServiceUrl": "pulsar://h:6650",
        "cpu": {"usage": 10.0, "limit": 100.0},
        "memory": {"usage": 1.0, "limit": 10.0},
        "directMemory": {"usage": 1.0, "limit": 10.0},
        "bandwidthIn": {"usage": 1.0, "limit": 10.0},
        "bandwidthOut": {"usage": 1.0, "limit": 10.0},
        "msgThroughputIn": rate,
        "msgThroughputOut": rate,
        "msgRateIn": rate,
        "msgRateOut": rate,
        "lastUpdate": last_update,
        "lastStats": {BUNDLE: stats},
        "bundles": [BUNDLE],
        "numBundles": 1,
        "brokerVersionString": "4.2.4",
        "loadManagerClassName": MODULAR,
        "startTimestamp": 1,
        "loadReportType": "LocalBrokerData",
    }
    return json.dumps({**fields, **more}).encode()


def extensible(broker_id: str) -> bytes:
    """A BrokerLookupData znode."""
    return json.dumps(
        {
            "webServiceUrl": f"http://{broker_id}",
            "pulsarServiceUrl": "pulsar://h:6650",
            "loadManagerClassName": EXTENSIBLE,
            "startTimestamp": 1,
            "brokerVersion": "4.2.4",
            "properties": {},
        }
    ).encode()


@pytest.fixture
def store(zookeeper: Cluster, chroot: str) -> Iterator[KazooClient]:
    """A plain client below the chroot, as the brokers' hand; their registry is there."""
    with plain(zookeeper.zk_hosts + chroot) as kazoo:
        kazoo.ensure_path(BROKERS)
        yield kazoo


@pytest.fixture
async def source(client: ZkClient) -> AsyncIterator[ZkLoadSource]:
    """A source that is not started yet."""
    value = ZkLoadSource(client, batch_window_seconds=WINDOW, max_report_bytes=MAX_BYTES, clock=RealClock())
    yield value
    await value.close()


def put(store: KazooClient, broker_id: str, data: bytes) -> None:
    """Register a broker, or replace its report."""
    put_node(store, f"{BROKERS}/{broker_id}", data, ephemeral=True)


async def until(source: ZkLoadSource, condition: Any) -> RawClusterView:
    """The first picture that satisfies the condition."""

    async def read() -> RawClusterView | None:
        picture = await source.picture()
        return picture if condition(picture) else None

    view: RawClusterView = await eventually(read)
    return view


def ids(picture: RawClusterView) -> list[str]:
    """Brokers with a usable report."""
    return [report.broker_id for report in picture.reports]


async def test_a_restart_between_two_readings_is_seen(source: ZkLoadSource, store: KazooClient) -> None:
    """A broker that vanishes and comes back, over and over, ends up in the picture with its last report."""
    await source.start()
    for start in range(1, 40):
        put(store, "a:8080", modular("a:8080", startTimestamp=start))
        await asyncio.sleep(0.013)
        store.delete(f"{BROKERS}/a:8080")
    put(store, "a:8080", modular("a:8080", startTimestamp=99))
    await until(source, lambda p: ids(p) == ["a:8080"] and p.reports[0].start_timestamp == 99)


async def test_a13_watch_storm(source: ZkLoadSource, store: KazooClient) -> None:
    """1,000 updates in a second do not mean 1,000 pictures, the loop stays responsive, the last word counts."""
    brokers = [f"b{i:02}:8080" for i in range(20)]
    for broker in brokers:
        put(store, broker, modular(broker))
    await source.start()
    before = await until(source, lambda p: len(p.reports) == 20)

    def storm() -> float:
        started = time.monotonic()
        pending = [
            store.set_async(f"{BROKERS}/{broker}", modular(broker, last_update=turn))
            for turn in range(1, 51)
            for broker in brokers
        ]
        for result in pending:
            result.get(timeout=20)
        return time.monotonic() - started

    task = asyncio.create_task(asyncio.to_thread(storm))
    # As the sidecar does at its start: what the tests have imported takes the collector longer than all updates.
    gc.collect()
    gc.freeze()
    # The loop's own CPU time between two beats: how busy the machine is does not matter.
    longest = 0.0
    while not task.done():
        beat = time.thread_time()
        await asyncio.sleep(0.01)
        longest = max(longest, time.thread_time() - beat)
    seconds = await task
    after = await until(source, lambda p: {r.last_update for r in p.reports} == {50})
    assert after.generation - before.generation <= seconds / WINDOW + 3
    assert longest < 0.25


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", Code.EMPTY_REPORT),
        (b"\x00\xff not json", Code.NOT_JSON),
        (b'{"loadReportType":"LocalBrokerData","cpu":', Code.NOT_JSON),
        (b"[1,2,3]", None),
        (b"{}", Code.WRONG_TYPE),
        (b'{"x":"' + b"y" * 2_000_000 + b'"}', Code.REPORT_TOO_LARGE),
    ],
    ids=["empty", "binary", "cut", "array", "nothing", "2 MB"],
)
async def test_unusable_records_cost_only_their_broker(
    source: ZkLoadSource, store: KazooClient, data: bytes, code: Code | None
) -> None:
    """An unusable record excludes that broker with a code, keeps it registered, and leaves the mode alone."""
    put(store, "good:8080", modular("good:8080"))
    put(store, "bad:8080", modular("bad:8080"))
    await source.start()
    await until(source, lambda p: len(p.reports) == 2)
    put(store, "bad:8080", data)
    picture = await until(source, lambda p: p.excluded)
    assert ids(picture) == ["good:8080"]
    (excluded,) = picture.excluded
    assert excluded.broker_id == "bad:8080"
    assert excluded.code in Code
    assert code is None or excluded.code == code
    assert len(excluded.detail) <= 256
    assert picture.mode == "modular"
    assert picture.endpoints["bad:8080"].web_url.rstrip("/") == "http://bad:8080"
    put(store, "bad:8080", modular("bad:8080"))
    assert len((await until(source, lambda p: not p.excluded)).reports) == 2


async def test_a_broker_that_was_never_readable_has_no_address(source: ZkLoadSource, store: KazooClient) -> None:
    """A registered broker whose address is unknown is in the picture, but there is nothing to call."""
    put(store, "bad:8080", b"")
    await source.start()
    picture = await until(source, lambda p: p.excluded)
    assert picture.endpoints["bad:8080"].web_url == ""


async def test_the_mode_follows_the_registered_brokers(source: ZkLoadSource, store: KazooClient) -> None:
    """Modular, mixed during a live change of the load manager's class, extensible at its end, and back."""
    for name in ("a:1", "b:1"):
        put(store, name, modular(name))
    await source.start()
    assert (await until(source, lambda p: len(p.reports) == 2)).mode == "modular"
    put(store, "b:1", extensible("b:1"))
    mixed = await until(source, lambda p: p.mode == "mixed")
    assert (ids(mixed), sorted(mixed.endpoints), mixed.excluded) == (["a:1"], ["a:1", "b:1"], ())
    put(store, "a:1", extensible("a:1"))
    swapped = await until(source, lambda p: p.mode == "extensible")
    assert (swapped.reports, swapped.endpoints["a:1"].load_manager) == ((), EXTENSIBLE)
    for name in ("a:1", "b:1"):
        put(store, name, json.dumps({"loadReportType": "LoadReport", "underLoaded": True}).encode())
    assert (await until(source, lambda p: p.mode == "other")).reports == ()
    for name in ("a:1", "b:1"):
        noop = "org.apache.pulsar.broker.loadbalance.NoopLoadManager"
        put(store, name, modular(name, loadManagerClassName=noop))
    assert (await until(source, lambda p: p.endpoints["a:1"].load_manager == noop)).mode == "other"
    for name in ("a:1", "b:1"):
        put(store, name, modular(name))
    await until(source, lambda p: p.mode == "modular" and len(p.reports) == 2)


async def test_after_a_lost_session_all_is_seen_again(
    source: ZkLoadSource, store: KazooClient, client: ZkClient
) -> None:
    """Watches are set again after session loss; what changed meanwhile and what changes later both show."""
    for name in ("a:1", "b:1", "c:1"):
        put(store, name, modular(name))
    await source.start()
    before = await until(source, lambda p: len(p.reports) == 3)
    for turn in (2, 3):
        await end_session(client)
        put(store, "a:1", modular("a:1", last_update=turn))
        after = await until(source, lambda p, turn=turn: p.reports[0].last_update == turn)
        assert after.reports[2] is before.reports[2], "an unchanged broker is not read again"
        put(store, "b:1", modular("b:1", last_update=turn))
        await until(source, lambda p, turn=turn: p.reports[1].last_update == turn)
    store.delete(f"{BROKERS}/a:1")
    put(store, "d:1", modular("d:1"))
    await until(source, lambda p: ids(p) == ["b:1", "c:1", "d:1"])


async def test_while_suspended_there_is_no_picture(
    source: ZkLoadSource, store: KazooClient, client: ZkClient, zookeeper: Cluster
) -> None:
    """SIGSTOP of ZooKeeper: StoreError that says since when; after SIGCONT the truth without a restart."""
    put(store, "a:1", modular("a:1"))
    await source.start()
    await until(source, lambda p: len(p.reports) == 1)
    try:
        await silence(zookeeper, client)
        with pytest.raises(StoreError, match=r"no connection to ZooKeeper at .* for \d+\.\d s"):
            await source.picture()
        with pytest.raises(StoreError):
            await source.seeds([BUNDLE])
    finally:
        zookeeper.resume("zookeeper")
    await until(source, lambda p: len(p.reports) <= 1)
    await until_connected(client)
    store.ensure_path(BROKERS)
    put(store, "b:1", modular("b:1"))
    await until(source, lambda p: "b:1" in ids(p))


async def test_a_registry_that_appears_later_is_found(
    source: ZkLoadSource, store: KazooClient, client: ZkClient
) -> None:
    """A cluster whose first broker has yet to start is an empty picture, then a full one."""
    store.delete("/loadbalance", recursive=True)
    await source.start()
    assert (await until(source, lambda p: True)).endpoints == {}
    store.ensure_path(BROKERS)
    put(store, "a:1", modular("a:1"))
    await until(source, lambda p: ids(p) == ["a:1"])


async def test_starting_without_a_store_is_no_error(zookeeper: Cluster) -> None:
    """An unreachable store: start returns at once, the picture is a SnapshotError, seeds a StoreError."""
    lost = ZkClient("127.0.0.1:1", "/x", session_seconds=2, call_timeout_seconds=0.5)
    source = ZkLoadSource(lost, batch_window_seconds=WINDOW, max_report_bytes=MAX_BYTES, clock=RealClock())
    started = time.monotonic()
    await source.start()
    with pytest.raises(SnapshotError):
        await source.picture()
    with pytest.raises(StoreError):
        await source.seeds([BUNDLE])
    await source.close()
    await lost.close()
    assert time.monotonic() - started < 2.0


async def test_seeds_come_from_bundle_data_then_quotas(source: ZkLoadSource, store: KazooClient) -> None:
    """Stored averages first, else the resource quota as full history; missing and unreadable are left out."""
    ranges = [f"0x{i:08x}_0x{i + 1:08x}" for i in range(6)]
    names = [f"t/ns/{r}" for r in ranges] + ["other/ns/0x00000000_0xffffffff"]
    term = {
        "maxSamples": 10,
        "numSamples": 4,
        "msgThroughputIn": 1.0,
        "msgThroughputOut": 2.0,
        "msgRateIn": 3.0,
        "msgRateOut": 4.0,
    }
    stored = json.dumps({"shortTermData": term, "longTermData": {**term, "maxSamples": 1000}, "topics": 7})
    quota = json.dumps(
        {"msgRateIn": 30.0, "msgRateOut": 40.0, "bandwidthIn": 10.0, "bandwidthOut": 20.0, "memory": 1.0}
    )
    for root, index, text in (
        (BUNDLE_DATA, 0, stored),
        (RESOURCE_QUOTA, 0, quota),
        (RESOURCE_QUOTA, 1, quota),
        (BUNDLE_DATA, 2, "garbage"),
        (RESOURCE_QUOTA, 2, quota),
        (RESOURCE_QUOTA, 3, ""),
    ):
        store.create(f"{root}/{names[index]}", text.encode(), makepath=True)
    await source.start()
    seeds = await source.seeds([names[4], names[2], names[0], names[1], names[3], names[6], names[0]])
    assert [a.bundle for a in seeds] == [names[2], names[0], names[1]]
    assert seeds[1].short == (3.0, 4.0, 1.0, 2.0)
    assert (seeds[1].short_samples, seeds[1].long_samples, seeds[1].topics) == (4, 4, 7)
    assert seeds[2].long == (30.0, 40.0, 10.0, 20.0)
    assert (seeds[2].short_samples, seeds[2].long_samples) == (10, 1000)
