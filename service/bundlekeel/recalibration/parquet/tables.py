"""Recorded history as Arrow tables, for analysis."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Final, get_type_hints

import pyarrow as pa
import pyarrow.dataset as ds

from bundlekeel.model.errors import ConfigError, HistoryError
from bundlekeel.model.plan import Move
from bundlekeel.recalibration.history.ports import hour_of, in_force
from bundlekeel.recalibration.history.record import BROKERS, BUNDLES
from bundlekeel.recalibration.parquet.rows import ARROW, KEY, PLACE
from bundlekeel.recalibration.parquet.store import ParquetStore

_KEY: Final = (*PLACE, *(name for name in KEY if name != "kind"))
_ALL: Final = pa.schema([*PLACE.items(), *ARROW])
_CYCLE: Final = ("plan_hash", "code", "planned", "acted", "details", "software", "dropped", "skipped")
# All other fields of a move are tuples of rates.
_TYPES: Final = {str: pa.string(), float: pa.float64()}
_HINTS: Final = get_type_hints(Move)


def _schema(*names: str) -> pa.Schema:
    return pa.schema([_ALL.field(name) for name in (*_KEY, *names)])


# The columns of each table; `details` is JSON (`history/record.py`).
TABLES: Final = {
    "cycles": _schema(*_CYCLE),
    "brokers": _schema("name", *BROKERS.texts, *BROKERS.whole, *BROKERS.floats),
    "bundles": _schema("name", *BUNDLES.texts, *BUNDLES.whole, *BUNDLES.floats),
    "moves": pa.schema(
        [
            *_schema("acted"),
            *((item.name, _TYPES.get(_HINTS[item.name], pa.list_(pa.float64()))) for item in fields(Move)),
        ]
    ),
}


def read_history(
    uri: str, table: str = "cycles", *, since_ms: int | None = None, until_ms: int | None = None
) -> pa.Table:
    """Read one table of the recorded history: cycles, brokers, bundles or moves.

    For pandas, call `.to_pandas()` of the result; for Spark, pass it to `spark.createDataFrame`.

    Args:
        uri: directory or URI of the history.
        since_ms: first time of cycles, Unix ms; None: no limit.
        until_ms: last time of cycles, Unix ms; None: no limit.

    Returns:
        One row per planned cycle, changed broker, changed bundle, or planned move, in no order. `date` and `hour` are
        in UTC. A broker or bundle without a row is as in the cycle before; each hour begins with rows of all.

    Raises:
        ConfigError: there is no such table.
        HistoryError: nothing is recorded for that time, or a file is unreadable.
        StoreError: the store does not respond.
    """
    if table not in TABLES:
        raise ConfigError(f"table {table!r} is unknown", field="table", value=table, allowed=", ".join(TABLES))
    return table_of(history_rows(uri, since_ms, until_ms), table)


def history_rows(uri: str, since_ms: int | None, until_ms: int | None) -> ds.Dataset:
    """Return the rows of all tables, of cycles from `since_ms` to `until_ms`. They are read only where they are used.

    Raises HistoryError if nothing is recorded for that time."""
    store = ParquetStore(uri)
    first = hour_of(since_ms) if since_ms is not None else ("", 0)
    last = hour_of(until_ms) if until_ms is not None else ("9", 0)
    files = [file for file in in_force(store.files()) if first <= (file.date, file.hour) <= last]
    if not files:
        raise HistoryError(f"nothing is recorded in {store.place} for that time")
    wall_ms, rows = ds.field("wall_ms"), store.dataset(files)
    rows = rows if since_ms is None else rows.filter(wall_ms >= since_ms)
    return rows if until_ms is None else rows.filter(wall_ms <= until_ms)


def table_of(rows: ds.Dataset, table: str) -> pa.Table:
    """Return a table of these rows. Raises HistoryError if a file is unreadable."""
    try:
        if table == "moves":
            return _moves(rows)
        return rows.to_table(columns=TABLES[table].names, filter=ds.field("kind") == table.removesuffix("s"))
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        raise unreadable(error) from None


def unreadable(error: Exception) -> HistoryError:
    """Return the error for rows that cannot be read, or whose file the leader has merged meanwhile."""
    return HistoryError(f"the history cannot be read: {error}; repeat this, then run bundlekeel history check")


def _moves(rows: ds.Dataset) -> pa.Table:
    schema, own = TABLES["moves"], [*_KEY, "acted"]
    moved = (ds.field("kind") == "cycle") & (ds.field("planned") > 0)
    return pa.concat_tables(
        pa.Table.from_pylist(
            [
                {name: cycle[name] for name in own} | move
                for cycle in batch.to_pylist()
                for move in json.loads(cycle["details"])["moves"]
            ],
            schema,
        )
        for batch in rows.to_batches(columns=[*own, "details"], filter=moved)
    )
