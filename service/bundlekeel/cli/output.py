"""How a command prints: tables for people, JSON and YAML for programs, once or repeatedly, and progress meanwhile."""

from __future__ import annotations

import itertools
import json
import operator
import os
import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from enum import StrEnum
from types import TracebackType
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
import typer
import yaml
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.measure import Measurement
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from bundlekeel.cli.exit_codes import UNREACHABLE, CliError

# Into a pipe or file nothing is wrapped or cut off.
PIPE_WIDTH = 400

T = TypeVar("T")


class Output(StrEnum):
    """`wide` is a table with every column."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


OutputOption = Annotated[
    Output,
    typer.Option("-o", "--output", metavar="FORM", help="How to print the answer: table, wide, json or yaml."),
]


@dataclass(frozen=True, slots=True)
class TableLayout:
    """What a table may fill. Where a row does not fit on one line, cells are stacked instead of cut off."""

    wide: bool = False
    width: int = PIPE_WIDTH

    @property
    def stacked(self) -> bool:
        """Whether cells of a row are put below each other."""
        return self.width < (200 if self.wide else 140)

    @property
    def narrow(self) -> bool:
        """Whether even stacked cells leave no room for what `-o wide` tells as well: 80 columns."""
        return self.width < 100

    def fitting(self, draw: Callable[[TableLayout], Table]) -> Table:
        """The first form of a table whose rows fit without breaking a cell: on one line, stacked, narrow."""
        for width in (PIPE_WIDTH, 139, 99):
            made = draw(replace(self, width=width))
            if Console(width=10_000).measure(made).maximum <= self.width:
                break
        return made


Render = Callable[[Any, TableLayout], RenderableType]


def typed(kind: type[T], render: Callable[[T, TableLayout], RenderableType]) -> Render:
    """Draw an answer as the type that the API documents for it; JSON and YAML print it as it came."""
    return lambda value, layout: render(decoded(kind, value), layout)


def decoded(kind: type[T], value: Any) -> T:
    """An answer as its type. CliError when it does not fit: the sidecar has another release."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        remedy = "use the `bundlekeel` of the sidecar's release; commands that only read also work with -o json"
        said = "the sidecar accepted the request, but its answer has other fields than this release knows"
        raise CliError(f"{said}: {error}; {remedy}", UNREACHABLE) from None


def console() -> Console:
    """A terminal is filled; COLUMNS and NO_COLOR are heeded."""
    made = Console(highlight=False, markup=False, emoji=False)
    if made.is_terminal or os.environ.get("COLUMNS"):
        return made
    return Console(highlight=False, markup=False, emoji=False, width=PIPE_WIDTH)


def dump(value: Any, output: Output, *, line: bool = False) -> None:
    """JSON (on one line when repeated) or YAML (a document each)."""
    if output is Output.JSON:
        typer.echo(json.dumps(value, indent=None if line else 2, ensure_ascii=False))
    else:
        text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=1000)
        typer.echo(f"---\n{text}" if line else text, nl=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Whether to go on printing, how often, and (in tests) how many times."""

    on: bool = False
    seconds: float = 2.0
    rounds: int = 0


def show(fetch: Callable[[], Any], render: Render, output: Output, watch: Watch) -> Any:
    """Print what `fetch` returns; with `watch` until interrupted. Returns the last answer."""
    if not watch.on:
        value = fetch()
        tell(value, render, output)
        return value
    try:
        return _repeat(fetch, render, output, watch)
    except KeyboardInterrupt:
        return None


def tell(answer: Any, render: Render, output: Output) -> None:
    """Print an answer that is there already."""
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
                # A sidecar that restarts is no reason to stop watching.
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
    """Without the blanks with which tables fill the last cell of a row."""

    drawn: RenderableType

    def __rich_console__(self, screen: Console, options: ConsoleOptions) -> RenderResult:
        for line in screen.render_lines(self.drawn, options, pad=False):
            while line and not line[-1].text.strip():
                line.pop()
            if line:
                line[-1] = Segment(line[-1].text.rstrip(), line[-1].style)
            yield from (*line, Segment.line())


def none_of(what: str, remedy: str) -> Text:
    """In place of a table without rows: that there is none, and what would make one."""
    return Text(f"no {what}: {remedy}")


# Where a word that is too long for its column may be broken.
_SEAM: Final = re.compile(r"[/_.,-]|(?<=[a-z])(?=[A-Z])")


class _Table(Table):
    """A word that is too long for its column is broken at a seam where it has one. A table in which a word without one
    does not fit is printed row by row, each cell after its header."""

    def add_row(self, *cells: Any, **more: Any) -> None:
        super().add_row(*(_Cell(Text(cell) if isinstance(cell, str) else cell) for cell in cells), **more)

    def __rich_console__(self, screen: Console, options: ConsoleOptions) -> RenderResult:
        last = len(self.columns) - 1
        room = [
            width - 2 + (at in (0, last)) for at, width in enumerate(self._calculate_column_widths(screen, options))
        ]
        if not self.show_header or all(map(operator.ge, room, map(_least, self.columns))):
            yield from super().__rich_console__(screen, options)
            return
        yield from [Text(str(self.title), style="bold")] if self.title else []
        first, *others = self.columns
        for number, name in enumerate(first.cells):
            yield name
            cells = [(column.header, list(column.cells)[number].text.plain) for column in others]  # type: ignore[union-attr]
            told = [f"{header}: {' '.join(text.split())}".removeprefix(": ") for header, text in cells if text]
            yield Padding(Text("; ".join(told)), (0, 0, 0, 4))
        yield from [Text(str(self.caption), style="dim")] if self.caption else []


def _least(column: Column) -> int:
    """The columns that its longest piece takes, or its longest line where it is not wrapped."""
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
    """Rows without headers: the last column is wrapped, the others are not. One that is named `bold` is so."""
    made = _Table.grid(padding=(0, 2))
    for style in columns:
        made.add_column(style=style, no_wrap=True)
    made.add_column(overflow="fold")
    return made


def table(*columns: str, title: str = "", caption: str = "", lines: bool = False) -> Table:
    """A plain table. A column that starts with `>` is right-aligned and never wrapped; `lines` sets tall rows apart."""
    made = _Table(
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
        made.add_column(name.removeprefix(">"), justify=justify, no_wrap=right, overflow="fold")
    return made


class ProgressLine(AbstractContextManager["ProgressLine"]):
    """Progress on standard error: on a terminal one line that is rewritten, with the time so far; into a file or a pipe
    a line for each change, at most one in so many seconds (`pause`)."""

    def __init__(self, screen: Console | None = None, *, pause: float = 0.0) -> None:
        self._screen = screen or Console(stderr=True, soft_wrap=True, highlight=False)
        self._live = Live(console=self._screen, auto_refresh=False, transient=True)
        self._begun = time.monotonic()
        self._told, self._pause = "", pause
        self._next = self._begun + pause

    def __enter__(self) -> ProgressLine:
        if self._screen.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def tell(self, text: str) -> None:
        """Show how far it is."""
        now = time.monotonic()
        if self._live.is_started:
            seconds = now - self._begun
            self._live.update(Text(f"{text} · {seconds:.0f} s", style="dim"), refresh=True)
        elif text != self._told and now >= self._next:
            self._screen.print(text, markup=False)
            self._told, self._next = text, now + self._pause
