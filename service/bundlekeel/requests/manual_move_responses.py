"""Responses about transfers, unloads and splits that operators request."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from bundlekeel.leader.cycle.plan_responses import MoveView, RefusalView
from bundlekeel.model.codes import Code
from bundlekeel.model.doc import Answer, Doc
from bundlekeel.model.plan import BrokerLoad
from bundlekeel.model.response_fields import CODE_OR_EMPTY, Broker, Bundle, Explanation, Hash, Sentence

Verb = Literal["transfer", "unload", "split"]


TaskId = Annotated[str | None, Doc("id of the task; null: a dry run, or still proposed")]
Review = Annotated[str | None, Doc("id of the review it waits for; null: none")]
DryRun = Annotated[bool, Doc("whether this is a dry run, which executes nothing")]
Held = Annotated[
    str,
    Doc(
        "code of the obstacle that refuses it now or stops the leader; empty: none",
        grows=CODE_OR_EMPTY,
    ),
]
HeldExplanation = Annotated[str, Doc("meaning of the code; empty: no code")]
ManualMoveState = Annotated[
    str,
    Doc(
        "planned (a dry run), waiting (for the leader) or proposed (to a second operator)",
        of=("planned", "waiting", "proposed"),
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateView(Answer):
    """A possible target of a bundle, or the reason against it."""

    broker: Broker
    score_before: Annotated[float, Doc("current score, a ratio")]
    score_after: Annotated[float | None, Doc("score with the bundle, a ratio; null: not computed")]
    code: Annotated[str | None, Doc("code of the reason against this broker; null: none", grows=Code)]
    explanation: Explanation


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildView(Answer):
    """A bundle that a split creates."""

    bundle: Bundle
    topics_ratio: Annotated[float, Doc("share of the topics")]
    msg_rate_ratio: Annotated[float, Doc("share of the messages")]
    throughput_ratio: Annotated[float, Doc("share of the bytes")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ManualMoveView(Answer):
    """A move or split that an operator requested."""

    kind: Annotated[str, Doc("kind of the request", of=("transfer", "unload", "split"))]
    name: Annotated[str, Doc("requested bundle or topic")]
    bundle: Bundle
    source: Annotated[str, Doc("broker that owns the bundle")]
    hash: Hash
    refusals: Annotated[
        list[RefusalView],
        Doc("obstacles of the bundle or its brokers; see `held` for mode and pauses"),
    ]
    sentence: Sentence
    target: Annotated[str | None, Doc("broker that receives the bundle; null: a split, or the bundle stays")] = None
    move: Annotated[MoveView | None, Doc("the move; null: a split, or the bundle stays")] = None
    candidates: Annotated[list[CandidateView], Doc("all other brokers as targets, with reasons against them")] = field(
        default_factory=list
    )
    loads: Annotated[list[BrokerLoad], Doc("load of each broker before and after")] = field(default_factory=list)
    override_cool_down: Annotated[bool, Doc("whether the bundle moves despite its cool-down")] = False
    topics: Annotated[list[str], Doc("for a split: requested topics")] = field(default_factory=list)
    children: Annotated[list[ChildView], Doc("for a split: the new bundles")] = field(default_factory=list)
    algorithm: Annotated[str | None, Doc("for a split: Pulsar's algorithm; null: divide the load evenly")] = None
    unload: Annotated[bool, Doc("for a split: whether the new bundles are unloaded afterwards")] = False
    dry_run: DryRun = True
    task: TaskId = None
    state: ManualMoveState = "planned"
    review: Review = None
    held: Held = ""
    held_explanation: HeldExplanation = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceUnloadView(Answer):
    """The unload of a namespace."""

    kind: Annotated[str, Doc("kind of the request", of=("unload",))]
    namespace: Annotated[str, Doc("tenant/namespace")]
    bundles: Annotated[int, Doc("number of bundles in the namespace")]
    moves: Annotated[
        list[MoveView], Doc("moves as planned now; the target of each bundle is selected again when it moves")
    ]
    waiting: Annotated[list[RefusalView], Doc("bundles that do not leave in the next cycle, with reasons")]
    refusals: Annotated[list[RefusalView], Doc("bundles that stay, with reasons")]
    refusal_counts: Annotated[dict[str, int], Doc("number of bundles that stay, by code", keys=Code)]
    sentence: Sentence
    override_cool_down: Annotated[bool, Doc("whether bundles move despite their cool-down")]
    hash: Hash
    eta_seconds: Annotated[float | None, Doc("estimated duration of the moves alone; null: none may move")] = None
    dry_run: DryRun = True
    task: TaskId = None
    state: ManualMoveState = "planned"
    review: Review = None
    held: Held = ""
    held_explanation: HeldExplanation = ""
