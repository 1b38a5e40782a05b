"""Choose the bundles to split: those above one of Pulsar's four limits, and `hot` ones, too large for any placement.

The limits are from `BundleSplitterTask` and `DefaultNamespaceBundleSplitStrategyImpl`; a value must be above its limit.
A hit is a reading above a limit, and several consecutive hits lead to a split. Pulsar's modular load manager compares
long-term averages, which need hundreds of samples to react, and has neither a hit count nor a budget. The extensible
load manager compares current values, counts hits and has a budget. With `compat`, the rules of the brokers' load
manager apply, without Bundlekeel's own rules (`hot`, fewer hits far above a limit, quiet hours). Without `compat`,
short-term averages are compared, and only new reports count as hits.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from bundlekeel.model.codes import Code
from bundlekeel.model.load import (
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
from bundlekeel.model.names import is_v1, parse_bundle
from bundlekeel.model.plan import Refusal, Split
from bundlekeel.model.snapshot import BundleTable
from bundlekeel.model.text_format import numbered
from bundlekeel.planning.draft import Draft
from bundlekeel.planning.guard.eligibility import segment_codes
from bundlekeel.planning.guard.scope import excluded_bundles, not_taken_over
from bundlekeel.planning.ledger import Ledger
from bundlekeel.planning.memory import Hits
from bundlekeel.planning.situation import Situation

HOT = "hot"
LIMIT_RULES = ("topics", "sessions", "msg_rate", "bandwidth")
# A broker counts as balanced if its score is above the mean by at most this share of the mean.
HOT_MARGIN = 0.1
# Counters are read every few seconds, and a split cannot be undone. So two hits are at least this long apart.
MEASURED_HIT_MS = 60_000
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitChoice:
    """The bundles to split, and refusals of other bundles above a split limit.

    `hits`: readings in a row above a limit, of each bundle above a limit.
    """

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
        """Return the value of the bundle as a multiple of the split limit."""
        return self.value / self.limit


def choose_splits(inputs: Situation, draft: Draft, ledger: Ledger) -> SplitChoice:
    """Choose the bundles to split, those furthest above a split limit first, as far as the budgets allow.

    `ledger`: moves that reports do not show yet, including those that this plan has already chosen.
    """
    if not inputs.params.split_enabled:
        return SplitChoice()
    candidates = _candidates(inputs, draft)
    if not candidates:
        return SplitChoice()
    obstacles = _obstacles(inputs, ledger)
    left_alone = _left_alone(inputs, candidates)
    splits, refusals = list[Split](), list[Refusal]()
    hits, planned = dict[str, Hits](), Counter[int]()
    counts, most = _namespace_counts(inputs.snapshot.bundles, inputs.namespace_bundles), inputs.params.split_max_bundles
    for candidate in candidates:
        name, broker = _names(inputs, candidate.row)
        bundle_hits = _counted(inputs, candidate.row)
        namespace = int(inputs.snapshot.bundles.namespace[candidate.row])
        refusal = left_alone.get(candidate.row) or _refused(inputs, candidate, obstacles, bundle_hits.low)
        if refusal is None or refusal[0] not in (Code.SINGLE_TOPIC, Code.NARROW_RANGE, Code.V1_NAMESPACE):
            # Hits of bundles that cannot be divided are not stored: there can be many of these bundles.
            hits[name] = bundle_hits
        if refusal is None and counts[namespace] + planned[namespace] >= most:
            refusal = Code.NAMESPACE_MAXIMUM, f"{counts[namespace] + planned[namespace]} bundles, maximum {most}"
        if refusal is None and not _at_first_sight(inputs) and len(splits) >= inputs.params.split_max_per_cycle:
            refusal = Code.BUDGET_OF_SPLITS, f"limit {inputs.params.split_max_per_cycle}"
        if refusal is not None:
            refusals.append(Refusal(code=refusal[0], bundle=name, broker=broker, detail=refusal[1]))
            continue
        planned[namespace] += 1
        splits.append(
            Split(
                bundle=name,
                broker=broker,
                rule=candidate.rule,
                value=candidate.value,
                limit=candidate.limit,
                hits=bundle_hits.low,
                at=(),
                halves=False,
            )
        )
    return SplitChoice(splits=tuple(splits), refusals=tuple(refusals), hits=hits)


def _namespace_counts(bundles: BundleTable, stored: Mapping[str, int]) -> list[int]:
    """Return the number of bundles of each namespace (row), as `NamespaceService.getBundleCount` counts them.

    `stored`: number of bundles by namespace from the metadata store; the larger number counts.
    """
    loaded = np.bincount(bundles.namespace, minlength=len(bundles.namespaces)).tolist()
    return [max(count, stored.get(name, 0)) for name, count in zip(bundles.namespaces, loaded, strict=True)]


def _left_alone(inputs: Situation, candidates: Sequence[_Candidate]) -> dict[int, tuple[Code, str]]:
    """Return a code and an empty detail for each candidate that must not be split, by row.

    The settings or an operator exclude such a bundle, or a partial takeover does not include its namespace.
    """
    excluded = excluded_bundles(inputs.snapshot, inputs.guard, inputs.params, inputs.snapshot.wall_ms)
    outside = not_taken_over(inputs.snapshot.bundles, inputs.guard)
    rows = [item.row for item in candidates if excluded[item.row]]
    return {row: (Code.NOT_TAKEN_OVER if outside[row] else Code.EXCLUDED, "") for row in rows}


def largest_bundle(bundles: BundleTable, namespace: str) -> tuple[str, str] | None:
    """Return the most loaded bundle of a namespace and a text with its load; None if no broker reports one.

    The load is the mean of the bundle's shares of the namespace's messages and bytes, in and out, by short-term
    averages. Without traffic, the number of topics decides, as in Pulsar's `LARGEST` (`getBundleWithHighestTopics`).
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
    """Return whether the hour (UTC) of a time is in one of the windows such as `22-06`; True without windows."""
    hour = wall_ms // 3_600_000 % 24
    for window in windows:
        start, _, end = window.partition("-")
        first, last = int(start), int(end)
        if first <= hour < last or (first >= last and (hour >= first or hour < last)):
            return True
    return not windows


