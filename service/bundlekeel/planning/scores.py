"""Scores of brokers: the usage of each resource is multiplied by a weight, and the largest product is the score."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bundlekeel.model.load import RESOURCES, Floats
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.snapshot import percent_usage


def weights_of(params: Parameters, mode: str = "modular") -> Floats:
    """Return the weight of each resource, in the order of `RESOURCES`; 1 for resources without a weight setting.

    With the extensible load manager, all are 1, because its brokers report a weighted score (model/extensible.py).
    """
    if mode == "extensible":
        return np.ones(len(RESOURCES))
    named = params.cpu_weight, params.direct_memory_weight, params.bandwidth_in_weight, params.bandwidth_out_weight
    return np.array([*named, 1.0, 1.0])


def score_of(usage: Floats, limit: Floats, weights: Floats) -> Floats:
    """Return the score of each row: the maximum weighted usage, as a ratio (`getMaxResourceUsageWithWeight`)."""
    scored: Floats = (percent_usage(usage, limit) * weights).max(axis=1, initial=0.0) / 100
    return scored


ScoredColumn = tuple[int, NDArray[np.float32], np.float64]


def scored_columns(limit: Floats, weights: Floats) -> list[ScoredColumn]:
    """Return the resources that can affect a score: column of `RESOURCES`, limit of each broker, weight."""
    # Usage without a positive limit counts as 0 %, which a division by infinity gives.
    limit32 = np.where(limit > 0, limit, np.inf).astype(np.float32)
    return [
        (column, np.ascontiguousarray(limit32[:, column]), weights[column])
        for column in range(len(RESOURCES))
        if weights[column] > 0 and np.isfinite(limit32[:, column]).any()
    ]
