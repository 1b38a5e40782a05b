"""Calibrated thresholds for API and CLI tests: answers as `views_thresholds` documents them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bundlekeel.core.model.codes import EXPLANATIONS, Code
from bundlekeel.daemon.answers_thresholds import Json, ThresholdsService
from tests.support.threshold_cases import NOW_MS, document

DIGEST = "94fe0fdfef36d278"
TRIAL = {
    "seconds": 1800.0,
    "needed_seconds": 21_600.0,
    "imbalance": 0.11,
    "imbalance_promised": 0.132,
    "imbalance_before": None,
    "moves_per_hour": 4.0,
    "moves_promised": 4.4,
    "moves_before": None,
}


class FakeThresholds:
    """Implements `ThresholdsService`. `empty`: nothing was ever proposed."""

    def __init__(self, called: Callable[[str, Any], None]) -> None:
        self._called = called
        self.empty = False

    def view(self) -> Json:
        """A proposal that went too far, one on trial, one reverted."""
        self._called("thresholds", None)
        shown: Json = {"mode": "recommend", "error": "", "read_ms": NOW_MS, "changes": [], "objections": []}
        if self.empty:
            sentence = "there is no proposal yet"
            return shown | {"sentence": sentence, "document": None, "adopted": None, "reverted": []}
        made = document()
        del made["parameters"]
        named = {"values": {"avg_low_threshold_percent": 20.0}, "previous": {"avg_low_threshold_percent": 15.0}}
        who = {"by": "ann", "reason": "looks right", "since_ms": NOW_MS}
        return shown | {
            "sentence": "the newest proposal does not come into force: StepTooLarge",
            "document": made | named | {"digest": DIGEST, "path": "2026-09-15/thresholds.json"},
            "changes": [self._change()],
            "objections": [
                {
                    "code": Code.STEP_TOO_LARGE.value,
                    "field": "parameters.avg_low_threshold_percent.value",
                    "detail": "5 steps",
                    "explanation": EXPLANATIONS[Code.STEP_TOO_LARGE],
                }
            ],
            "adopted": {
                "digest": "5f0c3a1be2d4977a",
                "strategy": "avg",
                "values": {"avg_hit_count_low": 6},
                "instead_of": {"avg_hit_count_low": 8},
                **who,
                "state": "trial",
                "trial": TRIAL,
            },
            "reverted": [{"digest": "00c3a1be2d4977aa", **who}],
        }

    def _change(self) -> Json:
        return {
            "parameter": "avg_low_threshold_percent",
            "current": 7.5,
            "proposed": 20.0,
            "steps": 5.0,
            "evidence": "fewer moves at equal imbalance",
        }

    async def adopt(self, *, digest: str | None, force: bool, reason: str, by: str) -> Json:
        """Done."""
        self._called("adopt_thresholds", (digest, force, reason, by))
        return {"digest": DIGEST, "changes": [self._change()], "sentence": f"{by} adopted {DIGEST}"}

    async def revert(self, *, reason: str, by: str) -> Json:
        """Done."""
        self._called("revert_thresholds", (reason, by))
        return {"digest": DIGEST, "sentence": f"{by} reverted {DIGEST}: {reason}"}


_: type[ThresholdsService] = FakeThresholds
