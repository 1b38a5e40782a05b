"""What the children of a split inherit: the parent's averages and figures, divided by what their topics carry.

Pulsar drops the parent's averages, and its children start from defaults of 50 msg/s: for a thousand samples their load
is unknown, and nothing moves (PIP-192 describes this). Ours can be moved in the next cycle.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from bundlekeel.core.model.load import TOPICS, BrokerReport, BundleAverages, Floats, TopicLoad
from bundlekeel.core.model.names import BundleName, parse_bundle


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitChildren:
    """A parent and its children in range order. `shares`: of the parent's traffic, one row a child, columns of
    `TRAFFIC`, each column adding up to 1; `topics`: the share of its topics, one a child."""

    parent: str
    children: tuple[str, ...]
    shares: tuple[tuple[float, float, float, float], ...]
    topics: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentSplit:
    """A split that was made, and when: for a while reports still name the parent."""

    split: SplitChildren
    at_ms: int


def children_of(bundle: str, positions: Sequence[int]) -> tuple[str, ...]:
    """The names of the children that a split at these positions makes, in range order. ValueError for positions that
    are not strictly inside the bundle or not ascending."""
    name = parse_bundle(bundle)
    edges = [name.lower, *positions, name.upper]
    if any(below >= above for below, above in pairwise(edges)):
        raise ValueError(f"{list(positions)} are no ascending positions strictly inside {bundle}")
    return tuple(
        str(BundleName(namespace=name.namespace, lower=below, upper=above)) for below, above in pairwise(edges)
    )


def split_children(bundle: str, positions: Sequence[int], topics: Sequence[TopicLoad]) -> SplitChildren:
    """Parent and children with each child's share of the parent, by what the topics carry.

    Where no topic carries anything the number of topics decides, and without topics the width of the range.
    """
    children = children_of(bundle, positions)
    edges = [parse_bundle(bundle).lower, *positions]
    carried, counted = np.zeros((len(children), 4)), np.zeros(len(children))
    for topic in topics:
        place = max(0, bisect_right(edges, topic.hash) - 1)
        carried[place] += topic.traffic
        counted[place] += 1
    if not counted.any():
        ranges = [parse_bundle(child) for child in children]
        counted = np.array([float(item.upper - item.lower) for item in ranges])
    counted /= counted.sum()
    totals = carried.sum(axis=0)
    shares = np.where(totals > 0, carried / np.where(totals > 0, totals, 1.0), counted[:, None])
    return SplitChildren(
        parent=bundle, children=children, shares=tuple(_four(row) for row in shares), topics=tuple(counted.tolist())
    )


def inherited(parent: BundleAverages, made: SplitChildren) -> list[BundleAverages]:
    """The children's averages: the parent's times each child's share, with the parent's samples."""
    short, long = np.array(parent.short), np.array(parent.long)
    return [
        replace(
            parent,
            bundle=child,
            short=_four(short * np.array(share)),
            long=_four(long * np.array(share)),
            topics=round(parent.topics * topics),
        )
        for child, share, topics in zip(made.children, made.shares, made.topics, strict=True)
    ]


def with_children(report: BrokerReport, splits: Mapping[str, SplitChildren]) -> BrokerReport:
    """A report that still names split parents, as it would read with their children in their places.

    A broker counts its bundles once in a statistics interval and reports when its load changed: after a split its
    report may name the parent for minutes, and the parent's parent as well when a child was split too. A report that
    names a child already is taken as it is.
    """
    for _ in splits:
        divided = _with_next_children(report, splits)
        if divided is report:
            break
        report = divided
    return report


def _with_next_children(report: BrokerReport, splits: Mapping[str, SplitChildren]) -> BrokerReport:
    """The same, one generation further."""
    names = report.bundle_names
    stale = [row for row, name in enumerate(names) if name in splits and not set(splits[name].children) & set(names)]
    if not stale:
        return report
    new_names: list[str] = []
    traffic: list[Floats] = []
    counts: list[list[int]] = []
    for row, name in enumerate(names):
        if row not in stale:
            new_names.append(name)
            traffic.append(report.bundle_traffic[row])
            counts.append(report.bundle_counts[row].tolist())
            continue
        made = splits[name]
        new_names.extend(made.children)
        traffic.extend(report.bundle_traffic[row] * np.array(share) for share in made.shares)
        # Clients follow their topics; a child has at least one, or it would not have been made.
        counts.extend(
            [
                max(1, round(value * part)) if column == TOPICS else round(value * part)
                for column, value in enumerate(report.bundle_counts[row].tolist())
            ]
            for part in made.topics
        )
    return replace(
        report,
        bundle_names=tuple(new_names),
        bundle_traffic=np.array(traffic).reshape(-1, 4),
        bundle_counts=np.array(counts, dtype=np.int64).reshape(-1, 3),
    )


def holds(boundaries: Sequence[int], bundle: str) -> bool:
    """Whether a namespace with these boundaries has this bundle, undivided."""
    name = parse_bundle(bundle)
    return (
        name.lower in boundaries
        and name.upper in boundaries
        and not any(name.lower < edge < name.upper for edge in boundaries)
    )


def _four(row: Floats) -> tuple[float, float, float, float]:
    a, b, c, d = (float(value) for value in row)
    return a, b, c, d