def _native(inputs: Situation) -> bool:
    """Return whether the split rules of the brokers' load manager apply (`compat`)."""
    return inputs.params.compat != "none"


def _at_first_sight(inputs: Situation) -> bool:
    """Return whether the split rules of the modular load manager apply: no hits, no budget."""
    return _native(inputs) and inputs.snapshot.mode != "extensible"


def _names(inputs: Situation, row: int) -> tuple[str, str]:
    bundles = inputs.snapshot.bundles
    return bundles.names[row], inputs.snapshot.brokers.ids[int(bundles.owner[row])]


# --- candidates ----------------------------------------------------------------------------------------------


def _candidates(inputs: Situation, draft: Draft) -> list[_Candidate]:
    """Return all bundles above a split limit except system bundles, those furthest above it first.

    Each has only one rule: the first exceeded limit in Pulsar's order, or `hot` (too large for any broker).
    """
    candidates = _above_limits(inputs)
    if inputs.brokers_split:
        # The brokers split bundles above the four limits themselves, but they do not have the rule `hot`.
        candidates = {**candidates, **_hot(inputs, draft)}
    elif not _native(inputs):
        candidates = {**_hot(inputs, draft), **candidates}
    names = inputs.snapshot.bundles.names
    return sorted(candidates.values(), key=lambda item: (-item.excess, names[item.row]))


