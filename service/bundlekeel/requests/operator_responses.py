"""Responses about operators' requests for brokers and bundles: drains, warm-ups, pins, exclusions, pauses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from bundlekeel.leader.cycle.plan_responses import MoveView, RefusalView
from bundlekeel.leader.gate.responses import PauseView
from bundlekeel.leader.state.responses import TaskKind
from bundlekeel.model.codes import Code
from bundlekeel.model.doc import Answer, Doc
from bundlekeel.model.response_fields import (
    CODE_OR_EMPTY,
    Broker,
    Bundle,
    By,
    Detail,
    Hash,
    Reason,
    Requested,
    Sentence,
)
from bundlekeel.requests.manual_move_responses import DryRun, Held, HeldExplanation, Review

ReviewAction = Annotated[str, Doc("possible action on a review", grows=("approve", "discard", "stop"))]


UntilMs = Annotated[int, Doc("end time; 0: it lasts until an operator ends it")]
Matched = Annotated[int | None, Doc("number of known bundles that match now; null: unknown. 0 can be intended")]
BrokerRequest = Annotated[str, Doc("request for a broker", grows=("cordon", "drain", "warm"))]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestView(Requested):
    """A cordon or warm-up of a broker."""

    broker: Broker


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
class PinView(Requested):
    """A pinned bundle."""

    bundle: Bundle
    until_ms: UntilMs


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedView(PinView):
    """A new pin."""

    broker: Annotated[str | None, Doc("broker that owns the bundle; null: none")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExclusionView(Requested):
    """An exclusion of bundles or brokers from moves."""

    pattern: Annotated[str, Doc("`t:TENANT`, `n:TENANT/NAMESPACE`, `b:BUNDLE` or `r:BROKER`, globs allowed")]
    until_ms: UntilMs


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcludedView(ExclusionView):
    """A new exclusion."""

    bundles: Matched


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopePauseView(Requested):
    """A pause of everything or of one scope."""

    scope: Annotated[str, Doc("`tenant:NAME`, `namespace:TENANT/NAME` or `broker:ID`; empty: everything")]
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
class Stopping(Answer):
    """A task that starts no further move."""

    task: Annotated[str, Doc("id of the task")]
    state: Annotated[str, Doc("no further move starts", of=("stopping",))]


@dataclass(frozen=True, slots=True, kw_only=True)
class RelocationView(Answer):
    """The moves of a drain or a warm-up."""

    broker: Broker
    dry_run: DryRun
    bundles: Annotated[int, Doc("drain: number of bundles it owns; warm-up: number of bundles it receives")]
    moves: Annotated[list[MoveView], Doc("moves, in order")]
    refusals: Annotated[list[RefusalView], Doc("bundles that do not move for now, with reasons")]
    refusal_counts: Annotated[dict[str, int], Doc("number of refusals by code", keys=Code)]
    eta_seconds: Annotated[float | None, Doc("estimated duration of these moves; null: none may move")]
    sentence: Sentence
    detail: Detail
    held: Held = ""
    held_explanation: HeldExplanation = ""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted(Answer):
    """A plan that waits for the leader or for a review."""

    hash: Hash
    moves: Annotated[int, Doc("number of moves")]
    splits: Annotated[int, Doc("number of splits")]
    task: Annotated[str, Doc("id of the task; empty (not null): still proposed")]
    state: Annotated[
        str, Doc("waiting (for the leader) or proposed (to a second operator)", of=("waiting", "proposed"))
    ]
    review: Review


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewView(Answer):
    """A change that one operator proposed and another one must approve."""

    id: Annotated[str, Doc("`hash` of the proposed change")]
    kind: TaskKind
    title: Annotated[str, Doc("proposed change, as text")]
    by: Annotated[str, Doc("operator who proposed the change")]
    reason: Reason
    at_ms: Annotated[int, Doc("time of the proposal")]
    state: Annotated[
        str,
        Doc("state of the review", of=("proposed", "approved", "executing", "done", "aborted", "discarded", "expired")),
    ]
    reviewer: Annotated[str, Doc("operator who approved or discarded it; empty: none yet")]
    remark: Annotated[str, Doc("reason that the reviewer entered")]
    decided_ms: Annotated[int, Doc("time of the approval or refusal; 0: not yet")]
    task: Annotated[str, Doc("id of the task; empty: none yet")]
    actions: Annotated[list[ReviewAction], Doc("actions that are possible now: approve, discard, stop")]
