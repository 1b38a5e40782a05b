"""Reads and the loop that renews the lease: the one never waits for the other."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import structlog
from fastapi import Response
from starlette.types import Message

from bundlekeel.api import ApiServer
from bundlekeel.api.admission import MAX_SENDING_BYTES, Admission
from bundlekeel.api.off_loop import READ_CALLS
from bundlekeel.api.reply import ROWS_A_STEP, reply
from bundlekeel.api.server import Protection
from bundlekeel.leader.cycle import planner
from bundlekeel.leader.cycle.plan_responses import PlanRequest
from bundlekeel.model.errors import ConfigError
from bundlekeel.requests import doctor, doctor_checks, move, unload
from bundlekeel.views.picture import BundleView
from tests.support.security import Tokens, access_for
from tests.support.spied import Spied
from tests.support.world import BROKERS, FakeCluster, FakeSidecar, NoPeers

# As long as a heavy read computes here: a lease of this length would end if the loop waited for it.
LEASE = 1.0


class Heavy:
    """Changes the bundles of a service so that they compute for `LEASE` seconds. `entered`: they compute now."""

    def __init__(self) -> None:
        self.entered, self.computed = threading.Event(), 0

    def __call__(self, rows: list[BundleView]) -> list[BundleView]:
        """Hold a processor, as rows of a large cluster do."""
        self.entered.set()
        until = time.monotonic() + LEASE
        while time.monotonic() < until:
            pass
        self.computed += 1
        return rows


class Ticks:
    """Measures the longest silence of the loop that runs it."""

    longest = 0.0

    async def run(self) -> None:
        """Tick until cancelled."""
        last = time.monotonic()
        while True:
            await asyncio.sleep(0.01)
            now = time.monotonic()
            self.longest, last = max(self.longest, now - last), now


@asynccontextmanager
async def served(server: ApiServer) -> AsyncIterator[httpx.AsyncClient]:
    """A running server and its client."""
    url = await server.start()
    try:
        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=30.0) as client:
            yield client
    finally:
        await server.stop()


async def until(holds: Callable[[], object], what: str) -> None:
    """Wait until it holds."""
    for _ in range(6000):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"never: {what}")


async def until_status(client: httpx.AsyncClient, status: int) -> httpx.Response:
    """Ask for the state until this is the status."""
    for _ in range(1000):
        answer = await client.get("/api/v1/state")
        if answer.status_code == status:
            return answer
        await asyncio.sleep(0.01)
    raise AssertionError(f"never {status}")


class Watched:
    """A function that notes whether it runs on the main loop's thread, and how many of it run at once."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function, self._lock = function, threading.Lock()
        self.calls, self.at_once, self.most, self.on_loop = 0, 0, 0, False

    def __call__(self, *args: Any, **options: Any) -> Any:
        with self._lock:
            self.calls, self.at_once = self.calls + 1, self.at_once + 1
            self.most = max(self.most, self.at_once)
        self.on_loop |= threading.current_thread() is threading.main_thread()
        try:
            time.sleep(0.01)
            return self._function(*args, **options)
        finally:
            with self._lock:
                self.at_once -= 1


@pytest.fixture
async def leader() -> FakeSidecar:
    """A leader after one cycle."""
    fake_sidecar = await FakeSidecar(FakeCluster(), mode="recommend").lead()
    await fake_sidecar.cycle.turn()
    return fake_sidecar


@pytest.fixture
async def sidecar(leader: FakeSidecar) -> AsyncIterator[FakeSidecar]:
    """A leader that serves the API."""
    yield leader
    leader.publishing.cancel()


async def test_s01_a_heavy_read_does_not_silence_the_loop_of_the_lease(service: Spied) -> None:
    """One read computed for seconds on the loop that renews the lease, and each of many clients made it worse."""
    heavy, ticks = Heavy(), Ticks()
    service.results["bundles"] = heavy
    async with served(ApiServer(service, "127.0.0.1", 0, None)) as client:
        ticking = asyncio.create_task(ticks.run())
        answers = await asyncio.gather(*(client.get("/api/v1/bundles") for _ in range(3)))
        ticking.cancel()
    assert [answer.status_code for answer in answers] == [200, 200, 200] and heavy.computed == 3
    assert ticks.longest < LEASE / 2


