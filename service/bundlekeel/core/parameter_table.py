"""The table of parameters: one row each with Pulsar's keys, unit, range, who reads it and why it is there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterSpec:
    """One row. `pulsar_keys`: accepted names, the current one first. `factor`: ours = Pulsar's x factor."""

    name: str
    pulsar_keys: tuple[str, ...] = ()
    unit: str
    why: str
    used_by: str
    minimum: float | None = 0.0
    maximum: float | None = None
    factor: float = 1.0
    choices: tuple[str, ...] = ()


STRATEGIES = ("avg", "threshold", "uniform")
PLACEMENTS = ("least_resource_usage", "least_long_term_message_rate")

_S = ParameterSpec
PARAMETERS: tuple[ParameterSpec, ...] = (
    _S(
        name="strategy",
        pulsar_keys=("loadBalancerLoadSheddingStrategy",),
        unit="name",
        choices=STRATEGIES,
        used_by="all",
        why="which shedder decides; avg pairs the most with the least loaded broker (PIP-364)",
    ),
    _S(
        name="placement",
        pulsar_keys=("loadBalancerLoadPlacementStrategy",),
        unit="name",
        choices=PLACEMENTS,
        used_by="all",
        why="which broker a shed bundle goes to, when the shedder does not couple it itself",
    ),
    _S(
        name="cpu_weight",
        pulsar_keys=("loadBalancerCPUResourceWeight",),
        unit="ratio",
        used_by="score",
        why="how much CPU counts in a broker's score; 0 ignores it",
    ),
    _S(
        name="direct_memory_weight",
        pulsar_keys=("loadBalancerDirectMemoryResourceWeight",),
        unit="ratio",
        used_by="score",
        why="direct memory is a cache that fills by itself, so it does not count by default",
    ),
    _S(
        name="bandwidth_in_weight",
        pulsar_keys=("loadBalancerBandwidthInResourceWeight", "loadBalancerBandwithInResourceWeight"),
        unit="ratio",
        used_by="score",
        why="how much incoming bandwidth counts",
    ),
    _S(
        name="bandwidth_out_weight",
        pulsar_keys=("loadBalancerBandwidthOutResourceWeight", "loadBalancerBandwithOutResourceWeight"),
        unit="ratio",
        used_by="score",
        why="how much outgoing bandwidth counts",
    ),
    _S(
        name="overloaded_threshold_percent",
        pulsar_keys=("loadBalancerBrokerOverloadedThresholdPercentage",),
        unit="percent",
        maximum=1000.0,
        used_by="placement, guard",
        why="above this a broker takes no bundle",
    ),
    _S(
        name="history_weight",
        pulsar_keys=("loadBalancerHistoryResourcePercentage",),
        unit="ratio",
        maximum=1.0,
        used_by="threshold",
        why="share of the past in the smoothed score; advanced once per fresh report",
    ),
    _S(
        name="threshold_percent",
        pulsar_keys=("loadBalancerBrokerThresholdShedderPercentage",),
        unit="percent points",
        maximum=100.0,
        used_by="threshold",
        why="a broker this far above the average sheds",
    ),
    _S(
        name="lower_boundary_shedding",
        pulsar_keys=("lowerBoundarySheddingEnabled",),
        unit="true/false",
        used_by="threshold",
        why="also shed from the top when some broker is far below the average",
    ),
    _S(
        name="avg_low_threshold_percent",
        pulsar_keys=("loadBalancerAvgShedderLowThreshold",),
        unit="percent points",
        maximum=100.0,
        used_by="avg",
        why="a pair this far apart is acted on after the low hit count; scaled with the mean score",
    ),
    _S(
        name="avg_low_floor_percent",
        unit="percent points",
        maximum=100.0,
        used_by="avg",
        why="the scaled low threshold never falls below this: noise on an idle cluster is no imbalance",
    ),
    _S(
        name="avg_high_threshold_percent",
        pulsar_keys=("loadBalancerAvgShedderHighThreshold",),
        unit="percent points",
        maximum=100.0,
        used_by="avg",
        why="a pair this far apart is acted on after the high hit count",
    ),
    _S(
        name="avg_hit_count_low",
        pulsar_keys=("loadBalancerAvgShedderHitCountLowThreshold",),
        unit="fresh reports",
        minimum=1.0,
        used_by="avg",
        why="how often the low difference must be seen in fresh reports",
    ),
    _S(
        name="avg_hit_count_high",
        pulsar_keys=("loadBalancerAvgShedderHitCountHighThreshold",),
        unit="fresh reports",
        minimum=1.0,
        used_by="avg",
        why="how often the high difference must be seen in fresh reports",
    ),
    _S(
        name="max_unload_ratio",
        pulsar_keys=("maxUnloadPercentage",),
        unit="ratio",
        maximum=1.0,
        used_by="avg",
        why="largest share of a pair's difference that one plan moves; 0.5 equalises it",
    ),
    _S(
        name="uniform_max_unload_ratio",
        unit="ratio",
        maximum=1.0,
        used_by="uniform",
        why="largest share of the difference that one plan moves (Pulsar shares maxUnloadPercentage between both)",
    ),
    _S(
        name="msg_rate_difference_percent",
        pulsar_keys=("loadBalancerMsgRateDifferenceShedderThreshold",),
        unit="percent",
        minimum=None,
        used_by="uniform",
        why="rate difference that starts shedding; <= 0 turns it off",
    ),
    _S(
        name="throughput_multiple",
        pulsar_keys=("loadBalancerMsgThroughputMultiplierDifferenceShedderThreshold",),
        unit="multiple",
        minimum=None,
        used_by="uniform",
        why="ratio of largest to smallest throughput that starts shedding; <= 0 turns it off",
    ),
    _S(
        name="max_unload_bundles",
        pulsar_keys=("maxUnloadBundleNumPerShedding",),
        unit="bundles",
        minimum=-1.0,
        used_by="uniform",
        why="most bundles in one plan; -1 for no limit",
    ),
    _S(
        name="average_usage_difference_percent",
        pulsar_keys=("loadBalancerAverageResourceUsageDifferenceThresholdPercentage",),
        unit="percent points",
        maximum=100.0,
        used_by="least_resource_usage",
        why="a target is preferred when this far below the average",
    ),
    _S(
        name="max_topics_per_broker",
        pulsar_keys=("loadBalancerBrokerMaxTopics",),
        unit="topics",
        minimum=1.0,
        used_by="placement",
        why="a broker with more topics takes no bundle",
    ),
    _S(
        name="min_unload_share",
        unit="ratio of the mean broker load",
        maximum=1.0,
        used_by="avg, threshold, uniform",
        why="less (or, if that is less, half a mean bundle) is not worth a reconnect; relative, for small clusters too",
    ),
    _S(
        name="min_unload_message_rate",
        pulsar_keys=("minUnloadMessage",),
        unit="msg/s",
        used_by="compat only",
        why="Pulsar's absolute minimum; it leaves small clusters unbalanced",
    ),
    _S(
        name="min_unload_throughput",
        pulsar_keys=("minUnloadMessageThroughput",),
        unit="bytes/s",
        used_by="compat only",
        why="Pulsar's absolute minimum; it leaves small clusters unbalanced",
    ),
    _S(
        name="min_unload_throughput_mb",
        pulsar_keys=("loadBalancerBundleUnloadMinThroughputThreshold",),
        unit="MiB/s",
        used_by="compat only",
        why="Pulsar's absolute minimum of ThresholdShedder",
    ),
    _S(
        name="statistics_interval_seconds",
        pulsar_keys=("statsUpdateFrequencyInSecs",),
        unit="seconds",
        minimum=0.1,
        used_by="ledger",
        why="how often brokers refresh their rates; a move shows no sooner",
    ),
    _S(
        name="host_usage_interval_seconds",
        pulsar_keys=("loadBalancerHostUsageCheckIntervalMinutes",),
        unit="seconds (Pulsar: minutes)",
        minimum=0.1,
        factor=60.0,
        used_by="ledger",
        why="how often brokers sample CPU and network; a move shows no sooner",
    ),
    _S(
        name="ledger_timeout_seconds",
        unit="seconds",
        minimum=1.0,
        used_by="ledger",
        why="a move counts as shown after this long even if a broker stays silent; quiet ones report every 15 minutes",
    ),
    _S(
        name="cool_down_seconds",
        pulsar_keys=("loadBalancerSheddingGracePeriodMinutes",),
        unit="seconds (Pulsar: minutes)",
        factor=60.0,
        used_by="guard",
        why="a bundle that moved is left alone this long",
    ),
    _S(name="max_moves_per_cycle", unit="moves", used_by="guard", why="budget of one cycle; 0 allows none"),
    _S(
        name="max_moves_per_source",
        unit="moves",
        used_by="guard",
        why="budget of one source broker in a cycle",
    ),
    _S(
        name="max_moves_per_target",
        unit="moves",
        used_by="guard",
        why="budget of one target broker in a cycle",
    ),
    _S(
        name="max_moves_per_namespace",
        unit="moves",
        used_by="guard",
        why="budget of one namespace in a cycle",
    ),
    _S(
        name="min_complete_ratio",
        unit="ratio",
        maximum=1.0,
        used_by="guard",
        why="with fewer usable reports than this share of the live brokers nothing moves",
    ),
    _S(
        name="excluded_namespaces",
        pulsar_keys=("loadBalancerSheddingExcludedNamespaces",),
        unit="names",
        used_by="guard",
        why="namespaces whose bundles never move (PIP-380)",
    ),
)

BY_NAME: dict[str, ParameterSpec] = {spec.name: spec for spec in PARAMETERS}
BY_PULSAR_KEY: dict[str, ParameterSpec] = {key: spec for spec in PARAMETERS for key in spec.pulsar_keys}

# Pulsar names its strategies by class; the simple name is enough to tell them apart.
STRATEGY_CLASSES: dict[str, str] = {
    "AvgShedder": "avg",
    "ThresholdShedder": "threshold",
    "UniformLoadShedder": "uniform",
    "LeastResourceUsageWithWeight": "least_resource_usage",
    "LeastLongTermMessageRate": "least_long_term_message_rate",
}
