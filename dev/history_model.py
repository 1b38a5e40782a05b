"""Generate a cluster and its traffic from a seed, as dense arrays: names, sizes, and daily and weekly patterns."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from bundlekeel.model.load import (
    BANDWIDTH_IN,
    BANDWIDTH_OUT,
    CPU,
    DIRECT_MEMORY,
    KILOBIT_PER_BYTE,
    MSG_RATE,
    RATE_IN,
    RATE_OUT,
    RESOURCES,
    THROUGHPUT,
    THROUGHPUT_IN,
    THROUGHPUT_OUT,
    Floats,
    Ints,
)
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.snapshot import BrokerTable, BundleTable, Snapshot
from bundlekeel.planning.engine import PlanInput
from bundlekeel.recalibration.backtest.frames import CIRCUMSTANCES
from bundlekeel.recalibration.backtest.traffic import RecordedTraffic
from bundlekeel.recalibration.history.frames import document_of
from bundlekeel.recalibration.history.ports import HOUR_MS
from bundlekeel.recalibration.history.record import dumped

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


def dense(world: World, begin: int = 0, end: int | None = None, owner: Ints | None = None) -> RecordedTraffic:
    """Return periods `begin` to `end` (all by default) as arrays. Bundles never move; `owner` (broker index of each
    bundle) replaces their first owners. Values do not depend on `begin`, except for the averages, which start there.
    """
    end = world.days * world.periods_a_day if end is None else end
    cast = _cast(world) if owner is None else replace(_cast(world), owner=owner)
    wall_ms = world.start_ms + np.arange(begin, end, dtype=np.int64) * world.period_seconds * 1000
    rates = np.round(_amount(world, cast, wall_ms)[:, :, None] * cast.unit, 3)
    brokers, per_unit = len(cast.brokers), _per_unit(world, cast)
    carried = np.round(_by_broker(rates, cast.owner, brokers), 3)
    limit = _limits(cast)
    usage = np.einsum("brk,tbk->tbr", per_unit, carried)
    usage[:, :, CPU] += IDLE * limit[0, :, CPU]
    usage[:, :, DIRECT_MEMORY] = 1024.0
    usage[:, :, MSG_RATE:] = 0.0
    shape = len(wall_ms), brokers
    document = document_of(_input(world, cast, wall_ms))
    values = {path: value for path, value in document.items() if path.partition(".")[0] in _STARTS}
    texts, members = _circumstances(document)
    topics = np.bincount(cast.owner, weights=cast.counts[:, 0], minlength=brokers).astype(np.int64)
    return RecordedTraffic(
        wall_ms=wall_ms,
        bundles=cast.bundles,
        brokers=cast.brokers,
        rates=rates,
        counts=cast.counts[None].astype(np.int32),
        owner=np.broadcast_to(cast.owner.astype(np.int32), (len(wall_ms), world.bundles)),
        usage=np.round(usage, 3),
        limit=limit,
        carried=carried,
        topics=np.broadcast_to(topics, shape),
        present=np.ones(shape, dtype=bool),
        reported=np.broadcast_to(wall_ms[:, None], shape),
        started=np.full(shape, world.start_ms - DAY_S * 1000),
        intervals=np.zeros((1, brokers), dtype=np.int64),
        per_unit=per_unit,
        short=rates[0].copy(),
        long=rates[0].copy(),
        samples=np.ones((world.bundles, 2), dtype=np.int64),
        members=np.broadcast_to(members, (len(wall_ms), len(members))),
        texts=texts,
        traits=dumped({name: [0, -1, -1, "", "", ""] for name in cast.brokers}),
        start=dumped(values),
    )


def _limits(cast: _Cast) -> Floats:
    """Return the resource limits of the brokers, constant over time; shape (1, brokers, 6)."""
    limit = np.zeros((1, len(cast.brokers), len(RESOURCES)))
    limit[0, :, CPU], limit[0, :, DIRECT_MEMORY] = cast.cores * CORE, 4096.0
    limit[0, :, BANDWIDTH_IN] = limit[0, :, BANDWIDTH_OUT] = NIC
    return limit


_STARTS: Final = ("params", "memory", "ledger", "guard")


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


def _by_broker(rates: Floats, owner: Ints, brokers: int) -> Floats:
    """Return the summed rates of each broker's bundles; shape (periods, brokers, 4)."""
    order = np.argsort(owner, kind="stable")
    starts = np.searchsorted(owner[order], np.arange(brokers))
    sums: Floats = np.add.reduceat(rates[:, order], starts, axis=1)
    return sums


def _per_unit(world: World, cast: _Cast) -> Floats:
    """Return the resource use per message and per byte, the same on every broker, so that the mean score is about
    `World.load`.
    """
    units = np.zeros((world.brokers, len(RESOURCES), 4))
    usual = 2000.0 * world.brokers * (cast.weight @ cast.unit)
    whole = (world.load - IDLE) * cast.cores.sum() * CORE
    units[:, CPU, RATE_IN] = units[:, CPU, RATE_OUT] = 0.5 * whole / usual[:THROUGHPUT_IN].sum()
    units[:, CPU, THROUGHPUT_IN] = units[:, CPU, THROUGHPUT_OUT] = 0.5 * whole / usual[THROUGHPUT_IN:].sum()
    units[:, BANDWIDTH_IN, THROUGHPUT_IN] = units[:, BANDWIDTH_OUT, THROUGHPUT_OUT] = KILOBIT_PER_BYTE
    units[:, MSG_RATE, RATE_IN] = units[:, MSG_RATE, RATE_OUT] = 1.0
    units[:, THROUGHPUT, THROUGHPUT_IN] = units[:, THROUGHPUT, THROUGHPUT_OUT] = 1.0
    return units


def _circumstances(document: dict[str, object]) -> tuple[tuple[str, ...], Ints]:
    texts = []
    for path in CIRCUMSTANCES:
        parts = {key: value for key, value in document.items() if key.startswith(f"{path}.")}
        texts.append(dumped(document.get(path, parts)))
    numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    return tuple(numbers), np.array([numbers[text] for text in texts], dtype=np.int32)


def _input(world: World, cast: _Cast, wall_ms: Ints) -> PlanInput:
    none, whole = np.zeros((0, 4)), np.zeros(0, dtype=np.int64)
    brokers = BrokerTable(
        ids=(),
        usage=np.zeros((0, 6)),
        limit=np.zeros((0, 6)),
        from_traffic=np.zeros((0, 6), dtype=bool),
        overridden=(),
        traffic=none,
        last_update=whole,
        start_timestamp=whole,
        topics=whole,
        load_managers=(),
        versions=(),
    )
    bundles = BundleTable(
        names=(),
        starts=np.zeros(1, dtype=np.int64),
        owner=whole,
        namespaces=(),
        namespace=whole,
        latest=none,
        short=none,
        long=none,
        samples=np.zeros((0, 2), dtype=np.int64),
        counts=np.zeros((0, 3), dtype=np.int64),
        system=np.zeros(0, dtype=bool),
    )
    snapshot = Snapshot(
        wall_ms=int(wall_ms[0]),
        mode="modular",
        brokers=brokers,
        bundles=bundles,
        excluded=(),
        registered=len(cast.brokers),
        digest="",
    )
    return PlanInput(snapshot=snapshot, params=world.params)
