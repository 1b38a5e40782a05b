"""Responses about operators' requests for brokers and bundles, and about calibrated thresholds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from bundlekeel.model.codes import Code
from bundlekeel.model.doc import Answer, Doc
from bundlekeel.model.response_fields import (
    CODE_OR_EMPTY,
    Broker,
    Bundle,
    By,
    Detail,
    Explanation,
    Json,
    Like,
    Reason,
    Sentence,
    SinceMs,
)
from bundlekeel.recalibration.adopting.proposal import ProposalView
from bundlekeel.recalibration.rules.thresholds import ThresholdChange
from bundlekeel.views.picture import PauseView

UntilMs = Annotated[int, Doc("end time; 0: it lasts until an operator ends it")]
Matched = Annotated[int | None, Doc("number of known bundles that match now; null: unknown. 0 can be intended")]
BrokerRequest = Annotated[str, Doc("request for a broker", grows=("cordon", "drain", "warm"))]
Digest = Annotated[str, Doc("digest of the proposal")]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestView(Answer):
    """A cordon or warm-up of a broker."""

    broker: Broker
    by: By
    reason: Reason
    since_ms: SinceMs


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainView(RequestView):
    """A drain and its progress."""

    state: Annotated[
        str, Doc("blocked: none of the remaining bundles may move", of=("draining", "empty", "blocked", "unknown"))
    ] = "unknown"
    left: Annotated[int | None, Doc("number of bundles that the broker still owns; null: unknown")] = None
    moved: Annotated[int, Doc("number of bundles that have left the broker")] = 0
    blocked: Annotated[dict[str, int], Doc("number of bundles that cannot leave, by code", keys=Code)] = field(
        default_factory=dict
    )
    eta_seconds: Annotated[float | None, Doc("estimated time until the broker is empty; null: unknown, or blocked")] = (
        None
    )
    emptied_ms: Annotated[int, Doc("time at which the broker was first empty; 0: not yet")] = 0
    bundle_seconds: Annotated[
        float, Doc("sum over all bundles of the seconds that they stayed since the drain started")
    ] = 0.0
    detail: Detail = "no cycle has looked yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class PinView(Answer):
    """A pinned bundle."""

    bundle: Bundle
    until_ms: UntilMs
    by: By
    reason: Reason
    since_ms: SinceMs


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedView(PinView):
    """A new pin."""

    broker: Annotated[str | None, Doc("broker that owns the bundle; null: none")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExclusionView(Answer):
    """An exclusion of bundles or brokers from moves."""

    pattern: Annotated[str, Doc("`t:TENANT`, `n:TENANT/NAMESPACE`, `b:BUNDLE` or `r:BROKER`, globs allowed")]
    until_ms: UntilMs
    by: By
    reason: Reason
    since_ms: SinceMs


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcludedView(ExclusionView):
    """A new exclusion."""

    bundles: Matched


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopePauseView(Answer):
    """A pause of everything or of one scope."""

    scope: Annotated[str, Doc("`tenant:NAME`, `namespace:TENANT/NAME` or `broker:ID`; empty: everything")]
    reason: Reason
    by: By
    since_ms: SinceMs
    until_ms: UntilMs


@dataclass(frozen=True, slots=True, kw_only=True)
class PausedScopeView(PauseView):
    """A new pause of one scope."""

    scope: Annotated[str, Doc("`tenant:NAME`, `namespace:TENANT/NAME` or `broker:ID`")]
    bundles: Matched


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationsView(Answer):
    """All active requests of operators."""

    drains: Annotated[list[DrainView], Doc("brokers that are drained and kept empty")]
    cordons: Annotated[list[RequestView], Doc("brokers that receive no bundles")]
    warms: Annotated[list[RequestView], Doc("brokers that receive bundles gradually")]
    pins: Annotated[list[PinView], Doc("pinned bundles")]
    exclusions: Annotated[list[ExclusionView], Doc("bundles and brokers that are excluded from moves")]
    pauses: Annotated[list[ScopePauseView], Doc("active pauses")]
    held: Annotated[
        str,
        Doc(
            "code of the obstacle to all moves, which an operator must remove; empty: none",
            grows=CODE_OR_EMPTY,
        ),
    ] = ""
    held_explanation: Annotated[str, Doc("meaning of the code; empty: no code")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CordonedView(Answer):
    """A newly cordoned broker."""

    broker: Broker
    state: Annotated[str, Doc("new state of the broker", of=("cordoned",))]


@dataclass(frozen=True, slots=True, kw_only=True)
class UncordonedView(Answer):
    """A broker that may receive bundles again."""

    broker: Broker
    ended: Annotated[list[BrokerRequest], Doc("requests that were ended: cordon, drain, warm")]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpinnedView(Answer):
    """A removed pin."""

    bundle: Bundle


@dataclass(frozen=True, slots=True, kw_only=True)
class IncludedView(Answer):
    """A removed exclusion."""

    pattern: Annotated[str, Doc("pattern of the exclusion")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumedScopeView(Answer):
    """The end of a pause of one scope."""

    scope: Annotated[str, Doc("scope whose pause was ended")]
    reason: Reason
    by: By


# --- calibrated thresholds -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectionView(Answer):
    """An objection to the newest proposal."""

    code: Annotated[str, Doc("code of the objection", grows=Code)]
    field: Annotated[str, Doc("field of the proposal; empty: the whole proposal")]
    detail: Detail
    explanation: Explanation
    person: Annotated[
        str,
        Doc(
            "whether an operator can adopt it anyway. force: with `force`; yes: without; no: never; empty: unknown",
            of=("", "no", "force", "yes"),
        ),
    ] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialView(Answer):
    """Results of the trial of adopted thresholds so far."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedView(Answer):
    """Adopted thresholds, which override the settings."""

    digest: Digest
    strategy: Annotated[str, Doc("strategy of the parameters")]
    by: By
    reason: Reason
    since_ms: SinceMs
    state: Annotated[str, Doc("trial: the adoption is still observed", of=("trial", "kept"))]
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
class RevertedView(Answer):
    """Reverted thresholds, which are not adopted again automatically."""

    digest: Digest
    by: By
    reason: Reason
    since_ms: SinceMs


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
    """A new adoption."""

    digest: Digest
    changes: Annotated[list[ThresholdChange], Doc("changed parameters")]
    sentence: Sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class ReversionView(Answer):
    """A reverted adoption."""

    digest: Digest
    sentence: Sentence
