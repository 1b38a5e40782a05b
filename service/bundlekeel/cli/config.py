"""`bundlekeel config`: check a settings file, show settings with their origin, list the parameters.

`bundlekeel token`: create bearer tokens for the API.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer
import yaml
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from bundlekeel.cli.client import typed_options
from bundlekeel.cli.exit_codes import USAGE, CliError, by_option, guarded
from bundlekeel.cli.output import Output, OutputOption, console, dump
from bundlekeel.cli.run import ConfigOption
from bundlekeel.cli.session import NamedSidecar, may_connect
from bundlekeel.model.errors import ConfigError
from bundlekeel.settings.credentials import new_token
from bundlekeel.settings.describe import as_tree, describe, folder_warnings, parameter_rows, warnings_of
from bundlekeel.settings.file_checks import file_problems
from bundlekeel.settings.load import LoadedSettings, load_settings
from bundlekeel.settings.problems import ConfigErrors
from bundlekeel.settings.sources import misnamed_variables

_HEAD = "# Other settings have their defaults; all keys: `bundlekeel config show`, config/bundlekeel.example.yaml\n"
_COMMENTS = {
    "cluster": "the brokers' clusterName",
    "mode": "plans are shown, nothing is changed; `act` executes them",
    "metadata_store": "the brokers' metadataStoreUrl",
}
TABLES = (Output.TABLE, Output.WIDE)


config_app = typer.Typer(no_args_is_help=True, help="Write (`init`), check and show settings; list the parameters.")


ElsewhereOption = Annotated[
    bool,
    typer.Option(
        "--elsewhere", help="Do not check files of secrets and certificates, because they are on another host."
    ),
]


@config_app.command()
@guarded
def check(
    context: typer.Context,
    file: Annotated[Path | None, typer.Argument(help="Settings file (YAML); or -c FILE.")] = None,
    config: ConfigOption = None,
    elsewhere: ElsewhereOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Check a settings file together with the environment variables. If it cannot be used: exit code 2, and the reason.

    All wrong values are reported together. Combinations of values are checked only if no value is wrong: repeat the
    check until it prints `ok`.

    The token and certificate files of the settings must exist. Values that are allowed but probably not intended cause
    a warning: a shedder and a placement that do not fit together, an API that everyone can read, a directory that does
    not exist.

    `-o json`: `ok`, `problems` (each with message, origin, field, value and allowed values) and `warnings`.
    """
    if file is not None and "config" in typed_options(context):
        raise CliError(f"FILE {file} and -c {config} each select a settings file: pass only one of them", USAGE)
    if (path := file or config) is None:
        raise CliError("no settings file: pass FILE, -c FILE or BUNDLEKEEL_CONFIG", USAGE)
    warnings: list[str] = []
    fault: ConfigError | None = None
    try:
        loaded = load_settings(path, elsewhere=elsewhere)
        folders = [] if elsewhere else folder_warnings(loaded)
        warnings += (*warnings_of(loaded.settings), *folders, *misnamed_variables(os.environ))
        loaded.demand_store()
        if missing := [] if elsewhere else file_problems(loaded):
            raise ConfigErrors(missing)
    except ConfigError as error:
        fault = error
    if output in TABLES:
        for text in warnings:
            typer.echo(f"warning: {text}", err=True)
        if fault is not None:
            raise fault
        typer.echo("ok")
        return
    problems = [] if fault is None else getattr(fault, "problems", (fault,))
    items = [{"message": str(item), **{key: getattr(item, key) for key in _PROBLEM}} for item in problems]
    dump({"ok": fault is None, "problems": items, "warnings": warnings}, output)
    if fault is not None:
        raise typer.Exit(USAGE)


_PROBLEM: Final = ("origin", "field", "value", "allowed")


# Questions of `config init` by setting, and the answer that selects the default; None: an answer is required.
_QUESTIONS: Final = {
    ("cluster",): ("The brokers' clusterName", None),
    ("metadata_store",): ("The brokers' metadataStoreUrl (zk:HOST:2181,HOST:2181/CHROOT)", None),
    ("admin", "token_file"): ("File with a super-user's token (none: no authentication)", "none"),
    ("capacity", "*", "nic_gbps"): (
        "Gbit/s of a broker's network card (0: brokers report it; VMs and pods do not)",
        "0",
    ),
    ("api", "host"): ("Address that the API listens on (sidecars on several hosts: 0.0.0.0)", "127.0.0.1"),
}
# Options whose name differs from the setting's name.
_OPTIONS = {
    ("admin", "token_file"): "--token-file",
    ("capacity", "*", "nic_gbps"): "--nic-gbps",
    ("api", "host"): "--api-host",
}


