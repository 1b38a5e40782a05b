"""`bundlekeel deadman`: a job of its own that gives the shedding back to the brokers when no sidecar works."""

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
from bundlekeel.core.model.errors import BundlekeelError
from bundlekeel.core.model.text_format import format_duration
from bundlekeel.daemon.answers.doc import Json
from bundlekeel.daemon.operations.failsafe import CONFIRM_SECONDS
from bundlekeel.settings.load import LoadedSettings, load_settings
from bundlekeel.settings.model import FAILSAFE_AFTER, FAILSAFE_CYCLES

GOOD = ("alive", "not_taken_over")


def register(app: typer.Typer, wiring: Callable[[], Wiring]) -> None:
    """Put it into the app."""

    @app.command()
    @guarded
    def deadman(
        after: Annotated[
            str,
            typer.Option("--after", metavar="DURATION", help="Restore when no cycle was completed for this long."),
        ] = format_duration(FAILSAFE_AFTER),
        confirm: Annotated[
            str,
            typer.Option("--confirm", metavar="DURATION", help="Watch so long before restoring: clocks may be wrong."),
        ] = f"{CONFIRM_SECONDS:g}s",
        every: Annotated[
            str, typer.Option("--every", metavar="DURATION", help="Look this often; without it: once.")
        ] = "",
        _once: Annotated[bool, typer.Option("--once", hidden=True)] = False,
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
        by: Annotated[str, typer.Option("--by", help="Who restores, for the record.")] = "",
        config: ConfigOption = None,
        output: OutputOption = Output.TABLE,
    ) -> None:
        """Restore what `takeover` found when no sidecar has completed a cycle for too long. Needs no running sidecar.

        Looks once and ends, for a CronJob or a timer; with --every it runs until SIGTERM. It ends with 0 then, after a
        look that is under way. Exit codes: 0 alive, or nothing is taken over; 1 dead: `state` of -o json is `restored`,
        `incomplete` (not on every broker: run it again) or, of a dry run, `dead`; 3 the store, its documents or the
        brokers could not be read, and nothing was done.
        """
        settings = load_settings(config)
        limit, watch = _limit(settings, after), seconds_of("--confirm", confirm, least=0)
        who = by or f"deadman ({login()}@{socket.gethostname()})"

        def look() -> Json:
            return wiring().deadman(settings, after=limit, confirm=watch, by=who, dry_run=dry_run)

        if every:
            _for_ever(look, seconds_of("--every", every, least=1), output)
        answer = look()
        tell(answer, story, output)
        raise typer.Exit(OK if answer["state"] in GOOD else BAD_NEWS)


def _limit(settings: LoadedSettings, after: str) -> float:
    limit, least = seconds_of("--after", after), FAILSAFE_CYCLES * settings.settings.cycle.interval
    if limit < least:
        raise CliError(
            f"--after {after!r}: expected {least:g}s or more, {FAILSAFE_CYCLES} cycles of the settings", USAGE
        )
    return limit


def _for_ever(look: Callable[[], Json], pause: float, output: Output) -> None:
    """Look again and again. A read error is printed on stderr, and the next look tries again. SIGTERM is how the
    program is stopped: exit code 0, as of a sidecar, after a look that is under way, as it may be writing."""
    said = ""
    asked: list[int] = []
    try:
        while True:
            before = signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
            try:
                answer = look()
                if answer["state"] != said:
                    said = answer["state"]
                    tell(answer, story, output)
            except BundlekeelError as error:
                said = ""
                typer.echo(f"error: {as_cli_error(error)}", err=True)
            finally:
                signal.signal(signal.SIGTERM, before)
            if asked:
                break
            time.sleep(pause)
    except SystemExit:
        pass
    raise typer.Exit(OK)


def story(answer: Json, layout: TableLayout) -> RenderableType:
    """The sentence, and what became of each broker."""
    state = Text(f"{answer['state'].replace('_', ' ')}: ", style="green" if answer["state"] in GOOD else "red")
    parts: list[RenderableType] = [state.append(answer["sentence"], style="default")]
    if answer.get("brokers"):
        parts.append(text_views.change(answer, layout))
    return Group(*parts)
