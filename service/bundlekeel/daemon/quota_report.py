"""How quota groups fare, as the API shows it and followers read it: plain values; None where there is no limit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from bundlekeel.core.codes import EXPLANATIONS, Code
from bundlekeel.core.load import Floats
from bundlekeel.core.quotas.enforce import Change, EnforcerPlan, Rate
from bundlekeel.core.quotas.groups import KINDS, Group, Membership, Rates
from bundlekeel.core.quotas.native import Defect
from bundlekeel.core.quotas.shares import Claims, Shares
from bundlekeel.core.quotas.usage import UsageTable
from bundlekeel.ports import Telemetry

Json = dict[str, Any]

# Topics of a group, and of all groups, that are told one by one: those that pass most. The report has to fit into the
# shared state: 4,000 make some 200 KB there.
MOST_TOPICS: Final = 200
_ALL_TOPICS: Final = 4000
MOST_CHANGES: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one cycle saw and decided."""

    membership: Membership
    table: UsageTable
    claims: Claims
    shares: Shares
    plan: EnforcerPlan
    defects: Sequence[Defect] = ()


def group_rows(seen: Seen, rate_of: Mapping[str, Rates]) -> list[Json]:
    """One row a group, in the order of declaration. `rate_of`: what each partition of a topic may pass now."""
    return [_group_row(seen, row, group, rate_of) for row, group in enumerate(seen.membership.groups)]


def _group_row(seen: Seen, row: int, group: Group, rate_of: Mapping[str, Rates]) -> Json:
    mine = np.flatnonzero(seen.claims.group == row)
    given = np.flatnonzero(seen.shares.group == row)
    limits = group.limits.rates()
    usage = seen.table.by_group(len(seen.membership.groups))[row]
    share = seen.shares.share[given].sum(axis=0) if len(given) else np.zeros(len(KINDS))
    pinched = seen.claims.pinched[mine]
    limited = np.isfinite(np.array(limits))
    return {
        "name": group.name,
        "members": list(group.members),
        "namespaces": sum(1 for number in seen.membership.group_of.values() if number == row),
        "topics": len(mine),
        "held_back": int((pinched & limited).any(axis=1).sum()) if len(mine) else 0,
        "limits": _named(limits),
        "usage": _named(usage.tolist()),
        "shares": _named(share.tolist()),
        "used_ratio": _named(
            [used / limit if math.isfinite(limit) else math.inf for used, limit in zip(usage, limits, strict=True)]
        ),
        "skew_loss": _named(_skew(seen, mine, limited).tolist()),
        "excess": _named(seen.shares.excess[row].tolist()),
        "defects": [
            {"code": item.code.value, "detail": item.detail, "explanation": EXPLANATIONS[item.code]}
            for item in seen.defects
            if item.group == group.name
        ],
        "rows": _topic_rows(seen, group.name, mine, rate_of),
    }


def _skew(seen: Seen, mine: Any, limited: Any) -> Floats:
    """Shares that nobody uses because the demand sits in too few partitions of a topic."""
    found = np.zeros(len(KINDS))
    shares = {key: seen.shares.share[row] for row, key in enumerate(seen.shares.keys)}
    for row in mine.tolist():
        share = shares.get(seen.claims.keys[row])
        if share is None or seen.claims.partitions[row] < 2:
            continue
        lost = np.where(np.isfinite(share), share, 0.0) - seen.claims.usage[row]
        found += np.where(seen.claims.pinched[row] & limited, np.maximum(lost, 0.0), 0.0)
    return found


def _topic_rows(seen: Seen, group: str, mine: Any, rate_of: Mapping[str, Rates]) -> list[Json]:
    order = sorted(mine.tolist(), key=lambda row: (-float(seen.claims.usage[row].sum()), seen.claims.keys[row]))
    shares = {key: row for row, key in enumerate(seen.shares.keys)}
    left: dict[str, list[Code]] = {}
    for item in seen.plan.left:
        if isinstance(item.why, Code):
            left.setdefault(item.place.topic, []).append(item.why)
    wanted: dict[str, Json] = {}
    for change in seen.plan.changes:
        wanted.setdefault(change.place.topic, {})[change.place.side] = rate_row(change.rate)
    brokers: dict[str, set[str]] = {}
    for topic, broker in zip(seen.table.topic.tolist(), seen.table.broker.tolist(), strict=True):
        brokers.setdefault(seen.table.topics[topic], set()).add(seen.table.brokers[broker])
    found = []
    for row in order[: min(MOST_TOPICS, _ALL_TOPICS // len(seen.membership.groups))]:
        topic = seen.claims.keys[row][1]
        place = shares.get((group, topic))
        share = seen.shares.share[place].tolist() if place is not None else [math.inf] * len(KINDS)
        found.append(
            {
                "topic": topic,
                "brokers": sorted(brokers.get(topic, ())),
                "partitions": int(seen.claims.partitions[row]),
                "usage": _named(seen.claims.usage[row].tolist()),
                "share": _named(share),
                "partition_rate": _named(rate_of.get(topic, (math.inf,) * len(KINDS))),
                "held_back": [
                    name for name, held in zip(KINDS, seen.claims.pinched[row].tolist(), strict=True) if held
                ],
                "change": wanted.get(topic, {}),
                "codes": sorted({code.value for code in left.get(topic, ())}),
            }
        )
    return found


def change_row(change: Change) -> Json:
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


def publish(telemetry: Telemetry, rows: Sequence[Json], seconds: float) -> None:
    """Metrics of the groups; `seconds` since the last time."""
    names = {row["name"] for row in rows}
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
    for name in ("quota_limit", "quota_usage", "quota_share", "quota_used_ratio", "quota_skew_loss"):
        telemetry.retain(name, "group", names)
    telemetry.retain("quota_topics", "group", names)
    telemetry.retain("quota_held_back_topics", "group", names)
