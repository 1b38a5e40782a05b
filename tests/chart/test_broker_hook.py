"""The hook that runs in the broker's container, as a process of its own, against the real API on a unix socket."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from bundlekeel.api import ApiServer
from bundlekeel.model.codes import explain
from bundlekeel.model.errors import Conflict, Forbidden, SnapshotError
from bundlekeel.model.members import Member
from dev.chart import CHART
from tests.support.shop import BROKERS, Shop
from tests.support.spied import Spied

Connected = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
HOOK = CHART / "files" / "broker_hook.py"
REASON = "the broker's container stops (preStop)"


class Stage:
    """The API of a sidecar, which may have another address of its leader."""

    def __init__(self, folder: Path, shop: Shop | None = None) -> None:
        self.socket = folder / "bundlekeel.sock"
        self.shop = shop or Shop()
        self.service = Spied(self.shop.service)
        self.server = ApiServer(cast(Any, self.service), "127.0.0.1", 0, self.socket)

    @property
    def drains(self) -> dict[str, str]:
        """Return the reasons of the drains, by broker."""
        return {broker: request.reason for broker, request in self.shop.shared_state.desired.drains.items()}

    def requests_of(self, verb: str) -> list[str]:
        """Return the brokers that this was requested for."""
        return [arguments["broker"] for arguments in self.service.asked(f"requests.{verb}")]

    async def drain(self, reason: str = REASON) -> None:
        """Drain the second broker."""
        await self.shop.service.requests.drain(BROKERS[1], dry_run=False, reason=reason, by="hook")

    def get_stuck(self, **changes: Any) -> None:
        """Let each drain have two bundles left, however long it takes."""
        self.service.results["requests.operations"] = lambda view: replace(
            view, drains=[replace(row, state="draining", left=2) for row in view.drains], **changes
        )

    @asynccontextmanager
    async def balancing(self) -> AsyncIterator[None]:
        """Let the leader run cycles meanwhile."""

        async def run() -> None:
            while True:
                await self.shop.turns()
                await asyncio.sleep(0.05)

        running = asyncio.create_task(run())
        yield
        running.cancel()

    async def run(self, action: str, broker: str = BROKERS[1], **environment: str) -> str:
        """Run the hook; what it says. It never fails."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            str(HOOK),
            action,
            env={
                "PATH": os.environ["PATH"],
                "BUNDLEKEEL_SOCKET": str(self.socket),
                "BUNDLEKEEL_BROKER": broker,
                "BUNDLEKEEL_WITHIN": "20",
                **environment,
            },
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        _, errors = await process.communicate()
        assert process.returncode == 0
        return errors.decode()


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    value = Stage(tmp_path)
    await value.shop.open()
    await value.server.start()
    yield value
    await value.server.stop()


async def test_drains_and_waits_until_the_broker_is_empty(stage: Stage) -> None:
    """The hook sends one request, with a reason that differs from the reasons of operators."""
    async with stage.balancing():
        output = await stage.run("drain")
    assert "empty, 0 left, 3 moved" in output
    assert stage.drains == {BROKERS[1]: REASON}


async def test_finds_its_broker_by_the_pods_name(stage: Stage) -> None:
    """Whatever address brokers advertise: its first label is the pod's name, while it runs and while it is drained."""
    pod = BROKERS[1].split(".")[0]
    async with stage.balancing():
        assert f"{BROKERS[1]} empty" in await stage.run("drain", "", HOSTNAME=pod)
    assert stage.drains == {BROKERS[1]: REASON}
    assert "takes bundles again" in await stage.run("back", "", HOSTNAME=pod)
    assert stage.requests_of("uncordon") == [BROKERS[1]] and stage.drains == {}


@pytest.mark.parametrize("within", ["0.5", "0"])
async def test_gives_up_in_time(stage: Stage, within: str) -> None:
    """The kubelet would kill the broker anyway; the log says what was left, even when asking alone took too long."""
    stage.get_stuck()
    assert re.search(r"out of time, \d+ left", await stage.run("drain", BUNDLEKEEL_WITHIN=within))


async def test_the_number_of_bundles_is_unknown_before_the_first_cycle(stage: Stage) -> None:
    output = await stage.run("drain", BUNDLEKEEL_WITHIN="0")
    assert output.endswith("drain: out of time, an unknown number of bundles left\n")


async def test_what_is_held_lets_the_broker_stop(stage: Stage) -> None:
    """Nothing moves during a pause, without a takeover and after the failsafe until an operator ends that state. The
    hook does not wait for it.
    """
    stage.get_stuck(held="PutAside", held_explanation=explain("PutAside"))
    output = await stage.run("drain", BUNDLEKEEL_HELD_SECONDS="0.1")
    assert re.search(r"nothing is moved now \(PutAside: .*bundlekeel takeover.*\), \d+ left", output)


