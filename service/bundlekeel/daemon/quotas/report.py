"""How quota groups fare, as the API shows it and followers read it: plain values; None where there is no limit."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np

from bundlekeel.core.model.codes import EXPLANATIONS, Code
from bundlekeel.core.model.load import Floats, Ints
from bundlekeel.core.quotas.enforce import EnforcerPlan, Rate, RateChange
from bundlekeel.core.quotas.groups import KINDS, Membership, QuotaGroup, Rates
from bundlekeel.core.quotas.lines import renumbered
from bundlekeel.core.quotas.native import Defect
from bundlekeel.core.quotas.shares import Shares, TopicClaims
from bundlekeel.core.quotas.usage import Key, UsageTable, sums
from bundlekeel.ports import Telemetry

Json = dict[str, Any]

# Topics of a group, and of all groups, that are listed one by one: those that pass most. The report has to fit into the
# shared state: 4,000 make some 200 KB there.
MOST_TOPICS: Final = 200
_ALL_TOPICS: Final = 4000
# The same for brokers: of few groups all are listed, of very many the busiest of each.
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
    """What one cycle saw and decided. `demand`: what each topic of the shares is known to want, as a share. `reported`:
    by group, what brokers report to each other of it (`UsageListener.reported`)."""

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
    """By topic, made once for all groups: row among the shares, codes, changes, brokers."""

    shares: Mapping[Key, int]
    left: Mapping[str, set[str]]
    changes: Mapping[str, Json]
    brokers: Mapping[str, set[str]]


def group_rows(seen: QuotaCycleReport, rate_of: Callable[[Key], Rates]) -> list[Json]:
    """One row a group, in the order of declaration. `rate_of`: what each partition of a topic may pass now."""
    index = _index(seen)
    count = len(seen.membership.groups)
    usage, brokers = seen.table.by_group(count), _by_broker(seen.table, count)
    spaces = np.bincount(np.array(list(seen.membership.group_of.values()), dtype=np.int64), minlength=count)
    lost = losses(seen)
    found = []
    for row, group in enumerate(seen.membership.groups):
        mine = np.flatnonzero(seen.claims.group == row)
        made = _group_row(seen, row, group, mine, usage[row])
        made["brokers"] = brokers[row]
        made["namespaces"] = int(spaces[row])
        made["skew_loss"] = _named(lost[mine].sum(axis=0).tolist())
        made["rows"] = _topic_rows(seen, index, group.name, mine, lost, rate_of)
        found.append(made)
    return found


def _by_broker(table: UsageTable, count: int) -> list[dict[str, Json]]:
    """Of each group, usage of the brokers that serve topics of it."""
    width = max(1, len(table.brokers))
    pairs, row = np.unique(table.group * width + table.broker, return_inverse=True)
    rates = sums(table.rates, row, len(pairs))
    most = max(_LEAST_BROKERS, _ALL_BROKERS // max(1, count))
    found: list[dict[str, Json]] = []
    ends = np.searchsorted(pairs, np.arange(count + 1) * width)
    for start, end in pairwise(ends.tolist()):
        mine = np.argsort(-rates[start:end].sum(axis=1), kind="stable")[:most] + start
        found.append(
            {table.brokers[int(pairs[at]) % width]: _named(rates[at].tolist()) for at in np.sort(mine).tolist()}
        )
    return found


def _index(seen: QuotaCycleReport) -> _Index:
    left: dict[str, set[str]] = {}
    for item in seen.plan.left:
        if isinstance(item.why, Code):
            left.setdefault(item.place.topic, set()).add(item.why.value)
    changes: dict[str, Json] = {}
    for change in seen.plan.changes:
        changes.setdefault(change.place.topic, {})[change.place.side] = rate_row(change.rate)
    brokers: dict[str, set[str]] = {}
    for key, broker in zip(seen.table.key.tolist(), seen.table.broker.tolist(), strict=True):
        brokers.setdefault(seen.table.keys[key][1], set()).add(seen.table.brokers[broker])
    return _Index({key: row for row, key in enumerate(seen.shares.keys)}, left, changes, brokers)


def _group_row(seen: QuotaCycleReport, row: int, group: QuotaGroup, mine: Ints, usage: Floats) -> Json:
    given = np.flatnonzero(seen.shares.group == row)
    limits = group.limits.rates()
    share = seen.shares.share[given].sum(axis=0) if len(given) else np.zeros(len(KINDS))
    limited = np.isfinite(np.array(limits))
    ratios = [used / limit if math.isfinite(limit) else math.inf for used, limit in zip(usage, limits, strict=True)]
    return {
        "name": group.name,
        "members": list(group.members),
        "topics": len(mine),
        "held_back": int((seen.claims.throttled[mine] & limited).any(axis=1).sum()) if len(mine) else 0,
        "limits": _named(limits),
        "usage": _named(usage.tolist()),
        "shares": _named(share.tolist()),
        "used_ratio": _named(ratios),
        "excess": _named(seen.shares.excess[row].tolist()),
        "reported": seen.reported.get(group.name, []),
        "defects": [
            {"code": item.code.value, "detail": item.detail, "explanation": EXPLANATIONS[item.code]}
            for item in seen.defects
            if item.group == group.name
        ],
    }


def losses(seen: QuotaCycleReport, rows: Ints | None = None) -> Floats:
    """What of each topic's share, a second, is not used because the demand sits in too few of its partitions: each of
    them may pass share / partitions only. Shape (topics of the claims, or `rows` of them, 4)."""
    claims = seen.claims
    if rows is None:
        rows = np.arange(len(claims.keys))
    skewed = rows[claims.partitions[rows] > 1]
    places = renumbered([claims.keys[row] for row in skewed.tolist()], seen.shares.keys)
    share = np.where(places[:, None] >= 0, seen.shares.share[places], np.inf) if len(places) else _none()
    held = claims.throttled[skewed] & np.isfinite(share)
    found = np.zeros((len(rows), len(KINDS)))
    found[claims.partitions[rows] > 1] = np.maximum(np.where(held, share, 0.0) - claims.usage[skewed], 0.0) * held
    return found


def _none() -> Floats:
    return np.zeros((0, len(KINDS)))


def _topic_rows(
    seen: QuotaCycleReport, index: _Index, group: str, mine: Ints, lost: Floats, rate_of: Callable[[Key], Rates]
) -> list[Json]:
    most = min(MOST_TOPICS, _ALL_TOPICS // len(seen.membership.groups))
    order = mine[np.argsort(-seen.claims.usage[mine].sum(axis=1), kind="stable")]
    return [_topic_row(seen, index, group, row, lost[row], rate_of) for row in order[:most].tolist()]


def _topic_row(
    seen: QuotaCycleReport, index: _Index, group: str, row: int, lost: Floats, rate_of: Callable[[Key], Rates]
) -> Json:
    topic = seen.claims.keys[row][1]
    place = index.shares.get((group, topic))
    share = seen.shares.share[place].tolist() if place is not None else [math.inf] * len(KINDS)
    throttled = seen.claims.throttled[row].tolist()
    return {
        "topic": topic,
        "brokers": sorted(index.brokers.get(topic, ())),
        "partitions": int(seen.claims.partitions[row]),
        "usage": _named(seen.claims.usage[row].tolist()),
        "demand": _named(seen.demand[place].tolist() if place is not None else [math.inf] * len(KINDS)),
        "share": _named(share),
        "loss": _named(lost.tolist()),
        "partition_rate": _named(rate_of((group, topic))),
        "held_back": [name for name, held in zip(KINDS, throttled, strict=True) if held],
        "change": index.changes.get(topic, {}),
        "codes": sorted(index.left.get(topic, ())),
    }


def topic_row(seen: QuotaCycleReport, topic: str, rate_of: Callable[[Key], Rates]) -> tuple[str, Json] | None:
    """The group of any topic that brokers reported, however little it passes, and its row; else None."""
    for group in seen.membership.groups:
        key = (group.name, topic)
        row = _find(seen.claims.keys, key)
        if row is not None:
            lost = losses(seen, np.array([row]))[0]
            return group.name, _topic_row(seen, _index_of(seen, key), group.name, row, lost, rate_of)
    return None


def _find(keys: Sequence[Key], key: Key) -> int | None:
    """Where it stands among keys that are sorted."""
    row = bisect_left(keys, key)
    return row if row < len(keys) and keys[row] == key else None


def _index_of(seen: QuotaCycleReport, key: Key) -> _Index:
    """Of one topic only."""
    table, topic = seen.table, key[1]
    at, share = _find(table.keys, key), _find(seen.shares.keys, key)
    serving = table.broker[table.key == at].tolist() if at is not None else []
    return _Index(
        shares={} if share is None else {key: share},
        left={topic: {i.why.value for i in seen.plan.left if i.place.topic == topic and isinstance(i.why, Code)}},
        changes={topic: {i.place.side: rate_row(i.rate) for i in seen.plan.changes if i.place.topic == topic}},
        brokers={topic: {table.brokers[broker] for broker in serving}},
    )


def change_row(change: RateChange) -> Json:
    """One write, for the journal."""
    return {
        "topic": change.place.topic,
        "side": change.place.side,
        "group": change.group,
        "before": rate_row(change.before),
        "rate": rate_row(change.rate),
        "restores": change.restores,
    }


def rate_row(rate: Rate | None) -> Json | None:
    """A rate as people read it; None without a policy."""
    return None if rate is None else {"messages": rate.messages, "bytes": rate.size}


def _named(values: Sequence[float]) -> Json:
    return {
        name: round(float(value), 3) if math.isfinite(value) else None
        for name, value in zip(KINDS, values, strict=True)
    }


def add_held_back(rows: Sequence[Json], before: Json | None, seconds: float) -> None:
    """To each row how long its topics have been held back, in topics times seconds: what the last report said, and the
    `seconds` since. It goes on under another leader, and begins anew with the group."""
    known = {row["name"]: row.get("held_back_seconds") or 0.0 for row in (before or {}).get("groups", ())}
    for row in rows:
        row["held_back_seconds"] = round(known.get(row["name"], 0.0) + row["held_back"] * seconds, 1)


def publish(telemetry: Telemetry, rows: Sequence[Json], seconds: float) -> None:
    """Metrics of the groups; `seconds` since the last time. All are set anew, as groups, limits and topics change."""
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


def publish_topics(telemetry: Telemetry, seen: QuotaCycleReport, most: int, rate_of: Callable[[Key], Rates]) -> None:
    """After `publish`: metrics of `most` topics of all groups together: those that lose most of their group's limit,
    then those that are held back, then those that pass most; a broker has too many topics for a series each."""
    if most and len(seen.claims.keys):
        claims, limits, lost = seen.claims, seen.membership.limits()[seen.claims.group], losses(seen)
        held = (claims.throttled & np.isfinite(limits)).any(axis=1)
        order = np.lexsort((-(claims.usage / limits).max(axis=1), ~held, -(lost / limits).max(axis=1)))
        for row in order[:most].tolist():
            group, topic = key = claims.keys[row]
            place = _find(seen.shares.keys, key)
            share = seen.shares.share[place] if place is not None else np.full(len(KINDS), np.inf)
            rates = np.array(rate_of(key)) * claims.partitions[row]
            for column in np.flatnonzero(np.isfinite(limits[row])).tolist():
                figures = (claims.usage[row], rates, share, lost[row])
                for name, values in zip(_TOPIC_GAUGES, figures, strict=True):
                    telemetry.gauge(name, float(values[column]), group=group, topic=topic, kind=KINDS[column])
