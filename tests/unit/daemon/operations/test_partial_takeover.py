"""A takeover of named namespaces: the brokers go on shedding the others, and nothing of ours touches those."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.errors import Conflict
from bundlekeel.core.model.parameters import Parameters
from bundlekeel.daemon.operations.takeover import SHEDDING, TakeoverContext, handback, read_record, takeover
from bundlekeel.daemon.state import takeover_record as canary
from bundlekeel.daemon.state.takeover_record import EXCLUDED, TakeoverEnd, TakeoverRecord, decode_takeover, name_set
from tests.support.memory_admin import MemoryAdmin
from tests.support.memory_coordination import MemoryCoordination
from tests.support.world import BROKERS, FakeCluster, FakeSidecar

NAMES = ("t/ns",)


async def desk_of(cluster: FakeCluster, release: str = "4.2") -> TakeoverContext:
    """A person's desk over the cluster; brokers before 4.2 do not have the setting."""
    for broker in BROKERS:
        if release == "4.2":
            cluster.model.static[broker].setdefault(EXCLUDED, "[]")
    admin, coordination = MemoryAdmin(cluster.model), MemoryCoordination(cluster.store)
    admin.set_endpoints(cluster.model.endpoints())
    await coordination.start()
    return TakeoverContext(
        admin=admin,
        commands=admin,
        coordination=coordination,
        endpoints=cluster.model.endpoints(),
        clock=cluster.clock,
        verify_seconds=0.0,
    )


@pytest.fixture
def cluster() -> FakeCluster:
    """Brokers that shed by their file, without overrides."""
    made = FakeCluster(shedding=True)
    made.model.dynamic.clear()
    return made


@pytest.mark.parametrize("before", [None, "x/y", ""], ids=["absent", "other", "empty"])
async def test_round_trip(cluster: FakeCluster, before: str | None) -> None:
    """The brokers leave the named ones alone, and what they left alone before; handback restores exactly."""
    if before is not None:
        cluster.model.dynamic[EXCLUDED] = before
    original = dict(cluster.model.dynamic)
    context = await desk_of(cluster)
    taken = await takeover(context, split=False, reason="try it", by="ann", namespaces=NAMES)
    assert taken.complete and "t/ns are taken over" in taken.warnings[0]
    assert SHEDDING not in cluster.model.dynamic
    assert name_set(cluster.model.dynamic[EXCLUDED]) == {"t/ns"} | ({"x/y"} if before == "x/y" else set())
    found = await read_record(context.coordination)
    assert found is not None and found[0].namespaces == NAMES
    back = await handback(context, reason="enough", by="bob")
    assert back is not None and back.complete
    assert cluster.model.dynamic == original
    document = await context.coordination.read("takeover")
    assert document is not None
    ended = decode_takeover(document.data).ended
    assert ended is not None and (ended.by, ended.reason, ended.deadman) == ("bob", "enough", False)


async def test_what_the_brokers_file_excludes_stays_excluded(cluster: FakeCluster) -> None:
    """An override takes the place of the file's value, so it has to hold that too."""
    cluster.model.static[BROKERS[1]][EXCLUDED] = "[a/b, c/d]"
    context = await desk_of(cluster)
    await takeover(context, split=False, reason="r", by="ann", namespaces=NAMES)
    assert name_set(cluster.model.dynamic[EXCLUDED]) == {"a/b", "c/d", "t/ns"}
    back = await handback(context)
    assert back is not None and back.complete and cluster.model.dynamic == {}


async def test_more_namespaces_then_everything(cluster: FakeCluster) -> None:
    """The canary grows, becomes a whole takeover, and all of it is undone at once."""
    context = await desk_of(cluster)
    await takeover(context, split=False, reason="r", by="ann", namespaces=NAMES)
    await takeover(context, split=False, reason="more", by="bob", namespaces=("t/other",))
    found = await read_record(context.coordination)
    assert found is not None and found[0].namespaces == ("t/ns", "t/other") and found[0].by == "ann"
    assert (await takeover(context, split=False, reason="all", by="bob")).complete
    found = await read_record(context.coordination)
    assert found is not None and found[0].namespaces == ()
    with pytest.raises(Conflict, match="whole cluster"):
        await takeover(context, split=False, reason="less", by="bob", namespaces=NAMES)
    back = await handback(context)
    assert back is not None and back.complete and cluster.model.dynamic == {}


