"""Parameters of bundle splits, a part of the table in core/model/parameter_table.py."""

from __future__ import annotations

from bundlekeel.core.model.parameter_spec import ParameterSpec as _S

SPLITS: tuple[_S, ...] = (
    _S(
        name="split_enabled",
        unit="true/false",
        used_by="splits",
        why="whether bundles are split; where the brokers split themselves, only by our own rule `hot`",
    ),
    _S(
        name="split_max_topics",
        pulsar_keys=("loadBalancerNamespaceBundleMaxTopics",),
        unit="topics",
        minimum=None,
        used_by="splits",
        why="a bundle with more topics is split; <= 0 turns the rule off",
    ),
    _S(
        name="split_max_sessions",
        pulsar_keys=("loadBalancerNamespaceBundleMaxSessions",),
        unit="producers and consumers",
        minimum=None,
        used_by="splits",
        why="a bundle with more sessions is split; <= 0 turns the rule off",
    ),
    _S(
        name="split_max_msg_rate",
        pulsar_keys=("loadBalancerNamespaceBundleMaxMsgRate",),
        unit="msg/s",
        minimum=None,
        used_by="splits",
        why="a bundle with more messages, in and out, is split; <= 0 turns the rule off",
    ),
    _S(
        name="split_max_bandwidth_mb",
        pulsar_keys=("loadBalancerNamespaceBundleMaxBandwidthMbytes",),
        unit="MiB/s",
        minimum=None,
        used_by="splits",
        why="a bundle with more bytes, in and out, is split; <= 0 turns the rule off",
    ),
    _S(
        name="split_hot_share",
        unit="ratio of the mean broker load",
        used_by="splits",
        why="a bundle that carries more, and leaves its broker above the mean wherever it is, is split; 0: never",
    ),
    _S(
        name="split_hit_count",
        pulsar_keys=("loadBalancerNamespaceBundleSplitConditionHitCountThreshold",),
        unit="fresh reports",
        used_by="splits",
        why="a bundle must be above a limit in more fresh reports in a row than this",
    ),
    _S(
        name="split_max_bundles",
        pulsar_keys=("loadBalancerNamespaceMaximumBundles",),
        unit="bundles",
        used_by="splits",
        why="a namespace that has this many bundles is split no further",
    ),
    _S(
        name="split_max_per_cycle",
        pulsar_keys=("loadBalancerMaxNumberOfBundlesToSplitPerCycle",),
        unit="splits",
        used_by="splits",
        why="budget of one cycle; 0 allows none",
    ),
    _S(
        name="split_quiet_hours",
        unit="UTC hours, from-to, e.g. 22-06",
        pattern=r"([01]?\d|2[0-3])-([01]?\d|2[0-4])",
        used_by="splits",
        why="splits wait for these hours; empty: any hour",
    ),
    _S(
        name="split_override_factor",
        unit="multiple of the limit",
        minimum=1.0,
        used_by="splits",
        why="a bundle this far above its limit needs two hits only, and does not wait for quiet hours",
    ),
)
