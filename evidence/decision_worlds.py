"""Generated loads for `evidence.decision_figures`: the load of each broker over time, before and after moves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from bundlekeel.model.load import Floats, Ints
from bundlekeel.simulator.bundles import zipf

CPU_BASE: Final = 0.05
LAND_SECONDS: Final = 1
# Bundles per broker, by number of brokers.
BUNDLES: Final = {3: 24, 10: 16, 30: 12}


@dataclass(frozen=True, slots=True)
class Moved:
    """A move: the second in which it was planned, the index of the bundle, and the source and target broker."""

    at: float
    bundle: int
    source: int
    target: int


@dataclass(frozen=True)
class World:
    """The load of a cluster over time: bundle i has the load `sizes[i] * factors[row, groups[i]]`.

    `factors`: one row per `grid` seconds. `begins`: second of the first change.
    """

    sizes: Floats
    owners: Ints
    groups: Ints
    factors: Floats
    grid: int
    begins: int = 0

    @property
    def brokers(self) -> int:
        """Number of brokers."""
        return int(self.owners.max()) + 1

    @property
    def seconds(self) -> int:
        """Length of the simulated period, in seconds."""
        return len(self.factors) * self.grid

    @cached_property
    def _summed(self) -> Floats:
        start = np.zeros((1, self.factors.shape[1]))
        return np.concatenate([start, np.cumsum(self.factors, axis=0) * self.grid])

    def carried(self, second: int) -> Floats:
        """Return the integral over time of each group's factor, from the start to `second`."""
        row, rest = divmod(second, self.grid)
        before: Floats = self._summed[row]
        return before + self.factors[row] * rest if rest else before

    def loads(self, moves: list[Moved]) -> Floats:
        """Return the load of each broker, one row per `grid` seconds. A bundle that is being moved counts at its
        source.
        """
        owners, totals, start = self.owners.copy(), np.zeros((len(self.factors), self.brokers)), 0
        for move in [*moves, None]:
            end = len(totals) if move is None else min(len(totals), int((move.at + LAND_SECONDS) / self.grid))
            if end > start:
                share = np.zeros((self.factors.shape[1], self.brokers))
                np.add.at(share, (self.groups, owners), self.sizes)
                totals[start:end] = self.factors[start:end] @ share
                start = end
            if move is not None:
                owners[move.bundle] = move.target
        return totals

    def ratio(self, moves: list[Moved]) -> Floats:
        """Return the load of the most loaded broker over the mean load, one value per `grid` seconds."""
        loads = self.loads(moves)
        ratios: Floats = loads.max(axis=1) / np.maximum(loads.mean(axis=1), 1e-12)
        return ratios


def balanced(brokers: int, per_broker: int, usage: float, rng: np.random.Generator) -> tuple[Floats, Ints]:
    """Return sizes and owners of bundles of unequal sizes, placed so that the load of each broker is about `usage` (0
    to 1).
    """
    count = brokers * per_broker
    sizes = zipf(count, 0.6, largest=max(0.25 / brokers, 1.5 / count)) * usage * brokers
    rng.shuffle(sizes)
    owners, busy = np.zeros(count, dtype=np.int64), np.zeros(brokers)
    for row in np.argsort(-sizes, kind="stable").tolist():
        owners[row] = busy.argmin()
        busy[owners[row]] += sizes[row]
    return sizes, owners


def step(brokers: int, factor: float, seed: int) -> World:
    """Return a world in which one broker gets `factor` times the mean load after two minutes. The total load does not
    change.
    """
    rng = np.random.default_rng((seed, brokers, int(10 * factor)))
    sizes, owners = balanced(brokers, BUNDLES[brokers], 0.22, rng)
    begins, hot = 125 + int(rng.integers(30)), int(rng.integers(brokers))
    factors = np.ones((begins + (600 if factor < 2 else 300), brokers))
    factors[begins:] = (brokers - factor) / (brokers - 1)
    factors[begins:, hot] = factor
    return World(sizes, owners, owners, factors, 1, begins)