def _above_limits(inputs: Situation) -> dict[int, _Candidate]:
    bundles, params = inputs.snapshot.bundles, inputs.params
    traffic = bundles.long if _at_first_sight(inputs) else bundles.short
    figures: tuple[tuple[Floats, float], ...] = (
        (bundles.counts[:, TOPICS].astype(np.float64), params.split_max_topics),
        ((bundles.counts[:, CONSUMERS] + bundles.counts[:, PRODUCERS]).astype(np.float64), params.split_max_sessions),
        (traffic[:, RATE_IN] + traffic[:, RATE_OUT], params.split_max_msg_rate),
        ((traffic[:, THROUGHPUT_IN] + traffic[:, THROUGHPUT_OUT]) / _MIB, params.split_max_bandwidth_mb),
    )
    candidates: dict[int, _Candidate] = {}
    for rule, (values, limit) in zip(LIMIT_RULES, figures, strict=True):
        if limit <= 0:
            continue
        for row in np.flatnonzero((values > limit) & ~bundles.system).tolist():
            candidates.setdefault(row, _Candidate(row, rule, float(values[row]), float(limit)))
    return candidates


def _hot(inputs: Situation, draft: Draft) -> dict[int, _Candidate]:
    """Return the bundles that keep their broker above the mean, and would do so on any other broker, even alone.

    The `value` of such a candidate is the lowest score that the bundle alone would give to any broker, as a multiple of
    the mean score.
    """
    limit = inputs.params.split_hot_share
    # The load of a closed broker either leaves soon, or an operator wants it to stay. Neither is a reason to split.
    mean, counted = draft.mean(), draft.counted()
    above = counted & (draft.score > mean * (1 + HOT_MARGIN))
    if limit <= 0 or not above.any():
        return {}
    bundles = inputs.snapshot.bundles
    # A bundle's share of its broker's score is at most its largest share of any traffic. So the exact score has to be
    # computed for few bundles only.
    here = np.flatnonzero(above[bundles.owner] & ~bundles.system)
    owner, share = bundles.owner[here], np.zeros(len(here))
    for column in bundles.short[here].T:
        total = np.bincount(owner, weights=column, minlength=len(above))[owner]
        np.maximum(share, np.divide(column, total, out=np.zeros(len(here)), where=column > 0), out=share)
    rows = here[share * draft.score[owner] > limit * mean]
    # Check one broker of each size: a bundle alone gives the same score to all brokers with the same limits.
    limits, rows_open = draft.limit.tolist(), np.flatnonzero(counted).tolist()
    kinds = np.array(list({tuple(limits[row]): row for row in rows_open}.values()))
    coldest, candidates = float(draft.score[counted].min()), {}
    for row in rows.tolist():
        value = _least_burden(draft, row, kinds) / mean
        if value > limit and (value > 1 + HOT_MARGIN or not _placement_helps(inputs, draft, row, mean, coldest)):
            candidates[row] = _Candidate(row, HOT, value, limit)
    return candidates


def _least_burden(draft: Draft, row: int, brokers: Ints) -> float:
    """Return the lowest score that one of these brokers would have with only this bundle.

    Brokers without usable limits are ignored; 0: no broker has any.
    """
    owner = int(draft.snapshot.bundles.owner[row])
    pressure = draft.pressure(owner)[row - int(draft.snapshot.bundles.starts[owner])]
    alone = draft.scores(np.broadcast_to(pressure, (len(brokers), len(pressure))), brokers)
    return float(alone[alone > 0].min(initial=math.inf)) if (alone > 0).any() else 0.0


def _placement_helps(inputs: Situation, draft: Draft, row: int, mean: float, coldest: float) -> bool:
    """Return whether the broker of this bundle can be relieved by a move of one of its bundles instead of a split.

    `coldest`: score of the least loaded broker, to which that bundle would move.
    """
    bundles = inputs.snapshot.bundles
    owner = int(bundles.owner[row])
    rows = bundles.rows_of(owner)
    weights = draft.scores(draft.pressure(owner), owner)
    least = inputs.params.min_unload_share * mean
    useful = (weights >= least) & (weights < 2 * (draft.score[owner] - mean))
    useful &= coldest + weights < draft.score[owner] - least
    return bool((useful & ~bundles.system[rows]).any())


# --- reasons against -----------------------------------------------------------------------------------------


