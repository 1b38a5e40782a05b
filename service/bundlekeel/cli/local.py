"""Commands that work without a running sidecar: they connect to brokers and stores themselves, through `wiring`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Annotated, Final, Literal

import typer

from bundlekeel.cli import completion, tables, text_views
from bundlekeel.cli.exit_codes import BAD_NEWS, REFUSED, USAGE, CliError, as_cli_error, guarded
from bundlekeel.cli.output import Output, OutputOption, ProgressLine, decoded, tell, typed
from bundlekeel.cli.run import ConfigOption
from bundlekeel.cli.session import (
    ByOption,
    NamedSidecar,
    YesOption,
    login,
    may_connect,
)
from bundlekeel.cli.wiring import Split, Wiring
from bundlekeel.model.check import Check
from bundlekeel.model.errors import ConfigError
from bundlekeel.model.names import check_name, is_namespace, names_namespace
from bundlekeel.model.response_fields import Json
from bundlekeel.model.text_format import numbered
from bundlekeel.requests.assignments import AssignmentView
from bundlekeel.requests.where import Place
from bundlekeel.settings.load import LoadedSettings, load_settings

PlaceArgument = Annotated[
    str, typer.Argument(help="Topic, bundle or tenant/namespace.", autocompletion=completion.places)
]
ReasonOption = Annotated[
    str, typer.Option("--reason", help="Reason, stored in the metadata store; not needed with --dry-run.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show the changes without making them.")]


def register(app: typer.Typer, wiring: Callable[[], Wiring]) -> None:
    """Add the commands to the app."""
    _register_doctor(app, wiring)
    _register_where(app, wiring)
    _register_takeover(app, wiring)
    _register_handback(app, wiring)
    _register_uninstall(app, wiring)


def _register_doctor(app: typer.Typer, wiring: Callable[[], Wiring]) -> None:
    @app.command()
    @may_connect
    def doctor(
        sidecar: NamedSidecar,
        purpose: Annotated[
            Literal["act"] | None,
            typer.Option("--for", help="`act`: check whether mode `act` is safe now; needs a running sidecar."),
        ] = None,
    ) -> None:
        """Test every connection and permission; show each fault and its fix. Exit code 1 on errors.

        Without --for it uses no sidecar: of the options that select one, only -c has an effect.

        With --for act: check whether mode `act` is safe now, with the next step of each check. Exit code 1: it is not
        safe.
        """
        if purpose is None:
            rows = [asdict(check) for check in wiring().doctor(load_settings(sidecar.config))]
        else:
            with sidecar.connect() as client:
                rows = client.get("doctor", for_act=True)
        render = typed(list[Check], text_views.checks if purpose is None else text_views.go_live)
        tell(rows, render, sidecar.output)
        if any(map(text_views.is_error, decoded(list[Check], rows))):
            raise typer.Exit(BAD_NEWS)


def _register_where(app: typer.Typer, wiring: Callable[[], Wiring]) -> None:
    @app.command()
    @may_connect
    def where(
        sidecar: NamedSidecar,
        name: PlaceArgument,
        if_unowned: Annotated[
            bool,
            typer.Option("--if-unowned", help="Show each step of assigning an unowned bundle; needs a sidecar."),
        ] = False,
        listener: Annotated[
            str,
            typer.Option("--listener", metavar="NAME", help="Advertised listener of the owner whose address to show."),
        ] = "",
    ) -> None:
        """Show the location of a topic (one row per partition), a bundle, or each bundle of a namespace: owner and
        URLs.

        Reads the metadata store of the settings (-c): it never assigns a bundle, and prints `unowned` for a bundle
        without an owner. With --if-unowned it asks a sidecar (--socket, --url) for the remaining and dropped brokers
        after each step of the assignment, and for the choice.
        """
        check_name(name)
        if if_unowned and listener:
            raise CliError("pass only one of --listener and --if-unowned: an unowned bundle has no address", USAGE)
        if if_unowned:
            with sidecar.connect() as client:
                response = client.send("POST", "assignments", _assignment_query(name))
            tell(response, typed(list[AssignmentView], text_views.assignments), sidecar.output)
            return
        try:
            places = wiring().where(load_settings(sidecar.config), name, listener)
        except ConfigError as error:
            if error.field != "metadata_store":
                raise
            hint = "pass the settings file with -c: `where` reads the metadata store; only --if-unowned uses a sidecar"
            raise CliError(f"{as_cli_error(error)}; {hint}", USAGE) from None
        tell(places, typed(list[Place], tables.where), sidecar.output)
        _warn_of_absent_topic(decoded(list[Place], places))


# Hash range of a bundle, typed without `0x`.
_BOUNDS: Final = re.compile(r"([0-9a-f]{8})_([0-9a-f]{8})", re.IGNORECASE)


def _warn_of_absent_topic(rows: Sequence[Place]) -> None:
    """Print a warning if `rows` are about one topic that does not exist: Pulsar has a bundle for any topic name."""
    if not rows or any(row.topic_exists is not False for row in rows):
        return
    namespace, _, local = str(rows[0].topic).partition("://")[2].rpartition("/")
    bounds = _BOUNDS.fullmatch(local)
    hint = f"; for a bundle write {namespace}/0x{bounds[1]}_0x{bounds[2]}" if bounds else ""
    text = f"topic {rows[0].topic} does not exist; this is the bundle that it would be in{hint}"
    typer.echo(f"warning: {text}", err=True)


def _assignment_query(name: str) -> dict[str, str]:
    """Return the query parameter for a name: {bundle: name}, {namespace: name} or {topic: name}."""
    if name.rpartition("/")[2].startswith("0x") and "://" not in name:
        return {"bundle": name}
    return {"namespace" if names_namespace(name) else "topic": name}


SplitOption = Annotated[
    Split, typer.Option("--split", help="Who splits bundles after the takeover: `brokers`, or only Bundlekeel (`off`).")
]
NamespacesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--namespace",
        metavar="TENANT/NAMESPACE",
        help="Namespace of a partial takeover (Pulsar 4.2 and later); repeatable.",
    ),
]
AgainOption = Annotated[
    bool,
    typer.Option(
        "--again", help="Use the namespaces and the --split value of the last takeover, even if it has ended."
    ),
]


def _register_takeover(app: typer.Typer, wiring: Callable[[], Wiring]) -> None:
    @app.command()
    @guarded
    def takeover(  # noqa: PLR0913, PLR0917 - the options of one command
        reason: ReasonOption = "",
        config: ConfigOption = None,
        split: SplitOption = "brokers",
        namespace: NamespacesOption = None,
        again: AgainOption = False,
        by: ByOption = "",
        yes: YesOption = False,
        dry_run: DryRunOption = False,
        output: OutputOption = Output.TABLE,
    ) -> None:
        """Turn the brokers' own shedding off on all brokers, and verify it on each. `handback` undoes it.

        Exit code 1 if a broker does not have the expected settings; in a dry run, if a broker does not respond.
        """
        settings, who = load_settings(config), by or login()
        namespaces = _namespaces(namespace or [])
        if again:
            if namespaces or split != "brokers":
                raise CliError(
                    "--again uses --namespace and --split of the last takeover: omit these two options", USAGE
                )
            split, namespaces = wiring().last_takeover(settings)

        def change(dry: bool, tell: Callable[[str], None]) -> Json:
            how: Json = {"split": split, "reason": reason, "by": who, "dry_run": dry, "namespaces": namespaces}
            return wiring().takeover(settings, tell=tell, **how)

        question = f"Take over {', '.join(namespaces)}?" if namespaces else "Turn the brokers' own shedding off?"
        _change(change, settings, question, reason=reason, yes=yes, dry_run=dry_run, output=output)


def _register_handback(app: typer.Typer, wiring: Callable[[], Wiring]) -> None:
    @app.command()
    @guarded
    def handback(
        reason: ReasonOption = "",
        config: ConfigOption = None,
        by: ByOption = "",
        yes: YesOption = False,
        dry_run: DryRunOption = False,
        output: OutputOption = Output.TABLE,
    ) -> None:
        """Undo `takeover`: restore the brokers' own shedding, and the rate limits that quota groups replaced.

        Exit code 1 if a broker does not have the expected settings. Without a takeover nothing is restored, and the
        command checks that each broker sheds; in a dry run, that each broker responds.
        """
        settings, who = load_settings(config), by or login()

        def change(dry: bool, tell: Callable[[str], None]) -> Json:
            return wiring().handback(settings, reason=reason, by=who, dry_run=dry, tell=tell)

        question = "Restore the brokers' own shedding?"
        _change(change, settings, question, reason=reason, yes=yes, dry_run=dry_run, output=output)


def _register_uninstall(app: typer.Typer, wiring: Callable[[], Wiring]) -> None:
    @app.command()
    @guarded
    def uninstall(
        config: ConfigOption = None,
        yes: YesOption = False,
        dry_run: DryRunOption = False,
        output: OutputOption = Output.TABLE,
    ) -> None:
        """Delete the sidecars' data in the metadata store. Refused while a sidecar runs, or before `handback`."""
        settings = load_settings(config)
        root, nodes = settings.settings.root_path, wiring().uninstall(settings, dry_run=True)
        if nodes and not dry_run:
            if not yes and not _confirmed(f"Delete {numbered(len(nodes), 'node')} below {root}?"):
                raise CliError("nothing was deleted; in scripts confirm with --yes", REFUSED)
            nodes = wiring().uninstall(settings, dry_run=False)
        tell({"root": root, "nodes": nodes, "done": not dry_run}, text_views.uninstalled, output)


