"""Messages of the ownership channel as brokers write them: each flow of PIP-192, step by step.

A step takes the entry its writer saw, which need not be the present one, and answers what it publishes: nothing when
the step does not apply.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from bundlekeel.model.channel_states import MAX_VERSION, MIN_VERSION, ServiceUnit, UnitState
from bundlekeel.model.names import parse_bundle

Message = tuple[str, ServiceUnit | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """The broker that writes (another one than the owner, `target`, where one is needed) and its clock."""

    bundle: str
    target: str
    now_ms: int


def assign(entry: ServiceUnit | None, by: Writer) -> list[Message]:
    """Any broker asked for an unowned bundle gives it to the target."""
    if entry is not None and entry.state is not UnitState.FREE:
        return []
    return [(by.bundle, _next(entry, UnitState.ASSIGNING, by, destination=by.target))]


def own(entry: ServiceUnit | None, by: Writer) -> list[Message]:
    """The destination takes the bundle that is assigned to it."""
    if entry is None or entry.state is not UnitState.ASSIGNING:
        return []
    return [(by.bundle, _next(entry, UnitState.OWNED, by, destination=entry.destination, source=entry.source))]


def transfer(entry: ServiceUnit | None, by: Writer) -> list[Message]:
    """The owner is asked to hand the bundle to the target."""
    if entry is None or entry.state is not UnitState.OWNED or entry.destination == by.target:
        return []
    return [(by.bundle, _next(entry, UnitState.RELEASING, by, destination=by.target, source=entry.destination))]


def unload(entry: ServiceUnit | None, by: Writer) -> list[Message]:
    """The owner is asked to give the bundle up."""
    if entry is None or entry.state is not UnitState.OWNED:
        return []
    return [(by.bundle, _next(entry, UnitState.RELEASING, by, source=entry.destination))]


def release(entry: ServiceUnit | None, by: Writer) -> list[Message]:
    """The source has closed the topics: on to the destination, or free."""
    if entry is None or entry.state is not UnitState.RELEASING:
        return []
    state = UnitState.ASSIGNING if entry.destination else UnitState.FREE
    return [(by.bundle, _next(entry, state, by, destination=entry.destination, source=entry.source))]


def split(entry: ServiceUnit | None, by: Writer) -> list[Message]:
    """The owner is asked to split the bundle in the middle."""
    if entry is None or entry.state is not UnitState.OWNED:
        return []
    children = {child.rpartition("/")[2]: "" for child in halves(by.bundle)}
    return [(by.bundle, _next(entry, UnitState.SPLITTING, by, source=entry.destination, children=children))]


def finish(entry: ServiceUnit | None, by: Writer) -> list[Message]:
    """The source owns both children, then deletes the parent."""
    if entry is None or entry.state is not UnitState.SPLITTING:
        return []
    child = replace(_next(None, UnitState.OWNED, by, destination=entry.source), version=1)
    deleted = _next(entry, UnitState.DELETED, by, destination=entry.destination, source=entry.source)
    return [*((name, child) for name in halves(by.bundle)), (by.bundle, deleted)]


def bury(entry: ServiceUnit | None, by: Writer) -> list[Message]:
    """The tombstone of an entry without owner."""
    if entry is None or entry.state not in (UnitState.FREE, UnitState.DELETED):
        return []
    return [(by.bundle, None)]


def override(entry: ServiceUnit | None, by: Writer) -> list[Message]:
    """The leader broker gives what a dead broker had to the target."""
    if entry is None or entry.state in (UnitState.FREE, UnitState.DELETED):
        return []
    if entry.state is UnitState.SPLITTING:
        unit = _next(entry, UnitState.SPLITTING, by, destination=entry.destination, source=by.target)
        return [(by.bundle, replace(unit, children=entry.children, force=True))]
    owner = entry.destination if entry.state is UnitState.OWNED else entry.source
    source = "" if owner == by.target else owner
    return [(by.bundle, replace(_next(entry, UnitState.OWNED, by, destination=by.target, source=source), force=True))]


def give_up(entry: ServiceUnit | None, by: Writer) -> list[Message]:
    """The leader broker has no broker to give the bundle to."""
    if entry is None or entry.state in (UnitState.FREE, UnitState.DELETED):
        return []
    owner = entry.destination if entry.state is UnitState.OWNED else entry.source
    return [(by.bundle, replace(_next(entry, UnitState.FREE, by, source=owner), force=True))]


Flow = Callable[[ServiceUnit | None, Writer], list[Message]]
FLOWS: Final[Mapping[str, Flow]] = {
    step.__name__: step for step in (assign, own, transfer, unload, release, split, finish, bury, override, give_up)
}


def halves(bundle: str) -> tuple[str, str]:
    """The two bundles that a split in the middle makes."""
    name = parse_bundle(bundle)
    middle = name.lower + (name.upper - name.lower) // 2
    return str(replace(name, upper=middle)), str(replace(name, lower=middle))


def _next(
    entry: ServiceUnit | None,
    state: UnitState,
    by: Writer,
    *,
    destination: str = "",
    source: str = "",
    children: Mapping[str, str] | None = None,
) -> ServiceUnit:
    version = 1 if entry is None else MIN_VERSION if entry.version == MAX_VERSION else entry.version + 1
    return ServiceUnit(
        state=state,
        destination=destination,
        source=source,
        children=children or {},
        timestamp_ms=by.now_ms,
        version=version,
    )
