"""What a scenario says, as plain values: brokers, tenants and their traffic, events, and what is expected.

The YAML files under `scenarios/` have exactly these fields. All times are minutes unless the name says otherwise, all
loads are shares: 1.0 is what keeps one broker of capacity 1 fully busy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

# Read by the schema check of scenario files (cli/sim_files.py): a misspelt key is an error.
_STRICT: dict[str, str] = {"extra": "forbid"}

EventKind = Literal[
    "add", "kill", "drain", "restart", "scale", "foreign", "skew", "lose", "delay", "bad", "unload", "shedding"
]
Lookup = Literal["least_long_term_message_rate", "least_resource_usage", "random"]
BadReport = Literal["nan", "negative", "over", "empty", ""]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerGroup:
    """Equal brokers. `capacity`: how much load they carry; `foreign`: share of their CPU that others on the host use;
    `skew_seconds`: how far their clock is ahead."""

    __pydantic_config__: ClassVar = _STRICT
    count: int = 1
    capacity: float = 1.0
    foreign: float = 0.0
    skew_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """A square wave: `factor` times the traffic for the first `high` minutes of each `period`."""

    __pydantic_config__: ClassVar = _STRICT
    period: float
    high: float
    factor: float
    start: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ramp:
    """Traffic rises (or falls) evenly to `factor` times between `start` and `end`, and stays there."""

    __pydantic_config__: ClassVar = _STRICT
    start: float
    end: float
    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Season:
    """A day as a cosine (`daily`: amplitude, 0.4 is +-40 %) that peaks at `peak_hour`; `weekend` times the traffic on
    days 6 and 7. The run begins on day 1 at 0:00."""

    __pydantic_config__: ClassVar = _STRICT
    daily: float = 0.0
    peak_hour: float = 14.0
    weekend: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A recorded series of factors, `step` minutes apart, joined by straight lines; the last one stays."""

    __pydantic_config__: ClassVar = _STRICT
    step: float
    factors: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """Bundles of one kind and their traffic.

    `usage`: what they keep busy of all brokers of the start together (0.5: half of each), spread over the bundles by
    a Zipf law (`zipf`, 0 for equal; no bundle above `largest` of the whole). Or `sizes`: each bundle's load. Topics of
    a bundle share its load by `topic_zipf`. `owners`: the brokers that own them at first (default: all), in turn or so
    that these are equally busy (`start`).
    `jitter`: relative standard deviation of a slow random walk, of which `correlation` is common to all tenants.
    `cpu_cost`: CPU a byte costs, 1 as usual. `fanout`: bytes out per byte in.
    """

    __pydantic_config__: ClassVar = _STRICT
    name: str = "t/ns"
    namespaces: int = 1
    bundles: int = 1
    topics: int = 1
    usage: float | None = None
    sizes: tuple[float, ...] = ()
    zipf: float = 0.0
    largest: float = 1.0
    topic_zipf: float = 0.0
    shuffle: bool = True
    owners: tuple[int, ...] = ()
    start: Literal["in_turn", "balanced"] = "in_turn"
    message_bytes: float = 1000.0
    fanout: float = 1.0
    cpu_cost: float = 1.0
    clients_per_topic: int = 2
    wave: Wave | None = None
    ramp: Ramp | None = None
    season: Season | None = None
    recorded: Recorded | None = None
    growth_percent_per_day: float = 0.0
    jitter: float = 0.0
    correlation: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioSettings:
    """How the virtual cluster behaves; seconds. `broker_bytes`: bytes/s each way at a load of 1.

    `land_seconds`: from the unload until the bundle serves again. `session_seconds`: until a dead broker is known to
    be dead. `drain_per_second`: bundles a broker that shuts down unloads a second. `lookup`: how brokers place what
    no broker owns. `evenly`: they look first at how many bundles of the namespace a broker has.
    """

    __pydantic_config__: ClassVar = _STRICT
    tick: float = 5.0
    statistics_interval: float = 60.0
    host_interval: float = 60.0
    report_interval: float = 5.0
    report_max_silence: float = 900.0
    report_threshold: float = 0.10
    report_loss: float = 0.0
    report_delay: float = 0.0
    land_seconds: float = 3.0
    lookup_seconds: float = 2.0
    session_seconds: float = 30.0
    drain_per_second: float = 20.0
    cpu_base: float = 0.05
    cpu_noise: float = 0.005
    rate_noise: float = 0.0
    broker_bytes: float = 100e6
    lookup: Lookup = "least_long_term_message_rate"
    evenly: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happens `at` a minute. Which fields count depends on `do`:

    add (`count`, `capacity`), kill, drain, restart (`brokers`, away for `minutes`), scale (`tenant`, `factor`), foreign
    (`brokers`, `factor`: the CPU share others take), skew (`brokers`, `seconds`), lose (`brokers`, `factor`: share of
    reports lost, for `minutes`), delay (`brokers`, `seconds`, for `minutes`), bad (`brokers`, `kind`, for `minutes`),
    unload (`tenant`, `bundle`: by hand, lookup places it), shedding (brokers shed themselves for `minutes`).
    """

    __pydantic_config__: ClassVar = _STRICT
    at: float
    do: EventKind
    brokers: tuple[int, ...] = ()
    count: int = 1
    capacity: float = 1.0
    tenant: str = ""
    bundle: int = 0
    factor: float = 1.0
    seconds: float = 0.0
    minutes: float = 0.0
    kind: BadReport = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """A bundle (by its number in its tenant) that a person put where it is, until a minute."""

    __pydantic_config__: ClassVar = _STRICT
    tenant: str
    bundle: int
    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """A namespace isolation policy: `tenant`'s namespaces live on these brokers only (as primaries)."""

    __pydantic_config__: ClassVar = _STRICT
    tenant: str
    brokers: tuple[int, ...]
    secondary: tuple[int, ...] = ()
    min_limit: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """A broker carries at least `share` of the mean load from minute `by` on."""

    __pydantic_config__: ClassVar = _STRICT
    broker: int
    share: float
    by: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect:
    """What must hold; what is not given is not asked.

    balanced: max/mean of the load at the end at most this. balanced_by: from this minute on. spread: largest less
    smallest load at the end. steady_after: no move later. quiet: no move between these minutes, pairs. never_over: no
    broker's load ever above, from minute `over_from` on. verdicts, refusals: codes that must be seen. gain: each move
    left the target below where the source was. within_direct: at most so many moves more than the plan needs when
    reports are true at once. no_worse_than_still: mean imbalance no larger than without any balancer. untouched: no
    move to these brokers. plan_seconds: the slowest plan, where the run is timed.
    """

    __pydantic_config__: ClassVar = _STRICT
    balanced: float | None = None
    balanced_by: float | None = None
    spread: float | None = None
    steady_after: float | None = None
    quiet: tuple[tuple[float, float], ...] = ()
    most_moves: int | None = None
    fewest_moves: int | None = None
    most_splits: int | None = None
    fewest_splits: int | None = None
    moved_twice: int | None = None
    never_over: float | None = None
    over_from: float = 0.0
    most_over_minutes: float | None = None
    most_empty_minutes: float | None = None
    most_client_seconds: float | None = None
    most_thrash_percent: float | None = None
    verdicts: tuple[str, ...] = ()
    verdicts_any: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    gain: bool = False
    within_direct: int | None = None
    no_worse_than_still: bool = False
    untouched: tuple[int, ...] = ()
    unmoved: tuple[str, ...] = ()
    filled: tuple[Filled, ...] = ()
    plan_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One scenario. `case`: its number in the suite, 0 for none. `capacity_by_throughput`: the balancer knows what
    each broker carries, and looks at traffic instead of CPU. `splits`: who divides hot bundles. `pips`: which property
    of PIP-364's table it measures. `expect` is for the default strategy."""

    __pydantic_config__: ClassVar = _STRICT
    name: str
    title: str
    about: str = ""
    source: str = ""
    case: int = 0
    minutes: float
    brokers: tuple[BrokerGroup, ...]
    tenants: tuple[Tenant, ...]
    settings: ScenarioSettings = field(default_factory=ScenarioSettings)
    events: tuple[Event, ...] = ()
    pins: tuple[Pin, ...] = ()
    isolation: tuple[Isolation, ...] = ()
    parameters: Mapping[str, bool | float | str] = field(default_factory=dict)
    capacity_by_throughput: bool = False
    splits: Literal["none", "brokers", "bundlekeel"] = "none"
    expect: Expect = field(default_factory=Expect)

    @property
    def broker_count(self) -> int:
        """Brokers at the start."""
        return sum(group.count for group in self.brokers)
