"""Parameters of strategies, placements, splits and reports. model/parameters.py adds the parameters of the guard.

Each parameter is a field with Pulsar's keys, unit, range, the code that uses it, and its purpose.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

STRATEGIES = ("avg", "threshold", "overload", "uniform", "transfer", "deviation")
PLACEMENTS = ("least_resource_usage", "least_long_term_message_rate", "round_robin", "avg")
RELEASES = ("none", "4.0", "4.2", "5.0")
# Pulsar names its strategies by class; the simple name is enough to tell them apart.
STRATEGY_CLASSES: dict[str, str] = {
    "AvgShedder": "avg",
    "ThresholdShedder": "threshold",
    "OverloadShedder": "overload",
    "UniformLoadShedder": "uniform",
    "TransferShedder": "transfer",
    "LeastResourceUsageWithWeight": "least_resource_usage",
    "LeastLongTermMessageRate": "least_long_term_message_rate",
    "RoundRobinBrokerSelector": "round_robin",
}
_MINIMUM = "moves that together take less than this from a broker are not made; 0: no minimum"
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterSpec:
    """Description of one parameter: a row of docs/reference/parameters.md.

    `pulsar_keys`: keys of Pulsar that are accepted for it, the current one first. `factor`: value = Pulsar's value x
    factor. `pattern`: regular expression for each name of a list; "": any. `instead`: for a parameter that only the
    copies of Pulsar's classes use: the parameter that replaces it with `compat: none`.
    """

    name: str
    pulsar_keys: tuple[str, ...] = ()
    unit: str
    why: str
    used_by: str
    minimum: float | None = 0.0
    maximum: float | None = None
    factor: float = 1.0
    choices: tuple[str, ...] = ()
    pattern: str = ""
    instead: str = ""


def parameter(default: T, **row: Any) -> T:
    """Return a dataclass field that contains its description. `row`: the fields of `ParameterSpec` except the name."""
    result: T = field(default=default, metadata=row)
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyParameters:
    """Parameters of moves (which bundles, to which brokers), of splits, and of the brokers' report intervals."""

    strategy: str = parameter(
        "avg",
        pulsar_keys=("loadBalancerLoadSheddingStrategy",),
        unit="name",
        choices=STRATEGIES,
        used_by="all",
        why="decides when bundles move, and from which broker; avg: from the most to the least loaded broker (PIP-364)",
    )
    placement: str = parameter(
        "least_resource_usage",
        pulsar_keys=("loadBalancerLoadPlacementStrategy",),
        unit="name",
        choices=PLACEMENTS,
        used_by="all",
        why="chooses the target broker of a bundle that is shed, where the strategy does not choose it",
    )
    compat: str = parameter(
        "none",
        unit="Pulsar release",
        choices=RELEASES,
        used_by="all",
        why="none: Bundlekeel's own strategies; 4.0, 4.2 or 5.0: the class of that Pulsar release, with its defects",
    )
    # decision rule
    move_price: float = parameter(
        50.0,
        unit="seconds of twice the tolerated difference",
        used_by="avg, threshold, uniform, transfer, deviation",
        why="price of one move: n moves start when the imbalance has cost n + 2 times this; a second costs 1 "
        "at twice the tolerated difference, 4 at three times; 0: act at the first reading",
    )
    swing_worth: float = parameter(
        8000.0,
        unit="seconds of twice the tolerated difference",
        used_by="avg, threshold, uniform, transfer, deviation",
        why="bundles move for a load that rises and falls regularly only if one such swing costs at least this",
    )
    # score
    cpu_weight: float = parameter(
        1.0,
        pulsar_keys=("loadBalancerCPUResourceWeight",),
        unit="ratio",
        used_by="score",
        why="weight of CPU in a broker's score; 0: CPU does not count",
    )
    direct_memory_weight: float = parameter(
        0.0,
        pulsar_keys=("loadBalancerDirectMemoryResourceWeight",),
        unit="ratio",
        used_by="score",
        why="weight of direct memory in a broker's score; 0, the default: it does not count, as it is a cache "
        "that fills over time",
    )
    bandwidth_in_weight: float = parameter(
        1.0,
        pulsar_keys=("loadBalancerBandwidthInResourceWeight", "loadBalancerBandwithInResourceWeight"),
        unit="ratio",
        used_by="score",
        why="weight of incoming bandwidth in a broker's score; 0: it does not count",
    )
    bandwidth_out_weight: float = parameter(
        1.0,
        pulsar_keys=("loadBalancerBandwidthOutResourceWeight", "loadBalancerBandwithOutResourceWeight"),
        unit="ratio",
        used_by="score",
        why="weight of outgoing bandwidth in a broker's score; 0: it does not count",
    )
    overloaded_threshold_percent: float = parameter(
        85.0,
        pulsar_keys=("loadBalancerBrokerOverloadedThresholdPercentage",),
        unit="percent",
        maximum=1000.0,
        used_by="overload, transfer, placement, guard",
        why="a broker with a higher load is overloaded, and gets no bundle",
    )
    history_weight: float = parameter(
        0.9,
        pulsar_keys=("loadBalancerHistoryResourcePercentage",),
        unit="ratio",
        maximum=1.0,
        used_by="threshold, transfer, compat only",
        why="with compat: share of the past in the smoothed score; 0.9 is 90 % the score so far and 10 % the report",
        instead="move_price",
    )
    # threshold
    threshold_percent: float = parameter(
        10.0,
        pulsar_keys=("loadBalancerBrokerThresholdShedderPercentage",),
        unit="percent points",
        maximum=100.0,
        used_by="threshold",
        why="a broker whose score is this far above the average sheds",
    )
    lower_boundary_shedding: bool = parameter(
        False,
        pulsar_keys=("lowerBoundarySheddingEnabled",),
        unit="true/false",
        used_by="threshold",
        why="true: the most loaded broker also sheds when another one is far below the average",
    )
    # avg
    avg_low_threshold_percent: float = parameter(
        15.0,
        pulsar_keys=("loadBalancerAvgShedderLowThreshold",),
        unit="percent points",
        maximum=100.0,
        used_by="avg, decision rule",
        why="scores may differ by this times the mean score (0 to 1); what exceeds it has a cost (see move_price)",
    )
    avg_low_floor_percent: float = parameter(
        2.0,
        unit="percent points",
        maximum=100.0,
        used_by="avg, decision rule",
        why="lowest tolerated difference of scores, for example on an idle cluster; smaller differences have no cost",
    )
    avg_high_threshold_percent: float = parameter(
        40.0,
        pulsar_keys=("loadBalancerAvgShedderHighThreshold",),
        unit="percent points",
        maximum=100.0,
        used_by="avg, compat only",
        why="with compat: two brokers whose scores differ by this are balanced after avg_hit_count_high calls",
        instead="move_price",
    )
    avg_hit_count_low: int = parameter(
        8,
        pulsar_keys=("loadBalancerAvgShedderHitCountLowThreshold",),
        unit="calls",
        minimum=1.0,
        used_by="avg, compat only",
        why="with compat: in how many calls a low difference must be seen before bundles move",
        instead="move_price",
    )
    avg_hit_count_high: int = parameter(
        2,
        pulsar_keys=("loadBalancerAvgShedderHitCountHighThreshold",),
        unit="calls",
        minimum=1.0,
        used_by="avg, compat only",
        why="with compat: in how many calls a high difference must be seen before bundles move",
        instead="move_price",
    )
    max_unload_ratio: float = parameter(
        0.5,
        pulsar_keys=("maxUnloadPercentage",),
        unit="ratio",
        maximum=1.0,
        used_by="avg",
        why="one plan moves at most this share of the difference of two brokers; 0.5 makes them equal (compat 4.0 and "
        "4.2: 0.2)",
    )
    # uniform
    uniform_max_unload_ratio: float = parameter(
        0.2,
        pulsar_keys=("maxUnloadPercentage",),
        unit="ratio",
        maximum=1.0,
        used_by="uniform",
        why="one plan moves at most this share of the difference of two brokers (compat 5.0: 0.5); Pulsar has one key "
        "for this and max_unload_ratio",
    )
    msg_rate_difference_percent: float = parameter(
        50.0,
        pulsar_keys=("loadBalancerMsgRateDifferenceShedderThreshold",),
        unit="percent",
        minimum=None,
        used_by="uniform",
        why="shedding begins when the largest message rate is this much above the smallest; 0 or less turns the "
        "rule off",
    )
    throughput_multiple: float = parameter(
        4.0,
        pulsar_keys=("loadBalancerMsgThroughputMultiplierDifferenceShedderThreshold",),
        unit="multiple",
        minimum=None,
        used_by="uniform",
        why="shedding begins when the largest throughput is this many times the smallest; 0 or less turns the rule off",
    )
    max_unload_bundles: int = parameter(
        -1,
        pulsar_keys=("maxUnloadBundleNumPerShedding",),
        unit="bundles",
        minimum=-1.0,
        used_by="uniform",
        why="most bundles that one plan moves; -1: no limit",
    )
    # transfer
    transfer_target_std: float = parameter(
        0.25,
        pulsar_keys=("loadBalancerBrokerLoadTargetStd",),
        unit="ratio",
        used_by="transfer",
        why="brokers shed while the standard deviation of the scores is above this",
    )
    transfer_hit_count: int = parameter(
        3,
        pulsar_keys=("loadBalancerSheddingConditionHitCountThreshold",),
        unit="calls",
        used_by="transfer, compat only",
        why="with compat: brokers shed after the deviation was too large in more calls in a row than this",
        instead="move_price",
    )
    transfer_enabled: bool = parameter(
        True,
        pulsar_keys=("loadBalancerTransferEnabled",),
        unit="true/false",
        used_by="transfer, compat only",
        why="false: bundles are unloaded without a target broker; with compat none each move has a target",
        instead="nothing: every move has a destination",
    )
    transfer_debug_mode: bool = parameter(
        False,
        pulsar_keys=("loadBalancerDebugModeEnabled",),
        unit="true/false",
        used_by="transfer, compat only",
        why="true: TransferShedder subtracts what a swap brings back, and unloads more; false: it does not",
        instead="nothing: what a swap brings back always counts",
    )
    transfer_max_brokers: int = parameter(
        3,
        pulsar_keys=("loadBalancerMaxNumberOfBrokerSheddingPerCycle",),
        unit="brokers",
        minimum=1.0,
        used_by="transfer",
        why="most brokers that shed in one cycle",
    )
    transfer_delay_seconds: float = parameter(
        180.0,
        pulsar_keys=("loadBalanceSheddingDelayInSeconds",),
        unit="seconds",
        used_by="transfer",
        why="a broker that gave or received a bundle takes no part in moves for this long (Pulsar's key "
        "begins with loadBalance, not loadBalancer)",
    )
    load_data_ttl_seconds: float = parameter(
        1800.0,
        pulsar_keys=("loadBalancerBrokerLoadDataTTLInSeconds",),
        unit="seconds",
        used_by="transfer",
        why="load data that is older than this is not used",
    )
    bundles_with_policies: bool = parameter(
        False,
        pulsar_keys=("loadBalancerSheddingBundlesWithPoliciesEnabled",),
        unit="true/false",
        used_by="transfer",
        why="true: `transfer` also moves bundles of namespaces with an isolation policy or anti-affinity group",
    )
    # deviation
    deviation_threshold: float = parameter(
        1.0,
        unit="standard deviations",
        used_by="deviation",
        why="the most loaded broker sheds when its score is this many standard deviations above the mean",
    )
    # splits
    split_enabled: bool = parameter(
        True,
        unit="true/false",
        used_by="splits",
        why="true: bundles are split; where the brokers split by themselves, only by the rule `hot`, which they "
        "do not have",
    )
    split_max_topics: int = parameter(
        1000,
        pulsar_keys=("loadBalancerNamespaceBundleMaxTopics",),
        unit="topics",
        minimum=None,
        used_by="splits",
        why="a bundle with more topics is split; 0 or less turns the rule off",
    )
    split_max_sessions: int = parameter(
        1000,
        pulsar_keys=("loadBalancerNamespaceBundleMaxSessions",),
        unit="producers and consumers",
        minimum=None,
        used_by="splits",
        why="a bundle with more sessions is split; 0 or less turns the rule off",
    )
    split_max_msg_rate: float = parameter(
        30_000.0,
        pulsar_keys=("loadBalancerNamespaceBundleMaxMsgRate",),
        unit="msg/s",
        minimum=None,
        used_by="splits",
        why="a bundle with more messages, in and out, is split; 0 or less turns the rule off",
    )
    split_max_bandwidth_mb: float = parameter(
        100.0,
        pulsar_keys=("loadBalancerNamespaceBundleMaxBandwidthMbytes",),
        unit="MiB/s",
        minimum=None,
        used_by="splits",
        why="a bundle with more bytes, in and out, is split; 0 or less turns the rule off",
    )
    split_hot_share: float = parameter(
        0.5,
        unit="ratio of the mean broker load",
        used_by="splits",
        why="a bundle with more load is split if it would keep any broker above the mean; 0: never",
    )
    split_hit_count: int = parameter(
        3,
        pulsar_keys=("loadBalancerNamespaceBundleSplitConditionHitCountThreshold",),
        unit="fresh readings",
        used_by="splits",
        why="a bundle is split when it is above a limit in more fresh readings in a row than this",
    )
    split_max_bundles: int = parameter(
        128,
        pulsar_keys=("loadBalancerNamespaceMaximumBundles",),
        unit="bundles",
        used_by="splits",
        why="a namespace that has this many bundles is not split further",
    )
    split_max_per_cycle: int = parameter(
        10,
        pulsar_keys=("loadBalancerMaxNumberOfBundlesToSplitPerCycle",),
        unit="splits",
        used_by="splits",
        why="most splits in one cycle; 0: none",
    )
    split_quiet_hours: tuple[str, ...] = parameter(
        (),
        unit="UTC hours, from-to, e.g. 22-06",
        pattern=r"([01]?\d|2[0-3])-([01]?\d|2[0-4])",
        used_by="splits",
        why="bundles are split in these hours only; empty: at any hour",
    )
    split_override_factor: float = parameter(
        2.0,
        unit="multiple of the limit",
        minimum=1.0,
        used_by="splits",
        why="a bundle this many times above its limit is split after two readings, and outside of "
        "split_quiet_hours, too",
    )
    # placement
    average_usage_difference_percent: float = parameter(
        10.0,
        pulsar_keys=("loadBalancerAverageResourceUsageDifferenceThresholdPercentage",),
        unit="percent points",
        maximum=100.0,
        used_by="least_resource_usage, compat only",
        why="with compat: a broker whose usage is this far below the average is preferred as target",
        instead="nothing: the least loaded broker that may take the bundle is preferred",
    )
    max_topics_per_broker: int = parameter(
        50_000,
        pulsar_keys=("loadBalancerBrokerMaxTopics",),
        unit="topics",
        minimum=1.0,
        used_by="placement",
        why="a broker with more topics gets no bundle, unless all have more "
        "(extensible load manager: a broker with this many or more gets none)",
    )
    # minima of the corrected strategies, as shares of the mean broker load
    min_unload_share: float = parameter(
        0.02,
        unit="ratio of the mean broker load",
        maximum=1.0,
        used_by="avg, threshold, overload, uniform, transfer, deviation",
        why="a bundle with less load, or less than half a mean bundle if that is smaller, is not moved",
    )
    # absolute minima in addition to these shares, if an operator sets them
    min_unload_message_rate: float = parameter(
        0.0,
        pulsar_keys=("minUnloadMessage",),
        unit="msg/s",
        used_by="avg, uniform",
        why=f"{_MINIMUM}. It is enough to reach min_unload_throughput (compat: 1000)",
    )
    min_unload_throughput: float = parameter(
        0.0,
        pulsar_keys=("minUnloadMessageThroughput",),
        unit="bytes/s",
        used_by="avg, uniform",
        why=f"{_MINIMUM}. It is enough to reach min_unload_message_rate (compat: 1048576)",
    )
    min_unload_throughput_mb: float = parameter(
        0.0,
        pulsar_keys=("loadBalancerBundleUnloadMinThroughputThreshold",),
        unit="MiB/s",
        used_by="threshold",
        why=f"{_MINIMUM} (compat: 10)",
    )
    # time: how often brokers measure and report, so how old their values can be
    statistics_interval_seconds: float = parameter(
        60.0,
        pulsar_keys=("statsUpdateFrequencyInSecs",),
        unit="seconds",
        minimum=0.1,
        used_by="avg, transfer, ledger",
        why="how often brokers compute their rates; a move is not visible earlier",
    )
    host_usage_interval_seconds: float = parameter(
        60.0,
        pulsar_keys=("loadBalancerHostUsageCheckIntervalMinutes",),
        unit="seconds (Pulsar: minutes)",
        minimum=0.1,
        factor=60.0,
        used_by="avg, transfer, ledger",
        why="how often brokers measure CPU and network; a move is not visible earlier",
    )
    report_change_percent: float = parameter(
        10.0,
        pulsar_keys=("loadBalancerReportUpdateThresholdPercentage",),
        unit="percent points",
        used_by="ledger",
        why="a broker reports when its usage (in points), messages, bytes or number of bundles (in percent) "
        "changed by more than this since its last report",
    )
    report_min_interval_seconds: float = parameter(
        5.0,
        pulsar_keys=("loadBalancerReportUpdateMinIntervalMillis",),
        unit="seconds (Pulsar: milliseconds)",
        factor=0.001,
        used_by="avg, ledger",
        why="how often brokers check whether to report; if no report follows within a second, the load is unchanged",
    )
    report_max_interval_seconds: float = parameter(
        900.0,
        pulsar_keys=("loadBalancerReportUpdateMaxIntervalMinutes",),
        unit="seconds (Pulsar: minutes)",
        minimum=1.0,
        factor=60.0,
        used_by="transfer, ledger, splits",
        why="brokers report at least this often; 3 min later (with the default intervals) a move counts as "
        "visible in any case",
    )
    report_max_bundles: int = parameter(
        10,
        pulsar_keys=("loadBalancerMaxNumberOfBundlesInBundleLoadReport",),
        unit="bundles",
        minimum=None,
        used_by="transfer, compat only",
        why="how many bundles a broker of the extensible load manager publishes; 0 or less: all",
        instead="nothing: every bundle of a broker counts",
    )
