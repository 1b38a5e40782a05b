"""Commands that work without a running sidecar, through the wiring that is handed in."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from bundlekeel import __version__
from bundlekeel.cli import completion, tables, text_views
from bundlekeel.cli.client import connect
from bundlekeel.cli.exit_codes import BAD_NEWS, REFUSED, USAGE, CliError, guarded
from bundlekeel.cli.intervene.assignments import assignments
from bundlekeel.cli.offline import decide as decisions
from bundlekeel.cli.output import Output, Render, Watch, show
from bundlekeel.cli.run import ConfigOption
from bundlekeel.cli.session import (
    ByOption,
    OutputOption,
    ReasonOption,
    SocketOption,
    UrlOption,
    YesOption,
    login,
)
from bundlekeel.cli.wiring import Split, Wiring
from bundlekeel.daemon.answers.doc import Json
from bundlekeel.settings.load import LoadedSettings, load_settings

# Pulsar's NamedEntity, twice.
_NAMESPACE = re.compile(r"[-=:.\w]+/[-=:.\w]+")
PlaceArgument = Annotated[
    str,
    typer.Argument(help="Topic, bundle or tenant/namespace.", show_default=False, autocompletion=completion.places),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")]


class Purpose(StrEnum):
    """What `doctor` is asked for."""

    ACT = "act"


class Splits(StrEnum):
    """Who splits bundles after a takeover."""

    BROKERS = "brokers"
    OFF = "off"


def register(app: typer.Typer, wiring: Callable[[], Wiring]) -> None:
    """Put them into the app."""
    _register_doctor(app, wiring)
    _register_questions(app, wiring)
    _register_takeover(app, wiring)
    _register_handback(app, wiring)
    app.command()(decide)
    app.command()(version)


def _register_doctor(app: typer.Typer, wiring: Callable[[], Wiring]) -> None:
    @app.command()
    @guarded
    def doctor(
        purpose: Annotated[
            Purpose | None,
            typer.Option("--for", help="A go / no-go list for mode `act`; asks a running sidecar.", show_default=False),
        ] = None,
        config: ConfigOption = None,
        output: OutputOption = Output.TABLE,
        socket: SocketOption = None,
        url: UrlOption = None,
    ) -> None:
        """Test every connection and permission; say what is wrong and how to fix it. Exit code 1 on errors.

        --for act: whether the sidecars may begin to act, line by line with the next step; exit code 1: no go.
        """
        if purpose is None:
            rows = [asdict(check) for check in wiring().doctor(load_settings(config))]
        else:
            with connect(url, socket, config) as client:
                rows = client.get("doctor", for_act=True)
        _tell(rows, text_views.checks if purpose is None else text_views.go_live, output)
        if any(text_views.is_error(row) for row in rows):
            raise typer.Exit(BAD_NEWS)


def _register_questions(app: typer.Typer, wiring: Callable[[], Wiring]) -> None:
    @app.command()
    @guarded
    def where(
        name: PlaceArgument,
        if_unowned: Annotated[
            bool, typer.Option("--if-unowned", help="Where it would be placed, step by step; asks a running sidecar.")
        ] = False,
        listener: Annotated[
            str,
            typer.Option("--listener", metavar="NAME", help="Show this advertised listener's address of the owner."),
        ] = "",
        config: ConfigOption = None,
        output: OutputOption = Output.TABLE,
        socket: SocketOption = None,
        url: UrlOption = None,
    ) -> None:
        """Where a topic is (a row a partition), or a bundle, or a namespace's bundles: hash, bundle, owner, URLs.

        Read from the metadata store: it never triggers an assignment, but says `unowned`. With `--if-unowned`: the
        candidates after each step of the assignment pipeline, who was dropped and why, and who would be chosen.
        """
        if if_unowned and listener:
            raise CliError("--listener shows an owner's address: leave it out with --if-unowned", USAGE)
        if if_unowned:
            with connect(url, socket, config) as client:
                _tell(client.send("POST", "assignments", _asked(name)), assignments, output)
            return
        _tell(wiring().where(load_settings(config), name, listener), tables.where, output)


def _asked(name: str) -> dict[str, str]:
    """What kind of thing is asked about."""
    if name.rpartition("/")[2].startswith("0x") and "://" not in name:
        return {"bundle": name}
    return {"namespace" if "://" not in name and name.count("/") == 1 else "topic": name}


def _register_takeover(app: typer.Typer, wiring: Callable[[], Wiring]) -> None:
    @app.command()
    @guarded
    def takeover(
        reason: ReasonOption,
        config: ConfigOption = None,
        split: Annotated[Splits, typer.Option("--split", help="Who splits bundles from now on.")] = Splits.BROKERS,
        namespace: Annotated[
            list[str] | None,
            typer.Option(
                "--namespace",
                metavar="TENANT/NAMESPACE",
                help="Only this one, a partial takeover (Pulsar 4.2 and later); give it again for more.",
                show_default=False,
            ),
        ] = None,
        by: ByOption = "",
        yes: YesOption = False,
        dry_run: DryRunOption = False,
        output: OutputOption = Output.TABLE,
    ) -> None:
        """Turn the brokers' own shedding off, on all brokers, and verify it on each. `handback` restores it."""
        settings, who = load_settings(config), by or login()
        named = _namespaces(namespace or [])
        chosen: Split = "off" if split is Splits.OFF else "brokers"

        def change(dry: bool) -> Json:
            return wiring().takeover(settings, split=chosen, reason=reason, by=who, dry_run=dry, namespaces=named)

        question = f"Take over {', '.join(named)}?" if named else "Turn the brokers' own shedding off?"
        _change(change, settings, question, yes=yes, dry_run=dry_run, output=output)


