"""The scenarios that come with Bundlekeel (docs/reference/scenarios.md, made from their files), and the format of one
(docs/reference/scenario-format.md, made from `sim/scenario.py`)."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import fields

from bundlekeel.cli.offline.sim_files import suite
from bundlekeel.cli.offline.simulate_report import COLUMNS
from bundlekeel.sim import scenario
from bundlekeel.sim.scenario import EVENTS, Expect, Scenario
from dev import NOTE
from dev.markdown import table

_INTRO = """\
`bundlekeel simulate NAME` runs one of them, `bundlekeel simulate --suite` all of them; what the simulator models and
how to write a scenario: [simulator](../concepts/simulator.md). `pip364-` scenarios are those of the table of five
properties (`bundlekeel simulate --pair all`). `bundlekeel simulate --show NAME` prints the file, to begin one of your
own with; [its format](scenario-format.md)."""

_FORMAT = """\
A scenario is a YAML file. Times are minutes unless the field says otherwise, loads are shares of a broker of capacity
1, and lists of brokers know ranges (`[0-3, 7]`). A field that is not known, a wrong kind and a value out of range are
refused with their place. How to begin: [simulator](../concepts/simulator.md#writing-a-scenario)."""

_WORDS = {"int": "whole number", "float": "number", "str": "text", "bool": "true or false"}


def scenarios_page() -> str:
    """The page."""
    lines = ["# Scenarios", "", f"<!-- {NOTE} -->", "", _INTRO, ""]
    lines += ["## Columns of the answer", "", *table(["column", "what"], [[c.title, c.why] for c in COLUMNS]), ""]
    for item in suite():
        lines += [f"## `{item.name}`", "", f"{item.title}. {item.about}".strip(), ""]
        lines += [f"{_size(item)}. Source: {item.source}.", "", f"Expected: {_expected(item.expect)}.", ""]
    return "\n".join(lines).rstrip() + "\n"


def format_page() -> str:
    """The page of the format: `Scenario` first, then what it is made of, in the order of the file."""
    tree = ast.parse(inspect.getsource(scenario))
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    lines = ["# Format of scenarios", "", f"<!-- {NOTE} -->", "", _FORMAT, ""]
    for name in sorted(classes, key=lambda name: name != "Scenario"):
        rows = list(_fields(classes[name], classes))
        lines += [f"## {name}", "", str(ast.get_docstring(classes[name])), ""]
        lines += [*table(["field", "what", "default", "meaning"], rows), ""]
        if name == "Event":
            lines += [*table(["`do`", "what happens"], [[f"`{kind}`", text] for kind, text in EVENTS.items()]), ""]
    return "\n".join(lines)


def _fields(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> Iterator[list[str]]:
    """Name, kind, default and meaning: `name: Annotated[kind, "meaning"] = default`."""
    for item in node.body:
        match item:
            case ast.AnnAssign(ast.Name(name), ast.Subscript(_, ast.Tuple([kind, ast.Constant(str(meaning))])), value):
                default = "required" if value is None else _default(ast.unparse(value))
                yield [f"`{name}`", _kind(ast.unparse(kind), classes), default, meaning]


def _default(text: str) -> str:
    return "" if text in ("None", "()", "''") or text.startswith("field(") else f"`{text.strip(chr(39)).lower()}`"


def _kind(text: str, classes: dict[str, ast.ClassDef]) -> str:
    """In a YAML file's words, with a link to what has fields of its own."""
    text = text.removesuffix(" | None")
    if found := re.fullmatch(r"tuple\[(.+), \.\.\.\]", text):
        return f"list of: {_kind(found[1], classes)}"
    if found := re.fullmatch(r"tuple\[(.+)\]", text):
        return f"[{', '.join(_kind(part, classes) for part in found[1].split(', '))}]"
    if text in classes:
        return f"[{text}](#{text.lower()})"
    named = getattr(scenario, text, None)
    if words := getattr(named, "__args__", None) or re.findall(r"'(\w+)'", text):
        return ", ".join(f"`{word}`" for word in words if word)
    return "mapping" if text.startswith("Mapping") else _WORDS[text]


def _size(item: Scenario) -> str:
    bundles = sum(tenant.bundles for tenant in item.tenants)
    events = f", {len(item.events)} events" if len(item.events) > 1 else ", 1 event" if item.events else ""
    return f"{item.broker_count} brokers, {bundles} bundles, {item.minutes:g} minutes{events}"


def _expected(expect: Expect) -> str:
    blank = Expect()
    given = [(field.name, getattr(expect, field.name)) for field in fields(Expect)]
    return ", ".join(f"`{name}` {_value(value)}" for name, value in given if value != getattr(blank, name))


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return " ".join(str(part) if not hasattr(part, "broker") else f"broker {part.broker}" for part in value)
    return f"{value:g}" if isinstance(value, float | int) else str(value)
