"""Named families of generated clusters: what their load does, so that a calibration is judged on all of them.

A family sets fields of `World`, and can change the generated traffic at times that depend on the seed only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from bundlekeel.model.averages import Averages
from bundlekeel.model.load import RATE_OUT, THROUGHPUT_OUT, Ints
from bundlekeel.planning.engine import PlanInput
from dev.history_model import BUNDLES_PER_NAMESPACE, CORE, DAY_S, GeneratedTraffic, World, dense, inputs_of

HOUR_S: Final = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A kind of load. `fields`: changes of `World`. `change`: changes of the generated traffic of a day."""

    fields: Mapping[str, Any] = field(default_factory=dict)
    change: Callable[[GeneratedTraffic], GeneratedTraffic] = lambda traffic: traffic


def _seconds(traffic: GeneratedTraffic) -> Ints:
    """Return the seconds of each period since the start of the world."""
    seconds: Ints = (traffic.wall_ms - traffic.world.start_ms) // 1000
    return seconds


def _windows(world: World, kind: int, per_day: float, hours: tuple[float, float]) -> Iterator[tuple[int, int, int]]:
    """Yield the events of a world in order of time, each as (random number, first second, last second).

    `per_day`: mean number per day. `hours`: shortest and longest duration.
    """
    rng = np.random.default_rng([world.seed, 10 + kind])
    count = max(1, round(per_day * world.days))
    starts = np.sort(rng.integers(HOUR_S, world.days * DAY_S, count))
    lengths = HOUR_S * rng.uniform(*hours, count)
    for start, length, number in zip(starts.tolist(), lengths.tolist(), rng.integers(0, 2**31, count), strict=True):
        yield int(number), start, int(start + length)


def _arrive(traffic: GeneratedTraffic) -> GeneratedTraffic:
    """Half of the namespaces appear during the recorded days, each at its own time."""
    world, owner = traffic.world, traffic.owner.copy()
    spaces = np.arange(len(traffic.bundles)) // BUNDLES_PER_NAMESPACE
    rng = np.random.default_rng([world.seed, 20])
    for space in rng.permutation(spaces.max() + 1)[: (spaces.max() + 1) // 2].tolist():
        before = _seconds(traffic) < rng.uniform(0.1, 0.9) * world.days * DAY_S
        owner[np.ix_(before, spaces == space)] = -1
    return replace(traffic, owner=owner)


def _lose(traffic: GeneratedTraffic) -> GeneratedTraffic:
    """Brokers stop for some time. Lookups place their bundles on the others, where they stay."""
    world, seconds = traffic.world, _seconds(traffic)
    owner, present = traffic.owner.copy(), traffic.present.copy()
    placed = owner[0].copy()
    for number, start, end in _windows(world, 1, 0.4, (0.5, 3.0)):
        lost = number % world.brokers
        others = np.delete(np.arange(world.brokers), lost)
        gone = placed == lost
        placed[gone] = np.random.default_rng(number).choice(others, int(gone.sum()))
        owner[seconds >= start] = placed
        present[(seconds >= start) & (seconds < end), lost] = False
    return replace(traffic, owner=owner, present=present)


def _heat(traffic: GeneratedTraffic) -> GeneratedTraffic:
    """A few bundles have several times their traffic for hours, as hot partitions have."""
    seconds, rates = _seconds(traffic), traffic.rates.copy()
    for number, start, end in _windows(traffic.world, 2, 6.0, (0.5, 6.0)):
        inside = (seconds >= start) & (seconds < end)
        rates[inside, number % len(traffic.bundles)] *= 2.0 + number % 7
    return replace(traffic, rates=np.round(rates, 3))


def _replicate(traffic: GeneratedTraffic) -> GeneratedTraffic:
    """Replicators read some namespaces once more, and catch up at several times the rate after interruptions."""
    seconds, rates = _seconds(traffic), traffic.rates.copy()
    replicated = np.flatnonzero(np.arange(len(traffic.bundles)) // BUNDLES_PER_NAMESPACE % 2 == 0)
    factor = np.full(len(seconds), 1.5)
    for number, start, end in _windows(traffic.world, 3, 2.0, (0.2, 1.5)):
        factor[(seconds >= start) & (seconds < end)] = 2.0 + number % 3
    for column in (RATE_OUT, THROUGHPUT_OUT):
        rates[:, replicated, column] *= factor[:, None]
    return replace(traffic, rates=np.round(rates, 3))


def _burden(traffic: GeneratedTraffic) -> GeneratedTraffic:
    """Other processes use up to a quarter of a broker's CPU for hours."""
    seconds, foreign = _seconds(traffic), np.zeros(traffic.present.shape)
    for number, start, end in _windows(traffic.world, 4, 3.0, (0.5, 8.0)):
        inside = (seconds >= start) & (seconds < end)
        foreign[inside, number % traffic.world.brokers] += 8 * CORE * (0.05 + 0.05 * (number % 5))
    return replace(traffic, foreign=foreign)


CALM: Final = {"daily": 0.0, "weekly": 0.0, "growth": 0.0, "noise": 0.05}
FAMILIES: Final[Mapping[str, Family]] = {
    "steady": Family(fields=CALM),
    "daily": Family(fields={"growth": 0.0}),
    "bursty": Family(fields={"spiky": 1, "noise": 0.3, "load": 0.2}),
    "growing": Family(fields={"growth": 0.04, "load": 0.3}),
    "new tenants": Family(change=_arrive),
    "broker lost": Family(change=_lose),
    "unequal brokers": Family(fields={"unequal": 0.5}),
    "partition hot spots": Family(change=_heat),
    "replication": Family(change=_replicate),
    "CPU of other processes": Family(change=_burden),
}


def generated(family: str, world: World) -> Iterator[PlanInput]:
    """Yield the input of a plan in each period of a world of this family. A day at a time is in memory."""
    averages, chosen = Averages(), FAMILIES[family]
    # Bursts, which use all CPU of small clusters, are a family of their own.
    world = replace(world, **{"spiky": 0, **chosen.fields})
    for day in range(world.days):
        traffic = dense(world, day * world.periods_a_day, (day + 1) * world.periods_a_day)
        yield from inputs_of(chosen.change(traffic), averages)
