"""Thresholds of the nightly job in a whole sidecar over fakes: shown, adopted, monitored, reverted, stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from bundlekeel.leader.cycle.plan_responses import PlanRequest
from bundlekeel.leader.state.documents import Pause
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import Conflict, Forbidden, NotFound, SnapshotError
from bundlekeel.model.parameters import Parameters
from bundlekeel.recalibration.rules.adoption import noted
from bundlekeel.settings.load import LoadedSettings
from bundlekeel.wiring.outside import Outside
from tests.support.memory_calibration import MemoryCalibration
from tests.support.threshold_cases import as_bytes, document, measures, proposed
from tests.support.world import FakeCluster, FakeSidecar, WallClock

LOW = "avg_low_threshold_percent"
PATH = "2026-09-15T020000Z/thresholds.json"
NEXT = "2026-09-16T020000Z/thresholds.json"
TRIAL_SECONDS = 3600.0


class Calibrated(FakeSidecar):
    """With calibration. A few bundles on one broker of three: there is always something to balance."""

    def __init__(
        self,
        cluster: FakeCluster,
        store: MemoryCalibration,
        name: str = "a",
        *,
        calibration: str = "adopt",
        mode: str = "act",
        params: Parameters | None = None,
        trial_namespaces: Sequence[str] = (),
    ) -> None:
        self.proposed = store
        options = {"mode": calibration, "uri": "memory", "trial": TRIAL_SECONDS, "trial_namespaces": trial_namespaces}
        settings = {"cycle.interval": 10.0, "calibration": options}
        super().__init__(cluster, name, mode=mode, params=params or Parameters(), settings=settings)

    def reached(self, loaded: LoadedSettings) -> Outside:
        """With its own store of proposals."""
        out = super().reached(loaded)
        return replace(out, adapters={**out.adapters, "recalibration": lambda: lambda: self.proposed})

    def told(self) -> list[str]:
        return [item["what"] for item in self.journal.tail(100, kind="adoption")]

    async def codes(self) -> list[str]:
        """Objections as people see them."""
        return [item.code for item in (await self.calibration.view()).objections]

    def live_on(self, seconds: float, imbalance: float, moves: int = 0) -> None:
        """Let time pass with this imbalance, as cycles would note it."""
        for number in range(int(seconds / 60)):
            self.clock.offset += 60
            now = self.clock.wall_ms()
            self.shared_state.realised = noted(self.shared_state.realised, now, imbalance, moves if number == 0 else 0)


def proposal(sidecar: FakeSidecar, **changes: Any) -> bytes:
    """A good one, now."""
    return as_bytes(document(sidecar.clock.wall_ms(), **changes))


async def ready(store: MemoryCalibration, cluster: FakeCluster | None = None, **more: Any) -> Calibrated:
    """A leader that has had a cycle, and a good proposal."""
    sidecar = Calibrated(cluster or FakeCluster(clock=WallClock()), store, **more)
    await sidecar.lead()
    await sidecar.cycle.turn()
    store.put(PATH, proposal(sidecar))
    return sidecar


async def test_recommended_is_only_shown() -> None:
    sidecar = await ready(MemoryCalibration(), calibration="recommend")
    await sidecar.calibration.check()
    await sidecar.calibration.check()
    view = await sidecar.calibration.view()
    adopt = f'`bundlekeel thresholds adopt --digest {view.document["digest"]} --reason "..."`'
    assert view.sentence == f"proposed: {LOW} 15 -> 20; {adopt}"
    assert [(row.parameter, row.current, row.proposed) for row in view.changes] == [(LOW, 15.0, 20.0)]
    assert view.document["path"] == PATH and view.document["data"]["cycles"] == 100_000
    assert (view.objections, view.adopted, sidecar.told()) == ([], None, ["recommended"])
    await sidecar.cycle.turn()
    assert sidecar.cycle.params.avg_low_threshold_percent == 15.0
    assert 0 < float(sidecar.metric("thresholds_age_seconds").split()[-1]) < 4000


async def test_a_proposal_that_never_comes_grows_old_too() -> None:
    sidecar = Calibrated(FakeCluster(clock=WallClock()), MemoryCalibration(), calibration="recommend")

    async def age(days: float) -> float:
        sidecar.clock.offset += days * 86_400
        await sidecar.calibration.check()
        return float(sidecar.metric("thresholds_age_seconds").split()[-1])

    assert [await age(0), await age(6.9)] == [0.0, 0.0]
    assert await age(3.2) == pytest.approx(3.1 * 86_400, rel=0.01)
    sidecar.proposed.put(PATH, proposal(sidecar))
    assert await age(0) < 4000


async def test_adopted_by_itself_and_in_every_plan() -> None:
    sidecar = await ready(MemoryCalibration())
    await sidecar.calibration.check()
    assert sidecar.told() == ["adopted"]
    await sidecar.cycle.turn()
    assert sidecar.cycle.params.avg_low_threshold_percent == 20.0
    request = PlanRequest(parameters={LOW: 12})
    assert (await sidecar.planner.make(request)).strategy == "avg"
    output = sidecar.effective_parameters.effective
    assert output.values == sidecar.cycle.params and output.origins[LOW] == "calibration"
    await sidecar.calibration.check()
    view = await sidecar.calibration.view()
    assert view.sentence == "the newest proposal is in force, on trial"
    assert view.adopted.values == {LOW: 20.0} and view.adopted.instead_of == {LOW: 15.0}
    assert view.adopted.by == "bundlekeel" and view.adopted.trial.imbalance_promised > 0.12
    assert sidecar.told() == ["adopted"]
    assert sidecar.metric("thresholds_on_trial").endswith(" 1.0")
    assert sidecar.metric("thresholds_in_force").endswith(" 1.0")


async def test_cycles_are_noted_while_we_balance() -> None:
    """Imbalance and moves of a leader that acts; nothing of one that only recommends."""
    sidecar = await ready(MemoryCalibration(), params=Parameters(move_price=0))
    sidecar.clock.offset += 10
    sidecar.cluster.publish()
    await sidecar.cycle.turn()
    (*_, last) = sidecar.shared_state.realised.buckets
    assert sum(bucket.moves for bucket in sidecar.shared_state.realised.buckets) == len(sidecar.moves()) > 0
    assert last.seconds > 5 and last.weighted > 0
    idle = await ready(MemoryCalibration(), mode="recommend")
    assert idle.shared_state.realised.buckets == ()


async def test_worse_than_promised_is_reverted_by_itself() -> None:
    """After a quarter of the trial, said with figures, and never adopted again."""
    store = MemoryCalibration()
    sidecar = await ready(store)
    sidecar.live_on(2 * TRIAL_SECONDS, 0.10)
    await sidecar.calibration.check()
    sidecar.live_on(TRIAL_SECONDS / 2, 0.30)
    await sidecar.calibration.check()
    assert sidecar.told() == ["adopted", "reverted", "refused"]
    reverted = sidecar.journal.tail(10, kind="adoption")[1]
    assert "max/mean 1.300" in reverted["sentence"] and "before: 1.100" in reverted["sentence"]
    await sidecar.cycle.turn()
    assert sidecar.cycle.params.avg_low_threshold_percent == 15.0
    await sidecar.calibration.check()
    assert (await sidecar.codes()) == [Code.REVERTED.value, Code.ON_PROBATION.value]
    assert (await sidecar.calibration.view()).adopted is None
    # The next night's job proposes the same values.
    sidecar.clock.offset += 86_400
    store.put(NEXT, proposal(sidecar))
    await sidecar.calibration.check()
    assert (await sidecar.codes()) == [Code.REVERTED.value] and "adopted" not in sidecar.told()[1:]
    sidecar.clock.offset += 3600
    good = {LOW: proposed(17.5, 15.0)}
    store.put("2026-09-17T020000Z/thresholds.json", proposal(sidecar, parameters=good))
    await sidecar.calibration.check()
    assert sidecar.told()[-1] == "adopted"


async def test_more_moves_than_promised_are_reverted() -> None:
    """Moves count as imbalance does."""
    sidecar = await ready(MemoryCalibration())
    await sidecar.calibration.check()
    sidecar.clock.offset += 700
    sidecar.live_on(TRIAL_SECONDS / 2, 0.10, moves=30)
    await sidecar.calibration.check()
    assert sidecar.told()[:2] == ["adopted", "reverted"]
    assert "moves an hour" in sidecar.journal.tail(10, kind="adoption")[1]["sentence"]


async def test_as_good_as_promised_is_kept() -> None:
    """When the trial is over; the next proposal may follow a night later."""
    store = MemoryCalibration()
    sidecar = await ready(store)
    await sidecar.calibration.check()
    sidecar.live_on(TRIAL_SECONDS / 2, 0.10)
    await sidecar.calibration.check()
    assert sidecar.told() == ["adopted"]
    sidecar.live_on(TRIAL_SECONDS, 0.10)
    await sidecar.calibration.check()
    assert sidecar.told() == ["adopted", "kept"]
    assert (await sidecar.calibration.view()).adopted.trial is None
    store.put(NEXT, proposal(sidecar, parameters={LOW: proposed(22.5, 20.0)}))
    await sidecar.calibration.check()
    assert (await sidecar.codes()) == [Code.ON_PROBATION.value]
    sidecar.clock.offset += 72_000
    await sidecar.calibration.check()
    assert sidecar.told() == ["adopted", "kept", "refused", "adopted"]
    await sidecar.cycle.turn()
    assert sidecar.cycle.params.avg_low_threshold_percent == 22.5
    second = (await sidecar.calibration.view()).adopted.digest
    reversion = await sidecar.calibration.revert(digest=second, reason="step by step", by="ann")
    await sidecar.cycle.turn()
    assert sidecar.cycle.params.avg_low_threshold_percent == 20.0
    left = (await sidecar.calibration.view()).adopted
    assert reversion.sentence == f"ann reverted {second}: step by step. In effect now: {left.digest}, {LOW} 20"
    assert (left.by, left.reason) == ("ann", f"{second} was reverted: step by step")
    # The answer was lost, and the same request comes again.
    with pytest.raises(Conflict, match="the adopted thresholds changed") as caught:
        await sidecar.calibration.revert(digest=second, reason="step by step", by="ann")
    assert caught.value.code == "changed" and sidecar.told()[-1:] == ["reverted"]
    reversion = await sidecar.calibration.revert(digest=None, reason="all of it", by="ann")
    assert reversion.sentence == f"ann reverted {left.digest}: all of it. In effect now: only the settings"


async def test_it_survives_a_change_of_leader() -> None:
    store, cluster = MemoryCalibration(), FakeCluster(clock=WallClock())
    first = await ready(store, cluster)
    await first.calibration.check()
    first.live_on(TRIAL_SECONDS / 2, 0.30)
    await first.cycle.turn()
    await first.leadership.stop()
    second = await Calibrated(cluster, store, "b").lead()
    assert second.shared_state.leading and second.shared_state.realised == first.shared_state.realised
    await second.cycle.turn()
    assert second.cycle.params.avg_low_threshold_percent == 20.0
    await second.calibration.check()
    assert second.told()[:1] == ["reverted"]
    await second.cycle.turn()
    assert second.cycle.params.avg_low_threshold_percent == 15.0
    await second.leadership.stop()
    third = await Calibrated(cluster, store, "c").lead()
    await third.cycle.turn()
    await third.calibration.check()
    assert third.told() == ["refused"]
    assert (await third.codes()) == [Code.REVERTED.value, Code.ON_PROBATION.value]


async def test_followers_plan_with_it_and_answer_alike() -> None:
    store, cluster = MemoryCalibration(), FakeCluster(clock=WallClock())
    leader = await ready(store, cluster)
    follower = await Calibrated(cluster, store, "b").lead()
    assert not follower.shared_state.leading
    await follower.cycle.turn()
    await follower.calibration.check()
    assert follower.told() == [] and follower.shared_state.desired.adopted is None
    await follower.calibration.adopt(digest=None, force=False, reason="looks right", by="ann")
    await leader.shared_state.refresh()
    await leader.cycle.turn()
    assert leader.cycle.params.avg_low_threshold_percent == 20.0
    for sidecar in (leader, follower):
        await sidecar.calibration.check()
    views = [(await sidecar.calibration.view()) for sidecar in (leader, follower)]
    for key in ("document", "changes", "objections", "reverted", "sentence"):
        assert getattr(views[0], key) == getattr(views[1], key)
    assert [view.adopted.by for view in views] == ["ann", "ann"]


WIDE = {LOW: proposed(40.0, 15.0)}
REFUSED: list[tuple[dict[str, Any], list[Code]]] = [
    ({"parameters": WIDE}, [Code.STEP_TOO_LARGE]),
    ({"parameters": {LOW: proposed(99.0, 15.0)}}, [Code.OUT_OF_RANGE]),
    ({"parameters": {"nobody": proposed(20.0, 15.0)}}, [Code.UNKNOWN_PARAMETER]),
    ({"parameters": {LOW: proposed(20.0, 10.0)}}, [Code.OTHER_VALUES]),
    ({"parameters": {LOW: proposed(15.0, 15.0)}}, [Code.NOTHING_NEW]),
    ({"created_ms": 1_600_000_000_000}, [Code.TOO_OLD]),
    ({"created_ms": 4_000_000_000_000}, [Code.IMPLAUSIBLE]),
    ({"strategy": "transfer"}, [Code.OTHER_STRATEGY]),
    ({"format": 2}, [Code.FUTURE_FORMAT]),
    ({"format": "x"}, [Code.WRONG_TYPE]),
    ({"data": document()["data"] | {"days": ["2026-09-01"]}}, [Code.TOO_OLD, Code.TOO_LITTLE_HISTORY]),
    (
        {"data": document()["data"] | {"coverage": 0.2, "until_ms": 1_900_000_000_000}},
        [Code.IMPLAUSIBLE, Code.POOR_COVERAGE],
    ),
    ({"evidence": document()["evidence"] | {"difference": measures(0.1, -2.0)}}, [Code.NOT_BETTER]),
]


@pytest.mark.parametrize(("changes", "codes"), REFUSED, ids=lambda item: str(item)[:40])
async def test_refused_with_its_reason(changes: dict[str, Any], codes: list[Code]) -> None:
    """Not adopted, shown and written down once, counted; a person gets the same answer."""
    store = MemoryCalibration()
    sidecar = await ready(store)
    store.put(PATH, proposal(sidecar, **changes))
    await sidecar.calibration.check()
    await sidecar.calibration.check()
    assert set(await sidecar.codes()) == {code.value for code in codes}
    assert sidecar.told() == ["refused"] and sidecar.shared_state.desired.adopted is None
    assert all(
        f'thresholds_objections{{code="{code.value}"}} 1.0' in sidecar.metric("thresholds_obj") for code in codes
    )
    with pytest.raises(Conflict) as caught:
        await sidecar.calibration.adopt(digest=None, force=False, reason="r", by="ann")
    assert [line.partition(":")[0] for line in caught.value.difference] == [code.value for code in codes]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"parameters": WIDE}, ("StepTooLarge", "force")), ({"strategy": "uniform"}, ("OtherStrategy", "no"))],
)
async def test_each_objection_says_whether_a_person_can_adopt_it(
    changes: dict[str, Any], reason: tuple[str, str]
) -> None:
    """With `force`, not at all, or without it where only the leader does nothing by itself."""
    store = MemoryCalibration()
    sidecar = await ready(store, mode="recommend")
    store.put(PATH, proposal(sidecar, **changes))
    await sidecar.calibration.check()
    objections = [(item.code, item.person) for item in (await sidecar.calibration.view()).objections]
    assert objections == [reason, ("RecommendOnly", "yes")]


async def test_a_person_may_override_what_is_a_matter_of_judgement() -> None:
    store = MemoryCalibration()
    sidecar = await ready(store, calibration="recommend")
    store.put(PATH, proposal(sidecar, parameters=WIDE))
    with pytest.raises(Conflict, match=r"the newest proposal is \w{16}, not 0123"):
        await sidecar.calibration.adopt(digest="0123", force=True, reason="r", by="ann")
    adopted = await sidecar.calibration.adopt(digest=None, force=True, reason="I know", by="ann")
    assert (
        "reverted automatically if" in adopted.sentence and "`bundlekeel thresholds revert --reason" in adopted.sentence
    )
    assert adopted.changes[0].proposed == 40.0 and sidecar.told() == ["adopted"]
    await sidecar.calibration.revert(digest=None, reason="I did not", by="ann")
    with pytest.raises(Conflict) as caught:
        await sidecar.calibration.adopt(digest=None, force=False, reason="r", by="ann")
    assert caught.value.difference[0].startswith("Reverted: by ann: I did not")
    await sidecar.calibration.adopt(digest=adopted.digest, force=True, reason="I do", by="ann")
    await sidecar.calibration.revert(digest=None, reason="enough", by="ann")
    store.put(NEXT, proposal(sidecar, strategy="transfer"))
    with pytest.raises(Conflict, match="proposal is not adopted"):
        await sidecar.calibration.adopt(digest=None, force=True, reason="r", by="ann")


async def test_what_cannot_be_done_is_said() -> None:
    """Calibration off, no proposal, nothing adopted, no picture yet."""
    store = MemoryCalibration()
    off = await ready(store, calibration="off")
    assert (await off.calibration.view()).sentence == "calibration is off (calibration.mode)"
    with pytest.raises(Forbidden, match=r"calibration\.mode is off"):
        await off.calibration.adopt(digest=None, force=False, reason="r", by="ann")
    with pytest.raises(Forbidden, match=r"calibration\.mode is off"):
        await off.calibration.revert(digest=None, reason="r", by="ann")
    sidecar = await ready(store, calibration="recommend")
    with pytest.raises(NotFound, match="no thresholds are adopted"):
        await sidecar.calibration.revert(digest="0123", reason="r", by="ann")
    store.held.clear()
    with pytest.raises(NotFound, match="there is no proposal"):
        await sidecar.calibration.adopt(digest=None, force=False, reason="r", by="ann")
    await sidecar.calibration.check()
    assert (await sidecar.calibration.view()).sentence == "there is no proposal yet"
    blind = await Calibrated(FakeCluster(clock=WallClock()), store, calibration="recommend").lead()
    with pytest.raises(SnapshotError):
        await blind.calibration.adopt(digest=None, force=False, reason="r", by="ann")


@pytest.mark.parametrize(
    ("mode", "code"), [("recommend", "RecommendOnly"), ("observe", "ObserveOnly"), ("act", "Paused")]
)
async def test_nothing_is_adopted_where_nothing_is_carried_out(mode: str, code: str) -> None:
    sidecar = await ready(MemoryCalibration(), mode=mode)
    paused = Pause(reason="an incident", by="ann", since_ms=0) if mode == "act" else None
    await sidecar.shared_state.change_desired(lambda result: msgspec.structs.replace(result, pause=paused))
    await sidecar.calibration.check()
    assert ((await sidecar.codes()), sidecar.told()) == ([code], ["refused"])
    await sidecar.calibration.adopt(digest=None, force=False, reason="I look", by="ann")
    await sidecar.cycle.turn()
    assert sidecar.cycle.params.avg_low_threshold_percent == 20.0


async def test_a_store_that_does_not_answer_changes_nothing() -> None:
    store = MemoryCalibration()
    sidecar = await ready(store)
    await sidecar.calibration.check()
    store.away = True
    sidecar.live_on(TRIAL_SECONDS / 2, 0.30)
    await sidecar.calibration.check()
    view = await sidecar.calibration.view()
    assert view.error == "the store of calibrations does not answer" and view.document is not None
    assert sidecar.told()[:2] == ["adopted", "reverted"]
    assert sidecar.metric("thresholds_store_errors_total").endswith(" 1.0")
    store.away = False
    await sidecar.calibration.check()
    assert (await sidecar.calibration.view()).error == ""


async def test_a_setting_changed_manually_goes_first() -> None:
    """The value adopted over the old one is out of force, and the view says so."""
    store, cluster = MemoryCalibration(), FakeCluster(clock=WallClock())
    first = await ready(store, cluster)
    await first.calibration.check()
    await first.leadership.stop()
    second = await Calibrated(cluster, store, "b", params=Parameters(avg_low_threshold_percent=10.0)).lead()
    await second.cycle.turn()
    assert second.cycle.params.avg_low_threshold_percent == 10.0
    assert (await second.calibration.view()).adopted.values == {}


async def test_somebody_was_faster() -> None:
    """Two replicas adopt at once: one does, the other one says that it changed."""
    store, cluster = MemoryCalibration(), FakeCluster(clock=WallClock())
    leader = await ready(store, cluster)
    follower = await Calibrated(cluster, store, "b").lead()
    await follower.cycle.turn()
    await follower.calibration.adopt(digest=None, force=False, reason="r", by="ann")
    with pytest.raises(Conflict, match="try again"):
        await leader.calibration.adopt(digest=None, force=False, reason="r", by="bob")
    assert leader.told() == []
    # The leader's own change gives way without a word in the journal.
    await leader.calibration.check()
    assert leader.told() == []


async def test_defaults_differ_from_no_settings() -> None:
    """Without adoption the effective parameters are those of the settings."""
    sidecar = FakeSidecar(FakeCluster(clock=WallClock()), params=replace(Parameters(), move_price=60.0))
    assert sidecar.cycle.params is sidecar.effective_parameters.base
