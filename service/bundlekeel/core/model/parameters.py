"""Parameters of strategies, guard and timing: one table with Pulsar's key, default, unit and the reason for it.

`PARAMETERS` (core/model/parameter_table.py) is the single source: settings accept our name or Pulsar's keys,
`adopt_broker_settings` reads the keys live, and docs/reference/parameters.md is generated from it.
Defaults of Pulsar: `ServiceConfiguration` of 4.2.4.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from bundlekeel.core.model.errors import ConfigError
from bundlekeel.core.model.parameter_rows import ParameterSpec
from bundlekeel.core.model.parameter_table import (
    BY_NAME,
    BY_PULSAR_KEY,
    PARAMETERS,
    PLACEMENTS,
    RELEASES,
    STRATEGIES,
    STRATEGY_CLASSES,
)

__all__ = [
    "BY_NAME",
    "BY_PULSAR_KEY",
    "PARAMETERS",
    "PLACEMENTS",
    "RELEASES",
    "STRATEGIES",
    "STRATEGY_CLASSES",
    "ParameterSpec",
    "Parameters",
    "add_choice",
    "check_pair",
    "choices",
    "coerce",
    "compat_defaults",
    "defaults",
    "from_pulsar",
    "half_of_avg",
    "in_form",
    "with_strategy",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Everything `plan()` needs to know besides the snapshot. Field meanings: see `PARAMETERS`."""

    strategy: str = "avg"
    placement: str = "least_resource_usage"
    compat: str = "none"
    # score
    cpu_weight: float = 1.0
    direct_memory_weight: float = 0.0
    bandwidth_in_weight: float = 1.0
    bandwidth_out_weight: float = 1.0
    overloaded_threshold_percent: float = 85.0
    history_weight: float = 0.9
    # threshold
    threshold_percent: float = 10.0
    lower_boundary_shedding: bool = False
    # avg
    avg_low_threshold_percent: float = 15.0
    avg_low_floor_percent: float = 2.0
    avg_high_threshold_percent: float = 40.0
    avg_high_ratio: float = 2.0
    avg_hit_count_low: int = 8
    avg_hit_count_high: int = 2
    max_unload_ratio: float = 0.5
    # uniform
    msg_rate_difference_percent: float = 50.0
    throughput_multiple: float = 4.0
    uniform_max_unload_ratio: float = 0.2
    max_unload_bundles: int = -1
    # transfer
    transfer_target_std: float = 0.25
    transfer_hit_count: int = 3
    transfer_enabled: bool = True
    transfer_max_brokers: int = 3
    transfer_delay_seconds: float = 180.0
    load_data_ttl_seconds: float = 1800.0
    bundles_with_policies: bool = False
    # deviation
    deviation_threshold: float = 1.0
    # splits
    split_enabled: bool = True
    split_max_topics: int = 1000
    split_max_sessions: int = 1000
    split_max_msg_rate: float = 30_000.0
    split_max_bandwidth_mb: float = 100.0
    split_hot_share: float = 0.5
    split_hit_count: int = 3
    split_max_bundles: int = 128
    split_max_per_cycle: int = 10
    split_quiet_hours: tuple[str, ...] = ()
    split_override_factor: float = 2.0
    # placement
    average_usage_difference_percent: float = 10.0
    max_topics_per_broker: int = 50_000
    # minima of the corrected strategies, as shares of the mean broker load
    min_unload_share: float = 0.02
    # absolute minima beside it, where an operator wants them
    min_unload_message_rate: float = 0.0
    min_unload_throughput: float = 0.0
    min_unload_throughput_mb: float = 0.0
    # time: how old the brokers' figures are by design
    statistics_interval_seconds: float = 60.0
    host_usage_interval_seconds: float = 60.0
    report_change_percent: float = 10.0
    report_min_interval_seconds: float = 5.0
    report_max_interval_seconds: float = 900.0
    report_max_bundles: int = 10
    # guard
    cool_down_seconds: float = 1800.0
    cool_down_limited_factor: float = 2.0
    max_moves_per_cycle: int = 10
    max_moves_per_source: int = 4
    max_moves_per_target: int = 4
    max_moves_per_namespace: int = 10
    max_moves_per_tenant: int = -1
    max_moves_per_hour: int = 1000
    max_traffic_share_per_cycle: float = 1.0
    no_return_seconds: float = 3600.0
    blast_window_seconds: float = 60.0
    blast_radius_ratio: float = 0.5
    blast_stop_ratio: float = 0.8
    rollout_quiet_seconds: float = 60.0
    min_complete_ratio: float = 0.5
    excluded_namespaces: tuple[str, ...] = ()
    excluded_tenants: tuple[str, ...] = ()
    excluded_brokers: tuple[str, ...] = ()
    included_namespaces: tuple[str, ...] = ()
    # operations
    drain_max_moves_per_cycle: int = 12
    warm_max_moves_per_cycle: int = 2
    warm_until_share: float = 0.9

    @staticmethod
    def recorded(values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Members as an earlier release recorded them (core/history/values.py), as members of today: one figure stood
        for the ledger's time-out, and with `compat: none` the absolute minima meant nothing."""
        if "ledger_timeout_seconds" not in values:
            return values
        found = dict(values)
        known: dict[str, Any] = defaults() | found
        figures = (known["statistics_interval_seconds"], known["host_usage_interval_seconds"])
        silence = found.pop("ledger_timeout_seconds") - sum(figures) - max(figures)
        if known["compat"] == "none":
            found |= dict.fromkeys(
                ("min_unload_message_rate", "min_unload_throughput", "min_unload_throughput_mb"), 0.0
            )
        return {"report_max_interval_seconds": max(1.0, silence), **found}


def defaults() -> dict[str, object]:
    """Every parameter's default by our name."""
    blank = Parameters()
    return {f.name: getattr(blank, f.name) for f in fields(Parameters)}


# Names that third parties added at start (entry points), by parameter: `strategy`, `placement`.
_ADDED: dict[str, list[str]] = {}
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


def compat_defaults(release: str, strategy: object = None) -> dict[str, object]:
    """Where Pulsar's own defaults differ from ours: they hold for its own classes. Empty for `none`.

    `strategy`: the one that is named, None is Pulsar's default. AvgShedder is shedder and placement in one object.
    """
    if release == "none":
        return {}
    placement = "avg" if strategy == "avg" else "least_long_term_message_rate"
    return {
        "strategy": "threshold",
        "placement": placement,
        "max_unload_ratio": 0.2,
        "min_unload_message_rate": 1000.0,
        "min_unload_throughput": 1_048_576.0,
        "min_unload_throughput_mb": 10.0,
    }


def in_form(params: Parameters, release: str) -> Parameters:
    """The same with another `compat`, and its defaults: what stood at those of the form before stands at the other's.
    Strategy and placement are chosen by name, whatever the form."""
    before, after = (defaults() | compat_defaults(item) for item in (params.compat, release))
    moved = {
        name: after[name]
        for name in before.keys() - {"strategy", "placement"}
        if before[name] != after[name] and getattr(params, name) == before[name]
    }
    return replace(params, **{**moved, "compat": release})  # type: ignore[arg-type]


def half_of_avg(release: str, strategy: object, placement: object) -> bool:
    """Whether a release of Pulsar would run AvgShedder as one of the two only."""
    return release != "none" and (strategy == "avg") != (placement == "avg")


def check_pair(release: str, strategy: object, placement: object) -> None:
    """ConfigError for half of AvgShedder, which is shedder and placement in one object (PIP-364).

    `ModularLoadManagerImpl` throws at start when it is the placement alone. As the shedder alone it runs, but the other
    placement knows nothing of its destinations.
    """
    if half_of_avg(release, strategy, placement):
        raise ConfigError(
            f"strategy {strategy} with placement {placement} is half of AvgShedder: in compat {release} it is shedder "
            "and placement in one object",
            field="placement",
            value=placement,
            allowed="strategy avg with placement avg, or neither of them avg",
        )


def with_strategy(params: Parameters, strategy: str) -> Parameters:
    """The same with another strategy. In `compat` AvgShedder brings its placement along, and takes it away again."""
    if not half_of_avg(params.compat, strategy, params.placement):
        return replace(params, strategy=strategy)
    placement = compat_defaults(params.compat, strategy)["placement"]
    return replace(params, strategy=strategy, placement=placement)  # type: ignore[arg-type]


def choices(name: str) -> tuple[str, ...]:
    """What a parameter with a fixed list of names may be: our own names, then those added at start."""
    return (*BY_NAME[name].choices, *_ADDED.get(name, ()))


def add_choice(parameter: str, name: str) -> None:
    """Let `strategy` or `placement` be this name as well. ConfigError when the name is bad or taken."""
    if _NAME.fullmatch(name) is None:
        allowed = "a-z, 0-9 and _, beginning with a letter, at most 40 of them"
        raise ConfigError(f"{name!r} is no name for a {parameter}", field=parameter, value=name, allowed=allowed)
    if name in choices(parameter):
        raise ConfigError(f"the {parameter} {name!r} is there already", field=parameter, value=name)
    _ADDED.setdefault(parameter, []).append(name)


def coerce(name: str, value: object, *, ranged: bool = True) -> object:
    """Check one value (in our unit) and bring it to the parameter's type. ConfigError names field, value, allowed.

    `ranged` False: any number, as Pulsar's own classes take it.
    """
    spec = BY_NAME.get(name)
    if spec is None:
        raise ConfigError(f"unknown parameter {name!r}", field=name, value=value, allowed=", ".join(sorted(BY_NAME)))
    default = defaults()[name]
    if isinstance(default, bool):
        return _coerce_bool(name, value)
    if isinstance(default, tuple):
        return _coerce_names(spec, value)
    if isinstance(default, str):
        known = choices(name)
        if value not in known:
            said = ", ".join(known)
            raise ConfigError(f"{name}: {value!r} is not one of {said}", field=name, value=value, allowed=said)
        return value
    return _coerce_number(spec, value, whole=isinstance(default, int), ranged=ranged)


def _coerce_bool(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise ConfigError(f"{name}: {value!r} is neither true nor false", field=name, value=value, allowed="true, false")


def _coerce_names(spec: ParameterSpec, value: object) -> tuple[str, ...]:
    allowed = f"a list of {spec.unit}"
    if isinstance(value, str):
        value = [part.strip() for part in value.strip("[]").split(",") if part.strip()]
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise ConfigError(f"{spec.name}: {value!r} is no list of names", field=spec.name, value=value, allowed=allowed)
    wrong = [item for item in value if spec.pattern and not re.fullmatch(spec.pattern, item)]
    if wrong:
        raise ConfigError(
            f"{spec.name}: {wrong[0]!r} is not allowed; expected {allowed}",
            field=spec.name,
            value=wrong[0],
            allowed=allowed,
        )
    return tuple(value)


def _coerce_number(spec: ParameterSpec, value: object, *, whole: bool, ranged: bool) -> float | int:
    low = "no lower limit" if spec.minimum is None else f">= {spec.minimum:g}"
    high = "" if spec.maximum is None else f" and <= {spec.maximum:g}"
    allowed = f"{'a whole number' if whole else 'a number'} {low}{high} ({spec.unit})"
    try:
        if isinstance(value, bool):
            raise TypeError("true/false is no number")
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(
            f"{spec.name}: {value!r} is no number", field=spec.name, value=value, allowed=allowed
        ) from None
    in_range = (spec.minimum is None or number >= spec.minimum) and (spec.maximum is None or number <= spec.maximum)
    if (ranged and not in_range) or not math.isfinite(number) or (whole and number != int(number)):
        raise ConfigError(
            f"{spec.name}: {value!r} is not allowed; expected {allowed}",
            field=spec.name,
            value=value,
            allowed=allowed,
        )
    return int(number) if whole else number


def from_pulsar(values: Mapping[str, object], *, ranged: bool = True) -> dict[str, object]:
    """Translate Pulsar's keys and units to our parameters; keys that no parameter reads are left out.

    An unknown strategy class is left out too (the caller reports it): it names a class, not a value of ours.
    `ranged` False: any number, as Pulsar's own classes take it.
    """
    found: dict[str, object] = {}
    for spec in PARAMETERS:
        given = [(key, values[key]) for key in spec.pulsar_keys if values.get(key) is not None]
        if not given:
            continue
        if spec.choices:
            mapped = STRATEGY_CLASSES.get(str(given[0][1]).rpartition(".")[2])
            if mapped in spec.choices:
                found[spec.name] = mapped
            continue
        read = [_read(spec, key, raw, ranged=ranged) for key, raw in given]
        # Brokers report an old spelling beside the current one; like them, take it only where the current one
        # stands at its default.
        changed = [value for value in read if value != defaults()[spec.name]]
        found[spec.name] = changed[0] if len(read) > 1 and changed else read[0]
    return found


def _read(spec: ParameterSpec, key: str, raw: object, *, ranged: bool) -> object:
    if spec.factor == 1.0:
        return coerce(spec.name, raw, ranged=ranged)
    try:
        return coerce(spec.name, float(raw) * spec.factor, ranged=ranged)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(f"{key}: {raw!r} is no number", field=key, value=raw, allowed=spec.unit) from None
