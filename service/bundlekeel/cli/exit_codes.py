"""Exit codes of the command line, and errors as messages of one line that contain the fix."""

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

from bundlekeel.model.errors import (
    BundlekeelError,
    ConfigError,
    Conflict,
    Forbidden,
    HistoryError,
    NotFound,
    SnapshotError,
    StoreError,
)
from bundlekeel.pulsar.formats.external_input import clean_lines

OK = 0
BAD_NEWS = 1
USAGE = 2
UNREACHABLE = 3
REFUSED = 4
INTERRUPTED = 130

EPILOG = (
    "Exit codes: 0 ok · 1 bad news (doctor found errors, not ready, not found, a move failed) · "
    "2 usage or settings error · 3 no response (sidecar or metadata store unreachable, no data yet, "
    "a wait timed out, output not writable) · 4 refused, or in conflict with the present state"
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
    """Error that ends a command with exit code `code`. Its message, for stderr, has no control characters."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(clean_lines(message))
        self.code = code


def as_cli_error(error: BundlekeelError) -> CliError:
    """Return an error as a CliError with its exit code.

    The message lists the differences of a conflict, and each problem of the settings on its own line.
    """
    code = next(code for kind, code in _CODES if isinstance(error, kind))
    problems = "\nerror: ".join(map(str, getattr(error, "problems", (error,))))
    if isinstance(error, ConfigError) and error.allowed not in problems:
        problems += f" (allowed: {error.allowed})"
    lines = [problems, *(f"  - {item}" for item in getattr(error, "difference", ()))]
    return CliError("\n".join(lines), code)


def by_option(text: str, field: str, option: str) -> str:
    """Replace a field in a message by the option that sets it: `limit = 0: …` becomes `--limit 0: …`.

    After an option with a key, such as `--set KEY`, the ` = ` between key and value stays.
    """
    mark = " = " if " " in option else " "
    return re.sub(
        rf"(^|; ){re.escape(field)}(:| = )", lambda at: f"{at[1]}{option}{':' if at[2] == ':' else mark}", text
    )


@contextmanager
def readable() -> Generator[None, None, None]:
    """Turn expected errors into a message on stderr and an exit code."""
    try:
        yield
    except BundlekeelError as error:
        _leave(as_cli_error(error))
    except CliError as error:
        _leave(error)
    except TyperException as error:
        raise report_usage_error(error) from None


@contextmanager
def left_running(describe: Callable[[], str]) -> Generator[None, None, None]:
    """If Ctrl-C ends a wait, exit with the message of `describe`. The sidecar continues the work."""
    try:
        yield
    except KeyboardInterrupt:
        raise CliError(describe(), INTERRUPTED) from None


@contextmanager
def output_written() -> Generator[None, None, None]:
    """Report in one line if standard output cannot be written, for example because the disk is full."""
    try:
        try:
            yield
        finally:
            typer.echo(nl=False)
    except OSError:
        try:
            typer.echo()  # fails, too, if the error came from standard output
        except OSError as error:
            typer.echo(f"error: standard output cannot be written: {error.strerror}", err=True)
            # The interpreter flushes standard output at exit, which would fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(UNREACHABLE) from None
        raise


class WrongUsage(TyperException, typer.Exit):
    """Usage error that was already printed. This class stops typer from printing it again, in a frame."""

    def __init__(self, message: str) -> None:
        typer.Exit.__init__(self, USAGE)
        self.message = message


def report_usage_error(error: TyperException) -> TyperException:
    """Print a usage error as one line with a hint to the help, and return the error to raise."""
    if isinstance(error, WrongUsage) or not error.format_message():
        return error  # already reported, or a request for help
    text = error.format_message().rstrip(".")
    text = text[:1].lower() + text[1:]
    if isinstance(error, typer.BadParameter) and error.message:
        text = error.message.rstrip(".")
        if error.param is not None:
            text = f"{max(error.param.opts, key=len)}{'' if text.startswith(':') else ' '}{text}"
    context: Any = getattr(error, "ctx", None)
    if context is not None and context.parent is None and hasattr(error, "option_name"):
        text += "; options come after the command"
    has_hint = context is None or text.endswith("?")
    typer.echo(clean_lines(f"error: {text if has_hint else f'{text}; see `{context.command_path} -h`'}"), err=True)
    return WrongUsage(text)


def guarded(command: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a command that needs no sidecar, so that expected errors become a message and an exit code."""

    @functools.wraps(command)
    def run(*args: Any, **options: Any) -> Any:
        with readable():
            return command(*args, **options)

    return run


def _leave(error: CliError) -> None:
    typer.echo(f"error: {error}", err=True)
    raise typer.Exit(error.code) from None
