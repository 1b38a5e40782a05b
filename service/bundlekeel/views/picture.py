"""Responses about the cluster and the sidecar: state, brokers, bundles, reasons, settings, lookups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args

from bundlekeel.leader.gate.responses import Mode, PauseView, SettlingView
from bundlekeel.leader.state.responses import Role, TakeoverView
from bundlekeel.model.codes import Code
from bundlekeel.model.doc import Answer, Doc
from bundlekeel.model.members import Member
from bundlekeel.model.parameter_table import PLACEMENTS, STRATEGIES
from bundlekeel.model.plan import Verdict
from bundlekeel.model.response_fields import (
    Broker,
    Bundle,
    By,
    CodeName,
    Detail,
    Explanation,
    Json,
    Like,
    PictureMs,
    Reason,
    Sentence,
    TrafficView,
)
from bundlekeel.pulsar.channel.findings import ChannelFinding
from bundlekeel.pulsar.channel.responses import UnitView
from bundlekeel.views.journal import JournalRecord

CodeOrNull = Annotated[str | None, Doc("code of the obstacle; null: none", grows=Code)]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreView(Answer):
    """The connection to the metadata store."""

    connected: Annotated[bool, Doc("whether the sidecar has a session")]
    session_seconds: Annotated[float, Doc("timeout of the session")]


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleView(Answer):
    """The leader's last cycle."""

    id: Annotated[int, Doc("number of the cycle")]
    wall_ms: PictureMs
    sentence: Sentence
    verdict: Annotated[str, Doc("code of the verdict", grows=Code)]
    moves: Annotated[int, Doc("number of planned moves")]
    seconds: Annotated[float | None, Doc("duration of the cycle")]
    obstacle: Annotated[str | None, Doc("code of the obstacle to executing the plan; null: none", grows=Code)]
    obstacle_explanation: Annotated[str, Doc("meaning of the code; empty: no code")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImbalanceView(Answer):
    """max/mean in the last plan: most loaded broker, divided by the mean of brokers that share load; 1: balanced, 0:
    idle."""

    throughput_max_mean: Annotated[float | None, Doc("max/mean of throughput")]
    score_max_mean: Annotated[float | None, Doc("max/mean of scores")]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerView(Answer):
    """Moves whose load the brokers' reports do not include yet."""

    entries: Annotated[int, Doc("number of these moves")]
    unsettled: Annotated[list[str], Doc("brokers whose reports may not include the last moves")]


@dataclass(frozen=True, slots=True, kw_only=True)
class State(Answer):
    """State of the sidecar: leader, mode, last cycle, balance of the load, takeover."""

    member: Annotated[str, Doc("name of the responding sidecar")]
    role: Annotated[Role, Doc("role of this sidecar; bench: it waits for a seat")]
    seat: Annotated[int | None, Doc("seat of this sidecar; null: on the bench")]
    epoch: Annotated[int | None, Doc("epoch of the leader's term; null: no known leader")]
    leader: Annotated[Member | None, Doc("leader; null: unknown")]
    members: Annotated[list[Member], Doc("all sidecars with a seat")]
    cluster: Annotated[str, Doc("name of the cluster in the settings")]
    cluster_mode: Annotated[
        str, Doc("load manager of the brokers", of=("modular", "extensible", "other", "mixed", "unknown"))
    ]
    mode: Annotated[Mode, Doc("mode in effect")]
    mode_ceiling: Annotated[Mode, Doc("mode in the settings file, the highest allowed one")]
    strategy: Annotated[str, Doc("strategy, which selects the bundles to move", grows=STRATEGIES)]
    placement: Annotated[str, Doc("placement, which selects the targets", grows=PLACEMENTS)]
    paused: Annotated[PauseView | None, Doc("active pause; null: none")]
    store: Annotated[StoreView, Doc("connection to the metadata store")]
    cycle: Annotated[CycleView | None, Doc("last cycle; null: none yet")]
    imbalance: Annotated[
        ImbalanceView, Doc("max/mean of the load (1: balanced); in thresholds, `imbalance` is max/mean minus 1")
    ]
    overloaded_ratio: Annotated[float, Doc("overload threshold: a broker with a higher score is overloaded")]
    ledger: Annotated[LedgerView, Doc("moves in progress, or not yet included in the brokers' reports")]
    intents: Annotated[list[str], Doc("bundles whose move or split by an earlier leader is not settled yet")]
    version: Annotated[str, Doc("release of this sidecar")]
    uptime_seconds: Annotated[float, Doc("time since the process started")]
    acting: Annotated[bool, Doc("whether this sidecar executes its plans")]
    acting_obstacle: Annotated[str | None, Doc("code of the obstacle to acting; null: none", grows=Code)]
    acting_detail: Annotated[str, Doc("details of the obstacle, such as brokers, operator or reason; empty: none")]
    takeover: Annotated[TakeoverView | None, Doc("the last takeover; null: there was none, if `takeover_known`")]
    takeover_known: Annotated[bool, Doc("whether this sidecar could read the last takeover's record")] = True
    settling: Annotated[SettlingView | None, Doc("wait after an outage; null: none")]


@dataclass(frozen=True, slots=True, kw_only=True)
class WhoAmI(Answer):
    """The responding sidecar, and the caller's permissions."""

    member: Annotated[str, Doc("name of the responding sidecar")]
    role: Annotated[Role, Doc("role of the sidecar; `your_role` is the caller's role")]
    version: Annotated[str, Doc("release of this sidecar")]
    mode: Annotated[Mode, Doc("mode in effect")]
    mutations: Annotated[bool, Doc("whether the caller may make changes through this interface")]
    you: Annotated[str, Doc("authenticated name of the caller; empty: no credentials")]
    your_role: Annotated[
        str, Doc("role of the caller; each role includes the lower ones", of=("viewer", "operator", "admin"))
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceView(Answer):
    """Usage and limit of one resource of a broker."""

    percent: Annotated[float, Doc("usage in percent of the limit")]
    usage: Annotated[float, Doc("usage in the unit of the resource")]
    limit: Annotated[float, Doc("limit in the unit of the resource; 0: unknown")]
    overridden: Annotated[bool, Doc("whether the limit comes from the setting `capacity`")]


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalsView(Answer):
    """Traffic of a broker: the averages of its bundles added up, incoming plus outgoing."""

    msg_rate: Annotated[float, Doc("msg/s")]
    throughput: Annotated[float, Doc("bytes/s")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComingView(Answer):
    """A bundle in transit to a broker."""

    bundle: Bundle
    age_seconds: Annotated[float, Doc("time since the move was decided")]


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuCostsView(Answer):
    """CPU use of a broker, learned from its traffic: without traffic, and per message and byte."""

    base_ratio: Annotated[float, Doc("share of the CPU limit that does not depend on bundles; moves do not reduce it")]
    message_seconds: Annotated[float, Doc("CPU seconds per message, in or out")]
    message_seconds_low: Annotated[float, Doc("lower end of the 95 % interval")]
    message_seconds_high: Annotated[float, Doc("upper end of the 95 % interval")]
    byte_seconds: Annotated[float, Doc("CPU seconds per byte, in or out")]
    byte_seconds_low: Annotated[float, Doc("lower end of the 95 % interval")]
    byte_seconds_high: Annotated[float, Doc("upper end of the 95 % interval")]
    capacity_msg_rate: Annotated[
        float | None, Doc("msg/s, in and out, at which the current mix of traffic uses the whole CPU; null: unknown")
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerView(Answer):
    """One registered broker: its reported load, its predicted load after the moves in transit, and the last plan's
    verdict.

    Fields are null if the broker's report is unusable."""

    broker: Broker
    alive: Annotated[bool, Doc("whether the broker is registered")] = True
    state: Annotated[str, Doc("ok, or the code of why the report is not used", grows=("ok", *Code))] = "ok"
    detail: Detail = ""
    score_ratio: Annotated[float | None, Doc("load score, including the moves of the ledger")] = None
    reported_score_ratio: Annotated[float | None, Doc("reported load score")] = None
    resources: Annotated[
        dict[str, ResourceView] | None,
        Doc(
            "usage and limit of `cpu` (percent of a core), `direct_memory` (MiB), `bandwidth_in` and `bandwidth_out` "
            "(kbit/s), `msg_rate` (msg/s) and `throughput` (bytes/s)"
        ),
    ] = None
    cpu_costs: Annotated[CpuCostsView | None, Doc("learned CPU costs; null: unknown, or no CPU limit")] = None
    msg_rate_in: Annotated[float | None, Doc("msg/s published, latest report")] = None
    msg_rate_out: Annotated[float | None, Doc("msg/s delivered, latest report")] = None
    throughput_in: Annotated[float | None, Doc("bytes/s published, latest report")] = None
    throughput_out: Annotated[float | None, Doc("bytes/s delivered, latest report")] = None
    predicted_throughput: Annotated[float | None, Doc("bytes/s in and out, including the moves of the ledger")] = None
    bundles: Annotated[int | None, Doc("number of bundles, including the moves of the ledger")] = None
    topics: Annotated[int | None, Doc("number of topics in the report")] = None
    report_age_seconds: Annotated[float | None, Doc("age of the reported values")] = None
    measured_seconds: Annotated[
        float | None,
        Doc("time between the two counter readings behind the values; null: values are from its load report"),
    ] = None
    version: Annotated[str, Doc("Pulsar release of the broker")] = ""
    load_manager: Annotated[str, Doc("class of the load manager")] = ""
    sheds_itself: Annotated[bool | None, Doc("whether the broker's own shedding is on; null: unknown")] = None
    splits_itself: Annotated[bool | None, Doc("whether the broker's own splitting is on; null: unknown")] = None
    requested: Annotated[
        str, Doc("operators' request for the broker; empty: none", of=("", "drain", "cordon", "warm"))
    ] = ""
    shares_load: Annotated[
        bool, Doc("whether the mean includes it: its report is usable, and it is not drained, cordoned or excluded")
    ] = True
    unsettled: Annotated[bool, Doc("whether the report may not include the last moves yet")] = False
    preallocated: Annotated[list[ComingView] | None, Doc("bundles in transit to the broker")] = None
    short: Annotated[TotalsView | None, Doc("short-term average of its bundles (10 samples)")] = None
    long: Annotated[TotalsView | None, Doc("long-term average of its bundles (1,000 samples)")] = None
    verdict: Annotated[Verdict | None, Doc("verdict of the last plan on the broker")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleView(Answer):
    """One bundle: traffic (latest sample, means of the last 10 and 1,000), and whether it may move."""

    bundle: Bundle
    broker: Annotated[str | None, Doc("the broker that owns it")]
    topics: Annotated[int, Doc("number of topics")]
    consumers: Annotated[int, Doc("number of consumers of its topics")]
    producers: Annotated[int, Doc("number of producers of its topics")]
    latest: Annotated[TrafficView, Doc("traffic of the latest sample")]
    short: Annotated[TrafficView, Doc("traffic as short-term average")]
    long: Annotated[TrafficView, Doc("traffic as long-term average")]
    short_samples: Annotated[int, Doc("samples behind `short`")]
    long_samples: Annotated[int, Doc("samples behind `long`")]
    score_ratio: Annotated[float, Doc("part of the broker's score that the bundle causes")]
    may_move: Annotated[bool, Doc("whether the guard allows a move")]
    code: CodeOrNull
    preallocated_to: Annotated[str | None, Doc("broker that the bundle is in transit to; null: none")]
    preallocated_age_seconds: Annotated[float | None, Doc("time since the move was decided")]
    last_move_ms: Annotated[int | None, Doc("time of the last move; null: unknown")]


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewNamespace(Answer):
    """A namespace and its throughput."""

    namespace: Annotated[str, Doc("tenant/namespace")]
    throughput: Annotated[float, Doc("bytes/s, in and out, short-term average")]


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewBundle(Answer):
    """A bundle with its short-term throughput."""

    bundle: Bundle
    namespace: Annotated[int, Doc("index in the list of namespaces")]
    throughput: Annotated[float, Doc("bytes/s, in and out, short-term average")]


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewBroker(Answer):
    """A broker's largest bundles, and the sum of its other bundles."""

    broker: Broker
    bundles: Annotated[list[OverviewBundle], Doc("largest bundles by throughput")]
    other_bundles: Annotated[int, Doc("number of other bundles")]
    other_throughput: Annotated[float, Doc("bytes/s of the other bundles")]


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewView(Answer):
    """Summary of the cluster: namespaces and brokers by throughput."""

    wall_ms: Annotated[int | None, Doc("time of the snapshot; null: none yet")]
    namespaces: Annotated[list[OverviewNamespace], Doc("namespaces by throughput, largest first")]
    brokers: Annotated[list[OverviewBroker], Doc("all brokers")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks(Answer):
    """Values of which at least one differs after a change in the cluster; cheap enough to poll twice per second."""

    picture: Annotated[int, Doc("time of the snapshot, in ms")]
    cycle: Annotated[str, Doc("number of the last cycle, as a string; empty: none yet")]
    leader: Annotated[str, Doc("leader and epoch")]
    store: Annotated[bool, Doc("whether the metadata store is connected")]
    moves: Annotated[int, Doc("time of the last move, in ms")]
    tasks: Annotated[str, Doc("digest of the tasks")]
    requests: Annotated[str, Doc("digest of the operators' requests")]


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeView(Answer):
    """A code and its meaning."""

    code: CodeName
    explanation: Explanation
    detail: Detail = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyView(Answer):
    """Explanation of the current owner of a bundle or of the bundles of a broker, and the action to change it."""

    kind: Annotated[Literal["broker", "bundle", "topic"], Doc("kind of the requested object")]
    name: Annotated[str, Doc("name of the requested object")]
    broker: Annotated[str | None, Doc("the broker, or the owner of the bundle")]
    bundle: Annotated[str | None, Doc("the bundle; null for a broker")] = None
    sentence: Sentence
    codes: Annotated[list[CodeView], Doc("obstacles to a move, and when they end")]
    planned: Annotated[list[str], Doc("for a broker: moves of the last plan to or from it")] = field(
        default_factory=list
    )
    history: Annotated[list[Annotated[Json, Like(JournalRecord)]], Doc("records of the last 20 moves, oldest first")]
    what_would_change_it: Annotated[str, Doc("the next action, or why there is nothing to do")]
    channel: Annotated[UnitView | None, Doc("the bundle's entry in the ownership channel")] = None
    findings: Annotated[list[ChannelFinding], Doc("problems of that entry")] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleVerdict(Answer):
    """The result of planning in one cycle."""

    cycle: Annotated[int, Doc("number of the cycle")]
    wall_ms: PictureMs
    moves: Annotated[int, Doc("number of planned moves")]
    verdict: Annotated[Verdict, Doc("verdict on the plan")]
    refusals: Annotated[dict[str, int], Doc("number of candidates that do not move, by code", keys=Code)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(Answer):
    """One setting in effect, and its origin."""

    key: Annotated[str, Doc("key in the settings file")]
    value: Annotated[Any, Doc("the value in effect; secrets are hidden")]
    origin: Annotated[str, Doc("origin of the value: file and line, environment or default")]
    pulsar_keys: Annotated[list[str], Doc("names of the corresponding Pulsar settings")]
    unit: Annotated[str, Doc("the unit of the value")]
    why: Annotated[str, Doc("purpose of the setting")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeView(Answer):
    """Response to a change of the mode."""

    mode: Annotated[str, Doc("requested mode", of=get_args(Mode))]
    reason: Reason
    by: By


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed(Answer):
    """Response to the end of the pause of everything."""

    reason: Reason
    by: By
