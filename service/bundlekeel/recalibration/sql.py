"""SQL queries of recorded history. Needs duckdb."""

from __future__ import annotations

import re
from itertools import count
from typing import Any

import duckdb

from bundlekeel.model.errors import ConfigError, HistoryError
from bundlekeel.recalibration.parquet.tables import TABLES, derived_rows, history_rows, unreadable

_ROWS = "history_rows"


def query(
    uri: str, sql: str, *, limit: int, since_ms: int | None = None, until_ms: int | None = None
) -> tuple[list[dict[str, Any]], bool]:
    """Return the first `limit` rows of one SELECT over `TABLES`, and whether there are more.

    If columns have equal names, the later ones get a number. `since_ms` is rounded down to the hour. Raises ConfigError
    if the query is wrong, and the errors of `read_history`.
    """
    # DuckDB may not access files, and a query cannot change that.
    with duckdb.connect(config={"enable_external_access": "false", "lock_configuration": "true"}) as database:
        try:
            if [item.type for item in database.extract_statements(sql)] != [duckdb.StatementType.SELECT]:
                raise ConfigError("the query is not one SELECT", field="sql", value=sql, allowed="one SELECT")
            rows = history_rows(uri, since_ms, until_ms)
            database.register(_ROWS, rows)
            # DuckDB reads stored rows as it needs them. Derived rows are read here, for queries that name their table.
            for name, schema in TABLES.items():
                derived = derived_rows(rows, name) if name in sql.lower() else schema.empty_table()
                if name == "moves":
                    database.register(name, derived)
                    continue
                database.register(f"derived_{name}", derived)
                of_kind = database.table(_ROWS).filter(f"kind = '{name.removesuffix('s')}'")
                stored = of_kind.select(*map(duckdb.ColumnExpression, schema.names))
                stored.union(database.table(f"derived_{name}")).create_view(name)
            database.execute(sql)
            names = _distinct([column[0] for column in database.description or ()])
            # The result is read as a stream: rows after these are not in memory.
            result = [dict(zip(names, row, strict=True)) for row in database.fetchmany(limit + 1)]
            return result[:limit], len(result) > limit
        except duckdb.Error as error:
            raise _explained(error, sql) from None


def _distinct(names: list[str]) -> list[str]:
    result: list[str] = []
    for name in names:
        numbered = (f"{name}_{number}" for number in count(1))
        unused = (item for item in numbered if item not in names and item not in result)
        result.append(next(unused) if name in result else name)
    return result


def _explained(error: duckdb.Error, sql: str) -> ConfigError | HistoryError:
    text = str(error)
    if "stream registered as" in text:
        return unreadable(error)
    if isinstance(error, duckdb.CatalogException) and "Table with name" in text:
        text = re.sub(r"\nDid you mean .*", "", text) + f"\ntables: {', '.join(TABLES)}"
    elif isinstance(error, duckdb.BinderException):
        for name, schema in TABLES.items():
            text += f"\ncolumns of {name}: {', '.join(schema.names)}" if name in sql.lower() else ""
    return ConfigError(f"the query failed: {text}", field="sql", value=sql)
