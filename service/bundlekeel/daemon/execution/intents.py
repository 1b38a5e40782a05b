"""Intents: what a leader is about to do with a bundle, written before it does it, and how a successor settles them.

The admin API takes no fencing token, so an unload of a deposed leader may still be on its way. Its intent, a node
below `intents/`, keeps the next leader from moving that bundle until the call has done its work (the destination
owns the bundle) or must be over (deadline and margin), and then who owns it is the outcome. An intent is never carried
out again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol
from urllib.parse import quote, unquote

import msgspec

from bundlekeel.codec import external_input
from bundlekeel.codec.report import is_bundle
from bundlekeel.core.model.codes import Code, OutcomeWord
from bundlekeel.core.model.errors import CodecError, LeadershipLost, StoreError
from bundlekeel.core.model.migration import NO_MIGRATION, StoreMigration
from bundlekeel.ports import Clock, Coordination, Document, DocumentChange, Owner, Ownership

INTENTS: Final = "intents"
INTENT_SECONDS: Final = 120.0
LONGEST_MS: Final = 86_400_000
MARGIN_SECONDS: Final = 15.0
# By then the brokers' leader has ended a transfer that got stuck: its monitor looks every 60 s for what is in flight
# for more than 30 s, after 180 s without trouble with its own session.
IN_FLIGHT_SECONDS: Final = 300.0

# What a plan predicted for a move: scores (ratios) of its two brokers.
PREDICTED: Final = ("source_before", "source_after", "target_before", "target_after")


class Intent(msgspec.Struct, frozen=True, kw_only=True, rename={"source": "from", "destination": "to"}):
    """A move about to be made. Times are wall milliseconds of the writer; `version` is that of its node."""

    id: str
    bundle: str
    source: str
    destination: str
    epoch: int
    member: str
    wall_ms: int
    deadline_ms: int
    cycle_id: str
    topic: str

    @property
    def path(self) -> str:
        """The node of this intent; one bundle has at most one."""
        return intent_path(self.bundle)

    def encode(self) -> bytes:
        """The node's JSON."""
        return msgspec.json.encode(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveOutcome:
    """How a move ended. `done`: the destination owns the bundle. `landed_elsewhere`: another broker does, the source
    included. `released`: no broker does, and as the bundle has no topics none will before a client connects. `unknown`:
    not settled by reading. `refused`: provably nothing happened.

    `code` is empty when done; `landed_wall_ms` is when the owner was seen, 0 when none was; `hops` are the brokers
    the unload went through; `seconds` counts from admission to the outcome, `moving_seconds` from the intent on,
    without the wait for a slot. `predicted`: scores of source and target, before and after, as the plan had them.
    """

    bundle: str
    source: str
    destination: str
    outcome: OutcomeWord
    code: str = ""
    error: str = ""
    landed_on: str = ""
    started_wall_ms: int = 0
    landed_wall_ms: int = 0
    seconds: float = 0.0
    hops: tuple[str, ...] = ()
    topic: str = ""
    epoch: int = -1
    intent_id: str = ""
    cycle_id: str = ""
    moving_seconds: float = 0.0
    predicted: tuple[float, ...] = ()

    def unless_stale(self, code: Code | None) -> MoveOutcome:
        """The outcome, or an unknown one with `code` if the store that shows it is stale. A destination that owns the
        bundle wrote that itself, and a refusal is not read from the store."""
        if code is None or self.outcome in ("done", "refused"):
            return self
        return replace(self, outcome="unknown", code=code, landed_on="", landed_wall_ms=0)

    def record(self) -> dict[str, Any]:
        """The journal line."""
        # Where nothing happened, the owner is the source; a stale store does not show it.
        hidden = self.outcome == "refused" or self.code in (Code.STORE_MIGRATING, Code.STORE_MIGRATED)
        owner = "" if hidden else f", owned by {self.landed_on or 'no broker'}"
        why = f" ({': '.join(filter(None, (self.code, self.error)))})" if self.code else ""
        return {
            "kind": "move",
            # When it ended: a move may have waited for its turn, and for its deadline, for many seconds.
            "wall_ms": self.landed_wall_ms or self.started_wall_ms + round(1000 * self.seconds),
            "bundle": self.bundle,
            "source": self.source,
            "destination": self.destination,
            "landed_on": self.landed_on,
            "outcome": self.outcome,
            "code": self.code,
            "error": self.error,
            "started_ms": self.started_wall_ms,
            "landed_ms": self.landed_wall_ms,
            "seconds": round(self.seconds, 3),
            "hops": list(self.hops),
            "topic": self.topic,
            "epoch": self.epoch,
            "intent": self.intent_id,
            "cycle": self.cycle_id,
            "predicted": dict(zip(PREDICTED, (round(value, 5) for value in self.predicted), strict=False)),
            "sentence": f"{self.bundle}: {self.source} -> {self.destination}, "
            f"{self.outcome.replace('_', ' ')}{owner}{why}",
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What a look at intents of other leaders found: bundles to leave alone for now, moves settled just now, and the
    nodes that could not be read (path -> why)."""

    frozen: frozenset[str]
    settled: tuple[MoveOutcome, ...]
    unreadable: Mapping[str, str] = field(default_factory=dict)


FirstSeen = dict[tuple[str, bytes], float]
"""By path and content of an intent's node, the boot clock when we first saw it."""

ChangesFor = Callable[[MoveOutcome], Sequence[DocumentChange]]
"""Further changes to write in the transaction that removes an intent, e.g. the record of the move."""


def no_changes(_outcome: MoveOutcome) -> Sequence[DocumentChange]:
    """Record nothing beside the intent."""
    return ()


def intent_path(bundle: str) -> str:
    """The node of a bundle's intent; the name is percent-encoded because it holds slashes."""
    return f"{INTENTS}/{quote(bundle, safe='')}"


def decode_intent(document: Document) -> Intent:
    """Read an intent's node. CodecError for anything a leader would not have written."""
    found = external_input.read(document.data, Intent, what=document.path, exact=True)
    check_times(found, document.path)
    return found


async def settle_intents(
    coordination: Coordination,
    ownership: Ownership,
    *,
    epoch: int,
    clock: Clock,
    seen: FirstSeen,
    margin_seconds: float = MARGIN_SECONDS,
    changes: ChangesFor = no_changes,
    migration: StoreMigration = NO_MIGRATION,
) -> Settlement:
    """Look at the intents other epochs left; call again each cycle until nothing is frozen.

    An intent is frozen until its destination owns the bundle, or its own length plus the margin has passed since we
    first saw it (`seen`: node path and content to boot seconds): its writer's clock is never compared with ours. A
    bundle that its owner is giving away then has no outcome yet: it stays frozen until a broker owns it,
    `IN_FLIGHT_SECONDS` at most. A node that is no intent is frozen for the usual length, then removed as `unknown`;
    one whose name is that of no bundle is left where it is. During a `migration` of the store only a destination
    that owns its bundle is an outcome. LeadershipLost ends it.
    """
    frozen: set[str] = set()
    settled: list[MoveOutcome] = []
    unreadable: dict[str, str] = {}
    for document in await coordination.read_tree(INTENTS):
        # The node's name is the bundle's, whatever stands in it.
        bundle, intent = unquote(document.path.rpartition("/")[2]), None
        try:
            intent = decode_intent(document)
        except CodecError as error:
            unreadable[document.path] = str(error)
        if intent is not None and intent.epoch == epoch:
            continue
        if not is_bundle(bundle):
            unreadable[document.path] = "its name is that of no bundle"
            continue
        waited = since_first_sight(seen, document, clock)
        try:
            owner = await ownership.owner(bundle)
            if not _has_outcome(intent, owner, waited, margin_seconds):
                frozen.add(bundle)
                continue
            outcome = _settled(intent, bundle, owner, waited, clock=clock, epoch=epoch).unless_stale(migration.code)
            removal = DocumentChange(path=document.path, data=None, version=document.version)
            await coordination.write_fenced(epoch, [removal, *changes(outcome)])
        except LeadershipLost:
            raise
        except (StoreError, CodecError):
            frozen.add(bundle)
            continue
        settled.append(outcome)
    return Settlement(frozen=frozenset(frozen), settled=tuple(settled), unreadable=unreadable)


class TimedIntent(Protocol):
    """What was announced, when and until when, by the writer's wall clock."""

    @property
    def wall_ms(self) -> int:
        """When it was written."""

    @property
    def deadline_ms(self) -> int:
        """When its call must be over."""


def check_times(found: TimedIntent, path: str) -> None:
    """Check the times of an intent. Raises CodecError for those that no leader wrote: they would freeze the bundle."""
    external_input.check_ranges(found, what=path)
    if not 0 <= found.deadline_ms - found.wall_ms <= LONGEST_MS:
        raise external_input.unreadable(
            path, "its deadline is not within a day of when it was written", code=Code.WRONG_TYPE
        )


def since_first_sight(seen: FirstSeen, document: Document, clock: Clock) -> float:
    """Seconds since we first saw this very intent; one bundle's next one has another id."""
    return clock.boot() - seen.setdefault((document.path, document.data), clock.boot())


def is_over(intent: TimedIntent | None, waited: float, margin_seconds: float) -> bool:
    """Whether the call of an intent (None: unreadable) of another epoch must be over, so many seconds after we first
    saw it; see `settle_intents`."""
    length = INTENT_SECONDS if intent is None else max(0, intent.deadline_ms - intent.wall_ms) / 1000
    return waited >= length + margin_seconds


def _has_outcome(intent: Intent | None, owner: Owner | None, waited: float, margin_seconds: float) -> bool:
    """Whether the call is known to be over: one intent has one call, so where its destination owns the bundle, that
    call has been carried out."""
    if owner is None:
        return is_over(intent, waited, margin_seconds)
    if owner.disabled:
        return is_over(intent, waited, margin_seconds + IN_FLIGHT_SECONDS)
    return (intent is not None and owner.broker_id == intent.destination) or is_over(intent, waited, margin_seconds)


def _settled(
    intent: Intent | None, bundle: str, owner: Owner | None, waited: float, *, clock: Clock, epoch: int
) -> MoveOutcome:
    """The outcome of a move of another epoch, as far as its owner shows it."""
    landed = owner.broker_id if owner is not None and not owner.disabled else ""
    found = MoveOutcome(
        bundle=bundle,
        source="",
        destination="",
        outcome="unknown",
        code=Code.LEFT_BY_EARLIER_LEADER,
        error="the intent could not be read",
        landed_on=landed,
        landed_wall_ms=clock.wall_ms() if landed else 0,
        epoch=epoch,
    )
    if intent is None:
        return found
    done = landed == intent.destination
    word: OutcomeWord = "unknown" if not landed else "done" if done else "landed_elsewhere"
    return replace(
        found,
        source=intent.source,
        destination=intent.destination,
        outcome=word,
        code="" if done else found.code,
        error=f"left open by epoch {intent.epoch}",
        started_wall_ms=intent.wall_ms,
        seconds=0.0 if landed else waited,
        topic=intent.topic,
        intent_id=intent.id,
        cycle_id=intent.cycle_id,
    )
