"""Answers about what would be, or is, carried out: plans, moves by hand, relocations, tasks, reviews."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Final, Literal

from bundlekeel.core.model.codes import OUTCOMES, Code
from bundlekeel.core.model.doc import Answer, Doc
from bundlekeel.core.model.parameter_table import PLACEMENTS, STRATEGIES
from bundlekeel.core.model.plan import BrokerLoad, Verdict
from bundlekeel.core.planning.whatif import Finish
from bundlekeel.daemon.answers.doc import (
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
from bundlekeel.daemon.answers.picture import TrafficView

# A plan may multiply today's traffic by this at most.
MOST_SCALE: Final = 1000
Verb = Literal["transfer", "unload", "split"]

Hash = Annotated[str, Doc("digest of what is to be done: it is carried out only while it would be the same")]
TaskId = Annotated[str | None, Doc("its task; null in a dry run and while it is proposed")]
Review = Annotated[str | None, Doc("the review it waits for")]
DryRun = Annotated[bool, Doc("whether nothing is carried out")]
Held = Annotated[
    str,
    Doc(
        "the code of what would refuse it now, or of what keeps the leader from it; empty: nothing",
        grows=CODE_OR_EMPTY,
    ),
]
HeldExplanation = Annotated[str, Doc("what that code means; empty without one")]
ManualMoveState = Annotated[
    str,
    Doc(
        "planned (a dry run), waiting (for the leader) or proposed (to a second person)",
        of=("planned", "waiting", "proposed"),
    ),
]
ReviewAction = Annotated[str, Doc("what may be done with a review", grows=("approve", "discard", "stop"))]
TaskKind = Annotated[str, Doc("what is carried out", of=("plan", "transfer", "unload", "split"))]


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveUsageView(Answer):
    """What a bundle uses of its broker."""

    cpu: Annotated[float, Doc("percent of a core")]
    direct_memory: Annotated[float, Doc("MiB")]
    bandwidth_in: Annotated[float, Doc("kbit/s")]
    bandwidth_out: Annotated[float, Doc("kbit/s")]
    msg_rate: Annotated[float, Doc("msg/s, published and delivered")]
    throughput: Annotated[float, Doc("bytes/s, published and delivered")]


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveView(Answer):
    """One bundle from one broker to another. Scores are ratios, predicted for the moment before and after this move."""

    bundle: Bundle
    source: Annotated[str, Doc("the broker it leaves")]
    target: Annotated[str, Doc("the broker it goes to")]
    rule: Annotated[str, Doc("the rule that chose it")]
    threshold: Annotated[float, Doc("the limit that was exceeded, a ratio")]
    source_before: Annotated[float, Doc("score of the source before, a ratio")]
    source_after: Annotated[float, Doc("score of the source after, a ratio")]
    target_before: Annotated[float, Doc("score of the target before, a ratio")]
    target_after: Annotated[float, Doc("score of the target after, a ratio")]
    runner_up: Annotated[str, Doc("the next best target; empty: none")]
    traffic: Annotated[
        list[float],
        Doc("four rates: msg/s published, msg/s delivered, bytes/s published, bytes/s delivered, in this order"),
    ]
    pressure: Annotated[
        list[float],
        Doc(
            "six figures of what it uses: CPU (percent of a core), direct memory (MiB), bandwidth in (kbit/s), "
            "bandwidth out (kbit/s), messages (msg/s) and throughput (bytes/s), in this order"
        ),
    ]
    rates: Annotated[TrafficView, Doc("`traffic` by name")]
    usage: Annotated[MoveUsageView, Doc("`pressure` by name")]
    sentence: Sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitView(Answer):
    """One bundle to divide."""

    bundle: Bundle
    broker: Annotated[str, Doc("the broker that owns it")]
    rule: Annotated[str, Doc("the limit it is above: topics, sessions, msg_rate, bandwidth, hot, or `by hand`")]
    value: Annotated[float, Doc("topics, sessions, msg/s, MiB/s, or shares of the mean broker load")]
    limit: Annotated[float, Doc("in the units of `value`")]
    hits: Annotated[int, Doc("how often in a row it was above")]
    at: Annotated[list[int], Doc("positions that were asked for; empty: where load divides")]
    halves: Annotated[bool, Doc("whether it is cut in the middle")]
    sentence: Sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalView(Answer):
    """A candidate that does not move, and why."""

    code: CodeName
    bundle: Annotated[str, Doc("the bundle; empty: the broker as a whole")]
    broker: Broker
    detail: Detail
    explanation: Explanation
    limit: Annotated[float | None, Doc("of a budget: moves, or a share of traffic")] = None
    used: Annotated[float | None, Doc("of a budget: what is used of it")] = None
    frees_ms: Annotated[int, Doc("when that ends; 0: with the next cycle, or not known")] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanImbalance(Answer):
    """max/mean: the busiest broker over the mean of those that share the load; 1: even, 0: no load."""

    measure: Annotated[str, Doc("what of `loads`, which the strategy evens out", of=("score", "throughput"))]
    before: Annotated[float, Doc("max/mean before the moves")]
    after: Annotated[float, Doc("max/mean after the moves")]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSummary(Answer):
    """A plan made lately, without its moves."""

    hash: Hash
    wall_ms: PictureMs
    strategy: Annotated[str, Doc("the strategy, which decided what moves", grows=STRATEGIES)]
    placement: Annotated[str, Doc("the placement, which decided where to", grows=PLACEMENTS)]
    verdict: Annotated[Verdict, Doc("why it moves something, or nothing")]
    expires_ms: Annotated[int, Doc("when it is forgotten")]
    moves: Annotated[int, Doc("how many moves it has")]
    what_if: Annotated[bool, Doc("brokers or traffic in it are not as they are: never carried out")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanView(Answer):
    """A dry run: moves and splits with their reason, refusals with code and explanation, load per broker before and
    after."""

    hash: Hash
    wall_ms: PictureMs
    expires_ms: Annotated[int, Doc("when it is forgotten")]
    strategy: Annotated[str, Doc("the strategy, which decided what moves", grows=STRATEGIES)]
    placement: Annotated[str, Doc("the placement, which decided where to", grows=PLACEMENTS)]
    snapshot_digest: Annotated[str, Doc("of the picture it is made on")]
    verdict: Annotated[Verdict, Doc("why it moves something, or nothing")]
    brokers: Annotated[list[Verdict], Doc("why each broker is, or is not, relieved")]
    moves: Annotated[list[MoveView], Doc("what would move, in this order")]
    refusals: Annotated[list[RefusalView], Doc("what would not, and why")]
    refusal_counts: Annotated[dict[str, int], Doc("how many, by code", keys=Code)]
    splits: Annotated[list[SplitView], Doc("what would be divided, after the moves")]
    split_refusals: Annotated[list[RefusalView], Doc("what would not be divided although it is above a limit")]
    loads: Annotated[list[BrokerLoad], Doc("load of each broker before and after")]
    imbalance: Annotated[
        PlanImbalance, Doc("max/mean (1: even) before and after; of thresholds `imbalance` is max/mean less 1")
    ]
    by_leader: Annotated[bool, Doc("whether the leader made it")] = False
    what_if: Annotated[bool, Doc("brokers or traffic in it are not as they are: never carried out")] = False
    assumption: Annotated[
        str, Doc("of a what-if: what it assumes, and how loaded the busiest broker is now and then, as a sentence")
    ] = ""
    finished: Annotated[Finish | None, Doc("of a what-if: what comes of it in the end")] = None
    request: Annotated[Json, Doc("what was asked for, as in the body of POST /plans")] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted(Answer):
    """A plan that was left for the leader, or proposed."""

    hash: Hash
    moves: Annotated[int, Doc("how many moves it has")]
    splits: Annotated[int, Doc("how many splits it has")]
    task: Annotated[str, Doc("its task; empty (not null) while it is proposed")]
    state: Annotated[str, Doc("waiting (for the leader) or proposed (to a second person)", of=("waiting", "proposed"))]
    review: Review


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeView(Answer):
    """What became of a move of a task."""

    bundle: Bundle
    outcome: Annotated[str, Doc("how it ended", of=OUTCOMES)]
    landed_on: Annotated[str, Doc("the broker it came to; empty: none, or not known")] = ""
    code: Annotated[str | None, Doc("the code of why it was refused, or ended otherwise; null: none", grows=Code)] = (
        None
    )

    def __post_init__(self) -> None:
        """Read the empty code of a stored move as none."""
        object.__setattr__(self, "code", self.code or None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskView(Answer):
    """A request and its progress. Tasks are stored in this form, too."""

    task: Annotated[str, Doc("the id of the task")]
    hash: Hash = ""
    state: Annotated[
        str,
        Doc(
            "waiting: for the leader; done: carried out, the `outcome` of each of `moves` says whether it landed; "
            "failed: nothing landed where asked, or not all was begun; bundles may have moved, see `moves`",
            of=("waiting", "running", "done", "failed", "stopped"),
        ),
    ]
    kind: TaskKind = "plan"
    reason: Reason = ""
    by: By = ""
    left_ms: Annotated[
        int, Doc("when it was asked for and left for the leader, a time and not what is left of one; 0: unknown")
    ] = 0
    detail: Detail = ""
    moves: Annotated[list[OutcomeView], Doc("what became of its moves")] = field(default_factory=list)
    difference: Annotated[list[str], Doc("what changed since, when it failed for that")] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping(Answer):
    """A task that begins no further move."""

    task: Annotated[str, Doc("the id of the task")]
    state: Annotated[str, Doc("no further move begins", of=("stopping",))]


@dataclass(frozen=True, slots=True, kw_only=True)
class RelocationView(Answer):
    """What a drain or a warm moves."""

    broker: Broker
    dry_run: DryRun
    bundles: Annotated[int, Doc("how many it owns, or how many come to it")]
    moves: Annotated[list[MoveView], Doc("what moves, in this order")]
    refusals: Annotated[list[RefusalView], Doc("what stays for now, and why")]
    refusal_counts: Annotated[dict[str, int], Doc("how many, by code", keys=Code)]
    eta_seconds: Annotated[float | None, Doc("what these moves take; null: none may move")]
    sentence: Sentence
    detail: Detail
    held: Held = ""
    held_explanation: HeldExplanation = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateView(Answer):
    """A broker a bundle may go to, or why not there."""

    broker: Broker
    score_before: Annotated[float, Doc("its score now, a ratio")]
    score_after: Annotated[float | None, Doc("a ratio, with the bundle on it; null: not computed")]
    code: Annotated[str | None, Doc("the code of why not there; null: it may", grows=Code)]
    explanation: Explanation


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildView(Answer):
    """What a split makes."""

    bundle: Bundle
    topics_ratio: Annotated[float, Doc("its share of the topics")]
    msg_rate_ratio: Annotated[float, Doc("its share of the messages")]
    throughput_ratio: Annotated[float, Doc("its share of the bytes")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ManualMoveView(Answer):
    """A move or split that a person asked for."""

    kind: Annotated[str, Doc("what was asked for", of=("transfer", "unload", "split"))]
    name: Annotated[str, Doc("the bundle or topic that was named")]
    bundle: Bundle
    source: Annotated[str, Doc("the broker that owns it")]
    hash: Hash
    refusals: Annotated[
        list[RefusalView],
        Doc("why the bundle or its brokers do not allow it; mode and pauses: `held`"),
    ]
    sentence: Sentence
    target: Annotated[str | None, Doc("the broker it goes to; null of a split, or when it stays")] = None
    move: Annotated[MoveView | None, Doc("the move; null of a split, or when it stays")] = None
    candidates: Annotated[list[CandidateView], Doc("every other broker as a target, and why not there")] = field(
        default_factory=list
    )
    loads: Annotated[list[BrokerLoad], Doc("load of each broker before and after")] = field(default_factory=list)
    override_cool_down: Annotated[bool, Doc("whether it moves although it moved lately")] = False
    topics: Annotated[list[str], Doc("of a split: topics that were named")] = field(default_factory=list)
    children: Annotated[list[ChildView], Doc("of a split: what it makes")] = field(default_factory=list)
    algorithm: Annotated[str | None, Doc("of a split: Pulsar's algorithm; null: where load divides")] = None
    unload: Annotated[bool, Doc("of a split: whether the children leave their broker then")] = False
    dry_run: DryRun = True
    task: TaskId = None
    state: ManualMoveState = "planned"
    review: Review = None
    held: Held = ""
    held_explanation: HeldExplanation = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceUnloadView(Answer):
    """The unload of a namespace."""

    kind: Annotated[str, Doc("what was asked for", of=("unload",))]
    namespace: Annotated[str, Doc("tenant/namespace")]
    bundles: Annotated[int, Doc("how many the namespace has")]
    moves: Annotated[list[MoveView], Doc("as of now; each bundle goes where there is most room when it goes")]
    waiting: Annotated[list[RefusalView], Doc("why bundles do not leave in the next cycle yet")]
    refusals: Annotated[list[RefusalView], Doc("what stays, and why")]
    refusal_counts: Annotated[dict[str, int], Doc("how many stay, by code", keys=Code)]
    sentence: Sentence
    override_cool_down: Annotated[bool, Doc("whether bundles move although they moved lately")]
    hash: Hash
    eta_seconds: Annotated[float | None, Doc("what the moves alone take; null: none may move")] = None
    dry_run: DryRun = True
    task: TaskId = None
    state: ManualMoveState = "planned"
    review: Review = None
    held: Held = ""
    held_explanation: HeldExplanation = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewView(Answer):
    """What one person proposes and another one has to approve."""

    id: Annotated[str, Doc("the `hash` of what is proposed")]
    kind: TaskKind
    title: Annotated[str, Doc("what is to be done")]
    by: Annotated[str, Doc("who proposed it")]
    reason: Reason
    at_ms: Annotated[int, Doc("when it was proposed")]
    state: Annotated[
        str,
        Doc("how far it is", of=("proposed", "approved", "executing", "done", "aborted", "discarded", "expired")),
    ]
    reviewer: Annotated[str, Doc("who approved or discarded it; empty: nobody yet")]
    remark: Annotated[str, Doc("the reviewer's reason")]
    decided_ms: Annotated[int, Doc("when; 0: not yet")]
    task: Annotated[str, Doc("its task; empty: none yet")]
    actions: Annotated[list[ReviewAction], Doc("what may be done with it now: approve, discard, stop")]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """A dry run: overrides on top of the running settings. `ignore_hit_counts`: None: in a what-if alone. `forwarded`
    stops a second hand-over to a leader."""

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
        """Whether brokers or traffic in it are not as they are: such a plan is never carried out."""
        return bool(self.remove_brokers or self.add_brokers) or self.traffic_scale != 1.0

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> PlanRequest:
        """Out of JSON: what `to_json` gave, or a body of the API. TypeError, ValueError for what is no such thing."""
        brokers = {name: tuple(values.get(name, ())) for name in ("remove_brokers", "add_brokers")}
        return cls(**{**values, **brokers})

    def to_json(self) -> Json:
        """As JSON, for another sidecar or the store. Added brokers only where there are some: a sidecar of the release
        before refuses what it does not know."""
        values = asdict(self)
        return values if self.add_brokers else {key: item for key, item in values.items() if key != "add_brokers"}
