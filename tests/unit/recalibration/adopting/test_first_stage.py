"""The first stage of a trial: some namespaces use adopted thresholds, and are compared with all others at that time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from bundlekeel.leader.cycle.plan_responses import PlanRequest
from bundlekeel.leader.state.adopted_thresholds import FirstStage, Realised
from bundlekeel.model.codes import Code
from bundlekeel.planning.trial import TrialParameters
from bundlekeel.recalibration.rules.adoption import (
    StageCycle,
    adopted_values,
    adoption,
    before_and_after,
    judged,
    noted,
    one_back,
    trial_values,
    unjudged,
    widened,
)
from bundlekeel.recalibration.rules.thresholds_json import thresholds_of
from tests.support.builders import bundle_name
from tests.support.memory_calibration import MemoryCalibration
from tests.support.threshold_cases import NOW_MS, document, proposed
from tests.support.world import BROKERS, PATIENT, FakeCluster, WallClock
from tests.unit.recalibration.adopting.test_calibration import LOW, NEXT, TRIAL_SECONDS, Calibrated, proposal, ready
from tests.unit.recalibration.test_adoption import BASE, HITS, adopt

TRIED = ("u/ns",)
PRICE = "move_price"
# Nothing moves at the price in the settings, and everything at the proposed one, in spite of its evidence.
CHEAP = {PRICE: proposed(10.0, PATIENT.move_price)}


def two_namespaces() -> FakeCluster:
    """All bundles are on one broker, as many of either namespace."""
    cluster = FakeCluster({BROKERS[0]: [0.1, 0.1, 0.1]}, clock=WallClock())
    for number in range(3):
        name = bundle_name(number, "u/ns")
        cluster.shares[name] = 0.1
        cluster.model.add(name, BROKERS[0], f"persistent://u/ns/topic-{number}")
    cluster.publish()
    return cluster


async def staged(store: MemoryCalibration, cluster: FakeCluster | None = None, **more: Any) -> Calibrated:
    """A leader that adopted a proposal for one of two namespaces."""
    sidecar = await ready(store, cluster or two_namespaces(), params=PATIENT, trial_namespaces=TRIED, **more)
    sidecar.proposed.put(NEXT, proposal(sidecar, parameters=CHEAP))
    await sidecar.calibration.adopt(digest=None, force=True, reason="bad idea", by="ann")
    return sidecar


async def live(sidecar: Calibrated, minutes: int) -> set[str]:
    """Run one cycle a minute; return the namespaces whose bundles have moved."""
    for _ in range(minutes):
        sidecar.clock.offset += 60
        sidecar.cluster.publish()
        await sidecar.cycle.turn()
    return {name.rpartition("/")[0] for name, owner in sidecar.cluster.owners().items() if owner != BROKERS[0]}


async def test_a_bad_proposal_moves_only_the_namespace_of_its_trial_and_is_reverted() -> None:
    sidecar = await staged(MemoryCalibration())
    view = (await sidecar.calibration.view()).adopted
    assert (view.namespaces, view.values, view.state) == (["u/ns"], {PRICE: 10.0}, "trial")
    assert sidecar.cycle.params.move_price == PATIENT.move_price
    assert await live(sidecar, 20) == {"u/ns"}
    await sidecar.calibration.check()
    adopted, reverted = sidecar.journal.tail(10, kind="adoption")[:2]
    assert adopted["sentence"] == f"ann adopted {adopted['version']}: {PRICE} 1e+09 -> 10, first in u/ns (bad idea)"
    assert reverted["what"] == "reverted" and "moves an hour, predicted at most 2.2" in reverted["sentence"]
    assert "other namespaces: 0.0" in reverted["sentence"]
    assert sidecar.effective_parameters.trial is None
    assert sidecar.metric("thresholds_first_stage").endswith(" 0.0")
    assert await live(sidecar, 5) == {"u/ns"}
    assert sidecar.effective_parameters.current.move_price == PATIENT.move_price


async def test_with_compat_there_is_no_first_stage() -> None:
    """Pulsar's classes cannot use other values in some namespaces, so such a stage would never end."""
    compat = replace(PATIENT, compat="4.2", placement="avg")
    sidecar = await ready(MemoryCalibration(), two_namespaces(), params=compat, trial_namespaces=TRIED)
    sidecar.proposed.put(NEXT, proposal(sidecar, parameters=CHEAP))
    await sidecar.calibration.adopt(digest=None, force=True, reason="r", by="ann")
    assert (await sidecar.calibration.view()).adopted.namespaces == []
    assert "first in" not in sidecar.journal.tail(1, kind="adoption")[0]["sentence"]


