"""Responses about proposed and adopted thresholds. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bundlekeel.leader.state.adopted_thresholds import TRIAL, Adopted
from bundlekeel.model.parameters import Parameters
from bundlekeel.recalibration.adopting.responses import AdoptedView, TrialView
from bundlekeel.recalibration.adopting.threshold_inbox import ThresholdInbox
from bundlekeel.recalibration.rules.adoption import TimeStretch, unjudged
from bundlekeel.recalibration.rules.thresholds import Number, Objection, ThresholdChange, Thresholds, difference


def list_changes(current: Parameters, document: Thresholds | None) -> list[ThresholdChange]:
    """Return the parameters that the proposal would change; empty also without a proposal."""
    return [] if document is None else list(difference(current, document))


def describe_changes(current: Parameters, document: Thresholds) -> str:
    """Return the changed parameters as text: `NAME OLD -> NEW`, separated by commas."""
    rows = difference(current, document)
    return ", ".join(f"{row.parameter} {row.current:g} -> {row.proposed:g}" for row in rows)


def view_adopted(
    adopted: Adopted, values: Mapping[str, Number], before: TimeStretch, after: TimeStretch, obstacle: str
) -> AdoptedView:
    """Return the adoption and the results of its trial.

    `values`: adopted values in effect. `before`, `after`: results before and since the adoption; in the first stage, of
    other namespaces and of its own. `obstacle`: why the leader's last cycle could not balance, as a code; "": it could.
    """
    trial = TrialView(
        seconds=after.seconds,
        needed_seconds=adopted.trial_seconds,
        imbalance=after.imbalance if after.seconds else None,
        imbalance_promised=adopted.imbalance_high,
        imbalance_before=before.imbalance if before.seconds else None,
        moves_per_hour=after.moves_per_hour if after.seconds else None,
        moves_promised=adopted.moves_high * after.share,
        moves_before=before.moves_per_hour if before.seconds else None,
        obstacle=obstacle,
        unjudged=unjudged(adopted, before, after),
    )
    return AdoptedView(
        digest=adopted.digest,
        strategy=adopted.strategy,
        by=adopted.by,
        reason=adopted.reason,
        since_ms=adopted.since_ms,
        state=adopted.state,
        values=dict(values),
        instead_of=dict(adopted.instead_of),
        namespaces=list(adopted.namespaces),
        trial=trial if adopted.state == TRIAL else None,
    )


def describe_state(
    mode: str, inbox: ThresholdInbox, adopted: Adopted | None, objections: Sequence[Objection], changes: str
) -> str:
    """Return the state of the thresholds as one sentence. `adopted`: None also if no adopted value is in effect."""
    if mode == "off":
        return "calibration is off (calibration.mode)"
    if adopted is not None and adopted.digest and adopted.digest == inbox.digest:
        place = f" in {', '.join(adopted.namespaces)}" if adopted.namespaces else ""
        return f"the newest proposal is in force{place}, {'on trial' if adopted.state == TRIAL else 'for good'}"
    if objections:
        return f"the newest proposal is not adopted: {', '.join(item.code.value for item in objections)}"
    if inbox.document is None:
        return inbox.error or "there is no proposal yet"
    command = f'`bundlekeel thresholds adopt --digest {inbox.digest} --reason "..."`'
    return f"proposed: {changes}; {'it comes into force by itself' if mode == 'adopt' else command}"
