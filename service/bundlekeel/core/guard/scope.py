"""Scope: what is excluded from moves, by tenant, namespace, bundle or broker, permanently or until a time. Pure.

Patterns of people carry their kind in front: `t:acme`, `n:acme/orders`, `b:acme/orders/0x00000000_0x40000000`,
`r:broker-1:8080`. The part after it may be a glob (`*`, `?`, `[...]`), matched with its case.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import translate

import numpy as np

from bundlekeel.core.guard.state import GuardState
from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.errors import ConfigError
from bundlekeel.core.model.names import as_pulsar_writes, parse_bundle
from bundlekeel.core.model.parameters import Parameters
from bundlekeel.core.model.snapshot import Bools, BundleTable, Snapshot

TENANT, NAMESPACE, BUNDLE, BROKER = "t", "n", "b", "r"
KINDS = {TENANT: "tenant", NAMESPACE: "namespace", BUNDLE: "bundle", BROKER: "broker"}
# The kinds of scope a pause may have, and how the patterns of these begin.
PAUSE_SCOPES = {KINDS[kind]: kind for kind in (TENANT, NAMESPACE, BROKER)}
_GLOB = re.compile(r"[*?\[]")


# What Pulsar lets tenants and namespaces be named; ids of brokers keep to it too, but for an IPv6 address's brackets.
_NAME = re.compile(r"[-=:.\w]+", re.ASCII)
_CLASS = re.compile(r"\[[!^]?[-=:.\w]+\]", re.ASCII)


def check_pattern(pattern: str) -> str:
    """The pattern, if it is one, without blanks around its parts, a bundle as Pulsar writes it. ConfigError names what
    is allowed."""
    kind, colon, text = (part.strip() for part in pattern.partition(":"))
    text = as_pulsar_writes(text) if kind == BUNDLE else text
    if not colon or kind not in KINDS or not _well_formed(kind, text):
        allowed = "t:TENANT, n:TENANT/NAMESPACE, b:BUNDLE or r:BROKER, with * and ? where wanted"
        raise ConfigError(f"{pattern!r} is not a pattern of a scope", field="pattern", value=pattern, allowed=allowed)
    return f"{kind}:{text}"


def check_scope(text: str) -> tuple[str, str]:
    """The scope of a pause without blanks around its parts, and the pattern that is the same. ConfigError when it is
    none. A broker's name is not looked at: which are registered is known elsewhere."""
    kind, _, name = (part.strip() for part in text.partition(":"))
    pattern = f"{PAUSE_SCOPES.get(kind)}:{name}"
    if kind == KINDS[BROKER] and name and not is_glob(name):
        return f"{kind}:{name}", pattern
    with suppress(ConfigError):
        if not is_glob(name):
            return f"{kind}:{name}", check_pattern(pattern)
    allowed = "tenant:NAME, namespace:TENANT/NAME or broker:ID"
    raise ConfigError(f"{text!r} is not a valid pause scope", field="scope", value=text, allowed=allowed)


def is_glob(text: str) -> bool:
    """Whether it may match more than one name."""
    return _GLOB.search(text) is not None


def _well_formed(kind: str, text: str) -> bool:
    """Whether names of this kind can look so. A star may stand for slashes too."""
    plain = _CLASS.sub("x", text)
    parts = plain.replace("*", "x").replace("?", "x").split("/")
    if not all(map(_NAME.fullmatch, parts)):
        return False
    most = {TENANT: 1, BROKER: 1, NAMESPACE: 2, BUNDLE: 4}[kind]
    if "*" in plain or kind in (TENANT, BROKER):
        return len(parts) <= most
    if kind == NAMESPACE:
        return len(parts) == most
    if is_glob(text):
        return len(parts) in (3, most)
    try:
        parse_bundle(text)
    except ValueError:
        return False
    return True


def matches(pattern: str, names: Sequence[str]) -> Bools:
    """Which of these names a pattern without its kind matches; a broken glob matches only itself."""
    if not is_glob(pattern):
        return np.fromiter((name == pattern for name in names), dtype=bool, count=len(names))
    found = re.compile(translate(pattern)).match
    return np.fromiter((found(name) is not None for name in names), dtype=bool, count=len(names))


