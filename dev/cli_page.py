"""docs/reference/cli.md, made from the app itself."""

from __future__ import annotations

import inspect
import re
from argparse import RawDescriptionHelpFormatter
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import partial
from typing import Any, Literal, cast, get_args, get_origin

import typer

from bundlekeel.cli.app import make_app
from bundlekeel.cli.examples import EXAMPLES
from bundlekeel.cli.exit_codes import EPILOG
from bundlekeel.cli.wiring import Wiring
from bundlekeel.compat import decide
from bundlekeel.recalibration.jobs.__main__ import parser as recalibrate_parser
from bundlekeel.wiring.features import commands
from dev import NOTE

_SHARED = ("output", "watching", "interval", "config", "socket", "url", "token_file", "tls_ca", "tls_cert", "tls_key")
_OF_CHANGES = ("reason", "by", "yes", "wait", "within")
_OF_PERIODS = ("since", "until")
_COMMON = "[common options](#common-options)"

_INTRO = """\
A command finds a running sidecar by `--url`, `--socket`, or the settings file (`-c`): its unix socket if there is one,
else its host and port. The environment can set the same (`BUNDLEKEEL_URL`, `BUNDLEKEEL_SOCKET`, `BUNDLEKEEL_CONFIG`).
These commands need no running sidecar: `run`, `doctor`, `where`, `takeover`, `handback`, `deadman`, `uninstall`,
`config`, `token`, `history`, `replay`, `simulate`, `decide`, `journal verify` and `version`. These do: `doctor --for
act`, `where --if-unowned` and `config show --running`. Without authentication, commands that change something through
a sidecar need its unix socket (mode 0600).

Tables have human units, JSON and YAML raw numbers ([their units](api.md)). In a pipe every row is one line. With
`--watch`, JSON is one line per output. `NO_COLOR` and `COLUMNS` are respected. `-h` after any command shows its
options. `bundlekeel --install-completion` sets up the shell.

[Which commands act immediately](../operations/by-hand.md#which-commands-act-at-once), and which are dry runs first."""

_DECIDE = """\
## `decide`: lines in and out

```
in   {"reset":{"strategy":"avg","compat":"none","placement":"...","config":{<Pulsar key>:<value>},"seed":0}}
in   {"brokers":{<brokerId>:<LocalBrokerData>},"bundles":{<bundle>:<BundleData>},"recent":[<bundle>],"now":<ms>,
      "capacity":{<broker pattern>:{"nic_gbps":10}},
      "policies":{"isolation":{<name>:<NamespaceIsolationData>},"anti_affinity":{<namespace>:<group>},
                  "failure_domains":{<domain>:[<brokerId>]}}}
in   {"brokers":{<brokerId>:<BrokerLoadData>},"top_bundles":{<brokerId>:[{"bundleName":..,"stats":..}]},
      "missing":[<brokerId>],"recent":[<bundle>],"recent_brokers":{<brokerId>:<ms>},"now":<ms>}      (transfer)
out  {"unload":{<brokerId>:[<bundle>]},"to":{<bundle>:<brokerId>},"verdict":{...},"refused":[...],"plan_hash":"..."}
in   {"bench":N}
out  {"bench":N,"decode_ms_median":..,"plan_ms_median":..}
out  {"error":{"line":n,"field":"reset.config.x","reason":"..."}}
```

A reset prints nothing and starts with empty memory. Without one, `avg` runs with its defaults. After a refused reset
nothing is decided until the next one. `config` takes Pulsar's keys and units. An unknown key is an error; a known key
that no strategy reads is ignored. A bad line returns an error. The exit code is 1 if there were only errors, else 0.

Records are those of the brokers' znodes and topics. Of `LocalBrokerData` these are used: `cpu`, `directMemory`,
`bandwidthIn`, `bandwidthOut` (`usage`, `limit`), the four `msg...` sums, `bundles`, `lastUpdate`, and `lastStats` with
each bundle's present traffic (without it a bundle is idle in the corrected forms).

With `compat` `"4.0"` or `"4.2"` (a string) the result is that of Pulsar's own class, without guard and policies, for
any threshold. A bundle that `bundles` does not contain is not a candidate. `to` contains the destinations of AvgShedder
and TransferShedder, and others only if the reset contains a `placement`. The default strategy is then `threshold`.

`bench` repeats the last turn N times, with decoding. Memory advances as in any turn.
"""


