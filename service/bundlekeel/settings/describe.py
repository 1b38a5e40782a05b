"""Describes the settings in effect: each key with value, origin, Pulsar's keys, unit and purpose. Warns of mistakes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from bundlekeel.model.capacity import match_capacity
from bundlekeel.model.parameters import BY_NAME, PARAMETERS, defaults
from bundlekeel.model.text_format import format_duration
from bundlekeel.model.uris import LOOPBACK, folder_named
from bundlekeel.planning.guard.scope import is_glob
from bundlekeel.settings.feature_checks import feature_checks, feature_folders
from bundlekeel.settings.load import LoadedSettings
from bundlekeel.settings.model import FAILSAFE_AFTER, FAILSAFE_CYCLES, Settings
from bundlekeel.settings.parameters import TOP_LEVEL, MergedParameters, to_parameters
from bundlekeel.settings.problems import spelled
from bundlekeel.settings.schema import by_key, parameter_allowed, plain, pulsar_keys, rows

Json = dict[str, Any]


def describe(loaded: LoadedSettings, parameters: MergedParameters | None = None) -> list[Json]:
    """Return one row per key: {key, value, origin, pulsar_keys, unit, why}, with secrets hidden.

    `parameters`: parameters in effect in a sidecar; None: the parameters of the settings."""
    merged = parameters or to_parameters(loaded.settings, origins=loaded.origins)
    effective, sources = asdict(merged.values), merged.origins
    described: list[Json] = []
    for row in rows():
        if row.key == "parameters":
            described += [
                _row(f"parameters.{spec.name}", effective[spec.name], sources[spec.name], spec.unit, spec.why)
                for spec in PARAMETERS
                if spec.name not in TOP_LEVEL and (merged.values.compat != "none" or spec.instead not in BY_NAME)
            ]
        elif row.key in TOP_LEVEL:
            described.append(_row(row.key, effective[row.key], sources[row.key], "name", row.why))
        elif row.key == "capacity":
            described += _capacity(loaded)
        elif not row.key.startswith("capacity."):
            unit = "duration" if row.duration else ""
            described.append(_row(row.key, loaded.value(row.key), loaded.origins[row.key], unit, row.why))
    return described


# Settings that may differ between sidecars. All others determine the behaviour of the leader, so they should be equal.
_OF_A_HOST: Final[dict[str, Any]] = {
    **dict.fromkeys(("metadata_store", "configuration_store", "member_id", "store", "admin", "prometheus"), True),
    **dict.fromkeys(("api", "journal", "traces", "notify", "logging"), True),
}


def shared_digest(settings: Settings) -> str:
    """Return a digest (12 characters) of the settings that should be equal in all sidecars, because any can lead."""
    shared = settings.model_dump(mode="json", exclude=_OF_A_HOST)
    for key in feature_folders():
        section, _, name = key.partition(".")
        del shared[section][name]
    return hashlib.sha256(json.dumps(shared, sort_keys=True).encode()).hexdigest()[:12]


def differences(before: LoadedSettings, after: LoadedSettings) -> dict[str, tuple[object, object]]:
    """Return the keys with different values, and both values. Secrets are hidden."""
    old, new = ({row["key"]: row["value"] for row in describe(loaded)} for loaded in (before, after))
    changes = {}
    for key in {**old, **new}:
        hidden = not key.startswith(("parameters.", "capacity.")) and before.value(key) != after.value(key)
        if hidden or old.get(key) != new.get(key):
            changes[key] = old.get(key), new.get(key)
    return changes


def as_tree(described: Iterable[Json]) -> Json:
    """Return the values of rows of `describe`, nested as in a settings file. `capacity` patterns may contain dots."""
    tree: Json = {}
    for row in described:
        parts = row["key"].split(".")
        if parts[0] == "capacity":
            parts = ["capacity", ".".join(parts[1:-1]), parts[-1]]
        node = tree
        for part in parts[:-1]:
            node = node.setdefault(part, {})
        node[parts[-1]] = row["value"]
    return tree


def parameter_rows() -> list[Json]:
    """Return one row per parameter: {name, pulsar_keys, default, unit, allowed, used_by, why}."""
    default = asdict(to_parameters(LoadedSettings.defaults().settings).values)
    return [
        {
            "name": name,
            "pulsar_keys": list(spec.pulsar_keys),
            "default": plain(default[name]),
            "unit": spec.unit,
            "allowed": parameter_allowed(spec),
            "used_by": spec.used_by,
            "why": spec.why,
        }
        for name, spec in BY_NAME.items()
    ]


def _capacity(loaded: LoadedSettings) -> list[Json]:
    described = []
    for pattern, item in loaded.settings.capacity.items():
        for name in sorted(item.model_fields_set):
            key = f"capacity.{pattern}.{name}"
            why = by_key()[f"capacity.<pattern>.{name}"].why
            described.append(_row(key, getattr(item, name), loaded.origins.get(key, "settings"), "", why))
    return described


def _row(key: str, value: object, origin: str, unit: str, why: str) -> Json:
    return {
        "key": key,
        "value": plain(value, by_key().get(key)),
        "origin": origin,
        "pulsar_keys": list(pulsar_keys(key)),
        "unit": unit,
        "why": why,
    }


_AVG = "avg"
_EXISTS = "a folder that exists"
# In Gbit/s.
_FASTEST_NIC = 800
# Pulsar's namespaceBundleUnloadingTimeoutMs, in seconds.
_UNLOADING = 60


def warnings_of(settings: Settings) -> list[str]:
    """Return one sentence per valid but probably unintended setting, for `config check`."""
    rules = (
        *(_of_cluster, _of_strategy, _without_effect, _of_percent, _of_units, _contradictions),
        *(_of_other_settings, _of_features, _of_brokers, _of_windows, _of_security),
    )
    return [text for rule in rules for text in rule(settings)]


def folder_warnings(loaded: LoadedSettings) -> list[str]:
    """Return one sentence per missing directory to which the sidecar or a feature writes files."""
    written = [
        (key, str(file), place.parent, "the sidecar")
        for key in ("journal.path", "api.socket", *feature_folders())
        if (place := loaded.located(file := loaded.value(key))) is not None and not place.parent.is_dir()
    ]
    stores = [
        (key, uri, place, maker)
        for checks in feature_checks()
        for key, maker in checks.stores.items()
        if (uri := loaded.value(key)) and (folder := folder_named(uri))
        if (place := loaded.located(Path(folder))) and not place.is_dir()
    ]
    return [
        _warning(key, value, f"the folder {folder} does not exist, so {maker} makes it if its user may", _EXISTS)
        for key, value, folder, maker in (*written, *stores)
    ]


def _of_cluster(settings: Settings) -> list[str]:
    # Warn about the default even if a source sets it, because the example file contains every key.
    if settings.cluster != Settings.model_fields["cluster"].default:
        return []
    return [_warning("cluster", settings.cluster, "the default", "the brokers' clusterName")]


def _warning(key: str, value: object, what: str, better: str) -> str:
    """Return a warning as text: key, value, what is wrong, and a better value."""
    return f"{key}{'' if value is None else f' = {spelled(value)}'}: {what} (better: {better})"


def _of_security(settings: Settings) -> list[str]:
    api, warnings = settings.api, []
    if api.auth.on and not api.tls.on and api.host not in LOOPBACK:
        warnings.append(
            _warning(
                "api.tls.cert_file", None, f"not set, so tokens are sent unencrypted on {api.host}", "a certificate"
            )
        )
    if not api.auth.on and api.host not in LOOPBACK:
        what = "not set, so everybody who reaches the port may read all and ask for dry runs"
        warnings.append(_warning("api.auth.tokens_file", None, what, "a file of tokens; `bundlekeel token new`"))
    if settings.reviewed and not api.auth.on:
        what = "without api.auth people name themselves, so one person can propose and approve"
        warnings.append(_warning("review", settings.review, what, "a file of tokens in api.auth.tokens_file"))
    if not api.auth.on and api.socket is None:
        what = "null, and api.auth is not set, so no route changes anything: nobody can pause, set the mode or drain"
        warnings.append(_warning("api.socket", None, what, "a path, or a file of tokens in api.auth.tokens_file"))
    if api.auth.on and api.auth.peer_token_file is None:
        what = "not set, so a follower cannot pass a dry run on to the leader and makes it from its own snapshot"
        warnings.append(_warning("api.auth.peer_token_file", None, what, "a file with a token of role operator"))
    for name in ("jwt_issuer", "jwt_audience"):
        if (value := getattr(api.auth, name)) and api.auth.jwt_key_file is None:
            what = "has no effect without api.auth.jwt_key_file"
            warnings.append(_warning(f"api.auth.{name}", value, what, "public keys (PEM) in api.auth.jwt_key_file"))
    if api.auth.peer_token_file is not None and not api.auth.on:
        what = "this sidecar does not require a token: neither api.auth.tokens_file nor api.auth.jwt_key_file is set"
        better = "a file of tokens that all sidecars share"
        warnings.append(_warning("api.auth.peer_token_file", str(api.auth.peer_token_file), what, better))
    for section, name in (("admin", "brokers"), ("store", "ZooKeeper")):
        if not getattr(settings, section).tls_verify:
            warnings.append(
                _warning(f"{section}.tls_verify", False, f"an attacker in between can pose as {name}", "true")
            )
    if settings.store.sasl_username is not None and not settings.store.tls:
        what = "with store.sasl_username alone data is sent unencrypted and unsigned"
        warnings.append(_warning("store.tls", False, what, "true"))
    return warnings


def _of_strategy(settings: Settings) -> list[str]:
    compat = settings.compat
    if compat == "none" and settings.placement == _AVG and settings.strategy != _AVG:
        what = f"with strategy {settings.strategy} it places by the hash of bundles' names, whatever the load"
        return [_warning("placement", _AVG, what, "least_resource_usage")]
    params = to_parameters(settings).values
    if compat == "5.0" and params.strategy == _AVG != params.placement:
        return [_warning("placement", params.placement, "AvgShedder's own targets have no effect", _AVG)]
    if settings.strategy == "deviation" and compat != "none":
        return [_warning("compat", compat, "Pulsar ships no class for strategy deviation: it changes nothing", "none")]
    return []


def _of_percent(settings: Settings) -> list[str]:
    """Return warnings for percentages that look like ratios. Parameters with a small default may be below 1 %."""
    usual: Json = defaults()
    return [
        _warning(
            f"parameters.{name}", value, f"is in {unit}, so less than 1 %: {BY_NAME[name].why}", f"{value * 100:g}"
        )
        for name, value in settings.parameters.items()
        if (unit := BY_NAME[name].unit).startswith("percent") and 0 < value < min(1, usual[name] / 10)
    ]


def _of_units(settings: Settings) -> list[str]:
    """Return warnings for values that probably have another unit, or are shorter than normal operations."""
    params, store, read = to_parameters(settings).values, settings.store, settings.admin.read_timeout
    warnings = [
        _warning(f"capacity.{pattern}.nic_gbps", value, "is in Gbit/s, each way", f"{value / 1000:g}")
        for pattern, limits in settings.capacity.items()
        if (value := limits.nic_gbps) is not None and value > _FASTEST_NIC
    ]
    if (value := params.transfer_target_std) > 1:
        what = "is a ratio, scores are 0 to 1"
        warnings.append(_warning("parameters.transfer_target_std", value, what, f"{value / 100:g}"))
    if settings.compat != "none" and params.history_weight == 1 and params.strategy in ("threshold", "transfer"):
        what = "the smoothed score never changes"
        warnings.append(_warning("parameters.history_weight", params.history_weight, what, "0.9"))
    if read < _UNLOADING:
        what = f"an unload takes up to {_UNLOADING:g}s at the brokers, slower ones count as unknown"
        warnings.append(_warning("admin.read_timeout", format_duration(read), what, "90s"))
    if store.call_timeout > store.session_timeout:
        session = format_duration(store.session_timeout)
        what = f"longer than store.session_timeout ({session}), after which leadership is lost"
        warnings.append(_warning("store.call_timeout", format_duration(store.call_timeout), what, "3s"))
    return warnings


def _of_other_settings(settings: Settings) -> list[str]:
    """Return warnings for values that the failsafe job rejects, or that have no effect because of another value."""
    warnings, interval, source = [], settings.cycle.interval, settings.counters.source
    if FAILSAFE_CYCLES * interval > FAILSAFE_AFTER:
        after, longest = format_duration(FAILSAFE_AFTER), format_duration(FAILSAFE_AFTER / FAILSAFE_CYCLES)
        what = (
            f"{FAILSAFE_CYCLES} cycles take longer than {after}, so the failsafe refuses its default, `--after {after}`"
        )
        warnings.append(
            _warning("cycle.interval", format_duration(interval), what, f"at most {longest}, or a longer --after")
        )
    if settings.prometheus.url is not None and source != "prometheus":
        what = f"has no effect while counters.source is {source}"
        warnings.append(_warning("prometheus.url", settings.prometheus.url, what, "counters.source: prometheus"))
    return warnings


def _of_features(settings: Settings) -> list[str]:
    return [
        _warning(item.key, item.value, item.what, item.better)
        for checks in feature_checks()
        for item in checks.warnings(settings)
    ]


def _contradictions(settings: Settings) -> list[str]:
    """Return warnings for allowed values that together prevent all moves, or give one value no effect."""
    params, counters, warnings = to_parameters(settings).values, settings.counters, []
    if settings.mode == "act":
        for name in ("max_moves_per_cycle", "max_moves_per_hour"):
            if getattr(params, name) == 0:
                what = "so mode act evens nothing out"
                warnings.append(_warning(f"parameters.{name}", 0, what, "above 0, or mode recommend"))
    if not any(getattr(params, f"{name}_weight") for name in ("cpu", "direct_memory", "bandwidth_in", "bandwidth_out")):
        what = "with the other three weights at 0, too, each score of the modular load manager is 0: nothing is uneven"
        warnings.append(_warning("parameters.cpu_weight", 0, what, "above 0"))
    if params.blast_stop_ratio < params.blast_radius_ratio:
        radius = f"{params.blast_radius_ratio:g}"
        what = f"below blast_radius_ratio ({radius}), which then has no effect"
        warnings.append(_warning("parameters.blast_stop_ratio", params.blast_stop_ratio, what, f"at least {radius}"))
    if counters.quick_interval > counters.interval:
        what, better = "longer than counters.interval, which is for times without change", "shorter"
        warnings.append(_warning("counters.quick_interval", format_duration(counters.quick_interval), what, better))
    for name in sorted(set(params.included_namespaces) & set(params.excluded_namespaces)):
        what = f"{name} is excluded, too, and stays where it is"
        warnings.append(_warning("parameters.included_namespaces", None, what, "in one of the two"))
    return warnings


def _of_brokers(settings: Settings) -> list[str]:
    """Return warnings for broker names that no broker can have. They are not errors, because they are harmless."""
    excluded = settings.parameters.get("excluded_brokers", ())
    names = [("parameters.excluded_brokers", name) for name in excluded] + [
        ("capacity", key) for key in settings.capacity
    ]
    return [
        _warning(key, name, "matches no broker: their ids are host:port", f"{name}:8080, or {name}:* for every port")
        for key, name in names
        if ":" not in name and not is_glob(name) and not name.startswith("/")
    ] + [
        _warning(
            f"capacity.{pattern}",
            None,
            f"has no effect: {winner!r} counts for every broker that it matches",
            f"omit it, or narrow {winner!r}",
        )
        for pattern in settings.capacity
        if (winner := _hidden_by(settings, pattern))
    ]


def _hidden_by(settings: Settings, pattern: str) -> str:
    """Return the pattern of `capacity` that always applies instead of `pattern`; "": no such pattern is known.

    A regular expression or `*` is hidden only by a pattern that applies to all brokers."""
    if "[" in pattern and not pattern.startswith("/"):
        return ""
    text = "*:*" if pattern.startswith("/") or pattern == "*" else pattern
    place = list(settings.capacity).index(pattern)
    rivals = [
        item
        for at, item in enumerate(settings.capacity_overrides)
        if at <= place or pattern == "*" or not item.pattern.startswith("/")
    ]
    winners = set()
    for filled in ("", "\0", "\0" * 40):  # only a wildcard matches these
        override = match_capacity(rivals, text.replace("*", filled).replace("?", "\0"))
        winners.add(override.pattern if override else "")
    return winners.pop() if len(winners) == 1 and not winners & {pattern, "*", ""} else ""


def _of_windows(settings: Settings) -> list[str]:
    """Return warnings for maintenance windows that leave overloaded brokers without relief, or prevent all moves."""
    always = {window.allow for window in settings.windows if window.cron.split() == ["*"] * 5}
    if "nothing" in always:
        what = "one of allow: nothing is always open, so nothing moves by itself"
        return [_warning("windows", None, what, "mode recommend, or a window that ends")]
    if always or all(window.allow == "nothing" for window in settings.windows):
        return []
    what = "outside of them nothing relieves an overloaded broker, once the shedding is taken over"
    return [_warning("windows", None, what, 'add {cron: "* * * * *", minutes: 1, allow: overload}')]


def _without_effect(settings: Settings) -> list[str]:
    """Return warnings for parameters that have no effect without `compat` (exact copies of Pulsar's strategies)."""
    if settings.compat != "none":
        return []
    unused = [(spec, value) for name, value in settings.parameters.items() if (spec := BY_NAME[name]).instead]
    return [
        _warning(f"parameters.{spec.name}", value, "has no effect with compat none", spec.instead)
        for spec, value in unused
    ]
