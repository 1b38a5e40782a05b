"""Thresholds over settings that are not known yet, or are others meanwhile."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from pydantic import TypeAdapter

from bundlekeel.adapters.metrics import PrometheusTelemetry
from bundlekeel.daemon.answers.proposal import ProposalView
from bundlekeel.daemon.calibration.threshold_inbox import ThresholdInbox
from bundlekeel.ports.history import FoundDocument
from bundlekeel.settings.parameters import MergedParameters
from tests.support.memory_calibration import MemoryCalibration
from tests.support.threshold_cases import as_bytes, document, proposed
from tests.support.world import FakeCluster, WallClock
from tests.unit.daemon.calibration.test_calibration import LOW, NEXT, PATH, TRIAL_SECONDS, Calibrated, proposal, ready


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
    view = sidecar.calibration.view()
    assert view.sentence.startswith("the newest proposal does not come into force: OtherValues")
    assert sidecar.metric("thresholds_on_trial").endswith(" 0.0")
    sidecar.clock.offset += 20 * 3600
    store.put(NEXT, proposal(sidecar, parameters={LOW: proposed(15.0, 12.5)}))
    await sidecar.calibration.check()
    assert sidecar.told() == ["adopted", "adopted"]


async def test_the_proposal_is_shown_with_the_fields_that_the_api_documents() -> None:
    """All of them and no other, to the last interval: answers pass on what the codec of the document makes."""
    sidecar = await ready(MemoryCalibration())
    await sidecar.calibration.check()
    shown, kind = sidecar.calibration.view().document, TypeAdapter(ProposalView)
    assert kind.dump_python(kind.validate_python(shown)) == shown


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