async def test_plans_of_operators_follow_the_stage_unless_they_set_parameters() -> None:
    sidecar = await staged(MemoryCalibration())
    await sidecar.cycle.turn()
    plain = await sidecar.planner.make(PlanRequest())
    assert "on trial in u/ns: " in plain.verdict.sentence
    eager = await sidecar.planner.make(PlanRequest(parameters={PRICE: 0}))
    assert {move.bundle.rpartition("/")[0] for move in eager.moves} == {"t/ns", "u/ns"}
    assert "on trial" not in eager.verdict.sentence


async def test_another_leader_continues_the_first_stage() -> None:
    """And followers plan with it, too."""
    store, cluster = MemoryCalibration(), two_namespaces()
    first = await staged(store, cluster)
    await live(first, 5)
    sums = first.shared_state.realised.first_stage
    await first.leadership.stop()
    second = await Calibrated(cluster, store, "b", params=PATIENT, trial_namespaces=()).lead()
    assert second.shared_state.realised.first_stage == sums and sums.seconds > 200
    await second.cycle.turn()
    await second.calibration.check()
    assert second.effective_parameters.trial == TrialParameters(namespaces=TRIED, values={PRICE: 10.0})
    assert second.metric("thresholds_first_stage").endswith(" 1.0")


async def test_a_stage_as_good_as_predicted_is_widened_and_then_kept() -> None:
    sidecar = await staged(MemoryCalibration())
    adopted = sidecar.shared_state.desired.adopted
    assert adopted is not None

    def record(seconds: float, moves: int, other_moves: int) -> None:
        sums = FirstStage(since_ms=adopted.since_ms, seconds=seconds, share=seconds / 2, moves=moves)
        sums = replace(sums, other_moves=other_moves)
        sidecar.shared_state.realised = replace(sidecar.shared_state.realised, first_stage=sums)

    record(TRIAL_SECONDS, 0, 0)
    await sidecar.calibration.check()
    trial = (await sidecar.calibration.view()).adopted.trial
    assert trial.unjudged.startswith("no bundle of these namespaces has moved") and sidecar.told()[-1] != "widened"
    record(TRIAL_SECONDS, 2, 9)
    await sidecar.service.pause(seconds=None, reason="r", by="ann")
    await sidecar.calibration.check()
    assert sidecar.told()[-1] != "widened"
    await sidecar.service.resume(reason="r", by="ann")
    await sidecar.calibration.check()
    entry = next(item for item in sidecar.journal.tail(10, kind="adoption") if item["what"] == "widened")
    assert entry["code"] == "ThresholdsWidened" and "after a first stage in u/ns" in entry["sentence"]
    assert sidecar.effective_parameters.current.move_price == 10.0
    view = (await sidecar.calibration.view()).adopted
    assert (view.namespaces, view.state, view.trial.seconds) == ([], "trial", 0.0)
    sidecar.live_on(2 * TRIAL_SECONDS, 0.10)
    await sidecar.calibration.check()
    assert [what for what in sidecar.told() if what != "refused"][-2:] == ["widened", "kept"]


