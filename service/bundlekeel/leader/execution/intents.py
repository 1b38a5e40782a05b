"""Intents: records of moves that a leader writes before it calls a broker. The next leader settles open intents.

Pulsar's admin API has no fencing token, so an unload that a former leader sent may still arrive. While the unload's
intent, a node below `intents/`, exists, the next leader does not move the bundle. The intent is settled when the
destination owns the bundle, or when the call must have ended (deadline and margin). Then the current owner is the
outcome. No leader executes an intent again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol
from urllib.parse import quote, unquote

import msgspec

from bundlekeel.model.codes import Code, OutcomeWord
from bundlekeel.model.errors import CodecError, LeadershipLost, StoreError
from bundlekeel.model.migration import NO_MIGRATION, StoreMigration
from bundlekeel.ports import Clock, Coordination, Document, DocumentChange, Owner, Ownership
from bundlekeel.pulsar.formats import external_input
from bundlekeel.pulsar.formats.report import is_bundle

INTENTS: Final = "intents"
INTENT_SECONDS: Final = 120.0
LONGEST_MS: Final = 86_400_000
MARGIN_SECONDS: Final = 15.0
# After this time the brokers' leader has ended a stuck transfer. Its monitor runs every 60 s, ends transfers older than
# 30 s, and waits until its own session has been stable for 180 s.
IN_FLIGHT_SECONDS: Final = 300.0

# Planned scores (ratios) of the two brokers of a move.
PREDICTED: Final = ("source_before", "source_after", "target_before", "target_after")


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveRequest:
    """A move to execute. `source`: the broker that must own the bundle now."""

    bundle: str
    source: str
    destination: str
    cycle_id: str = ""
    predicted: tuple[float, ...] = ()


class Intent(msgspec.Struct, frozen=True, kw_only=True, rename={"source": "from", "destination": "to"}):
    """A planned move, as stored. Times are Unix milliseconds of the writer's clock."""

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
        """Path of the intent's node. A bundle has at most one intent."""
        return intent_path(self.bundle)

    def encode(self) -> bytes:
        """Return the content of the intent's node, as JSON."""
        return msgspec.json.encode(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveOutcome(MoveRequest):
    """How a move ended.

    `done`: the destination owns the bundle. `landed_elsewhere`: another broker owns it, possibly the source.
    `released`: no broker owns it; the bundle has no topics, so it stays without an owner until a client connects.
    `unknown`: the owner could not be determined. `refused`: certainly nothing happened.

    `code` is empty if done. `landed_wall_ms`: time at which the owner was observed; 0: no owner was observed. `hops`:
    brokers that redirected the unload. `seconds`: whole duration, with the wait for other moves. `moving_seconds`:
    duration from the intent to the outcome. `predicted`: planned scores of source and target, before and after."""

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
    moving_seconds: float = 0.0

    def unless_stale(self, code: Code | None) -> MoveOutcome:
        """Return this outcome; or, if the store is outdated, an unknown outcome with `code`.

        An outcome `done` stays, because the destination itself wrote its ownership, and `refused` stays, because it
        does not depend on the store."""
        if code is None or self.outcome in ("done", "refused"):
            return self
        return replace(self, outcome="unknown", code=code, landed_on="", landed_wall_ms=0)

    def record(self) -> dict[str, Any]:
        """Return the journal record of the move."""
        # After a refusal the owner is the source, and an outdated store does not show the owner: omit it.
        hidden = self.outcome == "refused" or self.code in (Code.STORE_MIGRATING, Code.STORE_MIGRATED)
        owner = "" if hidden else f", owned by {self.landed_on or 'no broker'}"
        why = f" ({': '.join(filter(None, (self.code, self.error)))})" if self.code else ""
        return {
            "kind": "move",
            # Time of the end: a move may wait many seconds for its slot and its deadline.
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
    """Result of `settle_intents`: bundles that must not move yet, outcomes of moves that were open until now, and
    unreadable nodes (path -> reason)."""

    frozen: frozenset[str]
    settled: tuple[MoveOutcome, ...]
    unreadable: Mapping[str, str] = field(default_factory=dict)


FirstSeen = dict[tuple[str, bytes], float]
"""Boot-clock time at which an intent's node was first read, by path and content."""

ChangesFor = Callable[[MoveOutcome], Sequence[DocumentChange]]
"""Returns further changes for the transaction that removes an intent, such as the record of the move."""


def no_changes(_outcome: MoveOutcome) -> Sequence[DocumentChange]:
    """Return nothing: the default of `ChangesFor`, if only the intent is removed."""
    return ()


def intent_path(bundle: str) -> str:
    """Return the node path of a bundle's intent. The name is percent-encoded because it contains slashes."""
    return f"{INTENTS}/{quote(bundle, safe='')}"


def decode_intent(document: Document) -> Intent:
    """Return the intent in a node. Raises CodecError for content that no leader writes."""
    intent = external_input.read(document.data, Intent, what=document.path, exact=True)
    check_times(intent, document.path)
    return intent


async def settle_intents(
    coordination: Coordination,
    ownership: Ownership,
    *,
    epoch: int,
    clock: Clock,
    first_seen: FirstSeen,
    margin_seconds: float = MARGIN_SECONDS,
    changes: ChangesFor = no_changes,
    migration: StoreMigration = NO_MIGRATION,
) -> Settlement:
    """Determine the outcomes of moves that other epochs (leader terms) left open, and remove their intents.

    Call it in each cycle until no bundle is frozen. A bundle is frozen (must not move) until the intent's destination
    owns it, or until the intent's lifetime plus the margin has passed since this sidecar first read the intent
    (`first_seen`: node path and content to boot seconds). The writer's clock is never used. While the owner releases
    the bundle, it stays frozen until a broker owns it, at most `IN_FLIGHT_SECONDS` longer.

    If an intent is unreadable, its bundle is frozen for the usual lifetime; then the intent is removed as `unknown`. A
    node whose name is not that of a bundle is ignored. During a `migration` of the store, only a destination that owns
    its bundle is an outcome. Raises LeadershipLost if the term ends."""
    frozen: set[str] = set()
    settled: list[MoveOutcome] = []
    unreadable: dict[str, str] = {}
    for document in await coordination.read_tree(INTENTS):
        # The node's name contains the bundle, even if its content is unreadable.
        bundle, intent = unquote(document.path.rpartition("/")[2]), None
        try:
            intent = decode_intent(document)
        except CodecError as error:
            unreadable[document.path] = str(error)
        if intent is not None and intent.epoch == epoch:
            continue
        if not is_bundle(bundle):
            unreadable[document.path] = "its name is not a bundle name"
            continue
        waited = since_first_sight(first_seen, document, clock)
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
    """Times of an intent, by the writer's clock."""

    @property
    def wall_ms(self) -> int:
        """Time at which the intent was written, Unix ms."""

    @property
    def deadline_ms(self) -> int:
        """Time at which the call to the broker must have ended, Unix ms."""


def check_times(intent: TimedIntent, path: str) -> None:
    """Raises CodecError if the times of an intent are implausible: they would freeze the bundle for too long."""
    external_input.check_ranges(intent, what=path)
    if not 0 <= intent.deadline_ms - intent.wall_ms <= LONGEST_MS:
        raise external_input.unreadable(
            path, "its deadline is more than a day from the time at which it was written", code=Code.WRONG_TYPE
        )


def since_first_sight(first_seen: FirstSeen, document: Document, clock: Clock) -> float:
    """Return the seconds since this sidecar first read this intent (not an earlier intent of the same bundle)."""
    return clock.boot() - first_seen.setdefault((document.path, document.data), clock.boot())


def is_over(intent: TimedIntent | None, waited: float, margin_seconds: float) -> bool:
    """Return whether the call for another epoch's intent (None: unreadable) must have ended.

    `waited`: seconds since this sidecar first read the intent; see `settle_intents`."""
    length = INTENT_SECONDS if intent is None else max(0, intent.deadline_ms - intent.wall_ms) / 1000
    return waited >= length + margin_seconds


def _has_outcome(intent: Intent | None, owner: Owner | None, waited: float, margin_seconds: float) -> bool:
    """Return whether a move's outcome is final: the destination owns the bundle, or the call must have ended."""
    if owner is None:
        return is_over(intent, waited, margin_seconds)
    if owner.disabled:
        return is_over(intent, waited, margin_seconds + IN_FLIGHT_SECONDS)
    return (intent is not None and owner.broker_id == intent.destination) or is_over(intent, waited, margin_seconds)


def _settled(
    intent: Intent | None, bundle: str, owner: Owner | None, waited: float, *, clock: Clock, epoch: int
) -> MoveOutcome:
    landed = owner.broker_id if owner is not None and not owner.disabled else ""
    outcome = MoveOutcome(
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
        return outcome
    done = landed == intent.destination
    word: OutcomeWord = "unknown" if not landed else "done" if done else "landed_elsewhere"
    return replace(
        outcome,
        source=intent.source,
        destination=intent.destination,
        outcome=word,
        code="" if done else outcome.code,
        error=f"left unfinished by the leader of epoch {intent.epoch}",
        started_wall_ms=intent.wall_ms,
        seconds=0.0 if landed else waited,
        topic=intent.topic,
        intent_id=intent.id,
        cycle_id=intent.cycle_id,
    )
