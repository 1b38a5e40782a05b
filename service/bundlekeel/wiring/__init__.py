"""Puts a sidecar together: the only package that knows concrete adapters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bundlekeel.cli.app import make_app
from bundlekeel.wiring.plugins import load_plugins

if TYPE_CHECKING:
    from bundlekeel.cli.wiring import Wiring


def main() -> None:
    """Entry point of the `bundlekeel` command."""
    make_app(_wiring, load_plugins)()


def _wiring() -> Wiring:
    # Imported when a command asks for it: most commands need no adapters, and this takes a second or two.
    from bundlekeel.wiring.commands import Bootstrap  # noqa: PLC0415

    return Bootstrap()
