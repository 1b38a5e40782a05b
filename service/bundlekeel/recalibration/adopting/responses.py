"""Responses about calibrated thresholds. `recalibration.rules.thresholds` defines the format of proposals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from bundlekeel.model.codes import Code
from bundlekeel.model.doc import Answer, Doc
from bundlekeel.model.response_fields import (
    CODE_OR_EMPTY,
    Detail,
    Explanation,
    Json,
    Like,
    Requested,
    Sentence,
)
from bundlekeel.recalibration.rules.thresholds import Proposal, ThresholdChange

Digest = Annotated[str, Doc("digest of the proposal")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalView(Proposal):
    """Proposed thresholds: the content of a file `thresholds.json`, with `values` and `previous` instead of
    `parameters`."""

    digest: Annotated[str, Doc("digest of the proposal, which `thresholds/adopt` expects")]
    path: Annotated[str, Doc("path of the file below `calibration.uri`")]
    format: Annotated[int, Doc("version of the document")]
    values: Annotated[dict[str, float], Doc("proposed value of each searched parameter")]
    previous: Annotated[dict[str, float], Doc("previous value of each searched parameter")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectionView(Answer):
    """A reason why the newest proposed thresholds are not adopted."""

    code: Annotated[str, Doc("code of the objection", grows=Code)]
    field: Annotated[str, Doc("field of the proposal; empty: the whole proposal")]
    detail: Detail
    explanation: Explanation
    person: Annotated[
        str,
        Doc(
            "whether an operator can adopt the proposal despite this objection. force: with `force`; yes: "
            "without `force`; no: never; empty: unknown",
            of=("", "no", "force", "yes"),
        ),
    ] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialView(Answer):
    """Results of the trial of adopted thresholds so far.

    In the first stage, the results are those of its `namespaces`, and `…_before` those of all other namespaces in the
    same time, scaled to the same traffic. Their imbalance is the load of their brokers/mean minus 1.
    """

    seconds: Annotated[float, Doc("observed time, in which the leader balanced with the adopted thresholds")]
    needed_seconds: Annotated[float, Doc("observed time that the trial needs")]
    imbalance: Annotated[
        float | None,
        Doc("max/mean of score minus 1 (0: balanced) with these thresholds and the previous weights; null: none yet"),
    ]
    imbalance_promised: Annotated[float, Doc("highest max/mean of score minus 1 that the proposal predicts")]
    imbalance_before: Annotated[float | None, Doc("max/mean of score minus 1 before the adoption; null: unknown")]
    moves_per_hour: Annotated[float | None, Doc("moves per hour with the adopted thresholds; null: none yet")]
    moves_promised: Annotated[float, Doc("highest number of moves per hour that the proposal predicts")]
    moves_before: Annotated[float | None, Doc("moves per hour before the adoption; null: unknown")]
    obstacle: Annotated[
        str,
        Doc(
            "code of the obstacle of the leader's last cycle, whose time is not counted; empty: none",
            grows=CODE_OR_EMPTY,
        ),
    ] = ""
    unjudged: Annotated[str, Doc("why the first stage cannot end yet, although it was long enough; empty: it can")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedView(Requested):
    """Adopted thresholds, which override the settings."""

    digest: Digest
    strategy: Annotated[str, Doc("strategy of the parameters")]
    state: Annotated[str, Doc("trial: the adoption is still observed", of=("trial", "kept"))]
    namespaces: Annotated[list[str], Doc("first stage: only these namespaces use the values; empty: all use them")]
    values: Annotated[dict[str, float], Doc("values in effect, by parameter")]
    instead_of: Annotated[
        dict[str, float],
        Doc(
            "by parameter, the value of the settings (or of the brokers' settings, if those are used) at the "
            "adoption; an adopted value is in effect until this setting changes"
        ),
    ]
    trial: Annotated[TrialView | None, Doc("results of the trial; null: the trial is over")]


@dataclass(frozen=True, slots=True, kw_only=True)
class RevertedView(Requested):
    """Reverted thresholds, which are not adopted again automatically."""

    digest: Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdsView(Answer):
    """State of the calibrated thresholds: proposal, objections, adoption, reversions."""

    mode: Annotated[str, Doc("`calibration.mode` of the settings", of=("off", "recommend", "adopt"))]
    sentence: Sentence
    error: Annotated[str, Doc("why no proposal could be read; empty: no error")]
    read_ms: Annotated[int, Doc("time at which proposals were last read")]
    document: Annotated[Annotated[Json, Like(ProposalView)] | None, Doc("newest proposal; null: no readable proposal")]
    changes: Annotated[list[ThresholdChange], Doc("changes of the proposal to the values in effect")]
    objections: Annotated[list[ObjectionView], Doc("objections to the proposal")]
    adopted: Annotated[AdoptedView | None, Doc("adopted thresholds; null: none")]
    reverted: Annotated[list[RevertedView], Doc("reverted thresholds, oldest first")]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptionView(Answer):
    """Response to the adoption of proposed thresholds."""

    digest: Digest
    changes: Annotated[list[ThresholdChange], Doc("changed parameters")]
    sentence: Sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class ReversionView(Answer):
    """Response to the reversion of adopted thresholds."""

    digest: Digest
    sentence: Sentence