async def test_a_short_block_does_not_end_the_wait(stage: Stage) -> None:
    """A single high reading of the other brokers blocks all bundles for one cycle."""
    polls = itertools.count()
    stage.service.results["requests.operations"] = lambda view: replace(
        view, drains=[replace(row, state="blocked", left=2) if next(polls) < 2 else row for row in view.drains]
    )
    async with stage.balancing():
        assert "empty, 0 left" in await stage.run("drain")


async def test_a_lasting_block_lets_the_broker_stop(stage: Stage) -> None:
    stage.service.results["requests.operations"] = lambda view: replace(
        view, drains=[replace(row, state="blocked", left=2) for row in view.drains]
    )
    assert "blocked, 2 left, 0 moved" in await stage.run("drain", BUNDLEKEEL_HELD_SECONDS="0.1")


@pytest.mark.parametrize(
    "refusal",
    [
        Forbidden("the mode is recommend"),
        Conflict("no other broker could take the bundles", difference=[]),
        SnapshotError("the cluster has not been read yet"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_a_refusal_lets_the_broker_stop_at_once(stage: Stage, refusal: Exception) -> None:
    """Mode recommend, the last broker, no seat and no token: it stops as it would have without us."""
    stage.service.fail["requests.drain"] = refusal
    assert f"given up: {403 if isinstance(refusal, Forbidden) else ''}" in await stage.run("drain")
    assert stage.drains == {}


async def test_without_a_sidecar_the_broker_stops_at_once(tmp_path: Path) -> None:
    """No socket is no reason to wait."""
    absent = Stage(tmp_path)
    assert "given up" in await absent.run("drain")


async def test_back_ends_its_own_drain_and_warms(stage: Stage) -> None:
    """The broker takes bundles again, gently."""
    await stage.drain()
    assert "warming" in await stage.run("back", BUNDLEKEEL_WARM="true")
    assert (stage.requests_of("uncordon"), stage.requests_of("warm")) == ([BROKERS[1]], [BROKERS[1]])


async def test_back_leaves_a_persons_drain_alone(stage: Stage) -> None:
    """Whoever drained it for new disks did not mean until the next restart."""
    await stage.drain("new disks")
    assert "nothing of ours to end" in await stage.run("back", BUNDLEKEEL_WARM="true")
    assert (stage.requests_of("uncordon"), stage.requests_of("warm")) == ([], [])


async def test_back_after_a_first_start_does_nothing(stage: Stage) -> None:
    """No drain, nothing to end, nothing in the journal."""
    assert "nothing of ours to end" in await stage.run("back", BUNDLEKEEL_WARM="true")
    assert stage.requests_of("warm") == []


async def drained_by(leader: Connected, bench: Stage, folder: Path, **environment: str) -> str:
    """A drain asked of a sidecar without a seat, whose leader answers in the clear; what the hook says."""
    bench.service.fail["requests.drain"] = SnapshotError("the cluster has not been read yet")
    (folder / "token").write_text("secret-token\n", encoding="utf-8")
    async with await asyncio.start_server(leader, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        member = Member(id="pod-b", url=url, seat=0, epoch=1)
        bench.service.results["state"] = lambda state: replace(state, leader=member)
        await bench.server.start()
        try:
            return await bench.run("drain", BUNDLEKEEL_TOKEN_FILE=str(folder / "token"), **environment)
        finally:
            await bench.server.stop()


async def test_h19_with_tls_on_a_leader_in_the_clear_gets_no_token(tmp_path: Path) -> None:
    """Nothing is sent to it, and the broker stops as it would have without us."""
    reached: list[str] = []

    async def leader(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.append("somebody connected")
        writer.close()

    output = await drained_by(leader, Stage(tmp_path), tmp_path, BUNDLEKEEL_TLS_CA=str(tmp_path / "ca.crt"))
    assert "not encrypted" in output and "given up" in output
    assert reached == []


async def test_without_a_seat_it_asks_the_leader(stage: Stage, tmp_path: Path) -> None:
    """503 here, so the leader's port with the token; its answer counts."""
    (tmp_path / "bench").mkdir()
    bench = Stage(tmp_path / "bench", stage.shop)
    requests: list[str] = []

    async def leader(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        requests.append(head)
        await stage.drain()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
        await writer.drain()
        writer.close()

    async with stage.balancing():
        assert "empty" in await drained_by(leader, bench, tmp_path)
    assert requests[0].startswith(f"POST /api/v1/brokers/{BROKERS[1].replace(':', '%3A')}/drain")
    assert "Authorization: Bearer secret-token" in requests[0]
