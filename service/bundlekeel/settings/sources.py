"""Sources of the settings for pydantic-settings: file, secret files, environment and command line.

The sources of pydantic-settings do not record origins, and they ignore unknown variables. Here, messages and
`config show` name the origin of each value: `file:PATH:LINE`, `secret:PATH`, `env:NAME` or `cli`.

Environment: `BUNDLEKEEL__CYCLE__INTERVAL=5s` sets `cycle.interval`. Secrets: a folder with one file per key, such as
`admin__token`. Both accept lists and mappings as JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml
from pydantic_settings import InitSettingsSource

from bundlekeel.model.errors import ConfigError
from bundlekeel.model.parameters import BY_NAME, BY_PULSAR_KEY
from bundlekeel.settings.files import read_bounded
from bundlekeel.settings.model import Settings
from bundlekeel.settings.parameters import TOP_LEVEL, canonical
from bundlekeel.settings.problems import AT_THE_TOP, ConfigErrors, KeyPath, problem, without_line
from bundlekeel.settings.schema import by_key, children, is_section, row_of
from bundlekeel.settings.yaml_text import MAX_VALUES, LinedKey, count_values, read_mapping

ENV_PREFIX: Final = "BUNDLEKEEL__"
ENV_SECRETS_DIR: Final = "BUNDLEKEEL_SECRETS_DIR"
# The setting `placement` may also be a section with `name` and `repair`: the keys that these two stand for.
_PLACEMENT: Final[Mapping[KeyPath, KeyPath]] = {
    ("placement", "name"): ("placement",),
    ("placement", "repair"): ("parameters", "placement_repair"),
}


class Written(NamedTuple):
    """A value as it is written in a source, and its origin."""

    value: object
    origin: str


# The values of one source by path, without sections.
Layer = dict[KeyPath, Written]


class SettingsSource(InitSettingsSource):
    """A source whose values keep their origin. Parameters have Bundlekeel's names.

    So a source can override another source with either name of a parameter. `problems`: errors of invalid parameters,
    which are not in `values`.
    """

    def __init__(self, layer: Layer) -> None:
        self.values, self.problems = _rename_parameters(layer)
        super().__init__(Settings, _nest(self.values))


def read_file(path: Path | None) -> Layer:
    """Read the settings file, if there is one. Raises ConfigErrors if it is not a readable YAML mapping."""
    if path is None:
        return {}
    origin = f"file:{path}"
    try:
        text = read_bounded(path).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        hint = "" if path.exists() else f"; `bundlekeel config init --file {path}` writes one"
        raise ConfigErrors([_unreadable("", error, origin, f"a settings file{hint}")]) from None
    return _flatten(read_mapping(text, origin=origin), origin)


def read_secrets(folder: Path | None) -> Layer:
    """Read the folder of secret files, if there is one. Raises ConfigErrors if a file of it is not readable text."""
    layer: Layer = {}
    subject, place = f"the secrets directory ({ENV_SECRETS_DIR}) ", folder
    try:
        # Kubernetes adds hidden folders next to the files that it mounts.
        files = [] if folder is None else sorted(folder.iterdir())
        for file in files:
            if file.is_file() and not file.name.startswith("."):
                subject, place = "", file
                text = read_bounded(file).decode("utf-8").rstrip("\r\n")
                layer |= _read_text(file.name.removeprefix(ENV_PREFIX), text, f"secret:{file}")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigErrors([_unreadable(subject, error, f"secret:{place}")]) from None
    return layer


def _unreadable(subject: str, error: OSError | UnicodeDecodeError, origin: str, allowed: str = "") -> ConfigError:
    reason = (error.strerror or str(error)) if isinstance(error, OSError) else "it is not UTF-8 text"
    return problem(f"{subject}cannot be read: {reason}", path=(), origin=origin, allowed=allowed)


def read_environment(environ: Mapping[str, str]) -> Layer:
    """Read the variables `BUNDLEKEEL__*`, except empty ones. Raises ConfigErrors if a value must be JSON and is not."""
    layer: Layer = {}
    for name in sorted(environ):
        if name.startswith(ENV_PREFIX) and environ[name] != "":
            layer |= _read_text(name.removeprefix(ENV_PREFIX), environ[name], f"env:{name}")
    return layer


def misnamed_variables(environ: Mapping[str, str]) -> list[str]:
    """Return a warning for each variable that has the name of a setting, but not the right number of underscores."""
    keys = {key.replace(".", "_"): key for key in by_key()}
    words = {name: name.removeprefix("BUNDLEKEEL").strip("_").replace("__", "_").lower() for name in sorted(environ)}
    return [
        f"env:{name}: not read; did you mean {ENV_PREFIX}{keys[word].replace('.', '__').upper()}?"
        for name, word in words.items()
        if name.startswith("BUNDLEKEEL_") and not name.startswith(ENV_PREFIX) and word in keys
    ]


def read_overrides(overrides: Mapping[str, Any]) -> Layer:
    """Read values of the command line by dotted or nested keys. None has no effect.

    A pattern of `capacity` may contain dots: `capacity.b1.example:8080.cores`.
    """
    layer: Layer = {}
    for key, value in overrides.items():
        parts = tuple(key.split("."))
        if parts[0] == "capacity" and len(parts) > 3:
            parts = ("capacity", ".".join(parts[1:-1]), parts[-1])
        layer |= {(*parts, *path): written for path, written in _leaves(value, "cli")}
    return _flatten(_nest({path: written for path, written in layer.items() if written.value is not None}), "cli")


def _read_text(name: str, text: str, origin: str) -> Layer:
    """Read one variable or secret file, whose name may be in upper case and whose value may be JSON."""
    path = _path_of(name)
    row = by_key().get(".".join(path))
    value: object = text
    item = row_of(path)
    strict_number = item is not None and item.strict_number
    structured = (row is None or row.allowed.startswith(("mapping", "list of"))) and text.lstrip()[:1] in ("{", "[")
    if strict_number or structured:
        try:
            value = yaml.safe_load(text)
            if count_values(value) > MAX_VALUES:
                raise yaml.YAMLError
        except (yaml.YAMLError, RecursionError):
            allowed = "" if row is None else f"{row.allowed}, as JSON"
            raise ConfigErrors([problem("not JSON", path=path, origin=origin, value=text, allowed=allowed)]) from None
    elif text == "null" and row is not None and row.allowed.endswith("or null"):
        value = None
    return _flatten(_nest({path: Written(value, origin)}), origin)


def _path_of(name: str) -> KeyPath:
    """Return the settings path of a variable. Case counts only in patterns of `capacity` and in unknown parameters."""
    section, *rest = name.split("__")
    if section.lower() == "parameters":
        spellings = {key.lower(): key for key in (*BY_NAME, *BY_PULSAR_KEY)}
        return "parameters", *(spellings.get(part.lower(), part) for part in rest)
    if section.lower() == "capacity":
        return "capacity", *rest[:1], *(part.lower() for part in rest[1:])
    return tuple(part.lower() for part in (section, *rest))


def _flatten(values: Mapping[str, Any], origin: str) -> Layer:
    """Return the values by path, with the line if the source is a file. An empty section (`cycle:`) has no effect."""
    return dict(_leaves({key: v for key, v in values.items() if not (is_section(key) and v in (None, {}))}, origin))


def _leaves(value: object, origin: str, line: str = "") -> Iterator[tuple[KeyPath, Written]]:
    if not isinstance(value, Mapping):
        yield (), Written(value, f"{origin}{line}")
        return
    for key, inner in value.items():
        at = f":{key.line}" if isinstance(key, LinedKey) else line
        if isinstance(inner, Mapping) and not inner:
            yield (str(key),), Written({}, f"{origin}{at}")
        for path, written in _leaves(inner, origin, at):
            yield (str(key), *path), written


def origins_in_lists(layer: Layer) -> Iterator[tuple[KeyPath, str]]:
    """Yield the origins of keys inside lists. A list is one value of its source, with the line of the list."""
    for path, (value, origin) in layer.items():
        for number, item in enumerate(value if isinstance(value, list) else ()):
            file = without_line(origin)
            for inner, written in _leaves(item, file):
                if written.origin != file:
                    yield (*path, str(number), *inner), written.origin


def _nest(layer: Layer) -> dict[str, Any]:
    """Return the values of a source as nested mappings. If a section is a plain value, validation rejects it later."""
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


def _rename_parameters(layer: Layer) -> tuple[Layer, list[ConfigError]]:
    """Return the values of a source with Bundlekeel's names of parameters, and a problem for each invalid one."""
    layer = {_PLACEMENT.get(path, path): written for path, written in layer.items()}
    section = {path: written for path, written in layer.items() if path[0] == "parameters" and len(path) > 1}
    rest = {path: written for path, written in layer.items() if path not in section}
    origins = {path[1]: written.origin for path, written in section.items()}
    renamed, errors = canonical(_nest(section).get("parameters", {}))
    problems = []
    for error in errors:
        key = error.field.removeprefix("parameters.")
        above = key in children(()) and key not in TOP_LEVEL
        what = f"unknown parameter{AT_THE_TOP}" if above else str(error)
        path = ("parameters", key)
        problems.append(problem(what, path=path, origin=origins[key], value=error.value, allowed=error.allowed))
    for name, parameter in renamed.items():
        target = (name,) if name in TOP_LEVEL else ("parameters", name)
        origin = origins[parameter.key]
        if target in rest:
            what = f"the same as {name}; give it once"
            problems.append(problem(what, path=("parameters", parameter.key), origin=origin))
        rest[target] = Written(parameter.value, origin)
    return rest, problems
