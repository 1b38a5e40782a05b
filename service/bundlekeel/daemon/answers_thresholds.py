"""What the API and the CLI may ask about calibrated thresholds. Every replica answers alike."""

from __future__ import annotations

from typing import Any, Protocol

Json = dict[str, Any]


class ThresholdsService(Protocol):
    """Proposals of the nightly job, and what is in force of them."""

    def view(self) -> Json:
        """{mode: off|recommend|adopt, sentence, error: why the store could not be read|"", read_ms, document: {digest,
        path, created_ms, software, strategy, values, previous, evidence, data, advice}|None, changes: [{parameter,
        current, proposed, steps, evidence}], objections: [{code, field, detail, explanation}], adopted: {digest,
        strategy, values: {parameter: value in force}, instead_of, by, reason, since_ms, state: trial|kept, trial:
        {seconds, needed_seconds, imbalance, imbalance_promised, imbalance_before, moves_per_hour, moves_promised,
        moves_before}|None}|None, reverted: [{digest, by, reason, since_ms}]}"""

    async def adopt(self, *, digest: str | None, force: bool, reason: str, by: str) -> Json:
        """Let the newest proposal come into force: {digest, changes, sentence}. Conflict with the objections, if there
        are any; `force` overrides those that are a matter of judgement. `digest`: only if it is still this one.
        NotFound without proposal, Forbidden when calibration is off."""

    async def revert(self, *, reason: str, by: str) -> Json:
        """Take the last adoption back: {digest, sentence}. NotFound when nothing is adopted."""
