"""Check whether the Prometheus counters of a broker agree with its load reports.

Counters belong to topics. `model.counters` adds them up by bundle, and takes the bundle from the topic's hash. A
cluster can run another `topicBundleAssignmentStrategy` (PIP-255), and a collector of metrics can drop some series. Then
counters show traffic in the wrong bundles, or too little traffic. A comparison with load reports shows such errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bundlekeel.model.counters import MeasuredLoad
from bundlekeel.model.extensible import is_rest
from bundlekeel.model.load import TRAFFIC, BrokerReport
from bundlekeel.model.names import BundleName, parse_bundle

# Counters agree with a report as long as at most this share of the reported traffic is missing in the counters.
UNEXPLAINED_SHARE: Final = 0.1
# Clocks of brokers, Prometheus and this host may differ by this part of a statistics interval.
_CLOCKS_SHARE: Final = 0.25


@dataclass(slots=True, kw_only=True)
class Agreement:
    """Results of the comparisons of one broker's reports with its counters.

    `loads`: loads computed from counters, for the last four statistics intervals, oldest first, without gaps.
    `results`: differences found in the last two compared reports, as text ("": none). `compared_ms`: `updated_ms` of
    the last compared report. `waiting`: the report to compare next, as soon as `loads` cover its time; None: no report
    waits. A newer report does not replace it: if reports arrive faster than loads, no report would ever be compared.
    """

    loads: list[MeasuredLoad] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    compared_ms: int = 0
    waiting: BrokerReport | None = None

    def add(self, load: MeasuredLoad, statistics_ms: int) -> None:
        """Add the next load from counters; drop loads that are too old for a comparison with any report."""
        self.loads.append(load)
        while len(self.loads) > 1 and self.loads[1].to_ms < load.to_ms - 4 * statistics_ms:
            del self.loads[0]

    def compare(self, report: BrokerReport, statistics_ms: int) -> None:
        """Compare the `waiting` report with the counters, if `loads` cover its time.

        If no report waits, `report` becomes the waiting report if it is at least a statistics interval newer than the
        last compared report.
        """
        if self.waiting is None and report.updated_ms - self.compared_ms >= statistics_ms:
            self.waiting = report
        if self.waiting is None or not self.loads:
            return
        result, at_ms = unexplained(self.waiting, self.loads, statistics_ms), self.waiting.updated_ms
        if result is not None:
            self.results, self.compared_ms = [*self.results[-1:], result], at_ms
        if result is not None or self.loads[-1].to_ms > at_ms + statistics_ms:
            self.waiting = None

    def doubt(self, other_assigner: str) -> str:
        """Return why the broker's counters cannot be used; "" if they can.

        One report can contain the rate of a session that has just begun, so two reports in a row must contradict the
        counters. `other_assigner`: class name in `topicBundleAssignmentStrategy`; "": Pulsar's default. With another
        class, counters are used only while the last report agrees with them.
        """
        last = self.results[-1] if self.results else f"topicBundleAssignmentStrategy is {other_assigner}"
        return last if other_assigner or (len(self.results) > 1 and all(self.results)) else ""


def unexplained(report: BrokerReport, loads: Sequence[MeasuredLoad], statistics_ms: int) -> str | None:
    """Compare a report with the counters of the same time; describe the reported traffic that the counters lack.

    The rates of a report are means over one statistics interval, which ended up to one interval before `updated_ms`. So
    the largest rate of a bundle in the `loads` of these two intervals is an upper limit of its reported rate. The first
    and the last of these loads reach beyond the two intervals, together by the length of one load. The limit is raised
    in proportion. A bundle that arrived or left has no limit. Counters above the report prove nothing: reports lack the
    traffic of sessions that have ended.

    Returns:
        "" if counters and report agree. None if `loads` (oldest first, without gaps) do not cover the time of the
        report, or if the report lists only the largest bundles.
    """
    margin = int(_CLOCKS_SHARE * statistics_ms)
    begin, end = report.updated_ms - 2 * statistics_ms - margin, report.updated_ms + margin
    # The load that ended before that time contains the bundles that the broker had at the beginning of that time.
    first = sum(load.to_ms <= begin for load in loads) - 1
    if first < 0 or loads[-1].to_ms < end:
        return None
    rest = [is_rest(name) for name in report.bundle_names]
    if report.bundle_traffic[rest].any():
        return None
    window = [load for load in loads[first:] if load.from_ms <= end]
    names = list(dict.fromkeys([*report.bundle_names, *(name for load in window for name in load.bundles)]))
    row = {name: place for place, name in enumerate(names)}
    most, presence = np.zeros((len(names), len(TRAFFIC))), np.zeros(len(names))
    for load in window:
        rows = [row[name] for name in load.bundles]
        presence[rows] += 1
        most[rows] = np.maximum(most[rows], np.where(load.whole[:, np.newaxis], load.traffic, np.inf))
    most *= 1 + max(load.to_ms - load.from_ms for load in window) / statistics_ms
    most[(presence > 0) & (presence < len(window)) | _divided_otherwise(names)] = np.inf
    above = np.maximum(report.bundle_traffic - most[: len(report.bundle_names)], 0.0)
    excess = above.sum(axis=0) - UNEXPLAINED_SHARE * report.bundle_traffic.sum(axis=0)
    if not (excess > 0).any():
        return ""
    column = int(np.argmax(above.sum(axis=0) / np.maximum(report.bundle_traffic.sum(axis=0), 1.0)))
    worst = int(np.argmax(above[:, column]))
    figures = f"{report.bundle_traffic[worst, column]:.0f}, counters at most {most[worst, column]:.0f}"
    return f"{names[worst]}: the report has {TRAFFIC[column]} {figures}"


def _divided_otherwise(names: Sequence[str]) -> NDArray[np.bool_]:
    """Return a mask of the bundles whose namespace has overlapping bundles here, because one of them was split."""

    def namespace(bundle: BundleName) -> str:
        return bundle.namespace

    bundles = [parse_bundle(name) for name in names]
    by_place = sorted(bundles, key=lambda bundle: (bundle.namespace, bundle.lower))
    split = {
        name
        for name, group in groupby(by_place, key=namespace)
        if any(after.lower < before.upper for before, after in pairwise(group))
    }
    return np.array([bundle.namespace in split for bundle in bundles], dtype=bool)
