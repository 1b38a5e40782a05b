"""Everything that is wrong with the settings at once, each as: where it was written, key, value, what is allowed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from bundlekeel.core.model.errors import ConfigError
from bundlekeel.settings.parameters import suggest
from bundlekeel.settings.schema import HIDDEN, children, is_secret, row_of
from bundlekeel.settings.types import InvalidSetting

_VALUE_LIMIT = 80
_YAML_WORDS = "; YAML reads off, no, on and yes without quotes as false and true"


class ConfigErrors(ConfigError):
    """All problems found in one go; `field`, `value` and `allowed` are those of the first."""

    def __init__(self, problems: Sequence[ConfigError]) -> None:
        first = problems[0]
        super().__init__("\n".join(map(str, problems)), field=first.field, value=first.value, allowed=first.allowed)
        self.problems = tuple(problems)


def problem(what: str, *, path: tuple[str, ...], origin: str, value: object = None, allowed: str = "") -> ConfigError:
    """One finished problem: `file:config.yaml: cycle.interval = "x": not a duration (allowed: ...)`."""
    field = ".".join(path)
    shown = HIDDEN if value is not None and is_secret(path) else value
    given = "" if value is None or isinstance(value, dict) else f" = {_short(shown)}"
    where = f"{origin}: " if origin else ""
    tail = f" (allowed: {allowed})" if allowed else ""
    key = f"{field}{given}: " if field else ""
    return ConfigError(f"{where}{key}{what}{tail}", field=field, value=shown, allowed=allowed)


def from_pydantic(error: ValidationError, origins: Mapping[tuple[str, ...], str]) -> list[ConfigError]:
    """Pydantic's findings in our words."""
    return [_translate(item, origins) for item in error.errors(include_url=False)]


def origin_of(path: tuple[str, ...], origins: Mapping[tuple[str, ...], str]) -> str:
    """Where a key was written: its own origin, else that of anything below or around it."""
    if path in origins:
        return origins[path]
    below = [origin for key, origin in origins.items() if key[: len(path)] == path]
    around = [origins[path[:n]] for n in range(len(path) - 1, 0, -1) if path[:n] in origins]
    return (*around, *below, "")[0]


def _translate(item: Any, origins: Mapping[tuple[str, ...], str]) -> ConfigError:
    path = tuple(str(part) for part in item["loc"])
    value, allowed = item["input"], ""
    refusal = item.get("ctx", {}).get("error")
    if isinstance(refusal, InvalidSetting):
        what, allowed = str(refusal), refusal.allowed
        if refusal.hidden:
            value = HIDDEN
        if refusal.field:
            path, value = (*path, *_relative(path, refusal.field)), None
    elif item["type"] == "extra_forbidden":
        known = children(path[:-1])
        what = f"unknown key{suggest(path[-1], known)}"
        allowed = ", ".join(known)
    elif item["type"] == "literal_error":
        what = "not allowed" + (_YAML_WORDS if isinstance(value, bool) else "")
        allowed = item["ctx"]["expected"].replace("'", "").replace(" or ", ", ")
    else:
        what = "it is missing" if item["type"] == "missing" else "not allowed"
        allowed = ", ".join(children(path))
    if not allowed:
        known_rows = (row_of(path[:n]) for n in range(len(path), 0, -1))
        allowed = next((row.allowed for row in known_rows if row is not None), "")
    return problem(what, path=path, origin=origin_of(path, origins), value=value, allowed=allowed)


def _relative(path: tuple[str, ...], field: str) -> tuple[str, ...]:
    """Patterns of `capacity` contain dots and stay whole."""
    return (field,) if path[:1] == ("capacity",) else tuple(field.split("."))


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _VALUE_LIMIT else f"{text[: _VALUE_LIMIT - 3]}..."
