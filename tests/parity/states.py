"""Seeded clusters for differential tests: small, odd, and changing from turn to turn.

A scenario is a configuration and a few turns. Figures come from short lists as often as from a random number, so that
equal loads, zeros and thresholds met exactly are common, not rare.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

SHEDDERS = ("threshold", "overload", "uniform", "avg")
PLACEMENTS = ("least_long_term_message_rate", "least_resource_usage", "round_robin", "avg")

_NAMESPACES = ("t/a", "t/a", "t/b", "t/long-namespace-name", "x/c", "public/default", "pulsar/system")
MONITORS = (
    "pulsar/b1:8080",
    "pulsar/standalone/b1:8080",
    "sla-monitor/b1:8080",
    "sla-monitor/c/b1:8080",
    "pulsar/b1:80x",
    "pulsar/a:b:80",
    "sla-monitor/no-port",
)
# Names that 4.0 and 4.2 treat alike (three-part names are not namespaces since 4.1).
AGREED_MONITORS = ("pulsar/b1:8080", "pulsar/b1:80x", "pulsar/a:b:80", "sla-monitor/no-port")
_RATES = (0.0, 0.0, 1.0, 10.0, 99.5, 100.0, 1000.0, 1000.0, 5000.0, 20_000.0)
_SIZES = (0.0, 0.0, 1.0, 1e5, 1e5, 1_048_576.0, 5e6, 5e6, 1e7, 2.5e8)
_USAGES = (0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 85.0, 90.0, 95.0, 100.0, 120.0)
_ODD = ("NaN", "NaN", "Infinity", "-Infinity", None, "12.5", -5.0, 1e300, 5e-324)


@dataclass(slots=True)
class Turn:
    """One input: records by name, as the nodes hold them."""

    brokers: dict[str, dict[str, Any]]
    bundles: dict[str, dict[str, Any]]
    recent: list[str]
    select: list[dict[str, Any]] = field(default_factory=list)

    def line(self) -> dict[str, Any]:
        """Return the oracle's request."""
        document: dict[str, Any] = {"brokers": self.brokers, "bundles": self.bundles, "recent": self.recent}
        return document | ({"select": self.select} if self.select else {})


@dataclass(slots=True)
class Scenario:
    """A configuration in Pulsar's keys, and the turns with one memory."""

    seed: int
    config: dict[str, Any]
    turns: list[Turn]


def scenario(
    seed: int, turns: int, *, selections: bool = False, monitors: tuple[str, ...] = MONITORS, fewest: int = 0
) -> Scenario:
    """The scenario of this seed; equal arguments give equal scenarios. `fewest`: candidates of a selection."""
    maker = _Maker(random.Random(seed), selections=selections, monitors=monitors, fewest=fewest)
    return Scenario(seed=seed, config=maker.config(), turns=[maker.turn() for _ in range(turns)])


