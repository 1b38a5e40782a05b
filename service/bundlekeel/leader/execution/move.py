"""Steps of one move: policy -> owner -> prepare -> intent -> permit -> unload with destination -> confirm.

The brokers' load manager selects the `TransferMethod`: `MODULAR_MOVE` or `EXTENSIBLE_MOVE`. The unload is sent at most
once. If its result is unknown, the current owner of the bundle is the outcome.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from typing import Final

from bundlekeel.leader.execution.intents import INTENT_SECONDS, Intent, MoveOutcome, MoveRequest
from bundlekeel.model.codes import Code, OutcomeWord
from bundlekeel.model.errors import (
    AdminApiError,
    AdminUnauthorized,
    AdminUnreachable,
    BundlekeelError,
    CodecError,
    LeadershipLost,
    StoreError,
)
from bundlekeel.model.migration import NO_MIGRATION, StoreMigration
from bundlekeel.model.names import is_system_bundle, parse_topic
from bundlekeel.model.plan import Refusal
from bundlekeel.ports import BrokerAdmin, Clock, Coordination, Metadata, Owner, Ownership
from bundlekeel.ports.commands import BrokerCommands, Permit

MODULAR: Final = "modular"
EXTENSIBLE: Final = "extensible"
_CLAIM_FIRST_SECONDS: Final = 0.01
_CLAIM_MAX_SECONDS: Final = 1.0
_FREE_SECONDS: Final = 0.5
# Transfers usually take less than a second. Check the owner during the call only if it takes longer than this.
_PATIENCE_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 0.5


def refusal_code(error: AdminApiError) -> Code:
    """Return the refusal code for an error of the admin API after which certainly nothing happened."""
    if isinstance(error, AdminUnreachable):
        return Code.ADMIN_UNREACHABLE
    return Code.ADMIN_UNAUTHORIZED if isinstance(error, AdminUnauthorized) else Code.ADMIN_REFUSED


def _modular() -> str:
    return MODULAR


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePorts:
    """The ports that a move uses. `load_manager`: returns the brokers' current one (`RawClusterView.mode`)."""

    admin: BrokerAdmin
    commands: BrokerCommands
    coordination: Coordination
    ownership: Ownership
    metadata: Metadata
    clock: Clock
    load_manager: Callable[[], str] = _modular
    served_twice: Callable[[], frozenset[str]] = frozenset
    """Returns the bundles with topics that two brokers serve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderTerm:
    """A leader's term, for checks right before each request to a broker.

    `permit` raises LeadershipLost if the term is over, and StoreError while the store is unreachable."""

    epoch: int
    member: str
    permit: Permit


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorLimits:
    """Limits and time-outs of moves.

    `intent_seconds` must cover the admin read timeout plus `confirm_seconds`. The next leader waits that long for an
    open move. `max_in_flight_per_broker` is 1, because two unloads would share the free CPU of a busy source: clients
    were disconnected for 1.7 s instead of 0.9 s, and the moves finished no earlier (`make reaction`)."""

    max_in_flight: int = 4
    max_in_flight_per_broker: int = 1
    confirm_seconds: float = 10.0
    poll_first_seconds: float = 0.05
    poll_max_seconds: float = 0.5
    intent_seconds: float = INTENT_SECONDS


Policy = Callable[[MoveRequest], Awaitable[Refusal | None]]


async def stale_code(ports: MovePorts, before: StoreMigration) -> Code | None:
    """Return a code if the store may be outdated: a migration of it runs, has ended, or began after `before`.

    None: there was no migration, or its state is unreadable."""
    try:
        now = await ports.metadata.migration()
    except StoreError:
        return None
    return now.code or (Code.STORE_MIGRATING if now != before else None)


def _nothing() -> None:
    return None


@dataclass(slots=True, kw_only=True)
class MoveState:
    """The state of one move. `bare`: the bundle certainly has no topics, so no client looks it up after the unload."""

    request: MoveRequest
    ports: MovePorts
    term: LeaderTerm
    limits: ExecutorLimits
    intent_id: str
    started_wall_ms: int = field(init=False)
    started_boot: float = field(init=False)
    begun_boot: float = 0.0
    topic: str = ""
    bare: bool = False
    hops: tuple[str, ...] = ()
    lost: bool = False
    migration: StoreMigration = NO_MIGRATION

    def __post_init__(self) -> None:
        self.started_wall_ms = self.ports.clock.wall_ms()
        self.started_boot = self.ports.clock.boot()

    def outcome(self, word: OutcomeWord, code: str = "", *, error: str = "", landed_on: str = "") -> MoveOutcome:
        """Return an outcome with the present state of the move."""
        return MoveOutcome(
            **asdict(self.request),
            outcome=word,
            code=code,
            error=error,
            landed_on=landed_on,
            started_wall_ms=self.started_wall_ms,
            landed_wall_ms=self.ports.clock.wall_ms() if landed_on else 0,
            seconds=self.ports.clock.boot() - self.started_boot,
            hops=self.hops,
            topic=self.topic,
            epoch=self.term.epoch,
            intent_id=self.intent_id,
            moving_seconds=self.ports.clock.boot() - self.begun_boot if self.begun_boot else 0.0,
        )

    def refuse(self, code: str, error: str = "") -> MoveOutcome:
        """Return a refusal: certainly nothing happened to the bundle."""
        return self.outcome("refused", code, error=error)

    def intent(self) -> Intent:
        """Return the intent of this move. Its lifetime starts now, because the move may have waited for other moves."""
        self.migration = self.ports.metadata.migration_now
        now, self.begun_boot = self.ports.clock.wall_ms(), self.ports.clock.boot()
        return Intent(
            id=self.intent_id,
            bundle=self.request.bundle,
            source=self.request.source,
            destination=self.request.destination,
            epoch=self.term.epoch,
            member=self.term.member,
            wall_ms=now,
            deadline_ms=now + int(self.limits.intent_seconds * 1000),
            cycle_id=self.request.cycle_id,
            topic=self.topic,
        )

    # --- before ------------------------------------------------------------------------------------------

    async def check(self, policy: Policy) -> MoveOutcome | None:
        """Return a refusal, or None if the move may start."""
        request = self.request
        if is_system_bundle(request.bundle):
            return self.refuse(Code.SYSTEM_BUNDLE)
        if request.source == request.destination:
            return self.refuse(Code.SAME_BROKER)
        refusal = await policy(request)
        if refusal is not None:
            return self.refuse(refusal.code, refusal.detail)
        try:
            owner = await self.ports.ownership.owner(request.bundle)
        except StoreError as error:
            return self.refuse(error.code, str(error))
        except CodecError as error:
            return self.refuse(Code.STORE_UNAVAILABLE, str(error))
        if owner is None:
            return self.refuse(Code.UNOWNED)
        if owner.disabled:
            return self.refuse(Code.IN_TRANSIT, f"{owner.broker_id} is unloading it")
        if owner.broker_id != request.source:
            return self.refuse(Code.OWNER_CHANGED, f"owned by {owner.broker_id}")
        return None

    # --- the call ------------------------------------------------------------------------------------------

    async def unload(self, at: str, confirm: Callable[[str], Awaitable[MoveOutcome]]) -> MoveOutcome:
        """Send the unload with destination to broker `at`, once per intent. Sets `lost` if the leadership has ended.

        `confirm` determines the owner afterwards. It receives the error if the result of the call is unknown.
        """
        request = self.request
        try:
            answer = await self.ports.commands.unload(
                request.bundle, destination=request.destination, at=at, permit=self.term.permit
            )
        except LeadershipLost as error:
            # The permit is checked before each hop, and only the last hop unloads: nothing happened to the bundle.
            self.lost = True
            return self.refuse(Code.NOT_LEADER, str(error))
        except StoreError as error:
            # The permit failed: the store is unreachable or migrates. Nothing happened to the bundle.
            return self.refuse(error.code, str(error))
        except AdminApiError as error:
            if error.outcome_unknown:
                return await confirm(str(error) or type(error).__name__)
            return self.refuse(refusal_code(error), str(error))
        except BundlekeelError as error:
            return self.refuse(Code.NOT_PERMITTED, str(error))
        self.hops = answer.hops
        return await confirm("")

    async def confirm(self, error: str, *, on_unowned: Callable[[], None] = _nothing) -> MoveOutcome:
        """Read the owner of the bundle until the owner is final or the deadline passes.

        `error`: error of the call if its result is unknown. While the owner is releasing the bundle, there is no
        outcome yet. `on_unowned` is called if no broker owns the bundle."""
        clock, limits = self.ports.clock, self.limits
        deadline = clock.boot() + limits.confirm_seconds
        pause, owner, source_seen = limits.poll_first_seconds, None, 0
        unreadable = ""
        while True:
            try:
                owner, unreadable = await self.ports.ownership.owner(self.request.bundle), ""
            except (StoreError, CodecError) as failure:
                owner, unreadable = None, str(failure)
            landed = owner.broker_id if owner is not None and not owner.disabled else ""
            source_seen = source_seen + 1 if landed == self.request.source else 0
            if landed and (landed != self.request.source or (not error and source_seen > 1)):
                return self.landed(landed, error)
            if clock.boot() >= deadline:
                return self._unsettled(owner, error, unreadable)
            if owner is None and not unreadable:
                on_unowned()
            await clock.sleep(min(pause, max(0.0, deadline - clock.boot())))
            pause = min(pause * 2, limits.poll_max_seconds)

    def landed(self, landed: str, error: str) -> MoveOutcome:
        """Return the outcome of a move after which the broker `landed` owns the bundle."""
        if landed == self.request.destination:
            return self.outcome("done", error=error, landed_on=landed)
        at_source = landed == self.request.source
        code = Code.STILL_AT_SOURCE if at_source else Code.LANDED_ELSEWHERE
        return self.outcome("landed_elsewhere", code, error=error, landed_on=landed)

    def _unsettled(self, owner: Owner | None, error: str, unreadable: str) -> MoveOutcome:
        if unreadable:
            return self.outcome("unknown", Code.STORE_UNAVAILABLE, error=error or unreadable)
        if owner is not None and owner.disabled:
            return self.outcome("unknown", Code.STILL_IN_FLIGHT, error=error or f"{owner.broker_id} is unloading it")
        if error and owner is not None:
            # The bundle never left the source, or will leave it when the delayed call arrives.
            return self.outcome("unknown", Code.NO_ANSWER, error=error, landed_on="")
        if owner is not None:
            return self.landed(owner.broker_id, error)
        return self.outcome("unknown", Code.NOBODY_OWNS, error=error)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferMethod:
    """The steps of a move that depend on the brokers' load manager.

    `prepare` may refuse before the intent is written. `carry_out` sends the call and determines the outcome.
    `exclusive` returns a key: only one move per key may be in progress."""

    prepare: Callable[[MoveState], Awaitable[MoveOutcome | None]]
    carry_out: Callable[[MoveState], Awaitable[MoveOutcome]]
    exclusive: Callable[[MoveRequest], str]


# --- modular load manager ---
# Topic -> unload with destination -> claim at the destination -> confirm. Brokers only store an affinity for the first
# lookup after the unload. The claim is this lookup, sent before a client's lookup.


async def _find_topic(move_state: MoveState) -> MoveOutcome | None:
    """Find a topic of the bundle to look up at the destination. Never refuses the move.

    Topics come from the owner (including non-persistent ones), else from the metadata. Without a topic, the first
    client's lookup assigns the bundle to the destination, which the brokers' leader remembers from the unload request.
    """
    bundle, ports, answers = move_state.request.bundle, move_state.ports, 2
    try:
        topics = await ports.admin.topics_of_bundle(bundle, move_state.request.source)
    except AdminApiError:
        topics, answers = [], answers - 1
    if not topics:
        try:
            topics = await ports.metadata.topics(bundle)
        except (StoreError, CodecError):
            topics, answers = [], answers - 1
    move_state.bare = not topics and answers == 2
    # Use the smallest name, so that all leaders select the same topic. Persistent user topics come first: they last.
    move_state.topic = min(topics, key=lambda topic: (*_oddity(topic), topic), default="")
    return None


async def _modular_move(move_state: MoveState) -> MoveOutcome:
    """Unload the bundle, let the destination acquire it by a lookup (the claim), then check the owner.

    Clients look the bundle up as soon as it has no owner. The destination of the unload request applies only to the
    first lookup; until the destination has created its ownership node, a second lookup may place the bundle on any
    broker. A claim right after the unload's response nearly always comes first. If a destination without free CPU is
    too slow, the next plan decides."""
    claims = _Claims(move_state)

    async def confirm(error: str) -> MoveOutcome:
        # After an unknown result, claim only if the bundle is free. Never unload a second time.
        if not error:
            claims.start()
            if move_state.bare and await _stays_free(move_state):
                return move_state.outcome("released", Code.RELEASED)
        return await move_state.confirm(error, on_unowned=claims.start)

    try:
        return await move_state.unload(await _first_broker(move_state), confirm)
    finally:
        await claims.cancel()


async def _stays_free(move_state: MoveState) -> bool:
    """Return whether a bundle without topics has no owner for a short time after its unload.

    Then no broker owns it until a client connects, and the brokers' leader directs that client to the destination."""
    clock = move_state.ports.clock
    deadline = clock.boot() + _FREE_SECONDS
    while True:
        try:
            if await move_state.ports.ownership.owner(move_state.request.bundle) is not None:
                return False
        except (StoreError, CodecError):
            return False
        if clock.boot() >= deadline:
            return True
        await clock.sleep(move_state.limits.poll_first_seconds)


