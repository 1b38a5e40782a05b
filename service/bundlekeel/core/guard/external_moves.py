"""External moves: bundles that changed their owner without a move of ours and without a broker's death. Pure.

They come from a person who unloads a bundle, another tool or a second balancer. Such a bundle is not moved during its
cool-down. When our own moves are undone again and again, there is a second balancer: then nothing moves for a while.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from bundlekeel.core.model.snapshot import Snapshot

# Moves of ours undone at so many times within the window are no accident; then nothing moves for the rest. What is
# undone within a minute counts once: a person who unloads a whole namespace is no balancer.
UNDONE_LIMIT: Final = 3
UNDONE_MS: Final = 600_000
ROUND_MS: Final = 60_000
REST_MS: Final = 1_800_000
# A bundle that no broker owns for longer may come back anywhere.
FORGET_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """Where the last move of ours put a bundle, where it came from, and when (ms)."""

    source: str
    landed_on: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalMove:
    """A bundle that somebody else moved from `source` to `target`. `undone`: it takes back a move of ours."""

    bundle: str
    source: str
    target: str
    at_ms: int
    undone: bool = False

    def record(self) -> dict[str, Any]:
        """The journal line."""
        what = "took back our move of" if self.undone else "moved"
        return {
            "kind": "external_move",
            "wall_ms": self.at_ms,
            "bundle": self.bundle,
            "source": self.source,
            "destination": self.target,
            "undone": self.undone,
            "sentence": f"somebody else {what} {self.bundle}: {self.source} -> {self.target}; it is not moved for now",
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalMoves:
    """External moves that a new leader must know. `undone`: bundles taken back and when; `rest_until_ms`: nothing moves
    before.
    """

    undone: tuple[tuple[str, int], ...] = ()
    rest_until_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenOwners:
    """What one sidecar saw: by bundle its owner and when that was, by broker when it started."""

    owners: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    starts: Mapping[str, int] = field(default_factory=dict)


def look(
    seen: SeenOwners,
    snapshot: Snapshot,
    starts: Mapping[str, int],
    landings: Mapping[str, Landing],
    unsettled: Collection[str],
) -> tuple[SeenOwners, tuple[ExternalMove, ...]]:
    """Compare with what was seen before. `starts`: registered brokers; `unsettled`: bundles whose moves the reports do
    not show yet, left for later."""
    now_ms, table, ids = snapshot.wall_ms, snapshot.bundles, snapshot.brokers.ids
    reported = dict(zip(ids, snapshot.brokers.last_update.tolist(), strict=True))
    steady = {broker for broker, start in starts.items() if seen.starts.get(broker) == start}
    owners = {name: known for name, known in seen.owners.items() if now_ms - known[1] < FORGET_MS}
    changes = []
    for name, row in zip(table.names, table.owner.tolist(), strict=True):
        owner, known = ids[row], owners.get(name)
        if known is not None and known[0] == owner and name not in landings:
            owners[name] = (owner, now_ms)
            continue
        if name in unsettled:
            continue
        ours = landings.get(name)
        if ours is not None and reported.get(owner, 0) <= ours.at_ms:
            continue  # the report is older than the move
        if ours is not None and (known is None or ours.at_ms >= known[1]):
            known = (ours.landed_on, ours.at_ms)
        if known is not None and known[0] != owner and known[0] in steady:
            undone = ours is not None and (ours.landed_on, ours.source) == (known[0], owner)
            changes.append(ExternalMove(bundle=name, source=known[0], target=owner, at_ms=now_ms, undone=undone))
        owners[name] = (owner, now_ms)
    return SeenOwners(owners=owners, starts=dict(starts)), tuple(changes)


def apart_from(changes: Collection[ExternalMove], draining: Collection[str]) -> tuple[ExternalMove, ...]:
    """The changes; those that end at a draining broker do not count as undone: Pulsar's placement prefers an empty
    broker, so released bundles come back there again and again."""
    return tuple(replace(item, undone=item.undone and item.target not in draining) for item in changes)


def noted(book: ExternalMoves, changes: Collection[ExternalMove], now_ms: int) -> ExternalMoves:
    """The book with these changes; several undone within the window mean a rest."""
    fresh = tuple((change.bundle, change.at_ms) for change in changes if change.undone)
    undone = tuple(item for item in (*book.undone, *fresh) if now_ms - item[1] < UNDONE_MS)
    if fresh and _rounds(undone) >= UNDONE_LIMIT:
        return ExternalMoves(undone=undone, rest_until_ms=now_ms + REST_MS)
    return replace(book, undone=undone) if undone != book.undone else book


def _rounds(undone: Collection[tuple[str, int]]) -> int:
    """At how many different times something was undone."""
    count, last = 0, -ROUND_MS
    for at in sorted(at for _, at in undone):
        if at - last >= ROUND_MS:
            count, last = count + 1, at
    return count
