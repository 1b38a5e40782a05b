"""The `parameters` section: converts Bundlekeel's or Pulsar's names to Bundlekeel's names and units.

A parameter may be set only once, under either name. Its value comes from the settings; if these do not contain it, from
the brokers' settings (`adopt_broker_settings`); otherwise it is Bundlekeel's default.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple

from bundlekeel.model.errors import ConfigError
from bundlekeel.model.parameter_table import RELEASES, STRATEGY_CLASSES, ParameterSpec
from bundlekeel.model.parameters import (
    BY_NAME,
    BY_PULSAR_KEY,
    PARAMETERS,
    Parameters,
    coerce,
    compat_defaults,
    defaults,
    from_pulsar,
    half_of_avg,
)
from bundlekeel.model.text_format import parse_duration, suggest
from bundlekeel.planning.guard.scope import BROKER, NAMESPACE, TENANT, check_pattern, is_glob

if TYPE_CHECKING:
    from bundlekeel.settings.model import Settings

REPORTED_BUNDLES: Final = "loadBalancerMaxNumberOfBundlesInBundleLoadReport"
# Brokers' settings for measuring and reporting loads, with the defaults of `ServiceConfiguration` (same in 4.0, 4.2 and
# 5.0). A plan uses the brokers' values even with `adopt_broker_settings: false`, because these are facts about the
# cluster.
STOCK: Final[Mapping[str, int]] = {
    "statsUpdateFrequencyInSecs": 60,
    "loadBalancerHostUsageCheckIntervalMinutes": 1,
    "loadBalancerReportUpdateThresholdPercentage": 10,
    "loadBalancerReportUpdateMinIntervalMillis": 5000,
    "loadBalancerReportUpdateMaxIntervalMinutes": 15,
    REPORTED_BUNDLES: 10,
}

# Parameters that contain names: the pattern's kind, whether globs are allowed, and the allowed values.
_NAMES: Final[Mapping[str, tuple[str, bool, str]]] = {
    "excluded_namespaces": (
        NAMESPACE,
        False,
        "tenant/namespace, whole names without * and ?; for all of a tenant: excluded_tenants",
    ),
    "included_namespaces": (NAMESPACE, True, "tenant/namespace, with * and ? where wanted; all of a tenant: tenant/*"),
    "excluded_tenants": (TENANT, True, "tenants, with * and ? where wanted; for one namespace: excluded_namespaces"),
    "excluded_brokers": (BROKER, True, "broker ids (host:port), with * and ? where wanted"),
}

# Keys with capital letters are Pulsar's; Bundlekeel's own keys have none.
_BROKERS_SPELLING = re.compile(r"[a-z]+[A-Z]\w*")

OR_DURATION: Final = ", or a duration like 30m"

_THEIRS: Final = "; a setting of the brokers, not of Bundlekeel"
# Keys that are similar to another one, but have another meaning.
_REMEDIES: Final = {
    "loadBalancerSheddingEnabled": f"{_THEIRS}: `bundlekeel takeover` turns it off, `handback` restores it",
    "loadBalancerSheddingIntervalMinutes": f"{_THEIRS}, whose own is `cycle.interval`",
    "loadBalancerAutoBundleSplitEnabled": f"{_THEIRS}: `bundlekeel takeover --split off` turns it off; that of "
    "Bundlekeel is `split_enabled`",
    "cool_down_minutes": "; cool_down_seconds takes 30m",
    "avg_high_ratio": "; it was removed: move_price decides when bundles move",
}

# Top-level keys of the settings, which `parameters` accepts as well.
TOP_LEVEL = ("strategy", "placement", "compat")


@dataclass(frozen=True, slots=True)
class GivenParameter:
    """One parameter: the `key` under which a source sets it, and its value in Bundlekeel's unit."""

    key: str
    value: object


class MergedParameters(NamedTuple):
    """The parameters of plans, and the origin of each parameter by name."""

    values: Parameters
    origins: Mapping[str, str]


def find_specs(key: str) -> tuple[ParameterSpec, ...]:
    """Return the parameters for a name or a Pulsar key. Raises ConfigError with suggestions if `key` is unknown."""
    if key in BY_NAME:
        return (BY_NAME[key],)
    if key not in BY_PULSAR_KEY:
        raise ConfigError(
            f"unknown parameter{remedy(key, [*BY_NAME, *BY_PULSAR_KEY])}",
            field=f"parameters.{key}",
            allowed="a name of `bundlekeel config parameters`, or Pulsar's key for it",
        )
    return BY_PULSAR_KEY[key]


def canonical(raw: Mapping[str, object]) -> tuple[dict[str, GivenParameter], list[ConfigError]]:
    """Return the parameters by Bundlekeel's name, and all problems, such as a parameter that is set twice."""
    parameters: dict[str, GivenParameter] = {}
    problems: list[ConfigError] = []
    for key, value in raw.items():
        try:
            for spec in find_specs(key):
                if spec.name in parameters:
                    other = parameters[spec.name].key
                    raise ConfigError(
                        f"the same parameter as parameters.{other}; give it once",
                        field=f"parameters.{key}",
                        value=value,
                    )
                ours = _in_our_unit(spec, key, value)
                _check_names(spec, key, ours)
                parameters[spec.name] = GivenParameter(key, ours)
        except ConfigError as error:
            text = str(error) if error.field.startswith("parameters.") else "not allowed"
            more = OR_DURATION if error.allowed and key in BY_NAME and takes_durations(BY_NAME[key]) else ""
            problems.append(ConfigError(text, field=f"parameters.{key}", value=value, allowed=error.allowed + more))
    return parameters, problems