@config_app.command()
@guarded
def init(
    file: Annotated[
        Path | None, typer.Argument(help="File to write; it must not exist. Default: bundlekeel.yaml.")
    ] = None,
    cluster: Annotated[str | None, typer.Option(help="clusterName of the brokers.")] = None,
    metadata_store: Annotated[str | None, typer.Option(help="metadataStoreUrl of the brokers.")] = None,
    token_file: Annotated[str | None, typer.Option(help="File with the token of a super-user.")] = None,
    nic_gbps: Annotated[
        str | None,
        typer.Option(metavar="GBIT", help="Gbit/s of a broker's network card; 0: the brokers report it (VMs do not)."),
    ] = None,
    api_host: Annotated[str | None, typer.Option(help="Address that the API listens on.")] = None,
    option: Annotated[Path | None, typer.Option("--file", metavar="FILE", help="Same as FILE.")] = None,
    elsewhere: ElsewhereOption = False,
) -> None:
    """Write a short settings file from five answers, in mode `recommend`, which changes nothing in the cluster.

    Without --cluster or --metadata-store the command asks for each value that no option sets. The other three settings
    have defaults.
    """
    answers = dict(zip(_QUESTIONS, (cluster, metadata_store, token_file, nic_gbps, api_host), strict=True))
    if file is not None and option is not None:
        raise CliError(f"FILE {file} and --file {option} each set the file to write: pass only one of them", USAGE)
    file = file or option or Path("bundlekeel.yaml")
    if file.exists():
        raise CliError(f"{file} exists already; choose another name with --file", USAGE)
    ask = cluster is None or metadata_store is None
    if ask and not sys.stdin.isatty():
        raise CliError("--cluster and --metadata-store are required where standard input is not a terminal", USAGE)
    setting = partial(_setting, file=None if elsewhere else file)
    parts: dict[str, Any] = {}
    for key, (question, default) in _QUESTIONS.items():
        value = answers[key]
        if value is not None:
            try:
                parts |= setting(key, value)
            except typer.BadParameter as error:
                name = _OPTIONS.get(key, f"--{key[0].replace('_', '-')}")
                raise CliError(by_option(error.message, ".".join(key), name), USAGE) from None
        elif ask:
            parts |= typer.prompt(question, default=default, value_proc=partial(setting, key))
    values = {"cluster": parts.pop("cluster"), "mode": "recommend", **parts}
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(_HEAD + _commented(yaml.safe_dump(values, sort_keys=False, default_flow_style=False)))
    except OSError as error:
        raise CliError(f"{file} cannot be written: {error.strerror}; choose another name with --file", USAGE) from None
    typer.echo(f"{file} was written; next: bundlekeel doctor -c {file}")


def _commented(text: str) -> str:
    """Add comments to the main settings in a file's text."""
    return re.sub(r"(?m)^(\w+): .+", lambda line: f"{line[0]}  # {_COMMENTS[line[1]]}", text)


def _setting(key: tuple[str, ...], text: str, *, file: Path | None) -> dict[str, Any]:
    """Return an operator's answer as nested settings; {} if the answer selects the default.

    `file`: the settings file; other paths are relative to its directory. Raises BadParameter if the value is invalid,
    so that a terminal asks again.
    """
    if text == _QUESTIONS[key][1]:
        return {}
    part: Any = text
    if key[0] == "capacity":
        with suppress(ValueError):
            part = float(text)
            part = int(part) if part.is_integer() else part
    for name in reversed(key):
        part = {name: part}
    try:
        loaded = replace(load_settings(None, part, environ={}), path=file)
        if problems := [] if file is None else file_problems(loaded):
            raise problems[0]
    except ConfigError as error:
        # An operator cannot answer null, so name the answer that selects the default instead.
        message = str(error).removeprefix("cli: ").replace("or null", f"or {_QUESTIONS[key][1]}")
        raise typer.BadParameter(message) from None
    return dict(part)


