"""`bundlekeel journal`: the actions that a sidecar recorded, and whether the journal's files were changed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, get_args

import typer
from rich.console import RenderableType
from rich.text import Text

from bundlekeel.cli import text_views
from bundlekeel.cli.exit_codes import BAD_NEWS, USAGE, CliError, guarded
from bundlekeel.cli.output import Output, OutputOption, ProgressLine, TableLayout, tell
from bundlekeel.cli.run import ConfigOption
from bundlekeel.cli.session import (
    LimitOption,
    Session,
    SinceOption,
    UntilOption,
    connected,
    lines_and_records,
    period,
)
from bundlekeel.model.response_fields import Json
from bundlekeel.model.text_format import numbered
from bundlekeel.records.chain import GENESIS, ChainVerifier
from bundlekeel.settings.files import bounded_lines
from bundlekeel.views.journal import JournalKind

_EMPTY = "nothing is recorded in"
journal_app = typer.Typer(invoke_without_command=True, subcommand_metavar="[COMMAND] [ARGS]...")


@connected
def journal(
    session: Session,
    kind: Annotated[
        JournalKind | None,
        typer.Option("--kind", metavar="KIND", help=f"Kind of the records: {', '.join(get_args(JournalKind))}."),
    ] = None,
    limit: LimitOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
) -> None:
    """Show the recorded actions, newest last. `journal verify` checks that the files were not changed.

    A table merges consecutive cycles with the same result into one line.
    """
    span = period(since, until)
    lines, count = lines_and_records(limit, span, session.output)
    session.show(
        lambda client: client.rows("journal", limit=count, kind=kind, **span),
        lambda rows, layout: text_views.journal(rows, layout, lines),
    )


@guarded
def verify(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE", help="Journal and its rotated files. Default: the files of `journal.path` in the settings."
        ),
    ] = None,
    head: Annotated[
        str,
        typer.Option("--head", metavar="HASH", help="Hash that an earlier check printed; the journal must contain it."),
    ] = "",
    part: Annotated[
        bool,
        typer.Option("--part", help="Accept a chain without its beginning, if older files are missing on purpose."),
    ] = False,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Check the journal's hash chain. Exit code 1 if a line was changed, added or removed (prints the first one), or
    if nothing is recorded.

    Without files it reads those of the settings. If as many rotated files exist as the settings allow, older files were
    perhaps deleted. Then the oldest line can be later than the beginning of the chain.
    """
    if head and not re.fullmatch("[0-9a-fA-F]{64}", head):
        raise CliError(f"--head {head!r}: expected 64 hexadecimal digits", USAGE)
    paths, full = (sort_rotated(files), False) if files else _configured_files(config)
    answer = follow_chain(paths, head.lower(), part=part or full)
    tell(answer, _verdict, output)
    if answer["why"]:
        raise typer.Exit(BAD_NEWS)


def sort_rotated(files: Sequence[Path]) -> list[Path]:
    """Return the files, oldest first: `NAME.2`, `NAME.1`, `NAME`."""
    return sorted(files, key=lambda path: -int(path.suffix[1:]) if path.suffix[1:].isdecimal() else 0)


def follow_chain(files: Sequence[Path], head: str, *, part: bool = False) -> Json:
    """Check the hash chain of journal files; return the fields of the command's JSON output.

    The result is {files, lines, torn, lost, begins_at, head, unfinished, why, where, whole, empty}: the fields of
    `ChainVerification`, and `why`, empty if the chain is unbroken. `head`: hash that must be in the chain; "": any.
    `part`: accept a chain without its beginning.
    """
    verifier = ChainVerifier(head)
    for path in files:
        try:
            with path.open("rb") as stream, ProgressLine(pause=30.0) as progress:
                if not verifier.read(str(path), _with_progress(bounded_lines(stream, str(path)), path, progress)):
                    break
        except OSError as error:
            raise CliError(f"{path} cannot be read: {error.strerror}", USAGE) from None
    chain = verifier.result()
    empty = not (chain.broken or chain.lines or chain.unfinished)
    answer = asdict(chain) | {"files": [str(path) for path in files], "whole": chain.whole, "why": "", "where": ""}
    answer["empty"] = empty
    del answer["broken"]
    if chain.broken is not None:
        return answer | {"why": chain.broken.why, "where": f"{chain.broken.name}:{chain.broken.line}"}
    if empty:
        return answer | {"why": f"{_EMPTY} {', '.join(answer['files'])}: the file was emptied, or not written yet"}
    if not chain.lines:
        return answer | {"why": "the only line is incomplete: nothing could be verified"}
    if not chain.whole and not part:
        why = "the beginning of the chain is missing: its file was removed, or not passed (if on purpose: --part)"
        return answer | {"why": why}
    if head and not chain.has_expected:
        return answer | {"why": f"no line has the hash {head}: lines at the end were removed, or it is another journal"}
    return answer


def _with_progress(lines: Iterable[bytes], path: Path, progress: ProgressLine) -> Iterator[bytes]:
    for number, line in enumerate(lines):
        if number % 1000 == 0:
            progress.tell(f"{path}: {number:,} lines read")
        yield line


def _configured_files(config: Path | None) -> tuple[list[Path], bool]:
    """Return the existing journal files, oldest first, and whether they are as many as the settings allow."""
    from bundlekeel.settings.load import load_settings  # noqa: PLC0415 - slow, and `journal` itself needs none

    loaded = load_settings(config)
    path = loaded.located(loaded.settings.journal.path)
    if path is None:
        raise CliError("journal.path is null, so there is no file; pass one as FILE", USAGE)
    family = [path.with_name(f"{path.name}.{n}") for n in range(loaded.settings.journal.backups, 0, -1)]
    rotated = [item for item in family if item.exists()]
    if not rotated and not path.exists():
        raise CliError(f"{_EMPTY} {path.parent}: there is no file {path.name}; the sidecar creates it", BAD_NEWS)
    return [*rotated, path], len(rotated) == len(family)


def _verdict(answer: Json, _layout: TableLayout) -> RenderableType:
    if answer["why"]:
        where = f"{answer['where']}: " if answer["where"] else ""
        broken = answer["where"] or answer["lines"]
        return Text(f"{'broken: ' if broken else ''}{where}{answer['why']}", style="red")
    files = numbered(len(answer["files"]), "file")
    lines = [f"ok: {numbered(answer['lines'], 'line')} in {files}, the hash chain is unbroken"]
    if answer["head"]:
        lines.append(f"newest hash {answer['head']} (store it elsewhere; --head then detects lines removed at the end)")
    if answer["begins_at"] not in ("", GENESIS):
        lines.append("older lines were deleted with rotated files")
    if answer["torn"]:
        lines.append(f"moved to the .torn file after a crash: {numbered(answer['torn'], 'incomplete line')}")
    if answer["lost"]:
        lines.append(f"could not be written (disk full): {numbered(answer['lost'], 'record')}")
    if answer["unfinished"]:
        lines.append("the last line is incomplete: it is being written, or the sidecar was killed")
    return Text("\n".join(lines))


journal_app.callback()(journal)
journal_app.command("verify")(verify)


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    app.add_typer(journal_app, name="journal", help=journal.__doc__)