def check_compat(release: str, names: Iterable[str]) -> None:
    """Import the package `compat`, exact copies of Pulsar's strategies, if `release` is a Pulsar release.

    Raises ConfigError if the package is missing, or if `release` is "none" and `names` contains a parameter that only
    Pulsar's strategies use.
    """
    if release != "none":
        try:
            # Import by name, because features import the settings. All uses of `compat` are checked here.
            import_module("bundlekeel.compat.in_plan")
        except ModuleNotFoundError as error:
            if not str(error.name).startswith("bundlekeel.compat"):
                raise
            text = "the package bundlekeel.compat, which contains Pulsar's own classes, is not installed"
            raise ConfigError(text, field="compat", value=release, allowed="none") from None
        return
    for name in names:
        instead = BY_NAME[name].instead
        if instead in BY_NAME:
            raise ConfigError(
                f"only Pulsar's own classes (compat) use it; set {instead}",
                field=f"parameters.{name}",
                allowed=f"{instead}, or compat {' or '.join(RELEASES[1:])}",
            )


def to_parameters(
    settings: Settings, brokers: Mapping[str, str] | None = None, *, origins: Mapping[str, str] | None = None
) -> MergedParameters:
    """Return the parameters of `plan()` with their origins: `default`, `broker` or the origin of the setting.

    `brokers`: the brokers' settings by Pulsar's keys. With `adopt_broker_settings: false`, only those in `STOCK` are
    used. If a value of the brokers is not usable, Bundlekeel's default applies, and the origin explains that.
    `origins`: as in `LoadedSettings`.
    """
    values_by_name: dict[str, object] = {}
    sources = dict.fromkeys(defaults(), "default")
    whole = settings.adopt_broker_settings
    adopted = {key: value for key, value in (brokers or {}).items() if whole or key in STOCK}
    for spec in PARAMETERS:
        _adopt(spec, adopted, values_by_name, sources)
    explicit = {f"parameters.{name}": (name, value) for name, value in settings.parameters.items()}
    explicit |= {name: (name, getattr(settings, name)) for name in TOP_LEVEL if name in settings.model_fields_set}
    for key, (name, value) in explicit.items():
        values_by_name[name] = coerce(name, value)
        sources[name] = (origins or {}).get(key, "settings")
    values = _with_defaults(settings.compat, values_by_name)
    if half_of_avg(settings.compat, values["strategy"], values["placement"]):
        # The combination in the settings was checked, so at least one of the two values comes from the brokers.
        name, other = ("placement", "strategy") if sources["placement"] == "broker" else ("strategy", "placement")
        sources[name] = (
            f"default (the brokers' {name} {values_by_name.pop(name)} cannot be used with {other} {values[other]})"
        )
        values = _with_defaults(settings.compat, values_by_name)
    return MergedParameters(Parameters(**values), sources)  # type: ignore[arg-type]


def _with_defaults(release: str, values: Mapping[str, object]) -> dict[str, object]:
    return defaults() | compat_defaults(release, values.get("strategy")) | dict(values)


def remedy(key: str, names: Iterable[str]) -> str:
    """Return a hint for an unknown key: the nearest key, or that the key belongs in broker.conf."""
    if key in _REMEDIES:
        return _REMEDIES[key]
    near = suggest(key, names)
    if _BROKERS_SPELLING.fullmatch(key) is None:
        return near
    if near:
        return f"{near} Other keys of broker.conf are not read here"
    return f"{_THEIRS}: it belongs in broker.conf, which is not read here"


def _adopt(spec: ParameterSpec, adopted: Mapping[str, str], values: dict[str, object], sources: dict[str, str]) -> None:
    theirs = {key: adopted[key] for key in spec.pulsar_keys if adopted.get(key) is not None}
    if not theirs:
        return
    try:
        read = from_pulsar(theirs)
    except ConfigError:
        read = {}
    if spec.name in read:
        values[spec.name] = read[spec.name]
        sources[spec.name] = "broker"
    else:
        key, value = next(iter(theirs.items()))
        sources[spec.name] = f"default (the brokers' {key}={value:.40} cannot be used)"


def _check_names(spec: ParameterSpec, key: str, names: object) -> None:
    """Raises ConfigError for a name that no cluster can contain: it would have no effect."""
    if spec.name not in _NAMES or not isinstance(names, tuple):
        return
    kind, globs, allowed = _NAMES[spec.name]
    for name in names:
        pattern = f"{kind}:{name}"
        try:
            fits = check_pattern(pattern) == pattern and (globs or not is_glob(name))
        except ConfigError:
            fits = False
        if not fits:
            raise ConfigError(f"{name!r} matches nothing", field=f"parameters.{key}", allowed=allowed)


def _in_our_unit(spec: ParameterSpec, key: str, value: object) -> object:
    if key == spec.name:
        return coerce(spec.name, _seconds(spec, value))
    if spec.choices:
        ours = STRATEGY_CLASSES.get(str(value).rpartition(".")[2])
        if ours not in spec.choices:
            names = [name for name, mapped in STRATEGY_CLASSES.items() if mapped in spec.choices]
            text = "this release does not support that class"
            raise ConfigError(text, field=f"parameters.{key}", allowed=", ".join(names))
        return ours
    if value is None:
        return coerce(spec.name, value)  # raises an error, because an empty value is invalid
    return from_pulsar({key: value})[spec.name]


def takes_durations(spec: ParameterSpec) -> bool:
    """Return whether Bundlekeel's unit is seconds: then the settings can contain a duration such as `30m`, too."""
    return spec.unit.startswith("seconds")


def _seconds(spec: ParameterSpec, value: object) -> object:
    if not takes_durations(spec) or not isinstance(value, str):
        return value
    try:
        return parse_duration(value)
    except ValueError:
        return value
