"""Learn the CPU cost of traffic: the CPU per message, the CPU per byte, and the base of each broker.

The CPU of a broker is a base plus the cost of its traffic. The base is the CPU that no bundle causes: function workers,
proxies, garbage collection, compaction, other processes. Two sources give the cost:

* a comparison of all brokers at one time (`prior`): a low quantile of their CPU per unit of traffic, because most of
  them have a small base. This works from the first snapshot on;
* changes within one broker over time (`moments`). A constant base does not change, so it cancels out.

Ridge regression combines both: while traffic does not change, the comparison alone counts. Each broker has a factor,
its own cost divided by the cluster's; without evidence, the factor is near 1. Evidence is weighted by measured time, so
readings every 3 s and reports every 60 s lead to the same costs. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from bundlekeel.model.load import CPU, RATE_IN, RATE_OUT, Floats
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.snapshot import Bools, BrokerTable, Snapshot

# A broker with less than this share of the mean throughput is idle: its usage is the CPU of a broker without traffic.
IDLE_SHARE: Final = 0.05
# An idle broker that uses more of its CPU limit than this has a busy host, so its usage is not recorded as idle CPU.
IDLE_LIMIT: Final = 0.35
# Above `SATURATED` of its limit, CPU does not grow with traffic any more. A container with a CPU quota is throttled in
# parts of each 100 ms long before: above `_THROTTLED`, it reports less CPU than its traffic costs. Such a value is
# useful in a comparison of brokers, but changes over time are not measured against it.
SATURATED: Final = 0.97
_THROTTLED: Final = 0.85
# Comparison of brokers: the quantile, and the least traffic of a compared broker as share of the mean traffic. A lower
# quantile would choose brokers whose report has the traffic of new bundles, but not their CPU yet.
_QUANTILE: Final = 0.35
_COMPARED_SHARE: Final = 0.1
# Tested shares of the cost that messages cause (bytes cause the rest), and the penalty for a share far from one half.
_SPLITS: Final = np.linspace(0.05, 0.95, 19)
_SPLIT_RIDGE: Final = 0.1
# Minutes over which levels are averaged. The near level is a mean, because a report measures traffic and CPU at
# different times. Changes are measured against the far level. Counters measure traffic and CPU at the same time, so
# `_NEAR_COUNTED_MINUTES` only has to smooth the noise of short readings. After `_FORGET_MINUTES`, evidence has lost
# 63 % of its weight; after `_COMPARE_MINUTES`, a comparison of brokers has.
_NEAR_MINUTES: Final = 3.0
_NEAR_COUNTED_MINUTES: Final = 0.2
_FAR_MINUTES: Final = 60.0
_FORGET_MINUTES: Final = 720.0
_COMPARE_MINUTES: Final = 60.0
# Smaller relative changes of traffic are noise, and noise in traffic pulls a regression to zero. After a larger change,
# a report can still contain the CPU from before the change.
_LEAST_CHANGE: Final = 0.1
# A change of CPU by this share of the limit that traffic does not explain is a new base, not evidence of costs.
_JUMP: Final = 0.05
# Assumed relative standard deviations without evidence: of the cluster's costs, and of a broker's factor.
_COST_SPREAD: Final = 0.5
_FACTOR_SPREAD: Final = 0.3
_FACTORS: Final = (0.2, 5.0)
_MOST_COST: Final = 5.0
# Least standard deviation of CPU, as share of the limit.
_NOISE: Final = 0.01
_WIDE: Final = 1.96
# Number of values of a `BrokerEvidence`, and the format in which they are rounded.
_COLUMNS: Final = 17
_NINE_DIGITS: Final = " ".join(["%.9g"] * _COLUMNS)

Three = tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerEvidence:
    """Summary of the measurements of one broker. A level is (msg/s, bytes/s, CPU in percent of one core).

    `reported`: `lastUpdate` of the newest measurement (Unix ms). `steady`: msg/s and bytes/s that have changed little
    since `since` (Unix ms, 0: since before the first report). `idle`: CPU without traffic, -1: never measured. `near`,
    `far`: mean level over some minutes, and over an hour. Both start again when the CPU that no bundle causes changes.
    `moments`: sums of squares and products of near minus far (messages², messages bytes, bytes², messages CPU, bytes
    CPU). `noise`: variance of the CPU that costs do not explain.
    """

    reported: int = 0
    steady: tuple[float, ...] = (0.0, 0.0)
    since: int = 0
    idle: float = -1.0
    near: Three = (0.0, 0.0, 0.0)
    far: Three = (0.0, 0.0, 0.0)
    moments: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0, 0.0)
    noise: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuCosts:
    """Everything learned about CPU costs, as stored between cycles.

    `prior`: costs from a comparison of all brokers, percent of one core per msg/s and per byte/s, (0, 0): unknown;
    `compared`: newest `lastUpdate` in that comparison (Unix ms).
    """

    brokers: Mapping[str, BrokerEvidence] = field(default_factory=dict)
    prior: tuple[float, float] = (0.0, 0.0)
    compared: int = 0

    def least_idle(self) -> float:
        """Return the least CPU that any broker used without traffic, percent of one core; 0: no broker was idle."""
        return min((item.idle for item in self.brokers.values() if item.idle >= 0), default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostEstimate:
    """Estimated CPU costs of traffic, with 95 % intervals (low, high). All values are 0 or more.

    `cost`, `cost_interval`: costs in the cluster, in percent of one core per msg/s and per byte/s, shapes (2,) and (2,
    2). `factor`, `factor_interval`: cost of each broker divided by the cluster's cost, shapes (n,) and (n, 2).
    `prior`: `CpuCosts.prior`. `matrix`, `precision`, `variance`: of the regressions, from which the intervals follow.
    """

    cost: Floats
    factor: Floats
    prior: Floats
    multiple: Floats
    matrix: Floats
    precision: Floats
    variance: float

    @property
    def cost_interval(self) -> Floats:
        """Return the interval of `cost`."""
        spread = _WIDE * np.sqrt(self.variance * np.diagonal(np.linalg.inv(self.matrix)))
        return self.prior[:, None] * _around(self.multiple, spread)

    @property
    def factor_interval(self) -> Floats:
        """Return the interval of `factor`."""
        return _around(self.factor, _WIDE * np.sqrt(self.variance / self.precision))

    def caused(self, traffic: Floats, factor: Floats | float) -> Floats:
        """Return the CPU that this traffic costs, percent of one core; one value per row of `traffic`, shape (n, 4).

        `factor`: cost of the broker divided by the cluster's cost, for each row or for all.
        """
        cpu: Floats = _volumes(traffic) @ self.cost * factor
        return cpu


NO_COSTS: Final = CpuCosts()


def _around(values: Floats, spread: Floats) -> Floats:
    """Return the interval (low, high) around each value, without negative parts."""
    interval: Floats = np.clip(np.column_stack((values - spread, values + spread)), 0.0, None)
    return interval


class _Columns:
    """Measurements of brokers (`BrokerEvidence`) as columns, one row per broker."""

    def __init__(self, evidence: Mapping[str, BrokerEvidence], ids: tuple[str, ...]) -> None:
        none = BrokerEvidence()
        rows = [
            (item.reported, item.idle, *item.near, *item.far, *item.moments, item.noise, *item.steady, item.since)
            for item in (evidence.get(broker, none) for broker in ids)
        ]
        table: Floats = np.array(rows, dtype=np.float64).reshape(len(ids), _COLUMNS)
        self.table = table
        self.reported, self.idle, self.noise = table[:, 0], table[:, 1], table[:, 13]
        self.steady, self.since = table[:, 14:16], table[:, 16]
        self.near, self.far, self.moments = table[:, 2:5], table[:, 5:8], table[:, 8:13]

    def evidence(self, row: int) -> BrokerEvidence:
        """Return the measurements of the broker in this row, rounded to nine digits to keep the stored data small."""
        values = [float(text) for text in (_NINE_DIGITS % tuple(self.table[row].tolist())).split()]
        return BrokerEvidence(
            reported=int(self.reported[row]),
            steady=(values[14], values[15]),
            since=int(self.since[row]),
            idle=values[1],
            near=(values[2], values[3], values[4]),
            far=(values[5], values[6], values[7]),
            moments=(values[8], values[9], values[10], values[11], values[12]),
            noise=values[13],
        )


def _volumes(traffic: Floats) -> Floats:
    """Return msg/s and bytes/s, each the sum of in and out; shape (n, 2). `traffic`: columns of `TRAFFIC`."""
    # Every second column is a rate in, the next one the same rate out.
    volumes: Floats = traffic[:, RATE_IN::2] + traffic[:, RATE_OUT::2]
    return volumes


def learn(before: CpuCosts, snapshot: Snapshot, params: Parameters, unsettled: Collection[str] = ()) -> CpuCosts:
    """Return the CPU costs of traffic, updated with this snapshot; reports that were already used add nothing.

    Brokers in `unsettled` are ignored: traffic and CPU in their reports are from different times. Brokers that have
    just started (which needs CPU), have no CPU limit, or use all of their CPU are ignored, too.
    """
    brokers = snapshot.brokers
    if not len(brokers):
        return before
    columns = _Columns(before.brokers, brokers.ids)
    stored = columns.table.copy()
    usage, limit, volumes = brokers.usage[:, CPU], brokers.limit[:, CPU], _volumes(brokers.traffic)
    started_ms = 1000 * (params.statistics_interval_seconds + params.host_usage_interval_seconds)
    settled = np.array([broker not in unsettled for broker in brokers.ids], dtype=bool)
    usable = settled & (snapshot.wall_ms - brokers.start_timestamp >= started_ms) & (limit > 0)
    nearly = volumes[:, 1] <= IDLE_SHARE * volumes[:, 1].mean() if volumes[:, 1].any() else np.zeros_like(usable)
    idle_rows = nearly & usable & (usage <= IDLE_LIMIT * limit)
    columns.idle[idle_rows] = usage[idle_rows]
    usable &= usage < SATURATED * limit
    alive = {*brokers.ids, *(item.broker_id for item in snapshot.excluded)}
    evidence = {broker: item for broker, item in before.brokers.items() if broker in alive}
    costs = CpuCosts(brokers=evidence, prior=before.prior, compared=before.compared)
    steady = _hold(columns, snapshot, volumes, started_ms)
    fresh = usable & steady & (brokers.last_update > columns.reported)
    fresh &= (usage < _THROTTLED * limit) | (columns.reported == 0)
    if fresh.any() and any(before.prior):
        _follow(columns, _estimate(costs, columns, brokers.ids, limit), snapshot, params, fresh)
    elif fresh.any():
        _restart(columns, np.column_stack((volumes, usage)), fresh)
    columns.reported[fresh] = brokers.last_update[fresh]
    for row in np.flatnonzero((columns.table != stored).any(axis=1)).tolist():
        evidence[brokers.ids[row]] = columns.evidence(row)
    costs = replace(costs, brokers=evidence)
    newest = int(columns.reported.max(initial=0))
    if any(costs.prior) and newest <= costs.compared:
        return costs
    # Compare the last usable level of every broker: the few brokers without moves in progress are not representative.
    levels, compared = columns.near, columns.reported > 0
    if not compared.any():
        levels, compared = np.column_stack((volumes, usage)), usage > 0
    idle = np.where(columns.idle >= 0, columns.idle, costs.least_idle())
    prior = _compare(levels[compared, :2], np.maximum(levels[:, 2] - idle, 0.0)[compared])
    return _blend(costs, prior, newest)


def _hold(columns: _Columns, snapshot: Snapshot, volumes: Floats, wait_ms: float) -> Bools:
    """Update the times since which traffic is steady; return a mask of brokers whose CPU and traffic belong together.

    Counters measure CPU and traffic at the same time. A load report does not, so its traffic must be steady for
    `wait_ms`.
    """
    reported = snapshot.brokers.last_update
    repeated = columns.steady.any(axis=1) | (columns.reported > 0)
    changed = (np.abs(volumes - columns.steady) > _LEAST_CHANGE * columns.steady).any(axis=1)
    columns.steady[changed] = volumes[changed]
    columns.since[changed] = np.where(repeated, reported, 0)[changed]
    return snapshot.counted | (reported - columns.since >= wait_ms)


def _blend(costs: CpuCosts, prior: tuple[float, float], newest: int) -> CpuCosts:
    """Return the costs, adapted to a newer comparison of brokers; if the last comparison is old, they change more."""
    if not any(prior):
        return costs
    if any(costs.prior):
        weight = float(_gain((newest - costs.compared) / 60_000 / _COMPARE_MINUTES))
        messages, size = (old + weight * (new - old) for old, new in zip(costs.prior, prior, strict=True))
        prior = float(f"{messages:.9g}"), float(f"{size:.9g}")
    return replace(costs, prior=prior, compared=newest)


def _gain(times: float | Floats) -> Floats:
    """Return the share (0 to 1) of a sudden change that an exponential mean shows after `times` time constants."""
    gain: Floats = -np.expm1(-np.asarray(times))
    return gain


def _compare(volumes: Floats, caused: Floats) -> tuple[float, float]:
    """Return the CPU cost per msg/s and per byte/s by comparison of the brokers.

    `volumes`: msg/s and bytes/s of each broker, shape (n, 2). `caused`: its CPU minus the CPU of an idle broker. For
    each tested split of the cost between messages and bytes, the cost is a low quantile of CPU per traffic. The chosen
    split leaves the least CPU unexplained; it is one half if all splits are equally good.
    """
    if not volumes.any():
        return 0.0, 0.0
    means = volumes.mean(axis=0)
    relative = volumes / np.where(means > 0, means, np.inf)
    splits = _SPLITS if (means > 0).all() else np.array([1.0 if means[0] > 0 else 0.0])
    rows = (relative.mean(axis=1) >= _COMPARED_SHARE * relative.mean()) & (caused > 0)
    if not rows.any():
        return 0.0, 0.0
    size = relative[rows] @ np.stack((splits, 1 - splits))
    ratio, weight = caused[rows, None] / np.maximum(size, 1e-12), np.minimum(size, 1.0)
    order = np.argsort(ratio, axis=0, kind="stable")
    tested = np.arange(len(splits))
    summed = weight[order, tested].cumsum(axis=0)
    place = (summed < _QUANTILE * summed[-1]).sum(axis=0)
    scale = ratio[order[place, tested], tested]
    rest = caused[rows, None] - size * scale
    loss = np.where(rest > 0, _QUANTILE, _QUANTILE - 1) * rest
    total = loss.sum(axis=0) / caused[rows].sum() + _SPLIT_RIDGE * (splits - 0.5) ** 2
    best = int(np.argmin(np.round(total, 9)))
    messages, each = splits[best] * scale[best], (1 - splits[best]) * scale[best]
    return float(messages / means[0]) if means[0] > 0 else 0.0, float(each / means[1]) if means[1] > 0 else 0.0


def _restart(columns: _Columns, levels: Floats, rows: Bools) -> None:
    """Restart the short-term and the long-term mean of the brokers in the mask `rows` with their present `levels`."""
    columns.near[rows] = columns.far[rows] = levels[rows]


def _follow(columns: _Columns, costs: CostEstimate, snapshot: Snapshot, params: Parameters, fresh: Bools) -> None:
    """Update the mean traffic and CPU of brokers with new readings (mask `fresh`), and learn costs from the changes."""
    brokers = snapshot.brokers
    usage, limit = brokers.usage[:, CPU], brokers.limit[:, CPU]
    levels = np.column_stack((_volumes(brokers.traffic), usage))
    elapsed = (brokers.last_update - columns.reported) / 60_000
    own = np.array(snapshot.intervals or 0) / 60_000
    measured = np.minimum(elapsed, np.where(own > 0, own, params.statistics_interval_seconds / 60))
    # A broker reports changes soon, so during a longer silence its load was unchanged.
    near_minutes = np.where(own > 0, _NEAR_COUNTED_MINUTES, _NEAR_MINUTES)
    near, far = (
        before + _gain(elapsed / scale)[:, None] * (levels - before)
        for before, scale in ((columns.near, near_minutes), (columns.far, _FAR_MINUTES))
    )
    change = near - far
    predicted, unexplained = _split_change(change, costs)
    least = np.maximum(_JUMP * limit, 4 * np.sqrt(columns.noise))
    # Short readings vary more by chance, so one reading must differ more. A real jump also shows in the mean, later.
    chance = np.sqrt(np.maximum(1 / np.maximum(measured, 1e-9), 1.0))
    expected, beyond = _split_change(levels - columns.far, costs)
    jumped = (np.abs(unexplained) > least + np.abs(predicted)) | (np.abs(beyond) > least * chance + np.abs(expected))
    jumped |= columns.far[:, 2] >= _THROTTLED * limit
    jumped = fresh & (jumped | (columns.reported == 0) | (brokers.start_timestamp > columns.reported))
    _restart(columns, levels, jumped)
    rows = fresh & ~jumped
    columns.near[rows], columns.far[rows] = near[rows], far[rows]
    columns.noise[rows] += (_gain(measured / _FAR_MINUTES) * (unexplained**2 - columns.noise))[rows]
    columns.moments[fresh] *= np.exp(-elapsed / _FORGET_MINUTES)[fresh, None]
    varied = (np.abs(change[:, :2]) > _LEAST_CHANGE * far[:, :2]).any(axis=1) & rows
    messages, size, cpu = change[varied].T
    products = np.column_stack((messages**2, messages * size, size**2, messages * cpu, size * cpu))
    # The near levels of successive readings overlap, so each reading is only a part of one measurement.
    columns.moments[varied] += (measured / (2 * near_minutes))[varied, None] * products


def _split_change(change: Floats, costs: CostEstimate) -> tuple[Floats, Floats]:
    """Divide a change of CPU into the part that the change of traffic explains, and the rest.

    `change`: change of msg/s, bytes/s and CPU of each broker, shape (n, 3).
    """
    explained = change[:, :2] @ costs.cost * costs.factor
    return explained, change[:, 2] - explained


def estimate(costs: CpuCosts, ids: tuple[str, ...], limit: Floats) -> CostEstimate:
    """Return the cluster's CPU costs and the factors of the brokers `ids`; `limit`: CPU limits, % of one core."""
    return _estimate(costs, _Columns(costs.brokers, ids), ids, limit)


