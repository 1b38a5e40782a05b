"""The ZooKeeper coordination keeps the contract on a real ZooKeeper; and what only a real one can show."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from bundlekeel.model.errors import LeadershipLost, StoreError
from bundlekeel.ports import DocumentChange
from bundlekeel.pulsar.zookeeper.client import ZkClient
from bundlekeel.pulsar.zookeeper.coordination import ZkCoordination
from dev.cluster import Cluster
from tests.support.contracts.coordination import CoordinationContract, eventually, lead, member
from tests.support.contracts.zookeeper import (
    CALL_SECONDS,
    SESSION_SECONDS,
    ZooKeeperWorld,
    chroot,
    until_connected,
    with_kazoo,
    zookeeper,
)
from tests.support.memory_source import RealClock

__all__ = ["chroot", "zookeeper"]

pytestmark = pytest.mark.zookeeper


@pytest.fixture
async def world(zookeeper: Cluster, chroot: str) -> AsyncIterator[ZooKeeperWorld]:
    """Sidecars on one ZooKeeper."""
    value = ZooKeeperWorld(zookeeper, chroot)
    yield value
    await value.close()


class TestZooKeeperCoordination(CoordinationContract):
    """Contract, on a real ZooKeeper."""


async def test_a_dead_sidecar_is_replaced_within_its_session_time_out(world: ZooKeeperWorld) -> None:
    """Fail-over: a leader whose process hangs loses its node after the session time-out, and another wins."""
    a, b = await world.join(), await world.join()
    old = await lead(a, "a")
    identity = world.client_of(a)
    # The connection of a hung process: open, and silent.
    identity._kazoo._connection._send_ping = lambda timeout: None
    started = time.monotonic()
    new = await lead(b, "b")
    assert new == old + 1
    assert time.monotonic() - started < SESSION_SECONDS + 1.5
    del identity._kazoo._connection._send_ping
    await until_connected(identity)

    async def refused() -> bool:
        with pytest.raises(LeadershipLost):
            await a.write_fenced(old, [])
        return True

    await eventually(refused)


async def test_a_restarted_sidecar_does_not_believe_its_old_node(world: ZooKeeperWorld) -> None:
    """A node of an earlier process with the same id belongs to another process until it expires."""
    a = await world.join()
    old = await lead(a, "a")
    again = await world.join()
    assert await again.campaign(member("a")) is None
    assert not await again.still_leading(old)
    leader = await again.leader()
    assert leader is not None
    assert (leader.id, leader.epoch) == ("a", old)
    await again.resign(old)
    assert await a.still_leading(old)


async def test_the_check_on_the_epoch_fences_where_one_on_the_leader_node_would_not(
    world: ZooKeeperWorld, chroot: str
) -> None:
    """The epoch is a persistent node, because each new leader node starts at version 0 again."""
    a, b = await world.join(), await world.join()
    await lead(a, "a")
    await world.expire(a)
    await lead(b, "b")
    stat = with_kazoo(world.zookeeper.zk_hosts, lambda kazoo: kazoo.exists(f"{chroot}/bundlekeel/test/leader"))
    assert stat.version == 0


async def test_a_lost_answer_of_a_won_campaign_is_no_deadlock(world: ZooKeeperWorld) -> None:
    """When the store took the win but its answer was lost, campaigning again wins with a fresh epoch."""
    a = await world.join()
    await a.members()
    client = world.client_of(a)
    transaction = client.transaction

    async def lossy(steps: object) -> object:
        await transaction(steps)  # type: ignore[arg-type]
        raise StoreError("answer lost")

    client.transaction = lossy  # type: ignore[assignment,method-assign]
    with pytest.raises(StoreError):
        await a.campaign(member("a"))
    client.transaction = transaction  # type: ignore[method-assign]
    epoch = await a.campaign(member("a"))
    assert epoch == 2
    assert await a.still_leading(2)


async def test_nothing_is_written_outside_the_root(world: ZooKeeperWorld, chroot: str) -> None:
    """Below the chroot there is our root and nothing else of ours."""
    a = await world.join()
    epoch = await lead(a, "a")
    await a.take_seat(member("a"), seats=3)
    await a.write_fenced(epoch, [DocumentChange(path="state/x", data=b"", create=True)])
    hosts = world.zookeeper.zk_hosts
    assert with_kazoo(hosts, lambda kazoo: kazoo.get_children(chroot)) == ["bundlekeel"]
    assert with_kazoo(hosts, lambda kazoo: kazoo.get_children(f"{chroot}/bundlekeel")) == ["test"]


async def test_a_missing_chroot_is_said_and_not_made(zookeeper: Cluster) -> None:
    """A wrong chroot in the settings gives an error that names it, and no node."""
    client = ZkClient(zookeeper.zk_hosts, "/wrong", session_seconds=SESSION_SECONDS, call_timeout_seconds=CALL_SECONDS)
    sidecar = ZkCoordination(client, root="/bundlekeel/test", clock=RealClock())
    await sidecar.start()
    await until_connected(client)
    with pytest.raises(StoreError, match="chroot '/wrong'"):
        await sidecar.campaign(member("a"))
    await sidecar.close()
    assert with_kazoo(zookeeper.zk_hosts, lambda kazoo: kazoo.exists("/wrong")) is None


async def test_a_root_deleted_manually_is_made_again(world: ZooKeeperWorld, chroot: str) -> None:
    """After a deletion of our root a new one is created, without a restart."""
    a = await world.join()
    await lead(a, "a")
    with_kazoo(world.zookeeper.zk_hosts, lambda kazoo: kazoo.delete(f"{chroot}/bundlekeel", recursive=True))
    assert not await a.still_leading(1)
    assert await lead(a, "a") == 1
    await a.write_shared("desired/mode", b"x", version=None)


async def test_a_write_that_is_too_large_is_refused_here(world: ZooKeeperWorld) -> None:
    """A request the server would answer by dropping the connection does not leave."""
    a = await world.join()
    epoch = await lead(a, "a")
    session = world.client_of(a).session_id
    with pytest.raises(StoreError, match="bytes"):
        await a.write_fenced(epoch, [DocumentChange(path="state/x", data=bytes(1_100_000), create=True)])
    assert await a.still_leading(epoch)
    assert world.client_of(a).session_id == session


async def test_a_long_silence_is_noticed_and_survived(world: ZooKeeperWorld) -> None:
    """SIGSTOP for longer than the session: calls fail meanwhile, and the connection is given up although calls
    continue. After SIGCONT all works again with a new session and a new term.
    """
    a = await world.join()
    client = world.client_of(a)
    epoch = await lead(a, "a")
    await world.freeze()
    noticed = 0.0
    try:
        started = time.monotonic()
        while time.monotonic() - started < 1.5 * SESSION_SECONDS:
            with pytest.raises(StoreError):
                await a.still_leading(epoch)
            if not client.connected and not noticed:
                noticed = time.monotonic() - started
            await asyncio.sleep(0.02)
        assert not a.connected
        assert 0 < noticed <= SESSION_SECONDS
    finally:
        await world.thaw()
    assert await lead(a, "a") > epoch
