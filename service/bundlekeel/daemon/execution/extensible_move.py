"""A move in the extensible load manager (PIP-192): the owner hands the bundle over, and answers when that is finished.

unload with destination at the owner -> confirm. The brokers publish Releasing, Assigning and Owned in the ownership
channel; done is a 204 and the channel saying Owned at the destination. Nothing is claimed: clients are told the new
owner, and a lookup would assign.
"""

from __future__ import annotations

import asyncio
from typing import Final

from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.errors import CodecError, StoreError
from bundlekeel.daemon.execution.intents import MoveOutcome
from bundlekeel.daemon.execution.move import MoveRequest, MoveState, TransferMethod

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
