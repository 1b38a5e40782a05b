"""Cordons: brokers to which nothing moves."""

from __future__ import annotations

import asyncio

import pytest

from bundlekeel.model.errors import Conflict
from tests.unit.requests.sidecars import (
    B1,
    B2,
    B3,
    WHO,
    both,
)


async def test_the_last_open_broker_is_not_cordoned() -> None:
    leader, other = await both()
    await leader.service.requests.drain(B1, dry_run=False, **WHO)
    await leader.service.requests.cordon(B2, **WHO)
    await leader.service.requests.cordon(B2, **WHO | {"reason": "new disks"})
    assert not other.shared_state.desired.cordons
    with pytest.raises(Conflict, match=f"no other broker is open .* all but {B3} are drained or cordoned; uncordon"):
        await other.service.requests.cordon(B3, **WHO)
    await leader.shared_state.refresh()
    assert set(leader.shared_state.desired.cordons) == {B2}
    await leader.service.requests.uncordon(B1, **WHO)
    assert (await other.service.requests.cordon(B3, **WHO)).state == "cordoned"


async def test_cordons_asked_at_two_replicas_at_once_leave_one_broker() -> None:
    leader, other = await both()
    faces = {B1: leader.service.requests, B2: other.service.requests, B3: other.service.requests}
    views = [service.cordon(broker, **WHO) for broker, service in faces.items()]
    answers = await asyncio.gather(*views, return_exceptions=True)
    assert [type(answer) for answer in answers if isinstance(answer, BaseException)] == [Conflict]
    await leader.shared_state.refresh()
    assert len(leader.shared_state.desired.cordons) == 2
