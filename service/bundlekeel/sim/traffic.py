"""Traffic: what every topic carries at a time, as shares of a broker of capacity 1."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from bundlekeel.core.model.load import Floats, Ints
from bundlekeel.sim.scenario import Tenant

DAY = 24 * 60.0
# The random walk of `jitter` forgets half of its deviation in about seven minutes.
WALK_STEP = 60.0
WALK_MEMORY = 0.9


def zipf(count: int, exponent: float, *, largest: float = 1.0) -> Floats:
    """Shares that fall with rank and sum to 1; none above `largest` (the rest is spread over the others)."""
    shares: Floats = np.arange(1, count + 1, dtype=np.float64) ** -exponent
    shares /= shares.sum()
    while shares.max() > largest * (1 + 1e-9):
        capped = shares >= largest
        shares[capped] = largest
        shares[~capped] *= (1 - largest * capped.sum()) / shares[~capped].sum()
    return shares


class TrafficModel:
    """Loads of all topics. `sizes`: each topic's share at factor 1; `tenant`: which factor applies to it."""

    def __init__(self, sizes: Floats, tenant: Ints, tenants: Sequence[Tenant], seed: np.random.SeedSequence) -> None:
        self.sizes = sizes
        self.tenant = tenant
        self.scale: Floats = np.ones(len(tenants))
        self._tenants = tuple(tenants)
        self._steady = all(_is_steady(item) for item in tenants)
        self._rng = np.random.default_rng(seed)
        self._walks: Floats = np.zeros(len(tenants) + 1)
        self._walked = 0.0
        self._last: tuple[bytes, Floats] | None = None

    def topic_loads(self, now: float) -> Floats:
        """Every topic's load at `now` (seconds since the start). The same array as before when nothing changed."""
        factors = self.factors(now)
        key = factors.tobytes()
        if self._last is None or self._last[0] != key:
            self._last = (key, self.sizes * factors[self.tenant])
        return self._last[1]

    def factors(self, now: float) -> Floats:
        """Every tenant's factor. Time must not run backwards where there is jitter."""
        if self._steady:
            return self.scale
        self._walk(now)
        shaped = np.array([factor_of(item, now / 60) for item in self._tenants])
        for place, item in enumerate(self._tenants):
            if item.jitter:
                own, common = math.sqrt(1 - item.correlation), math.sqrt(item.correlation)
                shaped[place] *= max(0.0, 1 + item.jitter * (own * self._walks[place] + common * self._walks[-1]))
        factors: Floats = self.scale * shaped
        return factors

    def _walk(self, now: float) -> None:
        """Advance the random walks (unit variance) by whole steps; the last one is common to all tenants."""
        while self._walked + WALK_STEP <= now:
            self._walked += WALK_STEP
            news = self._rng.normal(size=len(self._walks)) * math.sqrt(1 - WALK_MEMORY**2)
            self._walks = WALK_MEMORY * self._walks + news


def _is_steady(tenant: Tenant) -> bool:
    shapes = (tenant.wave, tenant.ramp, tenant.season, tenant.recorded)
    return not (any(shapes) or tenant.growth_percent_per_day or tenant.jitter)


def factor_of(tenant: Tenant, minute: float) -> float:
    """A tenant's factor at a minute, its random walk apart."""
    factor = math.pow(1 + tenant.growth_percent_per_day / 100, minute / DAY)
    wave, ramp, season, recorded = tenant.wave, tenant.ramp, tenant.season, tenant.recorded
    if wave is not None and minute >= wave.start and (minute - wave.start) % wave.period < wave.high:
        factor *= wave.factor
    if ramp is not None:
        done = min(max((minute - ramp.start) / (ramp.end - ramp.start), 0.0), 1.0)
        factor *= 1 + (ramp.factor - 1) * done
    if season is not None:
        factor *= 1 + season.daily * math.cos(2 * math.pi * (minute / 60 - season.peak_hour) / 24)
        if int(minute // DAY) % 7 >= 5:
            factor *= season.weekend
    if recorded is not None:
        steps = np.arange(len(recorded.factors)) * recorded.step
        factor *= float(np.interp(minute, steps, recorded.factors))
    return factor


def bundle_sizes(tenant: Tenant, capacity: float, rng: np.random.Generator) -> Floats:
    """Each bundle's load at factor 1. `capacity`: that of all brokers of the start together."""
    if tenant.sizes:
        return np.array(tenant.sizes, dtype=np.float64)
    sizes: Floats = zipf(tenant.bundles, tenant.zipf, largest=tenant.largest) * float(tenant.usage or 0.0) * capacity
    if tenant.shuffle:
        rng.shuffle(sizes)
    return sizes
