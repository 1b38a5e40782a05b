"""The ownership channel of the extensible load manager (PIP-192): states of service units, and the resulting owners.

Many brokers write to the channel in parallel, and all read it by the same rule. A later message counts only if it is a
valid successor of the current state. During a race, a reader that simply used the last message would see another owner
than the brokers see. `should_keep_left` is that rule, and `ChannelTable` contains the resulting states.

Source: Pulsar `ServiceUnitState`, `ServiceUnitStateData`, `ServiceUnitStateDataConflictResolver`,
`ServiceUnitStateChannelImpl`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple


class UnitState(StrEnum):
    """State of a bundle in the channel, as in Pulsar's `ServiceUnitState`. A bundle without an entry is in `Init`."""

    INIT = "Init"
    FREE = "Free"
    OWNED = "Owned"
    ASSIGNING = "Assigning"
    RELEASING = "Releasing"
    SPLITTING = "Splitting"
    DELETED = "Deleted"


IN_FLIGHT = frozenset({UnitState.ASSIGNING, UnitState.RELEASING, UnitState.SPLITTING})
ACTIVE: Final = IN_FLIGHT | {UnitState.OWNED}

MIN_VERSION: Final = -(2**63)
MAX_VERSION: Final = 2**63 - 1
# Maximum number of stored rejected messages, which show that brokers wrote at the same time.
MAX_REJECTED: Final = 100

_Transitions = Mapping[UnitState, frozenset[UnitState]]
OVER_METADATA_STORE: Final[_Transitions] = {
    UnitState.INIT: frozenset({UnitState.ASSIGNING}),
    UnitState.FREE: frozenset({UnitState.ASSIGNING}),
    UnitState.OWNED: frozenset({UnitState.SPLITTING, UnitState.RELEASING}),
    UnitState.ASSIGNING: frozenset({UnitState.OWNED}),
    UnitState.RELEASING: frozenset({UnitState.ASSIGNING, UnitState.FREE}),
    UnitState.SPLITTING: frozenset({UnitState.DELETED}),
    UnitState.DELETED: frozenset({UnitState.INIT}),
}
# A compacted topic can begin in the middle of an assignment, a transfer or a split, so any state can be the first one.
OVER_SYSTEM_TOPIC: Final[_Transitions] = {
    **OVER_METADATA_STORE,
    UnitState.INIT: frozenset(UnitState) - {UnitState.INIT},
    UnitState.FREE: frozenset({UnitState.ASSIGNING, UnitState.INIT}),
}

# Characters for which Java's Character.isWhitespace is true. Python's str.strip() also removes non-breaking spaces.
_BLANKS: Final = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2008\u2009\u200a"
    "\u2028\u2029\u205f\u3000"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceUnit:
    """Entry of one bundle in the channel (`ServiceUnitStateData`).

    `destination`, `source`: broker ids or "". `children`: hash range of each child -> broker or "", only in state
    Splitting. `timestamp_ms`: by the writer's clock. `version`: starts at 1.
    """

    state: UnitState
    destination: str = ""
    source: str = ""
    children: Mapping[str, str] = field(default_factory=dict)
    force: bool = False
    timestamp_ms: int = 0
    version: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedUnit:
    """A message of the channel that Pulsar's conflict resolver rejected. `wall_ms`: when it arrived here, Unix ms."""

    bundle: str
    unit: ServiceUnit
    wall_ms: int


class UnitOwner(NamedTuple):
    """The broker to which lookups send a bundle's clients.

    `broker_id`: "" after an unload, until the bundle has a new owner. `in_transit`: the bundle is being moved or split.
    """

    broker_id: str
    in_transit: bool


def owner_of(unit: ServiceUnit | None) -> UnitOwner | None:
    """Return the owner of a bundle from its channel entry, as lookups do (`ServiceUnitStateChannelImpl.getOwnerAsync`).

    State Owned: the destination. Splitting: the source, which continues to serve. Assigning and Releasing: the
    destination, because clients are sent there to wait; `unit.source` can still serve until Owned arrives. The broker
    is "" for an unload (Releasing without destination). Returns None without an entry, and for Free or Deleted. Whether
    the broker is alive is not checked.
    """
    if unit is None or unit.state not in ACTIVE:
        return None
    if unit.state is UnitState.SPLITTING:
        return UnitOwner(unit.source, True)
    return UnitOwner(unit.destination, unit.state is not UnitState.OWNED)


