"""Which bundles to split: Pulsar's four limits and our own rule for a bundle that no placement can balance.

The limits are those of `BundleSplitterTask` and `DefaultNamespaceBundleSplitStrategyImpl`, all strictly above. Pulsar's
modular load manager reads long-term averages there, which need hundreds of samples to notice anything, keeps no hit
count and no budget; the extensible one reads figures of the moment, counts hits and keeps a budget. With `compat` the
rules are those of the load manager that the brokers run; our own (`hot`, the override of hits, quiet hours) are off.
The corrected form reads short-term averages and counts hits in fresh reports.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from bundlekeel.core.guard.scope import excluded_bundles, not_taken_over
from bundlekeel.core.guard.state import GuardState
from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.load import (
    CONSUMERS,
    PRODUCERS,
    RATE_IN,
    RATE_OUT,
    THROUGHPUT_IN,
    THROUGHPUT_OUT,
    TOPICS,
    Floats,
    Ints,
)
from bundlekeel.core.model.names import is_v1, parse_bundle
from bundlekeel.core.model.parameters import Parameters
from bundlekeel.core.model.plan import Refusal, Split
from bundlekeel.core.model.snapshot import BundleTable, Snapshot
from bundlekeel.core.model.text_format import numbered
from bundlekeel.core.planning.draft import Draft
from bundlekeel.core.planning.ledger import Ledger
from bundlekeel.core.planning.memory import Hits, StrategyMemory

HOT = "hot"
LIMIT_RULES = ("topics", "sessions", "msg_rate", "bandwidth")
# A broker nearer to the mean than this share of it is balanced as far as its bundles are concerned.
HOT_MARGIN = 0.1
# Readings of counters come every few seconds, and a split cannot be undone: a hit is at least so long after the last.
MEASURED_HIT_MS = 60_000
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitInput:
    """What the rules read.

    `brokers_split`: the brokers split by the four limits themselves; those are theirs then. `namespace_bundles`: the
    number of bundles by namespace, loaded or not, as the boundaries in the metadata store define them. The loaded
    bundles count where a namespace is missing or has fewer.
    """

    snapshot: Snapshot
    draft: Draft
    params: Parameters
    memory: StrategyMemory
    ledger: Ledger = field(default_factory=Ledger)
    guard: GuardState = field(default_factory=GuardState)
    brokers_split: bool = False
    namespace_bundles: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitChoice:
    """The bundles to split, those above a limit that are not split and why, and how often each was seen so."""

    splits: tuple[Split, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    hits: Mapping[str, Hits] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Candidate:
    row: int
    rule: str
    value: float
    limit: float

    @property
    def excess(self) -> float:
        """How many times the limit."""
        return self.value / self.limit


def choose_splits(given: SplitInput) -> SplitChoice:
    """Bundles above a limit, those furthest above it first, as far as the budgets allow."""
    if not given.params.split_enabled:
        return SplitChoice()
    candidates = _candidates(given)
    if not candidates:
        return SplitChoice()
    obstacles = _obstacles(given)
    left_alone = _left_alone(given, candidates)
    chosen: list[Split] = []
    refusals: list[Refusal] = []
    hits: dict[str, Hits] = {}
    taken: Counter[int] = Counter()
    counts, most = _namespace_counts(given.snapshot.bundles, given.namespace_bundles), given.params.split_max_bundles
    for candidate in candidates:
        name, broker = _names(given, candidate.row)
        seen = _counted(given, candidate.row)
        namespace = int(given.snapshot.bundles.namespace[candidate.row])
        refusal = left_alone.get(candidate.row) or _refused(given, candidate, obstacles, seen.low)
        if refusal is None or refusal[0] not in (Code.SINGLE_TOPIC, Code.NARROW_RANGE, Code.V1_NAMESPACE):
            # What cannot be divided is not counted either: there may be many, and memory is stored.
            hits[name] = seen
        if refusal is None and counts[namespace] + taken[namespace] >= most:
            refusal = Code.NAMESPACE_MAXIMUM, f"{counts[namespace] + taken[namespace]} bundles, maximum {most}"
        if refusal is None and not _at_first_sight(given) and len(chosen) >= given.params.split_max_per_cycle:
            refusal = Code.BUDGET_OF_SPLITS, f"limit {given.params.split_max_per_cycle}"
        if refusal is not None:
            refusals.append(Refusal(code=refusal[0], bundle=name, broker=broker, detail=refusal[1]))
            continue
        taken[namespace] += 1
        chosen.append(
            Split(
                bundle=name,
                broker=broker,
                rule=candidate.rule,
                value=candidate.value,
                limit=candidate.limit,
                hits=seen.low,
            )
        )
    return SplitChoice(splits=tuple(chosen), refusals=tuple(refusals), hits=hits)


def _namespace_counts(bundles: BundleTable, stored: Mapping[str, int]) -> list[int]:
    """Return the number of bundles of each namespace (row), as `NamespaceService.getBundleCount` counts them."""
    loaded = np.bincount(bundles.namespace, minlength=len(bundles.namespaces)).tolist()
    return [max(count, stored.get(name, 0)) for name, count in zip(bundles.namespaces, loaded, strict=True)]


def _left_alone(given: SplitInput, candidates: Sequence[_Candidate]) -> dict[int, tuple[Code, str]]:
    """Those of these bundles (rows) that settings, people or a partial takeover leave alone, and which of them."""
    excluded = excluded_bundles(given.snapshot, given.guard, given.params, given.snapshot.wall_ms)
    outside = not_taken_over(given.snapshot.bundles, given.guard)
    rows = [item.row for item in candidates if excluded[item.row]]
    return {row: (Code.NOT_TAKEN_OVER if outside[row] else Code.EXCLUDED, "") for row in rows}


def largest_bundle(bundles: BundleTable, namespace: str) -> tuple[str, str] | None:
    """The bundle of a namespace with most load, and how much that is, in words; None when no broker reports one.

    Load: the mean of its shares of the namespace's messages and bytes, in and out, short-term averages. Where nothing
    has traffic, the number of topics, as Pulsar's `LARGEST` has it (`getBundleWithHighestTopics`).
    """
    named = bundles.namespaces.index(namespace) if namespace in bundles.namespaces else -1
    rows = np.flatnonzero(bundles.namespace == named)
    if not len(rows):
        return None
    traffic, topics = bundles.short[rows], bundles.counts[rows, TOPICS]
    rates = traffic[:, RATE_IN] + traffic[:, RATE_OUT]
    sizes = traffic[:, THROUGHPUT_IN] + traffic[:, THROUGHPUT_OUT]
    load = (rates / (rates.sum() or 1.0) + sizes / (sizes.sum() or 1.0)) / 2
    best = int(np.lexsort((-topics, -load))[0])
    of_load = f"{load[best]:.0%} of the messages and bytes of {namespace}"
    why = of_load if load[best] > 0 else f"{topics[best]} topics, nothing of {namespace} has traffic"
    return bundles.names[rows[best]], why


def in_quiet_hours(windows: tuple[str, ...], wall_ms: int) -> bool:
    """Whether this moment (UTC) lies in one of the windows `from-to`, which may pass midnight; without any it does."""
    hour = wall_ms // 3_600_000 % 24
    for window in windows:
        start, _, end = window.partition("-")
        first, last = int(start), int(end)
        if first <= hour < last or (first >= last and (hour >= first or hour < last)):
            return True
    return not windows


def _native(given: SplitInput) -> bool:
    """Whether a load manager's own form is asked for."""
    return given.params.compat != "none"


