"""Responses about planned and executed changes: plans, manual moves, relocations, tasks, reviews."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Final, Literal

from bundlekeel.model.codes import OUTCOMES, Code
from bundlekeel.model.doc import Answer, Doc
from bundlekeel.model.parameter_table import PLACEMENTS, STRATEGIES
from bundlekeel.model.plan import BrokerLoad, Verdict
from bundlekeel.model.response_fields import (
    CODE_OR_EMPTY,
    Broker,
    Bundle,
    By,
    CodeName,
    Detail,
    Explanation,
    Json,
    PictureMs,
    Reason,
    Sentence,
)
from bundlekeel.planning.whatif import Finish
from bundlekeel.views.picture import TrafficView

# Largest factor by which a plan may multiply the current traffic.
MOST_SCALE: Final = 1000
Verb = Literal["transfer", "unload", "split"]

Hash = Annotated[str, Doc("digest of the plan; it is executed only if planning again gives the same digest")]
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
ReviewAction = Annotated[str, Doc("possible action on a review", grows=("approve", "discard", "stop"))]
TaskKind = Annotated[str, Doc("kind of the task", of=("plan", "transfer", "unload", "split"))]


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveUsageView(Answer):
    """Resources of its broker that a bundle uses."""

    cpu: Annotated[float, Doc("percent of a core")]
    direct_memory: Annotated[float, Doc("MiB")]
    bandwidth_in: Annotated[float, Doc("kbit/s")]
    bandwidth_out: Annotated[float, Doc("kbit/s")]
    msg_rate: Annotated[float, Doc("msg/s, published and delivered")]
    throughput: Annotated[float, Doc("bytes/s, published and delivered")]


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveView(Answer):
    """A move of a bundle between two brokers. Scores are ratios, predicted for right before and after the move."""

    bundle: Bundle
    source: Annotated[str, Doc("broker that the bundle leaves")]
    target: Annotated[str, Doc("broker that receives the bundle")]
    rule: Annotated[str, Doc("rule that selected the bundle")]
    threshold: Annotated[float, Doc("exceeded limit, a ratio")]
    source_before: Annotated[float, Doc("score of the source before, a ratio")]
    source_after: Annotated[float, Doc("score of the source after, a ratio")]
    target_before: Annotated[float, Doc("score of the target before, a ratio")]
    target_after: Annotated[float, Doc("score of the target after, a ratio")]
    runner_up: Annotated[str, Doc("second-best target; empty: none")]
    traffic: Annotated[
        list[float],
        Doc("four rates: msg/s published, msg/s delivered, bytes/s published, bytes/s delivered, in this order"),
    ]
    pressure: Annotated[
        list[float],
        Doc(
            "six values of its usage: CPU (percent of a core), direct memory (MiB), bandwidth in (kbit/s), "
            "bandwidth out (kbit/s), messages (msg/s) and throughput (bytes/s), in this order"
        ),
    ]
    rates: Annotated[TrafficView, Doc("`traffic` by name")]
    usage: Annotated[MoveUsageView, Doc("`pressure` by name")]
    sentence: Sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitView(Answer):
    """A split of a bundle."""

    bundle: Bundle
    broker: Annotated[str, Doc("broker that owns the bundle")]
    rule: Annotated[str, Doc("exceeded limit: topics, sessions, msg_rate, bandwidth, hot, or `by hand`")]
    value: Annotated[
        float, Doc("value of the bundle: topics, sessions, msg/s, MiB/s, or shares of the mean broker load")
    ]
    limit: Annotated[float, Doc("exceeded limit in the unit of `value`")]
    hits: Annotated[int, Doc("number of consecutive cycles above the limit")]
    at: Annotated[list[int], Doc("requested hash positions; empty: chosen so that the load divides evenly")]
    halves: Annotated[bool, Doc("whether the hash range is divided in the middle")]
    sentence: Sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalView(Answer):
    """A candidate that does not move, and the reason."""

    code: CodeName
    bundle: Annotated[str, Doc("the bundle; empty: the whole broker")]
    broker: Broker
    detail: Detail
    explanation: Explanation
    limit: Annotated[float | None, Doc("for a budget: its limit, in moves or as a share of the traffic")] = None
    used: Annotated[float | None, Doc("for a budget: its used part, in the unit of `limit`")] = None
    frees_ms: Annotated[int, Doc("time at which the obstacle ends; 0: in the next cycle, or unknown")] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanImbalance(Answer):
    """max/mean: most loaded broker divided by the mean of the brokers that share the load; 1: balanced, 0: idle."""

    measure: Annotated[str, Doc("value in `loads` that the strategy balances", of=("score", "throughput"))]
    before: Annotated[float, Doc("max/mean before the moves")]
    after: Annotated[float, Doc("max/mean after the moves")]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSummary(Answer):
    """A recent plan, without its moves."""

    hash: Hash
    wall_ms: PictureMs
    strategy: Annotated[str, Doc("strategy, which selected the bundles to move", grows=STRATEGIES)]
    placement: Annotated[str, Doc("placement, which selected the targets", grows=PLACEMENTS)]
    verdict: Annotated[Verdict, Doc("verdict: why bundles move, or none")]
    expires_ms: Annotated[int, Doc("time at which the plan is deleted")]
    moves: Annotated[int, Doc("number of moves")]
    what_if: Annotated[bool, Doc("whether it assumes other brokers or traffic; such a plan is never executed")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanView(Answer):
    """A dry run: moves and splits with reasons, refusals with codes and explanations, load of each broker before and
    after."""

    hash: Hash
    wall_ms: PictureMs
    expires_ms: Annotated[int, Doc("time at which the plan is deleted")]
    strategy: Annotated[str, Doc("strategy, which selected the bundles to move", grows=STRATEGIES)]
    placement: Annotated[str, Doc("placement, which selected the targets", grows=PLACEMENTS)]
    snapshot_digest: Annotated[str, Doc("digest of the snapshot that the plan is based on")]
    verdict: Annotated[Verdict, Doc("verdict: why bundles move, or none")]
    brokers: Annotated[list[Verdict], Doc("verdict on each broker: why it is relieved, or why not")]
    moves: Annotated[list[MoveView], Doc("planned moves, in order")]
    refusals: Annotated[list[RefusalView], Doc("candidates that do not move, with reasons")]
    refusal_counts: Annotated[dict[str, int], Doc("number of refusals by code", keys=Code)]
    splits: Annotated[list[SplitView], Doc("planned splits, after the moves")]
    split_refusals: Annotated[list[RefusalView], Doc("bundles above a limit that are not split, with reasons")]
    loads: Annotated[list[BrokerLoad], Doc("load of each broker before and after")]
    imbalance: Annotated[
        PlanImbalance, Doc("max/mean (1: balanced) before and after; in thresholds, `imbalance` is max/mean minus 1")
    ]
    by_leader: Annotated[bool, Doc("whether the leader computed the plan")] = False
    what_if: Annotated[bool, Doc("whether it assumes other brokers or traffic; such a plan is never executed")] = False
    assumption: Annotated[
        str, Doc("for a what-if: its assumptions, and the most loaded broker's load now and then, as a sentence")
    ] = ""
    finished: Annotated[Finish | None, Doc("for a what-if: result after repeated cycles")] = None
    request: Annotated[Json, Doc("request, in the form of the body of POST /plans")] = field(default_factory=dict)


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
class OutcomeView(Answer):
    """The result of a move of a task."""

    bundle: Bundle
    outcome: Annotated[str, Doc("outcome of the move", of=OUTCOMES)]
    landed_on: Annotated[str, Doc("broker that owns the bundle afterwards; empty: none, or unknown")] = ""
    code: Annotated[str | None, Doc("code of why the move was refused or failed; null: none", grows=Code)] = None

    def __post_init__(self) -> None:
        """Replace the empty code of a stored move by None."""
        object.__setattr__(self, "code", self.code or None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskView(Answer):
    """A request and its progress. Tasks are also stored in this form."""

    task: Annotated[str, Doc("id of the task")]
    hash: Hash = ""
    state: Annotated[
        str,
        Doc(
            "waiting: for the leader. done: executed; see the `outcome` of each of `moves`. failed: no bundle reached "
            "its target, or not all moves were started; bundles may have moved, see `moves`",
            of=("waiting", "running", "done", "failed", "stopped"),
        ),
    ]
    kind: TaskKind = "plan"
    reason: Reason = ""
    by: By = ""
    left_ms: Annotated[int, Doc("time at which the request was stored for the leader; 0: unknown")] = 0
    detail: Detail = ""
    moves: Annotated[list[OutcomeView], Doc("results of the moves")] = field(default_factory=list)
    difference: Annotated[list[str], Doc("changes since the request that made it fail; empty: none")] = field(
        default_factory=list
    )


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


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """Parameters of a dry run, which override the current settings.

    `ignore_hit_counts`: None means only in a what-if. `forwarded`: another sidecar sent the request, so do not forward
    it to a leader again."""

    strategy: str | None = None
    placement: str | None = None
    parameters: Json = field(default_factory=dict)
    remove_brokers: tuple[str, ...] = ()
    add_brokers: tuple[str, ...] = ()
    traffic_scale: float = 1.0
    ignore_hit_counts: bool | None = None
    forwarded: bool = False

    @property
    def what_if(self) -> bool:
        """Return whether the request assumes other brokers or traffic. Such a plan is never executed."""
        return bool(self.remove_brokers or self.add_brokers) or self.traffic_scale != 1.0

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> PlanRequest:
        """Read a request from JSON: a result of `to_json`, or a body of the API. Raises TypeError or ValueError."""
        brokers = {name: tuple(values.get(name, ())) for name in ("remove_brokers", "add_brokers")}
        return cls(**{**values, **brokers})

    def to_json(self) -> Json:
        """Return the request as JSON, for another sidecar or the metadata store.

        Added brokers are omitted if there are none: a sidecar of an older release rejects unknown fields."""
        values = asdict(self)
        return values if self.add_brokers else {key: item for key, item in values.items() if key != "add_brokers"}
