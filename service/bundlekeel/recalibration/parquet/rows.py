"""Convert recorded cycles to Arrow tables and back.

All tables have one flat schema. A row is a cycle, a changed broker or a changed bundle (`kind`), and its columns of
other kinds are null. With one schema, a minute is one file. Each kind has its own row groups, so that Spark can read
one kind.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bundlekeel.model.errors import HistoryError
from bundlekeel.model.numbers import MAX_TIME_MS
from bundlekeel.recalibration.history.record import BROKERS, BUNDLES, Columns, CycleOutcome, HistoryRecord, Rows, Table

_KINDS: Final = {"broker": BROKERS, "bundle": BUNDLES}
# Columns that only datasets have: date and hour (UTC) of a file, and the cluster that its footer names.
PLACE: Final = {"date": pa.string(), "hour": pa.int32(), "cluster": pa.string()}
_CYCLE: Final = {
    "full": pa.bool_(),
    "base": pa.int64(),
    "schema": pa.int32(),
    "seal": pa.int64(),
    "document": pa.string(),
    "plan_hash": pa.string(),
    "code": pa.string(),
    "planned": pa.int32(),
    "acted": pa.bool_(),
    "details": pa.string(),
    "software": pa.string(),
    "dropped": pa.int32(),
    "skipped": pa.int32(),
}
KEY: Final = {"kind": pa.string(), "epoch": pa.int64(), "cycle": pa.int64(), "wall_ms": pa.int64()}
_ROW: Final = {"row": pa.int32(), "name": pa.string()}
_FLOATS: Final = tuple(dict.fromkeys((*BROKERS.floats, *BUNDLES.floats)))
_WHOLE: Final = tuple(dict.fromkeys((*BROKERS.whole, *BUNDLES.whole)))
_TEXTS: Final = tuple(dict.fromkeys((*BROKERS.texts, *BUNDLES.texts)))
ARROW: Final = pa.schema(
    [
        *(KEY | _CYCLE | _ROW).items(),
        *((name, pa.string()) for name in _TEXTS),
        *((name, pa.int64()) for name in _WHOLE),
        *((name, pa.float64()) for name in _FLOATS),
    ]
)
# Columns with often repeated values, which are stored with a dictionary.
REPEATED: Final = ("kind", "code", "software", "name", *_TEXTS)


def tables_of(records: Sequence[HistoryRecord]) -> list[pa.Table]:
    """Return one table each for cycles, brokers and bundles, all of the same schema. Empty tables are omitted."""
    tables = [_cycles(records)]
    for kind in _KINDS:
        table = _rows(kind, records)
        if table is not None:
            tables.append(table)
    return tables


def _cycles(records: Sequence[HistoryRecord]) -> pa.Table:
    own = ("full", "base", "schema", "seal", "document")
    columns: dict[str, Any] = {name: [getattr(record, name) for record in records] for name in own}
    for name in ("plan_hash", "code", "planned", "acted", "software", "dropped", "skipped"):
        columns[name] = [getattr(record.outcome, name) for record in records]
    columns["details"] = [json.dumps(record.outcome.details, ensure_ascii=False) for record in records]
    return _table("cycle", columns, records, [1] * len(records))


def _rows(kind: str, records: Sequence[HistoryRecord]) -> pa.Table | None:
    parts: list[Rows] = [getattr(record, f"{kind}s") for record in records]
    sizes = [len(part.index) for part in parts]
    if not sum(sizes):
        return None
    names = _KINDS[kind]
    columns: dict[str, Any] = {
        "row": np.concatenate([part.index for part in parts]),
        "name": np.concatenate([part.table.names for part in parts]),
    }
    for of_kind, attribute in ((names.floats, "floats"), (names.whole, "whole"), (names.texts, "texts")):
        together = np.concatenate([getattr(part.table, attribute) for part in parts])
        columns |= {name: together[:, number] for number, name in enumerate(of_kind)}
    return _table(kind, columns, records, sizes)


def _table(kind: str, columns: dict[str, Any], records: Sequence[HistoryRecord], sizes: Sequence[int]) -> pa.Table:
    count = sum(sizes)
    columns = columns | {
        "kind": pa.array([kind], pa.string()).take(pa.array(np.zeros(count, dtype=np.int32))),
        "epoch": np.repeat([record.epoch for record in records], sizes),
        "cycle": np.repeat([record.cycle for record in records], sizes),
        "wall_ms": np.repeat([record.wall_ms for record in records], sizes),
    }
    arrays = [
        _array(columns[field.name], field.type) if field.name in columns else pa.nulls(count, field.type)
        for field in ARROW
    ]
    return pa.Table.from_arrays(arrays, schema=ARROW)


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    # NaN is a value here, not a null.
    return values if isinstance(values, pa.Array) else pa.array(values, kind, from_pandas=False)


def records_of(tables: Iterable[pa.Table]) -> list[HistoryRecord]:
    """Convert tables from `tables_of`, or parts of them, back to records. Raises HistoryError if they are malformed."""
    try:
        whole = pa.concat_tables(list(tables))
        kinds = whole.column("kind").to_numpy()
        cycles = whole.filter(pa.array(kinds == "cycle")).select([*KEY, *_CYCLE]).to_pylist()
        pieces = {kind: _Split(whole.filter(pa.array(kinds == kind)), names) for kind, names in _KINDS.items()}
        return [
            _record(row, pieces["broker"].rows_of(row["cycle"]), pieces["bundle"].rows_of(row["cycle"]))
            for row in sorted(cycles, key=lambda row: row["cycle"])
        ]
    except (pa.ArrowException, KeyError, ValueError, TypeError, IndexError, OverflowError, RecursionError) as error:
        raise HistoryError(f"not a file of recorded cycles: {error!r}") from None


class _Split:
    """The rows of one kind (brokers or bundles), divided by cycle."""

    def __init__(self, table: pa.Table, columns: Columns) -> None:
        count = table.num_rows
        self._cycle = table.column("cycle").to_numpy()
        order = np.argsort(self._cycle, kind="stable")
        self._cycle = self._cycle[order]
        self._row = table.column("row").to_numpy().astype(np.int64)[order]
        self._names = _texts(table, "name")[order]
        self._floats = _matrix([table.column(name).to_numpy() for name in columns.floats], count, np.float64)[order]
        self._whole = _matrix([table.column(name).to_numpy() for name in columns.whole], count, np.int64)[order]
        self._texts = _matrix([_texts(table, name) for name in columns.texts], count, object)[order]

    def rows_of(self, cycle: int) -> Rows:
        place = slice(*np.searchsorted(self._cycle, [cycle, cycle + 1]).tolist())
        return Rows(
            None,
            self._row[place],
            Table(self._names[place], self._floats[place], self._whole[place], self._texts[place]),
        )


def _matrix(columns: list[Any], count: int, kind: Any) -> Any:
    matrix = np.empty((count, len(columns)), dtype=kind)
    for number, column in enumerate(columns):
        matrix[:, number] = column
    return matrix


def _texts(table: pa.Table, name: str) -> Any:
    """Return a column of strings. Equal strings are one object, which saves memory because most strings repeat."""
    encoded = table.column(name).combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    distinct = np.array(encoded.dictionary.to_pylist(), dtype=object)
    return distinct[encoded.indices.to_numpy()] if len(distinct) else np.zeros(0, dtype=object)


def _record(row: dict[str, Any], brokers: Rows, bundles: Rows) -> HistoryRecord:
    if blank := sorted(name for name in (*KEY, *_CYCLE) if row[name] is None):
        raise ValueError(f"cycle {row['cycle']} has no {blank[0]}")
    if not 0 <= row["wall_ms"] <= MAX_TIME_MS:
        raise ValueError(f"cycle {row['cycle']} is of {row['wall_ms']} ms since 1970")
    outcome = CycleOutcome(
        plan_hash=row["plan_hash"],
        code=row["code"],
        planned=row["planned"],
        acted=row["acted"],
        details=json.loads(row["details"]),
        software=row["software"],
        dropped=row["dropped"],
        skipped=row["skipped"],
    )
    own = ("epoch", "cycle", "wall_ms", "full", "base", "document", "seal", "schema")
    return HistoryRecord(**{name: row[name] for name in own}, outcome=outcome, brokers=brokers, bundles=bundles)
