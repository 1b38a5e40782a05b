"""`bundlekeel version`, which imports few modules."""

from __future__ import annotations

import typer
from rich.text import Text

from bundlekeel import __version__
from bundlekeel.cli.output import Output, OutputOption, tell


def version(output: OutputOption = Output.TABLE) -> None:
    """Print the version."""
    tell({"version": __version__}, lambda *_: Text(f"bundlekeel {__version__}"), output)


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command()(version)
