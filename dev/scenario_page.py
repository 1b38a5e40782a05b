"""docs/reference/scenarios.md: the scenarios that come with Bundlekeel, made from their files."""

from __future__ import annotations

from dataclasses import fields

from bundlekeel.cli.offline.sim_files import suite
from bundlekeel.sim.scenario import Expect, Scenario
from dev import NOTE

_INTRO = """\
`bundlekeel simulate NAME` runs one of them, `bundlekeel simulate --suite` all of them; what the simulator models and
how to write a scenario: [simulator](../concepts/simulator.md). `pip364-` scenarios are those of the table of five
properties (`bundlekeel simulate --pair all`)."""


def scenarios_page() -> str:
    """The page."""
    lines = ["# Scenarios", "", f"<!-- {NOTE} -->", "", _INTRO, ""]
    for item in suite():
        lines += [f"## `{item.name}`", "", f"{item.title}. {item.about}".strip(), ""]
        lines += [f"{_size(item)}. Source: {item.source}.", "", f"Expected: {_expected(item.expect)}.", ""]
    return "\n".join(lines).rstrip() + "\n"


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
