"""Proposals that cannot be read are kept, and intents that appear during a term are examined."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from bundlekeel.leader.execution.intents import Intent, intent_path
from bundlekeel.leader.runtime import INTENTS_SECONDS
from bundlekeel.leader.state.documents import Desired, encode
from bundlekeel.leader.state.shared_state import DESIRED
from bundlekeel.model.errors import Conflict, StoreError
from bundlekeel.ports import DocumentChange
from bundlekeel.requests.doctor import examine
from bundlekeel.requests.review import REVIEWS
from bundlekeel.simulator.virtual_time import run_virtually
from tests.support.builders import bundle_name
from tests.support.virtual_time import LoopClock
from tests.support.world import BROKERS, FakeCluster, FakeSidecar
from tests.unit.requests.test_review import ID, proposed


async def overwritten(sidecar: FakeSidecar, data: bytes) -> None:
    """Let another program write the node of proposals."""
    document = await sidecar.coordination.read(REVIEWS)
    await sidecar.coordination.write_shared(REVIEWS, data, version=document.version if document else None)


@pytest.mark.parametrize("data", [b"\xff", b"{}", b'{"schema": 999999, "items": []}', b'{"schema": 1, "items": 5}'])
async def test_s16_unreadable_reviews_are_not_overwritten(data: bytes) -> None:
    sidecar, reviews = await proposed()
    await reviews.approve(ID, reason="fine", by="bob")
    await overwritten(sidecar, data)
    await sidecar.executions.serve()
    body: dict[str, Any] = {"kind": "transfer", "by": "ann"}
    for call in (
        reviews.submit("other", "transfer", "t", body),
        reviews.approve(ID, reason="r", by="bob"),
        reviews.discard(ID, reason="r", by="bob"),
        reviews.begin(ID, "task"),
    ):
        with pytest.raises((StoreError, Conflict), match="cannot be read"):
            await call
    await reviews.settle()
    assert await reviews.all() == []
    document = await sidecar.coordination.read(REVIEWS)
    assert document is not None and document.data == data and sidecar.cluster.model.unloads == []
    [check] = [item for item in await examine(sidecar.doctor_context()) if item.name == "documents"]
    assert not check.ok and REVIEWS in check.detail
    assert REVIEWS in sidecar.shared_state.unreadable.get(REVIEWS, {})


def test_s16_an_intent_that_appears_during_a_term_is_examined() -> None:
    async def main() -> tuple[bool, bool]:
        sidecar = FakeSidecar(FakeCluster(clock=LoopClock()))
        run = asyncio.create_task(sidecar.runtime.run())
        await asyncio.sleep(30.0)
        epoch, bundle, now = sidecar.shared_state.current_epoch(), bundle_name(0), sidecar.clock.wall_ms()
        assert not sidecar.shared_state.frozen
        intent = Intent(
            id="late",
            epoch=epoch - 1,
            bundle=bundle,
            source=BROKERS[0],
            destination=BROKERS[2],
            wall_ms=now,
            deadline_ms=now + 30_000,
            member="other",
            cycle_id="",
            topic="",
        )
        change = DocumentChange(path=intent_path(bundle), data=intent.encode(), create=True)
        await sidecar.coordination.write_fenced(epoch, [change])
        await asyncio.sleep(2 * INTENTS_SECONDS)
        frozen = bundle in sidecar.shared_state.frozen
        await asyncio.sleep(300.0)
        document = await sidecar.coordination.read(intent_path(bundle)) is None
        sidecar.runtime.request_stop()
        await run
        return frozen, document

    assert run_virtually(main()) == (True, True)


@pytest.mark.parametrize("data", [b"\xff", encode([]), encode({"pinned": {"b": -5}}), encode({"schema": "x"})])
async def test_s16_unreadable_requests_are_not_overwritten(data: bytes) -> None:
    """Every change is refused but a pause, which keeps what it replaces; then all changes are possible again."""
    sidecar = await FakeSidecar(FakeCluster()).lead()
    await sidecar.cycle.turn()
    service, requests = sidecar.service, sidecar.service.requests
    await sidecar.coordination.write_shared(DESIRED, data, version=None)
    who: dict[str, Any] = {"reason": "r", "by": "ann"}
    calls: tuple[Callable[[], Awaitable[object]], ...] = (
        lambda: service.resume(**who),
        lambda: service.set_mode("observe", **who),
        lambda: requests.pin(bundle_name(0), seconds=None, **who),
        lambda: requests.pause_scope(f"broker:{BROKERS[0]}", seconds=None, **who),
    )
    for call in calls:
        with pytest.raises(StoreError, match=r"cannot be read.*not overwritten"):
            await call()
    document = await sidecar.coordination.read(DESIRED)
    assert document is not None and document.data == data
    await service.pause(seconds=None, **who)
    remaining = [path for path in await sidecar.coordination.paths() if path.startswith(f"{DESIRED}-")]
    copies = [await sidecar.coordination.read(path) for path in remaining]
    assert [copy.data for copy in copies if copy is not None] == [data]
    assert sidecar.shared_state.desired == Desired(pause=sidecar.shared_state.desired.pause)
    await service.pause(seconds=None, **who)
    await service.resume(**who)
    assert sidecar.shared_state.desired == Desired() and not sidecar.shared_state.unreadable[DESIRED]
    assert len([path for path in await sidecar.coordination.paths() if path.startswith(f"{DESIRED}-")]) == 1
