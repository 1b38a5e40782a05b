"""The gate's table and order: each check alone stops exactly the actions it is made for, with its code."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from bundlekeel.leader.gate.gate import CHECKS, Action, Gate, GateCheck, GateQuestion, Obstacle
from bundlekeel.leader.gate.in_force import lasts, mode_in_force, pause_in_force, scopes_paused
from bundlekeel.leader.state.documents import Desired, LastingRequest, OperatorRequest, Pause
from bundlekeel.leader.state.responses import EndedView
from bundlekeel.leader.state.takeover_record import TakeoverRecord
from bundlekeel.model.codes import EXPLANATIONS, Code
from bundlekeel.model.errors import Forbidden
from tests.support.builders import bundle_name
from tests.support.memory_source import MemoryMetadata
from tests.support.world import BROKERS, PIN, FakeCluster, FakeSidecar

BUNDLE = bundle_name(0)
SOURCE, TARGET, _ = BROKERS
TASK = "req-1"
REQUEST = OperatorRequest(by="ann", reason="r", since_ms=1)
ENDED = LastingRequest(by="ann", reason="r", since_ms=1, until_ms=1)
RECORD = TakeoverRecord(by="ann", reason="r", wall_ms=1, overrides={}, runtime={})
ASIDE = replace(RECORD, active=False, ended=EndedView(by="deadman", reason="r", wall_ms=2, deadman=True))
PARTIAL = replace(RECORD, namespaces=("other/ns",))
# What each check answers when it alone fails.
CODES = {
    GateCheck.MIGRATION: Code.STORE_MIGRATING,
    GateCheck.TASK: Code.STOPPED,
    GateCheck.REQUEST: Code.STOPPED,
    GateCheck.MODE: Code.OBSERVE_ONLY,
    GateCheck.PAUSE: Code.PAUSED,
    GateCheck.LEASE: Code.NOT_LEADER,
    GateCheck.OUTAGE: Code.SETTLING_AFTER_OUTAGE,
    GateCheck.PUT_ASIDE: Code.PUT_ASIDE,
    GateCheck.SECOND_BALANCER: Code.SECOND_BALANCER,
    GateCheck.CLUSTER: Code.UNSUPPORTED_LOAD_MANAGER,
    GateCheck.LOAD: Code.LOAD_AWAITED,
    GateCheck.CHANNEL: Code.CHANNEL_NOT_FOLLOWED,
    GateCheck.SHEDDING: Code.BROKER_SETTINGS_UNKNOWN,
    GateCheck.WINDOW: Code.OUTSIDE_WINDOW,
    GateCheck.REVIEW: Code.NOT_REVIEWED,
    GateCheck.SCOPE: Code.NOT_TAKEN_OVER,
    GateCheck.BUNDLE: Code.PINNED,
    GateCheck.TARGET: Code.CORDONED,
}
# A takeover is either superseded or partial.
TOGETHER = set(GateCheck) - {GateCheck.SCOPE}


@pytest.fixture
async def sidecar() -> FakeSidecar:
    """A leader that may do anything, and has asked its brokers what they run with."""
    fake_sidecar = await FakeSidecar(FakeCluster()).lead()
    await fake_sidecar.cycle.turn()
    return fake_sidecar


async def ask_gate(sidecar: FakeSidecar, action: Action, failing: Collection[GateCheck]) -> tuple[Gate, GateQuestion]:
    """A gate where these checks, and no others, fail; and the question of this action about a single move."""

    def when(check: GateCheck) -> Obstacle | None:
        return Obstacle(code=CODES[check], detail="x") if check in failing else None

    sidecar.shared_state.desired = Desired(
        stops={TASK: REQUEST} if GateCheck.TASK in failing else {},
        mode="observe" if GateCheck.MODE in failing else None,
        pause=Pause(reason="r", by="ann", since_ms=1) if GateCheck.PAUSE in failing else None,
        pinned={BUNDLE: PIN} if GateCheck.BUNDLE in failing else {},
        cordons={TARGET: REQUEST} if GateCheck.TARGET in failing else {},
        drains={} if GateCheck.REQUEST in failing else {SOURCE: REQUEST},
    )
    sidecar.shared_state.takeover = (
        ASIDE if GateCheck.PUT_ASIDE in failing else PARTIAL if GateCheck.SCOPE in failing else RECORD
    )
    metadata = MemoryMetadata()
    if GateCheck.MIGRATION in failing:
        metadata.migrate("COPYING")
    gate = Gate(
        ceiling="act",
        review_required=GateCheck.REVIEW in failing,
        shared=sidecar.shared_state,
        metadata=metadata,
        config=sidecar.config,
        clock=sidecar.clock,
        outage=lambda _picture: when(GateCheck.OUTAGE),
        second_balancer=lambda: when(GateCheck.SECOND_BALANCER),
        channel=lambda: "x" if GateCheck.CHANNEL in failing else "",
        windows=lambda _now: when(GateCheck.WINDOW),
    )
    picture = await sidecar.cluster.source.picture()
    if GateCheck.SHEDDING in failing:
        unheard = replace(picture.endpoints[SOURCE], broker_id="b9:8080")
        picture = replace(picture, endpoints={**picture.endpoints, "b9:8080": unheard})
    mode, awaited = ("other" if GateCheck.CLUSTER in failing else "modular"), ("b9:8080",) * (GateCheck.LOAD in failing)
    gate.see(replace(picture, mode=mode, awaited=awaited))
    epoch = -1 if GateCheck.LEASE in failing else sidecar.shared_state.current_epoch()
    place = {"bundle": BUNDLE, "source": SOURCE, "target": TARGET, "task": TASK}
    return gate, GateQuestion(action=action, epoch=epoch, approved=False, **place)


@pytest.mark.parametrize("action", Action)
async def test_each_check_stops_the_actions_it_is_made_for(sidecar: FakeSidecar, action: Action) -> None:
    """And no others."""
    gate, question = await ask_gate(sidecar, action, ())
    assert gate.check(question) is None
    for check in GateCheck:
        gate, question = await ask_gate(sidecar, action, {check})
        result = gate.check(question)
        assert (result.code if result is not None else None) == (CODES[check] if check in CHECKS[action] else None)


@pytest.mark.parametrize("action", Action)
async def test_the_first_reason_in_the_documented_order_is_the_answer(sidecar: FakeSidecar, action: Action) -> None:
    failing, message = [check for check in GateCheck if check in TOGETHER], []
    while failing:
        gate, question = await ask_gate(sidecar, action, failing)
        result = gate.check(question)
        message.append(result.code if result is not None else None)
        failing = failing[1:]
    checks = [check for check in GateCheck if check in TOGETHER]
    expected = [next((CODES[c] for c in checks[n:] if c in CHECKS[action]), None) for n in range(len(checks))]
    assert message == expected


def test_whatever_changes_a_cluster_needs_the_mode_and_the_lease() -> None:
    assert all(GateCheck.MODE in checks for checks in CHECKS.values())
    changing = {Action.PLAN, Action.RELOCATION, Action.REQUEST, Action.QUOTAS}
    assert {action for action, checks in CHECKS.items() if GateCheck.LEASE in checks} == changing
    assert all({GateCheck.PAUSE, GateCheck.OUTAGE} <= CHECKS[action] for action in changing)
    assert CHECKS.keys() == set(Action)


async def test_a_store_that_does_not_answer_is_an_obstacle(sidecar: FakeSidecar) -> None:
    gate, question = await ask_gate(sidecar, Action.PLAN, ())
    sidecar.cluster.store.suspend(sidecar.coordination)
    obstacle = await gate.check_anew(question)
    assert obstacle is not None and obstacle.code is Code.STORE_UNAVAILABLE


async def test_what_is_demanded_is_refused_with_the_way_out(sidecar: FakeSidecar) -> None:
    """Whoever asks reads how to lift it."""
    gate, question = await ask_gate(sidecar, Action.SUBMISSION, {GateCheck.MODE})
    with pytest.raises(Forbidden, match=r"lowered from act; `bundlekeel mode act` restores it"):
        gate.demand(question)
    gate, question = await ask_gate(sidecar, Action.SUBMISSION, {GateCheck.PAUSE})
    with pytest.raises(Forbidden, match="`bundlekeel resume`") as caught:
        gate.demand(question)
    assert EXPLANATIONS[Code.PAUSED] in str(caught.value) and caught.value.code is Code.PAUSED


NOW = 1_000_000


@pytest.mark.parametrize(
    ("until_ms", "in_force"), [(0, True), (NOW + 1, True), (NOW, False), (NOW - 1, False), (1, False)]
)
def test_until_when_something_lasts(until_ms: int, in_force: bool) -> None:
    """A pause of everything, one of a scope, and anything else with an end: 0 is until a person ends it."""
    pause = Pause(reason="r", by="ann", since_ms=1, until_ms=until_ms)
    desired = Desired(
        pause=pause, pauses={"tenant:t": pause, "namespace:t/n": pause, "broker:b:1": pause, "x:t": pause}
    )
    assert lasts(until_ms, NOW) == in_force
    assert pause_in_force(desired, NOW) == (pause if in_force else None)
    scopes = dict.fromkeys(("t:t", "n:t/n", "r:b:1"), until_ms)
    assert scopes_paused(desired, NOW) == (scopes if in_force else {})
    assert pause_in_force(Desired(), NOW) is None


@pytest.mark.parametrize(
    ("ceiling", "asked_for", "text"),
    [
        ("act", None, "act"),
        ("recommend", None, "recommend"),
        ("act", "observe", "observe"),
        ("act", "recommend", "recommend"),
        ("observe", "act", "observe"),
        ("recommend", "act", "recommend"),
        ("act", "dance", "observe"),
    ],
)
def test_the_lower_mode_is_in_force(ceiling: str, asked_for: str | None, text: str) -> None:
    """People at run time lower the settings file's mode and never raise it; an unknown word is the lowest."""
    assert mode_in_force(ceiling, Desired(mode=asked_for)) == text


