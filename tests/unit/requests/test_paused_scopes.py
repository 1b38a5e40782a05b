"""A paused scope is called a pause wherever it refuses something, and an exclusion says which one it is."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bundlekeel.leader.cycle.plan_responses import PlanRequest
from bundlekeel.leader.state.documents import LastingRequest, Pause
from bundlekeel.model.errors import Conflict
from bundlekeel.model.plan import plan_hash
from bundlekeel.model.text_format import clock_text
from tests.support.world import FakeSidecar, with_params
from tests.unit.requests.sidecars import B1, B2, B3, BUNDLE, carried_out, seeing

END_MS = 4_000_000_000_000
UNTIL = f"until {clock_text(END_MS)}, by ann: disks"
PAUSED = {"pauses": {"namespace:t/ns": Pause(reason="disks", by="ann", since_ms=1, until_ms=END_MS)}}
EXCLUDED = {"excluded": {"n:t/*": LastingRequest(by="ann", reason="disks", since_ms=1, until_ms=END_MS)}}
SETTINGS = "until the exclusion is removed from the settings"


async def pause_scope_of(change: dict[str, Any], **more: Any) -> FakeSidecar:
    sidecar = await seeing(**more)
    await sidecar.shared_state.change_desired(lambda desired: msgspec.structs.replace(desired, **change))
    return sidecar


@pytest.mark.parametrize(
    ("change", "more", "code", "detail"),
    [
        (PAUSED, {}, "Paused", f"namespace:t/ns, {UNTIL}"),
        (PAUSED | EXCLUDED, {}, "Paused", f"namespace:t/ns, {UNTIL}"),
        (EXCLUDED, {}, "Excluded", f"n:t/*, {UNTIL}"),
        ({}, {"params": with_params(excluded_tenants=("t",))}, "Excluded", SETTINGS),
    ],
)
async def test_what_leaves_a_bundle_alone_is_named(
    change: dict[str, Any], more: dict[str, Any], code: str, detail: str
) -> None:
    """A paused scope was an exclusion without detail, and whoever looked at the exclusions found none."""
    sidecar = await pause_scope_of(change, **more)
    requests = sidecar.service.requests
    for answer in (
        await requests.transfer(BUNDLE, to=B2),
        await requests.split(BUNDLE),
        await requests.unload_namespace("t/ns"),
        await requests.drain(B1, dry_run=True, reason="", by=""),
    ):
        result = {(item.code, item.detail) for item in answer.refusals if item.bundle == BUNDLE}
        assert result == {(code, detail)}, answer
    with pytest.raises(Conflict) as caught:
        await requests.transfer(BUNDLE, to=B2, execute=True, reason="r", by="ann")
    assert (caught.value.code, detail in caught.value.difference[0], detail in str(caught.value)) == (code, True, True)
    assert {row.code for row in sidecar.service.bundles(broker=B1)} == {code}
    plan = await sidecar.planner.make(PlanRequest())
    result = {(item.code, item.detail) for item in plan.refusals if item.bundle == BUNDLE}
    assert result == {(code, detail)} and plan.refusal_counts.keys() == {code}
    reason = await sidecar.service.why(BUNDLE)
    assert [(item.code, item.detail.endswith(detail)) for item in reason.codes] == [(code, True)]
    assert ("paused" in reason.sentence) == (code == "Paused")


async def test_a_paused_broker_takes_nothing_and_says_so() -> None:
    sidecar = await pause_scope_of({"pauses": {f"broker:{B2}": Pause(reason="disks", by="ann", since_ms=1)}})
    answer, _ = await sidecar.operator_requests.plan_move(BUNDLE, B2)
    (refusal,) = answer.refusals
    assert (refusal.code, refusal.detail) == ("Paused", f"{B2}; broker:{B2}, until resumed, by ann: disks")
    assert {item.broker: item.code for item in answer.candidates} == {B2: "Paused", B3: None}
    await sidecar.cycle.turn()
    codes = [item.code for item in (await sidecar.service.why(B2)).codes]
    assert "Paused" in codes and "Excluded" not in codes


async def test_the_plan_itself_stays_as_it_is() -> None:
    sidecar = await pause_scope_of(PAUSED)
    finished, plan = await sidecar.planner.make(PlanRequest()), await sidecar.planner.compute(PlanRequest())
    assert ({item.code for item in finished.refusals}, {item.code for item in plan.refusals}) == (
        {"Paused"},
        {"Excluded"},
    )
    assert finished.hash == plan.hash == plan_hash(plan)


async def test_the_leader_refuses_a_scope_that_was_paused_meanwhile() -> None:
    sidecar = await seeing()
    _, one = await sidecar.operator_requests.plan_move(BUNDLE, B3)
    _, many = await sidecar.operator_requests.plan_unloads("t/ns")
    await sidecar.shared_state.change_desired(lambda desired: msgspec.structs.replace(desired, **PAUSED))
    task = await carried_out(sidecar, one)
    assert task["state"] == "failed" and task["detail"].endswith(f"(namespace:t/ns, {UNTIL})")
    task = await carried_out(sidecar, many)
    assert {row["code"] for row in task["moves"]} == {"Paused"}
