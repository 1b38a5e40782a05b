"""Calibrated thresholds for API and CLI tests: answers as `answers.operations` defines them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bundlekeel.model.codes import EXPLANATIONS, Code
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.response_fields import Json
from bundlekeel.recalibration.adopting.responses import (
    AdoptedView,
    AdoptionView,
    ObjectionView,
    ReversionView,
    RevertedView,
    ThresholdsView,
    TrialView,
)
from bundlekeel.recalibration.rules.thresholds import WAY_BACK, ThresholdChange, difference
from bundlekeel.recalibration.rules.thresholds_json import document_of, parsed, thresholds_of
from tests.support.threshold_cases import NOW_MS, as_bytes, document

# Digests of the newest proposal and of the thresholds in effect.
DIGEST = "94fe0fdfef36d278"
ADOPTED = "5f0c3a1be2d4977a"
TRIAL = TrialView(
    seconds=1800.0,
    needed_seconds=21_600.0,
    imbalance=0.11,
    imbalance_promised=0.132,
    imbalance_before=None,
    moves_per_hour=4.0,
    moves_promised=4.4,
    moves_before=None,
)

EMPTY = ThresholdsView(
    mode="recommend",
    sentence="there is no proposal yet",
    error="",
    read_ms=NOW_MS,
    document=None,
    changes=[],
    objections=[],
    adopted=None,
    reverted=[],
)


class FakeThresholds:
    """Thresholds in memory. `empty`: there is no proposal; `far`: the proposal changes too much."""

    def __init__(self, called: Callable[[str, Any], None]) -> None:
        self._called = called
        self.empty = self.far = False
        self.trial = TRIAL

    async def view(self) -> ThresholdsView:
        """A proposal, one adopted, one reverted."""
        self._called("thresholds", None)
        return EMPTY if self.empty else self._view()

    def _view(self) -> ThresholdsView:
        document_view, change = document_of(thresholds_of(document())), self._change()
        del document_view["parameters"]
        named = {"values": {change.parameter: change.proposed}, "previous": {change.parameter: change.current}}
        who: Json = {"by": "ann", "reason": "looks right", "since_ms": NOW_MS}
        objection = ObjectionView(
            code=Code.STEP_TOO_LARGE.value,
            field="parameters.avg_low_threshold_percent.value",
            detail="5 steps",
            explanation=EXPLANATIONS[Code.STEP_TOO_LARGE],
            person="force",
        )
        adopt = f'`bundlekeel thresholds adopt --digest {DIGEST} --reason "..."`'
        refused = "the newest proposal does not come into force: StepTooLarge"
        return replace(
            EMPTY,
            sentence=refused if self.far else f"proposed: {_text(change)}; {adopt}",
            document=document_view | named | {"digest": DIGEST, "path": "2026-09-21/thresholds.json"},
            changes=[change],
            objections=[objection] if self.far else [],
            adopted=AdoptedView(
                digest=ADOPTED,
                strategy="avg",
                values={"split_hit_count": 6},
                instead_of={"split_hit_count": 3},
                **who,
                state="trial",
                trial=self.trial,
            ),
            reverted=[RevertedView(digest="00c3a1be2d4977aa", **who)],
        )

    def _change(self) -> ThresholdChange:
        now = Parameters(avg_low_threshold_percent=7.5) if self.far else Parameters()
        (row,) = difference(now, parsed(as_bytes(document())))
        return row

    async def adopt(self, *, digest: str | None, force: bool, reason: str, by: str) -> AdoptionView:
        self._called("adopt_thresholds", (digest, force, reason, by))
        change = self._change()
        sentence = f"{by} adopted {DIGEST}: {_text(change)} ({reason}). {WAY_BACK}"
        return AdoptionView(digest=DIGEST, changes=[change], sentence=sentence)

    async def revert(self, *, digest: str | None, reason: str, by: str) -> ReversionView:
        self._called("revert_thresholds", (digest, reason, by))
        adopted = self._view().adopted
        old_digest = adopted.digest if adopted else ""
        sentence = f"{by} reverted {old_digest}: {reason}. In force now: the settings alone"
        return ReversionView(digest=old_digest, sentence=sentence)


def _text(change: ThresholdChange) -> str:
    return f"{change.parameter} {change.current:g} -> {change.proposed:g}"
