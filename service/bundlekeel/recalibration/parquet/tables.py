"""Recorded history as Arrow tables, for analysis."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from bundlekeel.model.errors import ConfigError, HistoryError
from bundlekeel.model.plan import Move
from bundlekeel.recalibration.history.ports import hour_of, in_force
from bundlekeel.recalibration.history.record import BROKERS, BUNDLES, places_of
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
        since_ms: first time of cycles, Unix ms, rounded down to the hour; None: no limit.
        until_ms: last time of cycles, Unix ms; None: no limit.

    Returns:
        One row per planned cycle, changed broker, changed bundle, or planned move, in no order. `date` and `hour` are
        in UTC. Each hour begins with rows of all brokers and bundles. Later, a broker or bundle without a row is as in
        the cycle before. One that left has a row in the first cycle without it, and its values are null.

    Raises:
        ConfigError: there is no such table.
        HistoryError: nothing is recorded for that time, or a file is unreadable.
        StoreError: the store does not respond.
    """
    if table not in TABLES:
        raise ConfigError(f"table {table!r} is unknown", field="table", value=table, allowed=", ".join(TABLES))
    rows = history_rows(uri, since_ms, until_ms)
    derived = derived_rows(rows, table)
    if table == "moves":
        return derived
    with _reading():
        stored = rows.to_table(columns=TABLES[table].names, filter=ds.field("kind") == table.removesuffix("s"))
    return pa.concat_tables([stored, derived])


def history_rows(uri: str, since_ms: int | None, until_ms: int | None) -> ds.Dataset:
    """Return the recorded rows of cycles from the hour of `since_ms` to `until_ms`. They are read only where used.

    An hour is not cut at its start, because later rows contain only changes.

    Raises HistoryError if nothing is recorded for that time."""
    store = ParquetStore(uri)
    first = hour_of(since_ms) if since_ms is not None else ("", 0)
    last = hour_of(until_ms) if until_ms is not None else ("9", 0)
    files = [file for file in in_force(store.files()) if first <= (file.date, file.hour) <= last]
    if not files:
        raise HistoryError(f"nothing is recorded in {store.place} for that time")
    rows = store.dataset(files)
    return rows if until_ms is None else rows.filter(ds.field("wall_ms") <= until_ms)


def derived_rows(rows: ds.Dataset, table: str) -> pa.Table:
    """Return the rows of a table that are not stored as rows: all moves, and the brokers or bundles that left.

    Raises HistoryError if a file is unreadable."""
    with _reading():
        if table == "cycles":
            return TABLES[table].empty_table()
        return _moves(rows) if table == "moves" else _departures(rows, table)


def unreadable(error: Exception) -> HistoryError:
    """Return the error for rows that cannot be read, or whose file the leader has merged meanwhile."""
    return HistoryError(f"the history cannot be read: {error}; repeat this, then run bundlekeel history check")


@contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise unreadable(error) from None


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


def _departures(rows: ds.Dataset, table: str) -> pa.Table:
    """Return one row, with key and name only, per broker or bundle that is missing in a cycle but not in the last."""
    departures: list[dict[str, Any]] = []
    last, names = (-1, -1), np.zeros(0, dtype=object)
    # One hour at a time, because the names of all hours need much memory.
    for (date, hour, epoch), together in groupby(_orders(rows, table), itemgetter("date", "hour", "epoch")):
        cycles = list(together)
        reordered = [cycle["cycle"] for cycle in cycles if cycle["full"] or cycle["order"] is not None]
        place = (ds.field("date") == date) & (ds.field("hour") == hour) & (ds.field("epoch") == epoch)
        of_table = ds.field("kind") == table.removesuffix("s")
        stored = rows.to_table(
            columns=["cycle", "row", "name"], filter=place & of_table & ds.field("cycle").isin(reordered)
        )
        of_cycle, row, name = (stored.column(column).to_numpy() for column in ("cycle", "row", "name"))
        for cycle in cycles:
            if not cycle["full"] and last != (epoch, cycle["base"]):
                # The record to which these changes apply is missing. Continue with the next record of all values.
                continue
            last = epoch, cycle["cycle"]
            if not cycle["full"] and cycle["order"] is None:
                continue
            here = of_cycle == cycle["cycle"]
            before = np.full(row[here].max(initial=-1) + 1, -1) if cycle["full"] else places_of(cycle["order"])
            stays = before >= 0
            missing = set(np.delete(names, before[stays])) - set(name[here])
            departures += [{key: cycle[key] for key in _KEY} | {"name": item} for item in sorted(missing)]
            old, names = names, np.empty(len(before), dtype=object)
            names[stays] = old[before[stays]]
            names[row[here]] = name[here]
    return pa.Table.from_pylist(departures, TABLES[table])


def _orders(rows: ds.Dataset, table: str) -> list[dict[str, Any]]:
    """Return key, `full`, `base` and the table's `order` (`Rows`) of each cycle, in the order of cycles."""
    own = [*_KEY, "full", "base"]
    cycles = [
        {name: cycle[name] for name in own} | {"order": json.loads(cycle["document"])["order"].get(table)}
        for batch in rows.to_batches(columns=[*own, "document"], filter=ds.field("kind") == "cycle")
        for cycle in batch.to_pylist()
    ]
    return sorted(cycles, key=itemgetter("epoch", "cycle"))
