"""Reading the settings: command line over environment over secrets over file over defaults, each origin kept.

Environment: `BUNDLEKEEL__CYCLE__INTERVAL=5s` is `cycle.interval`. Secrets: a directory with one file per key, named
`admin__token`. Lists and mappings may be given as JSON in both.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import BaseModel, ValidationError

from bundlekeel.core.model.errors import ConfigError
from bundlekeel.core.model.parameters import BY_NAME, BY_PULSAR_KEY
from bundlekeel.core.model.text_format import format_duration, suggest
from bundlekeel.settings.files import read_bounded
from bundlekeel.settings.model import Settings
from bundlekeel.settings.parameters import TOP_LEVEL, canonical, remedy
from bundlekeel.settings.schema import HIDDEN, by_key, children, is_secret, is_section, row_of, rows
from bundlekeel.settings.types import InvalidSetting

_VALUE_LIMIT = 80
_SECTION: Final = "this is a section: give its keys"
_KINDS: Final = {list: "a list", str: "a text", int: "a number", float: "a number", bool: "true or false"}
# `placement` is a name, or a section with the name and what belongs to it.
_PLACEMENT: Final[Mapping[tuple[str, ...], tuple[str, ...]]] = {
    ("placement", "name"): ("placement",),
    ("placement", "repair"): ("parameters", "placement_repair"),
}
_AT_THE_TOP: Final = "; it belongs at the top"
# The usual slips, by a part of what the parser says of them.
_SLIPS: Final = {
    "alias": ' (put * in quotes: "*")',
    r"'\t'": " (write blanks in place of the tab)",
    "expected ':'": " (a blank belongs after each colon, also in the line before)",
    "mapping values": " (here or in the line before: a blank belongs after each colon, the keys of a section are "
    "indented alike, and a value with a colon needs quotes)",
}
_YAML_WORDS = "; YAML reads off, no, on and yes without quotes as false and true"


# --- problems: where it was written, key, value, what is allowed ------------------------------------------------


class ConfigErrors(ConfigError):
    """All problems found in one go, those of the file by its lines; `field`, `value` and `allowed` are those of the
    first."""

    def __init__(self, problems: Sequence[ConfigError]) -> None:
        problems = sorted(problems, key=_line)
        first = problems[0]
        told = "\n".join(map(str, problems))
        super().__init__(told, field=first.field, value=first.value, allowed=first.allowed, origin=first.origin)
        self.problems = tuple(problems)


def _line(found: ConfigError) -> float:
    """The line of the settings file that a problem names; what stands in none comes last."""
    _, _, line = found.origin.removeprefix("file:").rpartition(":")
    return float(line) if found.origin.startswith("file:") and line.isdecimal() else math.inf


def problem(what: str, *, path: tuple[str, ...], origin: str, value: object = None, allowed: str = "") -> ConfigError:
    """One finished problem: `file:config.yaml: cycle.interval = "x": not a duration (allowed: ...)`."""
    field = ".".join(path)
    secret = origin.startswith("secret:") or is_secret(path)
    shown = HIDDEN if value is not None and secret else value
    given = "" if value is None or isinstance(value, dict) else f" = {spelled(shown)}"
    where = f"{origin}: " if origin else ""
    tail = f" (allowed: {allowed})" if allowed else ""
    key = f"{field}{given}: " if field else ""
    return ConfigError(f"{where}{key}{what}{tail}", field=field, value=shown, allowed=allowed, origin=origin)


def from_pydantic(
    error: ValidationError, origins: Mapping[tuple[str, ...], str], below: tuple[str, ...] = ()
) -> list[ConfigError]:
    """Pydantic's findings in our words. `below`: where in the settings the section lies that was validated."""
    found: list[Any] = list(error.errors(include_url=False))
    return [_translate({**item, "loc": (*below, *item["loc"])}, origins) for item in found]


def origin_of(path: tuple[str, ...], origins: Mapping[tuple[str, ...], str]) -> str:
    """Where a key was written: its own origin, else that of anything below or around it, or of all that is written."""
    if path in origins:
        return origins[path]
    below = [origin for key, origin in origins.items() if key[: len(path)] == path]
    around = [origins[path[:n]] for n in range(len(path) - 1, 0, -1) if path[:n] in origins]
    # Of a file only its name: what is missing stands in no line.
    everywhere = set(map(_without_line, origins.values()))
    found = [*around, *below, *(everywhere if len(everywhere) == 1 else ())]
    return found[0] if found else ""


