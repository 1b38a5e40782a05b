"""Strict parser of the input lines of `decide`; each fault names its field."""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType
from pydantic import ValidationError

from bundlekeel.compat.shedders import COMPAT_SHEDDERS
from bundlekeel.model.capacity import CapacityOverride
from bundlekeel.model.errors import CodecError, ConfigError
from bundlekeel.model.parameter_table import RELEASES
from bundlekeel.model.parameters import BY_NAME, BY_PULSAR_KEY, check_pair, choices, compat_defaults, from_pulsar
from bundlekeel.model.policies import Policies
from bundlekeel.pulsar.formats.policies import decode_isolation_policies
from bundlekeel.settings.model import CapacitySettings
from bundlekeel.settings.problems import from_pydantic

_UNKNOWN = re.compile(r"unknown field `(.*?)`", re.DOTALL)
_TYPES_GIVEN = re.compile(r"Expected `([^`]*)`, got `([^`]*)`")
_KINDS = {
    "object": "an object",
    "array": "a list",
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
}
_PATH = re.compile(r" - at (?:`key` in )?`\$\.?(.*?)`$", re.DOTALL)
_LIMIT = re.compile(r"Expected `(int|str)` (>=|<=|of length >=) (-?\d+)")
_LIMITS = {">=": "{} or more", "<=": "at most {}", "of length >=": "of at least {} character"}
# No value of a cluster is larger, and products of such values are still finite.
_LARGEST = 1e15

_OF_A_TURN = ("bundles", "recent", "now", "capacity", "policies", "top_bundles", "missing", "recent_brokers")

_Name = Annotated[str, msgspec.Meta(min_length=1)]


class LineFault(Exception):
    """An input line that cannot be used: the reason and the field."""

    def __init__(self, reason: str, field: str = "") -> None:
        super().__init__(_writable(reason))
        self.field = _writable(field)


class InputLine(msgspec.Struct, forbid_unknown_fields=True):
    """One line of input: a reset (empty memory), a turn (data for a decision) or a bench (repeats the last turn)."""

    reset: msgspec.Raw | UnsetType = UNSET
    brokers: dict[_Name, msgspec.Raw] | UnsetType = UNSET
    bundles: dict[_Name, msgspec.Raw] | None = None
    recent: list[str] | None = None
    top_bundles: dict[_Name, msgspec.Raw] | UnsetType = UNSET
    missing: list[_Name] | UnsetType = UNSET
    recent_brokers: dict[_Name, Annotated[int, msgspec.Meta(ge=0, le=2**53)]] | UnsetType = UNSET
    now: Annotated[int, msgspec.Meta(ge=0, le=2**53)] | None = None
    capacity: msgspec.Raw | UnsetType = UNSET
    policies: Any = None
    bench: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] | UnsetType = UNSET


class _Reset(msgspec.Struct, forbid_unknown_fields=True):
    strategy: str | None = None
    placement: str | None = None
    compat: str | None = None
    config: dict[str, Any] = {}
    seed: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetChoice:
    """The settings that a reset line selects, in Bundlekeel's names and units. `places`: whether the line names a
    placement."""

    parameters: dict[str, Any]
    seed: int
    places: bool = False


_LINE = msgspec.json.Decoder(InputLine)
_RESET = msgspec.json.Decoder(_Reset)
_ANY = msgspec.json.Decoder()


def parse_line(text: bytes) -> InputLine:
    """Parse one input line. Raises LineFault if it is not JSON, or mixes fields of a reset, a turn and a bench."""
    line: InputLine = _decode(_LINE, text, "")
    kinds = [name for name in ("reset", "brokers", "bench") if getattr(line, name) is not UNSET]
    if len(kinds) != 1:
        reason = f"one line cannot hold {' and '.join(kinds)}" if kinds else "expected reset, brokers or bench"
        raise LineFault(reason, kinds[1] if kinds else "")
    if kinds != ["brokers"]:
        extra = next((name for name in _OF_A_TURN if getattr(line, name)), "")
        if extra:
            raise LineFault(f"belongs to a turn, not to a {kinds[0]}", extra)
    for field in ("brokers", "bundles", "top_bundles"):
        for name, raw in (getattr(line, field) or {}).items():
            _check_record(f"{field}.{name}", name, raw, "[" if field == "top_bundles" else "{")
    return line