def wave(brokers: int, swinging: int, amplitude: float, half: int, shape: str, noise: float, seed: int) -> World:
    """Return a world in which the load of `swinging` brokers swings by `amplitude` after three minutes. `half`: seconds
    of half a swing. `shape`: `square` or `sine`. `noise`: standard deviation of a random factor per broker, drawn again
    every 5 s.
    """
    rng = np.random.default_rng((seed, brokers, swinging, int(100 * amplitude), half))
    sizes, owners = balanced(brokers, 12, 0.45, rng)
    who = rng.choice(brokers, size=swinging, replace=False)
    begins = 180 + 5 * int(rng.integers(7))
    minutes = {300: 40, 600: 70}.get(half, 30)
    time = np.arange((begins + 60 * minutes) // 5) * 5 + 2.5
    phase = (time - begins) / half
    value = np.where(np.floor(phase) % 2 == 0, 1.0, -1.0) if shape == "square" else np.sin(np.pi * phase)
    factors = np.ones((len(time), brokers))
    factors[:, who] = np.where(time < begins, 1.0, 1 + amplitude * value)[:, None]
    if noise:
        factors *= np.maximum(0.1, 1 + noise * rng.normal(size=factors.shape))
    return World(sizes, owners, owners, factors, 5, begins)


def overload(seed: int) -> World:
    """Return a world of four brokers at 75 % of their CPU, one of which rises to 90 %."""
    rng = np.random.default_rng((seed, 4, 75))
    sizes, owners = balanced(4, 12, 0.70, rng)
    begins, hot = 125 + int(rng.integers(30)), int(rng.integers(4))
    factors = np.ones((begins + 600, 4))
    factors[begins:, hot] = (0.90 - CPU_BASE) / 0.70
    return World(sizes, owners, owners, factors, 1, begins)


def slow(kind: str, seed: int) -> World:
    """Return a world of ten brokers over two hours. `kind`: the load of one broker doubles within an hour (`doubling`),
    a daily pattern passes in two hours (`daily`), or the load of each bundle wanders at random (`walk`).
    """
    rng = np.random.default_rng((seed, 10, len(kind)))
    sizes, owners = balanced(10, 12, 0.40, rng)
    time, groups = np.arange(1440) * 5.0, owners
    factors = np.ones((len(time), 10))
    if kind == "doubling":
        factors[:, int(rng.integers(10))] = 1 + np.clip(time / 3600, 0, 1)
    elif kind == "daily":
        swing = 0.4 * np.sin(2 * np.pi * time / 7200)[:, None]
        factors = 1 + np.where(np.arange(10) % 2 == 0, swing, -swing)
    else:
        groups = np.arange(len(sizes))
        walk = np.cumsum(rng.normal(size=(121, len(sizes))) * 0.08, axis=0)
        factors = np.repeat(np.exp(walk - walk[0]), 12, axis=0)[: len(time)]
    return World(sizes, owners, groups, factors, 5)


TELEGRAPH_BUNDLES: Final = 12


def telegraph(seed: int) -> World:
    """Return a world of two brokers with twelve equal bundles each. For an hour, the load of the first broker's bundles
    jumps at random: every 30, 90, 300 or 900 s on average, by the seed.
    """
    rng = np.random.default_rng((seed, 7))
    factors, now, current = np.ones((3600, 2)), 60.0, 1.0
    mean = float(rng.choice([30, 90, 300, 900]))
    while now < len(factors):
        lasts = rng.exponential(mean)
        back = current != 1.0 and rng.random() < 0.7
        current = 1.0 if back else float(np.exp(rng.uniform(-1.1, 1.1)))
        factors[int(now) : int(now + lasts), 0] = current
        now += max(lasts, 5.0)
    owners = np.repeat([0, 1], TELEGRAPH_BUNDLES)
    return World(np.full(2 * TELEGRAPH_BUNDLES, 0.4 / TELEGRAPH_BUNDLES), owners, owners, factors, 1)


def wander(days: int, seed: int) -> World:
    """Return a world of four brokers at 45 % of their CPU with a daily pattern. Their loads also wander at random, so
    that their CPU differs by 15 percentage points on average."""
    rng = np.random.default_rng((seed, 30))
    sizes, owners = balanced(4, 12, 0.45, rng)
    steps = days * 24 * 60
    # An Ornstein-Uhlenbeck process per broker, with a memory of twelve hours. The range of four normal values is 2.06
    # standard deviations on average.
    keep, deviation = np.exp(-1 / 720), 0.15 / 2.06 / 0.45
    news = rng.normal(size=(steps, 4)) * deviation * np.sqrt(1 - keep**2)
    walk = np.zeros((steps, 4))
    walk[0] = rng.normal(size=4) * deviation
    for at in range(1, steps):
        walk[at] = keep * walk[at - 1] + news[at]
    day = 1 + 0.3 * np.sin(2 * np.pi * np.arange(steps) / 1440)
    return World(sizes, owners, owners, np.repeat(np.maximum(0.1, day[:, None] * (1 + walk)), 12, axis=0), 5)
