"""Output of commands: tables for operators, JSON and YAML for programs, once or repeatedly, and progress."""

from __future__ import annotations

import itertools
import json
import operator
import os
import re
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from enum import StrEnum
from types import TracebackType
from typing import Annotated, Any, Final, Generic, Literal, TypeVar

import msgspec
import typer
import yaml
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.measure import Measurement
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Column as DrawnColumn
from rich.table import Table
from rich.text import Text

from bundlekeel.cli.exit_codes import UNREACHABLE, CliError

# Columns of output to a pipe or file: wide enough that no text is wrapped or cut.
PIPE_WIDTH = 400

T = TypeVar("T")
R = TypeVar("R")


class Output(StrEnum):
    """Output formats. `wide` is a table with all columns."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


OutputOption = Annotated[
    Output,
    typer.Option("-o", "--output", metavar="FORM", help="Output format: table, wide, json or yaml."),
]


@dataclass(frozen=True, slots=True)
class TableLayout:
    """Form of a table: with all columns or not, and the available width.

    If a row does not fit on one line, some of its cells are printed below others (stacked) instead of being cut.
    """

    wide: bool = False
    width: int = PIPE_WIDTH

    @property
    def stacked(self) -> bool:
        """Whether some cells of a row are printed below others."""
        return self.width < (200 if self.wide else 140)

    @property
    def narrow(self) -> bool:
        """Whether the width is too small for the columns of `-o wide` even if cells are stacked, as in 80 columns."""
        return self.width < 100

    def fitting(self, draw: Callable[[TableLayout], Table]) -> Table:
        """Return the table in the first form that fits without breaking a cell: on one line, stacked, or narrow."""
        for width in (PIPE_WIDTH, 139, 99):
            drawing = draw(replace(self, width=width))
            if Console(width=10_000).measure(drawing).maximum <= self.width:
                break
        return drawing


Render = Callable[[Any, TableLayout], RenderableType]


def typed(kind: type[T], render: Callable[[T, TableLayout], RenderableType]) -> Render:
    """Return a renderer that decodes a response as `kind` before `render` draws it.

    Only tables use renderers: JSON and YAML output contains the response unchanged.
    """
    return lambda value, layout: render(decoded(kind, value), layout)


def decoded(kind: type[T], value: Any) -> T:
    """Decode a response as `kind`. Raises CliError if it does not fit: then sidecar and CLI have different releases."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        remedy = "use the `bundlekeel` of the sidecar's release; commands that only read also work with -o json"
        problem = "the sidecar accepted the request, but its response has fields that this release does not support"
        raise CliError(f"{problem}: {error}; {remedy}", UNREACHABLE) from None


def console() -> Console:
    """Return a console as wide as the terminal; COLUMNS and NO_COLOR apply."""
    screen = Console(highlight=False, markup=False, emoji=False)
    if screen.is_terminal or os.environ.get("COLUMNS"):
        return screen
    return Console(highlight=False, markup=False, emoji=False, width=PIPE_WIDTH)


