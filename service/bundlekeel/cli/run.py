"""`bundlekeel run`: runs the sidecar. To save memory this module does not import the other commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bundlekeel.cli.exit_codes import readable
from bundlekeel.leader.gate.responses import Mode

if TYPE_CHECKING:
    from bundlekeel.cli.wiring import Wiring

ConfigOption = Annotated[
    Path | None, typer.Option("-c", "--config", envvar="BUNDLEKEEL_CONFIG", help="Settings file of the sidecar.")
]


def register(app: typer.Typer, wiring: Callable[[], Wiring]) -> None:
    """Add the command to the app."""

    @app.command()
    def run(
        config: ConfigOption = None,
        mode: Annotated[
            Mode | None,
            typer.Option(
                "--mode",
                help="Mode, instead of the mode in the settings file; `bundlekeel mode` cannot raise it.",
            ),
        ] = None,
        force_mixed: Annotated[
            bool,
            typer.Option(
                "--force-mixed",
                help="Act although load managers differ, but only on brokers with the load manager of the broker that "
                "started last.",
            ),
        ] = False,
    ) -> None:
        """Run the sidecar until SIGTERM. In mode `recommend`, the default, it changes nothing in the cluster."""
        from bundlekeel.settings.load import load_settings  # noqa: PLC0415 - slow, and others take ConfigOption alone

        overrides = {"mode": mode, "force_mixed": True if force_mixed else None}
        with readable():
            code = wiring().run_daemon(load_settings(config, overrides))
        raise typer.Exit(code)
