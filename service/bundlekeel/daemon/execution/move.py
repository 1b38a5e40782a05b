"""One move: the request, its checks, its call, and where the bundle landed.

policy -> owner -> prepare -> intent -> permit -> unload with destination -> confirm. How a bundle changes its owner is
a `TransferMethod`: `MODULAR_MOVE` or `EXTENSIBLE_MOVE`, by the brokers' load manager. The unload is sent at most once,
whatever its answer: an unknown outcome is settled by reading who owns the bundle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from bundlekeel.core.model.codes import Code, OutcomeWord
from bundlekeel.core.model.errors import (
    AdminApiError,
    AdminRefused,
    AdminUnauthorized,
    AdminUnreachable,
    BundlekeelError,
    CodecError,
    LeadershipLost,
    StoreError,
)
from bundlekeel.core.model.migration import NO_MIGRATION, StoreMigration
from bundlekeel.core.model.names import is_system_bundle, parse_topic
from bundlekeel.core.model.plan import Refusal
from bundlekeel.daemon.execution.intents import INTENT_SECONDS, Intent, MoveOutcome
from bundlekeel.ports import BrokerAdmin, Clock, Coordination, Metadata, Owner, Ownership
from bundlekeel.ports.commands import BrokerCommands, Permit

MODULAR: Final = "modular"
EXTENSIBLE: Final = "extensible"
_CLAIM_FIRST_SECONDS: Final = 0.01
_CLAIM_MAX_SECONDS: Final = 1.0
_FREE_SECONDS: Final = 0.5
# Transfers take tenths of a second; only those that take long are looked at while their call is under way.
_PATIENCE_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 0.5
_CODES: Final[dict[type[AdminApiError], Code]] = {
    AdminRefused: Code.ADMIN_REFUSED,
    AdminUnauthorized: Code.ADMIN_UNAUTHORIZED,
    AdminUnreachable: Code.ADMIN_UNREACHABLE,
}


def refusal_code(error: AdminApiError) -> Code:
    """The code of a call that certainly had no effect."""
    return _CODES.get(type(error), Code.ADMIN_REFUSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveRequest:
    """One move to make: a bundle from the broker that is to own it now to another one."""

    bundle: str
    source: str
    destination: str
    cycle_id: str = ""
    predicted: tuple[float, ...] = ()


def _modular() -> str:
    return MODULAR


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePorts:
    """The ports a move needs, and which load manager the brokers run now (`RawClusterView.mode`)."""

    admin: BrokerAdmin
    commands: BrokerCommands
    coordination: Coordination
    ownership: Ownership
    metadata: Metadata
    clock: Clock
    mode: Callable[[], str] = _modular


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderTerm:
    """A leader's term. `permit` raises when this term may not act right now: LeadershipLost when it is over, for good;
    StoreError while the store is out of reach, for the moment."""

    epoch: int
    member: str
    permit: Permit


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorLimits:
    """`intent_seconds` must cover the admin read timeout plus `confirm_seconds`: a successor waits that long.

    One at a time at each broker: two unloads at once share what CPU a busy source has left, and clients of both are
    cut off for longer (`make reaction`: worst gap 1.7 s instead of 0.9 s, and no sooner done).
    """

    max_in_flight: int = 4
    max_in_flight_per_broker: int = 1
    confirm_seconds: float = 10.0
    poll_first_seconds: float = 0.05
    poll_max_seconds: float = 0.5
    intent_seconds: float = INTENT_SECONDS


Policy = Callable[[MoveRequest], Awaitable[Refusal | None]]


async def stale_code(ports: MovePorts, before: StoreMigration) -> Code | None:
    """Return why the store may not show how a call ended: a migration of the store that is in progress or completed, or
    that began after `before` was read. None if there was none, or if that cannot be read."""
    try:
        now = await ports.metadata.migration()
    except StoreError:
        return None
    return now.code or (Code.STORE_MIGRATING if now != before else None)


def _nothing() -> None:
    return None


@dataclass(slots=True, kw_only=True)
class MoveState:
    """The state of one move. `outcome()` makes its record with what is known so far. `bare`: the bundle certainly has
    no topics, so no client asks for it once it is free."""

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
        """The move's record as of now."""
        return MoveOutcome(
            bundle=self.request.bundle,
            source=self.request.source,
            destination=self.request.destination,
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
            cycle_id=self.request.cycle_id,
            moving_seconds=self.ports.clock.boot() - self.begun_boot if self.begun_boot else 0.0,
            predicted=self.request.predicted,
        )

    def refuse(self, code: str, error: str = "") -> MoveOutcome:
        """Provably nothing happened to the bundle."""
        return self.outcome("refused", code, error=error)

    def intent(self) -> Intent:
        """What is written before anything is done. Its time starts now, not at admission: slots make moves wait."""
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
        """A refusal, or None when the move may begin."""
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
        """Unload with destination, sent to broker `at`; called once per intent. `lost`: leadership has ended.

        `confirm` reads where the bundle is afterwards, given the error when the outcome of the call is unknown.
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
            # The permit again: the store is unreachable or migrates, and nothing happened to the bundle.
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
        """Read who owns the bundle until it is settled or the deadline passes; `error` when the call's outcome is
        unknown. An owner that is giving the bundle away is no outcome yet; `on_unowned` is called when no broker owns
        it.
        """
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
        """This broker owns the bundle."""
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
            # It never left the source, or will leave it when the call that is still on its way arrives.
            return self.outcome("unknown", Code.NO_ANSWER, error=error, landed_on="")
        if owner is not None:
            return self.landed(owner.broker_id, error)
        return self.outcome("unknown", Code.NOBODY_OWNS, error=error)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferMethod:
    """How a bundle changes its owner in one of the load managers.

    `prepare` may refuse, before the intent is written. `carry_out` makes the call and sees where the bundle landed.
    `exclusive` is what no two moves in flight may share.
    """

    prepare: Callable[[MoveState], Awaitable[MoveOutcome | None]]
    carry_out: Callable[[MoveState], Awaitable[MoveOutcome]]
    exclusive: Callable[[MoveRequest], str]


# --- modular load manager ---
# Topic -> unload with destination -> claim at the destination -> confirm. Brokers only arm an affinity for the first
# lookup after the unload; the claim is that lookup, before a client's.


async def _find_topic(move_state: MoveState) -> MoveOutcome | None:
    """Find one topic to look up at the destination, or none when none is known; refuses nothing.

    Read from the owner (non-persistent ones included), else from the metadata. Without a topic there is nothing to
    look up: the unload still arms the affinity in the leader's memory, so the first client's lookup goes to the
    destination, and only the ownership node shows where it went.
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
    # The name decides, so that two leaders choose alike; a persistent topic of a user is surest to exist later.
    move_state.topic = min(topics, key=lambda topic: (*_oddity(topic), topic), default="")
    return None


