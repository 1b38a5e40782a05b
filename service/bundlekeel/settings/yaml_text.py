"""Strict YAML: keys are unique strings and have line numbers; errors name line and column."""

from __future__ import annotations

from typing import Any, Final

import yaml

from bundlekeel.settings.problems import ConfigErrors, problem

# Limit with all aliases written out: with aliases, ten lines can stand for more values than fit in memory.
MAX_VALUES: Final = 100_000
_KINDS: Final = {list: "a list", str: "a text", int: "a number", float: "a number", bool: "true or false"}
# Hints at usual mistakes, by a part of the parser's message that shows the mistake.
_HINTS: Final = {
    "alias": ' (put * in quotes: "*")',
    r"'\t'": " (use spaces instead of tabs)",
    "expected ':'": " (write a space after each colon, also in the line before)",
    "mapping values": " (here or in the line before: write a space after each colon, indent all keys of a section "
    "alike, and quote values that contain a colon)",
}


class LinedKey(str):
    """A key of a mapping, with its line number in the file."""

    __slots__ = ("line",)
    line: int


class _Loader(yaml.SafeLoader):
    """The safe loader with `_construct_mapping` for mappings."""


def _construct_mapping(loader: _Loader, node: yaml.MappingNode) -> dict[str, Any]:
    mapping: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key, fault = loader.construct_object(key_node, deep=True), ""
        if not isinstance(key, str):
            fault = f"the key {key!r} is not a text; put it in quotes"
        elif key in mapping:
            fault = f"the key {key!r} is given twice"
        if fault:
            raise yaml.constructor.ConstructorError(None, None, fault, key_node.start_mark)
        lined = LinedKey(key)
        lined.line = key_node.start_mark.line + 1
        mapping[lined] = loader.construct_object(value_node, deep=True)
    return mapping


_Loader.add_constructor("tag:yaml.org,2002:map", _construct_mapping)


def read_mapping(text: str, *, origin: str) -> dict[str, Any]:
    """Parse a text whose top level is a mapping, or which is empty. Raises ConfigErrors if it is neither."""
    try:
        value = yaml.load(text, Loader=_Loader)  # noqa: S506 - derived from SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        hints = [hint for part, hint in _HINTS.items() if part in f"{error.context} {error.problem}"]
        raise _refuse(f"{place}{error.problem or error.context}{''.join(hints)}", origin) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _refuse(f"not YAML: {error}", origin) from None
    if value is None:
        return {}
    if count_values(value) > MAX_VALUES:
        raise _refuse(f"holds more than {MAX_VALUES:,} values once each alias (`*name`) is written out", origin)
    if not isinstance(value, dict):
        raise _refuse(f"holds {_KINDS.get(type(value), 'something else')} where `key: value` is expected", origin)
    return value


def count_values(value: object, counts: dict[int, int] | None = None) -> int:
    """Return the number of values if each alias is written out. `counts`: cached counts by `id` of mapping or list."""
    counts = {} if counts is None else counts
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in counts:
        items = value.values() if isinstance(value, dict) else value
        counts[id(value)] = 1 + sum(count_values(item, counts) for item in items)
    return counts[id(value)]


def _refuse(what: str, origin: str) -> ConfigErrors:
    return ConfigErrors([problem(what, path=(), origin=origin)])
