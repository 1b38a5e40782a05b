"""Generate two pages: docs/reference/scenarios.md from the scenario files of Bundlekeel, and
docs/reference/scenario-format.md from `simulator/scenario.py`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from bundlekeel.simulator import scenario
from bundlekeel.simulator.scenario import EVENTS, Event, Scenario
from bundlekeel.simulator.sim_files import suite
from bundlekeel.simulator.simulate_report import COLUMNS
from dev import NOTE
from dev.markdown import table

_INTRO = """\
`bundlekeel simulate NAME` runs one of them, `--suite` all, and `--pair all` the table of PIP-364's five properties
(`pip364-`). `bundlekeel simulate --show NAME` prints the file with its expectations, as a template for your own:
[format](scenario-format.md), [how to](../operations/simulate.md). Missing numbers are situations that this virtual
cluster does not model, such as an unload that hangs or a leader that dies: see the [fault tests](failure-tests.md)."""

_FORMAT = """\
A scenario is a YAML file. Times are minutes unless the field names another unit. Loads are shares of a broker of
capacity 1. Lists of brokers can contain ranges (`[0-3, 7]`). A wrong field or value is refused with its place. To
start: [write a scenario](../operations/simulate.md#write-a-scenario)."""

_WORDS = {int: "whole number", float: "number", str: "text", bool: "true or false"}


def scenarios_page() -> str:
    """Return the text of docs/reference/scenarios.md."""
    lines = ["# Scenarios", "", f"<!-- {NOTE} -->", "", _INTRO, ""]
    lines += ["## Columns of the answer", "", *table(["column", "what"], [[c.title, c.why] for c in COLUMNS]), ""]
    for item in suite():
        lines += [f"## `{item.name}`", "", f"{item.title}. {item.about}".strip(), ""]
        lines += [f"{_size(item)}. Source: {item.source}.", ""]
    return "\n".join(lines).rstrip() + "\n"


def format_page() -> str:
    """Return the text of docs/reference/scenario-format.md: the fields of `Scenario`, then those of the types in it."""
    classes = [item for item in vars(scenario).values() if isinstance(item, type) and is_dataclass(item)]
    lines = ["# Format of scenarios", "", f"<!-- {NOTE} -->", "", _FORMAT, ""]
    for item in sorted(classes, key=lambda item: item is not Scenario):
        lines += [f"## {item.__name__}", "", str(inspect.getdoc(item)), ""]
        lines += [*table(["field", "what", "default", "meaning"], _fields(item)), ""]
        if item is Event:
            lines += [*table(["`do`", "what happens"], [[f"`{kind}`", text] for kind, text in EVENTS.items()]), ""]
    return "\n".join(lines)


def _fields(item: Any) -> Iterator[list[str]]:
    hints = get_type_hints(item, include_extras=True)
    for one in fields(item):
        kind, meaning = get_args(hints[one.name])
        needed = one.default is MISSING and one.default_factory is MISSING
        yield [f"`{one.name}`", _kind(kind), "required" if needed else _default(one.default), meaning]


def _default(value: object) -> str:
    return "" if value in (None, (), "", MISSING) else f"`{str(value).lower()}`"


def _kind(kind: Any) -> str:
    origin, of = get_origin(kind), [part for part in get_args(kind) if part is not type(None)]
    if origin is Literal:
        return ", ".join(f"`{word}`" for word in of if word)
    if origin is tuple:
        return f"list of: {_kind(of[0])}" if of[1:] == [...] else f"[{', '.join(map(_kind, of))}]"
    if of:
        return "mapping" if origin is Mapping else _kind(of[0])
    return _WORDS.get(kind) or f"[{kind.__name__}](#{kind.__name__.lower()})"


def _size(item: Scenario) -> str:
    events = f", {len(item.events)} events" if len(item.events) > 1 else ", 1 event" if item.events else ""
    return f"{item.broker_count} brokers, {item.bundle_count} bundles, {item.minutes:g} minutes{events}"
