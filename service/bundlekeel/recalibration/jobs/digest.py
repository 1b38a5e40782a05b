"""Reduce a period of history to small rows for the quality of days, instead of whole snapshots.

The functions run inside a Spark task.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bundlekeel.model.load import CPU, RESOURCES, THROUGHPUT_IN, THROUGHPUT_OUT, TRAFFIC, Floats
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import imbalance
from bundlekeel.planning.scores import score_of, weights_of
from bundlekeel.recalibration.history.ports import HistoryStore
from bundlekeel.recalibration.history.record import BROKERS, BUNDLES, Frame, dumped
from bundlekeel.recalibration.jobs.columns import CYCLES, DIGEST, FILES, PARTS, SLICE_MS, SLICES
from bundlekeel.recalibration.jobs.periods import HistoryPeriod, UnreadableFile, read

Row = dict[str, Any]

# No broker sends a billion messages or a terabyte per second, or uses 100 times the limit of a resource.
ABSURD_RATE: Final = 1e9
ABSURD_THROUGHPUT: Final = 1e12
ABSURD_USAGE: Final = 100.0
# Path of the learned CPU costs of traffic in a recorded cycle.
COSTS: Final = "memory.costs"
_WIDTH: Final = len(RESOURCES)
_CHUNK: Final = 20_000


def digest(store: HistoryStore, period: HistoryPeriod) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one period in batches of the schema `DIGEST`. Raises StoreError if the store does not
    respond."""
    place: Row = {"date": period.date, "hour": period.hour, "epoch": period.epoch}
    cycles: list[Row] = []
    files: list[Row] = []
    slices = BrokerSlices()
    last: tuple[Row, Frame] | None = None
    for item in read(store, period):
        if isinstance(item, UnreadableFile):
            files.append(place | {"path": item.path, "why": item.why})
            continue
        record = item.record
        row: Row = place | {
            "cycle": record.cycle,
            "wall_ms": record.wall_ms,
            "status": item.status,
            "why": item.why,
            "dropped": record.outcome.dropped,
            "skipped": record.outcome.skipped,
            "moves": record.outcome.planned,
            "acted": record.outcome.acted,
        }
        if item.frame is not None:
            scores = broker_scores(item.frame)
            row |= figures(item.frame, scores)
            if row["why"]:
                row["why"] += f" in cycle {record.epoch}:{record.cycle}"
            slices.add(record.wall_ms, item.frame, scores)
            last = row, item.frame
        cycles.append(row)
    if last is not None:
        document = last[1].document
        paths = (path for path in document if path.startswith("params.") or path == COSTS)
        last[0]["params"] = dumped({path: document[path] for path in paths})
    for kind, rows in (
        ("cycle", pa.Table.from_pylist(cycles, CYCLES)),
        ("file", pa.Table.from_pylist(files, FILES)),
        ("slice", slices.table(place)),
    ):
        yield from _batches(kind, rows)


def _batches(kind: str, rows: pa.Table) -> Iterator[pa.RecordBatch]:
    for batch in rows.to_batches(max_chunksize=_CHUNK):
        count = batch.num_rows
        if not count:
            continue
        columns = [pa.array([kind] * count, pa.string())]
        for name in PARTS:
            values = batch.to_struct_array() if name == kind else pa.nulls(count, DIGEST.field(name).type)
            columns.append(values.cast(DIGEST.field(name).type))
        yield pa.RecordBatch.from_arrays(columns, schema=DIGEST)


def broker_scores(frame: Frame) -> Floats:
    """Return every broker's score as a ratio, by the recorded weights; NaN if a value of the broker is NaN."""
    document, floats = frame.document, frame.brokers.floats
    names = ("cpu_weight", "direct_memory_weight", "bandwidth_in_weight", "bandwidth_out_weight")
    recorded = {name: document[f"params.{name}"] for name in names if f"params.{name}" in document}
    weights = weights_of(Parameters(**recorded), str(document.get("mode", "modular")))
    with np.errstate(invalid="ignore", over="ignore"):
        return score_of(floats[:, :_WIDTH], floats[:, _WIDTH : 2 * _WIDTH], weights)


def figures(frame: Frame, scores: Floats) -> Row:
    """Return totals of one snapshot, and the number of its impossible values."""
    latest = frame.bundles.floats[:, : len(TRAFFIC)]
    sums = latest.sum(axis=0)
    nan, negative, absurd, why = find_impossible(frame)
    return {
        "brokers": len(frame.brokers),
        "bundles": len(frame.bundles),
        "nan": nan,
        "negative": negative,
        "absurd": absurd,
        "why": why,
        "messages": float(sums[0] + sums[1]),
        "bytes": float(sums[2] + sums[3]),
        "imbalance": max(0.0, imbalance(scores.tolist(), [False] * len(scores)) - 1),
    }


