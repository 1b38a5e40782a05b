"""Groups as declared: those of the settings file, and over them what people set or removed at run time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from bundlekeel.core.model.errors import ConfigError
from bundlekeel.core.quotas.groups import KINDS, Group, Limits, check_groups
from bundlekeel.daemon.state.documents import QuotaWish

SETTINGS, API = "settings", "api"
Check = Callable[[Sequence[Group]], tuple[Group, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """The groups in force, `origin` and the wish behind each by name, and what could not be kept or is not in force
    though the settings declare it (`removed`, by name)."""

    groups: tuple[Group, ...] = ()
    origins: Mapping[str, str] | None = None
    wishes: Mapping[str, QuotaWish] | None = None
    removed: Mapping[str, QuotaWish] | None = None
    problems: tuple[ConfigError, ...] = ()


class Register:
    """`declared`, made anew only when somebody declares something else."""

    def __init__(self, settings: Sequence[Group]) -> None:
        self.settings = tuple(settings)
        self._wishes: Mapping[str, QuotaWish] | None = None
        self._found = Declared()

    def now(self, wishes: Mapping[str, QuotaWish]) -> Declared:
        """What holds with these wishes."""
        if self._wishes is not wishes:
            if self._wishes is None or self._wishes != wishes:
                self._found = declared(self.settings, wishes)
            self._wishes = wishes
        return self._found

    def with_wishes(self, wishes: Mapping[str, QuotaWish]) -> Declared:
        """What would hold with these."""
        return declared(self.settings, wishes)


def declared(settings: Sequence[Group], wishes: Mapping[str, QuotaWish], check: Check = check_groups) -> Declared:
    """What holds now. A wish that does not fit (the settings changed since it was checked) is left out and told."""
    found = [group for group in settings if group.name not in wishes]
    problems: list[ConfigError] = []
    _add(found, [group_of(name, wish) for name, wish in sorted(wishes.items()) if not wish.removed], problems, check)
    kept = {group.name for group in found}
    removed = {group.name: wishes[group.name] for group in settings if _is_removed(wishes.get(group.name))}
    return Declared(
        groups=tuple(found),
        origins={name: API if name in wishes else SETTINGS for name in kept},
        wishes={name: wish for name, wish in wishes.items() if name in kept},
        removed=removed,
        problems=(*problems, *(_out_of_force(name, wish) for name, wish in removed.items())),
    )


def _add(found: list[Group], more: Sequence[Group], problems: list[ConfigError], check: Check) -> None:
    """All of these at once; halves of them when that cannot be, down to the one that does not fit."""
    if not more:
        return
    try:
        found[:] = check([*found, *more])
    except ConfigError as error:
        if len(more) == 1:
            problems.append(error)
            return
        middle = len(more) // 2
        _add(found, more[:middle], problems, check)
        _add(found, more[middle:], problems, check)


def _is_removed(wish: QuotaWish | None) -> bool:
    return wish is not None and wish.removed


def _out_of_force(name: str, wish: QuotaWish) -> ConfigError:
    """The settings declare a group that nobody would see otherwise, perhaps long after somebody removed it."""
    where, way = f"quotas.groups.{name}", f"bundlekeel quota reset {name}"
    text = f"{where}: declared in the settings, {removed_by(wish)}; `{way}` puts it in force again"
    return ConfigError(text, field=where, value=name, allowed=way)


def removed_by(wish: QuotaWish) -> str:
    """By whom, when and why."""
    return f"removed by {wish.by} on {datetime.fromtimestamp(wish.since_ms / 1000, UTC):%Y-%m-%d}: {wish.reason}"


def group_of(name: str, wish: QuotaWish) -> Group:
    """The group that somebody set."""
    limits = Limits(**{kind: getattr(wish, kind) for kind in KINDS})
    return Group(name=name, limits=limits, members=tuple(wish.members))
