"""What a broker's usage is made of: its bundles' shares by traffic, and what it uses without any."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bundlekeel.core.model.load import (
    BANDWIDTH_IN,
    BANDWIDTH_OUT,
    CPU,
    DIRECT_MEMORY,
    MSG_RATE,
    RATE_IN,
    RATE_OUT,
    RESOURCES,
    THROUGHPUT,
    THROUGHPUT_IN,
    THROUGHPUT_OUT,
    Floats,
)
from bundlekeel.core.model.parameters import Parameters
from bundlekeel.core.model.snapshot import BrokerTable, Snapshot, percent_usage

# A broker with less than this share of the mean throughput shows what a broker uses without traffic.
IDLE_SHARE: Final = 0.05
# A broker that uses more of its CPU than this without traffic has a busy host, which says nothing about brokers.
IDLE_LIMIT: Final = 0.35


def learn_idle(
    known: Mapping[str, float], snapshot: Snapshot, params: Parameters, unsettled: Collection[str] = ()
) -> dict[str, float]:
    """CPU that each broker uses without traffic, in the unit of its usage (percent of one core), as far as it was seen.

    Seen at a broker that is nearly idle; remembered for when no broker is idle any more, since a plan that charges
    idle CPU to bundles expects too much of each move, and two plans that charge it differently undo each other.
    `known`: what was seen before, forgotten with the broker; `unsettled`: brokers whose CPU still includes bundles that
    have left. A broker that has just started is busy with that, and its CPU may still tell of the process before; when
    it has been up for both intervals and its report is older than that, its silence says that nothing has changed.
    """
    brokers = snapshot.brokers
    started_ms = 1000 * (params.statistics_interval_seconds + params.host_usage_interval_seconds)
    size = brokers.traffic[:, THROUGHPUT_IN] + brokers.traffic[:, THROUGHPUT_OUT]
    old = snapshot.wall_ms - brokers.start_timestamp >= started_ms
    nearly = size <= IDLE_SHARE * size.mean() if size.any() else np.zeros(len(size), dtype=bool)
    alive = {*brokers.ids, *(item.broker_id for item in snapshot.excluded)}
    found = {broker: value for broker, value in known.items() if broker in alive}
    for row in np.flatnonzero(nearly & old).tolist():
        value, limit = float(brokers.usage[row, CPU]), float(brokers.limit[row, CPU])
        if brokers.ids[row] not in unsettled and limit > 0 and value <= IDLE_LIMIT * limit:
            found[brokers.ids[row]] = value
    return found


def idle_cpu(known: Mapping[str, float], brokers: BrokerTable) -> Floats:
    """One value a broker: its own idle CPU (`learn_idle`), else the least one known, else 0; never above its usage."""
    least = min(known.values(), default=0.0)
    idle = np.fromiter((known.get(broker, least) for broker in brokers.ids), dtype=np.float64, count=len(brokers))
    capped: Floats = np.minimum(idle, brokers.usage[:, CPU])
    return capped


def shares_of(carried: Floats, whole: Floats) -> Floats:
    """Each bundle's share of its broker's resources by traffic; shape (n, 6). `carried`: (n, 4), `whole`: (4,)."""
    rates, sizes = float(whole[RATE_IN] + whole[RATE_OUT]), float(whole[THROUGHPUT_IN] + whole[THROUGHPUT_OUT])
    bytes_in = _share(carried[:, THROUGHPUT_IN], float(whole[THROUGHPUT_IN]))
    bytes_out = _share(carried[:, THROUGHPUT_OUT], float(whole[THROUGHPUT_OUT]))
    rate = _share(carried[:, RATE_IN] + carried[:, RATE_OUT], rates)
    size = _share(carried[:, THROUGHPUT_IN] + carried[:, THROUGHPUT_OUT], sizes)
    shares = np.empty((len(carried), len(RESOURCES)))
    # The mean of the shares that exist: a broker may carry bytes without messages, never the other way round.
    shares[:, CPU] = (rate + size) / 2 if rates > 0 and sizes > 0 else rate + size
    shares[:, DIRECT_MEMORY] = size
    shares[:, BANDWIDTH_IN] = bytes_in
    shares[:, BANDWIDTH_OUT] = bytes_out
    shares[:, MSG_RATE] = rate
    shares[:, THROUGHPUT] = size
    return shares


def _share(parts: Floats, whole: float) -> Floats:
    share: Floats = parts / whole if whole > 0 else np.zeros(len(parts))
    return share


# Scores of brokers: the most used of their weighted resources.


def weights_of(params: Parameters, mode: str = "modular") -> Floats:
    """Weights in the order of `RESOURCES`; resources that only overrides define count fully.

    An extensible broker's score comes weighted already (core/model/extensible.py).
    """
    if mode == "extensible":
        return np.ones(len(RESOURCES))
    named = params.cpu_weight, params.direct_memory_weight, params.bandwidth_in_weight, params.bandwidth_out_weight
    return np.array([*named, 1.0, 1.0])


def score_of(usage: Floats, limit: Floats, weights: Floats) -> Floats:
    """Max weighted usage as a ratio (`getMaxResourceUsageWithWeight`), one value a row."""
    scored: Floats = (percent_usage(usage, limit) * weights).max(axis=1, initial=0.0) / 100
    return scored


ScoredColumn = tuple[int, NDArray[np.float32], np.float64]


def scored_columns(limit: Floats, weights: Floats) -> list[ScoredColumn]:
    """Only what can raise a score: column, its limit a broker, its weight."""
    # A limit that is not positive is blind and counts as 0 %, which dividing by infinity gives as well.
    limit32 = np.where(limit > 0, limit, np.inf).astype(np.float32)
    return [
        (column, np.ascontiguousarray(limit32[:, column]), weights[column])
        for column in range(len(RESOURCES))
        if weights[column] > 0 and np.isfinite(limit32[:, column]).any()
    ]
