"""Thresholds over settings that are not known yet, or are others meanwhile."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from pydantic import TypeAdapter

from bundlekeel.model.codes import Code
from bundlekeel.recalibration.adopting.responses import ProposalView
from bundlekeel.recalibration.adopting.threshold_inbox import ThresholdInbox
from bundlekeel.recalibration.history.ports import FoundDocument
from bundlekeel.records.metrics import PrometheusTelemetry
from bundlekeel.settings.parameters import MergedParameters
from tests.support.memory_calibration import MemoryCalibration
from tests.support.threshold_cases import as_bytes, document, proposed
from tests.support.world import FakeCluster, WallClock
from tests.unit.recalibration.adopting.test_calibration import (
    LOW,
    NEXT,
    PATH,
    TRIAL_SECONDS,
    Calibrated,
    proposal,
    ready,
)


class Erring(MemoryCalibration):
    """Raises what no store should."""

    errs = True

    def newest(self) -> FoundDocument | None:
        """As long as it errs."""
        if self.errs:
            raise ValueError("theirs")
        return super().newest()


async def test_nothing_by_itself_before_the_cluster_is_seen() -> None:
    """A new leader does not know yet what the brokers run with: neither adopted nor refused."""
    store = MemoryCalibration()
    sidecar = Calibrated(FakeCluster(clock=WallClock()), store)
    await sidecar.lead()
    store.put(PATH, proposal(sidecar))
    await sidecar.calibration.check()
    assert sidecar.shared_state.desired.adopted is None and sidecar.told() == []
    await sidecar.cycle.turn()
    await sidecar.calibration.check()
    assert sidecar.told() == ["adopted"]


async def test_settings_of_people_are_not_judged_as_an_adoption() -> None:
    """Somebody changed the setting below: what was adopted is not in force, so nothing is reverted because of it, and
    no later proposal waits for its trial."""
    store = MemoryCalibration()
    sidecar = await ready(store)
    await sidecar.calibration.check()
    before = sidecar.effective_parameters.base
    sidecar.effective_parameters.merge = lambda _: MergedParameters(replace(before, avg_low_threshold_percent=12.5), {})
    await sidecar.cycle.turn()
    assert sidecar.cycle.params.avg_low_threshold_percent == 12.5
    sidecar.live_on(TRIAL_SECONDS, 0.9)
    await sidecar.calibration.check()
    assert sidecar.told() == ["adopted"] and sidecar.shared_state.desired.reverted == {}
    view = await sidecar.calibration.view()
    assert view.sentence.startswith("the newest proposal is not adopted: OtherValues")
    assert sidecar.metric("thresholds_on_trial").endswith(" 0.0")
    sidecar.clock.offset += 20 * 3600
    store.put(NEXT, proposal(sidecar, parameters={LOW: proposed(15.0, 12.5)}))
    await sidecar.calibration.check()
    assert sidecar.told() == ["adopted", "adopted"]


async def test_the_proposal_is_shown_with_the_fields_that_the_api_documents() -> None:
    """Responses contain all fields of the decoded document and no other, to the last interval."""
    sidecar = await ready(MemoryCalibration())
    await sidecar.calibration.check()
    shown, kind = (await sidecar.calibration.view()).document, TypeAdapter(ProposalView)
    assert kind.dump_python(kind.validate_python(shown), mode="json") == shown


async def test_a_trial_that_has_measured_nothing_says_so_and_why() -> None:
    """No figures, which would look like a perfect result, and what keeps the leader from balancing."""
    sidecar = await ready(MemoryCalibration(), mode="recommend")
    await sidecar.calibration.adopt(digest=None, force=False, reason="I look", by="ann")
    await sidecar.cycle.turn()
    trial = (await sidecar.calibration.view()).adopted.trial
    assert (trial.seconds, trial.imbalance, trial.moves_per_hour) == (0.0, None, None)
    assert trial.obstacle == "RecommendOnly"
    acting = await ready(MemoryCalibration())
    await acting.calibration.check()
    assert (await acting.calibration.view()).adopted.trial.obstacle == ""
    follower = await Calibrated(acting.cluster, MemoryCalibration(), "b", mode="recommend").lead()
    await follower.cycle.turn()
    assert (await follower.calibration.view()).adopted.trial.obstacle == ""


async def test_a_revert_brings_back_the_trial_that_a_second_adoption_ended() -> None:
    """Said when it ends and when it begins again; the leader then judges it as any other."""
    store = MemoryCalibration()
    sidecar = await ready(store, calibration="recommend")
    first = (await sidecar.calibration.adopt(digest=None, force=False, reason="a", by="ann")).digest
    sidecar.live_on(TRIAL_SECONDS / 2, 0.10)
    store.put(NEXT, proposal(sidecar, parameters={LOW: proposed(22.5, 20.0)}))
    await sidecar.cycle.turn()
    made = await sidecar.calibration.adopt(digest=None, force=False, reason="b", by="ann")
    ended = f"(b). The trial of {first} ends without a result; a revert starts it again. Once adopted"
    assert ended in made.sentence
    sidecar.live_on(TRIAL_SECONDS / 10, 0.10)
    said = (await sidecar.calibration.revert(digest=None, reason="c", by="ann")).sentence
    assert said.endswith(f"In effect now: {first}, {LOW} 20, on trial again, from the beginning")
    view = (await sidecar.calibration.view()).adopted
    assert (view.digest, view.state, view.trial.seconds) == (first, "trial", 0.0)
    sidecar.live_on(2 * TRIAL_SECONDS, 0.10)
    await sidecar.calibration.check()
    assert sidecar.told()[:4] == ["adopted", "adopted", "reverted", "kept"]
    assert (await sidecar.calibration.view()).adopted.state == "kept"


async def test_the_leader_adopts_nothing_after_a_person_reverted() -> None:
    """The next night brings other values, which nobody has refused yet: the revert would last for a night. So it is
    until a person adopts; then one a night again. A revert of what earlier nights adopted counts as well."""
    store = MemoryCalibration()
    sidecar = await ready(store)
    await sidecar.calibration.check()
    sidecar.clock.offset += 1800
    await sidecar.calibration.revert(digest=None, reason="clients complain", by="ann")
    await night(sidecar, 0.03, proposed(22.5, 15.0))
    assert (await sidecar.codes()) == [Code.ON_PROBATION.value]
    (found,) = (await sidecar.calibration.view()).objections
    assert found.person == "yes"
    assert found.detail == "a person reverted 0.0 days ago; until a person adopts, at most 30.0 days more"
    await night(sidecar, 29.0, proposed(17.5, 15.0))
    assert (await sidecar.codes()) == [Code.ON_PROBATION.value]
    assert [what for what in sidecar.told() if what != "refused"] == ["adopted", "reverted"]
    await sidecar.calibration.adopt(digest=None, force=False, reason="now", by="bob")
    sidecar.live_on(2 * TRIAL_SECONDS, 0.10)
    await night(sidecar, 1.0, proposed(20.0, 17.5))
    await night(sidecar, 0.0, proposed(20.0, 17.5))
    assert [what for what in sidecar.told() if what != "refused"][2:] == ["adopted", "kept", "adopted"]


async def test_the_leader_adopts_again_thirty_days_after_a_person_reverted() -> None:
    """As long as the reverted values are barred."""
    store = MemoryCalibration()
    sidecar = await ready(store)
    await sidecar.calibration.check()
    await sidecar.calibration.revert(digest=None, reason="no", by="ann")
    await night(sidecar, 29.9, proposed(17.5, 15.0))
    assert (await sidecar.codes()) == [Code.ON_PROBATION.value]
    await night(sidecar, 0.2, proposed(17.5, 15.0))
    assert sidecar.told()[-1] == "adopted"
    assert sidecar.shared_state.desired.person_reverted_ms > 0


async def test_a_night_is_counted_from_the_last_revert_too() -> None:
    """The leader's own, after which nothing is in force that would have a time: it adopted other values at once."""
    store = MemoryCalibration()
    sidecar = await ready(store)
    await sidecar.calibration.check()
    sidecar.live_on(TRIAL_SECONDS / 2, 0.30)
    await sidecar.calibration.check()
    assert sidecar.told()[:2] == ["adopted", "reverted"]
    await night(sidecar, 0.1, proposed(17.5, 15.0))
    assert (await sidecar.codes()) == [Code.ON_PROBATION.value]
    (found,) = (await sidecar.calibration.view()).objections
    assert found.detail == "the last adoption or revert was 2.4 h ago; one in 20 h"
    await night(sidecar, 0.8, proposed(17.5, 15.0))
    assert sidecar.told()[-1] == "adopted"


