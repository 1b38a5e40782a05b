"""The typer app, put together from the command modules."""

from __future__ import annotations

from collections.abc import Callable

import typer

from bundlekeel import __version__
from bundlekeel.cli import byhand, changes, channel, deadman, history, local, operations, quotas, reads, thresholds
from bundlekeel.cli.config import config_app
from bundlekeel.cli.exits import EPILOG, USAGE
from bundlekeel.cli.simulate import simulate
from bundlekeel.cli.token import token_app
from bundlekeel.cli.wiring import Wiring

_HELP = (
    "A load balancer sidecar for Apache Pulsar: watches every broker, says what it would move and why, "
    "and moves it safely."
)


# Commands that plan by themselves: without a strategy somebody installed they would do something else.
PLANNING = ("run", "decide", "config", "simulate")


def make_app(wiring: Wiring, plugins: Callable[[], list[str]] = list) -> typer.Typer:
    """The whole command line. `wiring` is what bootstrap knows and the CLI must not.

    `plugins` loads third parties' strategies before a command runs and tells what is wrong with them.
    """
    app = typer.Typer(
        name="bundlekeel",
        help=_HELP,
        epilog=EPILOG,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def root(
        context: typer.Context,
        show_version: bool = typer.Option(
            False, "--version", is_eager=True, help="Print the version.", callback=_version
        ),
    ) -> None:
        """Options of the program itself."""
        problems = plugins()
        for problem in problems:
            typer.echo(f"error: {problem}", err=True)
        if problems and context.invoked_subcommand in PLANNING:
            raise typer.Exit(USAGE)

    reads.register(app)
    channel.register(app)
    changes.register(app)
    byhand.register(app)
    operations.register(app)
    thresholds.register(app)
    quotas.register(app)
    local.register(app, wiring)
    deadman.register(app, wiring)
    history.register(app, wiring)
    app.command()(simulate)
    app.add_typer(config_app, name="config")
    app.add_typer(token_app, name="token")
    return app


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"bundlekeel {__version__}")
        raise typer.Exit
