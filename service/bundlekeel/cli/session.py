"""What commands share: their options, spans of time as people write them, a sidecar's client, the way of printing."""

from __future__ import annotations

import datetime as dt
import functools
import getpass
import inspect
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from bundlekeel.cli import completion, units
from bundlekeel.cli.client import Client, CredentialFiles, connect, typed_options, variable_of
from bundlekeel.cli.exit_codes import USAGE, CliError, readable
from bundlekeel.cli.output import Output, OutputOption, Render, Watch, decoded, show, tell
from bundlekeel.cli.run import ConfigOption
from bundlekeel.core.model.errors import ConfigError
from bundlekeel.core.model.names import NEW_BROKER, is_namespace, names_namespace
from bundlekeel.core.model.text_format import limits_text, parse_duration
from bundlekeel.daemon.answers.picture import State


def told(reason: str | None) -> str | None:
    """A reason that says something."""
    if reason is not None and not reason.strip():
        raise typer.BadParameter("must say something")
    return reason


ReasonOption = Annotated[str, typer.Option("--reason", help="Why; it is kept in the journal.", callback=told)]
ReasonToActOption = Annotated[str, typer.Option("--reason", help="Why; needed with --yes, and kept in the journal.")]
ByOption = Annotated[
    str, typer.Option("--by", metavar="NAME", help="Who asks, for the journal; the login name by default.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def set_option(what: str) -> Any:
    """`--set KEY=VALUE`, to be read with `pairs_of`."""
    return typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help=f"{what} (ours or Pulsar's name), e.g. avg_low_threshold_percent=5; repeatable.",
        autocompletion=completion.parameters,
    )


def pairs_of(sets: Sequence[str], *, unchecked: Collection[str] = ()) -> dict[str, str]:
    """What `--set` gives. CliError for what is no pair, ConfigError for a wrong name or value; what is allowed for
    `unchecked` is known elsewhere."""
    pairs = {}
    for text in sets:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise CliError(f"--set {text!r}: expected key=value, e.g. --set avg_low_threshold_percent=5", USAGE)
        pairs[key.strip()] = value.strip()
    from bundlekeel.settings.parameters import canonical  # noqa: PLC0415 - slow, and few commands have --set

    _, problems = canonical({key: value for key, value in pairs.items() if key not in unchecked})
    if problems:
        key = problems[0].field.removeprefix("parameters.")
        raise ConfigError(f"--set {key}={pairs[key]}: {problems[0]}", allowed=problems[0].allowed)
    return pairs


# The variables would double the lines of every help.
_WHICH = "Which sidecar (or BUNDLEKEEL_URL, BUNDLEKEEL_SOCKET, ...)"


def _sidecar(name: str, what: str) -> Any:
    """An option that helps to find a sidecar; the environment may say the same."""
    return typer.Option(name, envvar=variable_of(name), show_envvar=False, help=what, rich_help_panel=_WHICH)


UrlOption = Annotated[str | None, _sidecar("--url", "A sidecar's address, http://host:port.")]
SocketOption = Annotated[Path | None, _sidecar("--socket", "Unix socket of a sidecar on this host.")]
TokenFileOption = Annotated[Path | None, _sidecar("--token-file", "File with a bearer token.")]
TlsCaOption = Annotated[Path | None, _sidecar("--tls-ca", "CA certificates (PEM) of an https address.")]
TlsCertOption = Annotated[Path | None, _sidecar("--tls-cert", "Client certificate (PEM).")]
TlsKeyOption = Annotated[Path | None, _sidecar("--tls-key", "Key of the client certificate (PEM).")]
WatchOption = Annotated[
    bool, typer.Option("--watch", "-w", help="Print again and again until Ctrl-C, also while no sidecar answers.")
]
EveryOption = Annotated[
    float, typer.Option("--interval", metavar="SECONDS", min=0.1, help="Seconds between two prints of --watch.")
]
RoundsOption = Annotated[int, typer.Option("--rounds", hidden=True, help="End --watch after that many prints.")]


def _namespace(text: str | None) -> str | None:
    if text is not None and not (names_namespace(text) and is_namespace(text)):
        raise typer.BadParameter(f"{text!r}: expected tenant/namespace")
    return text


def broker_id(given: list[str] | str | None) -> list[str] | str | None:
    """What may be the id of a broker, or several of them. An empty one is refused as every empty text."""
    for name in [given] if isinstance(given, str) else given or ():
        if name and re.fullmatch(NEW_BROKER, name) is None:
            allowed = "a host name, or host:port: letters, digits and . _ : [ ] -"
            raise typer.BadParameter(f"{name!r}: cannot be a broker (allowed: {allowed})")
    return given


NamespaceOption = Annotated[
    str | None,
    typer.Option(
        *("--namespace", "-n"),
        help="Only those of tenant/namespace.",
        autocompletion=completion.namespaces,
        callback=_namespace,
    ),
]
SinceOption = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="24h, today, yesterday, 18:05 or 2026-11-22T18:05 (local)."),
]
UntilOption = Annotated[str | None, typer.Option("--until", metavar="TIME", help="As --since; without it: until now.")]
# At most asked for at once; and for a line of a table, which may stand for as many cycles.
_MOST_RECORDS, _FOLDED = 10_000, 50
LimitOption = Annotated[
    int | None,
    typer.Option(
        "--limit",
        metavar="COUNT",
        min=1,
        max=_MOST_RECORDS,
        help="How many lines, the newest ones. Default: 20, or all of the time that --since or --until gives.",
    ),
]


