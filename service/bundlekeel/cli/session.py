"""Code that the commands share: options, durations and times, the client of a sidecar, and printing."""

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
from bundlekeel.model.errors import ConfigError
from bundlekeel.model.names import NEW_BROKER, is_namespace, names_namespace
from bundlekeel.model.text_format import limits_text, parse_duration
from bundlekeel.views.picture import State


def check_reason(reason: str | None) -> str | None:
    """Return the reason. Raises BadParameter if it is blank."""
    if reason is not None and not reason.strip():
        raise typer.BadParameter("must not be blank")
    return reason


ReasonOption = Annotated[str, typer.Option("--reason", help="Reason, for the journal.", callback=check_reason)]
ReasonToActOption = Annotated[str, typer.Option("--reason", help="Reason, for the journal; required with --yes.")]
ByOption = Annotated[
    str, typer.Option("--by", metavar="NAME", help="Requester, for the journal. Default: the login name.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")]


def set_option(subject: str) -> Any:
    """Return the option `--set KEY=VALUE`, with `subject` in its help. `pairs_of` parses its values."""
    return typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help=f"{subject} (Bundlekeel's or Pulsar's name), e.g. avg_low_threshold_percent=5; repeatable.",
        autocompletion=completion.parameters,
    )


def pairs_of(sets: Sequence[str], *, unchecked: Collection[str] = ()) -> dict[str, str]:
    """Return the values of `--set` by name.

    `unchecked`: names whose values are not validated here. Raises CliError if an item is not key=value, and
    ConfigError if a name or value is wrong.
    """
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


# Hide environment variables in the help, because they would double the length of every help page.
_WHICH = "Select the sidecar (or BUNDLEKEEL_URL, BUNDLEKEEL_SOCKET, ...)"


def _sidecar(name: str, text: str) -> Any:
    """Return an option that selects a sidecar; an environment variable can replace it."""
    return typer.Option(name, envvar=variable_of(name), show_envvar=False, help=text, rich_help_panel=_WHICH)


UrlOption = Annotated[str | None, _sidecar("--url", "Address of a sidecar, http://host:port.")]
SocketOption = Annotated[Path | None, _sidecar("--socket", "Unix socket of a sidecar on this host.")]
TokenFileOption = Annotated[Path | None, _sidecar("--token-file", "File with a bearer token.")]
TlsCaOption = Annotated[Path | None, _sidecar("--tls-ca", "CA certificates (PEM) for an https address.")]
TlsCertOption = Annotated[Path | None, _sidecar("--tls-cert", "Client certificate (PEM).")]
TlsKeyOption = Annotated[Path | None, _sidecar("--tls-key", "Key of the client certificate (PEM).")]
WatchOption = Annotated[
    bool, typer.Option("--watch", "-w", help="Repeat until Ctrl-C, also while no sidecar responds.")
]
EveryOption = Annotated[
    float, typer.Option("--interval", metavar="SECONDS", min=0.1, help="Seconds between two outputs of --watch.")
]
RoundsOption = Annotated[int, typer.Option("--rounds", hidden=True, help="Number of outputs after which --watch ends.")]


def _namespace(text: str | None) -> str | None:
    if text is not None and not (names_namespace(text) and is_namespace(text)):
        raise typer.BadParameter(f"{text!r}: expected tenant/namespace")
    return text


def broker_id(value: list[str] | str | None) -> list[str] | str | None:
    """Return the values unchanged. Raises BadParameter if a value is neither empty nor a possible broker id."""
    for name in [value] if isinstance(value, str) else value or ():
        if name and re.fullmatch(NEW_BROKER, name) is None:
            allowed = "a host name, or host:port: letters, digits and . _ : [ ] -"
            raise typer.BadParameter(f"{name!r}: cannot be a broker id (allowed: {allowed})")
    return value


NamespaceOption = Annotated[
    str | None,
    typer.Option(
        *("--namespace", "-n"),
        help="Only this tenant/namespace.",
        autocompletion=completion.namespaces,
        callback=_namespace,
    ),
]
SinceOption = Annotated[
    str | None,
    typer.Option(
        "--since", metavar="TIME", help="Start: 24h (ago), today, yesterday, 18:05 or 2026-11-22T18:05 (local)."
    ),
]
UntilOption = Annotated[
    str | None, typer.Option("--until", metavar="TIME", help="End, in the forms of --since. Default: now.")
]
# Largest number of records in one request; and how many records to request per table line, because a line can merge
# many cycles.
_MOST_RECORDS, _FOLDED = 10_000, 50
LimitOption = Annotated[
    int | None,
    typer.Option(
        "--limit",
        metavar="COUNT",
        min=1,
        max=_MOST_RECORDS,
        help="Number of lines, the newest ones. Default: 20; with --since or --until: all.",
    ),
]


@dataclass(slots=True)
class Session:
    """Connection to a sidecar, and output options, of one command."""

    client: Client
    output: Output = Output.TABLE
    watch: Watch = field(default_factory=Watch)

    def show(self, fetch: Callable[[Client], Any], render: Render) -> Any:
        """Print the result of `fetch` and return it; with `--watch`, repeat this and return the last result."""
        return show(lambda: fetch(self.client), render, self.output, self.watch)

    def state(self) -> State:
        """Return the sidecar's state, which includes whether it may act now."""
        return decoded(State, self.client.get("state"))

    def tell(self, answer: Any, render: Render) -> None:
        """Print a response."""
        tell(answer, render, self.output)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedSidecar:
    """Options of a command that connects to a sidecar only in some cases. `typed`: names on the command line."""

    config: Path | None
    output: Output
    typed: set[str]
    connect: Callable[[], Client]


