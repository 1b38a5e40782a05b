"""Generate docs/reference/cli.md from the commands."""

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
from dev.markdown import fill

_SHARED = ("output", "watching", "interval", "config", "socket", "url", "token_file", "tls_ca", "tls_cert", "tls_key")
_OF_CHANGES = ("reason", "by", "yes", "wait", "within")
_OF_PERIODS = ("since", "until")
_COMMON = "[common options](#common-options)"


def cli_page() -> str:
    """Return the text of docs/reference/cli.md."""
    root: Any = typer.main.get_command(make_app(lambda: cast(Wiring, None), commands()))
    tops = root.commands
    kinds = (
        ("A command that asks a sidecar has these; one that asks once lacks `--watch`:", tops["brokers"], _SHARED),
        ("Commands that change something have some of these:", tops["drain"], _OF_CHANGES),
        ("Commands that read a period have these:", tops["verdicts"], _OF_PERIODS),
    )
    lines = ["## Common options", ""]
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
    recalibrate = recalibrate_parser()
    recalibrate.formatter_class = partial(RawDescriptionHelpFormatter, width=100)
    return fill(
        "cli.md",
        note=NOTE,
        epilog=EPILOG,
        commands="\n".join(lines),
        # The rules in the header of the module that implements them.
        decide_rules=(inspect.getdoc(decide) or "").split("\n", 2)[2],
        recalibrate=recalibrate.format_help().rstrip(),
    )


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
    """Return the lines about a command. `common`: options of several commands, which the page explains only once."""
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
    """Return an option's default, and its help without the part after "; ", which says when the option is required."""
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
    annotation = getattr(getattr(item, "type_descriptor", None), "annotation", None)
    kinds = [annotation, *get_args(annotation)]
    words = [word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
    enums = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Enum)]
    return [*words, *(str(choice.value) for kind in enums for choice in kind)]
