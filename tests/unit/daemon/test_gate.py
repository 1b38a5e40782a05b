"""The gate's table and order: each check alone stops exactly the actions it is made for, with its code."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from bundlekeel.core.model.codes import EXPLANATIONS, Code
from bundlekeel.core.model.errors import Forbidden
from bundlekeel.daemon.gate.gate import CHECKS, Action, Check, Gate, GateParts, Question
from bundlekeel.daemon.gate.obstacle import Obstacle
from bundlekeel.daemon.state.documents import Desired, Pause, Wish
from bundlekeel.daemon.state.takeover_record import Ended, Record
from tests.support.builders import bundle_name
from tests.support.world import BROKERS, FakeCluster, FakeSidecar

BUNDLE = bundle_name(0)
SOURCE, TARGET, _ = BROKERS
TASK = "req-1"
WISH = Wish(by="ann", reason="r", since_ms=1)
RECORD = Record(by="ann", reason="r", wall_ms=1, overrides={}, runtime={})
ASIDE = replace(RECORD, active=False, ended=Ended(by="deadman", reason="r", wall_ms=2, deadman=True))
PARTIAL = replace(RECORD, namespaces=("other/ns",))
# What each check answers when it alone fails.
CODES = {
    Check.TASK: Code.STOPPED,
    Check.WISH: Code.STOPPED,
    Check.MODE: Code.OBSERVE_ONLY,
    Check.PAUSE: Code.PAUSED,
    Check.LEASE: Code.NOT_LEADER,
    Check.OUTAGE: Code.SETTLING_AFTER_OUTAGE,
    Check.PUT_ASIDE: Code.PUT_ASIDE,
    Check.SECOND_BALANCER: Code.SECOND_BALANCER,
    Check.CLUSTER: Code.UNSUPPORTED_LOAD_MANAGER,
    Check.LOAD: Code.LOAD_AWAITED,
    Check.CHANNEL: Code.CHANNEL_NOT_FOLLOWED,
    Check.SHEDDING: Code.BROKERS_SHED_THEMSELVES,
    Check.WINDOW: Code.OUTSIDE_WINDOW,
    Check.REVIEW: Code.NOT_REVIEWED,
    Check.SCOPE: Code.BROKERS_SHED_THEMSELVES,
    Check.BUNDLE: Code.PINNED,
    Check.TARGET: Code.CORDONED,
}
# A takeover is either put aside or partial.
TOGETHER = set(Check) - {Check.SCOPE}


@pytest.fixture
async def sidecar() -> FakeSidecar:
    """A leader that may do anything, and has asked its brokers what they run with."""
    made = await FakeSidecar(FakeCluster()).lead()
    await made.cycle.turn()
    return made


async def asked(sidecar: FakeSidecar, action: Action, failing: Collection[Check]) -> tuple[Gate, Question]:
    """A gate where these checks, and no others, fail; and the question of this action about a single move."""

    def when(check: Check) -> Obstacle | None:
        return Obstacle(code=CODES[check], detail="x") if check in failing else None

    sidecar.sharing.desired = Desired(
        stops={TASK: WISH} if Check.TASK in failing else {},
        mode="observe" if Check.MODE in failing else None,
        pause=Pause(reason="r", by="ann", since_ms=1) if Check.PAUSE in failing else None,
        pinned={BUNDLE: 0} if Check.BUNDLE in failing else {},
        cordons={TARGET: WISH} if Check.TARGET in failing else {},
        drains={} if Check.WISH in failing else {SOURCE: WISH},
    )
    sidecar.sharing.takeover = ASIDE if Check.PUT_ASIDE in failing else PARTIAL if Check.SCOPE in failing else RECORD
    gate = Gate(
        GateParts(
            ceiling="act",
            review_required=Check.REVIEW in failing,
            shared=sidecar.sharing,
            config=sidecar.config,
            clock=sidecar.clock,
            outage=lambda _picture: when(Check.OUTAGE),
            second_balancer=lambda: when(Check.SECOND_BALANCER),
            channel=lambda: "x" if Check.CHANNEL in failing else "",
            windows=lambda _now: when(Check.WINDOW),
        )
    )
    picture = await sidecar.cluster.source.picture()
    if Check.SHEDDING in failing:
        unheard = replace(picture.endpoints[SOURCE], broker_id="b9:8080")
        picture = replace(picture, endpoints={**picture.endpoints, "b9:8080": unheard})
    awaited = ("b9:8080",) if Check.LOAD in failing else ()
    gate.see(replace(picture, mode="other" if Check.CLUSTER in failing else "modular", awaited=awaited))
    epoch = -1 if Check.LEASE in failing else sidecar.sharing.current_epoch()
    question = Question(
        action=action, epoch=epoch, bundle=BUNDLE, source=SOURCE, target=TARGET, task=TASK, approved=False
    )
    return gate, question


@pytest.mark.parametrize("action", Action)
async def test_each_check_stops_the_actions_it_is_made_for(sidecar: FakeSidecar, action: Action) -> None:
    """And no others."""
    gate, question = await asked(sidecar, action, ())
    assert gate.check(question) is None
    for check in Check:
        gate, question = await asked(sidecar, action, {check})
        found = gate.check(question)
        assert (found.code if found is not None else None) == (CODES[check] if check in CHECKS[action] else None)


@pytest.mark.parametrize("action", Action)
async def test_the_first_reason_in_the_documented_order_is_the_answer(sidecar: FakeSidecar, action: Action) -> None:
    """When one is mended the next one is said."""
    failing, said = [check for check in Check if check in TOGETHER], []
    while failing:
        gate, question = await asked(sidecar, action, failing)
        found = gate.check(question)
        said.append(found.code if found is not None else None)
        failing = failing[1:]
    checks = [check for check in Check if check in TOGETHER]
    expected = [next((CODES[c] for c in checks[n:] if c in CHECKS[action]), None) for n in range(len(checks))]
    assert said == expected


def test_whatever_changes_a_cluster_needs_the_mode_and_the_lease() -> None:
    """What is only left for the leader, or only changes parameters, needs the mode."""
    assert all(Check.MODE in checks for checks in CHECKS.values())
    changing = {Action.PLAN, Action.RELOCATION, Action.REQUEST, Action.QUOTAS}
    assert {action for action, checks in CHECKS.items() if Check.LEASE in checks} == changing
    assert all({Check.PAUSE, Check.OUTAGE} <= CHECKS[action] for action in changing)
    assert CHECKS.keys() == set(Action)


async def test_a_store_that_does_not_answer_is_an_obstacle(sidecar: FakeSidecar) -> None:
    """What people want by now cannot be known then."""
    gate, question = await asked(sidecar, Action.PLAN, ())
    sidecar.cluster.store.suspend(sidecar.coordination)
    found = await gate.check_anew(question)
    assert found is not None and found.code is Code.STORE_UNAVAILABLE


async def test_what_is_demanded_is_refused_with_the_way_out(sidecar: FakeSidecar) -> None:
    """Whoever asks reads how to lift it."""
    gate, question = await asked(sidecar, Action.SUBMISSION, {Check.MODE})
    with pytest.raises(Forbidden, match=r"lowered from act; `bundlekeel mode act` restores it"):
        gate.demand(question)
    gate, question = await asked(sidecar, Action.SUBMISSION, {Check.PAUSE})
    with pytest.raises(Forbidden, match="`bundlekeel resume`") as caught:
        gate.demand(question)
    assert EXPLANATIONS[Code.PAUSED] in str(caught.value)
