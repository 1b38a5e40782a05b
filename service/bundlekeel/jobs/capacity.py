"""Usage per unit of traffic, broker by broker, by robust regression with a hold-out error. Loads pyspark.

What a broker's percentages would be is thus known for the back-test, and for network cards whose limit the broker does
not see (blind): their usage is eight bits a byte of traffic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from bundlekeel.core.model.load import (
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
from bundlekeel.jobs import columns
from bundlekeel.jobs.columns import REPORTED
from bundlekeel.jobs.read import CAPACITY, part
from bundlekeel.jobs.regression import fit_huber

# Which traffic a resource can follow. Direct memory is a cache that fills by itself: it follows none.
FOLLOWS: Final = {
    CPU: tuple(range(len(TRAFFIC))),
    BANDWIDTH_IN: (THROUGHPUT_IN,),
    BANDWIDTH_OUT: (THROUGHPUT_OUT,),
}
LEAST_SAMPLES: Final = 12


def capacity(digests: DataFrame) -> DataFrame:
    """`DIGEST` -> `CAPACITY`: one row a broker and resource."""
    wanted = ["broker", "start_ms", *(f"usage_{name}" for name in REPORTED), *(f"limit_{name}" for name in REPORTED)]
    slices = part(digests, "slice").select(*wanted, *(f"carried_{name}" for name in TRAFFIC))
    return slices.groupBy("broker").applyInArrow(_fits_of, CAPACITY)


def _fits_of(table: pa.Table) -> pa.Table:
    broker = table.column("broker")[0].as_py()
    order = np.argsort(table.column("start_ms").to_numpy(), kind="stable")

    def numbers(prefix: str, names: tuple[str, ...]) -> Floats:
        return np.column_stack([table.column(f"{prefix}_{name}").to_numpy() for name in names])[order]

    found = fits(numbers("usage", REPORTED), numbers("limit", REPORTED), numbers("carried", TRAFFIC))
    return pa.Table.from_pylist([row | {"broker": broker} for row in found], columns.CAPACITY)


def fits(usage: Floats, limit: Floats, carried: Floats) -> list[dict[str, Any]]:
    """The rows of one broker. `usage`, `limit`: (n, 4), `carried`: (n, 4), in order of time. Even hours are fitted, odd
    ones tell the error (in points of percent of the limit)."""
    return [_fit(number, usage[:, number], limit[:, number], carried) for number in range(REPORTED_RESOURCES)]


def _fit(resource: int, usage: Floats, limit: Floats, carried: Floats) -> dict[str, Any]:
    slopes = np.zeros(len(TRAFFIC))
    finite = np.isfinite(usage) & np.isfinite(limit) & np.isfinite(carried).all(axis=1)
    seeing = finite & (limit > 0)
    row: dict[str, Any] = {
        "resource": RESOURCES[resource],
        "samples": int(seeing.sum()),
        "blind": not bool(seeing.any()),
        "limit": float(np.median(limit[seeing])) if seeing.any() else 0.0,
        "base": 0.0,
        "error": None,
        "spread": None,
    }
    follows = FOLLOWS.get(resource, ())
    if row["blind"] and resource in (BANDWIDTH_IN, BANDWIDTH_OUT):
        slopes[list(follows)] = KILOBIT_PER_BYTE
    elif seeing.sum() >= LEAST_SAMPLES:
        at = np.flatnonzero(seeing)
        # Six slices are an hour: neighbours in time look alike and would make a hold-out of single slices too kind.
        held = at // 6 % 2 == 1
        fitted, tested = (at[~held], at[held]) if held.any() and (~held).sum() >= LEAST_SAMPLES else (at, at)
        x = carried[:, list(follows)]
        line = fit_huber(x[fitted], usage[fitted]) if follows else None
        base = line.base if line else float(np.median(usage[fitted]))
        if line:
            slopes[list(follows)] = line.slopes
        wrong = np.abs(usage[tested] - (base + carried[tested] @ slopes))
        row |= {"base": base, "error": 100 * float(np.median(wrong / limit[tested]))}
        row["spread"] = 100 * float(np.percentile(wrong / limit[tested], 90))
    return row | {f"per_{name}": float(slope) for name, slope in zip(TRAFFIC, slopes, strict=True)}


def per_unit(rows: Iterable[Mapping[str, Any]]) -> dict[str, Floats]:
    """Rows of `CAPACITY` as the back-test takes them: broker -> usage of each resource per unit of traffic, shape
    (6, 4). Brokers with too few samples are left out: the back-test estimates theirs."""
    found: dict[str, Floats] = {}
    unknown: set[str] = set()
    for row in rows:
        resource = RESOURCES.index(row["resource"])
        matrix = found.setdefault(row["broker"], _derived())
        matrix[resource] = [row[f"per_{name}"] for name in TRAFFIC]
        if resource in FOLLOWS and not row["blind"] and row["error"] is None:
            unknown.add(row["broker"])
    return {broker: matrix for broker, matrix in found.items() if broker not in unknown}


def _derived() -> Floats:
    """Messages and bytes a second, which capacity overrides may limit, are traffic themselves."""
    made = np.zeros((len(RESOURCES), len(TRAFFIC)))
    made[MSG_RATE, [RATE_IN, RATE_OUT]] = 1.0
    made[THROUGHPUT, [THROUGHPUT_IN, THROUGHPUT_OUT]] = 1.0
    return made
