"""Groups as declared: those of the settings file, and over them what people set or removed at run time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bundlekeel.core.errors import ConfigError
from bundlekeel.core.quotas.groups import KINDS, Group, Limits, check_groups
from bundlekeel.daemon.documents import QuotaWish

SETTINGS, API = "settings", "api"


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """The groups in force, `origin` and the wish behind each by name, and what could not be kept."""

    groups: tuple[Group, ...] = ()
    origins: Mapping[str, str] | None = None
    wishes: Mapping[str, QuotaWish] | None = None
    problems: tuple[ConfigError, ...] = ()


def declared(settings: Sequence[Group], wishes: Mapping[str, QuotaWish]) -> Declared:
    """What holds now. A wish that does not fit (the settings changed since it was checked) is left out and told."""
    found: list[Group] = []
    problems: list[ConfigError] = []
    for group in settings:
        if group.name not in wishes:
            found.append(group)
    for name, wish in sorted(wishes.items()):
        if wish.removed:
            continue
        try:
            found = list(check_groups([*found, group_of(name, wish)]))
        except ConfigError as error:
            problems.append(error)
    kept = {group.name for group in found}
    return Declared(
        groups=tuple(found),
        origins={name: API if name in wishes else SETTINGS for name in kept},
        wishes={name: wish for name, wish in wishes.items() if name in kept},
        problems=tuple(problems),
    )


def group_of(name: str, wish: QuotaWish) -> Group:
    """The group that somebody set."""
    limits = Limits(**{kind: getattr(wish, kind) for kind in KINDS})
    return Group(name=name, limits=limits, members=tuple(wish.members))
