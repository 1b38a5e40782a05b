"""Checks that optional features add for their own settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bundlekeel.settings.features import modules

if TYPE_CHECKING:
    from bundlekeel.settings.model import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingWarning:
    """A valid but probably unintended value. `value` None: the message does not contain it."""

    key: str
    value: str | None
    what: str
    better: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureChecks:
    """The checks of one feature, `CHECKS` in its module `settings`.

    `folders`: settings keys of directories that each sidecar writes to, so their values may differ between sidecars.
    `stores`: settings keys of directories that all sidecars share, with the program that creates them. `warnings`:
    returns the warnings for `config check`. `defaults`: receives the merged values of all sources, and returns them
    with defaults that depend on other sections.
    """

    folders: tuple[str, ...]
    stores: Mapping[str, str]
    warnings: Callable[[Settings], Iterable[SettingWarning]]
    defaults: Callable[[Mapping[str, Any]], dict[str, Any]] = dict


def feature_folders() -> list[str]:
    """Return the settings keys of directories that features write to."""
    return [key for checks in feature_checks() for key in checks.folders]


def feature_checks() -> Iterator[FeatureChecks]:
    """Yield the checks of each installed feature that has its own checks."""
    for module in modules("settings"):
        if (checks := getattr(module, "CHECKS", None)) is not None:
            yield checks