async def test_s01_probes_are_answered_while_a_response_is_computed(service: Spied) -> None:
    service.results["bundles"] = heavy = Heavy()
    server = ApiServer(service, "127.0.0.1", 0, None, protection=Protection(max_concurrent=1))
    async with served(server) as client:
        read = asyncio.create_task(client.get("/api/v1/bundles"))
        await asyncio.to_thread(heavy.entered.wait, 10)
        answers = [await client.get(path) for path in ("/livez", "/readyz", "/metrics", "/ui/", "/api/v1/state")]
        assert not read.done()
        assert [answer.status_code for answer in answers] == [200, 200, 200, 200, 503]
        assert answers[4].json()["type"].endswith("too-busy") and answers[4].headers["retry-after"] == "1"
        assert (await read).status_code == 200


async def test_s01_reads_are_answered_while_the_main_loop_is_silent(sidecar: FakeSidecar) -> None:
    async with served(sidecar.server(asyncio.get_running_loop())) as client:
        url = str(client.base_url)

        def ask() -> list[int]:
            paths = (
                "livez",
                "readyz",
                "metrics",
                "api/v1/state",
                "api/v1/bundles",
                "api/v1/brokers",
                "api/v1/overview",
            )
            with httpx.Client(base_url=url, trust_env=False) as other:
                return [other.get(path).status_code for path in paths]

        answered: list[list[int]] = []
        asking = threading.Thread(target=lambda: answered.append(ask()))
        asking.start()
        asking.join(20)  # holds the main loop
        assert answered == [[200] * 7]
        await sidecar.service.pause(reason="r", by="ann", seconds=None)
        plan = await client.post("/api/v1/plans", json={})
        assert plan.status_code == 200
        names = [await client.get(f"/api/v1/{path}") for path in ("plans", "operations", "thresholds", "tasks")]
        assert [answer.status_code for answer in names] == [200] * 4
        assert plan.json()["hash"] in names[0].text


async def test_s01_what_a_call_changed_is_published_when_it_is_answered(sidecar: FakeSidecar, tmp_path: Any) -> None:
    """Also where the next publication is half a second away."""
    server = sidecar.server(asyncio.get_running_loop())
    server._socket_path = tmp_path / "keel.sock"
    await server.start()
    transport = httpx.AsyncHTTPTransport(uds=str(server._socket_path))
    async with httpx.AsyncClient(base_url="http://localhost", transport=transport) as client:
        for _ in range(3):
            assert (await client.post("/api/v1/pause", json={"reason": "r"})).status_code == 200
            assert (await client.get("/api/v1/state")).json()["paused"]["reason"] == "r"
            assert (await client.post("/api/v1/resume", json={"reason": "r"})).status_code == 200
            assert (await client.get("/api/v1/state")).json()["paused"] is None
        why = await client.get("/api/v1/bundles/persistent%3A%2F%2Ft%2Fns%2Ftopic-1/why")
        assert why.status_code == 200 and why.json()["kind"] == "topic"
    await server.stop()
    assert [record["status"] for record in sidecar.journal.tail(100, kind="audit")] == [200] * 6


async def test_s01_metrics_are_rendered_once_a_second(sidecar: FakeSidecar) -> None:
    """However many ask."""
    rendered, render = list[str](), sidecar.telemetry.render

    def counted(accept: str) -> tuple[bytes, str]:
        rendered.append(accept)
        return render(accept)

    sidecar.telemetry.render = counted  # type: ignore[method-assign]
    async with served(sidecar.server(asyncio.get_running_loop())) as client:
        answers = await asyncio.gather(*(client.get("/metrics") for _ in range(10)))
    assert {answer.status_code for answer in answers} == {200} and b"bundlekeel_leader 1.0" in answers[0].content
    assert len(rendered) <= 3


