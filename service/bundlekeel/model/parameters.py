"""All parameters of a plan: those of parameter_table.py and those of the guard, and their conversion from settings.

The fields are the only source. `PARAMETERS` and docs/reference/parameters.md are generated from them. Settings accept
Bundlekeel's name or Pulsar's keys, and `adopt_broker_settings` reads the keys from the brokers. Pulsar's defaults are
those of `ServiceConfiguration` in 4.2.4.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Final

from bundlekeel.model.codes import Code
from bundlekeel.model.errors import CodecError, ConfigError
from bundlekeel.model.numbers import MAX_INT, MAX_NUMBER, number
from bundlekeel.model.parameter_table import STRATEGY_CLASSES, ParameterSpec, StrategyParameters, parameter
from bundlekeel.model.text_format import limits_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters(StrategyParameters):
    """All parameters of `planning.engine.plan`. Each field contains its description."""

    # guard
    cool_down_seconds: float = parameter(
        1800.0,
        pulsar_keys=("loadBalancerSheddingGracePeriodMinutes",),
        unit="seconds (Pulsar: minutes)",
        factor=60.0,
        used_by="guard",
        why="a bundle that moved is not moved again for this long",
    )
    cool_down_limited_factor: float = parameter(
        2.0,
        unit="factor",
        minimum=1.0,
        used_by="guard",
        why="the cool-down of bundles whose quota group is enforced is multiplied by this; 1: no difference",
    )
    max_moves_per_cycle: int = parameter(10, unit="moves", used_by="guard", why="most moves in one cycle; 0: none")
    max_moves_per_source: int = parameter(
        4, unit="moves", used_by="guard", why="most moves from one broker in one cycle"
    )
    max_moves_per_target: int = parameter(4, unit="moves", used_by="guard", why="most moves to one broker in one cycle")
    max_moves_per_namespace: int = parameter(
        10, unit="moves", used_by="guard", why="most moves of bundles of one namespace in one cycle"
    )
    max_moves_per_tenant: int = parameter(
        -1,
        unit="moves",
        minimum=-1.0,
        used_by="guard",
        why="most moves of bundles of one tenant in one cycle; -1: no limit",
    )
    max_moves_per_hour: int = parameter(
        1000,
        unit="moves",
        minimum=-1.0,
        used_by="guard",
        why="most moves begun within any hour, those of earlier leaders included; -1: no limit",
    )
    max_traffic_share_per_cycle: float = parameter(
        1.0,
        unit="ratio of the source's traffic",
        maximum=1.0,
        used_by="guard",
        why="at most this share of a broker's messages or bytes leaves it in one cycle; one move is always "
        "allowed; 1: no limit",
    )
    no_return_seconds: float = parameter(
        3600.0,
        unit="seconds",
        used_by="guard",
        why="a bundle does not return to the broker that it left for this long; it may go to others; 0: off",
    )
    blast_window_seconds: float = parameter(
        60.0,
        unit="seconds",
        used_by="guard",
        why="brokers that started, stopped or restarted within this time are counted together as changed; 0: off",
    )
    blast_radius_ratio: float = parameter(
        0.5,
        unit="ratio of the brokers",
        maximum=1.0,
        used_by="guard",
        why="when more than this share of the brokers changed within blast_window_seconds, only overload is relieved",
    )
    blast_stop_ratio: float = parameter(
        0.8,
        unit="ratio of the brokers",
        maximum=1.0,
        used_by="guard",
        why="when more than this share of the brokers changed within blast_window_seconds, nothing moves",
    )
    rollout_quiet_seconds: float = parameter(
        60.0,
        unit="seconds",
        used_by="guard",
        why="after a broker started, stopped or restarted, only overload is relieved for this long; 0: off",
    )
    min_complete_ratio: float = parameter(
        0.5,
        unit="ratio",
        maximum=1.0,
        used_by="guard",
        why="nothing moves when less than this share of the live brokers has a usable report",
    )
    excluded_namespaces: tuple[str, ...] = parameter(
        (),
        pulsar_keys=("loadBalancerSheddingExcludedNamespaces",),
        unit="names",
        used_by="guard",
        why="namespaces whose bundles never move (PIP-380)",
    )
    excluded_tenants: tuple[str, ...] = parameter(
        (), unit="names or globs", used_by="guard", why="tenants whose bundles never move"
    )
    excluded_brokers: tuple[str, ...] = parameter(
        (), unit="broker ids or globs", used_by="guard", why="brokers that neither give nor get bundles"
    )
    included_namespaces: tuple[str, ...] = parameter(
        (),
        unit="names or globs",
        used_by="guard",
        why="if not empty, only bundles of these namespaces move (for a first, limited use)",
    )
    # repairs of placements
    placement_repair: bool = parameter(
        False,
        unit="true/false (placement.repair: on/off)",
        used_by="repair",
        why="true: bundles on a broker that their isolation policy does not allow move back to a primary broker of it; "
        "dry runs always show these moves",
    )
    repair_max_moves_per_cycle: int = parameter(
        4,
        unit="moves",
        used_by="repair",
        why="most moves back to primary brokers in one cycle, in addition to those of the strategy; 0: none",
    )
    # operations
    drain_max_moves_per_cycle: int = parameter(
        12,
        unit="moves",
        used_by="drain",
        why="most moves of all drains in one cycle, in addition to those of the strategy; the next cycle "
        "follows immediately",
    )
    warm_max_moves_per_cycle: int = parameter(
        2, unit="moves a broker", used_by="warm", why="most bundles that move to a broker under warm-up in one cycle"
    )
    warm_until_share: float = parameter(
        0.9,
        unit="ratio of the mean score",
        maximum=1.0,
        used_by="warm",
        why="the warm-up of a broker ends when its score is this share of the mean score",
    )


PARAMETERS = tuple(ParameterSpec(name=item.name, **item.metadata) for item in fields(Parameters))
BY_NAME = {spec.name: spec for spec in PARAMETERS}
# One key can set several parameters.
BY_PULSAR_KEY = {
    key: tuple(spec for spec in PARAMETERS if key in spec.pulsar_keys)
    for key in dict.fromkeys(key for spec in PARAMETERS for key in spec.pulsar_keys)
}


def defaults() -> dict[str, object]:
    """Return the default of every parameter, by Bundlekeel's name."""
    blank = Parameters()
    return {f.name: getattr(blank, f.name) for f in fields(Parameters)}


