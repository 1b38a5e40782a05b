"""Find, read and check scenario files: YAML with the fields of `simulator.scenario.Scenario`."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError

from bundlekeel.model.errors import ConfigError
from bundlekeel.model.text_format import suggest
from bundlekeel.settings.files import read_bounded
from bundlekeel.settings.problems import ConfigErrors
from bundlekeel.settings.schema import children
from bundlekeel.settings.yaml_text import read_mapping
from bundlekeel.simulator.check import check
from bundlekeel.simulator.scenario import Scenario

SUFFIX = ".yaml"
_VALUE_LIMIT = 60
# What an error message says is expected, by the prefix of pydantic's error type.
_KINDS = {
    "tuple": "a list",
    "dataclass": "a mapping of fields",
    "dict": "a mapping",
    "string": "a text",
    "int_": "a whole number",
    "float": "a number",
    "bool": "true or false",
}
_RANGE = re.compile(r"(\d{1,5})-(\d{1,5})")
_REQUIRED = tuple(one.name for one in fields(Scenario) if one.default is one.default_factory is MISSING)


def shipped() -> dict[str, str]:
    """Return the YAML text of every scenario in this package, by name in alphabetical order."""
    folder = resources.files("bundlekeel.simulator").joinpath("scenarios")
    texts = {
        item.name.removesuffix(SUFFIX): item.read_text(encoding="utf-8")
        for item in folder.iterdir()
        if item.name.endswith(SUFFIX)
    }
    return dict(sorted(texts.items()))


def shipped_text(name: str) -> str:
    """Return the YAML text of a shipped scenario. Raises ConfigError, with similar names, if it is unknown."""
    texts = shipped()
    if name in texts:
        return texts[name]
    near = [other for other in texts if name in other] or difflib.get_close_matches(name, texts, n=1)
    hint = f"; did you mean {' or '.join(near[:2])}?" if near else ""
    raise ConfigError(
        f"no scenario {name!r}{hint}",
        field="scenario",
        value=name,
        allowed="one of `bundlekeel simulate --list`, or the path of a file",
    )


@cache
def suite() -> tuple[Scenario, ...]:
    """Return all shipped scenarios in the order of their case numbers; scenarios without a number are last."""
    scenarios = [parse(text, origin=f"{name}{SUFFIX}") for name, text in shipped().items()]
    return tuple(sorted(scenarios, key=lambda item: (item.case or 1000, item.name)))


def load(source: str) -> Scenario:
    """Return the scenario `source`: a shipped one by name, or a file by path. Raises ConfigError if it is invalid."""
    path = Path(source)
    # `Path.exists` would raise OSError for a name of more than 255 characters.
    if source in shipped() or not (os.path.exists(path) or "/" in source or source.endswith((SUFFIX, ".yml"))):  # noqa: PTH110
        return parse(shipped_text(source), origin=f"{source}{SUFFIX}")
    try:
        text = read_bounded(path).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"{source}: cannot be read: {reason}", field="scenario", value=source) from None
    return parse(text, origin=source)


def parse(text: str, *, origin: str) -> Scenario:
    """Parse a scenario from YAML. `origin`: name of the file in messages.

    Raises ConfigErrors with all violations of the schema, or ConfigError with the first invalid value.
    """
    tree = read_mapping(text, origin=origin)
    if tree.keys().isdisjoint(_REQUIRED):
        kind = "a settings file, not a scenario" if {*children(())}.intersection(tree) else "not a scenario"
        required = f"a scenario has {', '.join(_REQUIRED[:-1])} and {_REQUIRED[-1]}"
        hint = "`bundlekeel simulate --show 03-step` prints one"
        raise ConfigError(f"{origin}: this is {kind}; {required}: {hint}", field="scenario", value=origin)
    try:
        scenario = _schema().validate_python(_expand_ranges(tree))
    except ValidationError as error:
        errors = error.errors(include_url=False)
        problems = [
            ConfigError(f"{origin}: {_problem_text(item)}", field=_field(item), value=item["input"]) for item in errors
        ]
        raise ConfigErrors(problems) from None
    try:
        check(scenario)
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error}", field=error.field, value=error.value, allowed=error.allowed) from None
    return scenario


@cache
def _schema() -> TypeAdapter[Scenario]:
    return TypeAdapter(Scenario)


def _expand_ranges(value: Any) -> Any:
    """Expand ranges in lists of brokers: [0-3, 7] is [0, 1, 2, 3, 7]."""
    if isinstance(value, dict):
        return {key: _expand_ranges(inner) for key, inner in value.items()}
    if not isinstance(value, list):
        return value
    items: list[Any] = []
    for item in value:
        match = _RANGE.fullmatch(item) if isinstance(item, str) else None
        items += range(int(match[1]), int(match[2]) + 1) if match else [_expand_ranges(item)]
    return items


def _problem_text(item: Any) -> str:
    field, value = _field(item), repr(item["input"])
    if item["type"] in ("missing", "missing_argument"):
        return f"{field} is missing"
    if item["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        return f"{field}: unknown field{suggest(item['loc'][-1], _fields_at(item['loc'][:-1]))}"
    text = value if len(value) <= _VALUE_LIMIT else f"{value[: _VALUE_LIMIT - 3]}..."
    kind = next((words for word, words in _KINDS.items() if item["type"].startswith(word)), "")
    what = f"expected {kind}" if kind else f"{item['msg'][:1].lower()}{item['msg'][1:]}"
    return f"{field} = {text}: {what}"


def _fields_at(place: Sequence[str | int]) -> list[str]:
    kind: Any = Scenario
    for part in place:
        if isinstance(part, str):
            kind = get_type_hints(kind)[part]
        while not is_dataclass(kind):
            kind = get_args(kind)[0]
    return [one.name for one in fields(kind)]


def _field(item: Any) -> str:
    return ".".join(str(part) for part in item["loc"])