async def test_s01_a_client_that_reads_nothing_holds_a_bounded_response(service: Spied) -> None:
    """Responses leave in pieces, and requests are refused while too many bytes wait for their clients."""
    service.results["overview"] = lambda _: "x" * 40 * 1024 * 1024
    server = ApiServer(service, "127.0.0.1", 0, None)
    async with served(server) as client:
        port = client.base_url.port
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(b"GET /api/v1/overview HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b"\r\n")
        answer = await until_status(client, 503)
        assert answer.json()["type"].endswith("too-busy")
        assert (await client.get("/livez")).status_code == 200
        writer.close()
        await until_status(client, 200)


async def narrow_connection(port: int | None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a connection whose receive buffer few responses fill."""
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    peer.connect(("127.0.0.1", port))
    return await asyncio.open_connection(sock=peer, limit=1024)


async def unread_response(port: int | None) -> tuple[asyncio.StreamWriter, int]:
    """Ask for a response of which nothing but the status is read; return its connection and the status."""
    reader, writer = await narrow_connection(port)
    writer.write(b"GET /api/v1/overview HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return writer, int((await reader.readuntil(b"\r\n")).split()[1])


async def test_s01_responses_in_progress_have_a_limit_together(service: Spied) -> None:
    """All that were admitted before the first one was computed were sent: 64 of 8 MiB took 513 MiB."""
    server = ApiServer(service, "127.0.0.1", 0, None)
    size = MAX_SENDING_BYTES * 3 // 8  # two of them are below the limit

    def large(_: object) -> str:
        time.sleep(0.05)  # the others are admitted meanwhile
        return "x" * size

    service.results["overview"] = large
    async with served(server) as client:
        results = await asyncio.gather(*(unread_response(client.base_url.port) for _ in range(8)))
        assert sorted(status for _, status in results) == [200] * 2 + [503] * 6
        for writer, _ in results:
            writer.close()
        await until_status(client, 200)


async def test_s01_what_was_changed_is_answered_whatever_is_being_sent() -> None:
    """A 503 would say that nothing was changed."""
    admission = Admission(access=None, trail=None, most=1)
    admission._sending = MAX_SENDING_BYTES
    sent = list[Message]()

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.request"}

    for changes in (True, False):
        counted = admission._counted({"type": "http"}, receive, send, changes=changes)
        await Response(b"done")({"type": "http"}, receive, counted)
    assert [message["status"] for message in sent[::2]] == [200, 503] and sent[1]["body"] == b"done"


@pytest.mark.parametrize(
    ("path", "length", "requests"), [("overview", 40 << 20, 1), ("overview", 60 << 10, 500), ("nope", 0, 20_000)]
)
async def test_s01_the_connection_of_a_client_that_reads_nothing_is_closed(
    monkeypatch: pytest.MonkeyPatch, service: Spied, path: str, length: int, requests: int
) -> None:
    monkeypatch.setattr("bundlekeel.api.server.READ_SECONDS", 0.2)
    service.results["overview"] = lambda _: "x" * length
    server = ApiServer(service, "127.0.0.1", 0, None)
    with structlog.testing.capture_logs() as logged:
        async with served(server) as client:
            _, writer = await narrow_connection(client.base_url.port)
            writer.write(f"GET /api/v1/{path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() * requests)
            state = server._running[0][0].server_state
            await until(lambda: state.connections, "it is open")
            await until(lambda: not state.connections and not state.tasks, "it is closed, and its request has ended")
            writer.close()
    assert logged == []


async def test_s01_credentials_are_checked_while_a_response_is_computed(service: Spied, tmp_path: Path) -> None:
    """A wrong token is refused at once, and does not wait behind responses."""
    tokens, computing, refused = Tokens(tmp_path), threading.Event(), threading.Event()

    def compute(_: object) -> list[BundleView]:
        computing.set()
        assert refused.wait(30)
        return []

    service.results["bundles"] = compute
    async with served(
        ApiServer(service, "127.0.0.1", 0, None, protection=Protection(access=access_for(tokens)))
    ) as client:
        read = asyncio.create_task(client.get("/api/v1/bundles", headers=tokens.headers("viewer")))
        await asyncio.to_thread(computing.wait, 10)
        assert (await client.get("/api/v1/state", headers={"Authorization": "Bearer wrong"})).status_code == 401
        refused.set()
        assert (await read).status_code == 200


@pytest.mark.parametrize("path", ["bundles", "journal", "verdicts", "channel/bundles", "channel/findings"])
async def test_s01_a_page_has_at_most_a_thousand_rows(http: httpx.AsyncClient, path: str) -> None:
    """More is refused with the field, the value and the most."""
    answer = await http.get(f"/api/v1/{path}?limit=1001")
    assert answer.status_code == 422
    fault = answer.json()
    assert (fault["field"], fault["value"], fault["allowed"]) == ("limit", "1001", "at most 1000")


def test_s01_long_lists_are_encoded_in_steps() -> None:
    rows = [{"a": number, "b": None} for number in range(2 * ROWS_A_STEP + 1)]
    assert bytes(reply(rows).body) == b"[" + b",".join(b'{"a":%d,"b":null}' % n for n in range(len(rows))) + b"]"


@pytest.mark.parametrize("name", ["without_brokers", "finish", "Draft"])
async def test_s01_what_ifs_compute_off_the_loop_of_the_lease_one_at_a_time(
    leader: FakeSidecar, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A what-if without 500 of 1,000 brokers computed for two seconds on that loop, and four of them for ten."""
    watched = Watched(getattr(planner, name))
    monkeypatch.setattr(planner, name, watched)
    request = PlanRequest(remove_brokers=(BROKERS[0],))
    plans = await asyncio.gather(*(leader.service.make_plan(request) for _ in range(4)))
    assert {plan.assumption for plan in plans} == {plans[0].assumption} and plans[0].finished is not None
    if name == "without_brokers":
        await leader.planner.compute(request)
    assert watched.calls >= 4 and not watched.on_loop and watched.most == 1


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (move, "manual_move"),
        (unload, "unload_all"),
        (doctor, "_reporting"),
        (doctor, "_judged"),
        (doctor_checks, "decode_state"),
    ],
)
async def test_s01_what_a_call_computes_of_the_whole_cluster_runs_off_the_loop_of_the_lease(
    leader: FakeSidecar, monkeypatch: pytest.MonkeyPatch, module: Any, name: str
) -> None:
    """With 1,000 brokers of 100 bundles the unload of a namespace computed for 0.6 s, and the doctor for 0.3 s."""
    watched = Watched(getattr(module, name))
    monkeypatch.setattr(module, name, watched)
    await leader.shared_state.save(leader.cycle.cycle_state, {}, epoch=leader.shared_state.current_epoch())
    requests, bundle = leader.service.requests, next(iter(leader.cluster.owners()))
    await requests.unload(bundle)
    await requests.unload_namespace("t/ns")
    await leader.service.doctor()
    assert watched.calls and not watched.on_loop