async def _first_broker(move_state: MoveState) -> str:
    """Return the broker to send the unload to: the brokers' leader, which must remember the destination.

    If the leader is unknown, the result is the bundle's owner, which redirects the request to the leader."""
    try:
        leader = await move_state.ports.metadata.metadata_leader()
    except (StoreError, CodecError):
        leader = None
    return leader or move_state.request.source


class _Claims:
    """Sends authoritative lookups (claims) to the destination, one at a time, until the source does not own the bundle.

    After an error, or a response that still names the source, the lookup is repeated. After a loss of leadership, no
    more lookups are sent."""

    def __init__(self, move_state: MoveState) -> None:
        self._move_state = move_state
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to send lookups, once. Does nothing if no topic of the bundle is known."""
        if self._task is None and self._move_state.topic:
            self._task = asyncio.create_task(self._claim(), name=f"claim {self._move_state.request.bundle}")

    async def cancel(self) -> None:
        """Stop the lookups, because the bundle has landed or the deadline has passed."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _claim(self) -> None:
        move_state, pause = self._move_state, _CLAIM_FIRST_SECONDS
        destination, permit = move_state.request.destination, move_state.term.permit
        while not move_state.lost:
            try:
                answering = await move_state.ports.commands.claim(
                    move_state.topic, broker_id=destination, permit=permit
                )
            except LeadershipLost:
                move_state.lost = True
                return
            except BundlekeelError:
                # Ignore errors: the store shows the owner. A claim only makes the bundle land faster.
                answering = ""
            if answering not in ("", move_state.request.source):
                return
            await move_state.ports.clock.sleep(pause)
            pause = min(pause * 2, _CLAIM_MAX_SECONDS)