class _Maker:
    """Builds one scenario's turns, each from the one before."""

    def __init__(self, dice: random.Random, *, selections: bool, monitors: tuple[str, ...], fewest: int) -> None:
        self.dice, self.selections, self.monitors, self.fewest = dice, selections, monitors, fewest
        # How figures are drawn in this scenario: from the lists, at random, all equal, or all zero.
        self.mood = dice.choices(("lists", "random", "equal", "zero"), (6, 5, 2, 1))[0]
        self.odd = dice.random() < 0.25
        brokers = dice.choice((1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 10, 12, 20, dice.randint(1, 60)))
        most = dice.choice((1, 2, 4, 8, 8, 12, dice.randint(0, 40)))
        self.hosts = [f"{dice.choice(('b', 'broker-', 'h.example'))}{number}:8080" for number in range(brokers)]
        dice.shuffle(self.hosts)
        self.number = 0
        self.data: dict[str, dict[str, Any]] = {}
        self.owned = {host: [self.bundle() for _ in range(dice.randint(0, most))] for host in self.hosts}
        self.one_rate, self.one_size = dice.choice(_RATES), dice.choice(_SIZES)
        self.one_usage = dice.choice(_USAGES)

    # --- names and figures ---

    def bundle(self) -> str:
        self.number += 1
        namespace = self.dice.choice(self.monitors if self.dice.random() < 0.05 else _NAMESPACES)
        return f"{namespace}/0x{self.number << 16:08x}_0x{(self.number + 1) << 16:08x}"

    def figure(self, values: tuple[float, ...], scale: float, same: float) -> float:
        if self.mood == "zero":
            return 0.0
        if self.mood == "equal":
            return same
        drawn = self.dice.random()
        return self.dice.choice(values) if self.mood == "lists" or drawn < 0.3 else drawn * drawn * scale

    def rates(self, scale: float = 1.0) -> dict[str, Any]:
        """Return four rates. Some are missing, and in an odd scenario some are not plain numbers."""
        rates: dict[str, Any] = {}
        for name in ("msgRateIn", "msgRateOut"):
            rates[name] = self.figure(_RATES, 20_000, self.one_rate) * scale
        for name in ("msgThroughputIn", "msgThroughputOut"):
            rates[name] = self.figure(_SIZES, 2e8, self.one_size) * scale
        return self.spoilt(rates)

    def spoilt(self, fields: dict[str, Any]) -> dict[str, Any]:
        if self.odd and self.dice.random() < 0.15:
            name = self.dice.choice(list(fields))
            if self.dice.random() < 0.4:
                del fields[name]
            else:
                fields[name] = self.dice.choice(_ODD)
        return fields

    # --- records ---

    def usage(self) -> dict[str, Any]:
        limit = self.dice.choice((100.0, 100.0, 100.0, 0.0, -1.0, 300.0, 64.0))
        drawn = self.figure(_USAGES, 130.0, self.one_usage)
        return self.spoilt({"usage": drawn * limit / 100 if limit > 0 else drawn, "limit": limit})

    def report(self, host: str) -> dict[str, Any]:
        names = self.owned[host]
        listed = names + ([self.dice.choice(names)] if names and self.dice.random() < 0.05 else [])
        if self.dice.random() < 0.05:
            # In transit: another broker's bundle is in this report too.
            listed = listed + [name for other in self.owned.values() for name in other][:2]
        fields: dict[str, Any] = {
            "cpu": self.usage(),
            "memory": self.usage(),
            "directMemory": self.usage(),
            "bandwidthIn": self.usage(),
            "bandwidthOut": self.usage(),
            **self.rates(self.dice.choice((1.0, 5.0))),
            "bundles": listed,
            "lastUpdate": 1_700_000_000_000,
            "loadReportType": "LocalBrokerData",
        }
        if self.odd and self.dice.random() < 0.2:
            del fields[self.dice.choice(("cpu", "directMemory", "bandwidthIn", "bandwidthOut", "bundles"))]
        if self.selections:
            fields["lastStats"] = {name: {"msgRateIn": 1.0} for name in self.dice.sample(names, len(names))}
        return fields

    def averages(self) -> dict[str, Any]:
        short, long = ({"maxSamples": most, "numSamples": 3, **self.rates()} for most in (10, 1000))
        return {"shortTermData": short, "longTermData": long, "topics": self.dice.randint(0, 3)}

    # --- turns ---

    def turn(self) -> Turn:
        dice = self.dice
        self.drift()
        names = [name for owned in self.owned.values() for name in owned]
        for name in names:
            # Averages mostly stay from turn to turn; one in ten bundles has none yet.
            if name not in self.data or dice.random() < 0.3:
                self.data[name] = self.averages()
        twin = dice.random() < 0.2
        if twin and len(names) > 1:
            self.data[names[0]] = self.data[names[-1]]
        bundles = {name: self.data[name] for name in names if dice.random() < 0.92}
        recent = [name for name in names if dice.random() < 0.08] + (["t/gone/0x0_0x1"] if dice.random() < 0.1 else [])
        turn = Turn({host: self.report(host) for host in self.owned}, bundles, recent)
        if self.selections:
            turn.select = [self.selection(names) for _ in range(dice.randint(1, 6))]
        return turn

    def drift(self) -> None:
        """A bundle moves, a broker leaves or comes back, and sometimes nothing changes."""
        dice = self.dice
        for _ in range(dice.randint(0, 3)):
            source, target = dice.choice(list(self.owned)), dice.choice(list(self.owned))
            if self.owned[source]:
                self.owned[target].append(self.owned[source].pop())
        if len(self.owned) > 1 and dice.random() < 0.1:
            left = dice.choice(list(self.owned))
            orphans = self.owned.pop(left)
            self.owned[dice.choice(list(self.owned))].extend(orphans)
        missing = [host for host in self.hosts if host not in self.owned]
        if missing and dice.random() < 0.5:
            self.owned[dice.choice(missing)] = []

    def selection(self, names: list[str]) -> dict[str, Any]:
        hosts = list(self.owned)
        candidates = self.dice.sample(hosts, self.dice.choice((len(hosts), self.dice.randint(self.fewest, len(hosts)))))
        bundle = self.dice.choice(names) if names and self.dice.random() < 0.9 else "t/new/0x0_0x1"
        return {"bundle": bundle, "candidates": candidates}

    # --- configuration ---

    def config(self) -> dict[str, Any]:
        dice = self.dice
        drawn: dict[str, Any] = {
            "loadBalancerCPUResourceWeight": dice.choice((1.0, 1.0, 0.0, 0.7, 2.0)),
            "loadBalancerDirectMemoryResourceWeight": dice.choice((0.0, 1.0, 0.3)),
            "loadBalancerBandwidthInResourceWeight": dice.choice((1.0, 1.0, 0.0, 0.9)),
            "loadBalancerBandwidthOutResourceWeight": dice.choice((1.0, 1.0, 0.0, 1.1)),
            "loadBalancerBandwithInResourceWeight": dice.choice((1.0, 0.0, 0.5)),
            "loadBalancerBandwithOutResourceWeight": dice.choice((1.0, 0.0, 0.5)),
            "loadBalancerBrokerOverloadedThresholdPercentage": dice.choice((85, 85, 50, 30, 0, 100, -10)),
            "loadBalancerHistoryResourcePercentage": dice.choice((0.9, 0.9, 0.0, 0.5, 1.0)),
            "loadBalancerBrokerThresholdShedderPercentage": dice.choice((10, 10, 0, 5, 25, -5)),
            "lowerBoundarySheddingEnabled": dice.random() < 0.5,
            "loadBalancerBundleUnloadMinThroughputThreshold": dice.choice((10.0, 0.0, 0.5, 1.0, 0.0)),
            "loadBalancerAvgShedderLowThreshold": dice.choice((15, 15, 10, 20, 0, 40, -1)),
            "loadBalancerAvgShedderHighThreshold": dice.choice((40, 40, 20, 10, 60)),
            "loadBalancerAvgShedderHitCountLowThreshold": dice.choice((8, 1, 2, 3, 0)),
            "loadBalancerAvgShedderHitCountHighThreshold": dice.choice((2, 1, 3, 4, 0)),
            "maxUnloadPercentage": dice.choice((0.2, 0.2, 0.5, 1.0, 0.05, 0.0)),
            "minUnloadMessage": dice.choice((1000, 1000, 0, 1, 100, 5000)),
            "minUnloadMessageThroughput": dice.choice((1_048_576, 0, 1000, 10_000_000)),
            "loadBalancerMsgRateDifferenceShedderThreshold": dice.choice((50.0, 50.0, 0.0, -1.0, 10.0, 100.0)),
            "loadBalancerMsgThroughputMultiplierDifferenceShedderThreshold": dice.choice(
                (4.0, 4.0, 0.0, 1.0, 1.5, -2.0)
            ),
            "maxUnloadBundleNumPerShedding": dice.choice((-1, -1, 0, 1, 2, 5, -3)),
            "loadBalancerAverageResourceUsageDifferenceThresholdPercentage": dice.choice((10, 0, 5, 30)),
        }
        # Any key may stay at the class's own default; of two spellings either may come first.
        keys = [key for key in drawn if dice.random() < 0.85]
        dice.shuffle(keys)
        return {key: drawn[key] for key in keys}