@pytest.mark.parametrize("by_hash", [False, True])
async def test_s01_the_plan_of_another_sidecar_is_read_off_the_loop_of_the_lease(
    leader: FakeSidecar, monkeypatch: pytest.MonkeyPatch, by_hash: bool
) -> None:
    """A plan with a refusal for each of 100,000 bundles was converted for 0.3 s there."""
    document = msgspec.to_builtins(await leader.service.make_plan(PlanRequest()))
    follower = await FakeSidecar(leader.cluster, "b", mode="recommend").lead()
    follower.leadership.leader = replace(leader.leadership.member, url="http://a")

    async def answer(*_: object) -> Any:
        return document

    peers = type("Peers", (NoPeers,), {"make_plan": staticmethod(answer), "plan": staticmethod(answer)})()
    plans = replace(follower.service._p.plans, peers=peers)
    watched = Watched(msgspec.convert)
    monkeypatch.setattr("bundlekeel.requests.plans.msgspec.convert", watched)
    result = await (plans.find(document["hash"]) if by_hash else plans.make(PlanRequest()))
    assert result.hash == document["hash"] and watched.calls == 1 and not watched.on_loop


async def test_s01_reads_of_a_slow_store_end_and_hold_up_no_plan(
    sidecar: FakeSidecar, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four of them held all places of reads for 120 s: plans, tasks and operations waited as long."""
    monkeypatch.setattr("bundlekeel.api.off_loop.READ_SECONDS", 0.5)
    request = list[str]()

    async def hang(namespace: str) -> list[int]:
        request.append(namespace)
        return await asyncio.Event().wait() or []

    async with served(sidecar.server(asyncio.get_running_loop())) as client:
        monkeypatch.setattr(sidecar.cluster.metadata, "boundaries", hang)
        reads = [asyncio.create_task(client.get("/api/v1/where?name=t/ns")) for _ in range(READ_CALLS)]
        await until(lambda: len(request) == READ_CALLS, "all of them wait")
        assert (await client.post("/api/v1/plans", json={})).status_code == 200
        answers = await asyncio.gather(*reads)
        assert {(answer.status_code, answer.json()["type"]) for answer in answers} == {
            (504, "urn:bundlekeel:problem:timeout")
        }
        assert (await client.get("/api/v1/tasks")).status_code == 200


async def test_s01_answers_about_assignments_are_fewer_with_many_brokers(
    leader: FakeSidecar, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200 bundles at 1,000 brokers were 20 MiB in one response: each answer names every broker in every step."""
    monkeypatch.setattr("bundlekeel.requests.assignments.MOST_CANDIDATES", 2 * len(BROKERS))
    bundles = sorted(leader.cluster.owners())
    assert len(await leader.service.assignments(bundles[:2])) == 2
    with pytest.raises(ConfigError) as error:
        await leader.service.assignments(bundles[:3])
    assert error.value.allowed == "at most 2 bundles at once with 3 brokers"
