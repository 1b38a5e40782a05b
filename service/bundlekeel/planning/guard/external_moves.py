"""External moves: bundles that changed their owner, although neither Bundlekeel moved them nor a broker failed. Pure.

An operator who unloads a bundle, another tool or a second balancer causes them. Such a bundle does not move during its
cool-down. If Bundlekeel's own moves are undone repeatedly, a second balancer is active, and nothing moves for
`REST_MS`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from bundlekeel.model.snapshot import Snapshot

# If moves are undone at this many different times within `UNDONE_MS`, nothing moves for `REST_MS`. All moves that are
# undone within `ROUND_MS` count once, because an operator may unload a whole namespace.
UNDONE_LIMIT: Final = 3
UNDONE_MS: Final = 600_000
ROUND_MS: Final = 60_000
REST_MS: Final = 1_800_000
# If no broker owns a bundle for longer, a new owner is not an external move.
FORGET_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """The last move of a bundle by Bundlekeel: source, target, and time (ms)."""

    source: str
    landed_on: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalMove:
    """A move by an operator, a broker or another tool. `undone`: it undoes a move by Bundlekeel."""

    bundle: str
    source: str
    target: str
    at_ms: int
    undone: bool = False

    def record(self) -> dict[str, Any]:
        """Return the move as a record of the journal."""
        what = "undid Bundlekeel's move of" if self.undone else "moved"
        return {
            "kind": "external_move",
            "wall_ms": self.at_ms,
            "bundle": self.bundle,
            "source": self.source,
            "destination": self.target,
            "undone": self.undone,
            "sentence": f"another tool {what} {self.bundle}: {self.source} -> {self.target}; it is not moved for now",
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalMoves:
    """Bundlekeel's moves that others undid, stored for the next leader.

    `undone`: bundles of these moves, with the time (ms). `rest_until_ms`: nothing moves before this time.
    """

    undone: tuple[tuple[str, int], ...] = ()
    rest_until_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenOwners:
    """Owners in earlier snapshots.

    `owners`: by bundle, its last owner and when a report last showed it (ms). `starts`: by broker, its start time (ms).
    """

    owners: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    starts: Mapping[str, int] = field(default_factory=dict)


def look(
    before: SeenOwners,
    snapshot: Snapshot,
    starts: Mapping[str, int],
    landings: Mapping[str, Landing],
    unsettled: Collection[str],
) -> tuple[SeenOwners, tuple[ExternalMove, ...]]:
    """Compare the owners in this snapshot with earlier ones; return the new owners and the external moves.

    `starts`: start times of the registered brokers. `landings`: Bundlekeel's last moves by bundle. `unsettled`: bundles
    to skip, because the reports do not show their last move yet.
    """
    now_ms, table, ids = snapshot.wall_ms, snapshot.bundles, snapshot.brokers.ids
    reported = dict(zip(ids, snapshot.brokers.last_update.tolist(), strict=True))
    steady = {broker for broker, start in starts.items() if before.starts.get(broker) == start}
    owners = {name: last for name, last in before.owners.items() if now_ms - last[1] < FORGET_MS}
    changes = []
    for name, row in zip(table.names, table.owner.tolist(), strict=True):
        owner, last = ids[row], owners.get(name)
        if last is not None and last[0] == owner and name not in landings:
            owners[name] = (owner, now_ms)
            continue
        if name in unsettled:
            continue
        ours = landings.get(name)
        if ours is not None and reported.get(owner, 0) <= ours.at_ms:
            continue  # The report is older than the move.
        if ours is not None and (last is None or ours.at_ms >= last[1]):
            last = (ours.landed_on, ours.at_ms)
        if last is not None and last[0] != owner and last[0] in steady:
            undone = ours is not None and (ours.landed_on, ours.source) == (last[0], owner)
            changes.append(ExternalMove(bundle=name, source=last[0], target=owner, at_ms=now_ms, undone=undone))
        owners[name] = (owner, now_ms)
    return SeenOwners(owners=owners, starts=dict(starts)), tuple(changes)


def apart_from(changes: Collection[ExternalMove], draining: Collection[str]) -> tuple[ExternalMove, ...]:
    """Return the external moves; those to a draining broker do not count as undoing a move by Bundlekeel.

    Pulsar's placement prefers an empty broker, so released bundles return to it repeatedly.
    """
    return tuple(replace(item, undone=item.undone and item.target not in draining) for item in changes)


def noted(book: ExternalMoves, changes: Collection[ExternalMove], now_ms: int) -> ExternalMoves:
    """Add external moves to the records. Enough undone moves within `UNDONE_MS` stop all moves for `REST_MS`."""
    fresh = tuple((change.bundle, change.at_ms) for change in changes if change.undone)
    undone = tuple(item for item in (*book.undone, *fresh) if now_ms - item[1] < UNDONE_MS)
    if fresh and _rounds(undone) >= UNDONE_LIMIT:
        return ExternalMoves(undone=undone, rest_until_ms=now_ms + REST_MS)
    return replace(book, undone=undone) if undone != book.undone else book


def _rounds(undone: Collection[tuple[str, int]]) -> int:
    """Return how often moves were undone; all within `ROUND_MS` count once."""
    count, last = 0, -ROUND_MS
    for at in sorted(at for _, at in undone):
        if at - last >= ROUND_MS:
            count, last = count + 1, at
    return count
