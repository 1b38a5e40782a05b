"""How a bundle changes its owner, in either load manager.

Modular: topic -> unload with destination -> claim at the destination -> confirm. Brokers only arm an affinity for the
first lookup after the unload; the claim is that lookup, before a client's. Extensible: the owner hands it over.
"""

from __future__ import annotations

import asyncio
from typing import Final

from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.errors import AdminApiError, BundlekeelError, CodecError, LeadershipLost, StoreError
from bundlekeel.core.model.names import parse_topic
from bundlekeel.daemon.execution.intents import MoveOutcome
from bundlekeel.daemon.execution.move import MoveRequest, MoveState, TransferMethod

_CLAIM_FIRST_SECONDS: Final = 0.01
_CLAIM_MAX_SECONDS: Final = 1.0
_FREE_SECONDS: Final = 0.5


async def _find_topic(move_state: MoveState) -> MoveOutcome | None:
    """Find one topic to look up at the destination, or none when none is known; refuses nothing.

    Asked at the owner (non-persistent ones included), else in the metadata. Without a topic nobody can be asked
    for the bundle: the unload still arms the affinity in the leader's memory, so the first client's lookup goes
    to the destination, and only the ownership node tells where it went.
    """
    bundle, world, told = move_state.request.bundle, move_state.world, 2
    try:
        topics = await world.admin.topics_of_bundle(bundle, move_state.request.source)
    except AdminApiError:
        topics, told = [], told - 1
    if not topics:
        try:
            topics = await world.metadata.topics(bundle)
        except (StoreError, CodecError):
            topics, told = [], told - 1
    move_state.bare = not topics and told == 2
    # The name decides, so that two leaders choose alike; a persistent topic of a user is surest to exist later.
    move_state.topic = min(topics, key=lambda topic: (*_oddity(topic), topic), default="")
    return None


async def _unload_and_claim(move_state: MoveState) -> MoveOutcome:
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
    clock = move_state.world.clock
    deadline = clock.boot() + _FREE_SECONDS
    while True:
        try:
            if await move_state.world.ownership.owner(move_state.request.bundle) is not None:
                return False
        except (StoreError, CodecError):
            return False
        if clock.boot() >= deadline:
            return True
        await clock.sleep(move_state.limits.poll_first_seconds)


async def _first_broker(move_state: MoveState) -> str:
    """The metadata leader, which arms the affinity; unknown: the owner, who redirects to the leader it knows."""
    try:
        leader = await move_state.world.metadata.metadata_leader()
    except (StoreError, CodecError):
        leader = None
    return leader or move_state.request.source


class _Claims:
    """Authoritative lookups at the destination, one after the other, until it or a third broker owns the bundle.

    An error or the source's name means that the destination has not heard yet. None follows after leadership was lost.
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
                answering = await move_state.world.commands.claim(
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
            await move_state.world.clock.sleep(pause)
            pause = min(pause * 2, _CLAIM_MAX_SECONDS)


def _oddity(topic: str) -> tuple[bool, bool]:
    """Non-persistent topics vanish with their last client, system topics with a policy: asked for last."""
    try:
        name = parse_topic(topic)
    except ValueError:
        return True, True
    return name.domain != "persistent", name.local.startswith("__")


def _range(request: MoveRequest) -> str:
    """Equal ranges of two namespaces share one affinity on brokers before 4.2."""
    return request.bundle.rpartition("/")[2]


UNLOAD_AND_CLAIM: Final = TransferMethod(prepare=_find_topic, carry_out=_unload_and_claim, exclusive=_range)


# A move in the extensible load manager (PIP-192): the owner hands the bundle over, and answers when that is
# finished.
# unload with destination at the owner -> confirm. The brokers publish Releasing, Assigning and Owned in the
# ownership channel; done is a 204 and the channel saying Owned at the destination. Nothing is claimed: clients are
# told the new owner, and a lookup would assign.


# Transfers take tenths of a second; only those that take long are looked at while their call is under way.
_PATIENCE_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 0.5


async def _prepare(move_state: MoveState) -> MoveOutcome | None:
    """Refuse what brokers answer with 500 "cannot be transfer to same broker": they compare the ends of the ids."""
    source, destination = move_state.request.source, move_state.request.destination
    if source.endswith(destination):
        return move_state.refuse(Code.ALIKE_BROKERS, f"{source} ends with {destination}")
    return None


async def _transfer(move_state: MoveState) -> MoveOutcome:
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
    clock, request = move_state.world.clock, move_state.request
    began = False
    pause = _PATIENCE_SECONDS
    while True:
        await clock.sleep(pause)
        pause = _LOOK_SECONDS
        try:
            owner = await move_state.world.ownership.owner(request.bundle)
        except (StoreError, CodecError):
            continue
        if owner is None:
            continue
        if began and not owner.disabled and owner.broker_id != request.destination:
            return move_state.landed(owner.broker_id, "the brokers ended the transfer otherwise")
        began = began or owner.disabled


def _bundle(request: MoveRequest) -> str:
    return request.bundle


TRANSFER: Final = TransferMethod(prepare=_prepare, carry_out=_transfer, exclusive=_bundle)