def _at_first_sight(given: SplitInput) -> bool:
    """Whether that is the modular one's, without hits and budget."""
    return _native(given) and given.snapshot.mode != "extensible"


def _names(given: SplitInput, row: int) -> tuple[str, str]:
    bundles = given.snapshot.bundles
    return bundles.names[row], given.snapshot.brokers.ids[int(bundles.owner[row])]


# --- candidates ----------------------------------------------------------------------------------------------


def _candidates(given: SplitInput) -> list[_Candidate]:
    """Every bundle above a limit, system bundles left out; the first limit of Pulsar's order is the reason told."""
    found = _above_limits(given)
    if given.brokers_split:
        # Their business; but one that is hot as well is still ours.
        found = {**found, **_hot(given)}
    elif not _native(given):
        found = {**_hot(given), **found}
    names = given.snapshot.bundles.names
    return sorted(found.values(), key=lambda item: (-item.excess, names[item.row]))


def _above_limits(given: SplitInput) -> dict[int, _Candidate]:
    bundles, params = given.snapshot.bundles, given.params
    traffic = bundles.long if _at_first_sight(given) else bundles.short
    figures: tuple[tuple[Floats, float], ...] = (
        (bundles.counts[:, TOPICS].astype(np.float64), params.split_max_topics),
        ((bundles.counts[:, CONSUMERS] + bundles.counts[:, PRODUCERS]).astype(np.float64), params.split_max_sessions),
        (traffic[:, RATE_IN] + traffic[:, RATE_OUT], params.split_max_msg_rate),
        ((traffic[:, THROUGHPUT_IN] + traffic[:, THROUGHPUT_OUT]) / _MIB, params.split_max_bandwidth_mb),
    )
    found: dict[int, _Candidate] = {}
    for rule, (values, limit) in zip(LIMIT_RULES, figures, strict=True):
        if limit <= 0:
            continue
        for row in np.flatnonzero((values > limit) & ~bundles.system).tolist():
            found.setdefault(row, _Candidate(row, rule, float(values[row]), float(limit)))
    return found


