"""The bundles of a virtual cluster as arrays: names, hash ranges, topics, traffic and owners."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bundlekeel.model.load import Floats, Ints
from bundlekeel.model.names import FULL_UPPER
from bundlekeel.simulator.scenario import Tenant

DAY = 24 * 60.0
# The random walk of `jitter` loses half of its deviation in about seven minutes.
WALK_STEP = 60.0
WALK_MEMORY = 0.9


def zipf(count: int, exponent: float, *, largest: float = 1.0) -> Floats:
    """Return `count` shares by Zipf's law, largest first, that sum to 1.

    A share above `largest` is cut to it, and the excess is distributed over the other shares.
    """
    shares: Floats = np.arange(1, count + 1, dtype=np.float64) ** -exponent
    shares /= shares.sum()
    while shares.max() > largest * (1 + 1e-9):
        capped = shares >= largest
        shares[capped] = largest
        shares[~capped] *= (1 - largest * capped.sum()) / shares[~capped].sum()
    return shares


class TrafficModel:
    """Loads of all topics over time: the size of each topic times the present factor of its tenant.

    `sizes`: each topic's load at factor 1. `tenant`: each topic's index in `tenants`.
    """

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
        """Return every topic's load at `now` (seconds since the start). Returns the same array object until a load
        changes."""
        factors = self.factors(now)
        key = factors.tobytes()
        if self._last is None or self._last[0] != key:
            self._last = (key, self.sizes * factors[self.tenant])
        return self._last[1]

    def factors(self, now: float) -> Floats:
        """Return every tenant's traffic factor at `now`. With jitter, `now` must not decrease from call to call."""
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
        """Advance the random walks (unit variance) by whole steps. The last walk is common to all tenants."""
        while self._walked + WALK_STEP <= now:
            self._walked += WALK_STEP
            news = self._rng.normal(size=len(self._walks)) * math.sqrt(1 - WALK_MEMORY**2)
            self._walks = WALK_MEMORY * self._walks + news


def _is_steady(tenant: Tenant) -> bool:
    shapes = (tenant.wave, tenant.ramp, tenant.season, tenant.recorded)
    return not (any(shapes) or tenant.growth_percent_per_day or tenant.jitter)


def factor_of(tenant: Tenant, minute: float) -> float:
    """Return a tenant's traffic factor at a minute of the run, without its jitter."""
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
    """Return the load of each of the tenant's bundles at factor 1. `capacity`: sum of all brokers' capacities at the
    start."""
    if tenant.sizes:
        return np.array(tenant.sizes, dtype=np.float64)
    sizes: Floats = zipf(tenant.bundles, tenant.zipf, largest=tenant.largest) * float(tenant.usage or 0.0) * capacity
    if tenant.shuffle:
        rng.shuffle(sizes)
    return sizes


# --- bundles ---

# Values of `owner` for bundles without a broker: in transit, or split into other bundles.
IN_TRANSIT = -1
GONE = -2


@dataclass(slots=True)
class VirtualBundles:
    """All bundles and topics as arrays. Arrays whose name begins with `topic_` have one value per topic.

    `unit`: msg/s in and out and bytes/s in and out at a load of 1; `cost`: CPU at a load of 1. `version` changes with
    every split.
    """

    names: list[str]
    lower: Ints
    upper: Ints
    tenant: Ints
    namespace: Ints
    owner: Ints
    unit: Floats
    cost: Floats
    clients_per_topic: Ints
    topic_bundle: Ints
    topic_hash: Ints
    index: dict[str, int]
    topics: Ints
    version: int = 0

    def loads(self, topic_loads: Floats) -> Floats:
        """Return each bundle's load: the sum of the loads of its topics."""
        summed = np.bincount(self.topic_bundle, weights=topic_loads, minlength=len(self.names))
        return summed.astype(np.float64, copy=False)

    def topic_rows(self, row: int) -> Ints:
        """Return the indices of the topics in one bundle."""
        rows: Ints = np.flatnonzero(self.topic_bundle == row)
        return rows

    def split(self, row: int, positions: Sequence[int]) -> list[int]:
        """Split a bundle at these hash positions and return the indices of its children, which have the same owner.

        Raises ValueError if a position is not strictly inside the bundle's hash range.
        """
        low, high = int(self.lower[row]), int(self.upper[row])
        cuts = sorted(set(positions))
        if not cuts or cuts[0] <= low or cuts[-1] >= high:
            raise ValueError(f"{self.names[row]} cannot be split at {positions}")
        edges = [low, *cuts, high]
        namespace = self.names[row].rpartition("/")[0]
        first, count = len(self.names), len(edges) - 1
        for column in ("tenant", "namespace", "owner", "unit", "cost", "clients_per_topic"):
            values = getattr(self, column)
            setattr(self, column, np.concatenate([values, np.repeat(values[row : row + 1], count, axis=0)]))
        self.lower = np.concatenate([self.lower, np.array(edges[:-1])])
        self.upper = np.concatenate([self.upper, np.array(edges[1:])])
        for offset in range(count):
            name = f"{namespace}/0x{edges[offset]:08x}_0x{edges[offset + 1]:08x}"
            self.names.append(name)
            self.index[name] = first + offset
        mine = self.topic_rows(row)
        self.topic_bundle[mine] = first + np.searchsorted(np.array(cuts), self.topic_hash[mine], side="right")
        self.owner[row] = GONE
        self.topics = np.bincount(self.topic_bundle, minlength=len(self.names)).astype(np.int64)
        self.version += 1
        return list(range(first, first + count))


