"""Scenario files: finding, reading and checking them. YAML with the fields of `sim.scenario.Scenario`."""

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

from bundlekeel.core.model.errors import ConfigError
from bundlekeel.core.model.text_format import suggest
from bundlekeel.settings.files import read_bounded
from bundlekeel.settings.problems import ConfigErrors
from bundlekeel.settings.schema import children
from bundlekeel.settings.yaml_text import read_mapping
from bundlekeel.sim.check import check
from bundlekeel.sim.scenario import Scenario

SUFFIX = ".yaml"
_VALUE_LIMIT = 60
# By the beginning of pydantic's name for what is wrong.
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
    """The text of every scenario that comes with Bundlekeel, by name, in the order of the suite."""
    folder = resources.files("bundlekeel.sim").joinpath("scenarios")
    texts = {
        item.name.removesuffix(SUFFIX): item.read_text(encoding="utf-8")
        for item in folder.iterdir()
        if item.name.endswith(SUFFIX)
    }
    return dict(sorted(texts.items()))


def shipped_text(name: str) -> str:
    """The file of one of them. ConfigError names the nearest."""
    texts = shipped()
    if name in texts:
        return texts[name]
    near = [known for known in texts if name in known] or difflib.get_close_matches(name, texts, n=1)
    hint = f"; did you mean {' or '.join(near[:2])}?" if near else ""
    raise ConfigError(
        f"no scenario {name!r}{hint}",
        field="scenario",
        value=name,
        allowed="one of `bundlekeel simulate --list`, or the path of a file",
    )


@cache
def suite() -> tuple[Scenario, ...]:
    """All shipped scenarios, by case number, those without one last."""
    found = [parse(text, origin=f"{name}{SUFFIX}") for name, text in shipped().items()]
    return tuple(sorted(found, key=lambda item: (item.case or 1000, item.name)))


def load(given: str) -> Scenario:
    """A scenario by the name of a shipped one or by path. ConfigError says what is wrong and where."""
    path = Path(given)
    # Not `path.exists`, which raises OSError for a name of more than 255 letters.
    if given in shipped() or not (os.path.exists(path) or "/" in given or given.endswith((SUFFIX, ".yml"))):  # noqa: PTH110
        return parse(shipped_text(given), origin=f"{given}{SUFFIX}")
    try:
        text = read_bounded(path).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"{given}: cannot be read: {reason}", field="scenario", value=given) from None
    return parse(text, origin=given)


def parse(text: str, *, origin: str) -> Scenario:
    """A scenario from YAML. ConfigError with every problem of the schema, or the first one of its sense."""
    tree = read_mapping(text, origin=origin)
    if tree.keys().isdisjoint(_REQUIRED):
        kind = "a settings file, not a scenario" if {*children(())}.intersection(tree) else "not a scenario"
        which = f"a scenario has {', '.join(_REQUIRED[:-1])} and {_REQUIRED[-1]}"
        shown = "`bundlekeel simulate --show 03-step` prints one"
        raise ConfigError(f"{origin}: this is {kind}; {which}: {shown}", field="scenario", value=origin)
    try:
        made = _schema().validate_python(_expanded(tree))
    except ValidationError as error:
        wrong = error.errors(include_url=False)
        told = [ConfigError(f"{origin}: {_told(item)}", field=_field(item), value=item["input"]) for item in wrong]
        raise ConfigErrors(told) from None
    try:
        check(made)
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error}", field=error.field, value=error.value, allowed=error.allowed) from None
    return made


@cache
def _schema() -> TypeAdapter[Scenario]:
    return TypeAdapter(Scenario)


def _expanded(value: Any) -> Any:
    """Ranges in lists of brokers written out: [0-3, 7] is [0, 1, 2, 3, 7]."""
    if isinstance(value, dict):
        return {key: _expanded(inner) for key, inner in value.items()}
    if not isinstance(value, list):
        return value
    found: list[Any] = []
    for item in value:
        match = _RANGE.fullmatch(item) if isinstance(item, str) else None
        found += range(int(match[1]), int(match[2]) + 1) if match else [_expanded(item)]
    return found


def _told(item: Any) -> str:
    field, value = _field(item), repr(item["input"])
    if item["type"] in ("missing", "missing_argument"):
        return f"{field} is missing"
    if item["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        return f"{field}: unknown field{suggest(item['loc'][-1], _fields_at(item['loc'][:-1]))}"
    shown = value if len(value) <= _VALUE_LIMIT else f"{value[: _VALUE_LIMIT - 3]}..."
    kind = next((words for word, words in _KINDS.items() if item["type"].startswith(word)), "")
    what = f"expected {kind}" if kind else f"{item['msg'][:1].lower()}{item['msg'][1:]}"
    return f"{field} = {shown}: {what}"


def _fields_at(place: Sequence[str | int]) -> list[str]:
    """The fields that a mapping at this place may have."""
    kind: Any = Scenario
    for part in place:
        if isinstance(part, str):
            kind = get_type_hints(kind)[part]
        while not is_dataclass(kind):
            kind = get_args(kind)[0]
    return [one.name for one in fields(kind)]


def _field(item: Any) -> str:
    return ".".join(str(part) for part in item["loc"])
