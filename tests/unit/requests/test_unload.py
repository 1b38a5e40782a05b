"""A whole namespace is unloaded, dry first, within the budgets of each cycle, and may be stopped."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from bundlekeel.leader.state.documents import Pause
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import ConfigError, Conflict, Forbidden, NotFound, StoreError
from bundlekeel.model.names import namespace_of
from bundlekeel.model.parameters import Parameters
from tests.support.builders import bundle_name
from tests.support.world import BROKERS, EAGER, PIN, FakeCluster, FakeSidecar, with_params

B1, B2, B3 = BROKERS
NAMESPACE = "t/ns"
WHO: dict[str, Any] = {"reason": "new keys", "by": "ann"}
# The rest of the range has no owner.
REST = "t/ns/0x00050000_0xffffffff"
# Balanced, so that no cycle moves anything by itself.
LOADS = {B1: [0.06, 0.05, 0.04], B2: [0.15], B3: [0.15]}
SLOWLY = replace(EAGER, max_moves_per_cycle=2, split_enabled=False)


async def seeing(params: Parameters = SLOWLY, cluster: FakeCluster | None = None) -> FakeSidecar:
    """A leader that has seen the cluster."""
    sidecar = await FakeSidecar(cluster or FakeCluster(LOADS), params=params).lead()
    await sidecar.cycle.turn()
    assert sidecar.cluster.model.unloads == []
    return sidecar


async def ask_unload(sidecar: FakeSidecar, **more: Any) -> str:
    """The id of the task that is left for the leader."""
    answer = await sidecar.service.requests.unload_namespace(NAMESPACE, execute=True, **more, **WHO)
    assert (answer.state, answer.dry_run) == ("waiting", False)
    return str(answer.task)


def show_task(sidecar: FakeSidecar, task: str) -> dict[str, Any]:
    """The task as people see it now."""
    (tasks,) = [item for item in sidecar.shared_state.tasks if item["task"] == task]
    return tasks


async def test_dry_run_of_a_namespace_shows_every_bundle_and_moves_none() -> None:
    """Each bundle with its target, largest first, as if no budget were; and how many of them fit into one cycle."""
    sidecar = await seeing()
    answer = await sidecar.service.requests.unload_namespace(NAMESPACE, **WHO)
    assert (answer.kind, answer.namespace, answer.bundles, answer.dry_run) == ("unload", NAMESPACE, 6, True)
    assert [move.bundle for move in answer.moves[:2]] == [bundle_name(3), bundle_name(4)]
    assert len(answer.moves) == 5 and answer.refusal_counts == {"Unowned": 1}
    assert answer.sentence.startswith("5 of 6 bundles of t/ns to unload; ")
    assert all(move.target != move.source for move in answer.moves)
    assert "2 within the budgets of one cycle" in answer.sentence
    assert {row.code for row in answer.waiting} == {Code.BUDGET_PER_CYCLE} and len(answer.waiting) == 3
    assert (answer.task, answer.state, sidecar.cluster.model.unloads) == (None, "planned", [])


async def test_unload_of_a_namespace_goes_on_cycle_by_cycle() -> None:
    sidecar = await seeing()
    before = sidecar.cluster.owners()
    task = await ask_unload(sidecar)
    for moved in (2, 4):
        await sidecar.executions.serve()
        await sidecar.executions.serve()
        assert len(sidecar.moves()) == moved
        view = show_task(sidecar, task)
        assert (view["state"], view["kind"], len(view["moves"])) == ("running", "unload", moved)
        assert f"{5 - moved} wait" in view["detail"] and Code.BUDGET_PER_CYCLE.value in view["detail"]
        await sidecar.cycle.turn()
    await sidecar.executions.serve()
    view = show_task(sidecar, task)
    assert (view["state"], view["detail"]) == ("done", "5 of 5 left their brokers")
    assert {row["bundle"] for row in view["moves"]} == set(before)
    after = sidecar.cluster.owners()
    assert all(after[bundle] != broker for bundle, broker in before.items())
    assert {record["cycle"] for record in sidecar.journal.tail(10, kind="move")} == {task}
    await sidecar.cycle.turn()
    await sidecar.executions.serve()
    assert len(sidecar.moves()) == 5


async def test_a_bundle_that_is_back_at_its_broker_has_not_left_it() -> None:
    """It counted as one that left."""
    sidecar = await seeing(replace(SLOWLY, max_moves_per_cycle=10))
    before, model = sidecar.cluster.owners(), sidecar.cluster.model
    model.after_unload = lambda bundle: model.own(bundle, before[bundle])
    task = await ask_unload(sidecar)
    await sidecar.executions.serve()
    view = show_task(sidecar, task)
    assert {row["code"] for row in view["moves"]} == {Code.STILL_AT_SOURCE}
    assert (view["state"], view["detail"]) == ("failed", "0 of 5 left their brokers")


async def test_many_bundles_that_go_the_other_way_are_no_swap() -> None:
    """Two brokers: what leaves each comes to the other, and each bundle counts by itself. Admitted as one swap, which
    is whole or not at all, they fitted no cycle, for ever."""
    context = with_params(move_price=1e9, split_enabled=False)
    sidecar = await seeing(context, FakeCluster({B1: [0.06, 0.01], B2: [0.02] * 6, B3: []}))
    await sidecar.service.requests.cordon(B3, **WHO)
    await sidecar.shared_state.refresh()
    task = await ask_unload(sidecar)
    for _ in range(6):
        await sidecar.executions.serve()
        await sidecar.cycle.turn()
    assert show_task(sidecar, task)["detail"] == "8 of 8 left their brokers"


@pytest.mark.parametrize("queued", [1, 3])
async def test_a_read_that_fails_ends_no_unload_and_queueing_makes_none_too_old(queued: int) -> None:
    sidecar = await seeing()
    tasks = [await ask_unload(sidecar) for _ in range(queued)]
    await sidecar.executions.serve()
    details = []
    for turn in range(4 * queued):
        for _ in range(120):
            sidecar.clock.offset += 3
            await sidecar.leadership.turn()
        sidecar.cluster.publish()
        await sidecar.cycle.turn()
        sidecar.cluster.model.owner_errors = [StoreError("connection lost")] if turn == 0 else []
        await sidecar.executions.serve()
        details += [show_task(sidecar, task)["detail"] for task in tasks]
    assert show_task(sidecar, tasks[0])["state"] == "done", details
    assert not any(show_task(sidecar, task)["state"] == "running" for task in tasks), details
    assert any("wait: connection lost" in detail for detail in details)
    assert not any("too old" in detail for detail in details)


async def test_unload_of_a_namespace_is_stopped_between_cycles() -> None:
    sidecar = await seeing()
    task = await ask_unload(sidecar)
    await sidecar.executions.serve()
    await sidecar.service.requests.stop(task, **WHO)
    await sidecar.cycle.turn()
    await sidecar.executions.serve()
    view = show_task(sidecar, task)
    assert view["state"] == "stopped" and len(sidecar.moves()) == 2
    assert [row["code"] for row in view["moves"]].count(Code.STOPPED) == 3
    await sidecar.cycle.turn()
    await sidecar.executions.serve()
    assert len(sidecar.moves()) == 2


async def test_two_unloads_share_the_budgets_of_a_cycle() -> None:
    """One has its turn after this cycle, the other one after the next."""
    sidecar = await seeing(replace(SLOWLY, max_moves_per_cycle=3, cool_down_seconds=0.001))
    first, second = await ask_unload(sidecar), await ask_unload(sidecar, override_cool_down=True)
    await sidecar.executions.serve()
    await sidecar.executions.serve()
    assert (len(show_task(sidecar, first)["moves"]), len(show_task(sidecar, second)["moves"])) == (3, 0)
    await sidecar.cycle.turn()
    await sidecar.executions.serve()
    # Three have left by then, for the first one: two are to move.
    assert (len(show_task(sidecar, first)["moves"]), len(sidecar.moves())) == (3, 5)
    assert show_task(sidecar, second)["detail"] == "2 of 5 left their brokers"


async def test_a_pause_ends_the_unload_of_a_namespace() -> None:
    sidecar = await seeing()
    task = await ask_unload(sidecar)
    await sidecar.executions.serve()
    pause = Pause(reason="look", by="bob", since_ms=1)
    await sidecar.shared_state.change_desired(lambda desired: msgspec.structs.replace(desired, pause=pause))
    await sidecar.cycle.turn()
    await sidecar.executions.serve()
    view = show_task(sidecar, task)
    assert view["state"] == "failed" and "by bob: look" in view["detail"]
    assert "2 of 5 left their brokers" in view["detail"] and len(sidecar.moves()) == 2


async def test_what_binds_a_person_stays_and_is_said() -> None:
    """A pinned bundle, and one no broker owns, in the dry run and in the task; the others leave."""
    sidecar = await seeing(replace(SLOWLY, max_moves_per_cycle=10))
    await sidecar.shared_state.change_desired(
        lambda desired: msgspec.structs.replace(desired, pinned={bundle_name(0): PIN})
    )
    del sidecar.cluster.model.owners[bundle_name(1)]
    answer = await sidecar.service.requests.unload_namespace(NAMESPACE, **WHO)
    assert {item.bundle: item.code for item in answer.refusals} == {
        bundle_name(0): Code.PINNED,
        bundle_name(1): Code.UNOWNED,
        REST: Code.UNOWNED,
    }
    assert answer.refusal_counts == {"Pinned": 1, "Unowned": 2}
    task = await ask_unload(sidecar)
    await sidecar.executions.serve()
    view = show_task(sidecar, task)
    assert (view["state"], view["detail"]) == ("done", "3 of 3 left their brokers")


async def test_a_bundle_that_left_meanwhile_is_not_moved_again() -> None:
    sidecar = await seeing(replace(SLOWLY, max_moves_per_cycle=10))
    task = await ask_unload(sidecar)
    sidecar.cluster.model.own(bundle_name(0), B3)
    await sidecar.executions.serve()
    rows = {row["bundle"]: row for row in show_task(sidecar, task)["moves"]}
    assert rows[bundle_name(0)]["code"] == Code.OWNER_CHANGED and len(sidecar.moves()) == 4
    assert sidecar.cluster.owners()[bundle_name(0)] == B3


async def test_a_new_term_does_not_go_on_with_it() -> None:
    sidecar = await seeing()
    task = await ask_unload(sidecar)
    await sidecar.executions.serve()
    sidecar.cluster.store.expire(sidecar.coordination)
    await sidecar.leadership.turn()
    await sidecar.leadership.turn()
    sidecar.cycle.adopt(sidecar.shared_state.taken_over(), sidecar.leadership.epoch)
    await sidecar.cycle.turn()
    await sidecar.executions.serve()
    assert sidecar.cycle.leads and len(sidecar.moves()) == 2
    assert show_task(sidecar, task)["detail"].startswith("its leader is gone")


async def test_a_budget_of_zero_is_no_reason_to_wait() -> None:
    """It never frees: refused at once, by whoever is asked and by the leader."""
    sidecar = await seeing(replace(SLOWLY, max_moves_per_cycle=0))
    with pytest.raises(Conflict, match="BudgetPerCycle"):
        await ask_unload(sidecar)
    generous = await FakeSidecar(sidecar.cluster, "b").lead()
    await generous.cycle.turn()
    task = await ask_unload(generous)
    await sidecar.executions.serve()
    view = show_task(sidecar, task)
    assert (view["state"], {row["code"] for row in view["moves"]}) == ("failed", {Code.BUDGET_PER_CYCLE})
    assert view["detail"] == "0 of 5 left their brokers"


async def test_an_anti_affinity_group_leaves_bundle_by_bundle() -> None:
    cluster = FakeCluster(LOADS)
    cluster.metadata.groups[NAMESPACE] = "g"
    sidecar = await seeing(replace(SLOWLY, max_moves_per_cycle=10), cluster)
    task = await ask_unload(sidecar)
    await sidecar.executions.serve()
    view = show_task(sidecar, task)
    assert (view["state"], len(sidecar.moves())) == ("running", 1)
    assert "4 wait: AntiAffinity" in view["detail"]


async def test_names_that_are_no_namespace_and_nothing_to_unload() -> None:
    """Said before anything is left for the leader."""
    sidecar = await seeing()
    service = sidecar.service.requests
    with pytest.raises(NotFound):
        await service.unload_namespace("t/none", **WHO)
    with pytest.raises(ConfigError):
        await service.unload_namespace("t/../x", **WHO)
    pins = {bundle: PIN for bundle in sidecar.cluster.owners() if namespace_of(bundle) == NAMESPACE}
    await sidecar.shared_state.change_desired(lambda desired: msgspec.structs.replace(desired, pinned=pins))
    with pytest.raises(Conflict, match="Pinned"):
        await service.unload_namespace(NAMESPACE, execute=True, **WHO)
    recommending = await FakeSidecar(FakeCluster(LOADS), mode="recommend").lead()
    await recommending.cycle.turn()
    with pytest.raises(Forbidden):
        await recommending.service.requests.unload_namespace(NAMESPACE, execute=True, **WHO)