@dataclass(slots=True)
class Session:
    """One command's connection and output."""

    client: Client
    output: Output = Output.TABLE
    watch: Watch = field(default_factory=Watch)

    def show(self, fetch: Callable[[Client], Any], render: Render) -> Any:
        """Fetch and print, once or with `--watch`; returns the last answer."""
        return show(lambda: fetch(self.client), render, self.output, self.watch)

    def state(self) -> State:
        """Of the sidecar: what may be carried out now."""
        return decoded(State, self.client.get("state"))

    def tell(self, answer: Any, render: Render) -> None:
        """Print an answer that is there already."""
        tell(answer, render, self.output)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedSidecar:
    """What the options of a command say that asks a sidecar only in some cases. `typed`: those of the command line."""

    config: Path | None
    output: Output
    typed: set[str]
    connect: Callable[[], Client]


def asked_by(reason: str, by: str, *, yes: bool) -> dict[str, Any]:
    """Who asks, and why, of something that is a dry run unless `yes`. CliError when it is none and has no reason."""
    if yes and not reason.strip():
        raise CliError("--yes needs a reason: --reason TEXT", USAGE)
    return {"by": by or login(), "execute": yes, **({"reason": reason} if reason.strip() else {})}


def period(since: str | None, until: str | None) -> dict[str, int | None]:
    """The query of a span of time, in ms; None for what is not given. CliError when it is not a time, or the span ends
    before it begins."""
    now = dt.datetime.now().astimezone()
    times = "a local time such as 18:05 or 2026-11-22T18:05"
    allowed = f"a duration such as 24h or 90m (so long ago), today, yesterday, or {times}"
    begin, end = (
        None if text is None else moment_ms(text, now, f"{option} {text!r}: expected {allowed}")
        for option, text in (("--since", since), ("--until", until))
    )
    if begin is not None and begin > now.timestamp() * 1000:
        raise CliError(f"--since {since!r} is in the future: expected a time up to now, such as 24h or today", USAGE)
    if begin is not None and begin < 0:
        raise CliError(f"--since {since!r} is before 1970: expected a later time, such as 24h or today", USAGE)
    if begin is not None and end is not None and end < begin:
        raise CliError(f"--until {until!r} is before --since {since!r}", USAGE)
    return {"since_ms": begin, "until_ms": end}


def lines_and_records(limit: int | None, span: Mapping[str, int | None], output: Output) -> tuple[int, int]:
    """How many lines are shown, and how many records are asked for: in a table a line may stand for many cycles.
    Without --limit all of a span of time, else a screenful."""
    lines = limit or (_MOST_RECORDS if any(span.values()) else 20)
    return lines, lines if output in (Output.JSON, Output.YAML) else min(_MOST_RECORDS, _FOLDED * lines)


def moment_ms(text: str, now: dt.datetime, wrong: str) -> int:
    """A time as people write it: so long ago, a day, or a time, local unless it names a zone. CliError: `wrong`."""
    return int(_moment(text.strip(), now, wrong).timestamp() * 1000)


def _moment(text: str, now: dt.datetime, wrong: str) -> dt.datetime:
    given = text.lower()
    if given in ("today", "yesterday"):
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        return midnight - dt.timedelta(days=1 if given == "yesterday" else 0)
    with suppress(ValueError, OverflowError):
        if given[-1:].isalpha():  # 24 without a unit would be seconds
            return now - dt.timedelta(seconds=parse_duration(given))
    with suppress(ValueError, OverflowError):
        if ":" in text:  # an hour of today
            return dt.datetime.combine(now, dt.time.fromisoformat(text)).astimezone()
    with suppress(ValueError, OverflowError):
        return _printed(text, now)
    try:
        return dt.datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise CliError(wrong, USAGE) from None


