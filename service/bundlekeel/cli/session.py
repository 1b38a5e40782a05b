"""What every command that asks a sidecar shares: its options, its client, its way of printing."""

from __future__ import annotations

import functools
import getpass
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from bundlekeel.cli.client import Client, CredentialFiles, connect
from bundlekeel.cli.exit_codes import USAGE, CliError, readable
from bundlekeel.cli.output import Output, Render, Watch, dump, show
from bundlekeel.cli.run import ConfigOption

OutputOption = Annotated[Output, typer.Option("-o", "--output", help="How to print the answer.")]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why; it is kept in the journal.", show_default=False)]
ReasonToActOption = Annotated[
    str, typer.Option("--reason", help="Why; needed with --yes, and kept in the journal.", show_default=False)
]
ByOption = Annotated[str, typer.Option("--by", help="Who asks, for the journal; the login name by default.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]

_SIDECAR = "Which sidecar"
UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="BUNDLEKEEL_URL",
        help="A sidecar's address, http://host:port.",
        show_default=False,
        rich_help_panel=_SIDECAR,
    ),
]
SocketOption = Annotated[
    Path | None,
    typer.Option(
        "--socket",
        envvar="BUNDLEKEEL_SOCKET",
        help="A local sidecar's unix socket.",
        show_default=False,
        rich_help_panel=_SIDECAR,
    ),
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        envvar="BUNDLEKEEL_TOKEN_FILE",
        help="File with a bearer token.",
        show_default=False,
        rich_help_panel=_SIDECAR,
    ),
]
TlsCaOption = Annotated[
    Path | None,
    typer.Option(
        "--tls-ca",
        envvar="BUNDLEKEEL_TLS_CA",
        help="PEM to check https with.",
        show_default=False,
        rich_help_panel=_SIDECAR,
    ),
]
TlsCertOption = Annotated[
    Path | None,
    typer.Option(
        "--tls-cert",
        envvar="BUNDLEKEEL_TLS_CERT",
        help="PEM client certificate.",
        show_default=False,
        rich_help_panel=_SIDECAR,
    ),
]
TlsKeyOption = Annotated[
    Path | None,
    typer.Option(
        "--tls-key", envvar="BUNDLEKEEL_TLS_KEY", help="PEM key of it.", show_default=False, rich_help_panel=_SIDECAR
    ),
]
WatchOption = Annotated[bool, typer.Option("--watch", "-w", help="Print again and again until Ctrl-C.")]
EveryOption = Annotated[float, typer.Option("--interval", min=0.1, help="Seconds between two prints of --watch.")]
RoundsOption = Annotated[int, typer.Option("--rounds", hidden=True, help="End --watch after that many prints.")]


@dataclass(slots=True)
class Session:
    """One command's connection and output."""

    client: Client
    output: Output = Output.TABLE
    watch: Watch = field(default_factory=Watch)

    def show(self, fetch: Callable[[Client], Any], render: Render) -> Any:
        """Fetch and print, once or with `--watch`; returns the last answer."""
        return show(lambda: fetch(self.client), render, self.output, self.watch)

    def tell(self, answer: Any, render: Render) -> None:
        """Print an answer that is there already."""
        show(lambda: answer, render, self.output, Watch())


def asked_by(reason: str, by: str, *, yes: bool) -> dict[str, Any]:
    """Who asks, and why, of something that is a dry run unless `yes`. CliError when it is none and has no reason."""
    if yes and not reason.strip():
        raise CliError("--yes carries it out, so say why: --reason TEXT", USAGE)
    return {"by": by or login(), "execute": yes, **({"reason": reason} if reason.strip() else {})}


def login() -> str:
    """Who runs this command."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "cli"


def connected(command: Callable[..., Any]) -> Callable[..., None]:
    """Give a command that takes `session` the options to find a sidecar and to print (`--watch` included)."""
    return _wrap(command, watch=True)


def connected_once(command: Callable[..., Any]) -> Callable[..., None]:
    """The same for commands that change something: no `--watch`."""
    return _wrap(command, watch=False)


def _wrap(command: Callable[..., Any], *, watch: bool) -> Callable[..., None]:
    own = inspect.signature(command, eval_str=True)
    options: dict[str, tuple[Any, Any]] = {
        "output": (OutputOption, Output.TABLE),
        **(
            {"watching": (WatchOption, False), "interval": (EveryOption, 2.0), "rounds": (RoundsOption, 0)}
            if watch
            else {}
        ),
        "config": (ConfigOption, None),
        "socket": (SocketOption, None),
        "url": (UrlOption, None),
        "token_file": (TokenFileOption, None),
        "tls_ca": (TlsCaOption, None),
        "tls_cert": (TlsCertOption, None),
        "tls_key": (TlsKeyOption, None),
    }

    @functools.wraps(command)
    def run(context: typer.Context, **given: Any) -> None:
        # A group that is asked for one of its commands has nothing to ask a sidecar itself.
        if context.invoked_subcommand is not None:
            return
        shared = {name: given.pop(name) for name in options}
        with readable(), connect(shared["url"], shared["socket"], shared["config"], _credentials(shared)) as client:
            how = Watch(
                on=shared.get("watching", False), seconds=shared.get("interval", 2.0), rounds=shared.get("rounds", 0)
            )
            command(session=Session(client, shared["output"], how), **given)

    kind = inspect.Parameter.KEYWORD_ONLY
    mine = [item.replace(kind=kind) for item in own.parameters.values() if item.name != "session"]
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


__all__ = ["Session", "connected", "connected_once", "dump", "login"]