def _any(patterns: Iterable[str], names: Sequence[str]) -> Bools:
    found = np.zeros(len(names), dtype=bool)
    for pattern in patterns:
        found |= matches(pattern, names)
    return found


_NOTHING_ELSE = Parameters(excluded_tenants=(), excluded_namespaces=(), excluded_brokers=(), included_namespaces=())


def in_force(excluded: Mapping[str, int], now_ms: int, kind: str) -> Iterator[str]:
    """The patterns of one kind that have not expired (0: never), without their kind."""
    for pattern, expiry in excluded.items():
        given, _, text = pattern.partition(":")
        if given == kind and (expiry == 0 or expiry > now_ms):
            yield text


def pattern_for(patterns: Mapping[str, int], now_ms: int, bundle: str, brokers: Collection[str] = ()) -> str:
    """The first pattern in force (pattern -> expiry in ms, 0: never) that this bundle, its namespace or tenant, or one
    of these brokers matches; "" for none. As `excluded_bundles`, of one bundle."""
    namespace = bundle.rpartition("/")[0]
    names = {TENANT: [namespace.partition("/")[0]], NAMESPACE: [namespace], BUNDLE: [bundle], BROKER: list(brokers)}
    for kind, concerned in names.items():
        for text in in_force(patterns, now_ms, kind):
            if matches(text, concerned).any():
                return f"{kind}:{text}"
    return ""


def excluded_bundles(snapshot: Snapshot, guard: GuardState, params: Parameters, now_ms: int) -> Bools:
    """Bundles (rows) that stay where they are, because settings or people exclude them, or do not include them."""
    bundles = snapshot.bundles
    spaces = _excluded_namespaces(bundles.namespaces, guard, params, now_ms)
    found: Bools = spaces[bundles.namespace]
    brokers = _excluded_brokers(snapshot.brokers.ids, guard, params, now_ms)
    found |= brokers[bundles.owner]
    return found | _named(bundles, set(in_force(guard.excluded, now_ms, BUNDLE)))


def not_taken_over(bundles: BundleTable, guard: GuardState) -> Bools:
    """Bundles (rows) of namespaces that a partial takeover leaves to the brokers."""
    if not guard.taken_over:
        return np.zeros(len(bundles), dtype=bool)
    outside = np.array([name not in guard.taken_over for name in bundles.namespaces], dtype=bool)
    found: Bools = outside[bundles.namespace]
    return found


def _excluded_namespaces(names: Sequence[str], guard: GuardState, params: Parameters, now_ms: int) -> Bools:
    found = np.array([name in params.excluded_namespaces for name in names], dtype=bool)
    tenants = (*params.excluded_tenants, *in_force(guard.excluded, now_ms, TENANT))
    if tenants:
        found |= _any(tenants, [name.partition("/")[0] for name in names])
    found |= _any(in_force(guard.excluded, now_ms, NAMESPACE), names)
    if params.included_namespaces:
        found |= ~_any(params.included_namespaces, names)
    return found


def _excluded_brokers(ids: Sequence[str], guard: GuardState, params: Parameters, now_ms: int) -> Bools:
    return _any((*params.excluded_brokers, *in_force(guard.excluded, now_ms, BROKER)), ids)


def _named(bundles: BundleTable, patterns: Collection[str]) -> Bools:
    globs = {pattern for pattern in patterns if is_glob(pattern)}
    found = np.zeros(len(bundles), dtype=bool)
    found[bundles.rows_named(set(patterns) - globs)] = True
    return found | _any(globs, bundles.names) if globs else found


def matching_bundles(snapshot: Snapshot, pattern: str) -> Bools:
    """Bundles (rows) that a pattern of people matches."""
    return excluded_bundles(snapshot, GuardState(excluded={pattern: 0}), _NOTHING_ELSE, 0)


def closed_brokers(ids: Sequence[str], guard: GuardState, params: Parameters, now_ms: int) -> dict[int, Code]:
    """Brokers (rows) that take no bundle, and why: excluded, cordoned, or being drained."""
    excluded = np.flatnonzero(_excluded_brokers(ids, guard, params, now_ms)).tolist()
    shut = guard.cordoned | guard.draining
    found = dict.fromkeys(excluded, Code.EXCLUDED)
    return found | {row: Code.CORDONED for row, broker in enumerate(ids) if broker in shut}