def _estimate(costs: CpuCosts, columns: _Columns, ids: tuple[str, ...], limit: Floats) -> CostEstimate:
    """Return `estimate`. `columns`: measurements of the brokers `ids` in `costs`."""
    known = tuple(costs.brokers)
    every, prior = columns if known == ids else _Columns(costs.brokers, known), np.array(costs.prior)
    least = (_NOISE * float(limit.mean())) ** 2 if len(limit) else 1.0
    variance = max(float(every.noise.mean()) if len(every.noise) else 0.0, least, 1e-12)
    mm, ms, ss, my, sy = every.moments.sum(axis=0).tolist()
    # The unknowns are multiples of the prior, which are near 1.
    ridge = variance / _COST_SPREAD**2
    matrix = np.outer(prior, prior) * ((mm, ms), (ms, ss)) + ridge * np.eye(2)
    right = prior * (my, sy) + ridge
    multiple = _bounded(matrix, right)
    cost: Floats = prior * multiple
    mm_, ms_, ss_, my_, sy_ = columns.moments.T
    ridge = variance / _FACTOR_SPREAD**2
    precision = cost[0] ** 2 * mm_ + 2 * cost[0] * cost[1] * ms_ + cost[1] ** 2 * ss_ + ridge
    factor = np.clip((cost[0] * my_ + cost[1] * sy_ + ridge) / precision, *_FACTORS)
    return CostEstimate(
        cost=cost,
        factor=factor,
        prior=prior,
        multiple=multiple,
        matrix=matrix,
        precision=precision,
        variance=variance,
    )


