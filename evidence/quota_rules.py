"""Rules that limit the traffic of a quota group, for the simulations of `evidence/quota_scenarios.py`.

The rules are: Bundlekeel's share engine with topic policies, PIP-82 as proposed, Pulsar 4.2's ResourceGroups with their
defects, a fixed quota per bundle, and no limit. Only Bundlekeel limits topics; the others limit brokers or bundles.
Sources: the mailing list thread on PIP-82 with the reply by Penghui Li, and Pulsar's classes
`ResourceQuotaCalculatorImpl` and `ResourceGroup`.

`python -m evidence.quota_rules` prints the table of docs/concepts/quotas.md: each scenario under each rule.
"""

from __future__ import annotations

import math
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from bundlekeel.model.load import Floats
from bundlekeel.quotas.rules.groups import KINDS, PUBLISH_MESSAGES, Rates
from bundlekeel.quotas.rules.lines import AT_LIMIT, Lines
from bundlekeel.quotas.rules.shares import ShareMemory, ShareTuning, claims_of, share_out
from bundlekeel.quotas.rules.usage import Key, UsageLine
from dev.markdown import table
from evidence.quota_scenarios import (
    Death,
    Move,
    NewLimit,
    Part,
    Rule,
    Scenario,
    Scene,
    Topic,
    constant,
    play,
    skewed,
    step,
    with_events,
)

_GROUP = "group"
EQUAL, PROPORTIONAL = "equal", "proportional"
# Pulsar's code rounds the quota down to an integer (a Java long) of at least 1.
_LEAST: Final = 1.0


def divide_rest(quota: float, usage: Mapping[str, float], rest: str = PROPORTIONAL) -> dict[str, float]:
    """Return the limit of each broker by PIP-82 without stealing: its usage plus a part of the unused quota.

    `rest` = `equal`: each broker may use the whole unused quota, so the sum can exceed the quota for a moment (usages
    of 10, 50 and 30 with a quota of 100 give limits of 20, 60 and 40). `proportional`: the unused quota is distributed
    in proportion to usage (11.11, 55.56 and 33.33). If the usages exceed the quota, all limits are reduced in
    proportion. Brokers that report 0 get no limit. Without any usage the result is empty.
    """
    active = {name: used for name, used in sorted(usage.items()) if used > 0}
    total = math.fsum(active.values())
    left = quota - total
    if left > 0 and rest == EQUAL:
        return {name: used + left for name, used in active.items()}
    return {name: used + left * used / total for name, used in active.items()}


