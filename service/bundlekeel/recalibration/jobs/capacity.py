"""Estimate each broker's usage per unit of traffic, by robust regression. Loads pyspark.

The back-test uses the result to predict the usage of brokers. The error is measured on hours that the regression did
not use. A network card without a reported limit (blind) needs no regression: its usage is eight bits per byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from bundlekeel.model.load import (
    BANDWIDTH_IN,
    BANDWIDTH_OUT,
    CPU,
    KILOBIT_PER_BYTE,
    MSG_RATE,
    RATE_IN,
    RATE_OUT,
    REPORTED_RESOURCES,
    RESOURCES,
    THROUGHPUT,
    THROUGHPUT_IN,
    THROUGHPUT_OUT,
    TRAFFIC,
    Floats,
)
from bundlekeel.recalibration.jobs import columns
from bundlekeel.recalibration.jobs.columns import REPORTED
from bundlekeel.recalibration.jobs.read import CAPACITY, part
from bundlekeel.recalibration.jobs.regression import fit_huber

# Kinds of traffic that the usage of a resource depends on. Direct memory is a cache that fills without traffic.
FOLLOWS: Final = {
    CPU: tuple(range(len(TRAFFIC))),
    BANDWIDTH_IN: (THROUGHPUT_IN,),
    BANDWIDTH_OUT: (THROUGHPUT_OUT,),
}
LEAST_SAMPLES: Final = 12


def capacity(digests: DataFrame) -> DataFrame:
    """Compute `CAPACITY` (usage per unit of traffic) from `DIGEST`: one row per broker and resource."""
    names = ["broker", "start_ms", *(f"usage_{name}" for name in REPORTED), *(f"limit_{name}" for name in REPORTED)]
    slices = part(digests, "slice").select(*names, *(f"carried_{name}" for name in TRAFFIC))
    return slices.groupBy("broker").applyInArrow(_fits_of, CAPACITY)


def _fits_of(table: pa.Table) -> pa.Table:
    broker = table.column("broker")[0].as_py()
    order = np.argsort(table.column("start_ms").to_numpy(), kind="stable")

    def numbers(prefix: str, names: tuple[str, ...]) -> Floats:
        return np.column_stack([table.column(f"{prefix}_{name}").to_numpy() for name in names])[order]

    rows = fits(numbers("usage", REPORTED), numbers("limit", REPORTED), numbers("carried", TRAFFIC))
    return pa.Table.from_pylist([row | {"broker": broker} for row in rows], columns.CAPACITY)


def fits(usage: Floats, limit: Floats, carried: Floats) -> list[dict[str, Any]]:
    """Return the rows of `CAPACITY` of one broker. The arrays have one row per ten minutes, in order; shape (n, 4).

    The regression uses even hours. The error is measured on odd hours, in percent of the limit.
    """
    return [_fit(number, usage[:, number], limit[:, number], carried) for number in range(REPORTED_RESOURCES)]


def _fit(resource: int, usage: Floats, limit: Floats, carried: Floats) -> dict[str, Any]:
    slopes = np.zeros(len(TRAFFIC))
    finite = np.isfinite(usage) & np.isfinite(limit) & np.isfinite(carried).all(axis=1)
    usable = finite & (limit > 0)
    row: dict[str, Any] = {
        "resource": RESOURCES[resource],
        "samples": int(usable.sum()),
        "blind": not bool(usable.any()),
        "limit": float(np.median(limit[usable])) if usable.any() else 0.0,
        "base": 0.0,
        "error": None,
        "spread": None,
    }
    follows = FOLLOWS.get(resource, ())
    if row["blind"] and resource in (BANDWIDTH_IN, BANDWIDTH_OUT):
        slopes[list(follows)] = KILOBIT_PER_BYTE
    elif usable.sum() >= LEAST_SAMPLES:
        at = np.flatnonzero(usable)
        # Whole hours (six slices) are held out, because adjacent slices are similar and would hide errors.
        held_out = at // 6 % 2 == 1
        fitted, tested = (
            (at[~held_out], at[held_out]) if held_out.any() and (~held_out).sum() >= LEAST_SAMPLES else (at, at)
        )
        x = carried[:, list(follows)]
        regression = fit_huber(x[fitted], usage[fitted]) if follows else None
        base = regression.base if regression else float(np.median(usage[fitted]))
        if regression:
            slopes[list(follows)] = regression.slopes
        errors = np.abs(usage[tested] - (base + carried[tested] @ slopes))
        row |= {"base": base, "error": 100 * float(np.median(errors / limit[tested]))}
        row["spread"] = 100 * float(np.percentile(errors / limit[tested], 90))
    return row | {f"per_{name}": float(slope) for name, slope in zip(TRAFFIC, slopes, strict=True)}


def per_unit(rows: Iterable[Mapping[str, Any]]) -> dict[str, Floats]:
    """Return the usage of each resource per unit of traffic by broker, shape (6, 4), from rows of `CAPACITY`.

    Brokers with too few samples are omitted. The back-test estimates their usage itself.
    """
    by_broker: dict[str, Floats] = {}
    unknown: set[str] = set()
    for row in rows:
        resource = RESOURCES.index(row["resource"])
        matrix = by_broker.setdefault(row["broker"], _initial_matrix())
        matrix[resource] = [row[f"per_{name}"] for name in TRAFFIC]
        if resource in FOLLOWS and not row["blind"] and row["error"] is None:
            unknown.add(row["broker"])
    return {broker: matrix for broker, matrix in by_broker.items() if broker not in unknown}


def _initial_matrix() -> Floats:
    """Return zeros, except 1 for message rate and throughput, whose usage is the traffic itself."""
    matrix = np.zeros((len(RESOURCES), len(TRAFFIC)))
    matrix[MSG_RATE, [RATE_IN, RATE_OUT]] = 1.0
    matrix[THROUGHPUT, [THROUGHPUT_IN, THROUGHPUT_OUT]] = 1.0
    return matrix
