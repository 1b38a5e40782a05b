"""Load the settings from all sources.

The command line overrides the environment, which overrides secret files, the settings file, and the defaults.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from bundlekeel.model.parameters import BY_NAME
from bundlekeel.settings.model import Settings
from bundlekeel.settings.parameters import TOP_LEVEL
from bundlekeel.settings.problems import ConfigErrors, KeyPath, from_pydantic, problem
from bundlekeel.settings.schema import rows
from bundlekeel.settings.sources import (
    ENV_SECRETS_DIR,
    Layer,
    SettingsSource,
    Written,
    origins_in_lists,
    read_environment,
    read_file,
    read_overrides,
    read_secrets,
)

_USERNAME: Final = ("store", "sasl_username")
_PASSWORD: Final = ("store", "sasl_password")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSettings:
    """Settings with the origin of every key: `default`, `file:...:LINE`, `env:...`, `secret:...` or `cli`.

    `again` reads the same sources again, and raises the same errors as `load_settings`.
    """

    settings: Settings
    origins: Mapping[str, str]
    again: Callable[[], LoadedSettings] = field(repr=False, compare=False)
    path: Path | None = None

    def demand_store(self) -> None:
        """Raises ConfigError if `metadata_store` is not set. The error names the settings file, if there is one."""
        if self.settings.metadata_store is None and self.path is not None:
            allowed = "the brokers' metadataStoreUrl, such as zk:zk-1:2181/pulsar"
            raise problem("it is missing", path=("metadata_store",), origin=f"file:{self.path}", allowed=allowed)
        _ = self.settings.store_url

    def located(self, file: Path | None) -> Path | None:
        """Return a path from the settings. A relative path is relative to the directory of the settings file."""
        if file is None or self.path is None or file.is_absolute():
            return file
        return self.path.resolve().parent / file

    def value(self, key: str) -> Any:
        """Return the value of a setting by its dotted key, such as `cycle.interval`."""
        value: Any = self.settings
        for part in key.split("."):
            value = getattr(value, part)
        return value

    @classmethod
    def defaults(cls) -> LoadedSettings:
        """Return the default settings, without reading any source."""
        return load_settings(None, environ={})


def load_settings(
    path: Path | None,
    overrides: Mapping[str, Any] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    secrets_dir: Path | None = None,
    elsewhere: bool = False,
) -> LoadedSettings:
    """Read, merge and validate the sources. Raises ConfigErrors with every problem, not only the first.

    Args:
        path: The settings file.
        overrides: Values of the command line by dotted or nested keys; None has no effect.
        environ: The environment; None: that of this process.
        secrets_dir: The folder of secret files; None: that of `BUNDLEKEEL_SECRETS_DIR`.
        elsewhere: Whether the secrets are on another host. Then their directory and a password may be missing here.
    """
    environ = os.environ if environ is None else environ
    if secrets_dir is None and environ.get(ENV_SECRETS_DIR):
        secrets_dir = Path(environ[ENV_SECRETS_DIR])
    if elsewhere and secrets_dir is not None and not secrets_dir.exists():
        secrets_dir = None
    layers = (read_file(path), read_secrets(secrets_dir), read_environment(environ), read_overrides(overrides or {}))
    sources = [SettingsSource(layer) for layer in layers]
    problems = [problem for source in sources for problem in source.problems]
    written: Layer = {key: value for source in sources for key, value in source.values.items()}
    if elsewhere and _get(written, _USERNAME) is not None and _get(written, _PASSWORD) is None:
        sources.append(SettingsSource({_PASSWORD: Written("on another host", "")}))
    origins = {key: origin for key, (_, origin) in written.items()}
    try:
        settings = Settings.from_sources(sources)
    except ValidationError as error:
        problems += from_pydantic(error, origins | dict(origins_in_lists(written)))
    if problems:
        raise ConfigErrors(problems)
    again = partial(load_settings, path, overrides, environ=environ, secrets_dir=secrets_dir, elsewhere=elsewhere)
    return LoadedSettings(settings=settings, origins=_all_origins(origins), path=path, again=again)


def _get(written: Layer, key: KeyPath) -> object:
    return written[key].value if key in written else None


def _all_origins(origins: Mapping[KeyPath, str]) -> dict[str, str]:
    """Return the origin of every key by its dotted name, `default` for a key that no source sets."""
    keys = [row.key for row in rows() if row.key != "parameters" and not row.key.startswith("capacity")]
    keys += [f"parameters.{name}" for name in BY_NAME if name not in TOP_LEVEL]
    return dict.fromkeys(keys, "default") | {".".join(path): origin for path, origin in origins.items()}
