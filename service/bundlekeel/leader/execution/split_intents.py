"""Intents of splits (records that are written before the call to the broker), and outcomes of splits.

They work like the intents of moves (leader/execution/intents.py), but are stored in a separate tree. The next leader
settles an open intent by reading the namespace's boundaries, and never executes it again. In extensible mode the
ownership channel is read too, because brokers store the boundaries before the split has finished.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import quote, unquote

import msgspec

from bundlekeel.leader.execution.intents import MARGIN_SECONDS, FirstSeen, check_times, is_over, since_first_sight
from bundlekeel.leader.execution.move import MODULAR, MovePorts
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import CodecError, LeadershipLost, StoreError
from bundlekeel.model.names import namespace_of
from bundlekeel.planning.splitting.children import SplitChildren, children_of
from bundlekeel.ports import Document, DocumentChange
from bundlekeel.pulsar.formats import external_input
from bundlekeel.pulsar.formats.report import is_bundle

SPLITS: Final = "splits"
# Reasons outside of the bundle: it may be split as soon as splits are possible again.
_PASSING: Final = frozenset(
    {Code.PAUSED, Code.RECOMMEND_ONLY, Code.NOT_LEADER, Code.NOT_PERMITTED, Code.STOPPING, Code.FROZEN_INTENT}
)
# A later attempt may succeed, but not in every cycle. The bundle may move in the meantime.
_BRIEF: Final = frozenset(
    {Code.STORE_UNAVAILABLE, Code.ADMIN_UNREACHABLE, Code.OWNER_CHANGED, Code.IN_TRANSIT, Code.NO_LOAD_DATA}
)
_BRIEF_SECONDS: Final = 60.0
SplitWord = Literal["done", "unknown", "refused"]


class SplitIntent(msgspec.Struct, frozen=True, kw_only=True):
    """A planned split, as stored. Times are Unix milliseconds of the writer's clock."""

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
        """Return the content of the intent's node, as JSON."""
        return msgspec.json.encode(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitOutcome:
    """How a split ended. `done`: the namespace has the new boundaries. `unknown`: the boundaries could not be read, or
    the split is unfinished. `refused`: the broker did nothing. `split` is set when the positions are computed."""

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
        """The new bundles in range order; empty if the split is not done."""
        return children_of(self.bundle, self.positions) if self.outcome == "done" else ()

    def rest_seconds(self, cool_down: float) -> float:
        """Return the seconds until the bundle may be split again: 0, 60 or `cool_down`.

        After a split with unknown outcome it is always `cool_down`."""
        if self.outcome == "done" or (self.outcome == "refused" and self.code in _PASSING):
            return 0.0
        return min(_BRIEF_SECONDS, cool_down) if self.outcome == "refused" and self.code in _BRIEF else cool_down

    def record(self) -> dict[str, Any]:
        """Return the journal record of the split."""
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
    """Return the node path of a bundle's split intent. The name is percent-encoded because it contains slashes."""
    return f"{SPLITS}/{quote(bundle, safe='')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitProgress:
    """Progress of a split. `divided`: the namespace has the new boundaries. `unfinished`: bundles that the ownership
    channel does not show as split yet (parent with an owner, child without one); always empty in modular mode."""

    divided: bool
    unfinished: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether the split has finished."""
        return self.divided and not self.unfinished


async def read_division(ports: MovePorts, bundle: str, positions: Sequence[int]) -> SplitProgress:
    """Return the progress of a split, from the boundaries and, in extensible mode, the owners of the new bundles.

    A new bundle may have moved already, so any broker may own it. Raises StoreError or CodecError if unreadable."""
    edges = await ports.metadata.boundaries(namespace_of(bundle))
    if edges is None or not set(positions) <= set(edges):
        return SplitProgress(divided=False)
    if ports.load_manager() == MODULAR:
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
    ports: MovePorts, *, epoch: int, first_seen: FirstSeen
) -> tuple[frozenset[str], list[SplitOutcome], dict[str, str]]:
    """Determine the outcomes of splits that other epochs (leader terms) left open, and remove their intents.

    Returns the bundles that must not change yet, the outcomes, and unreadable nodes (path -> reason). A complete split
    settles its intent immediately. Otherwise the call may still arrive until the intent's deadline and a margin have
    passed (`first_seen` as in `settle_intents`); then the boundaries decide. Raises LeadershipLost if the term ends."""
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
            unreadable[document.path] = "its name is not a bundle name"
            continue
        waited = since_first_sight(first_seen, document, ports.clock)
        try:
            progress = SplitProgress(divided=False)
            if intent is not None:
                progress = await read_division(ports, bundle, intent.positions)
            if not progress.complete and not is_over(intent, waited, MARGIN_SECONDS):
                frozen.add(bundle)
                continue
            removal = DocumentChange(path=document.path, data=None, version=document.version)
            await ports.coordination.write_fenced(epoch, [removal])
        except LeadershipLost:
            raise
        except (StoreError, CodecError):
            frozen.add(bundle)
            continue
        settled.append(_settled(intent, bundle, done=progress.divided, epoch=epoch, now_ms=ports.clock.wall_ms()))
    return frozenset(frozen), settled, unreadable


def _settled(intent: SplitIntent | None, bundle: str, *, done: bool, epoch: int, now_ms: int) -> SplitOutcome:
    return SplitOutcome(
        bundle=bundle,
        broker=intent.broker if intent else "",
        rule=intent.rule if intent else "",
        outcome="done" if done else "unknown",
        code="" if done else Code.LEFT_BY_EARLIER_LEADER,
        error=f"left unfinished by the leader of epoch {intent.epoch}" if intent else "the intent could not be read",
        positions=intent.positions if intent else (),
        started_wall_ms=intent.wall_ms if intent else 0,
        ended_wall_ms=now_ms,
        epoch=epoch,
        intent_id=intent.id if intent else "",
        cycle_id=intent.cycle_id if intent else "",
    )


def decode_split(document: Document, bundle: str) -> SplitIntent:
    """Return the split intent in a node. Raises CodecError for content that no leader writes."""
    intent = external_input.read(document.data, SplitIntent, what=document.path, exact=True)
    check_times(intent, document.path)
    try:
        children_of(bundle, intent.positions)
    except ValueError as error:
        raise external_input.unreadable(document.path, error, code=Code.WRONG_TYPE) from None
    return intent