@config_app.command()
@may_connect
def show(
    sidecar: NamedSidecar,
    origin: Annotated[bool, typer.Option("--origin", help="Show the origin of each value.")] = False,
    changed: Annotated[bool, typer.Option("--changed", help="Show only values that differ from the defaults.")] = False,
    running: Annotated[
        bool, typer.Option("--running", help="Request the settings from the sidecar of this settings file.")
    ] = False,
) -> None:
    """Show the settings in effect, without secrets, and Pulsar's names of the parameters.

    With --running, --url or --socket: the sidecar's present settings, with the values from brokers and calibration.
    Otherwise: the settings from file and environment.
    """
    output = sidecar.output
    if running or sidecar.typed & {"url", "socket"}:
        with sidecar.connect() as client:
            rows = client.get("settings")
    else:
        rows = describe(load_settings(sidecar.config))
    if changed:
        defaults = {row["key"]: row["value"] for row in describe(LoadedSettings.defaults())}
        rows = [row for row in rows if row["key"] not in defaults or row["value"] != defaults[row["key"]]]
    if output in TABLES:
        _print_settings(rows, origin=origin)
    elif origin:
        by_key = {row["key"]: {name: row[name] for name in ("value", "origin", "pulsar_keys")} for row in rows}
        dump(by_key, output)
    else:
        dump(as_tree(rows), output)


@config_app.command()
def parameters(output: OutputOption = Output.TABLE) -> None:
    """List every parameter: Bundlekeel's name, Pulsar's keys, default, allowed values, and purpose."""
    rows = parameter_rows()
    if output not in TABLES:
        dump(rows, output)
        return
    screen = console()
    stacked = screen.width < _KEYS_IN_COLUMN
    table = Table("parameter", "default", "unit", "allowed", "used by", "why", box=None, pad_edge=False)
    for row in rows:
        name = Text(row["name"], style="bold")
        for key in row["pulsar_keys"]:
            name.append(f"\n  {key}", style="dim")
        default = _cell(row["default"])
        if stacked:
            figures = f"default: {default} ({row['unit']}); allowed: {row['allowed']}; used by: {row['used_by']}"
            screen.print(name, Padding(Text(f"{figures}\n{row['why']}"), (0, 0, 1, 4)), sep="\n")
        else:
            cells = (default, row["unit"], row["allowed"], row["used_by"], row["why"])
            table.add_row(name, *map(Text, cells))
    if not stacked:
        screen.print(table)


# In terminals with fewer columns, Pulsar's key is on its own line below Bundlekeel's name.
_KEYS_IN_COLUMN = 140


def _print_settings(rows: list[dict[str, Any]], *, origin: bool) -> None:
    screen = console()
    if screen.width < _KEYS_IN_COLUMN:
        # Do not break values into lines, so that they can be copied. The terminal wraps them.
        for row in rows:
            line = Text(row["key"], style="bold").append(f": {_cell(row['value'])}", style="not bold")
            if origin:
                line.append(f"  # {row['origin']}", style="not bold dim")
            screen.print(
                line, *(Text(f"  {name}", style="dim") for name in row["pulsar_keys"]), sep="\n", soft_wrap=True
            )
        return
    table = Table(box=None, pad_edge=False)
    for name in ("key", "value", *(["origin"] if origin else []), "Pulsar's key"):
        table.add_column(name, overflow="fold")
    for row in rows:
        cells = [row["key"], _cell(row["value"]), *([row["origin"]] if origin else [])]
        table.add_row(*map(Text, cells), Text("\n".join(row["pulsar_keys"]), style="dim"))
    screen.print(table)


def _cell(value: object) -> str:
    """Return a value as it is written in a settings file (YAML)."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | dict):
        return yaml.safe_dump(value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10**6).strip()
    return f"{value:g}" if isinstance(value, float) and abs(value) < 1e6 else str(value)


token_app = typer.Typer(no_args_is_help=True, help="Create bearer tokens for the API.")


# Each role includes the permissions of the roles before it.
Role = Literal["viewer", "operator", "admin"]


@token_app.callback()
def tokens() -> None:
    """Create bearer tokens for the API."""


@token_app.command()
@guarded
def new(
    name: Annotated[str, typer.Argument(help="Name of the user, for the journal.")],
    role: Annotated[Role, typer.Option("--role", help="Role that the token grants.")] = "viewer",
    output: OutputOption = Output.TABLE,
) -> None:
    """Create a token and print it; it is not stored. Add the second printed line to the file of api.auth.tokens_file.

    `-o json`: name, role, token and line.
    """
    token, line = new_token(name, role)
    if output in TABLES:
        typer.echo(f"token: {token}")
        typer.echo(f"line:  {line}")
    else:
        dump({"name": name, "role": role, "token": token, "line": line}, output)
    typer.echo(
        "next: append the line to the file of api.auth.tokens_file on every sidecar's host (sidecars reload it "
        "when it changes); commands read the token from a file with --token-file, HTTP clients send "
        "`Authorization: Bearer TOKEN`",
        err=True,
    )


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    app.add_typer(config_app, name="config")
    app.add_typer(token_app, name="token")