async def _modular_move(move_state: MoveState) -> MoveOutcome:
    """Unload, claim, confirm.

    Clients race us: they look the bundle up the moment it is free; the affinity sends the first one to the
    destination, the second may be placed anywhere before the destination has made its node. The claim after the
    answer wins nearly always; a destination starved of CPU can lose, and then the next plan decides. Claims made
    while the unload still runs won no more often when measured (both 499 of 500, interleaved), so there are none.
    """
    claims = _Claims(move_state)

    async def confirm(error: str) -> MoveOutcome:
        # Of an unknown outcome it is read first whether the bundle is free: a lookup, never a second unload.
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
    """Whether no broker owns a bundle without topics for a moment after its unload: none will before a client comes,
    and the affinity sends that one to the destination."""
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
    """The metadata leader, which arms the affinity; unknown: the owner, who redirects to the leader it knows."""
    try:
        leader = await move_state.ports.metadata.metadata_leader()
    except (StoreError, CodecError):
        leader = None
    return leader or move_state.request.source


class _Claims:
    """Authoritative lookups at the destination, one after the other, until it or a third broker owns the bundle.

    An error or the source's name means that the destination does not know yet. None follows after leadership was lost.
    """

    def __init__(self, move_state: MoveState) -> None:
        self._move_state = move_state
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to claim, once; without a topic there is nothing to look up."""
        if self._task is None and self._move_state.topic:
            self._task = asyncio.create_task(self._claim(), name=f"claim {self._move_state.request.bundle}")

    async def cancel(self) -> None:
        """Give up a claim under way: the bundle has landed, or time is up."""
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
                # Who owns the bundle is read from the store anyway; a claim only helps it to land.
                answering = ""
            if answering not in ("", move_state.request.source):
                return
            await move_state.ports.clock.sleep(pause)
            pause = min(pause * 2, _CLAIM_MAX_SECONDS)


def _oddity(topic: str) -> tuple[bool, bool]:
    """Non-persistent topics vanish with their last client, system topics with a policy: chosen last."""
    try:
        name = parse_topic(topic)
    except ValueError:
        return True, True
    return name.domain != "persistent", name.local.startswith("__")


def _range(request: MoveRequest) -> str:
    """Equal ranges of two namespaces share one affinity on brokers before 4.2."""
    return request.bundle.rpartition("/")[2]


MODULAR_MOVE: Final = TransferMethod(prepare=_find_topic, carry_out=_modular_move, exclusive=_range)


# --- extensible load manager (PIP-192) ---
# Unload with destination at the owner -> confirm. The brokers publish Releasing, Assigning and Owned in the ownership
# channel; done is a 204 and the channel saying Owned at the destination. Nothing is claimed: brokers tell clients the
# new owner, and a lookup would assign.


async def _prepare(move_state: MoveState) -> MoveOutcome | None:
    """Refuse what brokers answer with 500 "cannot be transfer to same broker": they compare the ends of the ids."""
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
    """The outcome, once the channel shows that the transfer began and ended at another broker than the destination.

    When a broker dies the leader of the brokers gives the bundle away (`overrideOwnership`), and the call goes on for
    a minute to its own time-out without any effect on the bundle: nothing is left to wait for.
    """
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
            return move_state.landed(owner.broker_id, "the brokers ended the transfer otherwise")
        began = began or owner.disabled


def _bundle(request: MoveRequest) -> str:
    return request.bundle


EXTENSIBLE_MOVE: Final = TransferMethod(prepare=_prepare, carry_out=_extensible_move, exclusive=_bundle)