# Names that third parties added at start (entry points), by parameter: `strategy`, `placement`.
_ADDED: dict[str, list[str]] = {}
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


def compat_defaults(release: str, strategy: object = None) -> dict[str, object]:
    """Return Pulsar's defaults that differ from Bundlekeel's, which apply if `compat` is `release`; {} for `none`.

    `strategy`: the configured strategy; None: Pulsar's default. It determines the default placement: AvgShedder is
    shedder and placement in one object.
    """
    if release == "none":
        return {}
    shedder, ratio = ("avg", 0.5) if release == "5.0" else ("threshold", 0.2)
    placement = "avg" if (strategy or shedder) == "avg" else "least_long_term_message_rate"
    return {
        "strategy": shedder,
        "placement": placement,
        "max_unload_ratio": ratio,
        "uniform_max_unload_ratio": ratio,
        "min_unload_message_rate": 1000.0,
        "min_unload_throughput": 1_048_576.0,
        "min_unload_throughput_mb": 10.0,
    }


def in_form(params: Parameters, release: str) -> Parameters:
    """Return the parameters with `compat` set to `release`.

    Values equal to the defaults of the old `compat` become the defaults of the new one. Strategy and placement do not
    change.
    """
    before, after = (defaults() | compat_defaults(item) for item in (params.compat, release))
    moved = {
        name: after[name]
        for name in before.keys() - {"strategy", "placement"}
        if before[name] != after[name] and getattr(params, name) == before[name]
    }
    return replace(params, **{**moved, "compat": release})  # type: ignore[arg-type]


def half_of_avg(release: str, strategy: object, placement: object) -> bool:
    """Return whether AvgShedder would be only one of strategy and placement where `release` allows only both.

    Pulsar 5.0 runs it as the strategy alone.
    """
    if release == "none" or (release == "5.0" and strategy == "avg"):
        return False
    return (strategy == "avg") != (placement == "avg")


def check_pair(release: str, strategy: object, placement: object) -> None:
    """Check strategy and placement. Raises ConfigError for half of AvgShedder, which is both in one object (PIP-364).

    `ModularLoadManagerImpl` fails at start if AvgShedder is only the placement; since 5.0 it uses
    LeastLongTermMessageRate instead. As shedder alone it runs, but the other placement ignores its targets, which 5.0
    supports.
    """
    if half_of_avg(release, strategy, placement):
        text = f"in compat {release} it is shedder and placement in one object"
        allowed = "strategy avg with placement avg, or neither of them avg"
        if release == "5.0":
            instead = compat_defaults(release, strategy)["placement"]
            text, allowed = f"Pulsar 5.0 uses {instead} instead", f"placement {instead}, or strategy avg"
        raise ConfigError(
            f"strategy {strategy} with placement {placement} is half of AvgShedder: {text}",
            field="placement",
            value=placement,
            allowed=allowed,
        )


def with_strategy(params: Parameters, strategy: str) -> Parameters:
    """Return the parameters with another strategy. With `compat`, AvgShedder also changes the placement."""
    if params.compat == "none" or "avg" not in (strategy, params.placement):
        return replace(params, strategy=strategy)
    placement = compat_defaults(params.compat, strategy)["placement"]
    return replace(params, strategy=strategy, placement=placement)  # type: ignore[arg-type]


def choices(name: str) -> tuple[str, ...]:
    """Return the allowed names for a parameter: Bundlekeel's own, then those that plugins added at start."""
    return (*BY_NAME[name].choices, *_ADDED.get(name, ()))


