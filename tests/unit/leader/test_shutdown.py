"""The end of a sidecar: over in time whatever hangs, and no step that fails keeps another one from being done."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog
import yaml

from bundlekeel.leader.runtime import STOP_SECONDS, Background, Runtime
from bundlekeel.model.errors import AdminTimeout, StoreError, WrongCluster
from bundlekeel.simulator.virtual_time import run_virtually
from tests.support.memory_admin import Fault
from tests.support.memory_coordination import MemoryCoordination
from tests.support.virtual_time import LoopClock
from tests.support.world import FakeCluster, FakeSidecar

CHART = Path(__file__).parents[3] / "deploy/helm/bundlekeel/values.yaml"
Step = Callable[[], Awaitable[None]]


class Instead:
    """Another object, of which some methods are `step`; who calls one is noted."""

    def __init__(self, inner: Any, called: list[str], step: Step, *names: str) -> None:
        self._inner, self._called, self._step, self._names = inner, called, step, names

    def __getattr__(self, name: str) -> Any:
        if name not in self._names:
            return getattr(self._inner, name)

        async def instead(*_: object) -> None:
            self._called.append(f"{type(self._inner).__name__}.{name}")
            await self._step()

        return instead


class NotedJournal:
    """A journal whose end is noted."""

    def __init__(self, inner: Any, called: list[str]) -> None:
        self._inner, self._called = inner, called

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def close(self) -> None:
        """Note it."""
        self._called.append("Journal.close")


class Part:
    """A part that runs until it is cancelled."""

    async def run(self) -> None:
        """Wait."""
        await asyncio.Event().wait()

    async def start(self) -> str:
        """Listen nowhere."""
        return "http://nowhere"


class Api(Part):
    """The API."""


class Recorder(Part):
    """History."""


class Notifications(Part):
    """Receivers."""


class Channel(Part):
    """The ownership channel."""


class Stubborn(Part):
    """A task that does not end when it is cancelled once."""

    async def run(self) -> None:
        """Wait on."""
        try:
            await super().run()
        except asyncio.CancelledError:
            await super().run()


def stopped(step: Step) -> tuple[int, float, list[str]]:
    """A sidecar whose every step of stopping is this one: exit code, virtual seconds, and the steps begun."""
    called: list[str] = []

    async def main() -> tuple[int, float, list[str]]:
        sidecar = FakeSidecar(FakeCluster(clock=LoopClock()))
        await sidecar.lead()

        def with_step(inner: Any, *names: str) -> Any:
            return Instead(inner, called, step, *names)

        parts = sidecar.runtime._parts
        cycle = parts.cycle
        cycle.executor, cycle.journal = with_step(cycle.executor, "stop"), NotedJournal(cycle.journal, called)
        closed = (sidecar.admin, sidecar.peers, Part())
        watched = [with_step(part, "close") for part in (Recorder(), Notifications(), Channel())]
        runtime = Runtime(
            replace(
                parts,
                leadership=with_step(parts.leadership, "stop"),
                coordination=with_step(parts.coordination, "close"),
                source=with_step(parts.source, "close"),
                background=[
                    *(Background(f"part {at}", part.run, part.close) for at, part in enumerate(watched)),
                    Background("quotas", Stubborn().run),
                ],
                closers={str(at): with_step(part, "close").close for at, part in enumerate(closed)},
            )
        )
        loop = asyncio.get_running_loop()
        loop.call_later(3.0, runtime.request_stop)
        async with asyncio.timeout(100):
            code = await runtime.run([with_step(Api(), "stop")])
        return code, loop.time() - 3.0, called

    return run_virtually(main())


def test_why_the_store_was_never_reached_is_in_the_log() -> None:
    """Once a minute, as another reason may come."""

    class Away(MemoryCoordination):
        """Never connects."""

        obstacle = "authentication failed"

        async def start(self) -> None:
            """Nothing."""

    class Sidecar(FakeSidecar):
        def connect(self) -> MemoryCoordination:
            return Away(self.cluster.store)

    async def main() -> None:
        runtime = Sidecar(FakeCluster(clock=LoopClock())).runtime
        asyncio.get_running_loop().call_later(70.0, runtime.request_stop)
        await runtime.run([])

    with structlog.testing.capture_logs() as logs:
        run_virtually(main())
    lines = [line for line in logs if line["event"].startswith("the metadata store does not answer")]
    assert [line["error"] for line in lines] == ["authentication failed"] * 2


def test_what_is_reported_during_a_turn_begins_the_next_one() -> None:
    """A turn that moves bundles takes seconds; the reports of that time are looked at as soon as a turn may begin."""
    began: list[float] = []

    async def main() -> None:
        sidecar = FakeSidecar(FakeCluster(clock=LoopClock()), settings={"cycle.interval": 20.0})
        await sidecar.lead()
        await sidecar.cycle.turn()

        async def takes_three_seconds() -> None:
            began.append(asyncio.get_running_loop().time())
            await asyncio.sleep(2.0)
            if len(began) == 2:
                sidecar.observer.fresh.set()
            await asyncio.sleep(1.0)

        cycle = Instead(sidecar.cycle, [], takes_three_seconds, "turn")
        runtime = Runtime(replace(sidecar.runtime._parts, cycle=cycle))  # type: ignore[arg-type]
        asyncio.get_running_loop().call_later(120.0, runtime.request_stop)
        await runtime.run()

    run_virtually(main())
    assert began[2] - began[1] == pytest.approx(4.0)
    assert began[3] - began[2] == pytest.approx(20.0, abs=4.0)


EVERY = {
    "Executor.stop",
    "Api.stop",
    "Leadership.stop",
    "Recorder.close",
    "Notifications.close",
    "Channel.close",
    "ClusterSource.close",
    "MemoryAdmin.close",
    "NoPeers.close",
    "Part.close",
    "MemoryCoordination.close",
    "Journal.close",
}


def test_the_end_takes_twenty_seconds_when_every_step_hangs() -> None:
    """One deadline for all of them, and each has its turn: leadership is given up though moves and the API hang."""

    async def hangs() -> None:
        await asyncio.Event().wait()

    _, seconds, called = stopped(hangs)
    assert seconds <= STOP_SECONDS == 20.0
    assert set(called) == EVERY and len(called) == len(EVERY)
    assert called[:3] == ["Executor.stop", "Api.stop", "Leadership.stop"] and called[-1] == "Journal.close"


def test_a_step_that_fails_keeps_no_other_from_being_done() -> None:
    async def fails() -> None:
        raise StoreError("no answer")

    code, _, called = stopped(fails)
    assert set(called) == EVERY and code == 1


def test_a_signal_sets_the_kernels_own_limit() -> None:
    async def main() -> float:
        sidecar = FakeSidecar(FakeCluster(clock=LoopClock()))
        asyncio.get_running_loop().call_later(1.0, signal.raise_signal, signal.SIGTERM)
        assert await sidecar.runtime.run() == 0
        return signal.setitimer(signal.ITIMER_REAL, 0.0)[0]

    assert STOP_SECONDS - 10 < run_virtually(main()) <= STOP_SECONDS + 1


@pytest.mark.parametrize("answering", [True, False])
def test_another_clusters_name_ends_the_process(answering: bool) -> None:
    """Before anything is done, also where the brokers answer only later; two names would mean two leaders."""

    async def main() -> tuple[str, object]:
        cluster = FakeCluster(clock=LoopClock())
        for static in cluster.model.static.values():
            static["clusterName"] = "east"
        sidecar = FakeSidecar(cluster)
        if not answering:
            silent = [Fault(error=AdminTimeout("no answer"))] * 6
            sidecar.admin.fail("runtime_configuration", *silent, None)
        async with asyncio.timeout(100):
            with pytest.raises(WrongCluster) as caught:
                await sidecar.runtime.run()
        return str(caught.value), cluster.model.unloads

    text, unloads = run_virtually(main())
    assert "'local'" in text and "'east'" in text and not unloads


def test_another_configuration_store_ends_the_process() -> None:
    """Isolation policies are read there: a bundle could go where it is forbidden."""

    async def main() -> tuple[str, object]:
        cluster = FakeCluster(clock=LoopClock())
        for static in cluster.model.static.values():
            static |= {"metadataStoreUrl": "zk:zk1:2181/pulsar", "configurationMetadataStoreUrl": "zk:zk1:2181/config"}
        async with asyncio.timeout(100):
            with pytest.raises(WrongCluster) as caught:
                await FakeSidecar(cluster, settings={"configuration_store": "zk:zk1:2181/else"}).runtime.run()
        return str(caught.value), cluster.model.unloads

    text, unloads = run_virtually(main())
    assert "set configuration_store" in text and "zk:zk1:2181/config" in text and not unloads


def test_the_chart_grants_more_than_the_end_takes() -> None:
    granted = yaml.safe_load(CHART.read_text(encoding="utf-8"))["deployment"]["terminationGracePeriodSeconds"]
    assert STOP_SECONDS < granted <= 2 * STOP_SECONDS
