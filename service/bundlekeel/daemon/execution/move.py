"""What moves have in common, whatever the load manager: the request, its checks, its record, and where it landed.

policy -> owner -> prepare -> intent -> permit -> unload with destination -> confirm. How a bundle changes its owner is
a `TransferMethod`: `unload_and_claim` in the modular load manager, `transfer` in the extensible one. The unload is sent
at most once, whatever its answer: an unknown outcome is settled by reading who owns the bundle.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from bundlekeel.core.model.codes import Code
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
from bundlekeel.core.model.names import is_system_bundle
from bundlekeel.core.model.plan import Refusal
from bundlekeel.daemon.execution.intents import INTENT_SECONDS, Intent, MoveOutcome, OutcomeWord
from bundlekeel.ports import BrokerAdmin, Clock, Coordination, Metadata, Owner, Ownership
from bundlekeel.ports.commands import BrokerCommands, Permit

MODULAR: Final = "modular"
EXTENSIBLE: Final = "extensible"
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
    """The ports a move needs, and which load manager the brokers run now (`Picture.mode`)."""

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


def _nothing() -> None:
    return None


@dataclass(slots=True, kw_only=True)
class MoveState:
    """The state of one move. `outcome()` makes its record with what is known so far. `bare`: the bundle certainly has
    no topics, so no client asks for it once it is free."""

    request: MoveRequest
    world: MovePorts
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

    def __post_init__(self) -> None:
        self.started_wall_ms = self.world.clock.wall_ms()
        self.started_boot = self.world.clock.boot()

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
            landed_wall_ms=self.world.clock.wall_ms() if landed_on else 0,
            seconds=self.world.clock.boot() - self.started_boot,
            hops=self.hops,
            topic=self.topic,
            epoch=self.term.epoch,
            intent_id=self.intent_id,
            cycle_id=self.request.cycle_id,
            moving_seconds=self.world.clock.boot() - self.begun_boot if self.begun_boot else 0.0,
            predicted=self.request.predicted,
        )

    def refuse(self, code: str, error: str = "") -> MoveOutcome:
        """Provably nothing happened to the bundle."""
        return self.outcome("refused", code, error=error)

    def intent(self) -> Intent:
        """What is written before anything is done. Its time starts now, not at admission: slots make moves wait."""
        now, self.begun_boot = self.world.clock.wall_ms(), self.world.clock.boot()
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
            owner = await self.world.ownership.owner(request.bundle)
        except (StoreError, CodecError) as error:
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
        """Unload with destination, asked at broker `at`; called once per intent. `lost` says that leadership ended.

        `confirm` reads where the bundle is afterwards, given the error when the outcome of the call is unknown.
        """
        request = self.request
        try:
            answer = await self.world.commands.unload(
                request.bundle, destination=request.destination, at=at, permit=self.term.permit
            )
        except LeadershipLost as error:
            # The permit is asked before each hop, and only the last hop unloads: nothing happened to the bundle.
            self.lost = True
            return self.refuse(Code.NOT_LEADER, str(error))
        except StoreError as error:
            # The permit again: the store is out of reach for the moment, and nothing happened to the bundle.
            return self.refuse(Code.STORE_UNAVAILABLE, str(error))
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
        clock, limits = self.world.clock, self.limits
        deadline = clock.boot() + limits.confirm_seconds
        pause, owner, source_seen = limits.poll_first_seconds, None, 0
        unreadable = ""
        while True:
            try:
                owner, unreadable = await self.world.ownership.owner(self.request.bundle), ""
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
