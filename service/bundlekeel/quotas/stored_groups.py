"""Quota groups that apply now: those of the settings file, with groups that operators set or removed at run time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bundlekeel.model.errors import ConfigError
from bundlekeel.pulsar.formats.external_input import utc
from bundlekeel.quotas.requests import QuotaRequest
from bundlekeel.quotas.rules.groups import KINDS, QuotaGroup, QuotaLimits, check_groups

SETTINGS, API = "settings", "api"
Check = Callable[[Sequence[QuotaGroup]], tuple[QuotaGroup, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredGroups:
    """The groups that apply now, with their origin (`origins`) and operators' requests (`requests`) by name.

    `removed`: requests that removed a group of the settings file, by name. `problems`: errors for requests that are
    not valid any more, and for removed groups of the settings file.
    """

    groups: tuple[QuotaGroup, ...] = ()
    origins: Mapping[str, str] | None = None
    requests: Mapping[str, QuotaRequest] | None = None
    removed: Mapping[str, QuotaRequest] | None = None
    problems: tuple[ConfigError, ...] = ()


class GroupRegister:
    """Cache of the groups that apply now, which are computed again only if an operator's request changes."""

    def __init__(self, settings: Sequence[QuotaGroup]) -> None:
        self.settings = tuple(settings)
        self._requests: Mapping[str, QuotaRequest] | None = None
        self._declared = DeclaredGroups()

    def now(self, requests: Mapping[str, QuotaRequest]) -> DeclaredGroups:
        """Return the groups that apply with operators' current requests, from the cache if possible."""
        if self._requests is not requests:
            if self._requests is None or self._requests != requests:
                self._declared = declared(self.settings, requests)
            self._requests = requests
        return self._declared

    def with_requests(self, requests: Mapping[str, QuotaRequest]) -> DeclaredGroups:
        """Return the groups that would apply with these requests. Does not use or change the cache."""
        return declared(self.settings, requests)


def declared(
    settings: Sequence[QuotaGroup], requests: Mapping[str, QuotaRequest], check: Check = check_groups
) -> DeclaredGroups:
    """Return the groups that apply with these settings and operators' requests.

    A request can become invalid if the settings change. It is then skipped, and `problems` contains the error.
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
    """Add all groups of `more` that pass `check`, and an error to `problems` for each other group.

    If the groups are not valid together, checks each half of them in the same way, so that few checks are needed.
    """
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
    """Return the error for a group that the settings declare although an operator has removed it at run time."""
    where, way = f"quotas.groups.{name}", f"bundlekeel quota reset {name}"
    text = f"{where}: declared in the settings, {removed_by(request)}; `{way}` puts it in force again"
    return ConfigError(text, field=where, value=name, allowed=way)


def removed_by(request: QuotaRequest) -> str:
    """Return the operator, date and reason of a removal, as part of a sentence."""
    return f"removed by {request.by} on {utc(request.since_ms, field='since_ms'):%Y-%m-%d}: {request.reason}"


def group_of(name: str, request: QuotaRequest) -> QuotaGroup:
    """Return the quota group that an operator's request sets."""
    limits = QuotaLimits(**{kind: getattr(request, kind) for kind in KINDS})
    return QuotaGroup(name=name, limits=limits, members=tuple(request.members))
