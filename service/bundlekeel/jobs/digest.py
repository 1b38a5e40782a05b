"""What is left of a period for quality, features and capacity: small rows instead of every cycle's whole snapshot.

Runs inside of a task; no Spark here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bundlekeel.core.history.record import BROKERS, Frame, dumped
from bundlekeel.core.model.load import (
    REPORTED_RESOURCES,
    RESOURCES,
    THROUGHPUT_IN,
    THROUGHPUT_OUT,
    TRAFFIC,
    Floats,
    Ints,
)
from bundlekeel.core.model.names import namespace_of
from bundlekeel.core.model.parameters import Parameters
from bundlekeel.core.planning.scores import score_of, weights_of
from bundlekeel.jobs.columns import BUNDLES, CYCLES, DIGEST, FILES, PARTS, REPORTED, SLICE_MS, SLICES
from bundlekeel.jobs.periods import HistoryPeriod, UnreadableFile, read
from bundlekeel.ports.history import HistoryStore

Row = dict[str, Any]

# No broker sends a billion messages or a terabyte a second; nothing is used more than a hundred times over.
ABSURD_RATE: Final = 1e9
ABSURD_THROUGHPUT: Final = 1e12
ABSURD_USAGE: Final = 100.0
_WIDTH: Final = len(RESOURCES)
_CHUNK: Final = 20_000
_TOPICS: Final = BROKERS.whole.index("topics")


def digest(store: HistoryStore, period: HistoryPeriod) -> Iterator[pa.RecordBatch]:
    """The rows of one period, in batches of the schema `DIGEST`. StoreError when the store does not answer."""
    place: Row = {"date": period.date, "hour": period.hour, "epoch": period.epoch}
    cycles: list[Row] = []
    files: list[Row] = []
    slices, bundles = BrokerSlices(), HourlyBundles()
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
            slices.add(record.wall_ms, item.frame, scores)
            bundles.add(item.frame)
            last = row, item.frame
        cycles.append(row)
    if last is not None:
        document = last[1].document
        last[0]["params"] = dumped({path: document[path] for path in document if path.startswith("params.")})
    for kind, rows in (
        ("cycle", pa.Table.from_pylist(cycles, CYCLES)),
        ("file", pa.Table.from_pylist(files, FILES)),
        ("slice", slices.table(place)),
        ("bundle", bundles.table(place)),
    ):
        yield from _batches(kind, rows)


def _batches(kind: str, rows: pa.Table) -> Iterator[pa.RecordBatch]:
    for batch in rows.to_batches(max_chunksize=_CHUNK):
        count = batch.num_rows
        if not count:
            continue
        columns = [pa.array([kind] * count, pa.string())]
        for name in PARTS:
            made = batch.to_struct_array() if name == kind else pa.nulls(count, DIGEST.field(name).type)
            columns.append(made.cast(DIGEST.field(name).type))
        yield pa.RecordBatch.from_arrays(columns, schema=DIGEST)


def broker_scores(frame: Frame) -> Floats:
    """Every broker's score by the weights in force then, as a ratio; not a number where its figures are none."""
    document, floats = frame.document, frame.brokers.floats
    names = ("cpu_weight", "direct_memory_weight", "bandwidth_in_weight", "bandwidth_out_weight")
    told = {name: document[f"params.{name}"] for name in names if f"params.{name}" in document}
    weights = weights_of(Parameters(**told), str(document.get("mode", "modular")))
    with np.errstate(invalid="ignore", over="ignore"):
        return score_of(floats[:, :_WIDTH], floats[:, _WIDTH : 2 * _WIDTH], weights)


def figures(frame: Frame, scores: Floats) -> Row:
    """What one snapshot says in a few figures, and how many of its values are impossible."""
    latest = frame.bundles.floats[:, : len(TRAFFIC)]
    sums = latest.sum(axis=0)
    mean = float(scores.mean()) if len(scores) else 0.0
    wrong = impossible(frame)
    return {
        "brokers": len(frame.brokers),
        "bundles": len(frame.bundles),
        "nan": wrong[0],
        "negative": wrong[1],
        "absurd": wrong[2],
        "messages": float(sums[0] + sums[1]),
        "bytes": float(sums[2] + sums[3]),
        "imbalance": float(scores.max()) / mean - 1 if mean > 0 else 0.0,
    }


def impossible(frame: Frame) -> tuple[int, int, int]:
    """Values that are not finite, below zero, or beyond anything a broker does. Limits below zero are none: Pulsar
    reports so what it cannot see."""
    brokers, bundles = frame.brokers.floats, frame.bundles.floats
    usage, limit, told = brokers[:, :_WIDTH], brokers[:, _WIDTH : 2 * _WIDTH], brokers[:, 2 * _WIDTH :]
    traffic = [told, *(bundles[:, at : at + len(TRAFFIC)] for at in range(0, bundles.shape[1], len(TRAFFIC)))]
    nan = sum(int((~np.isfinite(part)).sum()) for part in (brokers, bundles))
    # Where there is no limit, brokers report usage below zero as well.
    negative = int(((usage < 0) & (limit > 0)).sum()) + sum(int((part < 0).sum()) for part in traffic)
    # Samples, topics, consumers, producers; of a broker's whole numbers some are flags, which may be -1.
    negative += int((frame.bundles.whole < 0).sum()) + int((frame.brokers.whole[:, _TOPICS] < 0).sum())
    most = np.array([ABSURD_RATE, ABSURD_RATE, ABSURD_THROUGHPUT, ABSURD_THROUGHPUT])
    absurd = int(((usage > ABSURD_USAGE * limit) & (limit > 0)).sum()) + sum(
        int((part > most).sum()) for part in traffic
    )
    return nan, negative, absurd


