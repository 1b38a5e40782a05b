"""Schema of the settings: one row per key, derived from the model. It is used for messages and docs."""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from bundlekeel.model.parameter_table import ParameterSpec
from bundlekeel.model.parameters import PARAMETERS, choices, defaults, number_words
from bundlekeel.model.text_format import LIMITS, format_duration, limits_text
from bundlekeel.settings.model import CapacitySettings, Settings
from bundlekeel.settings.parameters import OR_DURATION, takes_durations
from bundlekeel.settings.types import DURATION_WORDS, AllowedWords

HIDDEN: Final = "**********"
# Placeholder of the pattern in keys such as `capacity.<pattern>.cores`.
PATTERN: Final = "<pattern>"
_MAPPINGS: Final = ("parameters", "capacity")
SECRET_WORDS: Final = ("token", "secret", "password", "passwd", "credential")


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingRow:
    """One settings key: its default (a Python value), allowed values, and purpose."""

    key: str
    default: object
    allowed: str
    why: str
    duration: bool = False
    secret: bool = False
    strict_number: bool = False


@cache
def rows() -> tuple[SettingRow, ...]:
    """Return all keys in the order of the model, with a placeholder for the patterns of `capacity`."""
    return tuple(_rows(Settings, ""))


@cache
def by_key() -> dict[str, SettingRow]:
    """Return the rows of all settings by dotted key."""
    return {row.key: row for row in rows()}


def row_of(path: tuple[str, ...]) -> SettingRow | None:
    """Return the row of the key at `path`, which may be in an item of a list or mapping (`windows.0.minutes`)."""
    model, rest = _item_at(path)
    found = by_key() if model is None else {row.key: row for row in _rows(model, "")}
    return found.get(".".join(rest))


def children(path: tuple[str, ...]) -> list[str]:
    """Return the keys directly below `path` (empty: top level)."""
    item, rest = _item_at(path)
    model: type[BaseModel] = item or Settings
    for part in rest:
        inner = _section(model.model_fields[part]) if part in model.model_fields else None
        if inner is None:
            return []
        model = inner
    return list(model.model_fields)


def _item_at(path: tuple[str, ...]) -> tuple[type[BaseModel] | None, tuple[str, ...]]:
    """Return the model of the list or mapping item that `path` enters, and the rest of `path`; None: not in an item."""
    model: type[BaseModel] = Settings
    for depth, part in enumerate(path[:-1], start=1):
        if part not in model.model_fields:
            break
        annotation = model.model_fields[part].annotation
        inner = [kind for kind in get_args(annotation) if isinstance(kind, type) and issubclass(kind, BaseModel)]
        if inner and get_origin(annotation) in (tuple, dict):
            return inner[0], path[depth + 1 :]
        model = _section(model.model_fields[part]) or model
    return None, path


def is_section(name: str) -> bool:
    """Return whether a top-level key contains further keys."""
    return name in _MAPPINGS or bool(children((name,)))


def plain(value: object, row: SettingRow | None = None) -> Any:
    """Return a value in the form of the settings file: durations with unit, paths as string, secrets hidden."""
    if value is None:
        return None
    if isinstance(value, SecretStr) or (row is not None and row.secret):
        return HIDDEN
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple):
        return [item.model_dump(mode="json") if isinstance(item, BaseModel) else item for item in value]
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if row is not None and row.duration and isinstance(value, int | float):
        return format_duration(value)
    return value


def is_secret(path: tuple[str, ...]) -> bool:
    """Return whether a value must be hidden, also for unknown keys, which may be misspelled names of secrets."""
    while path and path[-1].isdecimal():
        path = path[:-1]  # check the list: all items of a secret list are secret
    if path == ("notify", "webhooks"):
        return True  # the value contains secret addresses
    row = row_of(path) if path else None
    if row is not None:
        return row.secret
    guarded = path[:1] in (("admin",), ("store",), ("notify",)) or path[:2] == ("api", "auth")
    return guarded or any(word in part.lower() for part in path for word in SECRET_WORDS)


def parameter_allowed(spec: ParameterSpec) -> str:
    """Return the allowed values of a parameter as text, in Bundlekeel's unit."""
    default = defaults()[spec.name]
    if spec.choices:
        return ", ".join(choices(spec.name))
    if isinstance(default, bool):
        return "true, false"
    if isinstance(default, tuple):
        return "list of names"
    return number_words(spec) + (OR_DURATION if takes_durations(spec) else "")


def pulsar_keys(key: str) -> tuple[str, ...]:
    """Return Pulsar's names for a settings key; empty except for parameters."""
    name = key.removeprefix("parameters.")
    return next((spec.pulsar_keys for spec in PARAMETERS if spec.name == name), ())


def _rows(model: type[BaseModel], prefix: str) -> Iterator[SettingRow]:
    for name, field in model.model_fields.items():
        key = prefix + name
        inner = _section(field)
        if inner is not None:
            yield from _rows(inner, f"{key}.")
            continue
        words = _allowed(field)
        yield SettingRow(
            key=key,
            default=field.get_default(call_default_factory=True),
            allowed=words,
            why=field.description or "",
            duration=DURATION_WORDS in field.metadata,
            secret=SecretStr in _options(field.annotation),
            strict_number=any(isinstance(mark, AllowedWords) and mark.strict_number for mark in field.metadata),
        )
        if key == "capacity":
            yield from _rows(CapacitySettings, f"capacity.{PATTERN}.")


def _section(field: FieldInfo) -> type[BaseModel] | None:
    annotation = field.annotation
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _options(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the annotation itself."""
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)


def _allowed(field: FieldInfo) -> str:
    options = _options(field.annotation)
    kinds = [_kind(option, field) for option in options if option is not type(None)]
    spell = format_duration if DURATION_WORDS in field.metadata else "{:.15g}".format
    limits = {name: getattr(item, name) for item in field.metadata for name in LIMITS if hasattr(item, name)}
    text = ", ".join(filter(None, (*kinds, limits_text(limits, spell))))
    null = type(None) in options and all(mark.null for mark in field.metadata if isinstance(mark, AllowedWords))
    return f"{text}, or null" if null else text


def _kind(option: Any, field: FieldInfo) -> str:
    marks = [*field.metadata]
    if get_origin(option) is Annotated:
        marks += get_args(option)[1:]
        option = get_args(option)[0]
    for mark in marks:
        if isinstance(mark, AllowedWords):
            return mark.allowed
    if get_origin(option) is Literal:
        return ", ".join(map(str, get_args(option)))
    names = {
        bool: "true, false",
        int: "whole number",
        float: "number",
        str: "text",
        SecretStr: "text (kept secret)",
        Path: "path",
    }
    return names.get(option) or ("list of texts" if get_origin(option) is tuple else "mapping, lines of `name: value`")