def _check_record(field: str, name: str, raw: msgspec.Raw, begins: str) -> None:
    if bytes(memoryview(raw)[:1]) != begins.encode():
        raise LineFault("expected a list" if begins == "[" else "expected the record of a znode, an object", field)
    if _writable(name) != name:
        raise LineFault("a name with half a character (lone surrogate)", field)


def parse_reset(raw: msgspec.Raw) -> ResetChoice:
    """Parse a reset line. `strategy` and `placement` have precedence over the classes in `config`."""
    reset: _Reset = _decode(_RESET, raw, "reset")
    release = reset.compat or "none"
    if release not in RELEASES:
        raise LineFault(f"{release!r} is not one of {', '.join(RELEASES)}", "reset.compat")
    values = parse_config(reset.config, ranged=release == "none") | {"compat": release}
    for field, value in (("strategy", reset.strategy), ("placement", reset.placement)):
        if value is None:
            continue
        if value not in choices(field):
            raise LineFault(f"{value!r} is not one of {', '.join(choices(field))}", f"reset.{field}")
        values[field] = value
    for field, key in _CLASS_KEYS.items():
        named = reset.config.get(key)
        if named is not None and getattr(reset, field) is None and not from_pulsar({key: named}):
            raise LineFault(f"{named!r} is no class we know; name one with reset.{field}", f"reset.config.{key}")
    values = compat_defaults(release, values.get("strategy")) | values
    if release == "none" and _acts_on_first_call(values):
        values["move_price"] = 0.0
    if release != "none" and values["strategy"] not in (*COMPAT_SHEDDERS, "transfer"):
        raise LineFault(f"Pulsar ships no class for {values['strategy']!r}; only compat none has it", "reset.strategy")
    try:
        check_pair(release, values.get("strategy"), values.get("placement"))
    except ConfigError as error:
        named = "placement" if reset.placement is not None else f"config.{_CLASS_KEYS['placement']}"
        raise LineFault(f"{error}; expected {error.allowed}", f"reset.{named}") from None
    places = reset.placement is not None or _CLASS_KEYS["placement"] in reset.config
    return ResetChoice(parameters=values, seed=reset.seed, places=places)


def _acts_on_first_call(values: Mapping[str, Any]) -> bool:
    """Return whether Pulsar's strategy can act in its first call, without a condition that must be met repeatedly."""
    strategy, counts = (
        values.get("strategy", "avg"),
        (values.get("avg_hit_count_low"), values.get("avg_hit_count_high")),
    )
    waits = strategy == "avg" or (strategy == "transfer" and values.get("transfer_hit_count") != 0)
    return not waits or 1 in counts


_CLASS_KEYS = {"strategy": "loadBalancerLoadSheddingStrategy", "placement": "loadBalancerLoadPlacementStrategy"}


def parse_config(config: dict[str, Any], *, ranged: bool = True) -> dict[str, Any]:
    """Translate Pulsar's keys and units to Bundlekeel's parameters.

    Raises LineFault for an unknown key, but not for a known key that no strategy reads. `ranged` False: any number, as
    Pulsar's own classes allow.
    """
    for key, value in config.items():
        field = f"reset.config.{key}"
        if key not in BY_PULSAR_KEY and key not in UNREAD_KEYS:
            near = (
                list(BY_NAME[key].pulsar_keys)
                if key in BY_NAME
                else difflib.get_close_matches(key, [*BY_PULSAR_KEY, *UNREAD_KEYS], n=1)
            )
            raise LineFault(f"unknown key {key!r}{f'; did you mean {near[0]}?' if near else ''}", field)
        if not _sane(value, _LARGEST if ranged else math.inf):
            raise LineFault(f"expected a number up to {_LARGEST:g}, true or false, a text, or a list of texts", field)
        try:
            from_pulsar({key: value}, ranged=ranged)
        except ConfigError as error:
            reason = str(error).removeprefix(f"{error.field}: ")
            more = "" if error.allowed in reason else f"; expected {error.allowed}"
            raise LineFault(f"{reason}{more}", field) from None
    # Convert all keys together, so that the result does not depend on the order of two spellings of a key.
    return from_pulsar(config, ranged=ranged)