def dump(value: Any, output: Output, *, line: bool = False) -> None:
    """Print a value as JSON or YAML.

    `line`: the output is one of many, so print JSON on one line, and YAML as a document of its stream.
    """
    if output is Output.JSON:
        typer.echo(json.dumps(value, indent=None if line else 2, ensure_ascii=False))
    else:
        text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=1000)
        typer.echo(f"---\n{text}" if line else text, nl=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Repetition of the output: whether it is on, seconds between two outputs, and their number (0: no limit)."""

    on: bool = False
    seconds: float = 2.0
    rounds: int = 0


def show(fetch: Callable[[], Any], render: Render, output: Output, watch: Watch) -> Any:
    """Print the result of `fetch` and return it; if `watch` is on, repeat this until Ctrl-C or the last round."""
    if not watch.on:
        value = fetch()
        tell(value, render, output)
        return value
    try:
        return _repeat(fetch, render, output, watch)
    except KeyboardInterrupt:
        return None


def tell(answer: Any, render: Render, output: Output) -> None:
    """Print a response as JSON or YAML, or as the table that `render` draws."""
    _print(answer, render, output, console(), line=False)


def _repeat(fetch: Callable[[], Any], render: Render, output: Output, watch: Watch) -> Any:
    screen = console()
    live = (
        Live(console=screen, auto_refresh=False)
        if screen.is_terminal and output in (Output.TABLE, Output.WIDE)
        else None
    )
    done = 0
    value: Any = None
    if live:
        live.start()
    try:
        while True:
            try:
                value = fetch()
                drawn = render(value, TableLayout(output is Output.WIDE, screen.width)) if live else None
            except CliError as error:
                # Print the error and continue, because the sidecar can be restarting.
                value, drawn = None, Text(f"error: {error}", style="red")
                if not live:
                    typer.echo(f"error: {error}", err=True)
            if live and drawn is not None:
                live.update(Group(drawn, Text(f"every {watch.seconds:g} s · Ctrl-C ends", style="dim")), refresh=True)
            elif value is not None:
                _print(value, render, output, screen, line=True)
            done += 1
            if done == watch.rounds:
                return value
            time.sleep(watch.seconds)
    finally:
        if live:
            live.stop()


def _print(value: Any, render: Render, output: Output, screen: Console, *, line: bool) -> None:
    if output in (Output.JSON, Output.YAML):
        dump(value, output, line=line)
    else:
        screen.print(_Trimmed(render(value, TableLayout(output is Output.WIDE, screen.width))))


@dataclass(frozen=True, slots=True)
class _Trimmed:
    """Output without the spaces at the end of each line, with which tables pad their last cell."""

    drawn: RenderableType

    def __rich_console__(self, screen: Console, options: ConsoleOptions) -> RenderResult:
        for line in screen.render_lines(self.drawn, options, pad=False):
            while line and not line[-1].text.strip():
                line.pop()
            if line:
                line[-1] = Segment(line[-1].text.rstrip(), line[-1].style)
            yield from (*line, Segment.line())


def none_of(kind: str, remedy: str) -> Text:
    """Return the text that replaces an empty table: nothing of this kind exists, and how to create some."""
    return Text(f"no {kind}: {remedy}")


# Where to break a word that is too long for its column.
_SEAM: Final = re.compile(r"[/_.,-]|(?<=[a-z])(?=[A-Z])")


class _Table(Table):
    """A table that breaks long words at separators.

    If a piece between separators does not fit into its column, the table is printed as text instead: row by row, each
    cell after its header.
    """

    def add_row(self, *cells: Any, **more: Any) -> None:
        super().add_row(*(_Cell(Text(cell) if isinstance(cell, str) else cell) for cell in cells), **more)

    def __rich_console__(self, screen: Console, options: ConsoleOptions) -> RenderResult:
        last = len(self.columns) - 1
        widths = [
            width - 2 + (at in (0, last)) for at, width in enumerate(self._calculate_column_widths(screen, options))
        ]
        if not self.show_header or all(map(operator.ge, widths, map(_min_width, self.columns))):
            yield from super().__rich_console__(screen, options)
            return
        yield from [Text(str(self.title), style="bold")] if self.title else []
        first, *rest = self.columns
        for number, name in enumerate(first.cells):
            yield name
            cells = [(column.header, list(column.cells)[number].text.plain) for column in rest]  # type: ignore[union-attr]
            texts = [f"{header}: {' '.join(text.split())}".removeprefix(": ") for header, text in cells if text]
            yield Padding(Text("; ".join(texts)), (0, 0, 0, 4))
        yield from [Text(str(self.caption), style="dim")] if self.caption else []


def _min_width(column: DrawnColumn) -> int:
    """Return the minimum width of a column: its longest unbreakable piece, or its longest line if it never wraps."""
    lines = [str(column.header), *(line for cell in column.cells for line in cell.text.plain.splitlines())]  # type: ignore[union-attr]
    pieces = lines if column.no_wrap else [part for line in lines for word in line.split() for part in _pieces(word)]
    return max(map(len, pieces), default=0)


def _pieces(word: str) -> list[str]:
    cuts = [0, *(mark.end() for mark in _SEAM.finditer(word)), len(word)]
    return [word[begin:end] for begin, end in itertools.pairwise(cuts)]


@dataclass(frozen=True, slots=True)
class _Cell:
    text: Text

    def __rich_measure__(self, screen: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(screen, options, self.text)

    def __rich_console__(self, screen: Console, options: ConsoleOptions) -> RenderResult:
        cuts, plain, width = [], self.text.plain, options.max_width
        for word in re.finditer(r"^ *\S+|\S+", plain, re.MULTILINE):
            at = word.start()
            while word.end() - at > width:
                at += max((mark.end() for mark in _SEAM.finditer(plain[at : at + width]) if mark.end()), default=width)
                cuts.append(at)
        yield Text("\n").join(self.text.divide(cuts)) if cuts else self.text


def grid(*columns: str) -> Table:
    """Return a table without headers in which only the last column is wrapped. `columns`: styles of the columns before
    it."""
    listing = _Table.grid(padding=(0, 2))
    for style in columns:
        listing.add_column(style=style, no_wrap=True)
    listing.add_column(overflow="fold")
    return listing


def table(*columns: str, title: str = "", caption: str = "", lines: bool = False) -> Table:
    """Return an empty table with these column names.

    `>` before a name: the column is right-aligned and never wrapped. `lines`: print blank lines between rows.
    """
    listing = _Table(
        box=None,
        padding=(0, 1, 1 if lines else 0, 1),
        pad_edge=False,
        title=title or None,
        title_justify="left",
        title_style="bold",
        caption=caption or None,
        caption_justify="left",
        caption_style="dim",
        header_style="bold",
    )
    for name in columns:
        right = name.startswith(">")
        justify: Literal["left", "right"] = "right" if right else "left"
        listing.add_column(name.removeprefix(">"), justify=justify, no_wrap=right, overflow="fold")
    return listing


@dataclass(frozen=True, slots=True)
class Column(Generic[R]):
    """Column of a table. `cell`: returns its text for a row.

    `under`: index of the column to whose cell the text is appended (-1: the column before); None: it has its own
    column. `pattern`: how the text is appended; an empty text adds nothing. `shown`: False to omit it.
    """

    header: str
    cell: Callable[[R], str | Text]
    under: int | None = None
    pattern: str = "\n  {}"
    shown: bool = True


def listing(rows: Iterable[R], columns: Iterable[Column[R]], **options: Any) -> Table:
    """Return a table with one row per item. `options`: see `table`."""
    columns = [column for column in columns if column.shown]
    drawn = table(*(column.header for column in columns if column.under is None), **options)
    for row in rows:
        cells: list[Text] = []
        for column in columns:
            cell = column.cell(row)
            text = Text(cell) if isinstance(cell, str) else cell
            if column.under is None:
                cells.append(text)
            elif text.plain:
                before, after = column.pattern.split("{}")
                cells[column.under].append(before).append_text(text).append(after)
        drawn.add_row(*cells)
    return drawn


class ProgressLine(AbstractContextManager["ProgressLine"]):
    """Shows progress on standard error.

    A terminal shows one line that is rewritten, with the elapsed time. A file or pipe gets one line per change, at most
    one every `pause` seconds.
    """

    def __init__(self, screen: Console | None = None, *, pause: float = 0.0) -> None:
        self._screen = screen or Console(stderr=True, soft_wrap=True, highlight=False)
        self._live = Live(console=self._screen, auto_refresh=False, transient=True)
        self._start = time.monotonic()
        self._last_text, self._pause = "", pause
        self._next = self._start + pause

    def __enter__(self) -> ProgressLine:
        if self._screen.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def tell(self, text: str) -> None:
        """Show this text as the current progress."""
        now = time.monotonic()
        if self._live.is_started:
            seconds = now - self._start
            self._live.update(Text(f"{text} · {seconds:.0f} s", style="dim"), refresh=True)
        elif text != self._last_text and now >= self._next:
            self._screen.print(text, markup=False)
            self._last_text, self._next = text, now + self._pause
