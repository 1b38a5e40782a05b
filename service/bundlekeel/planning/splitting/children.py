"""Divide the averages and reports of a split bundle among its children (the new bundles), by their topics' traffic.

After a split, Pulsar drops the parent's averages, and each child starts from a default of 50 msg/s. The real load is
unknown for a thousand samples, so nothing moves (PIP-192 describes this). With averages inherited from the parent, the
children can move in the next cycle.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from bundlekeel.model.load import TOPICS, BrokerReport, BundleAverages, Floats, TopicLoad
from bundlekeel.model.names import BundleName, parse_bundle


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitChildren:
    """A split bundle and its children (the new bundles), in the order of their hash ranges.

    `shares`: share of the parent's traffic, one row per child, columns of `TRAFFIC`; each column adds up to 1.
    `topics`: share of the parent's topics, one value per child.
    """

    parent: str
    children: tuple[str, ...]
    shares: tuple[tuple[float, float, float, float], ...]
    topics: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentSplit:
    """A finished split and its time (Unix ms). Load reports list the parent for some time after it."""

    split: SplitChildren
    at_ms: int


def children_of(bundle: str, positions: Sequence[int]) -> tuple[str, ...]:
    """Return the names of the new bundles of a split at these hash positions, in the order of their ranges.

    Raises ValueError if the positions are not ascending or not strictly inside the bundle.
    """
    name = parse_bundle(bundle)
    edges = [name.lower, *positions, name.upper]
    if any(below >= above for below, above in pairwise(edges)):
        raise ValueError(f"{list(positions)} are not ascending positions strictly inside {bundle}")
    return tuple(
        str(BundleName(namespace=name.namespace, lower=below, upper=above)) for below, above in pairwise(edges)
    )


def split_children(bundle: str, positions: Sequence[int], topics: Sequence[TopicLoad]) -> SplitChildren:
    """Return the new bundles of a split, each with the share of the parent's traffic that its topics carry.

    If no topic has traffic, the shares follow the number of topics; without topics, the widths of the hash ranges.
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


def inherited(parent: BundleAverages, split: SplitChildren) -> list[BundleAverages]:
    """Return the averages of a split bundle's children: the parent's averages times each child's share.

    The children keep the parent's numbers of samples.
    """
    short, long = np.array(parent.short), np.array(parent.long)
    return [
        replace(
            parent,
            bundle=child,
            short=_four(short * np.array(share)),
            long=_four(long * np.array(share)),
            topics=round(parent.topics * topics),
        )
        for child, share, topics in zip(split.children, split.shares, split.topics, strict=True)
    ]


def with_children(report: BrokerReport, splits: Mapping[str, SplitChildren]) -> BrokerReport:
    """Return the load report with each split bundle replaced by its children.

    A broker counts its bundles once per statistics interval, and reports when its load has changed. So its report can
    list the parent for minutes after a split, even if a child has been split again. A parent stays in the report if the
    report already lists one of its children.
    """
    for _ in splits:
        divided = _with_next_children(report, splits)
        if divided is report:
            break
        report = divided
    return report


def _with_next_children(report: BrokerReport, splits: Mapping[str, SplitChildren]) -> BrokerReport:
    """Replace split bundles by their children, but not children that were split again.

    Returns the same report if there is no split bundle in it.
    """
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
        split = splits[name]
        new_names.extend(split.children)
        traffic.extend(report.bundle_traffic[row] * np.array(share) for share in split.shares)
        # Producers and consumers are divided like topics. A reported child has at least one topic.
        counts.extend(
            [
                max(1, round(value * part)) if column == TOPICS else round(value * part)
                for column, value in enumerate(report.bundle_counts[row].tolist())
            ]
            for part in split.topics
        )
    return replace(
        report,
        bundle_names=tuple(new_names),
        bundle_traffic=np.array(traffic).reshape(-1, 4),
        bundle_counts=np.array(counts, dtype=np.int64).reshape(-1, 3),
    )


def holds(boundaries: Sequence[int], bundle: str) -> bool:
    """Return whether `bundle` is exactly one bundle of a namespace with these hash boundaries."""
    name = parse_bundle(bundle)
    return (
        name.lower in boundaries
        and name.upper in boundaries
        and not any(name.lower < edge < name.upper for edge in boundaries)
    )


def _four(row: Floats) -> tuple[float, float, float, float]:
    a, b, c, d = (float(value) for value in row)
    return a, b, c, d
