"""Exit codes, and errors as one line that says how to fix them."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import typer
from typer.exceptions import TyperException

from bundlekeel.codec.external_input import clean_lines
from bundlekeel.core.model.errors import (
    BundlekeelError,
    ConfigError,
    Conflict,
    Forbidden,
    HistoryError,
    NotFound,
    SnapshotError,
    StoreError,
)

OK = 0
BAD_NEWS = 1
USAGE = 2
UNREACHABLE = 3
REFUSED = 4
INTERRUPTED = 130

EPILOG = (
    "Exit codes: 0 ok · 1 bad news (doctor found errors, not ready, not found, a move failed) · "
    "2 wrong usage or settings · 3 no answer (sidecar or metadata store not reachable, no data yet, "
    "a wait ran out of time, output not writable) · 4 refused, or in conflict with the present state"
)

_CODES: tuple[tuple[type[BundlekeelError], int], ...] = (
    (ConfigError, USAGE),
    (NotFound, BAD_NEWS),
    (HistoryError, BAD_NEWS),
    (Conflict, REFUSED),
    (Forbidden, REFUSED),
    (StoreError, UNREACHABLE),
    (SnapshotError, UNREACHABLE),
    (BundlekeelError, UNREACHABLE),
)


class CliError(Exception):
    """Ends a command: the message for stderr, cleaned, and the exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(clean_lines(message))
        self.code = code


def as_cli_error(error: BundlekeelError) -> CliError:
    """The same as text and exit code; a conflict lists its differences. Each problem of settings has its line."""
    code = next(code for kind, code in _CODES if isinstance(error, kind))
    problems = "\nerror: ".join(map(str, getattr(error, "problems", (error,))))
    if isinstance(error, ConfigError) and error.allowed not in problems:
        problems += f" (allowed: {error.allowed})"
    lines = [problems, *(f"  - {item}" for item in getattr(error, "difference", ()))]
    return CliError("\n".join(lines), code)


def by_option(text: str, field: str, option: str) -> str:
    """A message with the option in place of the field that it becomes: `--limit 0: …` of `limit = 0: …`. An option
    that holds a key, as in `--set KEY`, keeps the mark between it and the value."""
    mark = " = " if " " in option else " "
    return re.sub(
        rf"(^|; ){re.escape(field)}(:| = )", lambda at: f"{at[1]}{option}{':' if at[2] == ':' else mark}", text
    )


@contextmanager
def readable() -> Generator[None, None, None]:
    """Turn errors that are raised on purpose into a message on stderr and an exit code."""
    try:
        yield
    except BundlekeelError as error:
        _leave(as_cli_error(error))
    except CliError as error:
        _leave(error)
    except TyperException as error:
        raise told_usage(error) from None


@contextmanager
def left_running(said: Callable[[], str]) -> Generator[None, None, None]:
    """Around a wait: Ctrl-C ends the wait and not what is waited for, which `said` tells."""
    try:
        yield
    except KeyboardInterrupt:
        raise CliError(said(), INTERRUPTED) from None


@contextmanager
def output_written() -> Generator[None, None, None]:
    """Around the whole program: a standard output that cannot be written (a full disk) is told in one line."""
    try:
        try:
            yield
        finally:
            typer.echo(nl=False)
    except OSError:
        try:
            typer.echo()  # a line more tells whether it was standard output that failed
        except OSError as error:
            typer.echo(f"error: standard output cannot be written: {error.strerror}", err=True)
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes it, too
            raise SystemExit(UNREACHABLE) from None
        raise


class WrongUsage(TyperException, typer.Exit):
    """A wrong option, argument or command, which was told already; typer would put a frame around it."""

    def __init__(self, message: str) -> None:
        typer.Exit.__init__(self, USAGE)
        self.message = message


def told_usage(error: TyperException) -> TyperException:
    """The error to raise in its place, told in one line with the help that shows what is right."""
    if isinstance(error, WrongUsage) or not error.format_message():
        return error  # it was told, or help was asked for
    text = error.format_message().rstrip(".")
    text = text[:1].lower() + text[1:]
    if isinstance(error, typer.BadParameter) and error.message:
        text = error.message.rstrip(".")
        if error.param is not None:
            text = f"{max(error.param.opts, key=len)}{'' if text.startswith(':') else ' '}{text}"
    context: Any = getattr(error, "ctx", None)
    if context is not None and context.parent is None and hasattr(error, "option_name"):
        text += "; options stand after the command"
    answered = context is None or text.endswith("?")
    typer.echo(clean_lines(f"error: {text if answered else f'{text}; see `{context.command_path} -h`'}"), err=True)
    return WrongUsage(text)


def guarded(command: Callable[..., Any]) -> Callable[..., Any]:
    """Errors on purpose become a message and an exit code, for commands without a sidecar."""

    @functools.wraps(command)
    def run(*args: Any, **given: Any) -> Any:
        with readable():
            return command(*args, **given)

    return run


def _leave(error: CliError) -> None:
    typer.echo(f"error: {error}", err=True)
    raise typer.Exit(error.code) from None
