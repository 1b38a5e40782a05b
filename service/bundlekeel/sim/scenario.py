"""What a scenario says, as plain values: brokers, tenants and their traffic, events, and what is expected.

The YAML files under `scenarios/` have exactly these fields; docs/reference/scenario-format.md is made from this file.
All times are minutes unless the name says otherwise, all loads are shares: 1.0 is what keeps one broker of capacity 1
fully busy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Final, Literal

# Read by the schema check of scenario files (cli/sim_files.py): a misspelt key is an error.
_STRICT: dict[str, str] = {"extra": "forbid"}

EventKind = Literal[
    "add", "kill", "drain", "restart", "scale", "foreign", "skew", "lose", "delay", "bad", "unload", "shedding"
]
Lookup = Literal["least_long_term_message_rate", "least_resource_usage", "random"]
BadReport = Literal["nan", "negative", "over", "empty", ""]

# What each event does, and with which fields.
EVENTS: Final[Mapping[EventKind, str]] = {
    "add": "`count` brokers of `capacity` join",
    "kill": "`brokers` die; what they own is free when their session ends (`settings.session_seconds`)",
    "drain": "`brokers` shut down in order: the node first, then bundle by bundle",
    "restart": "`brokers` are drained and come back, one after the other, each away for `minutes`",
    "scale": "the traffic of `tenant` is multiplied by `factor`, for good",
    "foreign": "others on the hosts of `brokers` take the share `factor` of their CPU, for good",
    "skew": "the clocks of `brokers` are `seconds` ahead, for good",
    "lose": "the share `factor` of the reports of `brokers` is lost, for `minutes` (0: for good)",
    "delay": "reports of `brokers` arrive `seconds` later, for `minutes` (0: for good)",
    "bad": "reports of `brokers` hold what `kind` says, for `minutes` (0: for good)",
    "unload": "a person unloads `bundle` of `tenant`; a lookup places it",
    "shedding": "the brokers shed themselves beside the balancer, for `minutes` (0: for good)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerGroup:
    """Equal brokers. Brokers are counted from 0 over all groups."""

    __pydantic_config__: ClassVar = _STRICT
    count: Annotated[int, "how many"] = 1
    capacity: Annotated[float, "how much load each carries"] = 1.0
    foreign: Annotated[float, "share of their CPU that others on the host use"] = 0.0
    skew_seconds: Annotated[float, "how far their clocks are ahead"] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """A square wave."""

    __pydantic_config__: ClassVar = _STRICT
    period: Annotated[float, "minutes from one rise to the next"]
    high: Annotated[float, "minutes of each period with more traffic, the first ones"]
    factor: Annotated[float, "how many times the traffic then"]
    start: Annotated[float, "from this minute on"] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ramp:
    """Traffic rises (or falls) evenly, and stays there."""

    __pydantic_config__: ClassVar = _STRICT
    start: Annotated[float, "minute in which it begins"]
    end: Annotated[float, "minute in which it is reached"]
    factor: Annotated[float, "how many times the traffic in the end"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Season:
    """A day as a cosine, and a week. The run begins on day 1 at 0:00."""

    __pydantic_config__: ClassVar = _STRICT
    daily: Annotated[float, "amplitude: 0.4 is +-40 %"] = 0.0
    peak_hour: Annotated[float, "hour of the day with the most traffic"] = 14.0
    weekend: Annotated[float, "how many times the traffic on days 6 and 7"] = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A recorded series of factors, joined by straight lines; the last one stays."""

    __pydantic_config__: ClassVar = _STRICT
    step: Annotated[float, "minutes between two factors"]
    factors: Annotated[tuple[float, ...], "how many times the traffic, one after the other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """Bundles of one kind and their traffic. Bundles are counted from 0 in each tenant."""

    __pydantic_config__: ClassVar = _STRICT
    name: Annotated[str, "tenant/namespace"] = "t/ns"
    namespaces: Annotated[int, "over so many namespaces of that name the bundles are spread"] = 1
    bundles: Annotated[int, "how many in all"] = 1
    topics: Annotated[int, "in each bundle"] = 1
    usage: Annotated[
        float | None,
        "what the bundles keep busy of all brokers of the start together: 0.5 is half of each. Or `sizes`",
    ] = None
    sizes: Annotated[tuple[float, ...], "each bundle's load, instead of `usage`"] = ()
    zipf: Annotated[float, "exponent of the Zipf law by which `usage` is spread over the bundles; 0: all equal"] = 0.0
    largest: Annotated[float, "no bundle above this share of the whole"] = 1.0
    topic_zipf: Annotated[float, "exponent by which the load of a bundle is spread over its topics"] = 0.0
    shuffle: Annotated[bool, "whether large bundles come anywhere; else they come first"] = True
    owners: Annotated[tuple[int, ...], "the brokers that own the bundles at first; none: all brokers"] = ()
    start: Annotated[
        Literal["in_turn", "balanced"], "bundles go to the owners in turn, or so that these are equally busy"
    ] = "in_turn"
    message_bytes: Annotated[float, "size of a message"] = 1000.0
    fanout: Annotated[float, "bytes out for each byte in"] = 1.0
    cpu_cost: Annotated[float, "CPU that a byte costs; 1: as usual"] = 1.0
    clients_per_topic: Annotated[int, "producers and consumers, half of each; they count the seconds of an unload"] = 2
    wave: Annotated[Wave | None, "a square wave of the traffic"] = None
    ramp: Annotated[Ramp | None, "a rise or fall of the traffic"] = None
    season: Annotated[Season | None, "day and week"] = None
    recorded: Annotated[Recorded | None, "traffic as it was recorded"] = None
    growth_percent_per_day: Annotated[float, "growth of the traffic"] = 0.0
    jitter: Annotated[float, "relative standard deviation of a slow random walk of the traffic"] = 0.0
    correlation: Annotated[float, "how much of that walk is common to all tenants, 0 to 1"] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioSettings:
    """How the virtual cluster behaves. Times are seconds here."""

    __pydantic_config__: ClassVar = _STRICT
    tick: Annotated[float, "step of the clock"] = 5.0
    statistics_interval: Annotated[float, "brokers refresh the statistics of their bundles so often"] = 60.0
    host_interval: Annotated[float, "brokers refresh their CPU so often: the mean since the last time"] = 60.0
    report_interval: Annotated[float, "brokers look so often whether their report has to be written"] = 5.0
    report_max_silence: Annotated[float, "a report is written after so long in any case"] = 900.0
    report_threshold: Annotated[
        float, "a report is written when traffic, bundles or CPU changed by more than this share"
    ] = 0.10
    report_loss: Annotated[float, "share of reports that get lost"] = 0.0
    report_delay: Annotated[float, "reports arrive so much later"] = 0.0
    land_seconds: Annotated[float, "from an unload until the bundle serves again"] = 3.0
    lookup_seconds: Annotated[float, "what a lookup takes that places a bundle"] = 2.0
    session_seconds: Annotated[float, "until a dead broker is known to be dead"] = 30.0
    drain_per_second: Annotated[float, "bundles that a broker unloads a second when it shuts down"] = 20.0
    cpu_base: Annotated[float, "CPU of a broker without traffic"] = 0.05
    cpu_noise: Annotated[float, "standard deviation of reported CPU"] = 0.005
    rate_noise: Annotated[float, "most by which reported rates are wrong, as a share"] = 0.0
    broker_bytes: Annotated[float, "bytes/s each way at a load of 1"] = 100e6
    lookup: Annotated[Lookup, "how brokers place what no broker owns"] = "least_long_term_message_rate"
    evenly: Annotated[bool, "they look first at how many bundles of the namespace a broker has"] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happens. Which fields count depends on `do`."""

    __pydantic_config__: ClassVar = _STRICT
    at: Annotated[float, "the minute"]
    do: Annotated[EventKind, "what happens, see below"]
    brokers: Annotated[tuple[int, ...], "the brokers that it is about"] = ()
    count: Annotated[int, "brokers that join"] = 1
    capacity: Annotated[float, "how much load each of them carries"] = 1.0
    tenant: Annotated[str, "the tenant that it is about, by its `name`"] = ""
    bundle: Annotated[int, "the bundle, by its number in the tenant"] = 0
    factor: Annotated[float, "how many times, or which share"] = 1.0
    seconds: Annotated[float, "how late, or how far ahead"] = 0.0
    minutes: Annotated[float, "how long"] = 0.0
    kind: Annotated[BadReport, "what reports hold instead of figures; `over`: CPU above 100 %"] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """A bundle that a person put where it is."""

    __pydantic_config__: ClassVar = _STRICT
    tenant: Annotated[str, "its tenant, by `name`"]
    bundle: Annotated[int, "its number in the tenant"]
    until: Annotated[float, "the minute in which the pin ends"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """A namespace isolation policy."""

    __pydantic_config__: ClassVar = _STRICT
    tenant: Annotated[str, "whose namespaces it is for"]
    brokers: Annotated[tuple[int, ...], "the primaries"]
    secondary: Annotated[tuple[int, ...], "the secondaries"] = ()
    min_limit: Annotated[int, "primaries that must be there before secondaries are used"] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """A broker carries enough."""

    __pydantic_config__: ClassVar = _STRICT
    broker: Annotated[int, "which one"]
    share: Annotated[float, "at least this share of the mean load"]
    by: Annotated[float, "from this minute on"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect:
    """What must hold for the default strategy; what is not given is not asked. No bundle may be lost in any case."""

    __pydantic_config__: ClassVar = _STRICT
    balanced: Annotated[float | None, "max/mean of the load at the end at most this"] = None
    balanced_by: Annotated[float | None, "and that from this minute on"] = None
    spread: Annotated[float | None, "largest less smallest load at the end at most this, in points"] = None
    steady_after: Annotated[float | None, "no move later than this minute"] = None
    quiet: Annotated[tuple[tuple[float, float], ...], "no move between two minutes; pairs"] = ()
    most_moves: Annotated[int | None, "moves by the balancer at most"] = None
    fewest_moves: Annotated[int | None, "moves by the balancer at least"] = None
    most_splits: Annotated[int | None, "splits at most"] = None
    fewest_splits: Annotated[int | None, "splits at least"] = None
    moved_twice: Annotated[int | None, "bundles moved again within an hour at most"] = None
    never_over: Annotated[float | None, "no broker's load ever above this, in percent"] = None
    over_from: Annotated[float, "from this minute on that is looked at"] = 0.0
    most_over_minutes: Annotated[float | None, "minutes with a broker above 85 % at most"] = None
    most_empty_minutes: Annotated[float | None, "minutes with a broker under a tenth of the mean at most"] = None
    most_client_seconds: Annotated[float | None, "clients times seconds without service at most"] = None
    most_thrash_percent: Annotated[float | None, "ups and downs of the loads beyond their trend at most"] = None
    verdicts: Annotated[tuple[str, ...], "codes of verdicts that must all be seen"] = ()
    verdicts_any: Annotated[tuple[str, ...], "codes of which one must be seen"] = ()
    refusals: Annotated[tuple[str, ...], "codes of refused candidates that must all be seen"] = ()
    gain: Annotated[bool, "each move left the target below where the source was"] = False
    within_direct: Annotated[
        int | None, "at most so many moves more than the plan needs when reports are true at once"
    ] = None
    no_worse_than_still: Annotated[bool, "mean imbalance no larger than without any balancer"] = False
    untouched: Annotated[tuple[int, ...], "no move to these brokers"] = ()
    unmoved: Annotated[tuple[str, ...], "no move of bundles of these tenants"] = ()
    filled: Annotated[tuple[Filled, ...], "brokers that carry enough in the end"] = ()
    plan_seconds: Annotated[float | None, "the slowest plan at most, where the run is timed"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One file."""

    __pydantic_config__: ClassVar = _STRICT
    name: Annotated[str, "what it is called in tables"]
    title: Annotated[str, "what happens, in a line"]
    about: Annotated[str, "the same at length"] = ""
    source: Annotated[str, "where it is from"] = ""
    case: Annotated[int, "its number in the shipped suite; 0: none"] = 0
    minutes: Annotated[float, "how long it runs"]
    brokers: Annotated[tuple[BrokerGroup, ...], "the brokers at the start"]
    tenants: Annotated[tuple[Tenant, ...], "bundles and traffic"]
    settings: Annotated[ScenarioSettings, "how the virtual cluster behaves"] = field(default_factory=ScenarioSettings)
    events: Annotated[tuple[Event, ...], "what happens"] = ()
    pins: Annotated[tuple[Pin, ...], "bundles that may not move"] = ()
    isolation: Annotated[tuple[Isolation, ...], "namespaces that live on some brokers only"] = ()
    parameters: Annotated[
        Mapping[str, bool | float | str],
        "[parameters](parameters.md) of the balancer by our names; the command line's strategy goes over it",
    ] = field(default_factory=dict)
    capacity_by_throughput: Annotated[
        bool, "the balancer knows what each broker carries, and looks at traffic instead of CPU"
    ] = False
    splits: Annotated[Literal["none", "brokers", "bundlekeel"], "who divides hot bundles"] = "none"
    expect: Annotated[Expect, "what must hold for the default strategy"] = field(default_factory=Expect)

    @property
    def broker_count(self) -> int:
        """Brokers at the start."""
        return sum(group.count for group in self.brokers)

    @property
    def bundle_count(self) -> int:
        """Bundles at the start."""
        return sum(tenant.bundles for tenant in self.tenants)
