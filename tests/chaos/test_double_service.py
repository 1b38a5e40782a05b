"""A broker that misses the end of its session serves its topics together with their new owner, and that is reported."""

from __future__ import annotations

import asyncio
import re
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pulsar
import pytest

from dev.cluster import BrokerInfo, Cluster, ClusterSpec, open_cluster
from dev.sidecar import Sidecar, leader_of, running
from dev.traffic.admin import ensure_namespace, place_all_on
from dev.traffic.bundles import bundle_of
from tests.chaos.stage import CAPACITY, PATIENT, change_hands, person, until
from tests.support.http_inbox import Inbox, inbox
from tests.support.loop_thread import LoopThread, reset

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(900)]

NAMESPACE = "chaos/twice"
# A persistent topic ends at the old owner as soon as the new owner opens its ledger (a fence of BookKeeper).
TOPIC = f"non-persistent://{NAMESPACE}/topic"
INTERVAL = 5.0
# The brokers compute their rates once a minute, as in production: otherwise their counters are not read.
SETTINGS = {
    "capacity": CAPACITY,
    "cycle": {"interval": "2s"},
    "counters": {"interval": f"{INTERVAL}s", "quick_interval": "2s"},
    "parameters": PATIENT,
}
# Longer than a broker's session (20 ticks of 500 ms), shorter than a client waits for a broker (30 s).
STOPPED_SECONDS = 18.0
SERVED_SECONDS = 20.0


