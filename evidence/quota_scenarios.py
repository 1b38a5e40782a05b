"""Simulate a quota group: topics on brokers have demands, a rule limits them, and the result is their traffic.

There is one kind of rate (messages or bytes). Time advances in report cycles. In each cycle, traffic passes under the
current limits. Then brokers measure and report it, and the rule sets the limits of the next cycle. There are no queues,
so traffic follows from demand and limits alone: a topic policy limits each partition, and the limit of a broker or
bundle reduces all its topics in proportion. The rules are in `evidence/quota_rules.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from bundlekeel.model.load import Floats
from bundlekeel.quotas.rules.shares import water_fill

Curve = Callable[[int], float]
CLOSE = 0.10
ENOUGH = 0.80
STARVED = 0.50
_HELD = 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic of a scenario.

    `demand`: function from the cycle to the rate that clients would use without a limit. `owners`: the broker of each
    partition (only one: the topic is not partitioned). `weights`: part of the demand of each partition; empty: all
    parts are equal. `since`: first cycle in which the topic exists.
    """

    name: str
    demand: Curve
    owners: tuple[int, ...]
    weights: tuple[float, ...] = ()
    since: int = 0

    def parts(self, cycle: int) -> tuple[float, ...]:
        """Return the demand of each partition."""
        if cycle < self.since:
            return (0.0,) * len(self.owners)
        weights = self.weights or (1.0,) * len(self.owners)
        whole = math.fsum(weights)
        return tuple(self.demand(cycle) * weight / whole for weight in weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """All partitions of a topic move to broker `target` at the start of `cycle`. `gap`: cycles without any traffic."""

    cycle: int
    topic: str
    target: int
    gap: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """A broker dies at the start of `cycle`. The other brokers get its partitions in turn after `gap` cycles."""

    cycle: int
    broker: int
    gap: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLimit:
    """The quota group has a new limit from the start of `cycle`."""

    cycle: int
    limit: float


Event = Move | Death | NewLimit


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One partition in one cycle. `broker`: its owner (-1: none). `demand`: rate that clients would use without a
    limit.
    """

    topic: int
    index: int
    broker: int
    demand: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The state that a rule reads: names of topics and their numbers of partitions, live brokers, and the limit."""

    names: tuple[str, ...]
    partitions: tuple[int, ...]
    alive: tuple[int, ...]
    limit: float


class Rule(Protocol):
    """A way to limit the traffic of a quota group in a simulation."""

    def passes(self, scene: Scene, parts: Sequence[Part]) -> Floats:
        """Return the traffic of each partition under the current limits."""

    def learn(self, scene: Scene, parts: Sequence[Part], passed: Floats) -> None:
        """Set new limits at the end of a cycle. `passed`: traffic of each partition in this cycle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The input of one simulation: topics, number of brokers, the group's limit, and events such as moves."""

    topics: tuple[Topic, ...]
    brokers: int
    limit: float
    cycles: int = 20
    cycle_seconds: float = 10.0
    events: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of a simulation. Arrays have one row per cycle; `passed`, `demand` and `fair` have one column per topic.

    `fair`: max-min fair share of the limit by the real demands, for topics with a broker. `limit`: limit in each cycle.
    `reachable`: traffic of the fair shares that can pass if all partitions of a topic have the same rate.
    """

    scenario: Scenario
    passed: Floats
    demand: Floats
    fair: Floats
    reachable: Floats
    limit: Floats

    def accuracy(self) -> Floats:
        """Return the total traffic of each cycle, relative to the limit, or to the demand if that is lower."""
        possible = self.fair.sum(axis=1)
        shares: Floats = np.divide(self.passed.sum(axis=1), possible, out=np.ones_like(possible), where=possible > 0)
        return shares

    def of_fair(self) -> Floats:
        """Return each topic's traffic divided by its fair share, per cycle; 1 if its fair share is 0."""
        shares: Floats = np.divide(self.passed, self.fair, out=np.ones_like(self.fair), where=self.fair > 0)
        return shares

    def good(self) -> list[bool]:
        """Return for each cycle whether it is good: total traffic is within 10 % of the limit (or of the demand if that
        is lower), and every topic has at least 80 % of its fair share.
        """
        close = np.abs(self.accuracy() - 1) <= CLOSE
        enough = (self.of_fair() >= ENOUGH).all(axis=1)
        good: list[bool] = (close & enough).tolist()
        return good

    def cycles_to_settle(self, start: int, end: int | None = None) -> int | None:
        """Return the number of cycles from `start` until all cycles before `end` are good; None: the last is not."""
        good = self.good()[start:end]
        bad = [row for row, item in enumerate(good) if not item]
        if not bad:
            return 0
        return None if bad[-1] == len(good) - 1 else bad[-1] + 1

    def starved_seconds(self) -> float:
        """Return the seconds in which a topic had less than half of its fair share, summed over topics."""
        return float((self.of_fair() < STARVED).sum()) * self.scenario.cycle_seconds


@dataclass(slots=True)
class _World:
    """The owners of partitions during a simulation. `away`: cycle until which a partition has no broker."""

    scenario: Scenario
    owners: list[list[int]]
    alive: list[int]
    limit: float
    away: dict[tuple[int, int], int] = field(default_factory=dict)

    def happen(self, cycle: int) -> None:
        for event in self.scenario.events:
            if event.cycle != cycle:
                continue
            if isinstance(event, NewLimit):
                self.limit = event.limit
            elif isinstance(event, Move):
                row = [topic.name for topic in self.scenario.topics].index(event.topic)
                for index in range(len(self.owners[row])):
                    self.owners[row][index] = event.target
                    self.away[row, index] = cycle + event.gap
            else:
                self._die(event)

    def _die(self, event: Death) -> None:
        self.alive.remove(event.broker)
        turn = 0
        for row, owners in enumerate(self.owners):
            for index, owner in enumerate(owners):
                if owner == event.broker:
                    owners[index] = self.alive[turn % len(self.alive)]
                    self.away[row, index] = event.cycle + event.gap
                    turn += 1

    def parts(self, cycle: int) -> list[Part]:
        parts = []
        for row, topic in enumerate(self.scenario.topics):
            for index, demand in enumerate(topic.parts(cycle)):
                absent = cycle < max(self.away.get((row, index), 0), topic.since)
                owner = -1 if absent else self.owners[row][index]
                parts.append(Part(topic=row, index=index, broker=owner, demand=demand))
        return parts


def play(scenario: Scenario, rule: Rule) -> Outcome:
    """Simulate a scenario under a rule. The same scenario and rule give the same result."""
    world = _World(
        scenario=scenario,
        owners=[list(topic.owners) for topic in scenario.topics],
        alive=list(range(scenario.brokers)),
        limit=scenario.limit,
    )
    shape = (scenario.cycles, len(scenario.topics))
    passed, demand, fair, reachable = (np.zeros(shape) for _ in range(4))
    limits = np.zeros(scenario.cycles)
    for cycle in range(scenario.cycles):
        world.happen(cycle)
        parts = world.parts(cycle)
        scene = Scene(
            names=tuple(topic.name for topic in scenario.topics),
            partitions=tuple(len(topic.owners) for topic in scenario.topics),
            alive=tuple(world.alive),
            limit=world.limit,
        )
        let = np.where([part.broker >= 0 for part in parts], rule.passes(scene, parts), 0.0)
        for part, rate in zip(parts, let.tolist(), strict=True):
            passed[cycle, part.topic] += rate
            demand[cycle, part.topic] += part.demand
        served = _served(parts, shape[1])
        fair[cycle] = _fair(served.sum(axis=1), world.limit)
        reachable[cycle] = [_uniform(row, share) for row, share in zip(served, fair[cycle], strict=True)]
        limits[cycle] = world.limit
        rule.learn(scene, parts, let)
    return Outcome(scenario=scenario, passed=passed, demand=demand, fair=fair, reachable=reachable, limit=limits)


def _served(parts: Sequence[Part], topics: int) -> Floats:
    """Return the demand by topic (row) and partition (column); 0 for partitions that do not exist or have no broker."""
    width = max(part.index for part in parts) + 1
    rates = np.full((topics, width), 0.0)
    for part in parts:
        if part.broker >= 0:
            rates[part.topic, part.index] = part.demand
    return rates


def _fair(demand: Floats, limit: float) -> Floats:
    share, _ = water_fill(np.array([limit]), np.zeros(len(demand), dtype=np.int64), demand)
    return share


def _uniform(partitions: Floats, share: float) -> float:
    """Return the traffic of a topic if its share is divided equally among its partitions with demand."""
    count = max(1, int((partitions > 0).sum()))
    return float(np.minimum(partitions, share / count).sum())


def skewed(limit: float) -> Scenario:
    """Return a scenario on three brokers with two namespaces of eight topics each. Topics have Zipf demands, together
    four times the limit.
    """
    weights = [1 / (row + 1) for row in range(16)]
    whole = math.fsum(weights)
    topics = tuple(
        Topic(
            name=f"persistent://acme/ns{row % 2}/t{row // 2}",
            demand=constant(4 * limit * weight / whole),
            owners=(row % 3,),
        )
        for row, weight in enumerate(weights)
    )
    return Scenario(topics=topics, brokers=3, limit=limit)


def constant(rate: float) -> Curve:
    """Return a function from the cycle to the demand `rate`, which is the same in every cycle."""
    return lambda _: rate


def step(before: float, after: float, at: int) -> Curve:
    """Return a function from the cycle to a demand that changes from `before` to `after` in cycle `at`."""
    return lambda cycle: after if cycle >= at else before


def with_events(scenario: Scenario, *events: Event) -> Scenario:
    """Return the scenario with more events."""
    return replace(scenario, events=(*scenario.events, *events))
