"""Compute the results of a run from its samples: load by owner, time until balanced, moves, publish gaps, medians."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

# Up to EVEN_RATIO (max/mean) the load is balanced. A run counts only if it starts at UNEVEN_RATIO or more.
EVEN_RATIO = 1.25
UNEVEN_RATIO = 2.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The state of the cluster at monotonic time `at` (seconds).

    loads: messages/s acknowledged to clients, by the broker that owns their bundle; every broker has an entry.
    owners: bundle -> broker; a bundle that no broker owns at the moment is absent.
    """

    at: float
    loads: dict[str, float]
    owners: dict[str, str]

    @property
    def ratio(self) -> float:
        """Load of the most loaded broker, divided by the mean load."""
        return max_over_mean(list(self.loads.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of a bundle's owner. `left`: when `source` was last seen as the owner. `seen`: when `destination` was
    first seen as the owner. Both times are monotonic seconds. Source and destination are equal if the same broker
    loaded the bundle again.
    """

    bundle: str
    source: str
    destination: str
    left: float
    seen: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Median, 95th percentile and maximum of some durations in seconds; all 0.0 if there are none."""

    count: int
    median: float
    p95: float
    worst: float

    @staticmethod
    def of(values: Iterable[float]) -> Spread:
        """Return the number, median, 95th percentile and maximum of durations, for example of all publish gaps."""
        ordered = sorted(values)
        if not ordered:
            return Spread(count=0, median=0.0, p95=0.0, worst=0.0)
        # Nearest rank: the percentile of few values is their maximum, not an interpolated value.
        p95 = ordered[math.ceil(0.95 * len(ordered)) - 1]
        return Spread(count=len(ordered), median=statistics.median(ordered), p95=p95, worst=ordered[-1])


def max_over_mean(loads: Sequence[float]) -> float:
    """Return the highest load divided by the mean. 1.0: balanced; number of brokers: one broker has all load; 0.0: no
    load.
    """
    total = sum(loads)
    return max(loads) * len(loads) / total if total > 0 else 0.0


def rates(newer: Mapping[str, int], older: Mapping[str, int], seconds: float) -> dict[str, float]:
    """Return the messages per second of each topic, from two message counts that are `seconds` apart."""
    return {topic: (count - older.get(topic, 0)) / seconds for topic, count in newer.items()}


def loads_by_owner(
    topic_rates: Mapping[str, float],
    bundle_of: Mapping[str, str],
    owners: Mapping[str, str],
    brokers: Iterable[str],
) -> dict[str, float]:
    """Return the load of each broker: the sum of the rates of its topics. Topics whose bundle has no owner are
    omitted.
    """
    loads = dict.fromkeys(brokers, 0.0)
    for topic, rate in topic_rates.items():
        owner = owners.get(bundle_of[topic])
        if owner in loads:
            loads[owner] += rate
    return loads


def owners_of(claims: Mapping[str, Iterable[str]], before: Mapping[str, str]) -> dict[str, str]:
    """Return the owner of each bundle, from the bundles that each broker reports as its own. Brokers are queried one at
    a time, so two brokers can report the same bundle during a move. Then the owner in `before` does not count.
    """
    owners: dict[str, str] = {}
    for broker, bundles in claims.items():
        for bundle in bundles:
            if bundle not in owners or before.get(bundle) == owners[bundle]:
                owners[bundle] = broker
    return owners


def changes(samples: Sequence[Sample]) -> list[Change]:
    """Return every change of ownership between the samples, oldest first."""
    changes_of_place: list[Change] = []
    # bundle -> (owner, time of the last sample with this owner)
    places: dict[str, tuple[str, float]] = {}
    previous = -math.inf
    for sample in samples:
        for bundle, owner in sample.owners.items():
            if bundle in places:
                source, last = places[bundle]
                if source != owner or last < previous:
                    changes_of_place.append(
                        Change(bundle=bundle, source=source, destination=owner, left=last, seen=sample.at)
                    )
            places[bundle] = (owner, sample.at)
        previous = sample.at
    return changes_of_place


def even_since(samples: Sequence[Sample], limit: float = EVEN_RATIO) -> float | None:
    """Return the time since which the load was balanced in all samples; None: unbalanced in the last sample."""
    since = None
    for sample in samples:
        if not 0 < sample.ratio <= limit:
            since = None
        elif since is None:
            since = sample.at
    return since


def median_of(values: Iterable[float | None]) -> float | None:
    """Return the median. None means "not balanced in time" and counts as worse than any number.

    If the number of values is even, the result is the worse of the two middle values, so that it is always the value of
    a real run.
    """
    ordered = sorted(math.inf if value is None else value for value in values)
    if not ordered:
        return None
    middle = ordered[len(ordered) // 2]
    return None if math.isinf(middle) else middle
