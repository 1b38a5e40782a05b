"""YAML as settings need it: no key twice, keys are text, and messages say line and column."""

from __future__ import annotations

from typing import Any

import yaml

from bundlekeel.core.model.errors import ConfigError
from bundlekeel.settings.errors import ConfigErrors, problem


class _Loader(yaml.SafeLoader):
    """The safe loader, stricter on keys."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str):
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {key!r} is no text; put it in quotes", key_node.start_mark
            )
        if key in found:
            raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} is given twice", key_node.start_mark)
        found[key] = loader.construct_object(value_node, deep=True)
    return found


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


def read_mapping(text: str, *, origin: str) -> dict[str, Any]:
    """The mapping in `text`; an empty text is an empty one. Raises ConfigErrors."""
    try:
        value = yaml.load(text, Loader=_Loader)  # noqa: S506 - derived from SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise _refuse(f"{place}{error.problem or error.context}", origin) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _refuse(f"not YAML: {error}", origin) from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _refuse(f"holds a {type(value).__name__} instead of settings", origin)
    return value


def _refuse(what: str, origin: str) -> ConfigError:
    return ConfigErrors([problem(what, path=(), origin=origin)])