async def test_a_mode_that_was_not_lowered_names_no_way_back(sidecar: FakeSidecar) -> None:
    gate, _ = await ask_gate(sidecar, Action.PLAN, ())
    changed = replace(gate, ceiling="recommend").check(GateQuestion(action=Action.ORDER))
    assert changed == Obstacle(code=Code.RECOMMEND_ONLY, detail="")


@pytest.mark.parametrize(
    ("changes", "question", "reason"),
    [
        ({"pinned": {BUNDLE: ENDED}}, {}, None),
        ({"pinned": {BUNDLE: PIN}}, {"bundle": ""}, None),
        ({"pinned": {BUNDLE: PIN}}, {}, (Code.PINNED, "since this plan was made")),
        ({"excluded": {"t:t": PIN}}, {}, (Code.EXCLUDED, "by t:t")),
        ({"excluded": {"t:t": ENDED}}, {}, None),
        ({"excluded": {f"r:{TARGET}": PIN}}, {}, (Code.EXCLUDED, f"by r:{TARGET}")),
        ({"excluded": {f"r:{SOURCE}": PIN}}, {}, (Code.EXCLUDED, f"by r:{SOURCE}")),
        ({"excluded": {f"r:{TARGET}": PIN}}, {"target": ""}, None),
        ({"pauses": {f"broker:{SOURCE}": 0}}, {}, (Code.PAUSED, f"its scope r:{SOURCE} is paused")),
        ({"pauses": {"tenant:other": 0}}, {}, None),
        ({"cordons": {TARGET: REQUEST}}, {}, (Code.CORDONED, TARGET)),
        ({"cordons": {SOURCE: REQUEST}}, {}, None),
        ({"drains": {SOURCE: REQUEST, TARGET: REQUEST}}, {}, (Code.CORDONED, TARGET)),
        ({"cordons": {"": REQUEST}}, {"target": ""}, None),
        ({"drains": {}}, {"bundle": ""}, None),
        ({"drains": {}}, {}, (Code.STOPPED, "the drain or warm-up has ended")),
        ({"drains": {}, "warms": {TARGET: REQUEST}}, {}, None),
        ({"stops": {TASK: REQUEST}}, {}, None),
    ],
)
async def test_a_single_move_of_a_drain(
    sidecar: FakeSidecar, changes: dict[str, Any], question: dict[str, str], reason: tuple[Code, str] | None
) -> None:
    gate, asks = await ask_gate(sidecar, Action.RELOCATION, ())
    pauses = {
        scope: Pause(reason="r", by="x", since_ms=1, until_ms=end) for scope, end in changes.get("pauses", {}).items()
    }
    desired = msgspec.structs.replace(sidecar.shared_state.desired, **changes | {"pauses": pauses})
    sidecar.shared_state.desired = desired
    obstacle = gate.check(replace(asks, **question))
    assert (obstacle and (obstacle.code, obstacle.detail)) == reason


