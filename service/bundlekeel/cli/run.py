"""`bundlekeel run`: the sidecar itself. What tables and requests need is not loaded for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bundlekeel.cli.exit_codes import readable
from bundlekeel.daemon.answers.picture import Mode

if TYPE_CHECKING:
    from bundlekeel.cli.wiring import Wiring

ConfigOption = Annotated[
    Path | None, typer.Option("-c", "--config", envvar="BUNDLEKEEL_CONFIG", help="The sidecar's settings file.")
]


def register(app: typer.Typer, wiring: Callable[[], Wiring]) -> None:
    """Put it into the app."""

    @app.command()
    def run(
        config: ConfigOption = None,
        mode: Annotated[
            Mode | None,
            typer.Option("--mode", help="Use this mode, not the one of the file; it is also the highest allowed."),
        ] = None,
        force_mixed: Annotated[
            bool,
            typer.Option(
                "--force-mixed",
                help="Act although brokers run different load managers: among brokers of the class that started last.",
            ),
        ] = False,
    ) -> None:
        """Run the sidecar until SIGTERM. In mode `recommend`, the default, it changes nothing in the cluster."""
        from bundlekeel.settings.load import load_settings  # noqa: PLC0415 - slow, and others take ConfigOption alone

        given = {"mode": mode, "force_mixed": True if force_mixed else None}
        with readable():
            code = wiring().run_daemon(load_settings(config, given))
        raise typer.Exit(code)