def _hot(given: SplitInput) -> dict[int, _Candidate]:
    """Bundles that keep their broker above the mean, and would do so on any other broker or alone.

    `value` is what the bundle makes of the broker it would burden least, as a share of the mean score.
    """
    draft, limit = given.draft, given.params.split_hot_share
    # What a closed broker carries leaves it, or stays as a person wanted: neither is a reason to split.
    mean, counted = draft.mean(), draft.counted()
    above = counted & (draft.score > mean * (1 + HOT_MARGIN))
    if limit <= 0 or not above.any():
        return {}
    bundles = given.snapshot.bundles
    # No bundle uses more of its broker than its largest share of any traffic: few are left to look at closely.
    here = np.flatnonzero(above[bundles.owner] & ~bundles.system)
    owner, share = bundles.owner[here], np.zeros(len(here))
    for column in bundles.short[here].T:
        total = np.bincount(owner, weights=column, minlength=len(above))[owner]
        np.maximum(share, np.divide(column, total, out=np.zeros(len(here)), where=column > 0), out=share)
    rows = here[share * draft.score[owner] > limit * mean]
    # One broker of each kind: a bundle alone burdens brokers of equal limits alike.
    limits, rows_open = draft.limit.tolist(), np.flatnonzero(counted).tolist()
    kinds = np.array(list({tuple(limits[row]): row for row in rows_open}.values()))
    coldest, found = float(draft.score[counted].min()), {}
    for row in rows.tolist():
        value = _least_burden(draft, row, kinds) / mean
        if value > limit and (value > 1 + HOT_MARGIN or not _placement_helps(given, row, mean, coldest)):
            found[row] = _Candidate(row, HOT, value, limit)
    return found


def _least_burden(draft: Draft, row: int, brokers: Ints) -> float:
    """The lowest score that this bundle alone gives to any of these; brokers without a usable limit tell nothing."""
    owner = int(draft.snapshot.bundles.owner[row])
    pressure = draft.pressure(owner)[row - int(draft.snapshot.bundles.starts[owner])]
    alone = draft.scores(np.broadcast_to(pressure, (len(brokers), len(pressure))), brokers)
    return float(alone[alone > 0].min(initial=math.inf)) if (alone > 0).any() else 0.0


def _placement_helps(given: SplitInput, row: int, mean: float, coldest: float) -> bool:
    """Whether some bundle of its broker, itself included, could go to one with this score to the good of both."""
    draft, bundles = given.draft, given.snapshot.bundles
    owner = int(bundles.owner[row])
    rows = bundles.rows_of(owner)
    weights = draft.scores(draft.pressure(owner), owner)
    least = given.params.min_unload_share * mean
    useful = (weights >= least) & (weights < 2 * (draft.score[owner] - mean))
    useful &= coldest + weights < draft.score[owner] - least
    return bool((useful & ~bundles.system[rows]).any())