async def test_a_request_that_somebody_stopped_or_approved(sidecar: FakeSidecar) -> None:
    """Stopped: by whom and why; of another task, or of none, it says nothing. Approved: nothing more is asked."""
    gate, question = await ask_gate(sidecar, Action.REQUEST, {GateCheck.TASK})
    assert gate.check(question) == Obstacle(code=Code.STOPPED, detail="by ann: r")
    for other in ("req-2", ""):
        assert gate.check(replace(question, task=other)) is None
    gate, question = await ask_gate(sidecar, Action.REQUEST, {GateCheck.REVIEW})
    assert gate.check(question) == Obstacle(code=Code.NOT_REVIEWED)
    assert gate.check(replace(question, approved=True)) is None


async def test_what_is_left_to_the_brokers_is_not_moved(sidecar: FakeSidecar) -> None:
    """In a partial takeover: bundles of its namespaces alone; a question about none is about the whole."""
    gate, question = await ask_gate(sidecar, Action.PLAN, ())
    for namespaces, result in (
        ((), None),
        (("t/ns",), None),
        (("a/b", "c/d"), Obstacle(code=Code.NOT_TAKEN_OVER, detail="the takeover covers only a/b, c/d")),
    ):
        sidecar.shared_state.takeover = replace(RECORD, namespaces=namespaces)
        assert gate.check(question) == result
        assert gate.check(replace(question, bundle="")) is None


