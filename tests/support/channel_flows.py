"""Messages of the ownership channel as brokers write them: each flow of PIP-192, step by step.

A step gets the entry that its writer has read, which can be outdated. It returns the messages that the writer
publishes, or nothing if the step does not apply to this entry.
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
    """The broker that writes, another broker (`target`) for steps that need a destination, and the writer's clock."""

    bundle: str
    target: str
    now_ms: int


def assign(entry: ServiceUnit | None, by: Writer) -> list[Message]:
    """Assign an unowned bundle to the target, as any broker does after a lookup."""
    if entry is not None and entry.state is not UnitState.FREE:
        return []
    return [(by.bundle, _next(entry, UnitState.ASSIGNING, by, destination=by.target))]


def own(entry: ServiceUnit | None, by: Writer) -> list[Message]:
    """Become the owner of an assigned bundle, as the destination does."""
    if entry is None or entry.state is not UnitState.ASSIGNING:
        return []
    return [(by.bundle, _next(entry, UnitState.OWNED, by, destination=entry.destination, source=entry.source))]


def transfer(entry: ServiceUnit | None, by: Writer) -> list[Message]:
    """Request that the owner transfers the bundle to the target."""
    if entry is None or entry.state is not UnitState.OWNED or entry.destination == by.target:
        return []
    return [(by.bundle, _next(entry, UnitState.RELEASING, by, destination=by.target, source=entry.destination))]


def unload(entry: ServiceUnit | None, by: Writer) -> list[Message]:
    """Request that the owner releases the bundle."""
    if entry is None or entry.state is not UnitState.OWNED:
        return []
    return [(by.bundle, _next(entry, UnitState.RELEASING, by, source=entry.destination))]


def release(entry: ServiceUnit | None, by: Writer) -> list[Message]:
    """Complete a release after the source closed the topics: assign the destination, or make the bundle free."""
    if entry is None or entry.state is not UnitState.RELEASING:
        return []
    state = UnitState.ASSIGNING if entry.destination else UnitState.FREE
    return [(by.bundle, _next(entry, state, by, destination=entry.destination, source=entry.source))]


def split(entry: ServiceUnit | None, by: Writer) -> list[Message]:
    """Request that the owner splits the bundle in the middle."""
    if entry is None or entry.state is not UnitState.OWNED:
        return []
    children = {child.rpartition("/")[2]: "" for child in halves(by.bundle)}
    return [(by.bundle, _next(entry, UnitState.SPLITTING, by, source=entry.destination, children=children))]


def finish(entry: ServiceUnit | None, by: Writer) -> list[Message]:
    """Complete a split: own both children, then delete the parent."""
    if entry is None or entry.state is not UnitState.SPLITTING:
        return []
    child = replace(_next(None, UnitState.OWNED, by, destination=entry.source), version=1)
    deleted = _next(entry, UnitState.DELETED, by, destination=entry.destination, source=entry.source)
    return [*((name, child) for name in halves(by.bundle)), (by.bundle, deleted)]


def bury(entry: ServiceUnit | None, by: Writer) -> list[Message]:
    """Publish the tombstone of an entry without an owner."""
    if entry is None or entry.state not in (UnitState.FREE, UnitState.DELETED):
        return []
    return [(by.bundle, None)]


def override(entry: ServiceUnit | None, by: Writer) -> list[Message]:
    """Give a dead broker's bundle to the target, as the leader broker does."""
    if entry is None or entry.state in (UnitState.FREE, UnitState.DELETED):
        return []
    if entry.state is UnitState.SPLITTING:
        unit = _next(entry, UnitState.SPLITTING, by, destination=entry.destination, source=by.target)
        return [(by.bundle, replace(unit, children=entry.children, force=True))]
    owner = entry.destination if entry.state is UnitState.OWNED else entry.source
    source = "" if owner == by.target else owner
    return [(by.bundle, replace(_next(entry, UnitState.OWNED, by, destination=by.target, source=source), force=True))]


def give_up(entry: ServiceUnit | None, by: Writer) -> list[Message]:
    """Make a dead broker's bundle free, as the leader broker does if no broker can take it."""
    if entry is None or entry.state in (UnitState.FREE, UnitState.DELETED):
        return []
    owner = entry.destination if entry.state is UnitState.OWNED else entry.source
    return [(by.bundle, replace(_next(entry, UnitState.FREE, by, source=owner), force=True))]


Flow = Callable[[ServiceUnit | None, Writer], list[Message]]
FLOWS: Final[Mapping[str, Flow]] = {
    step.__name__: step for step in (assign, own, transfer, unload, release, split, finish, bury, override, give_up)
}


def halves(bundle: str) -> tuple[str, str]:
    """Return the two bundles that result from a split in the middle."""
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
