"""Groups as declared: those of the settings file, and over them what people set or removed at run time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bundlekeel.codec.external_input import utc
from bundlekeel.core.model.errors import ConfigError
from bundlekeel.core.quotas.groups import KINDS, QuotaGroup, QuotaLimits, check_groups
from bundlekeel.daemon.state.documents import QuotaRequest

SETTINGS, API = "settings", "api"
Check = Callable[[Sequence[QuotaGroup]], tuple[QuotaGroup, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredGroups:
    """The groups in force, `origin` and the request behind each by name, and what could not be kept or is not in force
    though the settings declare it (`removed`, by name)."""

    groups: tuple[QuotaGroup, ...] = ()
    origins: Mapping[str, str] | None = None
    requests: Mapping[str, QuotaRequest] | None = None
    removed: Mapping[str, QuotaRequest] | None = None
    problems: tuple[ConfigError, ...] = ()


class GroupRegister:
    """`declared`, made anew only when somebody declares something else."""

    def __init__(self, settings: Sequence[QuotaGroup]) -> None:
        self.settings = tuple(settings)
        self._requests: Mapping[str, QuotaRequest] | None = None
        self._found = DeclaredGroups()

    def now(self, requests: Mapping[str, QuotaRequest]) -> DeclaredGroups:
        """What holds with these requests."""
        if self._requests is not requests:
            if self._requests is None or self._requests != requests:
                self._found = declared(self.settings, requests)
            self._requests = requests
        return self._found

    def with_requests(self, requests: Mapping[str, QuotaRequest]) -> DeclaredGroups:
        """What would hold with these."""
        return declared(self.settings, requests)


def declared(
    settings: Sequence[QuotaGroup], requests: Mapping[str, QuotaRequest], check: Check = check_groups
) -> DeclaredGroups:
    """What holds now. A request that does not fit (the settings changed since it was checked) is left out and
    reported.
    """
    found = [group for group in settings if group.name not in requests]
    problems: list[ConfigError] = []
    _add(
        found,
        [group_of(name, request) for name, request in sorted(requests.items()) if not request.removed],
        problems,
        check,
    )
    kept = {group.name for group in found}
    removed = {group.name: requests[group.name] for group in settings if _is_removed(requests.get(group.name))}
    return DeclaredGroups(
        groups=tuple(found),
        origins={name: API if name in requests else SETTINGS for name in kept},
        requests={name: request for name, request in requests.items() if name in kept},
        removed=removed,
        problems=(*problems, *(_out_of_force(name, request) for name, request in removed.items())),
    )


def _add(found: list[QuotaGroup], more: Sequence[QuotaGroup], problems: list[ConfigError], check: Check) -> None:
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


def _is_removed(request: QuotaRequest | None) -> bool:
    return request is not None and request.removed


def _out_of_force(name: str, request: QuotaRequest) -> ConfigError:
    """The settings declare a group that would not be seen otherwise, perhaps long after it was removed."""
    where, way = f"quotas.groups.{name}", f"bundlekeel quota reset {name}"
    text = f"{where}: declared in the settings, {removed_by(request)}; `{way}` puts it in force again"
    return ConfigError(text, field=where, value=name, allowed=way)


def removed_by(request: QuotaRequest) -> str:
    """By whom, when and why."""
    return f"removed by {request.by} on {utc(request.since_ms, field='since_ms'):%Y-%m-%d}: {request.reason}"


def group_of(name: str, request: QuotaRequest) -> QuotaGroup:
    """The group that somebody set."""
    limits = QuotaLimits(**{kind: getattr(request, kind) for kind in KINDS})
    return QuotaGroup(name=name, limits=limits, members=tuple(request.members))