@pytest.mark.parametrize(
    ("record", "aside"),
    [
        (None, False),
        (RECORD, False),
        (replace(ASIDE, active=True), False),
        (replace(RECORD, active=False), False),
        (replace(ASIDE, ended=EndedView(by="ann", reason="r", wall_ms=2, deadman=False)), False),
        (ASIDE, True),
    ],
)
async def test_only_what_the_failsafe_ended_is_put_aside(
    sidecar: FakeSidecar, record: TakeoverRecord | None, aside: bool
) -> None:
    gate, question = await ask_gate(sidecar, Action.ADOPTION, ())
    sidecar.shared_state.takeover = record
    assert gate.check(question) == (Obstacle(code=Code.PUT_ASIDE, detail="deadman: r") if aside else None)


async def test_what_is_said_of_the_cluster_itself(sidecar: FakeSidecar) -> None:
    """Before any picture nothing; then which load managers run where one is not acted on, and whose reports stand
    still."""
    gate, question = await ask_gate(sidecar, Action.PLAN, ())
    assert replace(gate).cluster_obstacle() is None and replace(gate).check(question) is None
    picture = await sidecar.cluster.source.picture()
    kinds = [replace(item, load_manager=f"org.x.Kind{n % 2}") for n, item in enumerate(picture.endpoints.values())]
    mixed = replace(picture, mode="mixed", endpoints={item.broker_id: item for item in kinds})
    gate.see(mixed)
    assert gate.cluster_obstacle() == Obstacle(code=Code.MIXED_LOAD_MANAGERS, detail="Kind0, Kind1")
    gate.see(replace(mixed, mode="simple", endpoints={}))
    assert gate.cluster_obstacle() == Obstacle(code=Code.UNSUPPORTED_LOAD_MANAGER, detail="simple")
    for mode in ("modular", "extensible"):
        gate.see(replace(picture, mode=mode))
        assert gate.cluster_obstacle() is None
    sidecar.cluster.model.dynamic["loadBalancerEnabled"] = "false"
    await sidecar.config.refresh(picture.endpoints, force=True)
    gate.see(picture)
    assert gate.cluster_obstacle() == Obstacle(code=Code.FROZEN_REPORTS, detail=", ".join(BROKERS))


async def test_who_sheds_is_named(sidecar: FakeSidecar) -> None:
    gate, question = await ask_gate(sidecar, Action.PLAN, ())
    picture = await sidecar.cluster.source.picture()
    sidecar.cluster.model.dynamic["loadBalancerSheddingEnabled"] = "true"
    await sidecar.config.refresh(picture.endpoints, force=True)
    assert gate.check(question) == Obstacle(code=Code.BROKERS_SHED_THEMSELVES, detail=", ".join(BROKERS))
    more = {name: replace(picture.endpoints[SOURCE], broker_id=name) for name in ("b9:8080", "b8:8080")}
    gate.see(replace(picture, endpoints={**more, **picture.endpoints}))
    assert gate.check(question) == Obstacle(code=Code.BROKERS_SHED_THEMSELVES, detail=", ".join(BROKERS))
    sidecar.cluster.model.dynamic["loadBalancerSheddingEnabled"] = "false"
    await sidecar.config.refresh(picture.endpoints, force=True)
    assert gate.check(question) == Obstacle(code=Code.BROKER_SETTINGS_UNKNOWN, detail="b8:8080, b9:8080")
    gate.see(replace(picture, endpoints=more))
    assert gate.check(question) == Obstacle(code=Code.BROKER_SETTINGS_UNKNOWN, detail="b8:8080, b9:8080", unable=True)


async def test_brokers_whose_load_is_awaited_are_named(sidecar: FakeSidecar) -> None:
    gate, question = await ask_gate(sidecar, Action.PLAN, {GateCheck.LOAD})
    assert gate.check(question) == Obstacle(code=Code.LOAD_AWAITED, detail="b9:8080")
    gate, question = await ask_gate(sidecar, Action.PLAN, {GateCheck.CHANNEL})
    assert gate.check(question) == Obstacle(code=Code.CHANNEL_NOT_FOLLOWED, detail="x")