def request_body(reason: str, by: str, *, yes: bool) -> dict[str, Any]:
    """Return the body of a request: requester, reason, and `execute` if `yes` (else a dry run).

    Raises CliError if `yes` is set without a reason.
    """
    if yes and not reason.strip():
        raise CliError("--yes needs a reason: --reason TEXT", USAGE)
    return {"by": by or login(), "execute": yes, **({"reason": reason} if reason.strip() else {})}


def period(since: str | None, until: str | None) -> dict[str, int | None]:
    """Return `since_ms` and `until_ms` of a query, in Unix ms; None: no limit.

    Raises CliError if a string is not a time, or if the period ends before it begins.
    """
    now = dt.datetime.now().astimezone()
    times = "a local time such as 18:05 or 2026-11-22T18:05"
    allowed = f"a duration such as 24h or 90m (ago), today, yesterday, or {times}"
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
    """Return how many lines to show and how many records to request: a table line can merge many cycles.

    Without --limit: all records if `span` is a period, else 20 lines.
    """
    lines = limit or (_MOST_RECORDS if any(span.values()) else 20)
    return lines, lines if output in (Output.JSON, Output.YAML) else min(_MOST_RECORDS, _FOLDED * lines)


def moment_ms(text: str, now: dt.datetime, wrong: str) -> int:
    """Return a time as Unix ms, from a duration before now, a day, or a time (local unless it has a zone).

    Raises CliError with the message `wrong` if the text has another form.
    """
    return int(_moment(text.strip(), now, wrong).timestamp() * 1000)


def _moment(text: str, now: dt.datetime, wrong: str) -> dt.datetime:
    lower = text.lower()
    if lower in ("today", "yesterday"):
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        return midnight - dt.timedelta(days=1 if lower == "yesterday" else 0)
    with suppress(ValueError, OverflowError):
        if lower[-1:].isalpha():  # a duration needs a unit here: without it, 24 would be seconds
            return now - dt.timedelta(seconds=parse_duration(lower))
    with suppress(ValueError, OverflowError):
        if ":" in text:  # a time of today
            return dt.datetime.combine(now, dt.time.fromisoformat(text)).astimezone()
    with suppress(ValueError, OverflowError):
        return _parse_printed(text, now)
    try:
        return dt.datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise CliError(wrong, USAGE) from None


def _parse_printed(text: str, now: dt.datetime) -> dt.datetime:
    """Parse a time in the form that tables print; without a year, return the last such time before `now`.

    Raises ValueError if the text has another form.
    """
    for year in ("", f"{now.year}-", f"{now.year - 1}-"):
        with suppress(ValueError):
            zone = dt.UTC if text.endswith("UTC") else None
            time = dt.datetime.strptime(year + text, units.LONG).replace(tzinfo=zone).astimezone()
            if not year or time <= now:
                return time
    raise ValueError(text)


def seconds_of(option: str, text: str, *, least: float | None = None) -> float:
    """Parse the duration of an option and return its seconds: above 0, or at least `least`.

    Raises CliError with the allowed range if it is malformed or out of range.
    """
    seconds = -math.inf
    with suppress(ValueError):
        seconds = parse_duration(text)
    if seconds <= 0 if least is None else seconds < least:
        allowed = limits_text({"gt": 0} if least is None else {"ge": least}, "{:g}s".format)
        raise CliError(f"{option} {text!r}: expected a duration of {allowed}, such as 90s, 30m, 2h or 1d", USAGE)
    return seconds


def login() -> str:
    """Return the login name of the user; `cli` if there is none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "cli"


def connected(command: Callable[..., Any]) -> Callable[..., None]:
    """Wrap a command that takes `session`: add the options for selecting a sidecar and for output, with `--watch`."""
    return _wrap(command, watch=True)


def may_connect(command: Callable[..., Any]) -> Callable[..., None]:
    """Wrap a command that takes `sidecar` and may connect to it: add the options of `connected` without `--watch`."""
    return _wrap(command, watch=False, always=False)


def connected_once(command: Callable[..., Any]) -> Callable[..., None]:
    """Wrap a command that takes `session` and changes something: add the options of `connected` without `--watch`."""
    return _wrap(command, watch=False)


# Options that select a sidecar, and credentials.
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
    def run(context: typer.Context, **arguments: Any) -> None:
        # Do nothing if a subcommand follows, because it makes its own request.
        if context.invoked_subcommand is not None:
            return
        shared = {name: arguments.pop(name) for name in options}
        typed = typed_options(context)
        target = (shared["url"], shared["socket"], shared["config"], _credentials(shared))
        reach = functools.partial(connect, *target, typed=typed)
        if not always:
            with readable():
                sidecar = NamedSidecar(config=shared["config"], output=shared["output"], typed=typed, connect=reach)
                command(sidecar=sidecar, **arguments)
            return
        with readable(), reach() as client:
            watching = Watch(
                on=shared.get("watching", False), seconds=shared.get("interval", 2.0), rounds=shared.get("rounds", 0)
            )
            command(session=Session(client, shared["output"], watching), **arguments)

    kind = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        item.replace(kind=kind) for item in own.parameters.values() if item.name not in ("session", "sidecar")
    ]
    parameters.insert(0, inspect.Parameter("context", kind, annotation=typer.Context))
    added = [
        inspect.Parameter(name, kind, default=default, annotation=hint) for name, (hint, default) in options.items()
    ]
    run.__signature__ = inspect.Signature([*parameters, *added])  # type: ignore[attr-defined]
    run.__annotations__ = {item.name: item.annotation for item in (*parameters, *added)}
    del run.__wrapped__
    return run


def _credentials(shared: Mapping[str, Any]) -> CredentialFiles:
    return CredentialFiles(
        token_file=shared["token_file"], trust_certs=shared["tls_ca"], cert=shared["tls_cert"], key=shared["tls_key"]
    )
