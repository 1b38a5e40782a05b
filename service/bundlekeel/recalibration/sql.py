"""SQL queries of recorded history. Needs duckdb."""

from __future__ import annotations

import re
from typing import Any

import duckdb

from bundlekeel.model.errors import ConfigError, HistoryError
from bundlekeel.recalibration.parquet.tables import TABLES, history_rows, table_of, unreadable

_ROWS = "history_rows"


def query(uri: str, sql: str, *, since_ms: int | None = None, until_ms: int | None = None) -> list[dict[str, Any]]:
    """Return the result of one SELECT over `TABLES`. If columns have equal names, the later ones get a number.

    Raises ConfigError if the query is wrong, and the errors of `read_history`.
    """
    # DuckDB may not access files, and a query cannot change that.
    with duckdb.connect(config={"enable_external_access": "false", "lock_configuration": "true"}) as database:
        try:
            if [item.type for item in database.extract_statements(sql)] != [duckdb.StatementType.SELECT]:
                raise ConfigError("the query is not one SELECT", field="sql", value=sql, allowed="one SELECT")
            rows = history_rows(uri, since_ms, until_ms)
            database.register(_ROWS, rows)
            # DuckDB reads the rows of the views as it needs them. Moves are read here, for queries that name them.
            for name in TABLES.keys() - {"moves"}:
                of_kind = database.table(_ROWS).filter(f"kind = '{name.removesuffix('s')}'")
                of_kind.select(*map(duckdb.ColumnExpression, TABLES[name].names)).create_view(name)
            named = "moves" in sql.lower()
            database.register("moves", table_of(rows, "moves") if named else TABLES["moves"].empty_table())
            database.execute(sql)
            names = _distinct([column[0] for column in database.description or ()])
            return [dict(zip(names, row, strict=True)) for row in database.fetchall()]
        except duckdb.Error as error:
            raise _explained(error, sql) from None


def _distinct(names: list[str]) -> list[str]:
    return [f"{name}_{before}" if (before := names[:at].count(name)) else name for at, name in enumerate(names)]


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
