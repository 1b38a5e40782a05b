"""Generate a cluster and its traffic from a seed, as dense arrays: names, sizes, and daily and weekly patterns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from bundlekeel.model.averages import Averages
from bundlekeel.model.load import (
    BANDWIDTH_IN,
    BANDWIDTH_OUT,
    CPU,
    DIRECT_MEMORY,
    KILOBIT_PER_BYTE,
    REPORTED_RESOURCES,
    RESOURCES,
    THROUGHPUT_IN,
    THROUGHPUT_OUT,
    BrokerReport,
    ExcludedBroker,
    Floats,
    Ints,
)
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.snapshot import Bools, build_snapshot
from bundlekeel.planning.costs import CpuCosts
from bundlekeel.planning.engine import PlanInput
from bundlekeel.recalibration.history.ports import HOUR_MS

# A Monday, 00:00 UTC.
START_MS: Final = 1_699_833_600_000
DAY_S: Final = 86_400
BUNDLES_PER_NAMESPACE: Final = 16
NAMESPACES_PER_TENANT: Final = 4
IDLE: Final = 0.04
CORE: Final = 100.0
NIC: Final = 1e7


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A generated cluster and its traffic.

    load: approximate mean score (CPU use, 0 to 1) over brokers and time.
    daily, weekly: reduction at night and on weekends (0 to 1).
    growth: relative growth per day.
    noise: relative standard deviation of a bundle's traffic from hour to hour.
    flicker: standard deviation from snapshot to snapshot, as a part of `noise`.
    zipf: exponent of the bundles' sizes.
    spiky: number of tenants that multiply their traffic for some minutes several times per day.
    unequal: share of brokers with twice the cores.
    params: parameters of the balancer.
    recording: whether the balancer moves and splits bundles.
    reading_periods: each broker is read once in this many periods, in turn; counters: from counters, not load reports.
    """

    seed: int = 1
    days: int = 14
    brokers: int = 10
    bundles: int = 200
    period_seconds: int = 60
    start_ms: int = START_MS
    load: float = 0.4
    daily: float = 0.5
    weekly: float = 0.3
    growth: float = 0.005
    noise: float = 0.1
    flicker: float = 0.3
    zipf: float = 0.8
    spiky: int = 2
    unequal: float = 0.0
    params: Parameters = field(default_factory=Parameters)
    recording: bool = True
    reading_periods: int = 1
    counters: bool = False

    @property
    def periods_a_day(self) -> int:
        """Number of snapshots per day."""
        return DAY_S // self.period_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cast:
    """The constant part of a world: names, sizes, tenants and brokers."""

    bundles: tuple[str, ...]
    brokers: tuple[str, ...]
    tenant: Ints
    unit: Floats
    weight: Floats
    counts: Ints
    owner: Ints
    cores: Floats
    peak: Floats
    depth: Floats
    spiky: Ints


