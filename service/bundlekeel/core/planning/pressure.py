"""The shares of a broker's usage that its bundles cause by traffic, and scores of usages."""

from __future__ import annotations

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
from bundlekeel.core.model.snapshot import percent_usage


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
