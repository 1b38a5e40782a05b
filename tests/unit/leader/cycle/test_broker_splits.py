"""Brokers that split on their own again after a takeover of splits: reported once, and again at the end."""

from __future__ import annotations

from bundlekeel.leader.cycle.external_splits import LASTING_MS
from bundlekeel.leader.state.takeover_record import SPLITTING, TAKEOVER, TakeoverRecord
from tests.support.world import BROKERS, FakeCluster, FakeSidecar, WallClock

B1, B2, B3 = BROKERS


async def taken_over(**overrides: str | None) -> FakeSidecar:
    """A leader under a takeover of these keys; no broker sheds or splits by itself."""
    sidecar = await FakeSidecar(FakeCluster(clock=WallClock()), mode="recommend").lead()
    sidecar.cluster.model.dynamic[SPLITTING] = "false"
    record = TakeoverRecord(by="ann", reason="r", wall_ms=1, overrides=overrides, runtime={})
    await sidecar.coordination.write_shared(TAKEOVER, record.encode(), version=None)
    await sidecar.shared_state.refresh()
    await turn(sidecar)
    return sidecar


async def turn(sidecar: FakeSidecar, seconds: float = 0.0) -> None:
    sidecar.clock.offset += seconds
    sidecar.cluster.publish()
    await sidecar.cycle.turn()


def list_notices(sidecar: FakeSidecar) -> list[tuple[str, list[str]]]:
    """Event and brokers of the findings so far."""
    return [(item["event"], item["brokers"]) for item in sidecar.journal.tail(100, kind="finding")]


async def test_a_broker_that_splits_again_is_told_once_and_when_it_is_over() -> None:
    sidecar = await taken_over(**{SPLITTING: None})
    assert sidecar.metric("broker_splits_itself").count(" 0.0") == 3
    assert sidecar.metric("broker_sheds_itself").count(" 0.0") == 3
    assert sidecar.metric("splits_taken_over").endswith(" 1.0")
    model = sidecar.cluster.model
    model.stubborn.add(B2)
    await turn(sidecar)
    assert list_notices(sidecar) == []
    assert f'broker_splits_itself{{broker="{B2}"}} 1.0' in sidecar.metric("broker_splits_itself")
    for _ in range(2):
        await turn(sidecar, LASTING_MS / 1000)
    assert list_notices(sidecar) == [("appeared", [B2])]
    (record,) = sidecar.journal.tail(10, kind="finding")
    assert record["code"] == "BrokersSplitThemselves" and "unloads the split bundles" in record["sentence"]
    model.stubborn.clear()
    await turn(sidecar)
    assert list_notices(sidecar) == [("appeared", [B2]), ("gone", [B2])]


async def test_what_lasts_only_a_moment_is_no_finding() -> None:
    """A takeover or handback in the middle."""
    sidecar = await taken_over(**{SPLITTING: None})
    sidecar.cluster.model.dynamic[SPLITTING] = "true"
    await turn(sidecar)
    sidecar.cluster.model.dynamic[SPLITTING] = "false"
    await turn(sidecar, LASTING_MS / 1000)
    assert list_notices(sidecar) == []


async def test_brokers_may_split_where_splits_were_not_taken_over() -> None:
    sidecar = await taken_over(loadBalancerSheddingEnabled=None)
    sidecar.cluster.model.dynamic[SPLITTING] = "true"
    await turn(sidecar)
    await turn(sidecar, LASTING_MS / 1000)
    assert list_notices(sidecar) == []
    assert sidecar.metric("splits_taken_over").endswith(" 0.0")