class StoreProxy(LoopThread):
    """A TCP proxy between one broker and ZooKeeper. While it is frozen, it forwards nothing and closes nothing."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__("proxy of the metadata store")
        self._target = host, port
        self._thawed = asyncio.Event()
        self._thawed.set()
        self._writers: list[asyncio.StreamWriter] = []
        self.port = 0

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._thawed.set()
        self._server.close()
        for writer in self._writers:
            reset(writer)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        store_reader, store_writer = await asyncio.open_connection(*self._target)
        self._writers += [writer, store_writer]
        await asyncio.gather(
            self._forward(reader, store_writer), self._forward(store_reader, writer), return_exceptions=True
        )

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while piece := await reader.read(65536):
                await self._thawed.wait()
                writer.write(piece)
                await writer.drain()
        finally:
            reset(writer)

    def freeze(self, on: bool) -> None:
        """Stop to forward, or forward again."""

        async def switch() -> None:
            (self._thawed.clear if on else self._thawed.set)()

        self._do(switch())


@contextmanager
def publishing(broker: BrokerInfo) -> Iterator[None]:
    """Publish 50 messages per second on the topic, with a client that looks it up at this broker."""
    halt = threading.Event()
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    with closing(pulsar.Client(broker.service_url, operation_timeout_seconds=30, logger=logger)) as client:
        producer = client.create_producer(TOPIC, block_if_queue_full=False)

        def run() -> None:
            while not halt.wait(0.02):
                producer.send_async(b"x" * 100, lambda _result, _id: None)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            halt.set()
            thread.join()


def published(broker: BrokerInfo) -> float:
    """Return the messages of the topic that a broker has counted; 0: it does not serve the topic, or is stopped."""
    try:
        with urllib.request.urlopen(f"{broker.bind_web_url}/metrics/", timeout=10) as answer:
            page = answer.read().decode()
    except OSError:
        return 0.0
    match = re.search(
        rf'^pulsar_in_messages_total\{{[^}}]*topic="{re.escape(TOPIC)}"[^}}]*\}} (\S+)', page, re.MULTILINE
    )
    return float(match[1]) if match else 0.0


def serving(cluster: Cluster) -> list[str]:
    """Return the brokers at which the counters of the topic grow within two seconds, sorted."""
    before = [published(broker) for broker in cluster.brokers]
    time.sleep(2.0)
    return sorted(
        broker.broker_id for broker, old in zip(cluster.brokers, before, strict=True) if 0 < old < published(broker)
    )


@pytest.fixture
def cut() -> Iterator[tuple[Cluster, StoreProxy]]:
    """Three brokers, of which the second one reaches ZooKeeper through a proxy."""
    with ExitStack() as stack:
        cluster = stack.enter_context(open_cluster(ClusterSpec(brokers=3, fast_stats=False)))
        host, port = cluster.zk_hosts.split(":")
        proxy = stack.enter_context(StoreProxy(host, int(port)))
        second = cluster.brokers[1]
        conf = cluster.data_dir / "conf" / f"{second.name}.conf"
        # A sidecar refuses to run if the brokers' configuration stores differ.
        url = re.compile(rf"^(metadataStoreUrl=\w+:){re.escape(cluster.zk_hosts)}", re.MULTILINE)
        conf.write_text(url.sub(rf"\g<1>127.0.0.1:{proxy.port}", conf.read_text()))
        cluster.restart(second.name)
        yield cluster, proxy


def twice(sidecar: Sidecar) -> bool:
    """Whether the leader reports a bundle that two brokers serve."""
    return sidecar.metric("bundles_served_twice") > 0


def receiver(box: Inbox) -> dict[str, object]:
    """Settings of notifications that are sent to the inbox."""
    return {"notify": {"webhooks": [{"name": "inbox", "url": box.url()}]}}


def notified(box: Inbox) -> list[tuple[str, str]]:
    """Severity and reason of each notification."""
    return [(item.body["severity"], item.body["reason"]) for item in box.posted]


def check_report(sidecar: Sidecar, bundle: str, brokers: list[str]) -> None:
    """The journal has one finding with the bundle and both brokers. After the next plan `why` returns its code."""
    records = [item for item in sidecar.records() if item["kind"] == "finding"]
    assert [(item["code"], item["event"], item["bundles"], item["brokers"]) for item in records] == [
        ("ServedTwice", "appeared", [bundle], brokers)
    ]
    path = f"/api/v1/bundles/{bundle}/why"
    until(lambda: [item["code"] for item in sidecar.get(path)["codes"]][:1] == ["ServedTwice"], "its code", within=10)


def test_a_broker_that_misses_the_end_of_its_session(cut: tuple[Cluster, StoreProxy], tmp_path: Path) -> None:
    """SIGSTOP for longer than its session, and it cannot reach ZooKeeper when it continues: it serves its topic for as
    long as that lasts. The bundle is reported and does not move.

    Only with the modular load manager: its ownership is an ephemeral node, which the broker cannot read again. With the
    extensible one, brokers of 4.2.4 dropped the topic 0.1 to 0.3 s after they continued. The ownership channel is a
    topic, whose connections last, so it delivers the new owner. It does even if the stopped broker serves the channel:
    the message waits in its socket. If the channel is in ZooKeeper, a lost session clears all ownership
    (`MetadataStoreTableViewImpl`).
    """
    cluster, proxy = cut
    first, second, _ = cluster.brokers
    bundle = bundle_of(TOPIC, ensure_namespace(first.web_url, NAMESPACE, 4))
    place_all_on(second.broker_id, first.web_url, [TOPIC])
    change_hands("takeover", person(cluster, tmp_path))
    with (
        inbox() as box,
        running(cluster, ["A"], tmp_path, root="twice", **SETTINGS, **receiver(box)) as (sidecar,),
        publishing(second),
    ):
        until(lambda: leader_of([sidecar]), "it leads", within=60)
        until(lambda: sidecar.metric("live_load_brokers", state="live") == 3, "it reads counters", within=120)
        assert not twice(sidecar)
        proxy.freeze(True)
        cluster.pause(second.name)
        time.sleep(STOPPED_SECONDS)
        with publishing(first):
            cluster.resume(second.name)
            brokers = until(lambda: len(both := serving(cluster)) == 2 and both, "two serve the topic", within=30)
            assert second.broker_id in brokers
            since = time.monotonic()
            until(lambda: twice(sidecar), "it is reported", within=2 * INTERVAL + 4)
            print(f"\nreported {time.monotonic() - since:.1f} s after both served it")  # noqa: T201
            check_report(sidecar, bundle, brokers)
            until(lambda: notified(box) == [("critical", "ServedTwice")], "a notification", within=10)
            (other,) = {broker.broker_id for broker in cluster.brokers} - {*brokers}
            move = {"to": other, "execute": True, "reason": "test"}
            answer = sidecar.post(f"/api/v1/bundles/{bundle}/transfer", move)
            assert (answer.status_code, answer.json()["code"]) == (409, "ServedTwice"), answer.text
            while time.monotonic() < since + SERVED_SECONDS:
                assert serving(cluster) == brokers, f"for only {time.monotonic() - since:.0f} s"
            assert twice(sidecar)
            proxy.freeze(False)
            until(lambda: len(serving(cluster)) == 1, "the second broker drops the topic", within=120)
            until(lambda: not twice(sidecar), "the report ends", within=10 * INTERVAL)
            until(lambda: notified(box)[1:] == [("info", "ServedTwice")], "a notification of the end", within=10)
