"""Warm-ups: what they bring, and when they end."""

from __future__ import annotations

import msgspec
import pytest

from bundlekeel.leader.state.documents import OperatorRequest
from bundlekeel.model.errors import Conflict
from tests.support.world import PIN, FakeCluster, FakeSidecar
from tests.unit.requests.sidecars import B1, B2, B3, WHO, both, seeing


async def test_a_warm_that_brings_nothing_says_why() -> None:
    """The broker has its share, or what could come is bound."""
    leader, _ = await both()
    dry = await leader.service.requests.warm(B1, dry_run=True, **WHO)
    assert (dry.moves, dry.detail) == ([], "the broker has its share of the load: its load is 15.0%, the mean 11.7%")
    pinned = dict.fromkeys(leader.cluster.shares, PIN)
    await leader.shared_state.change_desired(lambda result: msgspec.structs.replace(result, pinned=pinned))
    dry = await leader.service.requests.warm(B2, dry_run=True, **WHO)
    assert dry.moves == [] and dry.detail.endswith(": 3 Pinned")


async def test_a_broker_cordoned_at_another_replica_is_not_warmed() -> None:
    """The replica that is asked has not read of the cordon yet."""
    leader, other = await both()
    await leader.service.requests.cordon(B2, **WHO)
    assert B2 not in other.shared_state.desired.cordons
    with pytest.raises(Conflict, match="uncordon it first"):
        await other.service.requests.warm(B2, dry_run=False, **WHO)
    await leader.shared_state.refresh()
    assert leader.shared_state.desired.warms == {}


async def test_a_warm_broker_is_no_longer_warmed() -> None:
    """Three plans in a row say so; then the request is gone from the shared state, and a dry run moves nothing more, by
    which `warm --wait` knows."""
    cluster = FakeCluster({B1: [0.1, 0.1], B2: [0.1, 0.1], B3: [0.1, 0.1]})
    sidecar = await FakeSidecar(cluster).lead()
    operator_request = OperatorRequest(by="ann", reason="new", since_ms=1)
    await sidecar.shared_state.change_desired(
        lambda desired: msgspec.structs.replace(desired, warms={B3: operator_request})
    )
    for left in ({B3: operator_request}, {B3: operator_request}, {}):
        await sidecar.cycle.turn()
        assert sidecar.shared_state.desired.warms == left
    assert not (await sidecar.service.requests.warm(B3, dry_run=True, reason="", by="ann")).moves


async def test_a_warm_up_in_a_roll_out_starts_after_it() -> None:
    """The dry run shows the moves that follow then."""
    cluster = FakeCluster({B1: [0.05] * 6, B2: [0.05] * 6})
    sidecar = await seeing(cluster)
    sidecar.cluster.source.remove(B3)
    await sidecar.cycle.turn()
    sidecar.cluster.publish()
    await sidecar.cycle.turn()
    dry = await sidecar.service.requests.warm(B3, dry_run=True, **WHO)
    assert len(dry.moves) == 4
    assert dry.detail.startswith(f"it starts after the roll-out: brokers are restarting ({B3})")
