"""Calibrated thresholds as the API shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from bundlekeel.core.calibration.adoption import TRIAL, Adopted, TimeStretch
from bundlekeel.core.calibration.thresholds import Number, Objection, Thresholds, difference
from bundlekeel.core.calibration.thresholds_json import document_of
from bundlekeel.core.model.codes import EXPLANATIONS
from bundlekeel.core.model.parameters import Parameters
from bundlekeel.daemon.answers.doc import Json
from bundlekeel.daemon.answers.operations import AdoptedView, ChangeView, ObjectionView, RevertedView, TrialView
from bundlekeel.daemon.calibration.threshold_inbox import ThresholdInbox
from bundlekeel.daemon.state.documents import Desired


def changes_of(current: Parameters, document: Thresholds | None) -> list[ChangeView]:
    """The rows of the difference."""
    return [] if document is None else [ChangeView(**asdict(row)) for row in difference(current, document)]


def changes_text(current: Parameters, document: Thresholds) -> str:
    """The difference in words."""
    rows = difference(current, document)
    return ", ".join(f"{row.parameter} {row.current:g} -> {row.proposed:g}" for row in rows)


def document_view(inbox: ThresholdInbox) -> Json | None:
    """The newest proposal, where it lies and what it is known by."""
    document = inbox.document
    if document is None or inbox.found is None:
        return None
    shown = document_of(document)
    del shown["parameters"]
    named = {"digest": inbox.digest, "path": inbox.found.path}
    return shown | named | {"values": document.values, "previous": document.previous}


def objections_view(objections: Sequence[Objection]) -> list[ObjectionView]:
    """With what the codes mean."""
    return [
        ObjectionView(code=item.code.value, field=item.field, detail=item.detail, explanation=EXPLANATIONS[item.code])
        for item in objections
    ]


def adopted_view(adopted: Adopted, values: dict[str, Number], before: TimeStretch, after: TimeStretch) -> AdoptedView:
    """What is adopted, and how its trial goes. `values`: those that are in force."""
    trial = TrialView(
        seconds=after.seconds,
        needed_seconds=adopted.trial_seconds,
        imbalance=after.imbalance,
        imbalance_promised=adopted.imbalance_high,
        imbalance_before=before.imbalance if before.seconds else None,
        moves_per_hour=after.moves_per_hour,
        moves_promised=adopted.moves_high,
        moves_before=before.moves_per_hour if before.seconds else None,
    )
    return AdoptedView(
        digest=adopted.digest,
        strategy=adopted.strategy,
        by=adopted.by,
        reason=adopted.reason,
        since_ms=adopted.since_ms,
        state=adopted.state,
        values=values,
        instead_of=dict(adopted.instead_of),
        trial=trial if adopted.state == TRIAL else None,
    )


def reverted_view(desired: Desired) -> list[RevertedView]:
    """Oldest first."""
    return [
        RevertedView(digest=digest, by=item.by, reason=item.reason, since_ms=item.since_ms)
        for digest, item in sorted(desired.reverted.items(), key=lambda pair: pair[1].since_ms)
    ]


def sentence_of(
    mode: str, inbox: ThresholdInbox, adopted: Adopted | None, objections: Sequence[Objection], changes: str
) -> str:
    """How things stand, in a sentence. `adopted`: None also while none of it is in force. `changes`: in words."""
    if mode == "off":
        return "calibration is off (calibration.mode)"
    if adopted is not None and adopted.digest and adopted.digest == inbox.digest:
        return f"the newest proposal is in force, {'on trial' if adopted.state == TRIAL else 'for good'}"
    if objections:
        return f"the newest proposal does not come into force: {', '.join(item.code.value for item in objections)}"
    if inbox.document is None:
        return inbox.error or "there is no proposal yet"
    how = "it comes into force by itself" if mode == "adopt" else "`bundlekeel thresholds adopt`"
    return f"proposed: {changes}; {how}"
