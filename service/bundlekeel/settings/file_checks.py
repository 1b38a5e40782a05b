"""Checks whether this process can read and use the files that the settings name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from bundlekeel.model.errors import ConfigError
from bundlekeel.settings.feature_checks import feature_folders
from bundlekeel.settings.load import LoadedSettings
from bundlekeel.settings.problems import problem


def file_problems(loaded: LoadedSettings) -> list[ConfigError]:
    """Return a problem for each file that this process cannot read or use: tokens, certificates, keys, and paths that
    the sidecar writes to."""
    problems = [
        problem(
            f"{place} is not a readable file" if file.parts else "an empty text names no file",
            path=tuple(key.split(".")),
            origin=loaded.origins.get(key, ""),
            value=str(file) if file.parts else "",
            allowed="a file that can be read here; where the sidecar runs on another host: --elsewhere",
        )
        for key, file in _named_files(loaded.settings.__dict__, "")
        if (place := loaded.located(file)) is None or not place.is_file() or not os.access(place, os.R_OK)
    ]
    problems += _check_output_paths(loaded)
    tokens = loaded.located(loaded.settings.api.auth.tokens_file)
    if tokens is not None and not any(error.field == "api.auth.tokens_file" for error in problems):
        # Import late: it imports structlog, which imports rich unless `bundlekeel.wiring` was imported before.
        from bundlekeel.settings.credentials import TokensFile  # noqa: PLC0415

        try:
            TokensFile(tokens)
        except ConfigError as error:
            problems.append(error)
    return [*problems, *_check_keys(loaded, {error.field for error in problems})]


def _check_keys(loaded: LoadedSettings, unreadable: set[str]) -> Iterator[ConfigError]:
    """Yield a problem if the API's certificates or keys are readable, but the sidecar could not start with them."""
    tls, auth = loaded.settings.api.tls, loaded.settings.api.auth
    cert, key, jwt = map(loaded.located, (tls.cert_file, tls.key_file, auth.jwt_key_file))
    try:
        if cert and key and not unreadable & {"api.tls.cert_file", "api.tls.key_file", "api.tls.client_ca_file"}:
            from bundlekeel.settings.tls import ServerTls  # noqa: PLC0415 - it imports structlog, as above

            ca = loaded.located(tls.client_ca_file)
            ServerTls(cert=cert, key=key, client_ca=ca).context(field="api.tls.cert_file")
        if jwt and "api.auth.jwt_key_file" not in unreadable:
            from bundlekeel.settings.jwt_keys import JwtKeys  # noqa: PLC0415 - it takes 9 MB

            JwtKeys(jwt, issuer="", audience="", role_claim=auth.jwt_role_claim)
    except ConfigError as error:
        yield error


def _check_output_paths(loaded: LoadedSettings) -> Iterator[ConfigError]:
    """Yield a problem for each path that the sidecar writes to and that exists with another type, such as a
    directory."""
    places: dict[str, tuple[str, Callable[[Path], bool]]] = {
        "journal.path": ("a file", lambda place: not place.is_dir()),
        "api.socket": ("a socket", Path.is_socket),
        **dict.fromkeys(feature_folders(), ("a folder", Path.is_dir)),
    }
    for key, (kind, fits) in places.items():
        file = loaded.value(key)
        if (place := loaded.located(file)) is not None and place.exists() and not fits(place):
            path, origin = tuple(key.split(".")), loaded.origins[key]
            what = f"{place} is there already and is not {kind}"
            yield problem(what, path=path, origin=origin, value=str(file), allowed=f"a path that is free, or {kind}")


def _named_files(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Path]]:
    """Yield key and path of each setting whose name ends with `_file`, in all sections and their lists."""
    for name, value in values.items():
        key = f"{prefix}{name}"
        if isinstance(value, Path) and name.endswith("_file"):
            yield key, value
        elif isinstance(value, BaseModel):
            yield from _named_files(value.__dict__, f"{key}.")
        elif isinstance(value, list | tuple):
            for number, item in enumerate(value):
                if isinstance(item, BaseModel):
                    yield from _named_files(item.__dict__, f"{key}.{number}.")