def _namespaces(names: list[str]) -> tuple[str, ...]:
    """Return the names without duplicates.

    Raises CliError for a tenant or a pattern, because brokers accept neither in this setting.
    """
    for name in names:
        if not (names_namespace(name) and is_namespace(name)):
            raise CliError(f"--namespace {name!r}: expected tenant/namespace", USAGE)
    return tuple(sorted(set(names)))


def _change(
    change: Callable[[bool, Callable[[str], None]], Json],
    settings: LoadedSettings,
    question: str,
    *,
    reason: str,
    yes: bool,
    dry_run: bool,
    output: Output,
) -> None:
    """Show the changes of a dry run, ask for confirmation, make the changes, and show the result.

    Exits with code 1 if a broker does not have the expected settings afterwards.
    """
    if not dry_run and not reason.strip():
        raise CliError("a reason is needed: --reason TEXT; only --dry-run works without", USAGE)

    warnings: list[str] = []

    def run_change(dry: bool, form: Output) -> Json:
        with ProgressLine() as line:
            response = change(dry, line.tell)
        new = [text for text in response.get("warnings", ()) if text not in warnings]
        tell(response, lambda all_of_it, layout: text_views.change({**all_of_it, "warnings": new}, layout), form)
        warnings.extend(new)
        return response

    if not (dry_run or yes):
        run_change(True, Output.TABLE)
        prompt = f"{question} (cluster {settings.settings.cluster})"
        if not _confirmed(prompt):
            raise CliError("nothing was changed; in scripts confirm with --yes", REFUSED)
    response = run_change(dry_run, output)
    if not ((dry_run or response.get("done", True)) and all(row["ok"] for row in response["brokers"])):
        raise typer.Exit(BAD_NEWS)


def _confirmed(question: str) -> bool:
    try:
        return typer.confirm(question, err=True)
    except typer.Abort:
        # The input ended without an answer: end the line of the question.
        typer.echo(err=True)
        return False