async def night(sidecar: Calibrated, days: float, low: dict[str, Any]) -> None:
    """So many days later the job proposes this low threshold."""
    sidecar.clock.offset += days * 86_400
    sidecar.proposed.put(PATH, proposal(sidecar, parameters={LOW: low}))
    await sidecar.cycle.turn()
    await sidecar.calibration.check()


async def test_a_restart_does_not_begin_anew_to_wait_for_the_first_proposal() -> None:
    """Sidecars that restart each week would never say that none has come. With `off` nobody waits."""
    cluster, store = FakeCluster(clock=WallClock()), MemoryCalibration()

    async def age(name: str, mode: str, days: float) -> float:
        cluster.clock.offset += days * 86_400
        sidecar = await Calibrated(cluster, store, name, calibration=mode).lead()
        await sidecar.cycle.turn()
        await sidecar.calibration.check()
        await sidecar.leadership.stop()
        await sidecar.coordination.close()
        return float(sidecar.metric("thresholds_age_seconds").split()[-1])

    assert await age("a", "recommend", 0) == 0.0
    assert await age("b", "recommend", 6) == 0.0
    assert await age("c", "recommend", 4) == pytest.approx(3 * 86_400, rel=0.01)
    assert await age("d", "off", 1) == 0.0
    assert await age("e", "recommend", 1) == 0.0


@pytest.mark.parametrize("torn", [b"", as_bytes(document(format=2))])
async def test_a_document_that_cannot_be_read_leaves_the_age_of_the_one_before(torn: bytes) -> None:
    """One torn night among good ones: the age was that of no proposal at all, thirteen days, and the alert fired."""
    store = MemoryCalibration()
    sidecar = await ready(store, calibration="recommend")

    async def age(days: float) -> float:
        sidecar.clock.offset += days * 86_400
        await sidecar.calibration.check()
        return float(sidecar.metric("thresholds_age_seconds").split()[-1])

    await age(20.0)
    store.put(PATH, proposal(sidecar))
    assert await age(0) < 4000
    store.put(NEXT, torn)
    assert await age(0) < 4000 and (await sidecar.calibration.view()).document is None
    assert await age(4.0) == pytest.approx(4 * 86_400 + 3600, rel=0.01)


async def test_a_mistake_in_a_read_is_not_remembered() -> None:
    """Whatever the store's library raised: the next read is a new one."""
    store = Erring()
    inbox = ThresholdInbox(lambda: store, PrometheusTelemetry(), WallClock())
    with pytest.raises(ValueError, match="theirs"):
        await inbox.read()
    store.errs = False
    store.put(PATH, as_bytes(document()))
    await asyncio.gather(inbox.read(), inbox.read())
    assert inbox.document is not None
    inbox.close()