# Best topics to look up first. Non-persistent topics end with their clients; a scalable topic is only its controller.
_DOMAINS: Final = ("persistent", "segment", "topic", "non-persistent")


def _oddity(topic: str) -> tuple[int, bool]:
    """Return a sort key: topics of the first `_DOMAINS` come first, and system topics last."""
    try:
        name = parse_topic(topic)
    except ValueError:
        return len(_DOMAINS), True
    return _DOMAINS.index(name.domain), name.local.startswith("__")


def _range(request: MoveRequest) -> str:
    """Return the hash range of the bundle: the key of moves that must not run in parallel.

    Before 4.2, brokers remember one destination per hash range, not per bundle."""
    return request.bundle.rpartition("/")[2]


MODULAR_MOVE: Final = TransferMethod(prepare=_find_topic, carry_out=_modular_move, exclusive=_range)


# --- extensible load manager (PIP-192) ---
# Unload with destination at the owner -> confirm. The brokers publish Releasing, Assigning and Owned in the ownership
# channel. A move is done after a 204 response and Owned at the destination. There is no claim: brokers inform clients
# of the new owner, and a lookup could assign the bundle.


async def _prepare(move_state: MoveState) -> MoveOutcome | None:
    """Refuse a move if the source's id ends with the destination's id.

    Brokers compare only these ends, and reject such a move with 500 "cannot be transfer to same broker"."""
    source, destination = move_state.request.source, move_state.request.destination
    if source.endswith(destination):
        return move_state.refuse(Code.ALIKE_BROKERS, f"{source} ends with {destination}")
    return None