def _without_line(origin: str) -> str:
    """The file alone of what stands in a line of one."""
    return re.sub(r"^(file:.*):\d+$", r"\1", origin)


def _translate(item: Any, origins: Mapping[tuple[str, ...], str]) -> ConfigError:
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
        # Those of the top are too many to stand behind the one that is meant.
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
        value = format_duration(value)  # pydantic tells the seconds of it
    return problem(what, path=path, origin=origin_of(path, origins), value=value, allowed=allowed or "")


def _elsewhere(path: tuple[str, ...]) -> str:
    """Where a key belongs that is known, but not where it was written; nothing for an unknown one."""
    key = path[-1]
    if key in children(()):
        return _AT_THE_TOP
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


def _relative(path: tuple[str, ...], field: str) -> tuple[str, ...]:
    """Patterns of `capacity` contain dots and stay whole."""
    return (field,) if path[:1] == ("capacity",) else tuple(field.split("."))


def spelled(value: object) -> str:
    """A value as messages show it: true and false as in the file."""
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= _VALUE_LIMIT else f"{text[: _VALUE_LIMIT - 3]}..."


# --- YAML: no key twice, keys are text, messages say line and column ---------------------------------------------


class _Loader(yaml.SafeLoader):
    """The safe loader, stricter on keys."""


class _Key(str):
    """A key and the line that it stands in."""

    __slots__ = ("line",)
    line: int


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str):
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {key!r} is not a text; put it in quotes", key_node.start_mark
            )
        if key in found:
            raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} is given twice", key_node.start_mark)
        named = _Key(key)
        named.line = key_node.start_mark.line + 1
        found[named] = loader.construct_object(value_node, deep=True)
    return found


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


def read_mapping(text: str, *, origin: str) -> dict[str, Any]:
    """The mapping in `text`; an empty text is an empty one. Raises ConfigErrors."""
    try:
        value = yaml.load(text, Loader=_Loader)  # noqa: S506 - derived from SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        remedies = [text for part, text in _SLIPS.items() if part in f"{error.context} {error.problem}"]
        raise _refuse(f"{place}{error.problem or error.context}{''.join(remedies)}", origin) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _refuse(f"not YAML: {error}", origin) from None
    if value is None:
        return {}
    if _values(value, {}) > _MOST_VALUES:
        raise _refuse(f"holds more than {_MOST_VALUES:,} values once each alias (`*name`) is written out", origin)
    if not isinstance(value, dict):
        raise _refuse(f"holds {_KINDS.get(type(value), 'something else')} where `key: value` is expected", origin)
    return value


# An alias costs nothing until its values are looked at: ten lines can stand for more of them than fit in memory.
_MOST_VALUES: Final = 100_000


