"""Moves of one bundle that an operator requests: the dry run, and what the leader does with the request."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bundlekeel.leader.state.documents import OperatorRequest, Pause
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import AdminUnauthorized, ConfigError, Conflict, Forbidden, NotFound
from bundlekeel.model.policies import IsolationPolicy
from bundlekeel.planning.splitting.algorithms import SplitAlgorithm, SplitOptions
from tests.support.memory_admin import Fault
from tests.support.world import PIN, FakeCluster, FakeSidecar
from tests.unit.requests.sidecars import B1, B2, B3, BUNDLE, WHO, both, carried_out, seeing

BARE = "t/bare/0x00000000_0xffffffff"


async def test_a_transfer_says_what_would_move_and_does_exactly_that() -> None:
    sidecar = await seeing()
    answer, operator_request = await sidecar.operator_requests.plan_move(BUNDLE, B3)
    assert sidecar.cluster.model.unloads == []
    move = answer.move
    assert (move.bundle, move.source, move.target, move.rule) == (BUNDLE, B1, B3, "by hand")
    assert move.source_before == pytest.approx(0.3, abs=0.01)
    assert move.target_after == pytest.approx(0.35, abs=0.01)
    assert [item.broker for item in answer.candidates] == [B2, B3]
    rows = {row.broker: row for row in answer.loads}
    assert (rows[B1].bundles_before, rows[B1].bundles_after) == (2, 1)
    task = await carried_out(sidecar, operator_request)
    assert (task["state"], task["kind"], task["detail"]) == ("done", "transfer", "1 of 1 reached the requested broker")
    assert sidecar.cluster.owners()[BUNDLE] == B3
    (record,) = sidecar.journal.tail(10, kind="move")
    assert record["cycle"] == task["task"]
    (entry,) = sidecar.cycle.cycle_state.ledger.entries
    assert (entry.bundle, entry.target, entry.traffic[2] > 0) == (BUNDLE, B3, True)


@pytest.mark.parametrize(
    ("taker", "outcome", "code"),
    [
        (B2, "landed_elsewhere", Code.LANDED_ELSEWHERE),
        (B1, "landed_elsewhere", Code.STILL_AT_SOURCE),
        (None, "refused", Code.ADMIN_UNAUTHORIZED),
    ],
)
async def test_a_move_that_did_not_land_ends_as_failed(taker: str | None, outcome: str, code: Code) -> None:
    """It ended as `done`, and a script then restarted the broker that still had the bundle."""
    sidecar = await seeing()
    _, operator_request = await sidecar.operator_requests.plan_move(BUNDLE, B3)
    if taker is None:
        sidecar.admin.fail("unload", *[Fault(error=AdminUnauthorized("401"))] * 20)
    else:
        sidecar.cluster.model.after_unload = lambda bundle: sidecar.cluster.model.own(bundle, taker)
    task = await carried_out(sidecar, operator_request)
    assert (task["state"], task["detail"]) == ("failed", "0 of 1 reached the requested broker")
    assert [(row["outcome"], row["code"]) for row in task["moves"]] == [(outcome, code)]


async def test_a_topic_names_its_bundle_first() -> None:
    """The whole bundle moves, and the answer begins with it."""
    sidecar = await seeing()
    topic = next(iter(sidecar.cluster.model.topics[BUNDLE]))
    sidecar.cluster.metadata.bundle_boundaries["t/ns"] = [0, 0xFFFFFFFF]
    sidecar.cluster.metadata.add_topics([topic])
    sidecar.cluster.model.own("t/ns/0x00000000_0xffffffff", B1)
    answer, _ = await sidecar.operator_requests.plan_move(topic, B2)
    assert answer.sentence.startswith("t/ns/0x00000000_0xffffffff holds persistent://t/ns/topic-1; it moves whole")


async def test_an_unload_goes_where_there_is_most_room() -> None:
    """It names the broker before anything is done; nothing lands anywhere by chance."""
    sidecar = await seeing(FakeCluster({B1: [0.2, 0.1], B2: [0.3], B3: [0.1]}))
    answer, operator_request = await sidecar.operator_requests.plan_move(BUNDLE)
    assert (answer.kind, answer.target) == ("unload", B3)
    assert (await carried_out(sidecar, operator_request))["state"] == "done"
    assert sidecar.cluster.owners()[BUNDLE] == B3


async def test_a_system_bundle_without_an_entry_is_refused_as_what_it_is() -> None:
    """The ownership channel has no entry of it, which does not mean that the next lookup assigns it."""
    cluster = FakeCluster({B1: [0.2, 0.1], B2: [0.15], B3: [0.15]})
    cluster.metadata.bundle_boundaries["pulsar/system"] = [0, 0xFFFFFFFF]
    sidecar = await seeing(cluster)
    with pytest.raises(Conflict) as caught:
        await sidecar.operator_requests.plan_move("pulsar/system/0x00000000_0xffffffff", B2)
    assert caught.value.difference == ["SystemBundle"]


async def test_what_nobody_reports_moves_too() -> None:
    """A bundle without topics of a namespace in no report: given up, for the affinity to place."""
    cluster = FakeCluster({B1: [0.2, 0.1], B2: [0.15], B3: [0.15]})
    cluster.model.add(BARE, B1)
    cluster.metadata.bundle_boundaries["t/bare"] = [0, 0xFFFFFFFF]
    sidecar = await seeing(cluster)
    answer, operator_request = await sidecar.operator_requests.plan_move(BARE, B2)
    assert answer.move.traffic == (0.0, 0.0, 0.0, 0.0)
    task = await carried_out(sidecar, operator_request)
    assert (task["state"], task["moves"][0]["outcome"]) == ("done", "released")
    assert cluster.model.affinity == {BARE: B2}


@pytest.mark.parametrize(
    ("change", "to", "code"),
    [
        ({"pinned": {BUNDLE: PIN}}, B2, "Pinned"),
        ({"excluded": {"n:t/*": PIN}}, B2, "Excluded"),
        ({"cordons": {B2: OperatorRequest(by="a", reason="r", since_ms=1)}}, B2, "Cordoned"),
        ({"pauses": {"tenant:t": Pause(reason="r", by="a", since_ms=1)}}, B2, "Paused"),
        ({}, B1, "SameBroker"),
    ],
)
async def test_what_refuses_says_so_and_leaves_no_request(change: dict[str, Any], to: str, code: str) -> None:
    """Pins, exclusions, cordons, paused scopes, and the owner itself."""
    sidecar = await seeing()
    await sidecar.shared_state.change_desired(lambda desired: msgspec.structs.replace(desired, **change))
    answer, operator_request = await sidecar.operator_requests.plan_move(BUNDLE, to)
    assert [item.code for item in answer.refusals] == [code]
    assert (operator_request, answer.move) == ({}, None)
    assert f"{BUNDLE} would move with" in answer.sentence


async def test_policies_refuse_manually_too() -> None:
    """An isolation policy keeps the namespace on one broker."""
    sidecar = await seeing()
    policy = IsolationPolicy(name="p", namespaces=("t/ns",), primary=("b1.*",))
    sidecar.cluster.metadata.isolation["local"] = (policy,)
    answer, operator_request = await sidecar.operator_requests.plan_move(BUNDLE, B2)
    assert operator_request == {}
    assert answer.refusals[0].code == "PolicyForbids"


async def test_cool_down_holds_until_a_person_says_otherwise() -> None:
    """A bundle that has just moved: refused with the time left, moved again with the flag."""
    sidecar = await seeing()
    await carried_out(sidecar, (await sidecar.operator_requests.plan_move(BUNDLE, B3))[1])
    answer, operator_request = await sidecar.operator_requests.plan_move(BUNDLE, B2)
    assert (answer.refusals[0].code, operator_request) == ("CoolDown", {})
    with pytest.raises(Conflict, match=r"CoolDown: [^;]*; `override_cool_down: true` ignores this obstacle$"):
        await sidecar.service.requests.transfer(BUNDLE, to=B2, execute=True, reason="r", by="ann")
    _, operator_request = await sidecar.operator_requests.plan_move(BUNDLE, B2, override_cool_down=True)
    assert (await carried_out(sidecar, operator_request))["state"] == "done"
    assert sidecar.cluster.owners()[BUNDLE] == B2


async def test_the_leader_refuses_what_has_changed() -> None:
    """Another owner, or a pin set meanwhile: the task fails with what changed, and nothing is called."""
    sidecar = await seeing()
    _, operator_request = await sidecar.operator_requests.plan_move(BUNDLE, B3)
    sidecar.cluster.model.own(BUNDLE, B2)
    task = await carried_out(sidecar, operator_request)
    assert (task["state"], "changed" in task["detail"]) == ("failed", True)
    sidecar.cluster.model.own(BUNDLE, B1)
    await sidecar.shared_state.change_desired(lambda desired: msgspec.structs.replace(desired, pinned={BUNDLE: PIN}))
    task = await carried_out(sidecar, operator_request)
    assert (task["state"], task["detail"]) == ("failed", "not carried out: an operator pinned the bundle to its broker")
    assert sidecar.cluster.model.unloads == []


async def test_unreadable_requests_of_other_releases_move_nothing() -> None:
    sidecar = await seeing()
    for operator_request in ({"kind": "transfer"}, {"kind": "split", "at": "x"}, {"kind": "levitate"}):
        task = await carried_out(sidecar, operator_request)
        assert (task["state"], "cannot be read" in task["detail"]) == ("failed", True)
    assert sidecar.cluster.model.unloads == []


async def test_names_that_are_no_one_bundle() -> None:
    """A partitioned topic in several bundles, an unknown namespace or broker, a bundle no broker owns."""
    sidecar = await seeing()
    sidecar.cluster.metadata.bundle_boundaries["t/ns"] = [0, 0x80000000, 0xFFFFFFFF]
    sidecar.cluster.metadata.partition_counts["persistent://t/ns/many"] = 16
    with pytest.raises(ConfigError, match="covers 2 bundles"):
        await sidecar.operator_requests.plan_move("persistent://t/ns/many", B2)
    with pytest.raises(NotFound):
        await sidecar.operator_requests.plan_move("persistent://no/where/x", B2)
    with pytest.raises(NotFound, match=r"topic persistent://t/ns/largest does not exist; .* write t/ns/LARGEST"):
        await sidecar.operator_requests.plan_split("t/ns/largest")
    with pytest.raises(ConfigError) as caught:
        await sidecar.operator_requests.plan_split(BUNDLE, SplitOptions(algorithm=SplitAlgorithm.RANGE, at=(0x100,)))
    assert (caught.value.field, caught.value.value) == ("at", "0x00000100")
    sidecar.cluster._set_boundaries()
    with pytest.raises(NotFound, match="no broker"):
        await sidecar.operator_requests.plan_move(BUNDLE, "b9:8080")
    del sidecar.cluster.model.owners[BUNDLE]
    with pytest.raises(Conflict, match="no broker owns"):
        await sidecar.operator_requests.plan_move(BUNDLE, B2)


async def test_a_transfer_that_is_sent_again_moves_nothing_more() -> None:
    """Left twice before the leader took either: the second task fails with what changed; left later it is refused."""
    leader, other = await both()
    ask = {"to": B3, "execute": True, **WHO}
    tasks = [(await other.service.requests.transfer(BUNDLE, **ask)).task for _ in range(2)]
    await leader.executions.serve()
    first, second = [await leader.service.requests.task(str(task)) for task in tasks]
    assert (first.state, second.state) == ("done", "failed") and first.hash == second.hash
    assert second.difference == [f"{BUNDLE} is owned by {B3} now"]
    with pytest.raises(Conflict):
        await leader.service.requests.transfer(BUNDLE, **ask)


async def test_manually_is_dry_until_told_and_needs_mode_act() -> None:
    """Executed at a follower, carried out by the leader."""
    leader, other = await both()
    answer = await other.service.requests.transfer(BUNDLE, to=B3, **WHO)
    assert (answer.dry_run, answer.task, answer.state, answer.held) == (True, None, "planned", "")
    answer = await other.service.requests.transfer(BUNDLE, to=B3, execute=True, **WHO)
    assert (answer.dry_run, answer.state) == (False, "waiting")
    await leader.executions.serve()
    task = await leader.service.requests.task(answer.task)
    assert (task.state, task.by, task.reason) == ("done", "ann", "disks")
    assert leader.cluster.owners()[BUNDLE] == B3
    with pytest.raises(Conflict, match="SameBroker") as refused:
        await leader.service.requests.transfer(BUNDLE, to=B3, execute=True, override_cool_down=True, **WHO)
    assert refused.value.code == "SameBroker"
    careful = await FakeSidecar(leader.cluster, "c", mode="recommend").lead()
    await careful.cycle.turn()
    for looked_at in (
        await careful.service.requests.unload(BUNDLE),
        await careful.service.requests.unload_namespace("t/ns"),
        await careful.service.requests.drain(B1, dry_run=True, **WHO),
    ):
        assert (looked_at.held, looked_at.held_explanation) == ("RecommendOnly", Code.RECOMMEND_ONLY.explanation)
    with pytest.raises(Forbidden, match="mode is `recommend`"):
        await careful.service.requests.unload(BUNDLE, execute=True, **WHO)