async def test_an_operator_widens_a_stage_or_skips_it() -> None:
    sidecar = await staged(MemoryCalibration())
    first = await sidecar.calibration.view()
    assert first.sentence == "the newest proposal is in force in u/ns, on trial"
    assert [item.code for item in first.objections] == [Code.NOTHING_NEW.value]
    result = await sidecar.calibration.adopt(
        digest=first.adopted.digest, force=False, reason="sure", by="bob", everywhere=True
    )
    assert result.sentence.startswith(f"bob adopted {result.digest} in all namespaces (sure). Once adopted")
    assert sidecar.effective_parameters.values == {PRICE: 10.0} and sidecar.effective_parameters.trial is None
    await sidecar.calibration.revert(digest=None, reason="no", by="bob")
    await sidecar.calibration.adopt(digest=None, force=True, reason="yes", by="bob", everywhere=True)
    assert sidecar.effective_parameters.values == {PRICE: 10.0}


async def test_a_first_stage_ends_with_another_adoption() -> None:
    """Its values are not carried over, because most namespaces never used them."""
    store = MemoryCalibration()
    sidecar = await staged(store)
    store.put(NEXT, proposal(sidecar, parameters={LOW: proposed(20.0, 15.0)}))
    await sidecar.cycle.turn()
    result = await sidecar.calibration.adopt(digest=None, force=False, reason="b", by="ann")
    assert "ends without a result. Once" in result.sentence
    trial = sidecar.effective_parameters.trial
    assert trial is not None and trial.values == {LOW: 20.0}


async def test_after_an_operators_revert_nothing_is_adopted_for_thirty_days_by_any_leader() -> None:
    """Neither after a restart, nor if a later night proposes the same values in another document."""
    store, cluster = MemoryCalibration(), two_namespaces()
    sidecar = await staged(store, cluster)
    await sidecar.calibration.revert(digest=None, reason="no", by="ann")
    await sidecar.leadership.stop()
    for name, days, code in (("b", 1.0, "Reverted"), ("c", 28.9, "Reverted"), ("d", 0.2, "")):
        cluster.clock.offset += days * 86_400
        restarted = await Calibrated(cluster, store, name, params=PATIENT, trial_namespaces=TRIED).lead()
        cluster.publish()
        await restarted.cycle.turn()
        restarted.calibration.rules = replace(restarted.calibration.rules, max_steps=100.0)
        store.put(f"2026-10-{name}T020000Z/thresholds.json", proposal(restarted, parameters=CHEAP, software=name))
        await restarted.calibration.check()
        assert restarted.told() == (["refused"] if code else ["adopted"])
        assert code in (*await restarted.codes(), "")
        await restarted.leadership.stop()
        await restarted.coordination.close()


# --- rules ---


def stage(cycles: Mapping[str, float], moves: int = 0, other_moves: int = 0, hours: float = 1.0) -> Realised:
    """One cycle a minute with the same results, and all moves in the first one."""
    realised, values = Realised(), {"share": 0.25, "imbalance": 0.1, "other_imbalance": 0.1} | cycles
    for minute in range(int(60 * hours) + 1):
        cycle = StageCycle(since_ms=NOW_MS, moves=0 if minute else moves, **values)
        total = 0 if minute else moves + other_moves
        realised = noted(realised, NOW_MS + 60_000 * minute, 0.1, total, stage=cycle)
    return realised


ADOPTED = replace(adopt({LOW: 20.0}), namespaces=TRIED, imbalance_high=0.12, moves_high=8.0)