# --- reasons against -----------------------------------------------------------------------------------------


def _counted(given: SplitInput, row: int) -> Hits:
    """The hits of a bundle above a limit: one more when its broker reported since, or kept silent for an interval."""
    name, _ = _names(given, row)
    known, now = given.memory.split_hits.get(name), given.snapshot.wall_ms
    owner = int(given.snapshot.bundles.owner[row])
    reported = int(given.snapshot.brokers.last_update[owner])
    # Hits further apart than twice the longest silence of a broker are not in a row.
    if known is None or now - known.at_ms > 2000 * given.params.report_max_interval_seconds:
        return Hits(side="split", low=1, reported=reported, at_ms=now)
    if given.snapshot.interval_ms(owner) and now - known.at_ms < MEASURED_HIT_MS:
        return known
    # One interval's silence says "unchanged", as in `avg`: a quiet broker would take an hour for four hits.
    interval = max(given.params.statistics_interval_seconds, given.params.host_usage_interval_seconds)
    if reported <= known.reported and now - known.at_ms < int(1000 * interval):
        return known
    return Hits(side="split", low=known.low + 1, reported=reported, at_ms=now)


def _obstacles(given: SplitInput) -> dict[str, tuple[Code, str]]:
    """Bundles that must be left as they are now, and why."""
    now, guard = given.snapshot.wall_ms, given.guard
    until = now - int(1000 * given.params.cool_down_seconds)
    under_way = given.ledger.under_way()
    return {
        **{name: _why(failed.code) for name, failed in guard.split_failed.items() if failed.at_ms > until},
        **{name: (Code.PINNED, "") for name, expiry in guard.pinned.items() if not expiry or expiry > now},
        **dict.fromkeys(given.ledger.not_yet_reported_bundles(given.params, now), (Code.UNSETTLED, "")),
        **dict.fromkeys(under_way, (Code.IN_TRANSIT, "")),
        **dict.fromkeys(guard.frozen, (Code.FROZEN_INTENT, "")),
    }


def _why(code: str) -> tuple[Code, str]:
    """What cannot be parted is told again as such; any other failure as one."""
    known = {Code.SINGLE_TOPIC.value, Code.SAME_HASH.value, Code.DOMINANT_TOPIC.value}
    return (Code(code), "seen at the last attempt") if code in known else (Code.SPLIT_FAILED, code)


def _refused(
    given: SplitInput, candidate: _Candidate, obstacles: Mapping[str, tuple[Code, str]], hits: int
) -> tuple[Code, str] | None:
    """Why this one is not split now, with a detail; None when only budgets may stand in its way."""
    bundles, params = given.snapshot.bundles, given.params
    name = bundles.names[candidate.row]
    topics = int(bundles.counts[candidate.row, TOPICS])
    if is_v1(bundles.namespaces[int(bundles.namespace[candidate.row])]):
        return Code.V1_NAMESPACE, ""
    if topics < 2:
        excess = f"{candidate.excess:.3g} times the limit"
        return Code.SINGLE_TOPIC, f"{candidate.rule}: {excess}, {numbered(topics, 'topic')}"
    if not _divisible(name):
        return Code.NARROW_RANGE, ""
    if name in obstacles:
        return obstacles[name]
    if given.brokers_split and candidate.rule != HOT:
        return Code.BROKERS_SPLIT_THEMSELVES, candidate.rule
    far_above = not _native(given) and candidate.excess > params.split_override_factor
    # Far above a limit two hits do, as many as a shedder may want: moved first, it would overload the next broker.
    enough = min(1, params.split_hit_count) if far_above else params.split_hit_count
    if not _at_first_sight(given) and hits <= enough:
        return Code.SPLIT_HIT_COUNT, f"{hits} of {enough + 1}"
    if not (_native(given) or far_above or in_quiet_hours(params.split_quiet_hours, given.snapshot.wall_ms)):
        return Code.QUIET_HOURS, ", ".join(params.split_quiet_hours)
    return None


def _divisible(bundle: str) -> bool:
    """`canSplitBundle`: the range is wider than one. What is not a bundle name cannot be divided."""
    try:
        name = parse_bundle(bundle)
    except ValueError:
        return False
    return name.upper - name.lower > 1
