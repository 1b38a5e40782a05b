"""A leader that sleeps through its session wakes up as a follower: it changes nothing more, anywhere."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from kazoo.exceptions import BadVersionError, RuntimeInconsistency

from bundlekeel.model.errors import LeadershipLost
from bundlekeel.ports import DocumentChange
from bundlekeel.pulsar.zookeeper import ZkClient, ZkCoordination
from bundlekeel.wiring.clock import SystemClock
from dev.sidecar import Sidecar
from tests.chaos.stage import PATIENT, Stage, carry_out_hurt, lead_and_follow, make_plan, until
from tests.chaos.zk import kazoo
from tests.support.contracts.coordination import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

GRACE_SECONDS = 1.0


async def late_write(stage: Stage, epoch: int) -> None:
    """Write as a deposed leader does: our adapter, with its old epoch, on the root of the new leader."""
    client = ZkClient(stage.cluster.zk_hosts, "/pulsar", session_seconds=10.0, call_timeout_seconds=5.0)
    coordination = ZkCoordination(client, root=stage.root.removeprefix("/pulsar"), clock=SystemClock())
    await coordination.start()
    await eventually(lambda: coordination.connected, within=20.0)
    try:
        await coordination.write_fenced(epoch, [DocumentChange(path="state/term", data=b"late")])
    finally:
        await coordination.close()


def bare_late_write(stage: Stage, epoch: int) -> list[type]:
    """Return ZooKeeper's response to each step of the same transaction without our adapter."""
    with kazoo(stage.cluster) as client:
        transaction = client.transaction()
        transaction.check(f"{stage.root}/epoch", epoch)
        transaction.set_data(f"{stage.root}/state/term", b"late")
        return [type(result) for result in transaction.commit()]


def test_a_stopped_leader_sends_nothing_more(stage: Stage, tmp_path: Path) -> None:
    """Stopped with moves in flight: no mutation after it continues, a late write is refused, the successor is whole."""
    with stage.sidecars("AB", tmp_path, parameters=PATIENT) as sidecars:
        old, (new,) = lead_and_follow(sidecars)
        epoch, session = old.state()["epoch"], old.state()["store"]["session_seconds"]
        *_, heal = carry_out_hurt(stage, old, seconds=2.0, at_least=3)
        until(lambda: stage.unloads(old.name), "a move is in flight", within=30)
        old.pause()
        heal()
        until(lambda: new.state().get("role") == "leader", "the other one leads", within=session + 20)
        term = stage.document("state/term")
        time.sleep(1.0)
        before = len(stage.mutations(old.name))
        old.resume()
        resumed_ms = time.time() * 1000
        until(lambda: (old.state().get("leader") or {}).get("id") == new.name, "it has noticed", within=30)
        plan = make_plan(old)
        # As long as a move is confirmed: were anything left to be sent, it would have been by now.
        time.sleep(12.0)
        late = stage.mutations(old.name)[before:]
        print(  # noqa: T201
            f"\n{len(stage.unloads(old.name))} unloads before the stop; after it continued: "
            f"{[round(item.wall_ms - resumed_ms) for item in late]} ms"
        )
        assert not [item for item in late if item.wall_ms > resumed_ms + 1000 * GRACE_SECONDS]
        assert not [item for item in late if item.method == "PUT"]
        assert plan["by_leader"], "it asks its successor like any follower"
        assert "leadership lost" in old.log.read_text(encoding="utf-8")
        assert stage.document("state/term") == term
        check_successor(stage, old, new, epoch)


def check_successor(stage: Stage, old: Sidecar, new: Sidecar, epoch: int) -> None:
    """A write of the old term is refused, and the new term is untouched by it."""
    term = stage.document("state/term")
    with pytest.raises(LeadershipLost):
        asyncio.run(late_write(stage, epoch))
    assert bare_late_write(stage, epoch) == [BadVersionError, RuntimeInconsistency]
    assert stage.document("state/term") == term
    assert term["epoch"] == epoch + 1
    assert new.state()["role"] == "leader"
    assert new.state()["epoch"] == epoch + 1
    assert old.state()["leader"]["id"] == new.name
    assert old.moves() == new.moves()