@pytest.mark.parametrize(
    ("realised", "worse"),
    [
        (stage({}, hours=0.2, moves=9), None),
        (stage({}, hours=0.3, moves=9), True),
        # A quarter of the traffic may cause two moves an hour, and by chance twice as many.
        (stage({}, moves=4), False),
        (stage({}, moves=5), True),
        (stage({}, moves=5, other_moves=15), False),
        (stage({}, moves=5, other_moves=14), True),
        (stage({"imbalance": 0.2}, moves=1), True),
        (stage({"imbalance": 0.2, "other_imbalance": 0.2}, moves=1), False),
        (stage({"imbalance": 0.11, "other_imbalance": 0.0}, moves=1), False),
        (stage({"share": 1.0, "imbalance": 0.2}, moves=1), True),
        (stage({"share": 1.0}, moves=9), False),
        (stage({}), None),
        (stage({}, other_moves=9), False),
        (stage({}, other_moves=8), None),
        (stage({"imbalance": 0.2}), True),
        (Realised(), None),
    ],
)
def test_worse_is_beyond_the_promise_and_beyond_the_other_namespaces(realised: Realised, worse: bool | None) -> None:
    stored = msgspec.json.decode(msgspec.json.encode(realised), type=Realised)
    verdict = judged(ADOPTED, *before_and_after(stored, ADOPTED, NOW_MS))
    assert (verdict.worse if verdict is not None else None) is worse


def test_a_stage_without_moves_says_that_it_cannot_be_judged() -> None:
    assert "has moved" in unjudged(ADOPTED, *before_and_after(stage({}), ADOPTED, NOW_MS))
    assert "no traffic" in unjudged(ADOPTED, *before_and_after(stage({"share": 0.0}), ADOPTED, NOW_MS))
    assert not unjudged(ADOPTED, *before_and_after(stage({}, hours=0.5), ADOPTED, NOW_MS))
    assert not unjudged(ADOPTED, *before_and_after(stage({}, moves=1), ADOPTED, NOW_MS))


def test_results_of_another_adoption_do_not_count() -> None:
    later = replace(ADOPTED, since_ms=NOW_MS + 1)
    before, after = before_and_after(stage({}, moves=99), later, NOW_MS)
    assert (before.seconds, after.seconds) == (0.0, 0.0)
    cycle = StageCycle(since_ms=later.since_ms, share=0.5, imbalance=0.3, other_imbalance=0.1, moves=1)
    sums = noted(stage({}, moves=99), NOW_MS + 3_660_000, 0.1, 1, stage=cycle).first_stage
    assert (sums.seconds, sums.moves, sums.other_moves) == (60.0, 1, 0)


def test_only_the_namespaces_of_the_stage_use_the_values() -> None:
    """All others use the values of earlier nights, to which a revert returns."""
    kept = replace(adopt({HITS: 6}), state="kept")
    first = replace(adopt({LOW: 20.0}, kept, "d2"), namespaces=TRIED)
    assert adopted_values(BASE, first) == {HITS: 6}
    assert trial_values(BASE, first) == TrialParameters(namespaces=TRIED, values={HITS: 6, LOW: 20.0})
    assert trial_values(replace(BASE, strategy="transfer"), first) is None and trial_values(BASE, kept) is None
    every = widened(first, by="ann", reason="r", now_ms=NOW_MS + 1)
    # The trial is compared with the time before the first stage.
    assert (every.since_ms, every.compared_ms) == (NOW_MS + 1, first.since_ms)
    assert adopted_values(BASE, every) == {HITS: 6, LOW: 20.0} and trial_values(BASE, every) is None
    for adopted in (first, every):
        back = one_back(adopted, by="ann", reason="r", now_ms=NOW_MS)
        assert back is not None and (back.digest, adopted_values(BASE, back)) == ("d1", {HITS: 6})


def test_an_adoption_that_replaces_a_first_stage_returns_to_the_one_before() -> None:
    kept = replace(adopt({HITS: 6}), state="kept")
    first = replace(adopt({LOW: 20.0}, kept, "d2"), namespaces=TRIED)
    second = adoption(
        thresholds_of(document(parameters={PRICE: proposed(90.0, 100.0)})),
        "d3",
        base=BASE,
        now=first,
        by="ann",
        reason="r",
        now_ms=NOW_MS,
        trial_seconds=3600.0,
    )
    assert adopted_values(BASE, second) == {HITS: 6, PRICE: 90.0} and second.unjudged == ()
    back = one_back(second, by="ann", reason="r", now_ms=NOW_MS)
    assert back is not None and (back.digest, back.namespaces, dict(back.values)) == ("d1", (), {HITS: 6})
