"""Reading the settings: command line over environment over secrets over file over defaults, each origin kept.

Environment: `BUNDLEKEEL__CYCLE__INTERVAL=5s` is `cycle.interval`. Secrets: a directory with one file per key, named
`admin__token`. Lists and mappings may be given as JSON in both.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import BaseModel, ValidationError

from bundlekeel.core.model.errors import ConfigError
from bundlekeel.core.model.parameters import BY_NAME, BY_PULSAR_KEY
from bundlekeel.settings.errors import ConfigErrors, from_pydantic, problem
from bundlekeel.settings.model import Settings
from bundlekeel.settings.parameters import TOP_LEVEL, canonical
from bundlekeel.settings.schema import by_key, is_section, rows
from bundlekeel.settings.yaml_text import read_mapping

ENV_PREFIX: Final = "BUNDLEKEEL__"
ENV_SECRETS_DIR: Final = "BUNDLEKEEL_SECRETS_DIR"

_Path = tuple[str, ...]
# One source, flat: where each value goes, the value, and where it was written.
_Layer = dict[_Path, tuple[object, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSettings:
    """Settings with the origin of every key: `default`, `file:...`, `env:...`, `secret:...` or `cli`.

    `again` reads the same sources anew (ConfigErrors as `load_settings`).
    """

    settings: Settings
    origins: Mapping[str, str]
    again: Callable[[], LoadedSettings] = field(repr=False, compare=False)
    path: Path | None = None

    def located(self, file: Path | None) -> Path | None:
        """A path of the settings: relative ones belong to the settings file's folder, wherever a command is run."""
        if file is None or self.path is None or file.is_absolute():
            return file
        return self.path.resolve().parent / file

    def unreadable_files(self) -> list[str]:
        """A sentence for every file that is named (tokens, certificates, keys) and that this process cannot read."""
        return [
            f"{key} = {str(file)!r}: {self.located(file)} is no file that can be read"
            for key, file in _named_files(self.settings.__dict__, "")
            if (place := self.located(file)) is None or not place.is_file() or not os.access(place, os.R_OK)
        ]

    @classmethod
    def defaults(cls) -> LoadedSettings:
        """What holds when nothing is set anywhere."""
        return load_settings(None, environ={})


def load_settings(
    path: Path | None,
    overrides: Mapping[str, Any] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    secrets_dir: Path | None = None,
) -> LoadedSettings:
    """Read, merge and validate. Raises ConfigErrors, a ConfigError that holds every problem at once.

    `overrides` come from the command line: dotted or nested keys; None means not given. `environ` is the process's
    own unless given; `secrets_dir` defaults to `BUNDLEKEEL_SECRETS_DIR`.
    """
    environ = os.environ if environ is None else environ
    if secrets_dir is None and environ.get(ENV_SECRETS_DIR):
        secrets_dir = Path(environ[ENV_SECRETS_DIR])
    problems: list[ConfigError] = []
    merged: _Layer = {}
    for layer in (
        _file_layer(path),
        _secrets_layer(secrets_dir),
        _environment_layer(environ),
        _flatten(_without_none(overrides or {}), "cli"),
    ):
        merged.update(_canonical_parameters(layer, problems))
    origins = {key: origin for key, (_, origin) in merged.items()}
    try:
        settings = Settings.model_validate(_nest(merged))
    except ValidationError as error:
        problems += from_pydantic(error, origins)
    if problems:
        raise ConfigErrors(problems)
    again = partial(load_settings, path, overrides, environ=environ, secrets_dir=secrets_dir)
    return LoadedSettings(settings=settings, origins=_all_origins(origins), path=path, again=again)


# --- the four sources ------------------------------------------------------------------------------------------


def _file_layer(path: Path | None) -> _Layer:
    if path is None:
        return {}
    origin = f"file:{path}"
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigErrors([problem(f"cannot be read: {reason}", path=(), origin=origin)]) from None
    return _flatten(read_mapping(text, origin=origin), origin)


def _secrets_layer(directory: Path | None) -> _Layer:
    if directory is None:
        return {}
    layer: _Layer = {}
    try:
        # Kubernetes adds hidden directories next to the files it mounts.
        files = sorted(f for f in directory.iterdir() if f.is_file() and not f.name.startswith("."))
        for file in files:
            text = file.read_text(encoding="utf-8").rstrip("\r\n")
            layer |= _from_text(file.name.removeprefix(ENV_PREFIX), text, f"secret:{file}")
    except (OSError, UnicodeDecodeError):
        raise ConfigErrors([problem("cannot be read", path=(), origin=f"secret:{directory}")]) from None
    return layer


def _environment_layer(environ: Mapping[str, str]) -> _Layer:
    layer: _Layer = {}
    for name in sorted(environ):
        if name.startswith(ENV_PREFIX) and environ[name] != "":
            layer |= _from_text(name.removeprefix(ENV_PREFIX), environ[name], f"env:{name}")
    return layer