def cli_page() -> str:
    """Return the page."""
    root: Any = typer.main.get_command(make_app(lambda: cast(Wiring, None), commands()))
    lines = ["# Command line", "", f"<!-- {NOTE} -->", "", _INTRO, "", f"{EPILOG}.", ""]
    tops = root.commands
    kinds = (
        ("A command that asks a sidecar has these; one that asks once lacks `--watch`:", tops["brokers"], _SHARED),
        ("Commands that change something have some of these:", tops["drain"], _OF_CHANGES),
        ("Commands that read a period have these:", tops["verdicts"], _OF_PERIODS),
    )
    lines += ["## Common options", ""]
    common: dict[str, Any] = {}
    for text, command, names in kinds:
        options = {item.name: item for item in command.params if item.name in names}
        lines += [text, "", *(_item(_names(item), item) for item in options.values()), ""]
        common |= options
    panel = ""
    for name, top in tops.items():
        if top.rich_help_panel != panel:
            panel = top.rich_help_panel
            lines += [f"## {panel}", ""]
        for path, command in _commands({name: top}, "bundlekeel"):
            lines += _command(path, command, common)
            if examples := EXAMPLES.get(path.removeprefix("bundlekeel "), ()):
                lines += ["```", *(f"bundlekeel {line}" for line in examples), "```", ""]
    lines += [_DECIDE, *_notes(), "", *_recalibrate()]
    return "\n".join(lines).rstrip() + "\n"


def _recalibrate() -> list[str]:
    """Return the help of the other program, which needs pyspark only when it runs."""
    recalibrate = recalibrate_parser()
    recalibrate.formatter_class = partial(RawDescriptionHelpFormatter, width=100)
    return [
        *("## `bundlekeel-recalibrate`", ""),
        "The nightly job, a program of its own: [how to run it](../operations/recalibrate.md).",
        *("", "```", recalibrate.format_help().rstrip(), "```"),
    ]


def _commands(commands: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for name, command in commands.items():
        here = f"{path} {name}"
        if getattr(command, "commands", None):
            if command.callback is not None and command.params:
                yield here, command
            yield from _commands(command.commands, here)
        else:
            yield here, command


def _command(path: str, command: Any, common: Mapping[str, Any]) -> list[str]:
    """Return the section of a command. `common`: options of several commands, explained once."""
    arguments = [item for item in command.params if item.param_type_name == "argument"]
    usage = " ".join([path, *(_usage(item) for item in arguments)])
    lines = [f"### `{usage}`", "", re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.cleandoc(command.help or "")), ""]
    options = [item for item in command.params if item.param_type_name == "option" and not item.hidden]
    names = {item.name for item in options}
    asks = "url" in names
    own = [item for item in options if item.name != "help" and not (asks and item.name in _SHARED)]
    explained = [item for item in own if item.name in common and _meaning(item) == _meaning(common[item.name])]
    body = [_item(f"`{_usage(item)}`", item) for item in arguments]
    body += [_item(_names(item), item) for item in own if item not in explained]
    also = [f"`{item.opts[0]}`{' (required)' if item.required else ''}" for item in explained]
    also += [_COMMON if "watching" in names else f"{_COMMON} without `--watch`"] if asks else []
    return [*lines, *([*body, ""] if body else []), *([f"Also: {', '.join(also)}.", ""] if also else [])]


def _meaning(option: Any) -> tuple[str, str]:
    """Return the default, and the help without the condition under which the option is required."""
    return _default(option), str(option.help).rstrip(".").partition("; ")[0]


def _usage(argument: Any) -> str:
    name = str(argument.name).upper()
    return name if argument.required else f"[{name}]"


def _names(option: Any) -> str:
    return ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))


def _item(name: str, item: Any) -> str:
    help_text, words = getattr(item, "help", None) or "", _choices(item)
    meaning = help_text if all(word in help_text for word in words) else f"{help_text} ({', '.join(words)})"
    if getattr(item, "envvar", None):
        meaning += f" `{item.envvar}`"
    plain = _default(item)
    needed = item.required and item.param_type_name == "option"
    return f"- {name}: {meaning.strip()}{' Required.' if needed else f' Default: {plain}.' if plain else ''}"


def _default(item: Any) -> str:
    value = item.default
    return "" if value in (None, False, "", ()) or callable(value) else str(getattr(value, "value", value))


def _choices(item: Any) -> list[str]:
    """Return the allowed values of an option, from an enum or a literal type."""
    annotation = getattr(getattr(item, "type_descriptor", None), "annotation", None)
    kinds = [annotation, *get_args(annotation)]
    words = [word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
    enums = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Enum)]
    return [*words, *(str(choice.value) for kind in enums for choice in kind)]


def _notes() -> list[str]:
    """Return the rules in the header of the module that implements them."""
    return (inspect.getdoc(decide) or "").split("\n", 2)[2].splitlines()
