"""Scope: exclusion of tenants, namespaces, bundles or brokers from moves, permanently or until a time. Pure.

A pattern of an operator begins with the kind of the excluded things: `t:acme` (tenant), `n:acme/orders` (namespace),
`b:acme/orders/0x00000000_0x40000000` (bundle), `r:broker-1:8080` (broker). The part after the kind can be a
case-sensitive glob (`*`, `?`, `[...]`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import translate

import numpy as np

from bundlekeel.model.codes import Code
from bundlekeel.model.errors import ConfigError
from bundlekeel.model.names import as_pulsar_writes, parse_bundle
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.snapshot import Bools, BundleTable, Snapshot
from bundlekeel.planning.guard.state import GuardState

TENANT, NAMESPACE, BUNDLE, BROKER = "t", "n", "b", "r"
KINDS = {TENANT: "tenant", NAMESPACE: "namespace", BUNDLE: "bundle", BROKER: "broker"}
# Kinds of scope that a pause can have, and the kind with which the equivalent pattern begins.
PAUSE_SCOPES = {KINDS[kind]: kind for kind in (TENANT, NAMESPACE, BROKER)}
_GLOB = re.compile(r"[*?\[]")


# Characters that Pulsar allows in tenants and namespaces. Broker ids use them too, except the brackets of IPv6
# addresses.
_NAME = re.compile(r"[-=:.\w]+", re.ASCII)
_CLASS = re.compile(r"\[[!^]?[-=:.\w]+\]", re.ASCII)


def check_pattern(pattern: str) -> str:
    """Return the pattern of an exclusion without whitespace around its parts, with a bundle in Pulsar's spelling.

    Raises ConfigError if the string is not a pattern such as `n:acme/orders`.
    """
    kind, colon, text = (part.strip() for part in pattern.partition(":"))
    text = as_pulsar_writes(text) if kind == BUNDLE else text
    if not colon or kind not in KINDS or not _well_formed(kind, text):
        allowed = "t:TENANT, n:TENANT/NAMESPACE, b:BUNDLE or r:BROKER, with * and ? where wanted"
        raise ConfigError(f"{pattern!r} is not a pattern of a scope", field="pattern", value=pattern, allowed=allowed)
    return f"{kind}:{text}"


def check_scope(text: str) -> tuple[str, str]:
    """Return the scope of a pause, such as `namespace:acme/orders`, and the same scope as a pattern (`n:acme/orders`).

    Whitespace around the parts is removed. A broker's name is not checked. Raises ConfigError if the text is not a
    scope.
    """
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
    """Return whether the pattern can match more than one name."""
    return _GLOB.search(text) is not None


def _well_formed(kind: str, text: str) -> bool:
    """Return whether the text can match names of this kind (`t`, `n`, `b` or `r`). A star can match slashes too."""
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
    """Return a mask of the names that match a pattern without a prefix such as `n:`.

    An invalid glob matches only itself.
    """
    if not is_glob(pattern):
        return np.fromiter((name == pattern for name in names), dtype=bool, count=len(names))
    fullmatch = re.compile(translate(pattern)).match
    return np.fromiter((fullmatch(name) is not None for name in names), dtype=bool, count=len(names))


def match_any(patterns: Iterable[str], names: Sequence[str]) -> Bools:
    """Return a mask of the names that match at least one of these patterns without a prefix such as `n:`."""
    rows = set(patterns)
    globs = {pattern for pattern in rows if is_glob(pattern)}
    matched = np.fromiter((name in rows for name in names), dtype=bool, count=len(names))
    for pattern in globs:
        matched |= matches(pattern, names)
    return matched


_NOTHING_ELSE = Parameters(excluded_tenants=(), excluded_namespaces=(), excluded_brokers=(), included_namespaces=())


def in_force(excluded: Mapping[str, int], now_ms: int, kind: str) -> Iterator[str]:
    """Yield the patterns of one kind (`t`, `n`, `b` or `r`) that have not expired, without the prefix of the kind.

    `excluded`: expiry in Unix ms by pattern; 0: never.
    """
    for pattern, expiry in excluded.items():
        own_kind, _, text = pattern.partition(":")
        if own_kind == kind and (expiry == 0 or expiry > now_ms):
            yield text


def pattern_for(patterns: Mapping[str, int], now_ms: int, bundle: str, brokers: Collection[str] = ()) -> str:
    """Return the first active pattern that matches this bundle, its namespace or tenant, or one of these brokers.

    `patterns`: expiry in ms by pattern; 0: never. Returns "" if no pattern matches. `excluded_bundles` does the same
    for all bundles of a snapshot.
    """
    namespace = bundle.rpartition("/")[0]
    names = {TENANT: [namespace.partition("/")[0]], NAMESPACE: [namespace], BUNDLE: [bundle], BROKER: list(brokers)}
    for kind, concerned in names.items():
        for text in in_force(patterns, now_ms, kind):
            if matches(text, concerned).any():
                return f"{kind}:{text}"
    return ""


def excluded_bundles(snapshot: Snapshot, guard: GuardState, params: Parameters, now_ms: int) -> Bools:
    """Return a mask of the bundles that must stay because settings or operators exclude or do not include them."""
    bundles = snapshot.bundles
    spaces = _excluded_namespaces(bundles.namespaces, guard, params, now_ms)
    excluded: Bools = spaces[bundles.namespace]
    brokers = _excluded_brokers(snapshot.brokers.ids, guard, params, now_ms)
    excluded |= brokers[bundles.owner]
    return excluded | _named(bundles, set(in_force(guard.excluded, now_ms, BUNDLE)))


def not_taken_over(bundles: BundleTable, guard: GuardState) -> Bools:
    """Return a mask of the bundles that Bundlekeel does not balance, because it took over only other namespaces."""
    if not guard.taken_over:
        return np.zeros(len(bundles), dtype=bool)
    outside = np.array([name not in guard.taken_over for name in bundles.namespaces], dtype=bool)
    mask: Bools = outside[bundles.namespace]
    return mask


def _excluded_namespaces(names: Sequence[str], guard: GuardState, params: Parameters, now_ms: int) -> Bools:
    exact = frozenset(params.excluded_namespaces)
    excluded = np.array([name in exact for name in names], dtype=bool)
    tenants = (*params.excluded_tenants, *in_force(guard.excluded, now_ms, TENANT))
    if tenants:
        excluded |= match_any(tenants, [name.partition("/")[0] for name in names])
    excluded |= match_any(in_force(guard.excluded, now_ms, NAMESPACE), names)
    if params.included_namespaces:
        excluded |= ~match_any(params.included_namespaces, names)
    return excluded


def _excluded_brokers(ids: Sequence[str], guard: GuardState, params: Parameters, now_ms: int) -> Bools:
    return match_any((*params.excluded_brokers, *in_force(guard.excluded, now_ms, BROKER)), ids)


def _named(bundles: BundleTable, patterns: Collection[str]) -> Bools:
    globs = {pattern for pattern in patterns if is_glob(pattern)}
    matched = np.zeros(len(bundles), dtype=bool)
    matched[bundles.rows_named(set(patterns) - globs)] = True
    return matched | match_any(globs, bundles.names) if globs else matched


def matching_bundles(snapshot: Snapshot, pattern: str) -> Bools:
    """Return a mask of the bundles that an operator's pattern matches."""
    return excluded_bundles(snapshot, GuardState(excluded={pattern: 0}), _NOTHING_ELSE, 0)


def closed_brokers(ids: Sequence[str], guard: GuardState, params: Parameters, now_ms: int) -> dict[int, Code]:
    """Return the code of each broker (row) that accepts no bundle: excluded, cordoned or draining."""
    excluded = np.flatnonzero(_excluded_brokers(ids, guard, params, now_ms)).tolist()
    shut = guard.cordoned | guard.draining
    closed = dict.fromkeys(excluded, Code.EXCLUDED)
    return closed | {row: Code.CORDONED for row, broker in enumerate(ids) if broker in shut}