def _sane(value: object, largest: float) -> bool:
    if isinstance(value, list):
        return all(isinstance(item, str) for item in value)
    if value is None or isinstance(value, bool):
        return True
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return True
    return isinstance(value, int | float) and math.isfinite(value) and abs(value) <= largest


def parse_capacity(raw: msgspec.Raw | UnsetType) -> tuple[CapacityOverride, ...]:
    """Parse `capacity` as in the settings file: `{"<broker id, glob or /regex/>": {"nic_gbps": 10, …}}`."""
    patterns = None if raw is UNSET else _decode(_ANY, raw, "capacity")
    if patterns is None:
        return ()
    if not isinstance(patterns, dict):
        raise LineFault("expected an object of broker patterns, as `capacity` of the settings file", "capacity")
    return tuple(_override(pattern, limits) for pattern, limits in patterns.items())


def _override(pattern: str, limits: object) -> CapacityOverride:
    field = f"capacity.{pattern}"
    if len(pattern) > 1 and pattern.startswith("/") and pattern.endswith("/"):
        try:
            re.compile(pattern[1:-1])
        except (re.error, RecursionError, OverflowError) as error:
            raise LineFault(f"not a regular expression: {error}", field) from None
    try:
        override = CapacitySettings.model_validate(limits).override(pattern)
    except ValidationError as error:
        first = from_pydantic(error, {}, below=("capacity", pattern))[0]
        reason = str(first).removeprefix(first.field).removeprefix(" = ").removeprefix(": ")
        raise LineFault(reason, first.field) from None
    for name in ("nic_gbps", "cores", "msg_rate", "throughput", "direct_memory_mb"):
        value = getattr(override, name)
        if value is not None and value > _LARGEST:
            raise LineFault(f"{value:g} is not allowed; expected a number up to {_LARGEST:g}", f"{field}.{name}")
    return override


class _Policies(msgspec.Struct, forbid_unknown_fields=True):
    isolation: msgspec.Raw | UnsetType = UNSET
    anti_affinity: dict[str, str] = {}
    failure_domains: dict[str, list[str]] = {}


_POLICIES = msgspec.json.Decoder(_Policies)


def parse_policies(value: object) -> Policies:
    """Parse `policies` of an input line, which restrict the destinations of bundles for Bundlekeel's own strategies.

    {"isolation": {<policy>: <NamespaceIsolationData, as in its znode>, ...},
     "anti_affinity": {<tenant/namespace>: <group>, ...},
     "failure_domains": {<domain>: [<broker id>, ...], ...}}

    Failure domains apply if they are present. With `compat`, `policies` has no effect. Raises LineFault if a policy is
    malformed.
    """
    if value is None:
        return Policies()
    try:
        fields: _Policies = _decode(_POLICIES, json.dumps(value).encode(), "policies")
        isolation = () if fields.isolation is UNSET else decode_isolation_policies(bytes(fields.isolation))
    except CodecError as error:
        raise LineFault(
            str(error), f"policies.isolation.{error.field}" if error.field else "policies.isolation"
        ) from None
    return Policies(
        isolation=isolation,
        anti_affinity=fields.anti_affinity,
        failure_domains={name: tuple(brokers) for name, brokers in fields.failure_domains.items()},
        failure_domains_enabled=bool(fields.failure_domains),
    )


def _decode(decoder: Any, text: bytes | msgspec.Raw, prefix: str) -> Any:
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        reason = str(error)
        place = _PATH.search(reason)
        unknown = _UNKNOWN.search(reason)
        parts = (prefix, place[1] if place else "", unknown[1] if unknown else "")
        field = ".".join(filter(None, parts))
        raise LineFault(_in_words(reason[: place.start()] if place else reason, text, place), field) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise LineFault(f"not JSON: {str(error).removeprefix('JSON is malformed: ')}", prefix) from None