def _from_text(name: str, text: str, origin: str) -> _Layer:
    """One variable or secret file: its name in upper or lower case, its value as text or JSON."""
    head, *rest = name.split("__")
    path: _Path = (head.lower(), *rest)
    if path[0] == "parameters":
        path = ("parameters", *(_parameter_name(part) for part in rest))
    elif path[0] == "capacity":
        path = ("capacity", *rest[:1], *(part.lower() for part in rest[1:]))
    else:
        path = tuple(part.lower() for part in path)
    row = by_key().get(".".join(path))
    value: object = text
    # A variable holds text only; a limit of a quota group has to be a number.
    limit = path[:2] == ("quotas", "groups") and path[-1].endswith("_messages")
    listed = (row is None or row.allowed.startswith(("mapping", "list of"))) and text.lstrip()[:1] in ("{", "[")
    if limit or listed:
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError:
            raise ConfigErrors([problem("not JSON", path=path, origin=origin, value=text)]) from None
    elif text == "null" and row is not None and row.allowed.endswith("or null"):
        value = None
    return _flatten(_nest({path: (value, origin)}), origin)


def _parameter_name(text: str) -> str:
    """Environment variables are often upper case; names of parameters are not."""
    by_lower = {name.lower(): name for name in (*BY_NAME, *BY_PULSAR_KEY)}
    return by_lower.get(text.lower(), text)


def _without_none(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys become nested ones; patterns of `capacity` keep their dots."""
    flat: _Layer = {}
    for key, value in overrides.items():
        parts = tuple(key.split("."))
        if parts[0] == "capacity" and len(parts) > 3:
            parts = ("capacity", ".".join(parts[1:-1]), parts[-1])
        flat |= {(*parts, *path): item for path, item in _flatten_value(value, "cli")}
    return _nest({path: item for path, item in flat.items() if item[0] is not None})


# --- merging ---------------------------------------------------------------------------------------------------


def _flatten(values: Mapping[str, Any], origin: str) -> _Layer:
    """Leaves by path. A section without anything in it (`cycle:`) says nothing."""
    layer: _Layer = {}
    for key, value in values.items():
        if is_section(key) and (value is None or value == {}):
            continue
        if isinstance(value, Mapping) and not value:
            layer[(key,)] = ({}, origin)
        layer |= {(key, *path): item for path, item in _flatten_value(value, origin)}
    return layer


def _flatten_value(value: object, origin: str) -> Iterable[tuple[_Path, tuple[object, str]]]:
    if not isinstance(value, Mapping):
        yield (), (value, origin)
        return
    for key, inner in value.items():
        if isinstance(inner, Mapping) and not inner:
            yield (str(key),), ({}, origin)
        for path, item in _flatten_value(inner, origin):
            yield (str(key), *path), item


def _nest(layer: _Layer) -> dict[str, Any]:
    """The tree again. Where a plain value stands in the place of a section, it stays and is refused later."""
    tree: dict[str, Any] = {}
    for path, (value, _) in layer.items():
        node = tree
        for part in path[:-1]:
            inner = node.setdefault(part, {})
            if not isinstance(inner, dict):
                break
            node = inner
        else:
            if not (isinstance(value, dict) and isinstance(node.get(path[-1]), dict)):
                node[path[-1]] = value
    return tree


def _canonical_parameters(layer: _Layer, problems: list[ConfigError]) -> _Layer:
    """Parameters by our names, so that a layer overrides another whatever spelling either uses."""
    written = {path: item for path, item in layer.items() if path[0] == "parameters" and len(path) > 1}
    rest = {path: item for path, item in layer.items() if path not in written}
    section = _nest(written).get("parameters", {})
    origins = {path[1]: origin for path, (_, origin) in written.items()}
    found, wrong = canonical(section)
    for error in wrong:
        path = ("parameters", error.field.removeprefix("parameters."))
        problems.append(
            problem(str(error), path=path, origin=origins[path[1]], value=error.value, allowed=error.allowed)
        )
    for name, given in found.items():
        target = (name,) if name in TOP_LEVEL else ("parameters", name)
        origin = origins[given.key]
        if target in rest:
            path = ("parameters", given.key)
            problems.append(problem(f"the same as {name}; give it once", path=path, origin=origin))
        rest[target] = (given.value, origin)
    return rest


def _all_origins(origins: Mapping[_Path, str]) -> dict[str, str]:
    known = {row.key: "default" for row in rows() if row.key != "parameters" and not row.key.startswith("capacity")}
    known |= {f"parameters.{name}": "default" for name in BY_NAME if name not in TOP_LEVEL}
    return known | {".".join(path): origin for path, origin in origins.items()}


def _named_files(values: Mapping[str, Any], before: str) -> Iterator[tuple[str, Path]]:
    """Keys that end with `_file`, and what they name, in all sections and their lists."""
    for name, value in values.items():
        key = f"{before}{name}"
        if isinstance(value, Path) and name.endswith("_file"):
            yield key, value
        elif isinstance(value, BaseModel):
            yield from _named_files(value.__dict__, f"{key}.")
        elif isinstance(value, list | tuple):
            for number, item in enumerate(value):
                if isinstance(item, BaseModel):
                    yield from _named_files(item.__dict__, f"{key}.{number}.")