def _printed(text: str, now: dt.datetime) -> dt.datetime:
    """A time as tables print it, in UTC or the local zone; without a year the last such time. ValueError."""
    for year in ("", f"{now.year}-", f"{now.year - 1}-"):
        with suppress(ValueError):
            zone = dt.UTC if text.endswith("UTC") else None
            found = dt.datetime.strptime(year + text, units.LONG).replace(tzinfo=zone).astimezone()
            if not year or found <= now:
                return found
    raise ValueError(text)


def seconds_of(option: str, text: str, *, least: float | None = None) -> float:
    """The seconds of a duration: above 0, or from `least` on. CliError names what is allowed."""
    seconds = -math.inf
    with suppress(ValueError):
        seconds = parse_duration(text)
    if seconds <= 0 if least is None else seconds < least:
        allowed = limits_text({"gt": 0} if least is None else {"ge": least}, "{:g}s".format)
        raise CliError(f"{option} {text!r}: expected a duration of {allowed}, such as 90s, 30m, 2h or 1d", USAGE)
    return seconds


def login() -> str:
    """Who runs this command."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "cli"


def connected(command: Callable[..., Any]) -> Callable[..., None]:
    """Give a command that takes `session` the options to find a sidecar and to print (`--watch` included)."""
    return _wrap(command, watch=True)


def may_connect(command: Callable[..., Any]) -> Callable[..., None]:
    """The same for commands that take `sidecar` and ask it only in some cases."""
    return _wrap(command, watch=False, always=False)


def connected_once(command: Callable[..., Any]) -> Callable[..., None]:
    """The same for commands that change something: no `--watch`."""
    return _wrap(command, watch=False)


# Those that name a sidecar and say who asks it.
_NAMING: Final = {
    "config": (ConfigOption, None),
    "socket": (SocketOption, None),
    "url": (UrlOption, None),
    "token_file": (TokenFileOption, None),
    "tls_ca": (TlsCaOption, None),
    "tls_cert": (TlsCertOption, None),
    "tls_key": (TlsKeyOption, None),
}
_WATCHED: Final = {"watching": (WatchOption, False), "interval": (EveryOption, 2.0), "rounds": (RoundsOption, 0)}


def _wrap(command: Callable[..., Any], *, watch: bool, always: bool = True) -> Callable[..., None]:
    own = inspect.signature(command, eval_str=True)
    options: dict[str, tuple[Any, Any]] = {
        "output": (OutputOption, Output.TABLE),
        **(_WATCHED if watch else {}),
        **_NAMING,
    }

    @functools.wraps(command)
    def run(context: typer.Context, **given: Any) -> None:
        # A group that is asked for one of its commands has nothing to ask a sidecar itself.
        if context.invoked_subcommand is not None:
            return
        shared = {name: given.pop(name) for name in options}
        typed = typed_options(context)
        named = (shared["url"], shared["socket"], shared["config"], _credentials(shared))
        reach = functools.partial(connect, *named, typed=typed)
        if not always:
            with readable():
                sidecar = NamedSidecar(config=shared["config"], output=shared["output"], typed=typed, connect=reach)
                command(sidecar=sidecar, **given)
            return
        with readable(), reach() as client:
            how = Watch(
                on=shared.get("watching", False), seconds=shared.get("interval", 2.0), rounds=shared.get("rounds", 0)
            )
            command(session=Session(client, shared["output"], how), **given)

    kind = inspect.Parameter.KEYWORD_ONLY
    mine = [item.replace(kind=kind) for item in own.parameters.values() if item.name not in ("session", "sidecar")]
    mine.insert(0, inspect.Parameter("context", kind, annotation=typer.Context))
    added = [
        inspect.Parameter(name, kind, default=default, annotation=hint) for name, (hint, default) in options.items()
    ]
    run.__signature__ = inspect.Signature([*mine, *added])  # type: ignore[attr-defined]
    run.__annotations__ = {item.name: item.annotation for item in (*mine, *added)}
    del run.__wrapped__
    return run


def _credentials(shared: Mapping[str, Any]) -> CredentialFiles:
    return CredentialFiles(
        token_file=shared["token_file"], trust_certs=shared["tls_ca"], cert=shared["tls_cert"], key=shared["tls_key"]
    )
