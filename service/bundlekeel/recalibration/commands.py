"""`bundlekeel history` and `bundlekeel replay`: recorded cycles, read from the store without a sidecar."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Iterator
from decimal import Decimal
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from bundlekeel.cli import units
from bundlekeel.cli.exit_codes import BAD_NEWS, USAGE, CliError, guarded
from bundlekeel.cli.output import Output, OutputOption, TableLayout, table, tell
from bundlekeel.cli.run import ConfigOption
from bundlekeel.cli.session import SinceOption, UntilOption, moment_ms, period
from bundlekeel.model.errors import HistoryError
from bundlekeel.model.response_fields import Json
from bundlekeel.model.text_format import numbered
from bundlekeel.recalibration.history.ports import HistoryStore
from bundlekeel.recalibration.recorder import history_reading as reading
from bundlekeel.recalibration.recorder.history_keeping import set_torn_aside
from bundlekeel.settings.load import load_settings

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--history", metavar="URI", help="Directory or URI of the history. Default: `history.uri` of the settings."
    ),
]
CycleArgument = Annotated[
    str,
    typer.Argument(
        metavar="CYCLE",
        help="Cycle (812), epoch and cycle (3:812), or time: 24h (ago), yesterday, 2026-11-21T18:05 (local).",
    ),
]
# Limit of the memory and the output of a query.
MOST_ROWS: Final = 10_000
_WRONG = "is neither a cycle (812), nor epoch and cycle (3:812), nor a time (24h, yesterday, 2026-11-21T18:05)"


@guarded
def ls(
    since: SinceOption = None,
    until: UntilOption = None,
    uri: StoreOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the files and their cycles, optionally of a period. Exit code 1: nothing is recorded."""
    span = period(since, until)
    store = _store(config, uri)
    rows = reading.listing(store)
    begin, end = span["since_ms"] or 0, span["until_ms"] or float("inf")
    selected = [row for row in rows if row["why"] or (row["last_ms"] >= begin and row["first_ms"] <= end)]
    if selected or output in (Output.JSON, Output.YAML):
        tell(selected, _listing, output)
    if not selected:
        raise CliError("nothing is recorded for that time" if rows else reading.nothing(store.place), BAD_NEWS)