def add_choice(parameter: str, name: str) -> None:
    """Allow one more name for `strategy` or `placement`. Raises ConfigError if the name is invalid or in use."""
    if _NAME.fullmatch(name) is None:
        allowed = "a-z, 0-9 and _, beginning with a letter, at most 40 of them"
        raise ConfigError(
            f"{name!r} is not a valid name for a {parameter}", field=parameter, value=name, allowed=allowed
        )
    if name in choices(parameter):
        raise ConfigError(f"the {parameter} {name!r} exists already", field=parameter, value=name)
    _ADDED.setdefault(parameter, []).append(name)


def coerce(name: str, value: object, *, ranged: bool = True) -> object:
    """Check one value (in Bundlekeel's unit) and convert it to the parameter's type.

    `ranged`: False allows any number, as Pulsar's own classes do. Raises ConfigError if the value is not allowed.
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
        names = choices(name)
        if value not in names:
            allowed = ", ".join(names)
            raise ConfigError(f"{name}: {value!r} is not one of {allowed}", field=name, value=value, allowed=allowed)
        return value
    return _coerce_number(spec, value, whole=isinstance(default, int), ranged=ranged)


def _coerce_bool(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false", "on", "off"):
        return value.strip().lower() in ("true", "on")
    raise ConfigError(f"{name}: {value!r} is neither true nor false", field=name, value=value, allowed="true, false")


def _coerce_names(spec: ParameterSpec, value: object) -> tuple[str, ...]:
    allowed = f"a list of {spec.unit}"
    if isinstance(value, str):
        value = [part.strip() for part in value.strip("[]").split(",") if part.strip()]
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise _refused(spec, value, "is not a list of names", allowed)
    wrong = [item for item in value if spec.pattern and not re.fullmatch(spec.pattern, item)]
    if wrong:
        raise _refused(spec, wrong[0], f"is not allowed; expected {allowed}", allowed)
    return tuple(value)


def _refused(spec: ParameterSpec, value: object, why: str, allowed: str) -> ConfigError:
    return ConfigError(f"{spec.name}: {value!r} {why}", field=spec.name, value=value, allowed=allowed)


def number_words(spec: ParameterSpec) -> str:
    """Return type and range of a numeric parameter as text, such as `number, from 0 to 100`."""
    kind = "whole number" if isinstance(defaults()[spec.name], int) else "number"
    return ", ".join(filter(None, (kind, limits_text({"ge": spec.minimum, "le": spec.maximum}))))


# Near the largest double.
_LARGEST: Final = 1.7e308


def _coerce_number(spec: ParameterSpec, value: object, *, whole: bool, ranged: bool) -> float | int:
    allowed = f"a {number_words(spec)} ({spec.unit})"
    try:
        most = MAX_INT if spec.unit.startswith("seconds") else MAX_NUMBER
        result = number(value, field=spec.name, lowest=-_LARGEST, highest=most if ranged else _LARGEST)
    except CodecError as error:
        why = "is not a number" if error.code == Code.WRONG_TYPE else f"is not allowed; expected {allowed}"
        raise _refused(spec, value, why, allowed) from None
    in_range = (spec.minimum is None or result >= spec.minimum) and (spec.maximum is None or result <= spec.maximum)
    if (ranged and not in_range) or (whole and result != int(result)):
        raise _refused(spec, value, f"is not allowed; expected {allowed}", allowed)
    return int(result) if whole else result


def from_pulsar(values: Mapping[str, object], *, ranged: bool = True) -> dict[str, object]:
    """Convert broker settings, by Pulsar's key, to parameters, by Bundlekeel's name; other keys are ignored.

    Unknown strategy classes are ignored, too; the caller reports them. `ranged`: False allows any number, as Pulsar's
    own classes do.
    """
    parameters: dict[str, object] = {}
    for spec in PARAMETERS:
        items = [(key, values[key]) for key in spec.pulsar_keys if values.get(key) is not None]
        if not items:
            continue
        if spec.choices:
            mapped = STRATEGY_CLASSES.get(str(items[0][1]).rpartition(".")[2])
            if mapped in spec.choices:
                parameters[spec.name] = mapped
            continue
        read = [_read(spec, key, raw, ranged=ranged) for key, raw in items]
        # Brokers report an old key in addition to the current key. As in Pulsar, the old key counts only if the current
        # key has its default.
        changed = [value for value in read if value != defaults()[spec.name]]
        parameters[spec.name] = changed[0] if len(read) > 1 and changed else read[0]
    return parameters


def _read(spec: ParameterSpec, key: str, raw: object, *, ranged: bool) -> object:
    if spec.factor == 1.0:
        return coerce(spec.name, raw, ranged=ranged)
    try:
        theirs = number(raw, field=key, lowest=-_LARGEST, highest=_LARGEST)
    except CodecError:
        allowed = f"a number of {spec.unit.partition('(Pulsar: ')[2].rstrip(')') or spec.unit}"
        raise ConfigError(f"{key}: {raw!r} is not a number", field=key, value=raw, allowed=allowed) from None
    return coerce(spec.name, theirs * spec.factor, ranged=ranged)
