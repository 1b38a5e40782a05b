"""Answers about what people ask of brokers and bundles, and about calibrated thresholds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from bundlekeel.core.calibration.thresholds import ThresholdChange
from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.doc import Answer, Doc
from bundlekeel.daemon.answers.doc import (
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
from bundlekeel.daemon.answers.picture import PauseView
from bundlekeel.daemon.answers.proposal import ProposalView

UntilMs = Annotated[int, Doc("its end; 0: a person ends it")]
Matched = Annotated[int | None, Doc("how many known bundles it matches now; none yet may be meant so")]
BrokerRequest = Annotated[str, Doc("what a person asks of a broker", grows=("cordon", "drain", "warm"))]
Digest = Annotated[str, Doc("digest of the proposal")]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestView(Answer):
    """A broker that is cordoned or warmed."""

    broker: Broker
    by: By
    reason: Reason
    since_ms: SinceMs


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainView(RequestView):
    """A drain and how far it is."""

    state: Annotated[
        str, Doc("blocked: nothing that is left may move", of=("draining", "empty", "blocked", "unknown"))
    ] = "unknown"
    left: Annotated[int | None, Doc("bundles it still owns; null: the broker does not say")] = None
    moved: Annotated[int, Doc("bundles that have left")] = 0
    blocked: Annotated[dict[str, int], Doc("bundles that cannot leave, by code", keys=Code)] = field(
        default_factory=dict
    )
    eta_seconds: Annotated[float | None, Doc("until it is empty; null: unknown, or it is blocked")] = None
    emptied_ms: Annotated[int, Doc("when it was empty first; 0: not yet")] = 0
    bundle_seconds: Annotated[float, Doc("bundles times seconds that were still there")] = 0.0
    detail: Detail = "no cycle has looked yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class PinView(Answer):
    """A bundle that stays where it is."""

    bundle: Bundle
    until_ms: UntilMs
    by: By
    reason: Reason
    since_ms: SinceMs


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedView(PinView):
    """A pin that was set."""

    broker: Annotated[str | None, Doc("the bundle's owner")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExclusionView(Answer):
    """What is left alone."""

    pattern: Annotated[str, Doc("`t:TENANT`, `n:TENANT/NAMESPACE`, `b:BUNDLE` or `r:BROKER`, globs allowed")]
    until_ms: UntilMs
    by: By
    reason: Reason
    since_ms: SinceMs


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcludedView(ExclusionView):
    """An exclusion that was set."""

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
    """A pause of one scope that was set."""

    scope: Annotated[str, Doc("`tenant:NAME`, `namespace:TENANT/NAME` or `broker:ID`")]
    bundles: Matched


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationsView(Answer):
    """All that people have asked for."""

    drains: Annotated[list[DrainView], Doc("brokers that are to be empty")]
    cordons: Annotated[list[RequestView], Doc("brokers that no bundle is moved to")]
    warms: Annotated[list[RequestView], Doc("brokers that are filled gently")]
    pins: Annotated[list[PinView], Doc("bundles that stay")]
    exclusions: Annotated[list[ExclusionView], Doc("what is left alone")]
    pauses: Annotated[list[ScopePauseView], Doc("pauses in force")]
    held: Annotated[
        str,
        Doc(
            "the code of what keeps the leader from moving anything until somebody ends it; empty: nothing",
            grows=CODE_OR_EMPTY,
        ),
    ] = ""
    held_explanation: Annotated[str, Doc("what that code means; empty without one")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CordonedView(Answer):
    """A broker that was cordoned."""

    broker: Broker
    state: Annotated[str, Doc("what it is now", of=("cordoned",))]


@dataclass(frozen=True, slots=True, kw_only=True)
class UncordonedView(Answer):
    """A broker that bundles are moved to again."""

    broker: Broker
    ended: Annotated[list[BrokerRequest], Doc("what was ended: cordon, drain, warm")]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpinnedView(Answer):
    """A pin that was ended."""

    bundle: Bundle


@dataclass(frozen=True, slots=True, kw_only=True)
class IncludedView(Answer):
    """An exclusion that was ended."""

    pattern: Annotated[str, Doc("the pattern, as it was set")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumedScopeView(Answer):
    """A pause of one scope that was ended."""

    scope: Annotated[str, Doc("the scope")]
    reason: Reason
    by: By


# --- calibrated thresholds -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectionView(Answer):
    """Why the newest proposal does not come into force."""

    code: Annotated[str, Doc("the code of the objection", grows=Code)]
    field: Annotated[str, Doc("what of the proposal; empty: all of it")]
    detail: Detail
    explanation: Explanation
    person: Annotated[
        str,
        Doc(
            "whether a person can adopt nevertheless: force: with `force`; yes: without; no: never; empty: not known",
            of=("", "no", "force", "yes"),
        ),
    ] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialView(Answer):
    """How adopted thresholds perform so far."""

    seconds: Annotated[float, Doc("how long they have been observed: the time in which the leader balanced")]
    needed_seconds: Annotated[float, Doc("how long they have to be")]
    imbalance: Annotated[
        float | None,
        Doc("max/mean of score less 1 (0: even), with them, by the weights from before; null: nothing measured yet"),
    ]
    imbalance_promised: Annotated[float, Doc("max/mean of score less 1, at most, by the proposal")]
    imbalance_before: Annotated[float | None, Doc("max/mean of score less 1, before them; null: not known")]
    moves_per_hour: Annotated[
        float | None, Doc("moves an hour with the adopted thresholds; null: nothing measured yet")
    ]
    moves_promised: Annotated[float, Doc("moves an hour at most, by the proposal")]
    moves_before: Annotated[float | None, Doc("moves an hour before them; null: not known")]
    obstacle: Annotated[
        str,
        Doc(
            "the code of why the leader's last cycle carried nothing out, so its time does not count; empty: none",
            grows=CODE_OR_EMPTY,
        ),
    ] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedView(Answer):
    """Thresholds that lie over the settings."""

    digest: Digest
    strategy: Annotated[str, Doc("whose parameters they are")]
    by: By
    reason: Reason
    since_ms: SinceMs
    state: Annotated[str, Doc("trial: they are observed", of=("trial", "kept"))]
    values: Annotated[dict[str, float], Doc("those in force, by parameter")]
    instead_of: Annotated[
        dict[str, float],
        Doc(
            "by parameter, the value that the settings (or the brokers' settings, where they are adopted) had at the "
            "adoption, not that of an earlier adoption; an adopted value is in force while it is still this one"
        ),
    ]
    trial: Annotated[TrialView | None, Doc("how they do; null when the trial is over")]


@dataclass(frozen=True, slots=True, kw_only=True)
class RevertedView(Answer):
    """Thresholds that were taken back, and are not adopted again by themselves."""

    digest: Digest
    by: By
    reason: Reason
    since_ms: SinceMs


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdsView(Answer):
    """How things stand with calibrated thresholds."""

    mode: Annotated[str, Doc("`calibration.mode` of the settings", of=("off", "recommend", "adopt"))]
    sentence: Sentence
    error: Annotated[str, Doc("why no proposal could be read; empty: none")]
    read_ms: Annotated[int, Doc("when proposals were read last")]
    document: Annotated[
        Annotated[Json, Like(ProposalView)] | None, Doc("the newest proposal; null: there is none that can be read")
    ]
    changes: Annotated[list[ThresholdChange], Doc("its difference to what is in force")]
    objections: Annotated[list[ObjectionView], Doc("what speaks against it")]
    adopted: Annotated[AdoptedView | None, Doc("what is adopted; null: nothing")]
    reverted: Annotated[list[RevertedView], Doc("what was taken back, oldest first")]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptionView(Answer):
    """What came into force."""

    digest: Digest
    changes: Annotated[list[ThresholdChange], Doc("what it changed")]
    sentence: Sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class ReversionView(Answer):
    """What was taken back."""

    digest: Digest
    sentence: Sentence