def steal(limits: Mapping[str, float], usage: Mapping[str, float]) -> dict[str, float]:
    """Return the limits after PIP-82's stealing. The broker with the lowest usage gets the mean of its usage and the
    highest usage, the second lowest the mean with the second highest, and so on (80 and 20: the second gets 50). Other
    limits do not change, and no limit falls.
    """
    order = sorted((used, name) for name, used in usage.items() if used > 0)
    limits_after = dict(limits)
    for (low, name), (high, _) in zip(order[: len(order) // 2], reversed(order), strict=False):
        limits_after[name] = max(limits_after[name], low + (high - low) / 2)
    return limits_after


def pip82(quota: float, usage: Mapping[str, float], rest: str = PROPORTIONAL) -> dict[str, float]:
    """Return the limits after one step of PIP-82 as proposed: `divide_rest`, then `steal`. The sum can exceed the
    quota.
    """
    return steal(divide_rest(quota, usage, rest), usage)


def native(quota: float, usage: Mapping[str, float], broker: str) -> float:
    """Return the publish limit that Pulsar 4.2's ResourceGroup gives one broker, from the usages it received and its
    own.

    The limit is proportional to usage, rounded down to an integer, and at least 1. So a broker that has just received a
    bundle has no usage yet and gets 1 message and 1 byte per second. `usage` contains dead brokers until this broker
    restarts.
    """
    if quota < 0:
        return -1.0
    total = math.fsum(usage.values())
    if total == 0:
        return quota
    mine = usage.get(broker, 0.0)
    return float(math.floor(max(mine + (quota - total) * mine / total, _LEAST)))


def per_bundle(quota: float, bundles: int) -> float:
    """Return the limit of each bundle if all bundles get an equal part of the quota, which idle bundles do not use.
    Raises ValueError if `bundles` is below 1.
    """
    if bundles < 1:
        raise ValueError("a namespace has at least one bundle")
    return quota / bundles


class Fair:
    """Bundlekeel's rule: the leader measures each topic and distributes the limit among topics; topic policies enforce
    this.
    """

    def __init__(self, tuning: ShareTuning | None = None) -> None:
        self.tuning = tuning or ShareTuning()
        self.shares: dict[str, float] = {}
        self.memory = ShareMemory()

    def passes(self, scene: Scene, parts: Sequence[Part]) -> Floats:
        """Return the traffic of each partition: at most an equal part of its topic's share. New topics have no limit
        yet.
        """
        return np.array([min(part.demand, self._rate(scene, part.topic)) for part in parts])

    def learn(self, scene: Scene, parts: Sequence[Part], passed: Floats) -> None:
        """Measure the traffic of each topic and compute new shares."""
        lines = self._lines(scene, parts, passed)
        now = Lines.of({str(broker): lines.get(broker, {}) for broker in scene.alive})
        limits = np.full((1, len(KINDS)), np.inf)
        limits[0, PUBLISH_MESSAGES] = scene.limit
        claims = claims_of(now, [_GROUP])
        shares, self.memory = share_out(limits, [_GROUP], claims, self.memory, self.tuning)
        column = shares.share[:, PUBLISH_MESSAGES].tolist()
        # Topics without a broker keep their earlier policy.
        self.shares |= {key[1]: share for key, share in zip(shares.keys, column, strict=True)}

    def _rate(self, scene: Scene, topic: int) -> float:
        return self.shares.get(scene.names[topic], math.inf) / scene.partitions[topic]

    def _lines(self, scene: Scene, parts: Sequence[Part], passed: Floats) -> dict[int, dict[Key, UsageLine]]:
        histories: dict[int, dict[Key, list[tuple[float, bool]]]] = defaultdict(lambda: defaultdict(list))
        for part, rate in zip(parts, passed.tolist(), strict=True):
            if part.broker >= 0:
                limited = rate > 0 and rate >= AT_LIMIT * self._rate(scene, part.topic)
                histories[part.broker][_GROUP, scene.names[part.topic]].append((rate, limited))
        count = dict(zip(scene.names, scene.partitions, strict=True))
        return {
            broker: {
                key: UsageLine(
                    usage=_rates(math.fsum(rate for rate, _ in rows)),
                    peak=_rates(max(rate for rate, _ in rows)),
                    throttled=(any(limited for _, limited in rows), False, False, False),
                    partitions=count[key[1]],
                )
                for key, rows in lines.items()
            }
            for broker, lines in histories.items()
        }


def _rates(rate: float) -> Rates:
    return (rate, 0.0, 0.0, 0.0)


class _Limited:
    """Base class of rules that limit brokers or bundles. A limit reduces the traffic of all topics there in
    proportion.
    """

    def __init__(self) -> None:
        self.limits: dict[int, float] = {}

    def place(self, scene: Scene, part: Part) -> int:
        """Return the number of the broker or bundle that limits a partition."""
        return part.broker

    def limit(self, scene: Scene, place: int) -> float:
        """Return the limit of the broker or bundle `place`; the whole quota if it has no limit yet."""
        return self.limits.get(place, scene.limit)

    def passes(self, scene: Scene, parts: Sequence[Part]) -> Floats:
        demand = _by(parts, [part.demand for part in parts], lambda part: self.place(scene, part))
        cut = {place: min(1.0, self.limit(scene, place) / want) if want > 0 else 1.0 for place, want in demand.items()}
        return np.array([part.demand * cut.get(self.place(scene, part), 0.0) for part in parts])


class Proposed(_Limited):
    """PIP-82 as proposed. A broker without usage starts with half of the highest usage."""

    def __init__(self, rest: str = PROPORTIONAL) -> None:
        super().__init__()
        self.rest = rest

    def learn(self, scene: Scene, parts: Sequence[Part], passed: Floats) -> None:
        """Measure the usage of each broker, and compute its limit."""
        used = _by(parts, passed.tolist(), lambda part: part.broker)
        usage = {str(broker): used.get(broker, 0.0) for broker in scene.alive}
        limits = pip82(scene.limit, usage, self.rest)
        start = max(usage.values(), default=0.0) / 2 or scene.limit
        self.limits = {broker: limits.get(str(broker), start) for broker in scene.alive}


class Native(_Limited):
    """Pulsar 4.2's ResourceGroup with its defects. `enforced=False`: its dispatch limits, which it measures but does
    not enforce. A broker reports its usage after a change of 5 % or 5 rounds, and loses unreported usage. Dead brokers
    stay in the sum. A broker without usage gets a limit of 1.
    """

    def __init__(self, *, enforced: bool = True, tolerance: float = 0.05, rounds: int = 5) -> None:
        super().__init__()
        self.enforced, self.tolerance, self.rounds = enforced, tolerance, rounds
        self.usage: dict[str, float] = {}
        self.silent: dict[int, int] = {}

    def limit(self, scene: Scene, place: int) -> float:
        """Return the limit that the broker `place` computed last."""
        return super().limit(scene, place) if self.enforced else math.inf

    def learn(self, scene: Scene, parts: Sequence[Part], passed: Floats) -> None:
        """Let live brokers report usage. Then compute each broker's limit from all reports, also those of dead
        brokers.
        """
        used = _by(parts, passed.tolist(), lambda part: part.broker)
        for broker in scene.alive:
            now, last = used.get(broker, 0.0), self.usage.get(str(broker), 0.0)
            silent = self.silent.get(broker, 0) + 1
            stale = silent >= self.rounds or (abs(now - last) > self.tolerance * last and now != last)
            self.silent[broker] = 0 if stale else silent
            if stale:
                self.usage[str(broker)] = now
        self.limits = {broker: native(scene.limit, self.usage, str(broker)) for broker in scene.alive}


class Bundled(_Limited):
    """The rule that Penghui Li proposed in the thread: each bundle gets an equal, fixed part of the quota."""

    def __init__(self, bundles: int) -> None:
        super().__init__()
        self.bundles = bundles

    def place(self, scene: Scene, part: Part) -> int:
        """Return the bundle of a partition, by the hash of its name."""
        name = scene.names[part.topic]
        name = f"{name}-partition-{part.index}" if scene.partitions[part.topic] > 1 else name
        return zlib.crc32(name.encode()) * self.bundles >> 32

    def limit(self, scene: Scene, place: int) -> float:
        return per_bundle(scene.limit, self.bundles)

    def learn(self, scene: Scene, parts: Sequence[Part], passed: Floats) -> None:
        """Do nothing: the limits are fixed."""


def _by(parts: Sequence[Part], rates: Sequence[float], key: Callable[[Part], int]) -> Mapping[int, float]:
    """Return the sum of the partitions' rates for each `key`, such as the broker. Partitions without a broker are
    omitted.
    """
    groups: dict[int, list[float]] = defaultdict(list)
    for part, rate in zip(parts, rates, strict=True):
        if part.broker >= 0:
            groups[key(part)].append(rate)
    return {name: math.fsum(values) for name, values in groups.items()}


_WHEN: Final = 8
_LIMIT: Final = 1000.0


def compared() -> dict[str, Scenario]:
    """Return the scenarios of the table, by name. Each has three brokers and two namespaces of eight topics, which
    demand four times the limit.
    """
    base = skewed(_LIMIT)
    hot, cold = base.topics[0].name, base.topics[-1]
    two = tuple(replace(topic, owners=(row % 2,)) for row, topic in enumerate(base.topics))
    new = Topic(name="persistent://acme/ns0/new", demand=constant(300), owners=(0,), since=_WHEN)
    grown = replace(cold, demand=step(5, 800, _WHEN))
    return {
        "at rest": base,
        "hot topic to an idle broker": replace(base, topics=two, events=(Move(cycle=_WHEN, topic=hot, target=2),)),
        "a broker dies": with_events(base, Death(cycle=_WHEN, broker=0)),
        "a new topic": replace(base, topics=(*base.topics, new)),
        "limit times 2.5": with_events(base, NewLimit(cycle=_WHEN, limit=2.5 * _LIMIT)),
        "a small topic demands 160 times as much": replace(base, topics=(*base.topics[:-1], grown)),
    }


def _cell(scenario: Scenario, rule: Rule, since: int | None = None) -> str:
    """Return a cell of the table: total traffic relative to the limit, and the worst topic's part of its fair share, at
    the end. `since`: add the number of cycles from cycle `since` until the traffic is good (`Outcome.good`); None: do
    not.
    """
    outcome = play(scenario, rule)
    cell = f"{outcome.accuracy()[-1]:.2f} / {outcome.of_fair()[-1].min():.2f}"
    return cell if since is None else f"{cell} / {outcome.cycles_to_settle(since)}"


def main() -> None:
    """Print the table."""
    others = ["PIP-82 as proposed", "Pulsar 4.2 ResourceGroup", "quota per bundle (16)"]
    rows = []
    for name, scenario in compared().items():
        since = 0 if name == "at rest" else _WHEN
        ours = [_cell(scenario, Fair(tuning), since) for tuning in (ShareTuning(), ShareTuning(overcommit=0.1))]
        rows.append([name, *ours, *(_cell(scenario, rule) for rule in (Proposed(), Native(), Bundled(16)))])
    print("\n".join(table(["Scenario", "Bundlekeel", "`overcommit: 0.1`", *others], rows)))


if __name__ == "__main__":
    main()
