"""Results of a run, without I/O: load by owner, when it became balanced, moves, gaps, medians."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

# Below this the load counts as even; at least that much, a run counts at all.
EVEN_RATIO = 1.25
UNEVEN_RATIO = 2.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look at the cluster, at monotonic time `at`.

    loads: messages/s acknowledged to clients, by the broker that owns their bundle; every broker has an entry.
    owners: bundle -> broker; a bundle that no broker owns at the moment is absent.
    """

    at: float
    loads: dict[str, float]
    owners: dict[str, str]

    @property
    def ratio(self) -> float:
        """max/mean over brokers."""
        return max_over_mean(list(self.loads.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A bundle left `source` after `left` and was seen at `destination` at `seen` (monotonic seconds).

    Source and destination may be the same: unloaded, and taken again by the same broker.
    """

    bundle: str
    source: str
    destination: str
    left: float
    seen: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Median, 95th percentile and worst of some seconds; all 0.0 when there were none."""

    count: int
    median: float
    p95: float
    worst: float

    @staticmethod
    def of(values: Iterable[float]) -> Spread:
        """Summarise, for instance, the gap of each move: `Spread.of(outcome.cut_off)`."""
        ordered = sorted(values)
        if not ordered:
            return Spread(count=0, median=0.0, p95=0.0, worst=0.0)
        # Nearest rank: of few values, the worst one rather than something between.
        p95 = ordered[math.ceil(0.95 * len(ordered)) - 1]
        return Spread(count=len(ordered), median=statistics.median(ordered), p95=p95, worst=ordered[-1])


def max_over_mean(loads: Sequence[float]) -> float:
    """max/mean: 1.0 is even, the number of brokers is everything on one; 0.0 without any load."""
    total = sum(loads)
    return max(loads) * len(loads) / total if total > 0 else 0.0


def rates(newer: Mapping[str, int], older: Mapping[str, int], seconds: float) -> dict[str, float]:
    """Messages/s of each topic between two counts."""
    return {topic: (count - older.get(topic, 0)) / seconds for topic, count in newer.items()}


def loads_by_owner(
    topic_rates: Mapping[str, float],
    bundle_of: Mapping[str, str],
    owners: Mapping[str, str],
    brokers: Iterable[str],
) -> dict[str, float]:
    """Give each topic's rate to the broker that owns its bundle; unowned ones count nowhere."""
    loads = dict.fromkeys(brokers, 0.0)
    for topic, rate in topic_rates.items():
        owner = owners.get(bundle_of[topic])
        if owner in loads:
            loads[owner] += rate
    return loads


def owners_of(claims: Mapping[str, Iterable[str]], before: Mapping[str, str]) -> dict[str, str]:
    """Return bundle -> owner from the bundles that each broker reports. Brokers are queried one at a time, so during a
    move two may claim a bundle: the newcomer has it.
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
    # bundle -> (owner, when it was last seen there)
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
    """Since when the load has been even without a break up to the last sample; None when it is not."""
    since = None
    for sample in samples:
        if not 0 < sample.ratio <= limit:
            since = None
        elif since is None:
            since = sample.at
    return since


def over_time(timeline: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the mean ratio of `timeline` (seconds, max/mean), and the share of the time in which the load was
    balanced. Both are weighted by time and start at second 0; (0.0, 0.0) without two points.
    """
    points = [(at, ratio) for at, ratio in timeline if at >= 0]
    spans = [(later - at, ratio) for (at, ratio), (later, _) in itertools.pairwise(points)]
    seconds = sum(span for span, _ in spans)
    if not seconds:
        return 0.0, 0.0
    even = sum(span for span, ratio in spans if ratio <= EVEN_RATIO)
    return sum(span * ratio for span, ratio in spans) / seconds, even / seconds


def median_of(values: Iterable[float | None]) -> float | None:
    """Return the median, where None means "not in time": worse than any number.

    Of an even count the worse of the two middle values: it never looks better than a run that happened.
    """
    ordered = sorted(math.inf if value is None else value for value in values)
    if not ordered:
        return None
    middle = ordered[len(ordered) // 2]
    return None if math.isinf(middle) else middle
