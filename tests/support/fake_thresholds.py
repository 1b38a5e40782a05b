"""Calibrated thresholds for API and CLI tests: answers as `answers.operations` defines them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bundlekeel.core.calibration.adoption import WAY_BACK
from bundlekeel.core.calibration.thresholds_json import document_of, thresholds_of
from bundlekeel.core.model.codes import EXPLANATIONS, Code
from bundlekeel.daemon.answers.doc import Json
from bundlekeel.daemon.answers.operations import (
    AdoptedView,
    AdoptionView,
    ChangeView,
    ObjectionView,
    ReversionView,
    RevertedView,
    ThresholdsView,
    TrialView,
)
from bundlekeel.daemon.answers.service import ThresholdsService
from tests.support.threshold_cases import NOW_MS, document

DIGEST = "94fe0fdfef36d278"
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
    """Implements `ThresholdsService`. `empty`: nothing was ever proposed."""

    def __init__(self, called: Callable[[str, Any], None]) -> None:
        self._called = called
        self.empty = False

    def view(self) -> ThresholdsView:
        """A proposal that went too far, one on trial, one reverted."""
        self._called("thresholds", None)
        if self.empty:
            return EMPTY
        made = document_of(thresholds_of(document()))
        del made["parameters"]
        named = {"values": {"avg_low_threshold_percent": 20.0}, "previous": {"avg_low_threshold_percent": 7.5}}
        who: Json = {"by": "ann", "reason": "looks right", "since_ms": NOW_MS}
        return replace(
            EMPTY,
            sentence="the newest proposal does not come into force: StepTooLarge",
            document=made | named | {"digest": DIGEST, "path": "2026-09-15/thresholds.json"},
            changes=[self._change()],
            objections=[
                ObjectionView(
                    code=Code.STEP_TOO_LARGE.value,
                    field="parameters.avg_low_threshold_percent.value",
                    detail="5 steps",
                    explanation=EXPLANATIONS[Code.STEP_TOO_LARGE],
                    person="force",
                )
            ],
            adopted=AdoptedView(
                digest="5f0c3a1be2d4977a",
                strategy="avg",
                values={"avg_hit_count_low": 6},
                instead_of={"avg_hit_count_low": 8},
                **who,
                state="trial",
                trial=TRIAL,
            ),
            reverted=[RevertedView(digest="00c3a1be2d4977aa", **who)],
        )

    def _change(self) -> ChangeView:
        return ChangeView(
            parameter="avg_low_threshold_percent",
            current=7.5,
            proposed=20.0,
            steps=5.0,
            evidence="fewer moves at equal imbalance",
        )

    async def adopt(self, *, digest: str | None, force: bool, reason: str, by: str) -> AdoptionView:
        self._called("adopt_thresholds", (digest, force, reason, by))
        change = self._change()
        said = f"{change.parameter} {change.current:g} -> {change.proposed:g} ({reason}). {WAY_BACK}"
        return AdoptionView(digest=DIGEST, changes=[change], sentence=f"{by} adopted {DIGEST}: {said}")

    async def revert(self, *, digest: str | None, reason: str, by: str) -> ReversionView:
        self._called("revert_thresholds", (digest, reason, by))
        said = f"{by} reverted {DIGEST}: {reason}. In force now: the settings alone"
        return ReversionView(digest=DIGEST, sentence=said)


_: type[ThresholdsService] = FakeThresholds
