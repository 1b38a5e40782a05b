"""Report of a quota cycle for the API and for followers, as JSON values; None where there is no limit."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np

from bundlekeel.model.codes import EXPLANATIONS, Code
from bundlekeel.model.load import Floats, Ints
from bundlekeel.ports import Telemetry
from bundlekeel.quotas.rules.groups import KINDS, Membership, QuotaGroup, Rates
from bundlekeel.quotas.rules.lines import renumbered
from bundlekeel.quotas.rules.rate_plan import EnforcerPlan, Rate, RateChange
from bundlekeel.quotas.rules.resource_group_plan import Defect
from bundlekeel.quotas.rules.shares import Shares, TopicClaims
from bundlekeel.quotas.rules.usage import Key, UsageTable, sums

Json = dict[str, Any]

# List at most this many topics per group, and in all groups together, the busiest first. The report must fit into the
# shared state, where 4,000 topics take about 200 KB.
MOST_TOPICS: Final = 200
_ALL_TOPICS: Final = 4000
# List at least this many brokers per group, the busiest first, and at most this many in all groups together.
_LEAST_BROKERS: Final = 10
_ALL_BROKERS: Final = 10_000
MOST_CHANGES: Final = 100
_TOPIC_GAUGES: Final = ("quota_topic_usage", "quota_topic_limit", "quota_topic_share", "quota_topic_loss")
_GROUP_GAUGES: Final = (
    *("quota_limit", "quota_usage", "quota_share", "quota_used_ratio", "quota_skew_loss"),
    *("quota_topics", "quota_held_back_topics"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaCycleReport:
    """Measurements and decisions of one cycle.

    `demand`: estimated demand of each topic in `shares`, per second, shape (topics, 4). `reported`: by group, the
    usage that brokers report to each other (`UsageListener.reported`).
    """

    membership: Membership
    table: UsageTable
    claims: TopicClaims
    shares: Shares
    demand: Floats
    plan: EnforcerPlan
    defects: Sequence[Defect] = ()
    reported: Mapping[str, list[Json]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Index:
    """Lookup tables by topic, built once for all groups.

    `shares`: row in `Shares`. `left`: codes of why rates are not written. `changes`: planned writes. `brokers`: brokers
    that serve the topic.
    """

    shares: Mapping[Key, int]
    left: Mapping[str, set[str]]
    changes: Mapping[str, Json]
    brokers: Mapping[str, set[str]]


def group_rows(cycle_report: QuotaCycleReport, rate_of: Callable[[Key], Rates]) -> list[Json]:
    """Return one JSON row per group, in the order of declaration.

    `rate_of`: returns the current limits of each partition of a topic.
    """
    index = _index(cycle_report)
    count = len(cycle_report.membership.groups)
    usage, brokers = cycle_report.table.by_group(count), _by_broker(cycle_report.table, count)
    spaces = np.bincount(np.array(list(cycle_report.membership.group_of.values()), dtype=np.int64), minlength=count)
    lost = losses(cycle_report)
    rows = []
    for row, group in enumerate(cycle_report.membership.groups):
        mine = np.flatnonzero(cycle_report.claims.group == row)
        item = _group_row(cycle_report, row, group, mine, usage[row])
        item["brokers"] = brokers[row]
        item["namespaces"] = int(spaces[row])
        item["skew_loss"] = _named(lost[mine].sum(axis=0).tolist())
        item["rows"] = _topic_rows(cycle_report, index, group.name, mine, lost, rate_of)
        rows.append(item)
    return rows


def _by_broker(table: UsageTable, count: int) -> list[dict[str, Json]]:
    """Return one dictionary per group: its usage at each broker that serves its topics."""
    width = max(1, len(table.brokers))
    pairs, row = np.unique(table.group * width + table.broker, return_inverse=True)
    rates = sums(table.rates, row, len(pairs))
    most = max(_LEAST_BROKERS, _ALL_BROKERS // max(1, count))
    result: list[dict[str, Json]] = []
    ends = np.searchsorted(pairs, np.arange(count + 1) * width)
    for start, end in pairwise(ends.tolist()):
        mine = np.argsort(-rates[start:end].sum(axis=1), kind="stable")[:most] + start
        result.append(
            {table.brokers[int(pairs[at]) % width]: _named(rates[at].tolist()) for at in np.sort(mine).tolist()}
        )
    return result


def _index(cycle_report: QuotaCycleReport) -> _Index:
    left: dict[str, set[str]] = {}
    for item in cycle_report.plan.left:
        if isinstance(item.why, Code):
            left.setdefault(item.place.topic, set()).add(item.why.value)
    changes: dict[str, Json] = {}
    for change in cycle_report.plan.changes:
        changes.setdefault(change.place.topic, {})[change.place.side] = rate_row(change.rate)
    brokers: dict[str, set[str]] = {}
    for key, broker in zip(cycle_report.table.key.tolist(), cycle_report.table.broker.tolist(), strict=True):
        brokers.setdefault(cycle_report.table.keys[key][1], set()).add(cycle_report.table.brokers[broker])
    return _Index({key: row for row, key in enumerate(cycle_report.shares.keys)}, left, changes, brokers)


def _group_row(cycle_report: QuotaCycleReport, row: int, group: QuotaGroup, mine: Ints, usage: Floats) -> Json:
    shared = np.flatnonzero(cycle_report.shares.group == row)
    limits = group.limits.rates()
    share = cycle_report.shares.share[shared].sum(axis=0) if len(shared) else np.zeros(len(KINDS))
    limited = np.isfinite(np.array(limits))
    ratios = [used / limit if math.isfinite(limit) else math.inf for used, limit in zip(usage, limits, strict=True)]
    return {
        "name": group.name,
        "members": list(group.members),
        "topics": len(mine),
        "held_back": int((cycle_report.claims.throttled[mine] & limited).any(axis=1).sum()) if len(mine) else 0,
        "limits": _named(limits),
        "usage": _named(usage.tolist()),
        "shares": _named(share.tolist()),
        "used_ratio": _named(ratios),
        "excess": _named(cycle_report.shares.excess[row].tolist()),
        "reported": cycle_report.reported.get(group.name, []),
        "defects": [
            {"code": item.code.value, "detail": item.detail, "explanation": EXPLANATIONS[item.code]}
            for item in cycle_report.defects
            if item.group == group.name
        ],
    }


def losses(cycle_report: QuotaCycleReport, rows: Ints | None = None) -> Floats:
    """Return the part of each topic's share, per second, that is lost because too few of its partitions have demand.

    Each partition has the limit share / partitions. `rows`: rows of topics in `claims`; None: all. The result has
    the shape (topics, 4).
    """
    claims = cycle_report.claims
    if rows is None:
        rows = np.arange(len(claims.keys))
    skewed = rows[claims.partitions[rows] > 1]
    places = renumbered([claims.keys[row] for row in skewed.tolist()], cycle_report.shares.keys)
    share = np.where(places[:, None] >= 0, cycle_report.shares.share[places], np.inf) if len(places) else _none()
    throttled = claims.throttled[skewed] & np.isfinite(share)
    result = np.zeros((len(rows), len(KINDS)))
    result[claims.partitions[rows] > 1] = (
        np.maximum(np.where(throttled, share, 0.0) - claims.usage[skewed], 0.0) * throttled
    )
    return result


def _none() -> Floats:
    return np.zeros((0, len(KINDS)))


def _topic_rows(
    cycle_report: QuotaCycleReport, index: _Index, group: str, mine: Ints, lost: Floats, rate_of: Callable[[Key], Rates]
) -> list[Json]:
    most = min(MOST_TOPICS, _ALL_TOPICS // len(cycle_report.membership.groups))
    order = mine[np.argsort(-cycle_report.claims.usage[mine].sum(axis=1), kind="stable")]
    return [_topic_row(cycle_report, index, group, row, lost[row], rate_of) for row in order[:most].tolist()]


def _topic_row(
    cycle_report: QuotaCycleReport, index: _Index, group: str, row: int, lost: Floats, rate_of: Callable[[Key], Rates]
) -> Json:
    topic = cycle_report.claims.keys[row][1]
    place = index.shares.get((group, topic))
    share = cycle_report.shares.share[place].tolist() if place is not None else [math.inf] * len(KINDS)
    throttled = cycle_report.claims.throttled[row].tolist()
    return {
        "topic": topic,
        "brokers": sorted(index.brokers.get(topic, ())),
        "partitions": int(cycle_report.claims.partitions[row]),
        "usage": _named(cycle_report.claims.usage[row].tolist()),
        "demand": _named(cycle_report.demand[place].tolist() if place is not None else [math.inf] * len(KINDS)),
        "share": _named(share),
        "loss": _named(lost.tolist()),
        "partition_rate": _named(rate_of((group, topic))),
        "held_back": [name for name, is_throttled in zip(KINDS, throttled, strict=True) if is_throttled],
        "change": index.changes.get(topic, {}),
        "codes": sorted(index.left.get(topic, ())),
    }


def topic_row(cycle_report: QuotaCycleReport, topic: str, rate_of: Callable[[Key], Rates]) -> tuple[str, Json] | None:
    """Return the group and JSON row of a topic, even of one that is not busy; None if no broker reported it."""
    for group in cycle_report.membership.groups:
        key = (group.name, topic)
        row = _find(cycle_report.claims.keys, key)
        if row is not None:
            lost = losses(cycle_report, np.array([row]))[0]
            return group.name, _topic_row(cycle_report, _index_of(cycle_report, key), group.name, row, lost, rate_of)
    return None


def _find(keys: Sequence[Key], key: Key) -> int | None:
    """Return the index of `key` in the sorted `keys`; None: not there."""
    row = bisect_left(keys, key)
    return row if row < len(keys) and keys[row] == key else None


def _index_of(cycle_report: QuotaCycleReport, key: Key) -> _Index:
    """Return the lookup tables with one topic only."""
    table, topic = cycle_report.table, key[1]
    at, share = _find(table.keys, key), _find(cycle_report.shares.keys, key)
    serving = table.broker[table.key == at].tolist() if at is not None else []
    return _Index(
        shares={} if share is None else {key: share},
        left={
            topic: {i.why.value for i in cycle_report.plan.left if i.place.topic == topic and isinstance(i.why, Code)}
        },
        changes={topic: {i.place.side: rate_row(i.rate) for i in cycle_report.plan.changes if i.place.topic == topic}},
        brokers={topic: {table.brokers[broker] for broker in serving}},
    )


def change_row(change: RateChange) -> Json:
    """Return one write of a topic policy as JSON for the journal."""
    return {
        "topic": change.place.topic,
        "side": change.place.side,
        "group": change.group,
        "before": rate_row(change.before),
        "rate": rate_row(change.rate),
        "restores": change.restores,
    }


def rate_row(rate: Rate | None) -> Json | None:
    """Return a rate as JSON for operators; None: there is no policy."""
    return None if rate is None else {"messages": rate.messages, "bytes": rate.size}


def _named(values: Sequence[float]) -> Json:
    return {
        name: round(float(value), 3) if math.isfinite(value) else None
        for name, value in zip(KINDS, values, strict=True)
    }


def add_held_back(rows: Sequence[Json], before: Json | None, seconds: float) -> None:
    """Add to each group's row how many seconds its topics were held back (limited), summed over topics.

    This is the value in the previous report (`before`), also of another leader, plus `seconds` times the number of
    topics that are held back now. It starts at 0 for a new group.
    """
    previous = {row["name"]: row.get("held_back_seconds") or 0.0 for row in (before or {}).get("groups", ())}
    for row in rows:
        row["held_back_seconds"] = round(previous.get(row["name"], 0.0) + row["held_back"] * seconds, 1)


def publish(telemetry: Telemetry, rows: Sequence[Json], seconds: float) -> None:
    """Publish the metrics of the groups in place of all earlier ones, because groups and topics change.

    `seconds`: time since the last call.
    """
    for name in (*_GROUP_GAUGES, *_TOPIC_GAUGES):
        telemetry.retain(name, "group", set())
    for row in rows:
        group = row["name"]
        for kind in KINDS:
            if row["limits"][kind] is None:
                continue
            telemetry.gauge("quota_limit", row["limits"][kind], group=group, kind=kind)
            telemetry.gauge("quota_usage", row["usage"][kind], group=group, kind=kind)
            telemetry.gauge("quota_share", row["shares"][kind] or 0.0, group=group, kind=kind)
            telemetry.gauge("quota_used_ratio", row["used_ratio"][kind], group=group, kind=kind)
            telemetry.gauge("quota_skew_loss", row["skew_loss"][kind], group=group, kind=kind)
        telemetry.gauge("quota_topics", float(row["topics"]), group=group)
        telemetry.gauge("quota_held_back_topics", float(row["held_back"]), group=group)
        telemetry.count("quota_held_back_seconds_total", row["held_back"] * seconds, group=group)


def publish_topics(
    telemetry: Telemetry, cycle_report: QuotaCycleReport, most: int, rate_of: Callable[[Key], Rates]
) -> None:
    """Publish, after `publish`, the metrics of the `most` most relevant topics of all groups.

    Topics that lose most of their group's limit come first, then topics at their limit, then busy topics. Not every
    topic can have metrics, because there are too many topics.
    """
    if most and len(cycle_report.claims.keys):
        claims, limits, lost = (
            cycle_report.claims,
            cycle_report.membership.limits()[cycle_report.claims.group],
            losses(cycle_report),
        )
        throttled = (claims.throttled & np.isfinite(limits)).any(axis=1)
        order = np.lexsort((-(claims.usage / limits).max(axis=1), ~throttled, -(lost / limits).max(axis=1)))
        for row in order[:most].tolist():
            group, topic = key = claims.keys[row]
            place = _find(cycle_report.shares.keys, key)
            share = cycle_report.shares.share[place] if place is not None else np.full(len(KINDS), np.inf)
            rates = np.array(rate_of(key)) * claims.partitions[row]
            for column in np.flatnonzero(np.isfinite(limits[row])).tolist():
                figures = (claims.usage[row], rates, share, lost[row])
                for name, values in zip(_TOPIC_GAUGES, figures, strict=True):
                    telemetry.gauge(name, float(values[column]), group=group, topic=topic, kind=KINDS[column])