async def _extensible_move(move_state: MoveState) -> MoveOutcome:
    call = asyncio.create_task(move_state.unload(move_state.request.source, move_state.confirm))
    watch = asyncio.create_task(_ended_otherwise(move_state))
    try:
        await asyncio.wait({call, watch}, return_when=asyncio.FIRST_COMPLETED)
        return (call if call.done() else watch).result()
    finally:
        for task in (call, watch):
            task.cancel()
        await asyncio.gather(call, watch, return_exceptions=True)


async def _ended_otherwise(move_state: MoveState) -> MoveOutcome:
    """Return the outcome when the ownership channel shows that the transfer started and ended at another broker.

    If a broker fails, the brokers' leader assigns the bundle to another one (`overrideOwnership`). The call has no
    effect then and only ends at its time-out, after a minute. So do not wait for the call."""
    clock, request = move_state.ports.clock, move_state.request
    began = False
    pause = _PATIENCE_SECONDS
    while True:
        await clock.sleep(pause)
        pause = _LOOK_SECONDS
        try:
            owner = await move_state.ports.ownership.owner(request.bundle)
        except (StoreError, CodecError):
            continue
        if owner is None:
            continue
        if began and not owner.disabled and owner.broker_id != request.destination:
            return move_state.landed(owner.broker_id, "the brokers ended the transfer at another broker")
        began = began or owner.disabled


def _bundle(request: MoveRequest) -> str:
    return request.bundle


EXTENSIBLE_MOVE: Final = TransferMethod(prepare=_prepare, carry_out=_extensible_move, exclusive=_bundle)
