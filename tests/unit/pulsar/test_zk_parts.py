"""The parts of the ZooKeeper adapter that need no ZooKeeper: records, modes, bounded reads, paths."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from unittest.mock import AsyncMock, MagicMock
from urllib.parse import unquote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bundlekeel.model.codes import Code
from bundlekeel.model.errors import StoreError
from bundlekeel.model.load import BrokerEndpoint
from bundlekeel.model.names import TopicName, parse_topic
from bundlekeel.model.scalable import KEPT_MS
from bundlekeel.pulsar.work import bounded
from bundlekeel.pulsar.zookeeper import scalable as scalable_topics
from bundlekeel.pulsar.zookeeper.broker_records import BrokerRecord, date_records, make_picture, mode_of, read_record
from bundlekeel.pulsar.zookeeper.client import Stat, ZkClient
from bundlekeel.pulsar.zookeeper.coordination import ZkCoordination
from bundlekeel.pulsar.zookeeper.scalable import TOPICS, ZkScalableTopics
from bundlekeel.pulsar.zookeeper.source import ZkLoadSource
from tests.support.builders import report
from tests.support.contracts.coordination import member
from tests.support.memory_source import RealClock


def record(kind: str, broker_id: str = "a:1") -> BrokerRecord:
    """A record of this kind."""
    return BrokerRecord(mzxid=1, kind=kind, endpoint=BrokerEndpoint(broker_id=broker_id, web_url=""))


@pytest.mark.parametrize(
    ("kinds", "mode"),
    [
        ([], "modular"),
        ([""], "modular"),
        (["modular", "modular", ""], "modular"),
        (["extensible", ""], "extensible"),
        (["other"], "other"),
        (["modular", "extensible"], "mixed"),
        (["modular", "other", ""], "mixed"),
    ],
)
def test_mode(kinds: list[str], mode: str) -> None:
    assert mode_of({str(i): record(kind) for i, kind in enumerate(kinds)}) == mode


def test_pictures_are_sorted() -> None:
    """Reports, exclusions and endpoints come in the order of broker ids, however they arrived."""
    records = {name: read_record(name, b"", 1, max_bytes=10, last=None) for name in ("c:1", "a:1", "b:1")}
    picture = make_picture(records, generation=3)
    assert [e.broker_id for e in picture.excluded] == list(picture.endpoints) == ["a:1", "b:1", "c:1"]


@given(st.binary(max_size=200))
def test_any_bytes_make_a_record(data: bytes) -> None:
    """Whatever a znode holds, it becomes a record: never an exception."""
    result = read_record("a:1", data, 5, max_bytes=100, last=None)
    assert result.mzxid == 5
    assert result.endpoint.broker_id == "a:1"
    if len(data) > 100:
        assert result.excluded is not None
        assert result.excluded.code == Code.REPORT_TOO_LARGE


async def test_bounded_keeps_order_and_limit() -> None:
    """Results come in the order of the jobs; never more than the limit run at once."""
    running = peak = 0

    async def job(number: int) -> int:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await asyncio.sleep(0.001 * (number % 3))
        running -= 1
        return number

    def make(number: int) -> object:
        return lambda: job(number)

    assert await bounded([make(i) for i in range(50)], limit=7) == list(range(50))  # type: ignore[misc]
    assert peak == 7
    assert await bounded([]) == []


async def test_bounded_stops_at_the_first_failure() -> None:
    """After a failure no further job starts, and the failure is raised."""
    started = []

    async def job(number: int) -> int:
        started.append(number)
        await asyncio.sleep(0)
        if number == 3:
            raise StoreError("three")
        return number

    def make(number: int) -> object:
        return lambda: job(number)

    with pytest.raises(StoreError, match="three"):
        await bounded([make(i) for i in range(100)], limit=4)  # type: ignore[misc]
    assert len(started) < 12


@given(st.text(min_size=1).filter(lambda text: not any("\ud800" <= c <= "\udfff" for c in text)))
def test_encoded_names_are_javas(text: str) -> None:
    """Only what java.net.URLEncoder leaves alone stays; decoding gives the name back."""
    encoded = TopicName(domain="persistent", namespace="t/n", local=text).encoded
    assert unquote_plus(encoded) == text
    assert all(c.isascii() and (c.isalnum() or c in ".-*_+%") for c in encoded)


async def test_a_path_that_is_not_sent_takes_no_slot() -> None:
    """kazoo refuses `..` by a ValueError before anything leaves: a StoreError here, and nothing seems to be under way,
    which would have the connection cut as silent later."""
    client = ZkClient("127.0.0.1:1", "", session_seconds=10.0, call_timeout_seconds=1.0)
    client._kazoo._live.set()  # as if connected: nothing is sent all the same
    for path in ("/admin/local-policies/../..", "/."):
        with pytest.raises(StoreError, match="relative paths"):
            await client.get(path)
    assert client._in_flight == 0


# --- whose clock -----------------------------------------------------------------------------------------


def reported(broker_id: str, *, by_broker: int, by_store: int, received: int, before: int = 0) -> BrokerRecord:
    """A record with a report: when it was written by the clocks of its broker and the store, and when received here."""
    broker_report = report(broker_id, {}, last_update=by_broker, start_timestamp=by_broker - 60_000)
    endpoint = BrokerEndpoint(broker_id=broker_id, web_url="", start_timestamp=broker_report.start_timestamp)
    lag = received - by_store
    return BrokerRecord(
        mzxid=1,
        kind="modular",
        endpoint=endpoint,
        report=broker_report,
        mtime_ms=by_store,
        lag_ms=lag,
        before_ms=before,
    )


@pytest.mark.parametrize("broker_ahead", [0, 1_800_000, -1_800_000, 120_000])
@pytest.mark.parametrize("store_ahead", [0, 3_600_000, -3_600_000])
def test_n_f_reports_are_dated_by_the_store(broker_ahead: int, store_ahead: int) -> None:
    """Rule: neither a broker's clock nor the store's changes when a report counts as written."""
    now = 1_764_000_000_000
    written = {"a:1": now - 600_000, "b:1": now}
    result = date_records(
        {
            name: reported(name, by_broker=at + broker_ahead, by_store=at + store_ahead, received=now)
            for name, at in written.items()
        }
    )
    picture = make_picture(result, generation=1)
    assert {item.broker_id: item.updated_ms for item in picture.reports} == written
    assert {item.broker_id: item.started_ms for item in picture.reports} == {
        name: at - 60_000 for name, at in written.items()
    }
    assert {item.clock_ahead_ms for item in picture.reports} == {broker_ahead}
    assert all(item.start_timestamp == result[item.broker_id].endpoint.start_timestamp for item in picture.reports)


def test_n_f_a_report_keeps_its_time_and_is_later_than_the_one_before() -> None:
    """Also when another server of the store leads, whose clock is behind."""
    now = 1_764_000_000_000
    first = date_records({"a:1": reported("a:1", by_broker=now, by_store=now, received=now)})
    news = reported("b:1", by_broker=now, by_store=now + 60_000, received=now + 1_000)
    both = date_records({**first, "b:1": news})
    assert both["a:1"] == first["a:1"]
    assert both["b:1"].written_ms == now + 1_000
    behind = reported("a:1", by_broker=now, by_store=now - 900_000, received=now + 9_000, before=both["a:1"].written_ms)
    assert date_records({**both, "a:1": behind})["a:1"].written_ms == now + 1


@pytest.mark.parametrize("name", ["9" * 5_000, "9" * 20, "\u0663", "007", "-1", "x"])
async def test_s05_a_foreign_node_below_seats_is_ignored(name: str) -> None:
    client = MagicMock(children=AsyncMock(return_value=[name, "0"]))
    client.get = AsyncMock(return_value=(b'{"id":"a"}', MagicMock(ephemeral_owner=7)))
    client.exists = client.sync = client.create = AsyncMock()
    client.session_id = 8
    coordination = ZkCoordination(client, root="/bundlekeel/c", clock=MagicMock())
    claimed = await coordination.take_seat(member("b"), seats=3)
    assert claimed is not None and claimed.seat == 1
    assert {call.args[0] for call in client.get.await_args_list} == {"/bundlekeel/c/seats/0"}


# --- surviving mutants of the audit of issue S ------------------------------------------------------------


@pytest.mark.parametrize(("mzxid", "gets"), [(5, 1), (4, 2), (6, 2), (None, 2)])
async def test_s_after_a_lost_connection_only_changed_reports_are_read(mzxid: int | None, gets: int) -> None:
    """Also one with an older transaction: the store may have been restored from a backup. A missing node is dropped."""

    def stat(written: int) -> MagicMock:
        return MagicMock(mzxid=written, mtime_ms=0)

    client = MagicMock(children=AsyncMock(return_value=["a:1"]), get=AsyncMock(return_value=(b"", stat(5))))
    source = ZkLoadSource(client, batch_window_seconds=0, max_report_bytes=10, clock=RealClock())
    assert await source._refresh()
    source._note_all()
    client.exists = AsyncMock(return_value=None if mzxid is None else stat(mzxid))
    client.get.return_value = None if mzxid is None else (b"", stat(mzxid))
    assert await source._refresh()
    assert client.get.await_count == gets
    assert {name: value.mzxid for name, value in source._records.items()} == ({"a:1": mzxid} if mzxid else {})


class LaggingClient(ZkClient):
    """A client of a server that has the newest data only after a `sync`."""

    data = b"old"

    async def sync(self, path: str) -> None:
        self.data = b"new"

    async def get(self, path: str, watch: object = None) -> tuple[bytes, Stat] | None:
        return (self.data, MagicMock(version=3)) if path == "/bundlekeel/c/state/ledger" else None


async def test_s_shared_state_is_read_after_a_sync() -> None:
    """A follower of ZooKeeper that lags must not give a new leader the ledger of the time before."""
    client = LaggingClient("127.0.0.1:1", "", session_seconds=10.0, call_timeout_seconds=1.0)
    coordination = await ZkCoordination(client, root="/bundlekeel/c", clock=RealClock()).read("state/ledger")
    assert coordination is not None and (coordination.path, coordination.data, coordination.version) == (
        "state/ledger",
        b"new",
        3,
    )


async def test_scalable_topics_are_seen_during_and_after_an_interrupted_first_read() -> None:
    """A caller that comes meanwhile waits for a response, too. A cancelled read stores nothing."""
    client, response = MagicMock(connected=True, get=AsyncMock(return_value=(b"{}", None))), asyncio.Event()

    async def read(path: str, watch: object = None) -> object:
        await response.wait()
        names = {TOPICS: ["t"], f"{TOPICS}/t/ns": ["orders"], f"{TOPICS}/t": ["ns"]}
        return names.get(path, [])

    client.exists = client.children = read
    scalable = ZkScalableTopics(client)
    first, second = (asyncio.create_task(scalable.names("t/ns")) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    assert not second.done()
    response.set()
    assert [*map(str, await second)] == [*map(str, await scalable.names("t/ns"))] == ["topic://t/ns/orders"]


LAYOUT = b"""{"segments":{"0":{"hashRange":{"start":0,"end":32767},"state":"%s","sealedAtMs":%d},
 "1":{"hashRange":{"start":32768,"end":65535}}%s}}"""
CHILDREN = b""","2":{"hashRange":{"start":0,"end":16383},"parentIds":[0],"createdAtMs":9001},
 "3":{"hashRange":{"start":16384,"end":32767},"parentIds":[0],"createdAtMs":9001}"""


class LayoutStore:
    """A store with scalable topics in t/ns, which counts the reads of their nodes."""

    def __init__(self, topics: int = 1) -> None:
        names = [f"hot{number}" for number in range(topics)]
        self.listings = {TOPICS: ["t"], f"{TOPICS}/t": ["ns"], f"{TOPICS}/t/ns": names}
        self.layouts = {f"{TOPICS}/t/ns/{name}": LAYOUT % (b"ACTIVE", 0, b"") for name in names}
        self.watches: dict[str, Callable[[], None]] = {}
        self.reads = 0
        self.client = MagicMock(connected=True, get=self.get, children=self.children)

    async def get(self, path: str, watch: Callable[[], None]) -> tuple[bytes, None]:
        self.reads, self.watches[path] = self.reads + 1, watch
        return self.layouts[path], None

    async def children(self, path: str, watch: object = None) -> list[str]:
        self.reads += 1
        return self.listings[path]

    def change(self, path: str, layout: bytes) -> None:
        self.layouts[path] = layout
        self.watches.pop(path)()


async def test_names_of_scalable_topics_are_read_once() -> None:
    """The bundles of a namespace are asked for one after the other, one per move."""
    store = LayoutStore(topics=3)
    scalable = ZkScalableTopics(store.client)
    names = sorted(map(str, await scalable.names("t/ns")))
    assert names[:2] == ["segment://t/ns/hot0/0000-7fff-0", "segment://t/ns/hot0/8000-ffff-1"] and len(names) == 9
    assert store.reads == 5
    assert sorted(map(str, await scalable.names("t/ns"))) == names and store.reads == 5
    store.change(f"{TOPICS}/t/ns/hot1", LAYOUT % (b"SEALED", 9000, CHILDREN))
    assert len(await scalable.names("t/ns")) == 11 and store.reads == 6


async def test_the_segments_of_a_topic_have_ledgers_or_are_in_its_layout() -> None:
    """Pulsar removes a sealed segment from the layout later. The first segment of a migrated topic keeps its name."""
    store = LayoutStore()
    name = b'"legacyTopicName":"persistent://t/ns/hot0","state"'
    store.layouts[f"{TOPICS}/t/ns/hot0"] = (LAYOUT % (b"ACTIVE", 0, b"")).replace(b'"state"', name)
    store.listings["/managed-ledgers/t/ns/segment/hot0"] = ["0000-7fff-7", "8000-ffff-1", "other"]
    found = await ZkScalableTopics(store.client).segments(parse_topic("topic://t/ns/hot0"))
    assert sorted(map(str, found)) == [
        "persistent://t/ns/hot0",
        "segment://t/ns/hot0/0000-7fff-7",
        "segment://t/ns/hot0/8000-ffff-1",
    ]


async def test_few_layouts_of_a_namespace_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """All topics are named, because that costs one read; segments only of the first ones. The cache stays small."""
    monkeypatch.setattr(scalable_topics, "MOST_LAYOUTS", 2)
    store = LayoutStore(topics=5)
    scalable = ZkScalableTopics(store.client)
    assert len(await scalable.names("t/ns")) == 5 + 2 * 2 and store.reads == 4
    for names in (["hot2", "hot3"], ["hot4", "hot0"]):
        store.listings[f"{TOPICS}/t/ns"] = names
        scalable._nodes._children.clear()
        await scalable.names("t/ns")
    assert len(scalable._layouts) == len(scalable._nodes) == 2


@pytest.mark.parametrize("seal_read", [True, False])
async def test_a_removed_segment_is_still_a_change(seal_read: bool) -> None:
    """Pulsar removes a sealed segment within a minute, before or after a cycle reads its seal. Its broker lost load."""
    store = LayoutStore()
    path, scalable = f"{TOPICS}/t/ns/hot0", ZkScalableTopics(store.client)
    await scalable.layouts()
    if seal_read:
        store.change(path, LAYOUT % (b"SEALED", 9000, CHILDREN))
        assert {item.number: item.changed_ms for item in await scalable.layouts()} == {0: 9000, 1: 0, 2: 9001, 3: 9001}
    removed = b'{"segments":{' + CHILDREN[1:] + b"}}"
    store.change(path, removed)
    now = {(item.name, item.active): item.changed_ms for item in await scalable.layouts()}
    assert now["segment://t/ns/hot0/0000-7fff-0", False] == (9000 if seal_read else 9001)
    assert "segment://t/ns/hot0/0000-7fff-0" not in map(str, await scalable.names("t/ns"))
    store.change(path, removed.replace(b"9001", b"%d" % (9001 + KEPT_MS)))
    assert sorted(item.number for item in await scalable.layouts()) == [2, 3]


@pytest.mark.parametrize(("silent_seconds", "cut"), [(0.0, False), (4.9, False), (5.0, True), (9.0, True)])
def test_s_a_connection_is_cut_after_half_a_session_of_silence(silent_seconds: float, cut: bool) -> None:
    ours, servers = socket.socketpair()
    client = ZkClient("127.0.0.1:1", "", session_seconds=10.0, call_timeout_seconds=1.0)
    client._negotiated_ms, client._silent_since = 10_000, 1_000.0
    client._loop = MagicMock(time=lambda: 1_000.0 + silent_seconds)
    client._kazoo._connection._socket = ours
    servers.setblocking(False)
    with ours, servers:
        client._cut_if_silent()
        try:
            assert (servers.recv(1) == b"") is cut
        except BlockingIOError:
            assert not cut