def _bounded(matrix: Floats, right: Floats) -> Floats:
    """Solve a linear equation for two values; a negative value becomes 0, and the other is solved again."""
    solved = np.linalg.solve(matrix, right)
    for place, value in enumerate(solved.tolist()):
        if value < 0:
            other = 1 - place
            solved[place], solved[other] = 0.0, right[other] / matrix[other, other]
    multiples: Floats = np.minimum(np.maximum(solved, 0.0), _MOST_COST)
    return multiples


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerCosts:
    """CPU costs of each broker in units for operators; one row per broker.

    `base`: share of its CPU limit that no bundle causes (0 to 1, NaN: no limit). `seconds`, `low`, `high`: CPU seconds
    per message and per byte with a 95 % interval, shapes (n, 2). `capacity`: msg/s at which its present mix of traffic
    would use all CPU above the base; NaN: unknown.
    """

    base: Floats
    seconds: Floats
    low: Floats
    high: Floats
    capacity: Floats


def broker_costs(costs: CpuCosts, brokers: BrokerTable) -> BrokerCosts:
    """Return the CPU costs of these brokers at their reported usage and traffic."""
    usage, limit = brokers.usage[:, CPU], np.where(brokers.limit[:, CPU] > 0, brokers.limit[:, CPU], np.nan)
    estimates = estimate(costs, brokers.ids, brokers.limit[:, CPU])
    caused = np.minimum(estimates.caused(brokers.traffic, estimates.factor), usage)
    base = usage - caused if estimates.cost.any() else np.zeros_like(usage)
    rate = _volumes(brokers.traffic)[:, 0]
    busy = (caused > 0) & (rate > 0)
    room = np.divide(np.maximum(limit - base, 0.0), caused, out=np.full(len(usage), np.nan), where=busy)
    low, high = (estimates.cost_interval[:, side] * estimates.factor_interval[:, side, None] / 100 for side in (0, 1))
    return BrokerCosts(
        base=base / limit,
        seconds=estimates.cost * estimates.factor[:, None] / 100,
        low=low,
        high=high,
        capacity=rate * room,
    )
