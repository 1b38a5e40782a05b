"""Nothing changes a cluster without the gate and a permit: every place that can is known, and each of them is tried.

The first half reads the code: which calls of `ports.commands` there are, with which permit. A new one fails here until
it is known below, with a way that reaches it. The second half goes each way, with the gate shut after the decision, and
with the term lost and won again right before the call: then no command is sent.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

import bundlekeel
from bundlekeel.leader.state.documents import OperatorRequest, Pause
from bundlekeel.model.errors import LeadershipLost
from bundlekeel.ports import commands
from bundlekeel.ports.commands import Permit, UnloadAnswer
from bundlekeel.quotas.rate_commands import QuotaCommands
from tests.support.builders import bundle_name
from tests.support.memory_admin import MemoryAdmin
from tests.support.quota_model import MemoryQuotaAdmin
from tests.support.quota_world import QuotaCluster, QuotaSidecar
from tests.support.world import BROKERS, FakeCluster, FakeSidecar, with_params

ROOT: Final = Path(bundlekeel.__file__).parent
B1, B2, B3 = BROKERS
WHO: Final = {"reason": "r", "by": "ann"}
PORTS: Final = (commands.BrokerCommands, QuotaCommands)
COMMANDS: Final = {name for port in PORTS for name in vars(port) if not name.startswith("_")}
# Only a person's own command, or the failsafe job's, changes the brokers' settings.
PERSONS: Final = {"set_dynamic", "delete_dynamic"}

# Every place that sends a command: (module, function, command) -> the permit it presents.
PLACES: Final = {
    ("leader.execution.move", "unload", "unload"): "self.term.permit",
    ("leader.execution.move", "_claim", "claim"): "permit",
    ("leader.execution.splits", "_call", "split"): "self.term.permit",
    ("quotas.enforcing.rate_keeper", "_own", "topic_rate"): "permit",
    ("quotas.enforcing.rate_keeper", "_write", "set_topic_rate"): "permit",
    ("quotas.enforcing.resource_group_keeper", "_write", "attach"): "permit",
    ("quotas.enforcing.resource_group_keeper", "_write", "set_resource_group"): "permit",
    ("quotas.enforcing.restore", "give_quotas_back", "set_topic_rate"): "by_person",
    ("requests.takeover", "_put", "set_dynamic"): "by_person",
    ("requests.takeover", "_put", "delete_dynamic"): "by_person",
}
# Who makes permits: the term of the leader's executor, quotas (which ask the gate with each), and people's commands.
MAKERS: Final = {("leader.execution.executor", "_permit"), ("quotas.cycle", "_permit"), ("quotas.wiring", "parts_of")}


def _functions() -> Iterator[tuple[str, str, ast.AST]]:
    """Every function outside of ports and pulsar: its module, its name, its syntax tree."""
    for path in sorted(ROOT.rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if module.split(".")[0] in ("ports", "pulsar"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield module, node.name, node


# --- what the code says --------------------------------------------------------------------------------------------


def test_no_command_can_be_sent_without_a_permit() -> None:
    assert len(COMMANDS) == 9
    for port in PORTS:
        for name in COMMANDS & vars(port).keys():
            parameters = inspect.signature(getattr(port, name)).parameters["permit"]
            assert (parameters.kind, parameters.default) == (parameters.KEYWORD_ONLY, parameters.empty), name


def test_every_place_that_sends_a_command_is_known() -> None:
    """With the permit that it presents."""
    result = {}
    for module, name, function in _functions():
        for call in ast.walk(function):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
                permit = next((item.value for item in call.keywords if item.arg == "permit"), None)
                if permit is not None and call.func.attr in COMMANDS:
                    result[module, name, call.func.attr] = ast.unparse(permit)
    assert result == PLACES
    assert {command for _, _, command in result} == COMMANDS


def test_permits_are_made_in_known_places() -> None:
    """A leader's by its executor and by quotas; a person's where people, or the failsafe job, change settings."""
    makers, persons = set(), set()
    for module, name, function in _functions():
        for node in ast.walk(function):
            if isinstance(node, ast.Attribute) and node.attr == "permit" and "leadership" in ast.unparse(node.value):
                makers.add((module, name))
            if isinstance(node, ast.Attribute) and ast.unparse(node) == "self._p.permit":
                makers.add((module, name))
            if isinstance(node, ast.keyword) and ast.unparse(node.value) == "by_person":
                persons.add(module)
            if isinstance(node, ast.Call) and "by_person" in map(ast.unparse, node.args):
                persons.add(module)
    assert makers == MAKERS
    assert persons == {"requests.takeover", "quotas.enforcing.restore"}


# --- what happens --------------------------------------------------------------------------------------------------

Step = Callable[[], Awaitable[None]]


async def _nothing() -> None:
    return None


class _Held:
    """Before the first command is sent, `first` happens; the others wait for it."""

    calls: list[tuple[str, ...]]
    first: Step = staticmethod(_nothing)

    @cached_property
    def lock(self) -> asyncio.Lock:
        """Held while `first` happens."""
        return asyncio.Lock()

    async def hold(self) -> None:
        async with self.lock:
            first, self.first = self.first, _nothing
            await first()

    def sent(self) -> set[str]:
        return {call[0] for call in self.calls} & COMMANDS


class _Brokers(_Held, MemoryAdmin):
    async def unload(self, bundle: str, *, destination: str | None, at: str, permit: Permit) -> UnloadAnswer:
        await self.hold()
        return await super().unload(bundle, destination=destination, at=at, permit=permit)

    async def split(self, bundle: str, *, positions: Any, at: str, permit: Permit) -> UnloadAnswer:
        await self.hold()
        return await super().split(bundle, positions=positions, at=at, permit=permit)


class _Quotas(_Held, MemoryQuotaAdmin):
    async def topic_rate(self, place: Any, *, permit: Permit) -> Any:
        await self.hold()
        return await super().topic_rate(place, permit=permit)

    async def set_resource_group(self, name: str, group: Any, *, permit: Permit) -> None:
        await self.hold()
        await super().set_resource_group(name, group, permit=permit)


class Mover(FakeSidecar):
    """A sidecar whose brokers are held."""

    def reach(self) -> MemoryAdmin:
        self.held: _Held = _Brokers(self.cluster.model)
        return self.held  # type: ignore[return-value]


class Limiter(QuotaSidecar):
    def reach_quotas(self) -> MemoryQuotaAdmin:
        self.held: _Held = _Quotas(self.quota_cluster.model)
        return self.held  # type: ignore[return-value]


Way = tuple[FakeSidecar, Step]


async def by_itself() -> Way:
    """The plan of a cycle."""
    sidecar = await Mover(FakeCluster()).lead()
    return sidecar, sidecar.cycle.turn  # type: ignore[return-value]


async def by_drain() -> Way:
    sidecar = await Mover(FakeCluster({B1: [0.1, 0.1], B2: [0.2], B3: [0.2]})).lead()
    operator_request = OperatorRequest(by="ann", reason="disks", since_ms=sidecar.clock.wall_ms() - 1)
    await sidecar.shared_state.change_desired(
        lambda result: msgspec.structs.replace(result, drains={B1: operator_request})
    )
    return sidecar, sidecar.cycle.turn  # type: ignore[return-value]


async def by_split() -> Way:
    """A split that a cycle decides on."""
    cluster = FakeCluster({B1: [0.58], B2: [0.25], B3: []})
    cluster.put_topics(bundle_name(0), 0.3, 0.28)
    cluster.publish()
    sidecar = await Mover(cluster, params=with_params(split_hit_count=0)).lead()
    return sidecar, sidecar.cycle.turn  # type: ignore[return-value]


async def _ask_permit(verb: str, **more: Any) -> Way:
    cluster = FakeCluster({B1: [0.1, 0.1], B2: [0.2], B3: [0.2]})
    cluster.put_topics(bundle_name(0), 0.05, 0.05)
    sidecar = await Mover(cluster).lead()
    await sidecar.cycle.turn()
    await getattr(sidecar.service.requests, verb)(bundle_name(0), execute=True, **more, **WHO)
    return sidecar, sidecar.executions.serve


async def by_transfer() -> Way:
    """A move that a person asked for."""
    return await _ask_permit("transfer", to=B3)


async def by_split_of_hand() -> Way:
    """A split that a person asked for."""
    return await _ask_permit("split")


async def by_quotas() -> Way:
    """Rates of topics."""
    return await _limiting("policies")


async def by_native_quotas() -> Way:
    """ResourceGroups."""
    return await _limiting("native")


async def _limiting(enforcer: str) -> Way:
    sidecar = Limiter(QuotaCluster(), enforcer=enforcer)
    await sidecar.lead()
    return sidecar, sidecar.turn


WAYS: Final = {
    by_itself: {"unload", "claim"},
    by_drain: {"unload", "claim"},
    by_split: {"split"},
    by_transfer: {"unload", "claim"},
    by_split_of_hand: {"split"},
    by_quotas: {"topic_rate", "set_topic_rate"},
    by_native_quotas: {"set_resource_group", "attach"},
}
every_way = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)


@every_way
async def test_each_way_sends_its_commands_when_it_may(way: Callable[[], Awaitable[Way]]) -> None:
    """Else the tests below would prove nothing."""
    sidecar, go = await way()
    await go()
    assert sidecar.held.sent() == WAYS[way]  # type: ignore[attr-defined]


def test_the_ways_reach_every_command() -> None:
    """But for those of people."""
    assert set().union(*WAYS.values()) == COMMANDS - PERSONS


@every_way
async def test_a_pause_after_the_decision_is_heeded(way: Callable[[], Awaitable[Way]]) -> None:
    sidecar, go = await way()
    other = await FakeSidecar(sidecar.cluster, "other").lead()
    pause = Pause(reason="an incident", by="ann", since_ms=0)

    async def paused() -> None:
        await other.shared_state.change_desired(lambda result: msgspec.structs.replace(result, pause=pause))

    if isinstance(sidecar, Limiter):

        async def announce_pause() -> None:
            await paused()
            await sidecar.shared_state.refresh()

        sidecar.held.first = announce_pause
    else:
        await paused()
    await go()
    assert sidecar.held.sent() == set()  # type: ignore[attr-defined]


@every_way
async def test_a_term_lost_and_won_again_sends_nothing_of_the_old_one(way: Callable[[], Awaitable[Way]]) -> None:
    """The permit is of the epoch in which the change was decided, and asked at the socket."""
    sidecar, go = await way()

    async def lost_and_won() -> None:
        epoch = sidecar.leadership.epoch
        sidecar.clock.offset += 60.0
        await sidecar.leadership.turn()
        assert sidecar.leadership.leading and sidecar.leadership.epoch != epoch

    sidecar.held.first = lost_and_won  # type: ignore[attr-defined]
    with contextlib.suppress(LeadershipLost):
        await go()
    assert sidecar.held.sent() == set()  # type: ignore[attr-defined]
