"""Puts a sidecar together: the only package that knows concrete adapters."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, NoReturn

from bundlekeel.cli.app import make_app, without
from bundlekeel.cli.exit_codes import output_written
from bundlekeel.wiring.plugins import load_plugins

if TYPE_CHECKING:
    from bundlekeel.cli.wiring import Wiring
    from bundlekeel.settings.load import LoadedSettings
    from bundlekeel.wiring.outside import Outside

# structlog and httpx load them wherever they are installed, for tracebacks and a command line that are not used here.
_NEEDLESS: Final = ("rich", "httpx._main")


def main(opened: Callable[[LoadedSettings], Outside] | None = None) -> None:
    """Entry point of the `bundlekeel` command. `opened`: what `run` reaches the cluster with instead of the real
    adapters."""
    # The first process of a container gets no SIGTERM that it does not handle: it would run on until it is killed.
    signal.signal(signal.SIGTERM, _end)
    with output_written():
        make_app(partial(_wiring, opened), load_plugins)(prog_name="bundlekeel")


def _end(number: int, _: object) -> NoReturn:
    """End the command where it is, as an interrupt does."""
    raise SystemExit(128 + number)


def _wiring(opened: Callable[[LoadedSettings], Outside] | None) -> Wiring:
    # Imported when a command asks for it: most commands need no adapters, and this takes a second or two.
    with without(*_NEEDLESS):
        from bundlekeel.wiring.commands import Bootstrap  # noqa: PLC0415

    # httpcore imports sniffio for each request. If it is not installed, the search takes up to 1 ms.
    if find_spec("sniffio") is None:
        sys.modules["sniffio"] = None  # type: ignore[assignment]
    return Bootstrap(opened)