def _values(value: object, known: dict[int, int]) -> int:
    """Return how many values there are if each alias is written out. `known`: by id of a mapping or list."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in known:
        items = value.values() if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_values(item, known) for item in items)
    return known[id(value)]


def _refuse(what: str, origin: str) -> ConfigError:
    return ConfigErrors([problem(what, path=(), origin=origin)])


ENV_PREFIX: Final = "BUNDLEKEEL__"
ENV_SECRETS_DIR: Final = "BUNDLEKEEL_SECRETS_DIR"

_Path = tuple[str, ...]
# One source, flat: where each value goes, the value, and where it was written.
_Layer = dict[_Path, tuple[object, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSettings:
    """Settings with the origin of every key: `default`, `file:...:LINE`, `env:...`, `secret:...` or `cli`.

    `again` reads the same sources again (ConfigErrors as `load_settings`).
    """

    settings: Settings
    origins: Mapping[str, str]
    again: Callable[[], LoadedSettings] = field(repr=False, compare=False)
    path: Path | None = None

    def demand_store(self) -> None:
        """ConfigError without `metadata_store`, with the settings file in which to set it."""
        if self.settings.metadata_store is None and self.path is not None:
            allowed = "the brokers' metadataStoreUrl, such as zk:zk-1:2181/pulsar"
            raise problem("it is missing", path=("metadata_store",), origin=f"file:{self.path}", allowed=allowed)
        _ = self.settings.store_url

    def located(self, file: Path | None) -> Path | None:
        """A path of the settings: relative ones belong to the settings file's folder, wherever a command is run."""
        if file is None or self.path is None or file.is_absolute():
            return file
        return self.path.resolve().parent / file

    def file_problems(self) -> list[ConfigError]:
        """A problem for every file that is named (tokens, certificates, keys) and that this process cannot read, and
        for a file of API tokens with a line that is none."""
        found = [
            problem(
                f"{place} is not a readable file" if file.parts else "an empty text names no file",
                path=tuple(key.split(".")),
                origin=self.origins.get(key, ""),
                value=str(file) if file.parts else "",
                allowed="a file that can be read here; where the sidecar runs on another host: --elsewhere",
            )
            for key, file in _named_files(self.settings.__dict__, "")
            if (place := self.located(file)) is None or not place.is_file() or not os.access(place, os.R_OK)
        ]
        found += self._of_the_wrong_kind()
        tokens = self.located(self.settings.api.auth.tokens_file)
        if tokens is not None and not any(wrong.field == "api.auth.tokens_file" for wrong in found):
            # It imports structlog, which takes rich along unless `bundlekeel.wiring` was imported before.
            from bundlekeel.settings.credentials import TokensFile  # noqa: PLC0415

            try:
                TokensFile(tokens)
            except ConfigError as error:
                found.append(error)
        return [*found, *self._of_no_use({wrong.field for wrong in found})]

    def _of_no_use(self, missing: set[str]) -> Iterator[ConfigError]:
        """Certificates and keys of the API that are there, and that the sidecar could not start with."""
        tls, auth = self.settings.api.tls, self.settings.api.auth
        cert, key, jwt = map(self.located, (tls.cert_file, tls.key_file, auth.jwt_key_file))
        try:
            if cert and key and not missing & {"api.tls.cert_file", "api.tls.key_file", "api.tls.client_ca_file"}:
                from bundlekeel.tls import ServerTls  # noqa: PLC0415 - it imports structlog, as above

                ca = self.located(tls.client_ca_file)
                ServerTls(cert=cert, key=key, client_ca=ca).context(field="api.tls.cert_file")
            if jwt and "api.auth.jwt_key_file" not in missing:
                from bundlekeel.settings.jwt_keys import JwtKeys  # noqa: PLC0415 - it takes 9 MB along

                JwtKeys(jwt, issuer="", audience="", role_claim=auth.jwt_role_claim)
        except ConfigError as error:
            yield error

    def _of_the_wrong_kind(self) -> Iterator[ConfigError]:
        """What the sidecar writes, where something else is there already."""
        settings = self.settings
        for key, file, kind, fits in (
            ("journal.path", settings.journal.path, "a file", lambda place: not place.is_dir()),
            ("api.socket", settings.api.socket, "a socket", Path.is_socket),
            ("history.wal", settings.history.wal, "a folder", Path.is_dir),
        ):
            if (place := self.located(file)) is not None and place.exists() and not fits(place):
                path, origin = tuple(key.split(".")), self.origins[key]
                what = f"{place} is there already and is not {kind}"
                yield problem(
                    what, path=path, origin=origin, value=str(file), allowed=f"a path that is free, or {kind}"
                )

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
    elsewhere: bool = False,
) -> LoadedSettings:
    """Read, merge and validate. Raises ConfigErrors, a ConfigError that holds every problem at once.

    `overrides` come from the command line: dotted or nested keys; None means not given. `environ` is the process's
    own unless given; `secrets_dir` defaults to `BUNDLEKEEL_SECRETS_DIR`. `elsewhere`: secrets are on another host, so
    that folder and a password may be missing.
    """
    environ = os.environ if environ is None else environ
    if secrets_dir is None and environ.get(ENV_SECRETS_DIR):
        secrets_dir = Path(environ[ENV_SECRETS_DIR])
    if elsewhere and secrets_dir is not None and not secrets_dir.exists():
        secrets_dir = None
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
        settings = Settings.model_validate(_nest(merged), context={"elsewhere": elsewhere})
    except ValidationError as error:
        problems += from_pydantic(error, origins | dict(_origins_in_lists(merged)))
    if problems:
        raise ConfigErrors(problems)
    again = partial(load_settings, path, overrides, environ=environ, secrets_dir=secrets_dir, elsewhere=elsewhere)
    return LoadedSettings(settings=settings, origins=_all_origins(origins), path=path, again=again)


# --- the four sources ------------------------------------------------------------------------------------------


