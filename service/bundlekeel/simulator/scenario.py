"""Content of a scenario as plain values: brokers, tenants and their traffic, events, and expectations.

The YAML files under `scenarios/` have exactly these fields; docs/reference/scenario-format.md is generated from this
file. Times are minutes unless the name has another unit. Loads are shares: 1.0 keeps one broker of capacity 1 fully
busy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Final, Literal

# Configuration of pydantic, which reads scenario files (sim_files.py): an unknown key is an error.
_STRICT: dict[str, str] = {"extra": "forbid"}

EventKind = Literal[
    "add", "kill", "drain", "restart", "scale", "foreign", "skew", "lose", "delay", "bad", "unload", "shedding"
]
Lookup = Literal["least_long_term_message_rate", "least_resource_usage", "random"]
BadReport = Literal["nan", "negative", "over", "empty", ""]

# The effect of each event, with its fields.
EVENTS: Final[Mapping[EventKind, str]] = {
    "add": "`count` brokers of `capacity` join",
    "kill": "`brokers` die; their bundles are free when the session ends (`settings.session_seconds`)",
    "drain": "`brokers` shut down in order: first the node, then bundle by bundle",
    "restart": "`brokers` are drained and restarted one at a time, each is away for `minutes`",
    "scale": "the traffic of `tenant` is multiplied by `factor`, permanently",
    "foreign": "other processes on the hosts of `brokers` use the share `factor` of their CPU, permanently",
    "skew": "the clocks of `brokers` are `seconds` ahead, permanently",
    "lose": "the share `factor` of the reports of `brokers` is lost, for `minutes` (0: permanently)",
    "delay": "reports of `brokers` arrive `seconds` later, for `minutes` (0: permanently)",
    "bad": "reports of `brokers` have the fault `kind`, for `minutes` (0: permanently)",
    "unload": "an operator unloads `bundle` of `tenant`; a lookup places it",
    "shedding": "the brokers shed in addition to the balancer, for `minutes` (0: permanently)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerGroup:
    """Equal brokers. Broker numbers count from 0 over all groups."""

    __pydantic_config__: ClassVar = _STRICT
    count: Annotated[int, "number of brokers"] = 1
    capacity: Annotated[float, "load that each can serve"] = 1.0
    foreign: Annotated[float, "share of their CPU that other processes on the host use"] = 0.0
    skew_seconds: Annotated[float, "seconds that their clocks are ahead"] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """A square wave of the traffic."""

    __pydantic_config__: ClassVar = _STRICT
    period: Annotated[float, "minutes from one rise to the next"]
    high: Annotated[float, "minutes of each period with more traffic, the first ones"]
    factor: Annotated[float, "factor of the traffic in these minutes"]
    start: Annotated[float, "first minute"] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ramp:
    """Traffic rises or falls linearly, and then stays constant."""

    __pydantic_config__: ClassVar = _STRICT
    start: Annotated[float, "minute of the start"]
    end: Annotated[float, "minute of the end"]
    factor: Annotated[float, "factor of the traffic at the end"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Season:
    """Traffic that varies over the day as a cosine, and over the week. The run starts on day 1 at 0:00."""

    __pydantic_config__: ClassVar = _STRICT
    daily: Annotated[float, "amplitude: 0.4 is +-40 %"] = 0.0
    peak_hour: Annotated[float, "hour of the day with the most traffic"] = 14.0
    weekend: Annotated[float, "factor of the traffic on days 6 and 7"] = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A recorded series of traffic factors, interpolated linearly; the last factor stays."""

    __pydantic_config__: ClassVar = _STRICT
    step: Annotated[float, "minutes between two factors"]
    factors: Annotated[tuple[float, ...], "factors of the traffic, in order"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """Bundles of one kind and their traffic. Bundle numbers count from 0 in each tenant."""

    __pydantic_config__: ClassVar = _STRICT
    name: Annotated[str, "tenant/namespace"] = "t/ns"
    namespaces: Annotated[int, "number of namespaces with this name over which the bundles are distributed"] = 1
    bundles: Annotated[int, "number of all bundles"] = 1
    topics: Annotated[int, "topics per bundle"] = 1
    usage: Annotated[
        float | None,
        "load of the bundles as a share of all brokers at the start: 0.5 is half of each. Or `sizes`",
    ] = None
    sizes: Annotated[tuple[float, ...], "each bundle's load, instead of `usage`"] = ()
    zipf: Annotated[float, "exponent of the Zipf law that distributes `usage` over the bundles; 0: all equal"] = 0.0
    largest: Annotated[float, "largest share of one bundle"] = 1.0
    topic_zipf: Annotated[float, "exponent that distributes the load of a bundle over its topics"] = 0.0
    shuffle: Annotated[bool, "whether large bundles are at random places; else they are first"] = True
    owners: Annotated[tuple[int, ...], "brokers that own the bundles at the start; none: all brokers"] = ()
    start: Annotated[
        Literal["in_turn", "balanced"], "bundles go to the owners in turn, or such that these are equally busy"
    ] = "in_turn"
    message_bytes: Annotated[float, "size of a message"] = 1000.0
    fanout: Annotated[float, "bytes out per byte in"] = 1.0
    cpu_cost: Annotated[float, "CPU per byte; 1: the usual cost"] = 1.0
    clients_per_topic: Annotated[int, "producers and consumers, half of each; an unload interrupts them"] = 2
    wave: Annotated[Wave | None, "a square wave of the traffic"] = None
    ramp: Annotated[Ramp | None, "a rise or fall of the traffic"] = None
    season: Annotated[Season | None, "day and week"] = None
    recorded: Annotated[Recorded | None, "recorded traffic"] = None
    growth_percent_per_day: Annotated[float, "growth of the traffic"] = 0.0
    jitter: Annotated[float, "relative standard deviation of a slow random walk of the traffic"] = 0.0
    correlation: Annotated[float, "share of that walk that is common to all tenants, 0 to 1"] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioSettings:
    """Behavior of the virtual cluster. Times are seconds here."""

    __pydantic_config__: ClassVar = _STRICT
    tick: Annotated[float, "step of the clock"] = 5.0
    statistics_interval: Annotated[float, "time between two refreshes of bundle statistics"] = 60.0
    host_interval: Annotated[float, "time between two refreshes of CPU, a mean over this time"] = 60.0
    report_interval: Annotated[float, "time between two checks whether a report is due"] = 5.0
    report_max_silence: Annotated[float, "longest time between two reports"] = 900.0
    report_threshold: Annotated[
        float, "a report is written when traffic, bundles or CPU changed by more than this share"
    ] = 0.10
    report_loss: Annotated[float, "share of reports that get lost"] = 0.0
    report_delay: Annotated[float, "delay of reports"] = 0.0
    land_seconds: Annotated[float, "time from an unload until the bundle is served again"] = 3.0
    lookup_seconds: Annotated[float, "duration of a lookup that places a bundle"] = 2.0
    session_seconds: Annotated[float, "time until the session of a dead broker ends"] = 30.0
    drain_per_second: Annotated[float, "bundles per second that a broker unloads at shutdown"] = 20.0
    cpu_base: Annotated[float, "CPU of a broker without traffic"] = 0.05
    cpu_noise: Annotated[float, "standard deviation of reported CPU"] = 0.005
    rate_noise: Annotated[float, "largest relative error of reported rates"] = 0.0
    broker_bytes: Annotated[float, "bytes/s each way at a load of 1"] = 100e6
    lookup: Annotated[Lookup, "placement of unowned bundles by brokers"] = "least_long_term_message_rate"
    evenly: Annotated[bool, "whether brokers first compare the number of bundles of the namespace"] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event during the run. The relevant fields depend on `do`."""

    __pydantic_config__: ClassVar = _STRICT
    at: Annotated[float, "minute of the event"]
    do: Annotated[EventKind, "kind of the event, see below"]
    brokers: Annotated[tuple[int, ...], "affected brokers"] = ()
    count: Annotated[int, "brokers that join"] = 1
    capacity: Annotated[float, "load that each of them can serve"] = 1.0
    tenant: Annotated[str, "`name` of the affected tenant"] = ""
    bundle: Annotated[int, "number of the bundle in the tenant"] = 0
    factor: Annotated[float, "factor or share"] = 1.0
    seconds: Annotated[float, "seconds of delay, or ahead"] = 0.0
    minutes: Annotated[float, "duration"] = 0.0
    kind: Annotated[BadReport, "fault of the reports; `over`: CPU above 100 %"] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """A bundle that an operator pinned to its broker."""

    __pydantic_config__: ClassVar = _STRICT
    tenant: Annotated[str, "`name` of the tenant"]
    bundle: Annotated[int, "number of the bundle in the tenant"]
    until: Annotated[float, "minute in which the pin ends"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """A namespace isolation policy."""

    __pydantic_config__: ClassVar = _STRICT
    tenant: Annotated[str, "tenant of the namespaces"]
    brokers: Annotated[tuple[int, ...], "primary brokers"]
    secondary: Annotated[tuple[int, ...], "secondary brokers"] = ()
    min_limit: Annotated[int, "number of primaries below which secondaries are used"] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """A broker that must have at least a share of the mean load."""

    __pydantic_config__: ClassVar = _STRICT
    broker: Annotated[int, "broker"]
    share: Annotated[float, "at least this share of the mean load"]
    by: Annotated[float, "first minute"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect:
    """Expectations for the default strategy; absent ones are not checked. In any case, no bundle may be lost."""

    __pydantic_config__: ClassVar = _STRICT
    balanced: Annotated[float | None, "most max/mean of the load at the end"] = None
    balanced_by: Annotated[float | None, "minute from which `balanced` holds"] = None
    spread: Annotated[float | None, "most difference between largest and smallest load at the end, in points"] = None
    steady_after: Annotated[float | None, "minute after which there is no move"] = None
    quiet: Annotated[tuple[tuple[float, float], ...], "pairs of minutes between which there is no move"] = ()
    most_moves: Annotated[int | None, "most moves by the balancer"] = None
    fewest_moves: Annotated[int | None, "fewest moves by the balancer"] = None
    most_splits: Annotated[int | None, "most splits"] = None
    fewest_splits: Annotated[int | None, "fewest splits"] = None
    moved_twice: Annotated[int | None, "most bundles that are moved again within an hour"] = None
    never_over: Annotated[float | None, "highest allowed load of any broker, in percent"] = None
    over_from: Annotated[float, "minute from which `never_over` is checked"] = 0.0
    most_over_minutes: Annotated[float | None, "most minutes with a broker above 85 %"] = None
    most_empty_minutes: Annotated[float | None, "most minutes with a broker below a tenth of the mean"] = None
    most_client_seconds: Annotated[float | None, "most clients times seconds without service"] = None
    most_thrash_percent: Annotated[
        float | None, "most changes of the loads beyond their trend, in percent of the mean"
    ] = None
    verdicts: Annotated[tuple[str, ...], "codes of verdicts that must all occur"] = ()
    verdicts_any: Annotated[tuple[str, ...], "codes of verdicts of which one must occur"] = ()
    refusals: Annotated[tuple[str, ...], "codes of refused candidates that must all occur"] = ()
    gain: Annotated[bool, "whether each move must leave the target below the source's earlier load"] = False
    within_direct: Annotated[int | None, "most moves in addition to those of a plan on exact reports"] = None
    no_worse_than_still: Annotated[bool, "whether the mean imbalance must not exceed that without a balancer"] = False
    untouched: Annotated[tuple[int, ...], "brokers to which nothing may move"] = ()
    unmoved: Annotated[tuple[str, ...], "tenants whose bundles may not move"] = ()
    filled: Annotated[tuple[Filled, ...], "brokers that must have a share of the load"] = ()
    plan_seconds: Annotated[float | None, "longest duration of a plan, if the run is timed"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The content of one scenario file."""

    __pydantic_config__: ClassVar = _STRICT
    name: Annotated[str, "name in tables"]
    title: Annotated[str, "one-line description"]
    about: Annotated[str, "longer description"] = ""
    source: Annotated[str, "origin, such as an issue"] = ""
    case: Annotated[int, "number in the shipped suite; 0: none"] = 0
    minutes: Annotated[float, "duration"]
    brokers: Annotated[tuple[BrokerGroup, ...], "the brokers at the start"]
    tenants: Annotated[tuple[Tenant, ...], "bundles and traffic"]
    settings: Annotated[ScenarioSettings, "behavior of the virtual cluster"] = field(default_factory=ScenarioSettings)
    events: Annotated[tuple[Event, ...], "events during the run"] = ()
    pins: Annotated[tuple[Pin, ...], "bundles that may not move"] = ()
    isolation: Annotated[tuple[Isolation, ...], "namespaces that are isolated to some brokers"] = ()
    parameters: Annotated[
        Mapping[str, bool | float | str],
        "[parameters](parameters.md) of the balancer by Bundlekeel's names; the command line's strategy overrides it",
    ] = field(default_factory=dict)
    capacity_by_throughput: Annotated[
        bool, "whether the balancer knows each broker's throughput limit and uses traffic instead of CPU"
    ] = False
    splits: Annotated[Literal["none", "brokers", "bundlekeel"], "who splits hot bundles"] = "none"
    expect: Annotated[Expect, "what must hold for the default strategy"] = field(default_factory=Expect)

    @property
    def broker_count(self) -> int:
        """Number of brokers at the start."""
        return sum(group.count for group in self.brokers)

    @property
    def bundle_count(self) -> int:
        """Number of bundles at the start."""
        return sum(tenant.bundles for tenant in self.tenants)