def _cast(world: World) -> _Cast:
    rng = np.random.default_rng([world.seed, 0])
    count, names, tenants = world.bundles, [], []
    for row in range(count):
        namespace, place = divmod(row, BUNDLES_PER_NAMESPACE)
        tenant = namespace // NAMESPACES_PER_TENANT
        low = place * 0x1000_0000
        high = min(low + 0x1000_0000, 0xFFFF_FFFF)
        names.append(f"tenant-{tenant:04d}/ns-{namespace:06d}/0x{low:08x}_0x{high:08x}")
        tenants.append(tenant)
    size = np.arange(1, count + 1, dtype=np.float64) ** -world.zipf
    # No bundle has more than a third of a mean broker's load, because a larger one would need a split and not a move.
    weight = np.minimum(size / size.sum(), 1 / (3 * world.brokers))
    rng.shuffle(weight)
    fan_out, message = rng.integers(1, 4, count), rng.lognormal(6.5, 0.8, count)
    unit = np.column_stack([np.ones(count), fan_out, message, message * fan_out])
    topics = np.maximum(1, (weight / weight.mean() * 20).astype(np.int64))
    tenant_count = tenants[-1] + 1
    return _Cast(
        bundles=tuple(names),
        brokers=tuple(f"broker-{row:04d}:8080" for row in range(world.brokers)),
        tenant=np.array(tenants),
        unit=unit,
        weight=weight / weight.sum(),
        counts=np.column_stack([topics, topics * fan_out, topics * 2]),
        owner=rng.permutation(np.arange(count) % world.brokers),
        cores=np.where(rng.random(world.brokers) < world.unequal, 16.0, 8.0),
        peak=rng.normal(14.0, 2.5, tenant_count),
        depth=rng.uniform(0.5, 1.0, tenant_count),
        spiky=rng.permutation(tenant_count)[: world.spiky],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedTraffic:
    """T periods of N bundles on B brokers. Units and columns as in `model.load`.

    wall_ms (T,). rates (T, N, 4), owner (T, N; -1: not reported). counts (N, 3): topics, consumers, producers. limit
    (B, 6). present (T, B): whether the broker is in the snapshot. reported (T, B): time of the report; a broker with an
    earlier time than its last report has no new one. excluded: brokers without a usable report, by period. foreign (T,
    B): CPU that no bundle causes, in addition to `IDLE`, in percent of a core; None: none. `costs`: CPU per message and
    byte. `world`: its parameters, start and counters.
    """

    world: World
    wall_ms: Ints
    bundles: tuple[str, ...]
    brokers: tuple[str, ...]
    rates: Floats
    counts: Ints
    owner: Ints
    limit: Floats
    present: Bools
    reported: Ints
    costs: CpuCosts
    excluded: Mapping[int, tuple[ExcludedBroker, ...]] = field(default_factory=dict)
    foreign: Floats | None = None

    @property
    def periods(self) -> int:
        """Number of periods."""
        return len(self.wall_ms)

    def carried(self, period: int) -> Floats:
        """Return the traffic of each broker, shape (B, 4)."""
        sums = np.zeros((len(self.brokers) + 1, 4))
        np.add.at(sums, self.owner[period], self.rates[period])
        return np.round(sums[:-1], 3)

    def usage(self, period: int) -> Floats:
        """Return the usage of each broker's reported resources, shape (B, 4)."""
        carried = self.carried(period)
        usage = np.zeros((len(self.brokers), REPORTED_RESOURCES))
        messages, size = carried[:, :THROUGHPUT_IN].sum(axis=1), carried[:, THROUGHPUT_IN:].sum(axis=1)
        usage[:, CPU] = np.column_stack([messages, size]) @ self.costs.prior + IDLE * self.limit[:, CPU]
        if self.foreign is not None:
            usage[:, CPU] = np.minimum(usage[:, CPU] + self.foreign[period], self.limit[:, CPU])
        usage[:, DIRECT_MEMORY] = 1024.0
        usage[:, BANDWIDTH_IN] = carried[:, THROUGHPUT_IN] * KILOBIT_PER_BYTE
        usage[:, BANDWIDTH_OUT] = carried[:, THROUGHPUT_OUT] * KILOBIT_PER_BYTE
        return np.round(usage, 3)


def dense(world: World, begin: int = 0, end: int | None = None) -> GeneratedTraffic:
    """Return periods `begin` to `end` (all by default) as arrays, in which bundles never move."""
    end = world.days * world.periods_a_day if end is None else end
    cast = _cast(world)
    numbers = np.arange(begin, end, dtype=np.int64)
    wall_ms = world.start_ms + numbers * world.period_seconds * 1000
    shape = len(wall_ms), world.brokers
    # Brokers are read in turn: each one in every `reading_periods`-th period.
    late = (numbers[:, None] - np.arange(world.brokers)) % world.reading_periods
    return GeneratedTraffic(
        world=world,
        wall_ms=wall_ms,
        bundles=cast.bundles,
        brokers=cast.brokers,
        rates=np.round(_amount(world, cast, wall_ms)[:, :, None] * cast.unit, 3),
        counts=cast.counts,
        owner=np.broadcast_to(cast.owner, (len(wall_ms), world.bundles)),
        limit=_limits(cast),
        present=np.ones(shape, dtype=bool),
        reported=wall_ms[:, None] - late * world.period_seconds * 1000,
        costs=_costs(world, cast),
    )


def inputs_of(traffic: GeneratedTraffic, averages: Averages | None = None) -> Iterator[PlanInput]:
    """Yield the input of a plan in each period, as a sidecar that never plans would record it.

    `averages`: those of earlier periods, which are continued; None: the first period is the first sample.
    """
    world, averages = traffic.world, Averages() if averages is None else averages
    order = np.argsort(np.array(traffic.bundles, dtype=object), kind="stable")
    last: dict[int, BrokerReport] = {}
    for period, wall_ms in enumerate(traffic.wall_ms.tolist()):
        usage, carried, owner = traffic.usage(period), traffic.carried(period), traffic.owner[period][order]
        for row in np.flatnonzero(traffic.present[period]).tolist():
            if row in last and traffic.reported[period, row] <= last[row].last_update:
                continue
            own = order[owner == row]
            last[row] = BrokerReport(
                broker_id=traffic.brokers[row],
                usage=usage[row],
                limit=traffic.limit[row, :REPORTED_RESOURCES],
                traffic=carried[row],
                last_update=int(traffic.reported[period, row]),
                start_timestamp=world.start_ms - DAY_S * 1000,
                num_topics=int(traffic.counts[own, 0].sum()),
                bundle_names=tuple(traffic.bundles[number] for number in own.tolist()),
                bundle_traffic=traffic.rates[period, own],
                bundle_counts=traffic.counts[own],
                interval_ms=1000 * world.period_seconds * world.reading_periods if world.counters else 0,
            )
        reports = [last[row] for row in np.flatnonzero(traffic.present[period]).tolist()]
        for report in reports:
            averages.add_report(report, now_ms=wall_ms)
        excluded = traffic.excluded.get(period, ())
        snapshot = build_snapshot(reports=reports, averages=averages, wall_ms=wall_ms, excluded=excluded)
        yield PlanInput(snapshot=snapshot, params=world.params)


def _limits(cast: _Cast) -> Floats:
    """Return the resource limits of the brokers; shape (brokers, 6)."""
    limit = np.zeros((len(cast.brokers), len(RESOURCES)))
    limit[:, CPU], limit[:, DIRECT_MEMORY] = cast.cores * CORE, 4096.0
    limit[:, BANDWIDTH_IN] = limit[:, BANDWIDTH_OUT] = NIC
    return limit


def _amount(world: World, cast: _Cast, wall_ms: Ints) -> Floats:
    """Return messages per second into each bundle; shape (periods, bundles)."""
    seconds = (wall_ms - world.start_ms) / 1000
    hour, day = (seconds / 3600) % 24, seconds / DAY_S
    angle = 2 * np.pi * (hour[:, None] - cast.peak) / 24
    season = 1 + world.daily * cast.depth * np.cos(angle)
    season *= np.where((day.astype(np.int64) % 7 >= 5)[:, None], 1 - world.weekly * cast.depth, 1.0)
    season *= ((1 + world.growth) ** day)[:, None]
    _spike(world, cast, wall_ms, season)
    total = 2000.0 * world.brokers
    return season[:, cast.tenant] * _noise(world, wall_ms) * (cast.weight * total)


def _spike(world: World, cast: _Cast, wall_ms: Ints, season: Floats) -> None:
    """Multiply the traffic of the spiky tenants for some minutes, several times per day."""
    day = (wall_ms - world.start_ms) // (DAY_S * 1000)
    for number in np.unique(day).tolist():
        rng = np.random.default_rng([world.seed, 1, number])
        for tenant in cast.spiky.tolist():
            for _ in range(int(rng.integers(2, 6))):
                begin = world.start_ms + int((number + rng.random()) * DAY_S * 1000)
                inside = (wall_ms >= begin) & (wall_ms < begin + int(rng.uniform(10, 45) * 60_000))
                season[inside, tenant] *= rng.uniform(2.0, 5.0)


def _noise(world: World, wall_ms: Ints) -> Floats:
    """Return random factors around 1 that change slowly from hour to hour and a little from period to period; shape
    (periods, bundles). The factors of a period do not depend on the first period, if that starts at a full hour.
    """
    wall_ms = wall_ms - world.start_ms + START_MS
    hours = wall_ms // HOUR_MS
    first, last = int(hours[0]), int(hours[-1]) + 1
    knots = np.array([_normal(world, 2, hour) for hour in range(first, last + 1)])
    place, part = hours - first, ((wall_ms % HOUR_MS) / HOUR_MS)[:, None]
    slow = knots[place] * (1 - part) + knots[place + 1] * part
    quick = np.array([_normal(world, 3, int(at)) for at in wall_ms])
    return np.exp(world.noise * (slow + world.flicker * quick))


def _normal(world: World, kind: int, number: int) -> Floats:
    return np.random.default_rng([world.seed, kind, number]).standard_normal(world.bundles)


def _costs(world: World, cast: _Cast) -> CpuCosts:
    """Return the CPU per message and per byte of every broker, so that the mean score is about `World.load`."""
    usual = 2000.0 * world.brokers * (cast.weight @ cast.unit)
    whole = (world.load - IDLE) * cast.cores.sum() * CORE
    return CpuCosts(
        prior=(
            float(0.5 * whole / usual[:THROUGHPUT_IN].sum()),
            float(0.5 * whole / usual[THROUGHPUT_IN:].sum()),
        )
    )