def _register_handback(app: typer.Typer, wiring: Callable[[], Wiring]) -> None:
    @app.command()
    @guarded
    def handback(
        reason: ReasonOption,
        config: ConfigOption = None,
        by: ByOption = "",
        yes: YesOption = False,
        dry_run: DryRunOption = False,
        output: OutputOption = Output.TABLE,
    ) -> None:
        """Restore what `takeover` found: the brokers shed for themselves again."""
        settings, who = load_settings(config), by or login()

        def change(dry: bool) -> Json:
            return wiring().handback(settings, reason=reason, by=who, dry_run=dry)

        _change(change, settings, "Let the brokers shed for themselves again?", yes=yes, dry_run=dry_run, output=output)


def _namespaces(names: list[str]) -> tuple[str, ...]:
    """The names, each once. A pattern or a tenant would be no namespace to the brokers."""
    for name in names:
        if _NAMESPACE.fullmatch(name) is None:
            raise CliError(f"--namespace {name!r}: expected tenant/namespace", USAGE)
    return tuple(sorted(set(names)))


def _change(
    change: Callable[[bool], Json], settings: LoadedSettings, question: str, *, yes: bool, dry_run: bool, output: Output
) -> None:
    """Show what would change, ask, change it, show what became of it. A broker that is not verified is bad news."""
    if dry_run:
        _tell(change(True), text_views.change, output)
        return
    if not yes:
        show(lambda: change(True), text_views.change, Output.TABLE, Watch())
        asked = f"{question} (cluster {settings.settings.cluster})"
        if not _confirmed(asked):
            raise CliError("nothing was changed; confirm with --yes where no answer can be typed", REFUSED)
    answer = change(False)
    _tell(answer, text_views.change, output)
    if not (answer.get("done", True) and all(row.get("ok") for row in answer.get("brokers") or [])):
        raise typer.Exit(BAD_NEWS)


def _confirmed(question: str) -> bool:
    try:
        return typer.confirm(question, err=True)
    except typer.Abort:
        return False


def _tell(answer: Any, render: Render, output: Output) -> None:
    show(lambda: answer, render, output, Watch())


@guarded
def decide(
    file: Annotated[
        Path | None, typer.Argument(help="JSON lines; standard input when absent.", show_default=False)
    ] = None,
) -> None:
    """The bare decision: JSON lines in, JSON lines out, no network and no guard budgets.

    `{"reset": {"strategy": "avg", "config": {…}}}` starts afresh; `{"brokers": {…}, "bundles": {…}}` is a turn;
    `{"bench": N}` repeats the last turn and times it. A bad line gives `{"error": …}`, and the rest goes on.
    Exit code 1 when there were errors only.
    """
    try:
        lines = nullcontext(sys.stdin.buffer) if file is None else file.open("rb")
    except OSError as error:
        raise CliError(f"{file}: {error.strerror}", USAGE) from None
    with lines as given:
        good = decisions.run(given, sys.stdout.buffer)
    if not good:
        raise typer.Exit(BAD_NEWS)


def version() -> None:
    """Print the version."""
    typer.echo(f"bundlekeel {__version__}")