def _file_layer(path: Path | None) -> _Layer:
    if path is None:
        return {}
    origin = f"file:{path}"
    try:
        text = read_bounded(path).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        there = "" if path.exists() else f"; `bundlekeel config init --file {path}` writes one"
        allowed = f"a settings file{there}"
        raise ConfigErrors(
            [problem(f"cannot be read: {_reason(error)}", path=(), origin=origin, allowed=allowed)]
        ) from None
    return _flatten(read_mapping(text, origin=origin), origin)


def _secrets_layer(directory: Path | None) -> _Layer:
    if directory is None:
        return {}
    layer: _Layer = {}
    what, place = f"the secrets directory ({ENV_SECRETS_DIR}) cannot be read", directory
    try:
        # Kubernetes adds hidden directories next to the files it mounts.
        files = sorted(f for f in directory.iterdir() if f.is_file() and not f.name.startswith("."))
        for file in files:
            what, place = "cannot be read", file
            text = read_bounded(file).decode("utf-8").rstrip("\r\n")
            layer |= _from_text(file.name.removeprefix(ENV_PREFIX), text, f"secret:{file}")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigErrors([problem(f"{what}: {_reason(error)}", path=(), origin=f"secret:{place}")]) from None
    return layer


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else "it is not UTF-8 text"


def _environment_layer(environ: Mapping[str, str]) -> _Layer:
    layer: _Layer = {}
    for name in sorted(environ):
        if name.startswith(ENV_PREFIX) and environ[name] != "":
            layer |= _from_text(name.removeprefix(ENV_PREFIX), environ[name], f"env:{name}")
    return layer


def misnamed_variables(environ: Mapping[str, str]) -> list[str]:
    """A warning for each variable that is named as a setting but for the number of its underscores: it is not read."""
    known = {key.replace(".", "_"): key for key in by_key()}
    given = {name: name.removeprefix("BUNDLEKEEL").strip("_").replace("__", "_").lower() for name in sorted(environ)}
    return [
        f"env:{name}: not read; did you mean {ENV_PREFIX}{known[words].replace('.', '__').upper()}?"
        for name, words in given.items()
        if name.startswith("BUNDLEKEEL_") and not name.startswith(ENV_PREFIX) and words in known
    ]


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
            if _values(value, {}) > _MOST_VALUES:
                raise yaml.YAMLError
        except (yaml.YAMLError, RecursionError):
            allowed = "" if row is None else f"{row.allowed}, as JSON"
            raise ConfigErrors([problem("not JSON", path=path, origin=origin, value=text, allowed=allowed)]) from None
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
    """Leaves by path, those of a file with their line. A section without anything in it (`cycle:`) says nothing."""
    said = {key: value for key, value in values.items() if not (is_section(key) and value in (None, {}))}
    return dict(_flatten_value(said, origin))


def _flatten_value(value: object, origin: str, line: str = "") -> Iterator[tuple[_Path, tuple[object, str]]]:
    if not isinstance(value, Mapping):
        yield (), (value, f"{origin}{line}")
        return
    for key, inner in value.items():
        at = f":{key.line}" if isinstance(key, _Key) else line
        if isinstance(inner, Mapping) and not inner:
            yield (str(key),), ({}, f"{origin}{at}")
        for path, item in _flatten_value(inner, origin, at):
            yield (str(key), *path), item


def _origins_in_lists(layer: _Layer) -> Iterator[tuple[_Path, str]]:
    """Where the keys inside of lists were written: a list is one value of its layer, and has one line there."""
    for path, (value, origin) in layer.items():
        for number, item in enumerate(value if isinstance(value, list) else ()):
            file = _without_line(origin)
            for inner, (_, at) in _flatten_value(item, file):
                if at != file:
                    yield (*path, str(number), *inner), at


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
    layer = {_PLACEMENT.get(path, path): item for path, item in layer.items()}
    written = {path: item for path, item in layer.items() if path[0] == "parameters" and len(path) > 1}
    rest = {path: item for path, item in layer.items() if path not in written}
    section = _nest(written).get("parameters", {})
    origins = {path[1]: origin for path, (_, origin) in written.items()}
    found, wrong = canonical(section)
    for error in wrong:
        path = ("parameters", error.field.removeprefix("parameters."))
        known_above = path[1] in children(()) and path[1] not in TOP_LEVEL
        what = f"unknown parameter{_AT_THE_TOP}" if known_above else str(error)
        problems.append(problem(what, path=path, origin=origins[path[1]], value=error.value, allowed=error.allowed))
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
