"""Answers about the cluster and the sidecar: state, brokers, bundles, reasons, settings, places."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args

from bundlekeel.core.channel.findings import ChannelFinding
from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.doc import Answer, Doc
from bundlekeel.core.model.parameter_table import PLACEMENTS, STRATEGIES
from bundlekeel.core.model.plan import Verdict
from bundlekeel.daemon.answers.channel import UnitView
from bundlekeel.daemon.answers.doc import (
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
    SinceMs,
    WallMs,
)
from bundlekeel.daemon.answers.journal import JournalRecord
from bundlekeel.ports import Member

Mode = Literal["observe", "recommend", "act"]
Role = Literal["leader", "follower", "bench"]
Ownership = Literal["owned", "unowned", "unloading"]
CodeOrNull = Annotated[str | None, Doc("the code of what prevents it; null: nothing", grows=Code)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseView(Answer):
    """A pause."""

    reason: Reason
    by: By
    since_ms: SinceMs
    until_ms: Annotated[int | None, Doc("its end; null: until resumed")]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreView(Answer):
    """The connection to the metadata store."""

    connected: Annotated[bool, Doc("whether there is a session")]
    session_seconds: Annotated[float, Doc("the session's timeout")]


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleView(Answer):
    """The leader's last cycle."""

    id: Annotated[int, Doc("the number of the cycle")]
    wall_ms: PictureMs
    sentence: Sentence
    verdict: Annotated[str, Doc("the code of its verdict", grows=Code)]
    moves: Annotated[int, Doc("how many it planned")]
    seconds: Annotated[float | None, Doc("how long it took")]
    obstacle: Annotated[
        str | None, Doc("the code of why nothing of it was carried out; null: nothing prevented it", grows=Code)
    ]
    obstacle_explanation: Annotated[str, Doc("what that code means; empty without one")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImbalanceView(Answer):
    """The busiest broker over the mean of those that share the load, as the last plan saw it; 1: even, 0: no load."""

    throughput_max_mean: Annotated[float | None, Doc("max/mean of throughput")]
    score_max_mean: Annotated[float | None, Doc("max/mean of scores")]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerView(Answer):
    """Moves whose load the brokers' reports do not show yet."""

    entries: Annotated[int, Doc("how many such moves there are")]
    unsettled: Annotated[list[str], Doc("brokers whose reports are not settled")]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedView(Answer):
    """The end of a takeover."""

    by: By
    reason: Reason
    wall_ms: WallMs
    deadman: Annotated[bool, Doc("whether the failsafe job ended it")]


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeoverView(Answer):
    """The last takeover of the brokers' own load shedding."""

    active: Annotated[bool, Doc("whether it lasts")]
    by: By
    reason: Reason
    wall_ms: WallMs
    namespaces: Annotated[list[str], Doc("the only ones taken over; empty: all")]
    ended: Annotated[EndedView | None, Doc("how it ended; null: it did not")]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettlingView(Answer):
    """The wait after an outage, in which nothing moves."""

    why: Annotated[str, Doc("what was not available")]
    away: Annotated[bool, Doc("whether it is still not available")]
    missing: Annotated[list[str], Doc("brokers that were there before")]
    quiet_seconds: Annotated[float, Doc("how long it has been quiet")]
    until_ms: Annotated[int, Doc("when moves begin again; 0: not known yet")]
    sentence: Sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class State(Answer):
    """Who leads, what mode, how the last cycle went, how even the load is."""

    member: Annotated[str, Doc("the sidecar that answers")]
    role: Annotated[Role, Doc("what it is now; bench: it waits for a seat")]
    seat: Annotated[int | None, Doc("its seat; null on the bench")]
    epoch: Annotated[int | None, Doc("of the leader's term; null: no leader is known")]
    leader: Annotated[Member | None, Doc("who leads; null: not known")]
    members: Annotated[list[Member], Doc("all sidecars with a seat")]
    cluster: Annotated[str, Doc("the cluster's name, by the settings")]
    cluster_mode: Annotated[
        str, Doc("the brokers' load manager", of=("modular", "extensible", "other", "mixed", "unknown"))
    ]
    mode: Annotated[Mode, Doc("the mode in force")]
    mode_ceiling: Annotated[Mode, Doc("the mode of the settings file")]
    strategy: Annotated[str, Doc("the strategy, which decides what moves", grows=STRATEGIES)]
    placement: Annotated[str, Doc("the placement, which decides where to", grows=PLACEMENTS)]
    paused: Annotated[PauseView | None, Doc("the pause in force; null: none")]
    store: Annotated[StoreView, Doc("the metadata store")]
    cycle: Annotated[CycleView | None, Doc("the last cycle; null: none yet")]
    imbalance: Annotated[
        ImbalanceView, Doc("how even the load is, as max/mean (1: even); of thresholds `imbalance` is max/mean less 1")
    ]
    overloaded_ratio: Annotated[float, Doc("the overload threshold: a broker with a higher score is overloaded")]
    ledger: Annotated[LedgerView, Doc("moves under way or not visible in the reports yet")]
    intents: Annotated[list[str], Doc("bundles whose move or split an earlier leader began, not settled yet")]
    version: Annotated[str, Doc("this sidecar's release")]
    uptime_seconds: Annotated[float, Doc("since this process began")]
    acting: Annotated[bool, Doc("whether this sidecar carries out what it plans")]
    acting_obstacle: Annotated[str | None, Doc("the code of why not; null: nothing prevents it", grows=Code)]
    acting_detail: Annotated[str, Doc("what exactly: which brokers, or who and why; empty: the code says it all")]
    takeover: Annotated[TakeoverView | None, Doc("the last takeover; null: there was none, if `takeover_known`")]
    takeover_known: Annotated[bool, Doc("whether this sidecar could read the record of the last takeover")] = True
    settling: Annotated[SettlingView | None, Doc("after an outage: what is waited for; null: nothing")]


@dataclass(frozen=True, slots=True, kw_only=True)
class WhoAmI(Answer):
    """Which sidecar answers, and what it would let you do here."""

    member: Annotated[str, Doc("the name of the sidecar that answers")]
    role: Annotated[Role, Doc("the role of the sidecar; `your_role` is that of the caller")]
    version: Annotated[str, Doc("the release it runs")]
    mode: Annotated[Mode, Doc("the mode in force")]
    mutations: Annotated[bool, Doc("whether you may change something here")]
    you: Annotated[str, Doc("the authenticated name; empty without credentials")]
    your_role: Annotated[str, Doc("a higher role may do what a lower one may", of=("viewer", "operator", "admin"))]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceView(Answer):
    """One resource of a broker."""

    percent: Annotated[float, Doc("usage of the limit, in percent")]
    usage: Annotated[float, Doc("in the unit of the resource")]
    limit: Annotated[float, Doc("in the unit of the resource; 0: unknown")]
    overridden: Annotated[bool, Doc("whether the limit is from our settings (capacity)")]


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalsView(Answer):
    """An average of all traffic of a broker, in and out together."""

    msg_rate: Annotated[float, Doc("msg/s")]
    throughput: Annotated[float, Doc("bytes/s")]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficView(Answer):
    """Traffic of a bundle."""

    msg_rate_in: Annotated[float, Doc("msg/s published")]
    msg_rate_out: Annotated[float, Doc("msg/s delivered")]
    throughput_in: Annotated[float, Doc("bytes/s published")]
    throughput_out: Annotated[float, Doc("bytes/s delivered")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComingView(Answer):
    """A bundle that is on its way to a broker."""

    bundle: Bundle
    age_seconds: Annotated[float, Doc("since its move was decided")]


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuCostsView(Answer):
    """CPU of a broker as learned from its traffic: a base that no bundle causes, and the cost of messages and bytes."""

    base_ratio: Annotated[float, Doc("share of the CPU limit that no bundle causes; moving bundles does not free it")]
    message_seconds: Annotated[float, Doc("CPU seconds per message, in or out")]
    message_seconds_low: Annotated[float, Doc("lower end of the 95 % interval")]
    message_seconds_high: Annotated[float, Doc("upper end of the 95 % interval")]
    byte_seconds: Annotated[float, Doc("CPU seconds per byte, in or out")]
    byte_seconds_low: Annotated[float, Doc("lower end of the 95 % interval")]
    byte_seconds_high: Annotated[float, Doc("upper end of the 95 % interval")]
    capacity_msg_rate: Annotated[
        float | None, Doc("msg/s, in and out, at which its present mix of traffic uses up the CPU; null: unknown")
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerView(Answer):
    """One registered broker: its load as reported and as predicted with the ledger, and why it is left or chosen. What
    is null cannot be told, since its report cannot be used."""

    broker: Broker
    alive: Annotated[bool, Doc("whether it is registered")] = True
    state: Annotated[str, Doc("ok, or the code of why its report is not used", grows=("ok", *Code))] = "ok"
    detail: Detail = ""
    score_ratio: Annotated[float | None, Doc("its load score, with the moves of the ledger")] = None
    reported_score_ratio: Annotated[float | None, Doc("its load score as reported")] = None
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
    predicted_throughput: Annotated[float | None, Doc("bytes/s both ways, with the moves of the ledger")] = None
    bundles: Annotated[int | None, Doc("how many, with the moves of the ledger")] = None
    topics: Annotated[int | None, Doc("how many it reports")] = None
    report_age_seconds: Annotated[float | None, Doc("age of its figures")] = None
    measured_seconds: Annotated[
        float | None,
        Doc("the time between the two readings of its counters that its figures come from; null: its own report"),
    ] = None
    version: Annotated[str, Doc("the release of Pulsar it runs")] = ""
    load_manager: Annotated[str, Doc("its load manager's class")] = ""
    sheds_itself: Annotated[bool | None, Doc("whether its own shedding is on; null: not known")] = None
    splits_itself: Annotated[bool | None, Doc("whether its own splitting is on; null: not known")] = None
    requested: Annotated[str, Doc("what people asked of it; empty: nothing", of=("", "drain", "cordon", "warm"))] = ""
    shares_load: Annotated[
        bool, Doc("whether the mean of max/mean counts it: a usable report, and neither drained, cordoned nor excluded")
    ] = True
    unsettled: Annotated[bool, Doc("whether its report may not show the last moves yet")] = False
    preallocated: Annotated[list[ComingView] | None, Doc("bundles on their way to it")] = None
    short: Annotated[TotalsView | None, Doc("its bundles' short-term averages (10 samples)")] = None
    long: Annotated[TotalsView | None, Doc("its bundles' long-term averages (1,000 samples)")] = None
    verdict: Annotated[Verdict | None, Doc("what the last plan says of it")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleView(Answer):
    """One bundle: latest sample, short term (10 samples), long term (1,000), and whether it may move."""

    bundle: Bundle
    broker: Annotated[str | None, Doc("the broker that owns it")]
    topics: Annotated[int, Doc("how many topics it has")]
    consumers: Annotated[int, Doc("how many consumers its topics have")]
    producers: Annotated[int, Doc("how many producers its topics have")]
    latest: Annotated[TrafficView, Doc("traffic of the latest sample")]
    short: Annotated[TrafficView, Doc("traffic as short-term average")]
    long: Annotated[TrafficView, Doc("traffic as long-term average")]
    short_samples: Annotated[int, Doc("samples behind `short`")]
    long_samples: Annotated[int, Doc("samples behind `long`")]
    score_ratio: Annotated[float, Doc("what it adds to its broker's score")]
    may_move: Annotated[bool, Doc("whether the guard lets it move")]
    code: CodeOrNull
    preallocated_to: Annotated[str | None, Doc("the broker it is on its way to")]
    preallocated_age_seconds: Annotated[float | None, Doc("since that was decided")]
    last_move_ms: Annotated[int | None, Doc("when it moved last")]


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewNamespace(Answer):
    """A namespace and its throughput."""

    namespace: Annotated[str, Doc("tenant/namespace")]
    throughput: Annotated[float, Doc("bytes/s, both ways, short term")]


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewBundle(Answer):
    """A bundle by short-term throughput."""

    bundle: Bundle
    namespace: Annotated[int, Doc("its place in the list of namespaces")]
    throughput: Annotated[float, Doc("bytes/s, both ways, short term")]


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewBroker(Answer):
    """A broker's largest bundles, and the sum of all others."""

    broker: Broker
    bundles: Annotated[list[OverviewBundle], Doc("the largest ones, by throughput")]
    other_bundles: Annotated[int, Doc("how many bundles it has beside those")]
    other_throughput: Annotated[float, Doc("bytes/s of the others")]


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewView(Answer):
    """The cluster in few rows."""

    wall_ms: Annotated[int | None, Doc("of the picture; null: none yet")]
    namespaces: Annotated[list[OverviewNamespace], Doc("by throughput, largest first")]
    brokers: Annotated[list[OverviewBroker], Doc("all brokers")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks(Answer):
    """Marks that differ when something changed; cheap enough for twice a second."""

    picture: Annotated[int, Doc("time of the picture, in ms")]
    cycle: Annotated[str, Doc("the last cycle: its number, as a text; empty: none yet")]
    leader: Annotated[str, Doc("who leads, in which term")]
    store: Annotated[bool, Doc("whether the metadata store is connected")]
    moves: Annotated[int, Doc("time of the last move, in ms")]
    tasks: Annotated[str, Doc("digest of the tasks")]
    requests: Annotated[str, Doc("digest of what people asked for")]


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeView(Answer):
    """A code and what it means."""

    code: CodeName
    explanation: Explanation
    detail: Detail = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyView(Answer):
    """Why a broker or bundle is where it is, and what would change it."""

    kind: Annotated[Literal["broker", "bundle", "topic"], Doc("what was asked about")]
    name: Annotated[str, Doc("what was asked about")]
    broker: Annotated[str | None, Doc("the broker, or the bundle's owner")]
    bundle: Annotated[str | None, Doc("the bundle; null for a broker")] = None
    sentence: Sentence
    codes: Annotated[list[CodeView], Doc("what prevents a move, and until when")]
    planned: Annotated[list[str], Doc("of a broker: the moves of the last plan that touch it")] = field(
        default_factory=list
    )
    history: Annotated[list[Annotated[Json, Like(JournalRecord)]], Doc("records of its last 20 moves, oldest first")]
    what_would_change_it: Annotated[str, Doc("the one action, or why there is nothing to do")]
    channel: Annotated[UnitView | None, Doc("the bundle's entry in the ownership channel")] = None
    findings: Annotated[list[ChannelFinding], Doc("what is wrong with that entry")] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleVerdict(Answer):
    """One cycle's verdict."""

    cycle: Annotated[int, Doc("the number of the cycle")]
    wall_ms: PictureMs
    moves: Annotated[int, Doc("how many it planned")]
    verdict: Annotated[Verdict, Doc("why it did what it did")]
    refusals: Annotated[dict[str, int], Doc("candidates that do not move, by code", keys=Code)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(Answer):
    """One effective setting and where it came from."""

    key: Annotated[str, Doc("as in the settings file")]
    value: Annotated[Any, Doc("the value in effect; secrets are hidden")]
    origin: Annotated[str, Doc("where it came from")]
    pulsar_keys: Annotated[list[str], Doc("Pulsar's names for it")]
    unit: Annotated[str, Doc("the unit of the value")]
    why: Annotated[str, Doc("what it is for")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place(Answer):
    """Where a topic or bundle is; asking never assigns it."""

    topic: Annotated[str | None, Doc("the topic, or the partition; null: a bundle was asked for")] = None
    topic_exists: Annotated[
        bool | None, Doc("false: nothing is stored of the topic, a client makes it by using it; null: as `topic`")
    ] = None
    hash: Annotated[str | None, Doc("the topic's, 0x and eight digits")] = None
    bundle: Bundle
    broker: Annotated[str | None, Doc("the broker that owns it; null: none does")]
    state: Annotated[Ownership, Doc("whether somebody owns it")]
    web_url: Annotated[str, Doc("the owner's admin address")]
    service_url: Annotated[str, Doc("the owner's address for clients, of the listener if one is named")]
    listener: Annotated[str | None, Doc("the advertised listener that was asked for")]
    preallocated_to: Annotated[str | None, Doc("the broker it is on its way to")]
    channel: Annotated[UnitView | None, Doc("its entry in the ownership channel")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedView(Answer):
    """A broker that a step dropped."""

    broker: Broker
    code: Annotated[str, Doc("the code of why it is no candidate", grows=Code)]
    explanation: Explanation


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView(Answer):
    """One step of the assignment pipeline."""

    name: Annotated[str, Doc("the name of the step")]
    candidates: Annotated[list[str], Doc("brokers that are left after it")]
    dropped: Annotated[list[DroppedView], Doc("brokers that are not, and why")]
    note: Annotated[str, Doc("what else it did")]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentView(Answer):
    """Where a bundle would be placed if no broker owned it."""

    topic: Annotated[str | None, Doc("the topic that was asked for")]
    hash: Annotated[str | None, Doc("of the topic, which decides on its bundle; null for a bundle")]
    bundle: Bundle
    owner: Annotated[str | None, Doc("the broker that owns it now")]
    state: Annotated[Ownership, Doc("whether a broker owns it now")]
    preallocated: Annotated[str | None, Doc("the broker it is on its way to")]
    chosen: Annotated[
        str | None, Doc("where it would be placed; null: any of the candidates (`round_robin`), or none (`code`)")
    ]
    one_of: Annotated[
        list[str], Doc("brokers, `chosen` among them, of which Pulsar takes one at random or in turn; empty: no choice")
    ] = field(default_factory=list)
    placement: Annotated[str, Doc("the brokers' placement, which decides", grows=PLACEMENTS)]
    candidates: Annotated[list[str], Doc("brokers that were left to choose from")]
    code: Annotated[str | None, Doc("the code of why no broker is chosen; null: one is, or any", grows=Code)]
    sentence: Sentence
    steps: Annotated[list[StepView], Doc("the pipeline, in its order")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check(Answer):
    """One test of `doctor` or of a probe: whether it holds, what is wrong and the fix."""

    name: Annotated[str, Doc("what was tested")]
    ok: Annotated[bool, Doc("whether it holds")]
    detail: Annotated[str, Doc("what was found")]
    fix: Annotated[str, Doc("what to do; empty: nothing")] = ""
    severity: Annotated[str, Doc("of what does not hold", of=("error", "warning"))] = "error"

    @classmethod
    def passed(cls, name: str, detail: str) -> Check:
        """It holds."""
        return cls(name=name, ok=True, detail=detail)

    @classmethod
    def failed(cls, name: str, detail: str, fix: str) -> Check:
        """It does not hold."""
        return cls(name=name, ok=False, detail=detail, fix=fix)

    @classmethod
    def warned(cls, name: str, detail: str, fix: str) -> Check:
        """It does not hold, and a person may know better."""
        return cls(name=name, ok=False, detail=detail, fix=fix, severity="warning")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeView(Answer):
    """A mode that was set."""

    mode: Annotated[str, Doc("the mode asked for", of=get_args(Mode))]
    reason: Reason
    by: By


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed(Answer):
    """A pause that was ended."""

    reason: Reason
    by: By
