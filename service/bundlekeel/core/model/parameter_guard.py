"""The guard's rows of the table of parameters: budgets, rests, holds, and what is left alone."""

from __future__ import annotations

from bundlekeel.core.model.parameter_spec import ParameterSpec

_S = ParameterSpec
GUARD: tuple[ParameterSpec, ...] = (
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