def _counted(inputs: Situation, row: int) -> Hits:
    """Return how many readings in a row (hits) showed a bundle above a split limit, including this cycle.

    A hit is added if the bundle's broker has reported since the last hit, or if a measuring interval has passed.
    """
    name, _ = _names(inputs, row)
    last, now = inputs.memory.split_hits.get(name), inputs.snapshot.wall_ms
    owner = int(inputs.snapshot.bundles.owner[row])
    reported = int(inputs.snapshot.brokers.last_update[owner])
    # Hits are consecutive only if they are at most twice the longest report interval apart.
    if last is None or now - last.at_ms > 2000 * inputs.params.report_max_interval_seconds:
        return Hits(side="split", low=1, reported=reported, at_ms=now)
    if inputs.snapshot.interval_ms(owner) and now - last.at_ms < MEASURED_HIT_MS:
        return last
    # If a broker does not report for one interval, its load is unchanged, which counts as a reading (the strategy `avg`
    # does the same). Otherwise four hits could take an hour.
    interval = max(inputs.params.statistics_interval_seconds, inputs.params.host_usage_interval_seconds)
    if reported <= last.reported and now - last.at_ms < int(1000 * interval):
        return last
    return Hits(side="split", low=last.low + 1, reported=reported, at_ms=now)


def _obstacles(inputs: Situation, ledger: Ledger) -> dict[str, tuple[Code, str]]:
    """Return the bundles that must not be split now, with code and detail of the reason."""
    now, guard = inputs.snapshot.wall_ms, inputs.guard
    until = now - int(1000 * inputs.params.cool_down_seconds)
    under_way = ledger.under_way()
    return {
        **{name: _why(failed.code) for name, failed in guard.split_failed.items() if failed.at_ms > until},
        **{name: (code, "") for name, code in segment_codes(guard, now).items()},
        **{name: (Code.PINNED, "") for name, expiry in guard.pinned.items() if not expiry or expiry > now},
        **dict.fromkeys(ledger.not_yet_reported_bundles(inputs.params, now), (Code.UNSETTLED, "")),
        **dict.fromkeys(under_way, (Code.IN_TRANSIT, "")),
        **dict.fromkeys(guard.frozen, (Code.FROZEN_INTENT, "")),
        **dict.fromkeys(guard.served_twice, (Code.SERVED_TWICE, "")),
    }


def _why(code: str) -> tuple[Code, str]:
    """Return code and detail for a bundle whose last split failed with `code`.

    `code` itself is returned if it means that no position divides the bundle, else `SPLIT_FAILED`.
    """
    indivisible = {Code.SINGLE_TOPIC.value, Code.SAME_HASH.value, Code.DOMINANT_TOPIC.value}
    return (Code(code), "seen at the last attempt") if code in indivisible else (Code.SPLIT_FAILED, code)


def _refused(
    inputs: Situation, candidate: _Candidate, obstacles: Mapping[str, tuple[Code, str]], hits: int
) -> tuple[Code, str] | None:
    """Return why this candidate is not split now, as code and detail; None if only budgets can prevent it.

    `hits`: readings in a row above the limit.
    """
    bundles, params = inputs.snapshot.bundles, inputs.params
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
    if inputs.brokers_split and candidate.rule != HOT:
        return Code.BROKERS_SPLIT_THEMSELVES, candidate.rule
    far_above = not _native(inputs) and candidate.excess > params.split_override_factor
    # Far above a limit, two hits are enough. The strategy may also act after two, and a bundle that moves before it is
    # split would overload its next broker.
    enough = min(1, params.split_hit_count) if far_above else params.split_hit_count
    if not _at_first_sight(inputs) and hits <= enough:
        return Code.SPLIT_HIT_COUNT, f"{hits} of {enough + 1}"
    if not (_native(inputs) or far_above or in_quiet_hours(params.split_quiet_hours, inputs.snapshot.wall_ms)):
        return Code.QUIET_HOURS, ", ".join(params.split_quiet_hours)
    return None


def _divisible(bundle: str) -> bool:
    """Return whether the bundle's hash range is wider than one hash (Pulsar's `canSplitBundle`).

    False if the name of the bundle is invalid.
    """
    try:
        name = parse_bundle(bundle)
    except ValueError:
        return False
    return name.upper - name.lower > 1
