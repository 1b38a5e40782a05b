"""`--since` and `--until`: a span of time as people write it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Annotated

import typer

from bundlekeel.cli.exit_codes import USAGE, CliError
from bundlekeel.settings.types import parse_duration

_ALLOWED = "a duration such as 24h or 90m (so long ago), today, yesterday, or a local time such as 2026-11-22T18:05"

SinceOption = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="24h, today, yesterday or 2026-11-22T18:05.", show_default=False),
]
UntilOption = Annotated[
    str | None, typer.Option("--until", metavar="TIME", help="As --since; without it until now.", show_default=False)
]


def period(since: str | None, until: str | None) -> dict[str, int | None]:
    """The query of a span of time, in ms; nothing for what is not given. CliError when it is none, or ends before it
    begins."""
    now = dt.datetime.now().astimezone()
    begin, end = (
        None if text is None else int(_moment(option, text, now).timestamp() * 1000)
        for option, text in (("--since", since), ("--until", until))
    )
    if begin is not None and end is not None and end < begin:
        raise CliError(f"--until {until!r} is before --since {since!r}", USAGE)
    return {"since_ms": begin, "until_ms": end}


def records_of(span: Mapping[str, int | None]) -> int:
    """How many records are asked for where nobody says: all of a span of time, else a screenful."""
    return 10_000 if any(span.values()) else 20


def _moment(option: str, text: str, now: dt.datetime) -> dt.datetime:
    given = text.strip().lower()
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if given in ("today", "yesterday"):
        return midnight - dt.timedelta(days=1 if given == "yesterday" else 0)
    try:
        return now - dt.timedelta(seconds=parse_duration(given))
    except (ValueError, OverflowError):
        pass
    try:
        return dt.datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError):
        raise CliError(f"{option} {text!r}: expected {_ALLOWED}", USAGE) from None