@guarded
def show(
    cycle: CycleArgument,
    uri: StoreOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the input, decision and actions of one cycle. For a time: the last cycle before it."""
    answer = reading.summary(reading.find(_store(config, uri), _parse_cycle(cycle)))
    tell(answer, _cycle, output)


@guarded
def check(
    aside: Annotated[
        bool, typer.Option("--set-aside", help="Move unreadable files to the directory _aside, which is not read.")
    ] = False,
    uri: StoreOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Check all files: incomplete files, missing and duplicate cycles, checksums. Exit code 1: there are faults, or
    nothing is recorded."""
    store = _store(config, uri)
    moved = set_torn_aside(store, store.files()) if aside else []
    answer = reading.check(store) | {"set_aside": moved}
    tell(answer, _checked, output)
    if not answer["ok"] or moved:
        raise typer.Exit(BAD_NEWS)


@guarded
def export(
    cycle: CycleArgument,
    file: Annotated[Path | None, typer.Option("--file", help="File to write. Default: standard output.")] = None,
    uri: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Write all inputs of one cycle's plan as JSON: brokers, bundles, memory, ledger, guard, parameters."""
    text = json.dumps(reading.exported(reading.find(_store(config, uri), _parse_cycle(cycle))), ensure_ascii=False)
    if file is None:
        typer.echo(text)
        return
    try:
        file.write_text(text + "\n")
    except OSError as error:
        raise CliError(f"{file} cannot be written: {error.strerror}", USAGE) from None


@guarded
def sql(
    query: Annotated[
        str,
        typer.Argument(
            metavar="QUERY",
            help=f"One SELECT from cycles, brokers, bundles or moves, in quotes. Returns at most {MOST_ROWS:,} rows.",
        ),
    ],
    since: SinceOption = None,
    until: UntilOption = None,
    uri: StoreOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Query the history with SQL (DuckDB), read-only. `--since` is rounded down to the hour (UTC). Exit code 1: nothing
    is recorded."""
    span, store = period(since, until), _store(config, uri)
    try:
        from bundlekeel.recalibration import sql as database  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name != "duckdb":
            raise
        raise CliError("history sql needs duckdb: pip install '.[sql]' in the sources", USAGE) from None
    rows, more = database.query(store.place, query, limit=MOST_ROWS, **span)
    tell(_plain(rows), _result, output)
    if more:
        typer.echo(
            f"only the first {MOST_ROWS:,} rows: for the others, narrow the query or add LIMIT and OFFSET", err=True
        )


@guarded
def replay(
    cycle: Annotated[str, typer.Argument(metavar="CYCLE|all", help="Cycle as in `history show`, or all.")],
    uri: StoreOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Plan recorded cycles again. Exit code 1 if a plan differs from the recorded one."""
    selection = None if cycle == "all" else _parse_cycle(cycle)
    store = _store(config, uri)
    answer = reading.replayed(store, selection)
    if not answer["cycles"] and not answer["unreadable"]:
        raise HistoryError(reading.nothing(store.place))
    tell(answer, _replayed, output)
    if not answer["ok"]:
        raise typer.Exit(BAD_NEWS)


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    group = typer.Typer(
        no_args_is_help=True, help="Show and check the recorded history: input and decision of each cycle."
    )
    for command in (ls, show, check, export, sql):
        group.command()(command)
    app.add_typer(group, name="history")
    app.command()(replay)


def _store(config: Path | None, uri: str | None) -> HistoryStore:
    # Imported only if needed, because it imports the recorder.
    from bundlekeel.recalibration.recorder.wiring import history_store  # noqa: PLC0415

    return history_store(load_settings(config), uri)


def _parse_cycle(text: str) -> reading.Wanted:
    if match := re.fullmatch(r"(?:([0-9]{1,18}):)?([0-9]{1,18})", text):
        return reading.Wanted(text, int(match[2]), int(match[1]) if match[1] else None)
    now = dt.datetime.now().astimezone()
    return reading.Wanted(text, at_ms=moment_ms(text, now, f"{text!r} {_WRONG}"))


def _listing(rows: list[Json], layout: TableLayout) -> RenderableType:
    count = Text(numbered(len(rows), "file"), style="dim")
    if layout.stacked:
        # A path that is broken into lines cannot be copied, so print the other values on the next line.
        return Group(*(Text(f"{row['file']}\n  {_contents(row)}") for row in rows), count)
    listing = table("FILE", ">CYCLES", "FIRST", "LAST", ">ROWS", ">BYTES")
    for row in rows:
        size = f"{row['bytes']:,}"
        if row["why"]:
            listing.add_row(row["file"], "", row["why"], "", "", size)
        else:
            ends = [f"{row[f'{end}_cycle']} {units.moment(row[f'{end}_ms'])}" for end in ("first", "last")]
            listing.add_row(row["file"], f"{row['cycles']:,}", *ends, f"{row['rows']:,}", size)
    return Group(listing, count)


def _contents(row: Json) -> str:
    size = f"{row['bytes']:,} bytes"
    if row["why"]:
        return f"{row['why']}; {size}"
    ends = [f"cycle {row[f'{end}_cycle']}, {units.moment(row[f'{end}_ms'])}" for end in ("first", "last")]
    return f"{', to '.join(ends)}\n  {numbered(row['cycles'], 'cycle')}, {numbered(row['rows'], 'row')}, {size}"


def _cycle(answer: Json, _layout: TableLayout) -> RenderableType:
    brokers, moves = numbered(answer["brokers"], "broker"), numbered(answer["planned"], "move")
    lines = [
        f"cycle {answer['cycle']} of epoch {answer['epoch']}, {units.moment(answer['wall_ms'])}",
        f"{brokers}, {numbered(answer['bundles'], 'bundle')}, strategy {answer['strategy']}",
        f"{answer['code']}: {answer['verdict']}",
        f"plan {answer['plan']}, {moves}, {'executed' if answer['acted'] else 'not executed'}",
        *(f"  {move['bundle']}: {move['source']} -> {move['target']}" for move in answer["moves"]),
        f"recorded by {answer['software']}",
    ]
    return Text("\n".join(lines))


def _checked(answer: Json, _layout: TableLayout) -> RenderableType:
    lines = [
        f"{answer['cycles']:,} cycles in {numbered(answer['files'], 'file')}, {answer['bytes']:,} bytes; "
        f"{numbered(answer['undecided'], 'cycle')} could not decide, {answer['dropped']} were not recorded"
    ]
    if not answer["cycles"]:
        lines.append(reading.nothing(answer["place"]))
    if answer["mixed"]:
        lines.append(answer["mixed"])
    lines += map(_unreadable, answer["unreadable"])
    lines += [f"set aside: {path}" for path in answer["set_aside"]]
    lines += [f"{cycles} cannot be rebuilt: {row['why']}" for cycles, row in _ranges(answer["broken"])]
    lines += [
        f"{numbered(row['missing'], 'cycle')} missing between {row['after']} and {row['before']}"
        for row in answer["gaps"]
    ]
    lines += [f"cycle {row['epoch']}:{row['cycle']} is recorded twice" for row in answer["doubles"]]
    return Text("\n".join([*lines, "ok" if answer["ok"] else "not ok"]))


def _unreadable(row: Json) -> str:
    named = "" if row["file"] in row["why"] else f"{row['file']}: "
    return f"cannot be read: {named}{row['why']}"


def _ranges(rows: list[Json]) -> Iterator[tuple[str, Json]]:
    """Merge faults of consecutive cycles that have one cause. Yields the range of cycles as text, and the first row."""
    first, count = None, 0
    for row, following in zip_longest(rows, rows[1:]):
        first, count = first or row, count + 1
        lacks = f"it continues cycle {row['cycle']} of epoch {row['epoch']}, which is missing"
        if following is not None and following["why"] == lacks:
            continue
        begin, end = (f"{item['epoch']}:{item['cycle']}" for item in (first, row))
        yield f"cycle {begin}" if count == 1 else f"{count} cycles, {begin} to {end}", first
        first, count = None, 0


def _plain(value: Any) -> Any:
    """Convert a value of DuckDB to one of JSON. NaN and infinity become None; times and other values strings."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float | Decimal):
        return float(value) if math.isfinite(value) else None
    return value if value is None or isinstance(value, int | str) else str(value)


def _result(rows: list[Json], _layout: TableLayout) -> RenderableType:
    if not rows:
        return Text("no rows")
    right = [all(isinstance(row[name], int | float | None) for row in rows) for name in rows[0]]
    listing = table(*(f">{name}" if number else name for name, number in zip(rows[0], right, strict=True)))
    for row in rows:
        listing.add_row(*map(_cell, row.values()))
    return listing


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.6f}".rstrip("0").rstrip(".")
    return "" if value is None else str(value)


def _difference(row: Json) -> str:
    return f"plan {row['hash']}, recorded {row['recorded']}"


def _replayed(answer: Json, _layout: TableLayout) -> RenderableType:
    lines = [
        f"{answer['same']} of {answer['cycles']} replayed cycles give the recorded plan; "
        f"{answer['moved']} of the replayed plans have moves"
    ]
    lines += [
        f"{cycles}: {row['why'] or _difference(row)} ({row['software']})"
        for cycles, row in _ranges(answer["different"])
    ]
    lines += map(_unreadable, answer["unreadable"])
    return Text("\n".join(lines))