def build(
    tenants: Sequence[Tenant], capacities: Floats, broker_bytes: float, seed: np.random.SeedSequence
) -> tuple[VirtualBundles, TrafficModel]:
    """Return the bundles and the traffic of these tenants. `capacities`: one value per broker at the start.

    The seed determines sizes of bundles and topics, hashes of topics, and jitter.
    """
    for_sizes, for_walks = seed.spawn(2)
    rng = np.random.default_rng(for_sizes)
    parts = [_tenant_part(tenant, capacities, rng) for tenant in tenants]
    names = [name for part in parts for name in part.names]
    offsets = np.cumsum([0, *(len(part.names) for part in parts)])
    topic_bundle = np.concatenate([part.topic_bundle + start for part, start in zip(parts, offsets, strict=False)])
    of_bundle = np.repeat(np.arange(len(tenants)), np.diff(offsets))
    namespaces = {name: place for place, name in enumerate(dict.fromkeys(n.rpartition("/")[0] for n in names))}
    bundles = VirtualBundles(
        names=names,
        lower=np.concatenate([part.lower for part in parts]),
        upper=np.concatenate([part.upper for part in parts]),
        tenant=of_bundle,
        namespace=np.array([namespaces[name.rpartition("/")[0]] for name in names], dtype=np.int64),
        owner=np.concatenate([part.owner for part in parts]),
        unit=np.array([_unit(item, broker_bytes) for item in tenants])[of_bundle],
        cost=np.array([item.cpu_cost for item in tenants])[of_bundle],
        clients_per_topic=np.array([item.clients_per_topic for item in tenants], dtype=np.int64)[of_bundle],
        topic_bundle=topic_bundle,
        topic_hash=np.concatenate([part.topic_hash for part in parts]),
        index={name: row for row, name in enumerate(names)},
        topics=np.bincount(topic_bundle, minlength=len(names)).astype(np.int64),
    )
    sizes = np.concatenate([part.topic_size for part in parts])
    return bundles, TrafficModel(sizes, of_bundle[topic_bundle], tenants, for_walks)


@dataclass(frozen=True, slots=True)
class _Part:
    names: list[str]
    lower: Ints
    upper: Ints
    owner: Ints
    topic_bundle: Ints
    topic_hash: Ints
    topic_size: Floats


def _tenant_part(tenant: Tenant, capacities: Floats, rng: np.random.Generator) -> _Part:
    sizes = bundle_sizes(tenant, float(capacities.sum()), rng)
    number = np.arange(tenant.bundles)
    per_namespace = -(-tenant.bundles // tenant.namespaces)
    within = number % per_namespace
    in_namespace = np.bincount(number // per_namespace, minlength=tenant.namespaces)[number // per_namespace]
    lower = within * (FULL_UPPER + 1) // in_namespace
    upper = np.minimum((within + 1) * (FULL_UPPER + 1) // in_namespace, FULL_UPPER)
    suffix = [""] if tenant.namespaces == 1 else [f"-{n}" for n in range(tenant.namespaces)]
    names = [
        f"{tenant.name}{suffix[space]}/0x{low:08x}_0x{high:08x}"
        for space, low, high in zip((number // per_namespace).tolist(), lower.tolist(), upper.tolist(), strict=True)
    ]
    on = np.array(tenant.owners or range(len(capacities)), dtype=np.int64)
    shares = zipf(tenant.topics, tenant.topic_zipf)
    spots = rng.random((tenant.bundles, tenant.topics))
    hashes = lower[:, None] + (spots * (upper - lower)[:, None]).astype(np.int64)
    return _Part(
        names=names,
        lower=lower,
        upper=upper,
        owner=_balanced(sizes, on, capacities) if tenant.start == "balanced" else on[number % len(on)],
        topic_bundle=np.repeat(number, tenant.topics),
        topic_hash=hashes.ravel(),
        topic_size=(sizes[:, None] * shares[None, :]).ravel(),
    )


def _balanced(sizes: Floats, on: Ints, capacities: Floats) -> Ints:
    """Return the broker of each bundle, such that the brokers are about equally busy.

    The largest bundle is placed first. Each bundle goes to the broker that is least busy at that time.
    """
    owner = np.zeros(len(sizes), dtype=np.int64)
    busy = np.zeros(len(on))
    for row in np.argsort(-sizes, kind="stable").tolist():
        place = int(np.argmin(busy))
        owner[row] = on[place]
        busy[place] += (sizes[row] or 1e-9) / capacities[on[place]]
    return owner


def _unit(tenant: Tenant, broker_bytes: float) -> tuple[float, float, float, float]:
    """Return msg/s in, msg/s out, bytes/s in and bytes/s out at a load of 1. The bytes sum to twice `broker_bytes`."""
    bytes_in = 2 * broker_bytes / (1 + tenant.fanout)
    bytes_out = bytes_in * tenant.fanout
    return bytes_in / tenant.message_bytes, bytes_out / tenant.message_bytes, bytes_in, bytes_out