def find_impossible(frame: Frame) -> tuple[int, int, int, str]:
    """Return the numbers of values that are not finite, negative, and larger than possible, and one of them as text.

    Negative limits do not count: Pulsar uses them for unknown limits.
    """
    brokers, bundles = frame.brokers.floats, frame.bundles.floats
    usage, limit, reported = brokers[:, :_WIDTH], brokers[:, _WIDTH : 2 * _WIDTH], brokers[:, 2 * _WIDTH :]
    most = np.array([ABSURD_RATE, ABSURD_RATE, ABSURD_THROUGHPUT, ABSURD_THROUGHPUT])
    # Without a limit, brokers may report a negative usage.
    limited, valid = limit > 0, np.zeros(limit.shape, dtype=bool)
    # Of a broker's integers, check only the number of topics: others are flags, for which -1 is valid.
    topics = (frame.brokers.whole < 0) & (np.array(BROKERS.whole) == "topics")
    faults = (
        [(frame.brokers, "floats", ~np.isfinite(brokers)), (frame.bundles, "floats", ~np.isfinite(bundles))],
        [
            (frame.brokers, "floats", np.hstack([(usage < 0) & limited, valid, reported < 0])),
            (frame.bundles, "floats", bundles < 0),
            (frame.brokers, "whole", topics),
            (frame.bundles, "whole", frame.bundles.whole < 0),
        ],
        [
            (frame.brokers, "floats", np.hstack([(usage > ABSURD_USAGE * limit) & limited, valid, reported > most])),
            (frame.bundles, "floats", bundles > np.tile(most, bundles.shape[1] // len(most))),
        ],
    )
    nan, negative, absurd = (sum(int(wrong.sum()) for *_, wrong in tables) for tables in faults)
    for table, kind, wrong in (item for tables in faults for item in tables):
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            name = getattr(BROKERS if table is frame.brokers else BUNDLES, kind)[column]
            why = f"{name} of {table.names[row]} is {getattr(table, kind)[row, column]:g}"
            return nan, negative, absurd, why
    return nan, negative, absurd, ""


@dataclass(slots=True)
class BrokerSlices:
    """Sums up the cycles of each broker by ten minutes."""

    sums: dict[tuple[int, str], Floats] = field(default_factory=dict)

    def add(self, wall_ms: int, frame: Frame, scores: Floats) -> None:
        """Add a cycle's values to the sums."""
        names, start = frame.brokers.names.tolist(), wall_ms // SLICE_MS * SLICE_MS
        rows = {name: number for number, name in enumerate(names)}
        owner = np.fromiter(
            (rows.get(name, -1) for name in frame.bundles.texts[:, 0].tolist()), np.int64, len(frame.bundles)
        )
        has_owner = owner >= 0
        size = frame.bundles.floats[has_owner][:, [THROUGHPUT_IN, THROUGHPUT_OUT]].sum(axis=1)
        carried = np.bincount(owner[has_owner], weights=size, minlength=len(names))
        floats = frame.brokers.floats
        told = floats[:, [2 * _WIDTH + THROUGHPUT_IN, 2 * _WIDTH + THROUGHPUT_OUT]].sum(axis=1)
        # In the order of the columns of SLICES, beginning with `samples`.
        now = np.column_stack([np.ones(len(names)), scores, floats[:, CPU], carried, told])
        for name, row in zip(names, now, strict=True):
            self.sums[start, name] = self.sums.get((start, name), 0.0) + row

    def table(self, place: Row) -> pa.Table:
        """Return each broker's means over ten minutes as a table of schema `SLICES`."""
        keys = sorted(self.sums)
        if not keys:
            return SLICES.empty_table()
        sums = np.array([self.sums[key] for key in keys])
        columns: Row = {name: [value] * len(keys) for name, value in place.items()} | {
            "broker": [name for _, name in keys],
            "start_ms": [start for start, _ in keys],
            "samples": sums[:, 0].astype(np.int64),
        }
        names = SLICES.names[SLICES.get_field_index("score") :]
        columns |= {name: sums[:, 1 + number] / sums[:, 0] for number, name in enumerate(names)}
        return pa.Table.from_pydict(columns, SLICES)