def should_keep_left(current: ServiceUnit | None, new: ServiceUnit | None, *, store: bool) -> bool:
    """Return whether a new message is rejected, so that the current entry of the bundle stays.

    This is `ServiceUnitStateDataConflictResolver.shouldKeepLeft`. `current` None: no entry. `new` None: a tombstone.
    `store`: use the rules of the metadata-store variant, whose writer checks before each write. Otherwise use the rules
    of the system topic, where every reader checks.
    """
    if new is None:
        return False
    decided = _by_version(current, new, store=store)
    if decided is not None:
        return decided
    if new.force:
        return False
    allowed = OVER_METADATA_STORE if store else OVER_SYSTEM_TOPIC
    if new.state not in allowed[UnitState.INIT if current is None else current.state]:
        return True
    return current is not None and _brokers_disagree(current, new)


def _by_version(current: ServiceUnit | None, new: ServiceUnit, *, store: bool) -> bool | None:
    """Return whether the versions alone reject `new`; None if they allow it and its state must be checked, too."""
    if current is None:
        # With the metadata store, Java decides here: a first version is accepted in any state.
        return new.version != 1 if store else None
    if current.version == MAX_VERSION and new.version == MIN_VERSION:
        return None
    if current.version >= new.version:
        return True
    # A gap in the versions: compaction of the topic removed messages. A metadata store has no gaps.
    return store if current.version < new.version - 1 else None


def _brokers_disagree(current: ServiceUnit, new: ServiceUnit) -> bool:
    """Return whether `new`, whose state may follow that of `current`, names brokers that contradict `current`."""
    match current.state, new.state:
        case UnitState.OWNED, UnitState.SPLITTING:
            return not _blank(new.destination) or current.destination != new.source
        case UnitState.OWNED, UnitState.RELEASING:
            return _blank(new.source) or current.destination != new.source or current.destination == new.destination
        case UnitState.FREE, UnitState.ASSIGNING:
            return not _blank(new.source) or _blank(new.destination)
        case UnitState.RELEASING, UnitState.ASSIGNING:
            return _blank(new.destination) or _changed(current, new)
        case ((UnitState.ASSIGNING | UnitState.RELEASING | UnitState.SPLITTING), _):
            return _changed(current, new)
        case _:  # after Init and Deleted no broker is checked
            return False


def _changed(current: ServiceUnit, new: ServiceUnit) -> bool:
    return current.destination != new.destination or current.source != new.source


def _blank(broker: str) -> bool:
    return not broker.strip(_BLANKS)


class ChannelTable:
    """The current entry of each bundle, as every broker derives it from the channel.

    Copy the dictionaries before you pass them on.

    `units`: entry by bundle. `seen_ms`: when the current entry of a bundle arrived here, Unix ms. `rejected`: messages
    that the conflict resolver rejected, oldest first.
    """

    def __init__(self, *, store: bool = False) -> None:
        """Start without entries. `store`: use the rules of the metadata-store variant."""
        self.units: dict[str, ServiceUnit] = {}
        self.seen_ms: dict[str, int] = {}
        self.rejected: deque[RejectedUnit] = deque(maxlen=MAX_REJECTED)
        self._store = store

    def apply(self, bundle: str, unit: ServiceUnit | None, wall_ms: int) -> bool:
        """Apply one message (`unit` None: a tombstone). Return False if it is rejected; it is then in `rejected`."""
        current = self.units.get(bundle)
        if unit is not None and should_keep_left(current, unit, store=self._store):
            # An entry that is read again after a reader restarted is not a conflict.
            if unit != current:
                self.rejected.append(RejectedUnit(bundle=bundle, unit=unit, wall_ms=wall_ms))
            return False
        self.replace(bundle, unit, wall_ms)
        return True

    def replace(self, bundle: str, unit: ServiceUnit | None, wall_ms: int) -> None:
        """Set the current entry without a check, for a metadata store: its writers have already resolved conflicts.

        A reader of a metadata store can miss versions, which is not a conflict.
        """
        if unit is None:
            self.units.pop(bundle, None)
            self.seen_ms.pop(bundle, None)
        elif self.units.get(bundle) != unit:
            self.units[bundle] = unit
            self.seen_ms[bundle] = wall_ms
