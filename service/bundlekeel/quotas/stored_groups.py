"""Quota groups in effect: groups of the settings file, changed by what operators set or removed at run time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bundlekeel.model.errors import ConfigError
from bundlekeel.pulsar.formats.external_input import utc
from bundlekeel.quotas.groups import KINDS, QuotaGroup, QuotaLimits, check_groups
from bundlekeel.quotas.requests import QuotaRequest

SETTINGS, API = "settings", "api"
Check = Callable[[Sequence[QuotaGroup]], tuple[QuotaGroup, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredGroups:
    """The groups in effect, with their `origins` and `requests` by name.

    `removed`: the requests, by name, that removed groups of the settings file. `problems`: requests that are not valid,
    and removals.
    """

    groups: tuple[QuotaGroup, ...] = ()
    origins: Mapping[str, str] | None = None
    requests: Mapping[str, QuotaRequest] | None = None
    removed: Mapping[str, QuotaRequest] | None = None
    problems: tuple[ConfigError, ...] = ()


class GroupRegister:
    """Cache of `declared`, computed again only if a request changes."""

    def __init__(self, settings: Sequence[QuotaGroup]) -> None:
        self.settings = tuple(settings)
        self._requests: Mapping[str, QuotaRequest] | None = None
        self._declared = DeclaredGroups()

    def now(self, requests: Mapping[str, QuotaRequest]) -> DeclaredGroups:
        """Return the groups that apply with these requests."""
        if self._requests is not requests:
            if self._requests is None or self._requests != requests:
                self._declared = declared(self.settings, requests)
            self._requests = requests
        return self._declared

    def with_requests(self, requests: Mapping[str, QuotaRequest]) -> DeclaredGroups:
        """Return the groups that would apply with these requests."""
        return declared(self.settings, requests)


def declared(
    settings: Sequence[QuotaGroup], requests: Mapping[str, QuotaRequest], check: Check = check_groups
) -> DeclaredGroups:
    """Return the groups that apply now.

    A request that is no longer valid, because the settings changed after its check, is skipped and reported.
    """
    groups = [group for group in settings if group.name not in requests]
    problems: list[ConfigError] = []
    _add(
        groups,
        [group_of(name, request) for name, request in sorted(requests.items()) if not request.removed],
        problems,
        check,
    )
    names = {group.name for group in groups}
    removed = {group.name: requests[group.name] for group in settings if _is_removal(requests.get(group.name))}
    return DeclaredGroups(
        groups=tuple(groups),
        origins={name: API if name in requests else SETTINGS for name in names},
        requests={name: request for name, request in requests.items() if name in names},
        removed=removed,
        problems=(*problems, *(_removal_problem(name, request) for name, request in removed.items())),
    )


def _add(groups: list[QuotaGroup], more: Sequence[QuotaGroup], problems: list[ConfigError], check: Check) -> None:
    """Add all groups of `more`; if that is not valid, add halves of them, down to the invalid group."""
    if not more:
        return
    try:
        groups[:] = check([*groups, *more])
    except ConfigError as error:
        if len(more) == 1:
            problems.append(error)
            return
        middle = len(more) // 2
        _add(groups, more[:middle], problems, check)
        _add(groups, more[middle:], problems, check)


def _is_removal(request: QuotaRequest | None) -> bool:
    return request is not None and request.removed


def _removal_problem(name: str, request: QuotaRequest) -> ConfigError:
    """Return the problem that the settings declare a group that was removed, perhaps long ago."""
    where, way = f"quotas.groups.{name}", f"bundlekeel quota reset {name}"
    text = f"{where}: declared in the settings, {removed_by(request)}; `{way}` puts it in force again"
    return ConfigError(text, field=where, value=name, allowed=way)


def removed_by(request: QuotaRequest) -> str:
    """Return the operator, date and reason of a removal, as part of a sentence."""
    return f"removed by {request.by} on {utc(request.since_ms, field='since_ms'):%Y-%m-%d}: {request.reason}"


def group_of(name: str, request: QuotaRequest) -> QuotaGroup:
    """Return the group that a request sets."""
    limits = QuotaLimits(**{kind: getattr(request, kind) for kind in KINDS})
    return QuotaGroup(name=name, limits=limits, members=tuple(request.members))
