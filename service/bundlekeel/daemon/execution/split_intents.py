"""Split intents and outcomes: announced before the call, settled by reading boundaries, never carried out again.

Like the intents of moves (daemon/execution/intents.py), in a tree of their own: what settles them is another question.
In extensible mode the ownership channel is read too: boundaries are stored while the split is still under way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import quote, unquote

import msgspec

from bundlekeel.codec import external_input
from bundlekeel.codec.report import is_bundle
from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.errors import CodecError, LeadershipLost, StoreError
from bundlekeel.core.model.names import namespace_of
from bundlekeel.core.splitting.children import SplitChildren, children_of
from bundlekeel.daemon.execution.intents import MARGIN_SECONDS, FirstSeen, check_times, is_over, since_first_sight
from bundlekeel.daemon.execution.move import MODULAR, MovePorts
from bundlekeel.ports import Document, DocumentChange

SPLITS: Final = "splits"
# Not this bundle's fault: it may be split as soon as splits may be made again.
_PASSING: Final = frozenset(
    {Code.PAUSED, Code.RECOMMEND_ONLY, Code.NOT_LEADER, Code.NOT_PERMITTED, Code.STOPPING, Code.FROZEN_INTENT}
)
# Another moment may do, but not every cycle: it is free to move meanwhile.
_BRIEF: Final = frozenset(
    {Code.STORE_UNAVAILABLE, Code.ADMIN_UNREACHABLE, Code.OWNER_CHANGED, Code.IN_TRANSIT, Code.NO_LOAD_DATA}
)
_BRIEF_SECONDS: Final = 60.0
SplitWord = Literal["done", "unknown", "refused"]


class SplitIntent(msgspec.Struct, frozen=True, kw_only=True):
    """A split about to be made. Times are wall milliseconds of the writer."""

    id: str
    bundle: str
    broker: str
    rule: str
    positions: tuple[int, ...]
    epoch: int
    member: str
    wall_ms: int
    deadline_ms: int
    cycle_id: str

    def encode(self) -> bytes:
        """The node's JSON."""
        return msgspec.json.encode(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitOutcome:
    """How a split ended. `done`: the namespace has the new boundaries. `unknown`: not settled by reading. `refused`:
    nothing happened, or the broker answered that it did nothing. `split` is known as soon as positions were found."""

    bundle: str
    broker: str
    rule: str
    outcome: SplitWord
    code: str = ""
    error: str = ""
    positions: tuple[int, ...] = ()
    split: SplitChildren | None = None
    started_wall_ms: int = 0
    ended_wall_ms: int = 0
    seconds: float = 0.0
    epoch: int = -1
    intent_id: str = ""
    cycle_id: str = ""

    @property
    def children(self) -> tuple[str, ...]:
        """The bundles that are there instead, in range order; none unless done."""
        return children_of(self.bundle, self.positions) if self.outcome == "done" else ()

    def rest_seconds(self, cool_down: float) -> float:
        """How long the bundle is not tried again: not at all, a minute, or (always when unknown) the cool-down."""
        if self.outcome == "done" or (self.outcome == "refused" and self.code in _PASSING):
            return 0.0
        return min(_BRIEF_SECONDS, cool_down) if self.outcome == "refused" and self.code in _BRIEF else cool_down

    def record(self) -> dict[str, Any]:
        """The journal line."""
        result = f"into {len(self.children)}: {', '.join(self.children)}" if self.children else self.error or self.code
        return {
            "kind": "split",
            "wall_ms": self.ended_wall_ms or self.started_wall_ms,
            "bundle": self.bundle,
            "broker": self.broker,
            "rule": self.rule,
            "outcome": self.outcome,
            "code": self.code,
            "error": self.error,
            "positions": list(self.positions),
            "children": list(self.children),
            "started_ms": self.started_wall_ms,
            "seconds": round(self.seconds, 3),
            "epoch": self.epoch,
            "intent": self.intent_id,
            "cycle": self.cycle_id,
            "sentence": f"{self.bundle}: split ({self.rule}) {self.outcome}, {result}",
        }


def split_path(bundle: str) -> str:
    """The node of a bundle's split intent; the name is percent-encoded because it holds slashes."""
    return f"{SPLITS}/{quote(bundle, safe='')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitProgress:
    """How far a split is seen: `divided`: the namespace has the new boundaries. `unfinished`: what the ownership
    channel still shows otherwise, the parent owned or a child owned by no broker; always empty in modular mode."""

    divided: bool
    unfinished: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Nothing is left to wait for."""
        return self.divided and not self.unfinished


async def read_division(ports: MovePorts, bundle: str, positions: Sequence[int]) -> SplitProgress:
    """Look at boundaries and, unless all brokers are modular, owners. StoreError, CodecError when they cannot be read.

    A child may have moved on already, so it may be owned by any broker.
    """
    edges = await ports.metadata.boundaries(namespace_of(bundle))
    if edges is None or not set(positions) <= set(edges):
        return SplitProgress(divided=False)
    if ports.mode() == MODULAR:
        return SplitProgress(divided=True)
    unfinished = []
    if await ports.ownership.owner(bundle) is not None:
        unfinished.append(bundle)
    for child in children_of(bundle, positions):
        owner = await ports.ownership.owner(child)
        if owner is None or owner.disabled:
            unfinished.append(child)
    return SplitProgress(divided=True, unfinished=tuple(unfinished))


async def settle_splits(
    ports: MovePorts, *, epoch: int, seen: FirstSeen, margin_seconds: float = MARGIN_SECONDS
) -> tuple[frozenset[str], list[SplitOutcome], dict[str, str]]:
    """Look at the split intents of other epochs: the bundles to leave alone for now, those settled just now, and the
    nodes that could not be read (path -> why).

    A division that is complete settles it at once. Else the call may still be on its way until the intent's deadline
    and a margin have passed (`seen` as in `settle_intents`); then the boundaries decide. LeadershipLost ends it.
    """
    frozen: set[str] = set()
    settled: list[SplitOutcome] = []
    unreadable: dict[str, str] = {}
    for document in await ports.coordination.read_tree(SPLITS):
        bundle, intent = unquote(document.path.rpartition("/")[2]), None
        try:
            intent = decode_split(document, bundle)
        except CodecError as error:
            unreadable[document.path] = str(error)
        if intent is not None and intent.epoch == epoch:
            continue
        if not is_bundle(bundle):
            unreadable[document.path] = "its name is that of no bundle"
            continue
        waited = since_first_sight(seen, document, ports.clock)
        try:
            found = SplitProgress(divided=False)
            if intent is not None:
                found = await read_division(ports, bundle, intent.positions)
            if not found.complete and not is_over(intent, waited, margin_seconds):
                frozen.add(bundle)
                continue
            removal = DocumentChange(path=document.path, data=None, version=document.version)
            await ports.coordination.write_fenced(epoch, [removal])
        except LeadershipLost:
            raise
        except (StoreError, CodecError):
            frozen.add(bundle)
            continue
        settled.append(_settled(intent, bundle, done=found.divided, epoch=epoch, now_ms=ports.clock.wall_ms()))
    return frozenset(frozen), settled, unreadable


def _settled(intent: SplitIntent | None, bundle: str, *, done: bool, epoch: int, now_ms: int) -> SplitOutcome:
    return SplitOutcome(
        bundle=bundle,
        broker=intent.broker if intent else "",
        rule=intent.rule if intent else "",
        outcome="done" if done else "unknown",
        code="" if done else Code.LEFT_BY_EARLIER_LEADER,
        error=f"left open by epoch {intent.epoch}" if intent else "the intent could not be read",
        positions=intent.positions if intent else (),
        started_wall_ms=intent.wall_ms if intent else 0,
        ended_wall_ms=now_ms,
        epoch=epoch,
        intent_id=intent.id if intent else "",
        cycle_id=intent.cycle_id if intent else "",
    )


def decode_split(document: Document, bundle: str) -> SplitIntent:
    """CodecError for anything a leader would not have written."""
    found = external_input.read(document.data, SplitIntent, what=document.path, exact=True)
    check_times(found, document.path)
    try:
        children_of(bundle, found.positions)
    except ValueError as error:
        raise external_input.unreadable(document.path, error, code=Code.WRONG_TYPE) from None
    return found
