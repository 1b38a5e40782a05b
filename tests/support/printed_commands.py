"""The `bundlekeel ...` commands that pages and notes print, and a parse of each by the product's own command line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import typer
from typer.exceptions import TyperException

from bundlekeel.cli.wiring import Wiring
from tests.support.apps import make_app

ROOT = Path(__file__).resolve().parents[2]
# This page has the usage line of each command, which the product prints.
MADE = {"docs/reference/cli.md"}
_FENCE = re.compile(r"^ *```[^\n]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`]+)`")
# `helm install bundlekeel ...` and `systemctl ... bundlekeel bundlekeel-deadman` name a release and units.
_COMMAND = re.compile(r"(?:^|[\s/])(?<!install )(?<!upgrade )(?<!--now )bundlekeel (?!bundlekeel)([a-z]+\b(?![:/]).*)")
# What follows a command in its line: a comment, its explanation in a column, the next command.
_END = re.compile(r"\s{2,}|\s#|\s[&|>]|;")


def pages() -> list[str]:
    """Every page and note, by its path below the root."""
    paths = [ROOT / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md", "docker-compose.yml")]
    paths += ROOT.glob("docs/**/*.md")
    paths += (path for end in ("md", "txt", "yaml", "yml") for path in ROOT.glob(f"deploy/**/*.{end}"))
    names = {path.relative_to(ROOT).as_posix() for path in paths}
    return sorted(name for name in names - MADE if "/tests/" not in name)


def commands(page: str) -> Iterator[tuple[str, bool]]:
    """Yield each command after `bundlekeel` on a page, and whether a reader is to type it exactly: it is in a block or
    a runbook. In other texts code such as `bundlekeel takeover` may also be the name of a command.
    """
    text = (ROOT / page).read_text(encoding="utf-8")
    typed = "/runbooks/" in page
    if page.endswith(".md"):
        blocks, rest = _FENCE.findall(text), _FENCE.sub("", text)
    else:
        blocks, rest = [re.sub(r"^\s*# ?", "", _CODE.sub("", text), flags=re.MULTILINE)], text
    for block in blocks:
        for line in re.sub(r"\\\n\s*", "", block).splitlines():
            yield from ((command, True) for command in _commands(line.strip()))
    for code in _CODE.findall(" ".join(rest.split())):
        yield from ((command, typed) for command in _commands(code))


def _commands(line: str) -> Iterator[str]:
    match = _COMMAND.search(line)
    if match is not None:
        yield _END.split(match[1], maxsplit=1)[0].replace("[", "").replace("]", "")


def parsed(words: list[str]) -> Any:
    """The command that these words call. An exception in the command line's own words for anything it would refuse."""
    command: Any = typer.main.get_command(make_app(lambda: cast(Wiring, None)))
    context = command.make_context("bundlekeel", list(words))
    while hasattr(command, "resolve_command") and (rest := [*context._protected_args, *context.args]):
        name, command, left = command.resolve_command(context, rest)
        context = command.make_context(name, left, parent=context)
    return command


def refusal(command: str, *, typed: bool) -> str:
    """Return the error of the command line, or "". A bare name need only be a command, unless it is typed."""
    words = shlex.split(command)
    if not typed and all(re.fullmatch("[a-z]+", word) for word in words) and named(words):
        return ""
    try:
        problem = parsed(words)
    except TyperException as error:
        return str(error)
    options = {option for item in problem.params for option in item.opts}
    acts = "--yes" in words or ("--dry-run" in options and "--dry-run" not in words)
    needs = acts and "--reason" in options and "--reason" not in words
    return "Missing option '--reason': it is required of what acts" if needs else ""


def named(words: list[str]) -> bool:
    """Whether these words are the name of a command or of a group of them."""
    command: Any = typer.main.get_command(make_app(lambda: cast(Wiring, None)))
    for word in words:
        command = getattr(command, "commands", {}).get(word)
    return command is not None
