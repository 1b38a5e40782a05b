"""Problems of the settings. Each message names the place, the key, the value, what is wrong, and what is allowed."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from pydantic import ValidationError

from bundlekeel.model.errors import ConfigError
from bundlekeel.model.parameters import BY_NAME, BY_PULSAR_KEY
from bundlekeel.model.text_format import format_duration, suggest
from bundlekeel.settings.parameters import remedy
from bundlekeel.settings.schema import HIDDEN, by_key, children, is_secret, row_of, rows
from bundlekeel.settings.types import InvalidSetting

KeyPath = tuple[str, ...]

AT_THE_TOP: Final = "; it belongs at the top"
_VALUE_LIMIT: Final = 80
_SECTION: Final = "this is a section: give its keys"
_YAML_WORDS: Final = "; YAML reads off, no, on and yes without quotes as false and true"


class ConfigErrors(ConfigError):
    """All problems of the settings. Problems in the settings file are in the order of its lines.

    `field`, `value`, `allowed` and `origin` are those of the first problem.
    """

    def __init__(self, problems: Sequence[ConfigError]) -> None:
        problems = sorted(problems, key=_line)
        first = problems[0]
        text = "\n".join(map(str, problems))
        super().__init__(text, field=first.field, value=first.value, allowed=first.allowed, origin=first.origin)
        self.problems = tuple(problems)


def _line(error: ConfigError) -> float:
    """Return the line of the settings file that a problem names; infinity: it names no line."""
    _, _, line = error.origin.removeprefix("file:").rpartition(":")
    return float(line) if error.origin.startswith("file:") and line.isdecimal() else math.inf


def problem(what: str, *, path: KeyPath, origin: str, value: object = None, allowed: str = "") -> ConfigError:
    """Return a problem as one line: `file:config.yaml:3: cycle.interval = "x": not a duration (allowed: ...)`."""
    field = ".".join(path)
    secret = origin.startswith("secret:") or is_secret(path)
    shown = HIDDEN if value is not None and secret else value
    assigned = "" if value is None or isinstance(value, dict) else f" = {spelled(shown)}"
    where = f"{origin}: " if origin else ""
    tail = f" (allowed: {allowed})" if allowed else ""
    key = f"{field}{assigned}: " if field else ""
    return ConfigError(f"{where}{key}{what}{tail}", field=field, value=shown, allowed=allowed, origin=origin)


def spelled(value: object) -> str:
    """Return a value as messages show it, cut to 80 characters: true and false as in YAML."""
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= _VALUE_LIMIT else f"{text[: _VALUE_LIMIT - 3]}..."


def from_pydantic(error: ValidationError, origins: Mapping[KeyPath, str], below: KeyPath = ()) -> list[ConfigError]:
    """Return pydantic's errors as problems. `below`: the path of the validated section in the settings."""
    items: list[Any] = list(error.errors(include_url=False))
    return [_translate({**item, "loc": (*below, *item["loc"])}, origins) for item in items]


def origin_of(path: KeyPath, origins: Mapping[KeyPath, str]) -> str:
    """Return where a key is written. If no source sets it, use a section around the key, or a key below it.

    For a key that is missing in the settings file, the result is the file without a line number.
    """
    if path in origins:
        return origins[path]
    around = [origins[path[:n]] for n in range(len(path) - 1, 0, -1) if path[:n] in origins]
    below = [origin for key, origin in origins.items() if key[: len(path)] == path]
    sources = set(map(without_line, origins.values()))
    return next(iter((*around, *below, *(sources if len(sources) == 1 else ()))), "")


def without_line(origin: str) -> str:
    """Return `file:PATH` for `file:PATH:LINE`, any other origin unchanged."""
    return re.sub(r"^(file:.*):\d+$", r"\1", origin)


def _translate(item: Any, origins: Mapping[KeyPath, str]) -> ConfigError:
    path = tuple(str(part) for part in item["loc"])
    value: object = item["input"]
    allowed: str | None = ""
    refusal = item.get("ctx", {}).get("error")
    if isinstance(refusal, InvalidSetting):
        what, allowed = str(refusal), refusal.allowed
        if refusal.hidden:
            value = HIDDEN
        if refusal.field:
            path, value = (*path, *_relative(path, refusal.field)), None
    elif item["type"] == "extra_forbidden":
        known = children(path[:-1])
        hint = _elsewhere(path) or remedy(path[-1], known)
        what = f"unknown key{hint}"
        # Do not list all keys of the top level after a suggestion: there are too many.
        allowed = "" if hint and len(path) == 1 else ", ".join(known)
    elif item["type"] == "literal_error":
        allowed = item["ctx"]["expected"].replace("'", "").replace(" or ", ", ")
        what = f"not allowed{_YAML_WORDS if isinstance(value, bool) else suggest(str(value), allowed.split(', '))}"
    elif item["type"] == "string_type" and isinstance(value, int | float) and not isinstance(value, bool):
        what = "YAML reads this as a number; put it in quotes"
    else:
        section = item["type"] in ("model_type", "model_attributes_type")
        what = "it is missing" if item["type"] == "missing" else _SECTION if section else "not allowed"
        if value is None and what == "not allowed":
            what = "null is not allowed"
        allowed = ", ".join(children(path))
        if section and path[0] == "capacity" and path[-1] in children(path):
            what = "the first level of capacity names brokers"
            allowed = f'"*": {{{path[-1]}: {value}}} for all of them, or an id, host:port, in place of "*"'
    if what == "not allowed" and isinstance(value, dict):
        what = "keys below it are not allowed"
    row = next(filter(None, (row_of(path[:n]) for n in range(len(path), 0, -1))), None)
    allowed = row.allowed if allowed == "" and row is not None else allowed
    if row is not None and row.duration and isinstance(value, float):
        value = format_duration(value)  # pydantic reports seconds
    return problem(what, path=path, origin=origin_of(path, origins), value=value, allowed=allowed or "")


def _elsewhere(path: KeyPath) -> str:
    """Return a hint at the right section of a misplaced key; "": the key is not valid in any section."""
    key = path[-1]
    if key in children(()):
        return AT_THE_TOP
    if key in BY_NAME or key in BY_PULSAR_KEY:
        return "; it belongs below `parameters`"
    if key in by_key():
        section, _, name = key.rpartition(".")
        return f"; it belongs below `{section}`, as `{name}`"
    homes = [row.key for row in rows() if row.key.rpartition(".")[2] == key]
    if not homes or len(path) > 1:
        return ""
    near = get_close_matches(key, children(()), n=1, cutoff=0.75)
    return f"; did you mean {' or '.join(map(repr, [*near, *homes]))}?"


def _relative(path: KeyPath, field: str) -> KeyPath:
    """Split the field of an InvalidSetting at its dots, except for a pattern of `capacity`, which may contain dots."""
    return (field,) if path[:1] == ("capacity",) else tuple(field.split("."))