@dataclass(slots=True)
class BrokerSlices:
    """Sums by broker and ten minutes."""

    sums: dict[tuple[int, str], Floats] = field(default_factory=dict)

    def add(self, wall_ms: int, frame: Frame, scores: Floats) -> None:
        """One cycle."""
        names, start = frame.brokers.names.tolist(), wall_ms // SLICE_MS * SLICE_MS
        rows = {name: number for number, name in enumerate(names)}
        owner = np.fromiter(
            (rows.get(name, -1) for name in frame.bundles.texts[:, 0].tolist()), np.int64, len(frame.bundles)
        )
        known = owner >= 0
        carried = np.zeros((len(names), len(TRAFFIC)))
        np.add.at(carried, owner[known], frame.bundles.floats[known, : len(TRAFFIC)])
        owned = np.bincount(owner[known], minlength=len(names)).astype(np.float64)
        floats = frame.brokers.floats
        # In the order of the columns of SLICES, from `samples` on.
        now = np.column_stack(
            [
                np.ones(len(names)),
                scores,
                scores,
                floats[:, :REPORTED_RESOURCES],
                floats[:, _WIDTH : _WIDTH + REPORTED_RESOURCES],
                carried,
                floats[:, 2 * _WIDTH :],
                owned,
            ]
        )
        for name, row in zip(names, now, strict=True):
            before = self.sums.get((start, name))
            if before is None:
                self.sums[start, name] = row.copy()
                continue
            highest = np.fmax(before[2], row[2])
            before += row
            before[2] = highest

    def table(self, place: Row) -> pa.Table:
        """Means, of schema `SLICES`."""
        keys = sorted(self.sums)
        if not keys:
            return SLICES.empty_table()
        sums = np.array([self.sums[key] for key in keys])
        count = sums[:, 0].copy()
        highest = sums[:, 2].copy()
        means = sums / count[:, None]
        means[:, 2] = highest
        names = SLICES.names[SLICES.get_field_index("score") :]
        columns: Row = _placed(place, len(keys)) | {
            "broker": [name for _, name in keys],
            "start_ms": [start for start, _ in keys],
            "samples": count.astype(np.int64),
        }
        columns |= {name: means[:, 1 + number] for number, name in enumerate(names)}
        return _table(columns, SLICES)


@dataclass(slots=True)
class HourlyBundles:
    """Sums by bundle over an hour."""

    rows: dict[str, int] = field(default_factory=dict)
    sums: Floats = field(default_factory=lambda: np.zeros((0, 8)))
    highest: Floats = field(default_factory=lambda: np.zeros((0, 2)))
    moves: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    owners: dict[str, str] = field(default_factory=dict)
    _names: list[str] = field(default_factory=list)
    _at: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def add(self, frame: Frame) -> None:
        """One cycle."""
        names = frame.bundles.names.tolist()
        if names != self._names:
            self._at = np.fromiter((self.rows.setdefault(name, len(self.rows)) for name in names), np.int64, len(names))
            self._names = names
            self._grow()
        latest, whole = frame.bundles.floats[:, : len(TRAFFIC)], frame.bundles.whole
        messages, carried = (
            latest[:, :THROUGHPUT_IN].sum(axis=1),
            latest[:, [THROUGHPUT_IN, THROUGHPUT_OUT]].sum(axis=1),
        )
        # Whole numbers of a bundle: short and long samples, topics, consumers, producers.
        topics, clients = whole[:, 2], whole[:, 3] + whole[:, 4]
        with np.errstate(over="ignore", invalid="ignore"):
            self.sums[self._at] += np.column_stack(
                [np.ones(len(names)), messages, carried, carried**2, clients, topics, messages, carried]
            )
        self.highest[self._at] = np.fmax(self.highest[self._at], np.column_stack([messages, carried]))
        self._count_moves(names, frame.bundles.texts[:, 0].tolist())

    def _grow(self) -> None:
        more = len(self.rows) - len(self.moves)
        self.sums = np.concatenate([self.sums, np.zeros((more, 8))])
        self.highest = np.concatenate([self.highest, np.zeros((more, 2))])
        self.moves = np.concatenate([self.moves, np.zeros(more, dtype=np.int64)])

    def _count_moves(self, names: list[str], owners: list[str]) -> None:
        for name, owner in zip(names, owners, strict=True):
            before = self.owners.get(name)
            if before is not None and before != owner:
                self.moves[self.rows[name]] += 1
            self.owners[name] = owner

    def table(self, place: Row) -> pa.Table:
        """Means, of schema `BUNDLES`."""
        names, count = list(self.rows), self.sums[:, 0]
        if not names:
            return BUNDLES.empty_table()
        columns: Row = _placed(place, len(names)) | {
            "bundle": names,
            "namespace": [namespace_of(name) for name in names],
            "samples": count.astype(np.int64),
            "messages": self.sums[:, 1] / count,
            "messages_max": self.highest[:, 0],
            "bytes": self.sums[:, 2] / count,
            "bytes_max": self.highest[:, 1],
            "bytes_square": self.sums[:, 3] / count,
            "clients": self.sums[:, 4] / count,
            "topics": self.sums[:, 5] / count,
            "moves": self.moves,
        }
        return _table(columns, BUNDLES)


def _placed(place: Row, count: int) -> Row:
    return {name: [value] * count for name, value in place.items()}


def _table(columns: Row, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_arrays([pa.array(columns[item.name], item.type) for item in schema], schema=schema)


# The order in which a frame holds a broker's figures; a change of it must be seen here.
assert BROKERS.floats[:REPORTED_RESOURCES] == tuple(f"usage_{name}" for name in REPORTED)
assert BROKERS.floats[2 * _WIDTH :] == tuple(f"traffic_{name}" for name in TRAFFIC)