async def test_older_brokers_are_refused_before_anything_changes(cluster: FakeCluster) -> None:
    """Before 4.2 nobody leaves a namespace alone."""
    context = await desk_of(cluster, "4.0")
    with pytest.raises(Conflict, match="Pulsar 4"):
        await takeover(context, split=False, reason="r", by="ann", namespaces=NAMES)
    assert cluster.model.dynamic == {} and await read_record(context.coordination) is None


async def test_acts_on_the_named_ones_while_the_brokers_shed(cluster: FakeCluster) -> None:
    """Without the canary nothing moves; with it, bundles of the namespace do."""
    context = await desk_of(cluster)
    sidecar = await FakeSidecar(cluster).lead()
    held = await sidecar.cycle.turn()
    assert held.obstacle is not None and held.obstacle.code is Code.BROKERS_SHED_THEMSELVES
    await takeover(context, split=False, reason="r", by="ann", namespaces=NAMES)
    await sidecar.shared_state.refresh()
    assert (await sidecar.cycle.turn()).outcomes


async def test_nothing_of_other_namespaces_is_planned_or_begun(cluster: FakeCluster) -> None:
    """The plan leaves them alone, and so does the hand, whoever asks."""
    context = await desk_of(cluster)
    await takeover(context, split=False, reason="r", by="ann", namespaces=("t/other",))
    sidecar = await FakeSidecar(cluster).lead()
    report = await sidecar.cycle.turn()
    assert report.obstacle is None and report.plan is not None and not report.plan.moves
    refusal = await sidecar.executor._not_now(next(iter(cluster.owners())))
    assert refusal is not None and refusal.code is Code.BROKERS_SHED_THEMSELVES
    assert not cluster.model.unloads


@pytest.mark.parametrize(
    "spoil",
    [
        lambda model: model.stubborn.add(BROKERS[2]),
        lambda model: model.dynamic.update({EXCLUDED: "x/y"}),
    ],
    ids=["one broker does not know", "somebody changed it"],
)
async def test_one_broker_that_sheds_them_stops_us(cluster: FakeCluster, spoil: Callable[[object], None]) -> None:
    """Proof is what each broker runs with, read again and again."""
    context = await desk_of(cluster)
    await takeover(context, split=False, reason="r", by="ann", namespaces=NAMES)
    spoil(cluster.model)
    sidecar = await FakeSidecar(cluster).lead()
    report = await sidecar.cycle.turn()
    assert report.obstacle is not None and report.obstacle.code is Code.BROKERS_SHED_THEMSELVES


def test_scope_of_the_parameters() -> None:
    """What the settings include is narrowed, never widened; what the brokers leave to us is not adopted as excluded."""
    params = Parameters()
    assert canary.scoped(params, ()) is params
    assert canary.scoped(params, NAMES).included_namespaces == NAMES
    some = replace(params, included_namespaces=("t/*", "u/x"))
    assert canary.scoped(some, ("t/ns", "v/w")).included_namespaces == ("t/ns",)
    assert canary.scoped(some, ("v/w",)).included_namespaces == (canary.NOTHING,)
    values = {EXCLUDED: "[t/ns]", "other": "1"}
    assert canary.adopted(values, NAMES) == {"other": "1"}
    assert canary.adopted(values, ()) == values


def test_records_of_earlier_versions_are_read() -> None:
    """Without the new fields; and with them nothing is lost."""
    record = TakeoverRecord(by="a", reason="r", wall_ms=1, overrides={SHEDDING: None}, runtime={})
    known = {"by": "a", "reason": "r", "wall_ms": 1, "overrides": {SHEDDING: None}, "runtime": {}, "active": True}
    old = json.dumps(known).encode()
    assert decode_takeover(old) == record
    ended = replace(
        record, namespaces=NAMES, active=False, ended=TakeoverEnd(by="b", reason="x", wall_ms=2, deadman=True)
    )
    assert decode_takeover(ended.encode()) == ended
    assert canary.namespaces_of(ended) == ()
