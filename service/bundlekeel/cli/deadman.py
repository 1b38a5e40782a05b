"""`bundlekeel deadman`: a separate job that restores the brokers' own shedding if no sidecar works."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from bundlekeel.cli import text_views
from bundlekeel.cli.exit_codes import BAD_NEWS, OK, USAGE, CliError, as_cli_error, guarded
from bundlekeel.cli.output import Output, OutputOption, TableLayout, tell
from bundlekeel.cli.run import ConfigOption
from bundlekeel.cli.session import login, seconds_of
from bundlekeel.cli.wiring import Wiring
from bundlekeel.model.errors import BundlekeelError
from bundlekeel.model.response_fields import Json
from bundlekeel.model.text_format import format_duration
from bundlekeel.requests.failsafe import CONFIRM_SECONDS
from bundlekeel.settings.load import LoadedSettings, load_settings
from bundlekeel.settings.model import FAILSAFE_AFTER, FAILSAFE_CYCLES

GOOD = ("alive", "not_taken_over")

_AFTER_HELP = "Restore the brokers' own shedding when the last completed cycle is older than this."
_CONFIRM_HELP = "Observe for this long before the restore, in case a clock is wrong."


def register(app: typer.Typer, wiring: Callable[[], Wiring]) -> None:
    """Add the command to the app."""

    @app.command()
    @guarded
    def deadman(
        after: Annotated[str, typer.Option("--after", metavar="DURATION", help=_AFTER_HELP)] = format_duration(
            FAILSAFE_AFTER
        ),
        confirm: Annotated[
            str, typer.Option("--confirm", metavar="DURATION", help=_CONFIRM_HELP)
        ] = f"{CONFIRM_SECONDS:g}s",
        every: Annotated[
            str, typer.Option("--every", metavar="DURATION", help="Time between two checks. Default: check once.")
        ] = "",
        _once: Annotated[bool, typer.Option("--once", hidden=True)] = False,
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, without doing it.")] = False,
        by: Annotated[str, typer.Option("--by", help="Name of the requester, for the journal of a restore.")] = "",
        config: ConfigOption = None,
        output: OutputOption = Output.TABLE,
    ) -> None:
        """Restore the brokers' own shedding if no sidecar has completed a cycle for too long. Needs no running sidecar.

        Checks once and exits, for a CronJob or a timer. With --every it runs until SIGTERM, completes the check in
        progress and exits with code 0.

        Exit codes: 0 a sidecar works, or no takeover is active. 1 no sidecar works: `state` of -o json is `restored`,
        `incomplete` (not on every broker: run it again) or, in a dry run, `dead`. 3 the metadata store or the brokers
        could not be read, and nothing was done.
        """
        settings = load_settings(config)
        max_age, watch = _limit(settings, after), seconds_of("--confirm", confirm, least=0)
        name = by or f"deadman ({login()}@{socket.gethostname()})"

        def check() -> Json:
            return wiring().deadman(settings, after=max_age, confirm=watch, by=name, dry_run=dry_run)

        if every:
            _check_repeatedly(check, seconds_of("--every", every, least=1), output)
        answer = check()
        tell(answer, story, output)
        raise typer.Exit(OK if answer["state"] in GOOD else BAD_NEWS)


def _limit(settings: LoadedSettings, after: str) -> float:
    limit, least = seconds_of("--after", after), FAILSAFE_CYCLES * settings.settings.cycle.interval
    if limit < least:
        raise CliError(
            f"--after {after!r}: expected {least:g}s or more, {FAILSAFE_CYCLES} times `cycle.interval`", USAGE
        )
    return limit


def _check_repeatedly(check: Callable[[], Json], pause: float, output: Output) -> None:
    """Run `check` every `pause` seconds until SIGTERM, then exit with code 0, as a sidecar does.

    After SIGTERM a check in progress is completed first, because it can be writing to brokers. A read error is
    printed to stderr, and the next check tries again.
    """
    last_state = ""
    signals: list[int] = []
    try:
        while True:
            before = signal.signal(signal.SIGTERM, lambda number, _: signals.append(number))
            try:
                answer = check()
                if answer["state"] != last_state:
                    last_state = answer["state"]
                    tell(answer, story, output)
            except BundlekeelError as error:
                last_state = ""
                typer.echo(f"error: {as_cli_error(error)}", err=True)
            finally:
                signal.signal(signal.SIGTERM, before)
            if signals:
                break
            time.sleep(pause)
    except SystemExit:
        pass
    raise typer.Exit(OK)


def story(answer: Json, layout: TableLayout) -> RenderableType:
    """Render the result of the check as one sentence, then the result for each broker."""
    state = Text(f"{answer['state'].replace('_', ' ')}: ", style="green" if answer["state"] in GOOD else "red")
    parts: list[RenderableType] = [state.append(answer["sentence"], style="default")]
    if answer.get("brokers"):
        parts.append(text_views.change(answer, layout))
    return Group(*parts)