def _in_words(reason: str, text: bytes | msgspec.Raw, place: re.Match[str] | None) -> str:
    """Return an error message of msgspec with JSON's names of types, and with the value if a number is out of range."""
    if limit := _LIMIT.fullmatch(reason):
        kind, mark, bound = limit.groups()
        expected = f"expected {_KINDS[kind]}{', ' if kind == 'int' else ' '}{_LIMITS[mark].format(bound)}"
        document: Any = None
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # only to show the number
            document = _ANY.decode(text)
        number = document.get(place[1]) if place and isinstance(document, dict) else None
        return f"{number} is not allowed; {expected}" if isinstance(number, int) else expected
    if unknown := _UNKNOWN.search(reason):
        return f"unknown field {unknown[1]!r}"
    if types := _TYPES_GIVEN.fullmatch(reason):
        expected, got = (" or ".join(_KINDS.get(kind, kind) for kind in text.split(" | ")) for text in types.groups())
        return f"expected {expected}, not {got}"
    return reason


def _writable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


# Pulsar's keys that no strategy reads: a broker.conf may be passed unchanged.
_UNREAD = """
    loadBalancerEnabled loadBalancerPlacementStrategy loadBalancerReportUpdateThresholdPercentage
    loadBalancerReportUpdateMinIntervalMillis loadBalancerReportUpdateMaxIntervalMinutes
    loadBalancerHostUsageCheckIntervalMinutes loadBalancerSheddingEnabled loadBalancerSheddingIntervalMinutes
    loadBalancerDistributeBundlesEvenlyEnabled loadBalancerSheddingGracePeriodMinutes
    loadBalancerBrokerUnderloadedThresholdPercentage loadBalancerBrokerMaxTopics
    flowOrQpsDifferenceThresholdPercentage loadBalancerMemoryResourceWeight
    loadBalancerResourceQuotaUpdateIntervalMinutes loadBalancerBrokerComfortLoadLevelPercentage
    loadBalancerAutoBundleSplitEnabled loadBalancerAutoUnloadSplitBundlesEnabled
    loadManagerClassName topicBundleAssignmentStrategy
    supportedNamespaceBundleSplitAlgorithms defaultNamespaceBundleSplitAlgorithm
    loadBalancerOverrideBrokerNicSpeedGbps loadBalancerOverrideBrokerNics namespaceBundleUnloadingTimeoutMs
    loadBalancerBrokerLoadTargetStd loadBalancerSheddingConditionHitCountThreshold
    loadBalancerTransferEnabled loadBalancerMaxNumberOfBrokerSheddingPerCycle loadBalanceSheddingDelayInSeconds
    loadBalancerBrokerLoadDataTTLInSeconds loadBalancerMaxNumberOfBundlesInBundleLoadReport
    loadBalancerSplitIntervalMinutes
    loadBalancerServiceUnitStateTombstoneDelayTimeInSeconds loadBalancerSheddingBundlesWithPoliciesEnabled
    loadBalancerSheddingExcludedNamespaces loadBalancerInFlightServiceUnitStateWaitingTimeInMillis
    loadBalancerServiceUnitStateMonitorIntervalInSeconds loadBalancerMultiPhaseBundleUnload
    loadManagerServiceUnitStateTableViewClassName loadBalancerServiceUnitTableViewSyncer
    loadBalancerServiceUnitStateMaxConcurrentOverrides loadManagerMigrationEnabled
    statsUpdateFrequencyInSecs statsUpdateInitialDelayInSecs failureDomainsEnabled preferLaterVersions
    exposeBundlesMetricsInPrometheus defaultNumberOfNamespaceBundles
"""
UNREAD_KEYS = frozenset(_UNREAD.split())


def unload_hash(unload: dict[str, list[str]], to: dict[str, str]) -> str:
    """Return the plan hash of a decision by Pulsar's own shedder, independent of the order of its unloads."""
    text = json.dumps([{broker: sorted(bundles) for broker, bundles in unload.items()}, to], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
