"""`bundlekeel journal`: what was done, asked of a sidecar; and whether the files still say what was written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.text import Text

from bundlekeel.cli import text_views
from bundlekeel.cli.exit_codes import BAD_NEWS, USAGE, CliError, guarded
from bundlekeel.cli.output import Output, TableLayout, Watch, show
from bundlekeel.cli.period import SinceOption, UntilOption, period, records_of
from bundlekeel.cli.reads import LimitOption
from bundlekeel.cli.run import ConfigOption
from bundlekeel.cli.session import OutputOption, Session, connected
from bundlekeel.codec.chain import GENESIS, ChainVerifier
from bundlekeel.daemon.answers.doc import Json
from bundlekeel.settings.load import load_settings


class JournalKind(StrEnum):
    """What the journal records."""

    CYCLE = "cycle"
    MOVE = "move"
    SPLIT = "split"
    FINDING = "finding"
    REQUEST = "wish"
    AUDIT = "audit"
    EFFECT = "effect"
    FOREIGN = "foreign"
    ADOPTION = "adoption"
    QUOTA = "quota"
    SETTINGS = "settings"


journal_app = typer.Typer(invoke_without_command=True, subcommand_metavar="[COMMAND] [ARGS]...")


@connected
def journal(
    session: Session,
    kind: Annotated[
        JournalKind | None, typer.Option("--kind", help="Only records of this kind.", show_default=False)
    ] = None,
    limit: LimitOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
) -> None:
    """What was done, newest last. `journal verify` checks the files themselves.

    As a table, cycles in a row that decided the same are one line.
    """
    span, asked = period(since, until), kind.value if kind else None
    count = limit or records_of(span)
    session.show(lambda client: client.get("journal", limit=count, kind=asked, **span), text_views.journal)


@guarded
def verify(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE]...", help="The journal and its rotated files; without any, those of the settings."
        ),
    ] = None,
    head: Annotated[
        str,
        typer.Option("--head", metavar="HASH", help="A hash noted earlier, which must be in it.", show_default=False),
    ] = "",
    part: Annotated[
        bool, typer.Option("--part", help="Older files are missing on purpose: the chain may start partway through.")
    ] = False,
    old_lines: Annotated[
        bool, typer.Option("--old-lines", help="Lines of a release that wrote no hashes may stand at the beginning.")
    ] = False,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Follow the journal's hash chain. Exit code 1 names the first line that was changed, added or taken out.

    Without files, those of the settings: the chain may start partway through when all rotated ones that are kept are
    there.
    """
    paths, full = (rotated(files), False) if files else _of_settings(config)
    answer = follow_chain(paths, head.lower(), part=part or full, old_lines=old_lines)
    show(lambda: answer, _verdict, output, Watch())
    if answer["why"]:
        raise typer.Exit(BAD_NEWS)


def rotated(files: Sequence[Path]) -> list[Path]:
    """Oldest first: `NAME.2`, `NAME.1`, `NAME`."""
    return sorted(files, key=lambda path: -int(path.suffix[1:]) if path.suffix[1:].isdecimal() else 0)


def follow_chain(files: Sequence[Path], head: str, *, part: bool = False, old_lines: bool = False) -> Json:
    """{files, lines, unsealed, torn, lost, begins_at, head, unfinished, why, where, whole}; `why` empty: it holds.

    `part`: the chain may start partway through; `old_lines`: lines without a hash may come first.
    """
    verifier = ChainVerifier(head)
    for path in files:
        try:
            with path.open("rb") as stream:
                if not verifier.read(str(path), stream):
                    break
        except OSError as error:
            raise CliError(f"{path} cannot be read: {error.strerror}", USAGE) from None
    found = verifier.result()
    answer = asdict(found) | {"files": [str(path) for path in files], "whole": found.whole, "why": "", "where": ""}
    del answer["broken"]
    if found.broken is not None:
        return answer | {"why": found.broken.why, "where": f"{found.broken.name}:{found.broken.line}"}
    if found.unsealed and not old_lines:
        why = f"its first {found.unsealed} lines have no hash: put in front, or of a release without (then --old-lines)"
        return answer | {"why": why}
    if not found.whole and not part:
        why = "the chain starts partway through, and what came before is not here: cut off, or not named (then --part)"
        return answer | {"why": why}
    if head and not found.has_expected:
        return answer | {"why": f"no line has the hash {head}: lines at the end were cut off, or it is another journal"}
    return answer


def _of_settings(config: Path | None) -> tuple[list[Path], bool]:
    """The files that there are, oldest first; whether so many are kept that the oldest were thrown away."""
    loaded = load_settings(config)
    path = loaded.located(loaded.settings.journal.path)
    if path is None:
        raise CliError("journal.path is null: there is no file; name one", USAGE)
    family = [path.with_name(f"{path.name}.{n}") for n in range(loaded.settings.journal.backups, 0, -1)]
    kept = [item for item in family if item.exists()]
    return [*kept, path], len(kept) == len(family)


def _verdict(answer: Json, _layout: TableLayout) -> RenderableType:
    if answer["why"]:
        where = f"{answer['where']}: " if answer["where"] else ""
        return Text(f"broken: {where}{answer['why']}", style="red")
    lines = [f"ok: {answer['lines']} lines in {len(answer['files'])} files hold together"]
    if answer["head"]:
        lines.append(f"newest hash {answer['head']} (keep it elsewhere to notice lines cut off at the end)")
    if answer["unsealed"]:
        lines.append(f"{answer['unsealed']} lines at the beginning are of a release without hashes")
    if answer["begins_at"] not in ("", GENESIS):
        lines.append("it begins after lines that are not here (rotated away)")
    if answer["torn"]:
        lines.append(f"{answer['torn']} unfinished lines were set aside after a crash; see the .torn file")
    if answer["lost"]:
        lines.append(f"{answer['lost']} records could not be written (disk full)")
    if answer["unfinished"]:
        lines.append("the last line is not finished: it is being written, or the sidecar was killed")
    return Text("\n".join(lines))


journal_app.callback()(journal)
journal_app.command("verify")(verify)


def register(app: typer.Typer) -> None:
    """Put them into the app."""
    app.add_typer(journal_app, name="journal", help=journal.__doc__)
