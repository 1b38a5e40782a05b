"""The table of parameters: one row each with Pulsar's keys, unit, range, who reads it and why it is there."""

from __future__ import annotations

from bundlekeel.core.parameter_guard import GUARD
from bundlekeel.core.parameter_operations import OPERATIONS
from bundlekeel.core.parameter_spec import ParameterSpec
from bundlekeel.core.parameter_splits import SPLITS

STRATEGIES = ("avg", "threshold", "overload", "uniform", "transfer", "deviation")
PLACEMENTS = ("least_resource_usage", "least_long_term_message_rate", "round_robin", "avg")
RELEASES = ("none", "4.0", "4.2")

_S = ParameterSpec
_MINIMUM = "a broker that would give less gives nothing; 0: no such minimum"
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
        name="compat",
        unit="Pulsar release",
        choices=RELEASES,
        used_by="all",
        why="none: the corrected strategies; 4.0 or 4.2: what the class of that release does, defects included",
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
        used_by="overload, transfer, placement, guard",
        why="above this a broker takes no bundle",
    ),
    _S(
        name="history_weight",
        pulsar_keys=("loadBalancerHistoryResourcePercentage",),
        unit="ratio",
        maximum=1.0,
        used_by="threshold, transfer",
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
        name="avg_high_ratio",
        unit="ratio",
        minimum=1.0,
        used_by="avg",
        why="a hot broker with this multiple of the mean score counts as a high difference, however low the scores",
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
        pulsar_keys=("maxUnloadPercentage",),
        unit="ratio",
        maximum=1.0,
        used_by="uniform",
        why="largest share of the difference that one plan moves; Pulsar has one key for both strategies",
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
        name="transfer_target_std",
        pulsar_keys=("loadBalancerBrokerLoadTargetStd",),
        unit="ratio",
        used_by="transfer",
        why="brokers shed while the standard deviation of the scores is above this",
    ),
    _S(
        name="transfer_hit_count",
        pulsar_keys=("loadBalancerSheddingConditionHitCountThreshold",),
        unit="cycles with fresh reports",
        used_by="transfer",
        why="the condition must hold more often than this in a row",
    ),
    _S(
        name="transfer_enabled",
        pulsar_keys=("loadBalancerTransferEnabled",),
        unit="true/false",
        used_by="transfer, compat only",
        why="false: bundles are unloaded without a destination; the corrected form always has one",
        instead="nothing: every move has a destination",
    ),
    _S(
        name="transfer_max_brokers",
        pulsar_keys=("loadBalancerMaxNumberOfBrokerSheddingPerCycle",),
        unit="brokers",
        minimum=1.0,
        used_by="transfer",
        why="most brokers that shed in one cycle",
    ),
    _S(
        name="transfer_delay_seconds",
        pulsar_keys=("loadBalanceSheddingDelayInSeconds",),
        unit="seconds",
        used_by="transfer",
        why="a broker that just gave or took is left alone this long (the key has no second r in Pulsar either)",
    ),
    _S(
        name="load_data_ttl_seconds",
        pulsar_keys=("loadBalancerBrokerLoadDataTTLInSeconds",),
        unit="seconds",
        used_by="transfer",
        why="load data older than this do not count",
    ),
    _S(
        name="bundles_with_policies",
        pulsar_keys=("loadBalancerSheddingBundlesWithPoliciesEnabled",),
        unit="true/false",
        used_by="transfer",
        why="whether it may move bundles of namespaces with an isolation policy or anti-affinity group; others may",
    ),
    _S(
        name="deviation_threshold",
        unit="standard deviations",
        used_by="deviation",
        why="the most loaded broker sheds when it is this many standard deviations above the mean",
    ),
    *SPLITS,
    _S(
        name="average_usage_difference_percent",
        pulsar_keys=("loadBalancerAverageResourceUsageDifferenceThresholdPercentage",),
        unit="percent points",
        maximum=100.0,
        used_by="least_resource_usage, compat only",
        why="a target is preferred when this far below the average",
        instead="nothing: the least loaded broker that may take the bundle is preferred",
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
        used_by="avg, threshold, overload, uniform, transfer, deviation",
        why="less (or, if that is less, half a mean bundle) is not worth a reconnect; relative, for small clusters too",
    ),
    _S(
        name="min_unload_message_rate",
        pulsar_keys=("minUnloadMessage",),
        unit="msg/s",
        used_by="avg, uniform",
        why=f"{_MINIMUM}; that of the bytes, once reached, is enough (compat: 1000)",
    ),
    _S(
        name="min_unload_throughput",
        pulsar_keys=("minUnloadMessageThroughput",),
        unit="bytes/s",
        used_by="avg, uniform",
        why=f"{_MINIMUM}; that of the messages, once reached, is enough (compat: 1048576)",
    ),
    _S(
        name="min_unload_throughput_mb",
        pulsar_keys=("loadBalancerBundleUnloadMinThroughputThreshold",),
        unit="MiB/s",
        used_by="threshold",
        why=f"{_MINIMUM} (compat: 10)",
    ),
    _S(
        name="statistics_interval_seconds",
        pulsar_keys=("statsUpdateFrequencyInSecs",),
        unit="seconds",
        minimum=0.1,
        used_by="avg, transfer, ledger",
        why="how often brokers refresh their rates; a move shows no sooner",
    ),
    _S(
        name="host_usage_interval_seconds",
        pulsar_keys=("loadBalancerHostUsageCheckIntervalMinutes",),
        unit="seconds (Pulsar: minutes)",
        minimum=0.1,
        factor=60.0,
        used_by="avg, transfer, ledger",
        why="how often brokers sample CPU and network; a move shows no sooner",
    ),
    _S(
        name="ledger_timeout_seconds",
        unit="seconds",
        minimum=1.0,
        used_by="transfer, ledger",
        why="a move counts as shown after this long even if a broker stays silent; quiet ones report every 15 minutes",
    ),
    *GUARD,
    *OPERATIONS,
)

BY_NAME: dict[str, ParameterSpec] = {spec.name: spec for spec in PARAMETERS}
# One key may mean several parameters.
BY_PULSAR_KEY: dict[str, tuple[ParameterSpec, ...]] = {
    key: tuple(spec for spec in PARAMETERS if key in spec.pulsar_keys)
    for key in dict.fromkeys(key for spec in PARAMETERS for key in spec.pulsar_keys)
}

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
