"""Rows of the table of parameters (core/model/parameter_table.py): of the guard, of drains and warming, of splits."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterSpec:
    """One row. `pulsar_keys`: accepted names, the current one first. `factor`: ours = Pulsar's x factor.
    `pattern`: what each name of a list must match; none: any. `instead`: only Pulsar's own classes (`compat`) read it,
    and with `compat: none` this is to be set."""

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


_S = ParameterSpec
# Budgets, rests, holds, and what is left alone.
GUARD: tuple[_S, ...] = (
    _S(
        name="cool_down_seconds",
        pulsar_keys=("loadBalancerSheddingGracePeriodMinutes",),
        unit="seconds (Pulsar: minutes)",
        factor=60.0,
        used_by="guard",
        why="a bundle that moved is left alone this long",
    ),
    _S(
        name="cool_down_limited_factor",
        unit="factor",
        minimum=1.0,
        used_by="guard",
        why="so many times longer rests a bundle of a namespace in a quota group that is enforced; 1: like any other",
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
        name="max_moves_per_tenant",
        unit="moves",
        minimum=-1.0,
        used_by="guard",
        why="budget of one tenant in a cycle; -1: none of its own",
    ),
    _S(
        name="max_moves_per_hour",
        unit="moves",
        minimum=-1.0,
        used_by="guard",
        why="moves begun within any hour, also before a change of leader; -1: no limit",
    ),
    _S(
        name="max_traffic_share_per_cycle",
        unit="ratio of the source's traffic",
        maximum=1.0,
        used_by="guard",
        why="how much of a broker's messages or bytes leaves it in a cycle; one move is always allowed; 1: no limit",
    ),
    _S(
        name="no_return_seconds",
        unit="seconds",
        used_by="guard",
        why="a bundle does not go back so soon to the broker it left; other targets stay open to it; 0: disabled",
    ),
    _S(
        name="blast_window_seconds",
        unit="seconds",
        used_by="guard",
        why="brokers that came, went or restarted within it count as changed at once; 0 turns that off",
    ),
    _S(
        name="blast_radius_ratio",
        unit="ratio of the brokers",
        maximum=1.0,
        used_by="guard",
        why="when more than this share changed at once, only overload is relieved",
    ),
    _S(
        name="blast_stop_ratio",
        unit="ratio of the brokers",
        maximum=1.0,
        used_by="guard",
        why="when more than this share changed at once, nothing moves at all",
    ),
    _S(
        name="rollout_quiet_seconds",
        unit="seconds",
        used_by="guard",
        why="after a broker came, went or restarted, only overload is relieved for this long; 0 turns that off",
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
    _S(
        name="excluded_tenants",
        unit="names or globs",
        used_by="guard",
        why="tenants whose bundles never move",
    ),
    _S(
        name="excluded_brokers",
        unit="broker ids or globs",
        used_by="guard",
        why="brokers that neither give nor take a bundle",
    ),
    _S(
        name="included_namespaces",
        unit="names or globs",
        used_by="guard",
        why="when not empty, bundles of other namespaces never move: a gentle beginning",
    ),
)
# Drains and warming brokers.
OPERATIONS: tuple[_S, ...] = (
    _S(
        name="drain_max_moves_per_cycle",
        unit="moves",
        used_by="drain",
        why="budget of all drains in one cycle, beside that of the strategy; the next cycle follows at once",
    ),
    _S(
        name="warm_max_moves_per_cycle",
        unit="moves a broker",
        used_by="warm",
        why="so many bundles a cycle come to a broker that is being warmed",
    ),
    _S(
        name="warm_until_share",
        unit="ratio of the mean score",
        maximum=1.0,
        used_by="warm",
        why="a broker that carries this share of the mean is warm",
    ),
)
# Splits of bundles.
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
