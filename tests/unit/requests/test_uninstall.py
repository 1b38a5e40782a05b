"""The shared state of an installation is deleted once nothing of it is needed, and not before."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bundlekeel.model.errors import Conflict
from bundlekeel.model.members import Member
from bundlekeel.requests.takeover import TakeoverContext, handback, takeover
from bundlekeel.requests.uninstall import uninstall
from tests.support.memory_admin import MemoryAdmin
from tests.support.memory_coordination import MemoryCoordination
from tests.support.world import FakeCluster, FakeSidecar


async def test_it_deletes_all_once_nothing_is_needed() -> None:
    """Not while a sidecar runs, nor before the brokers have their own shedding back. A dry run deletes nothing."""
    cluster = FakeCluster()
    sidecar = await FakeSidecar(cluster).lead()
    await sidecar.cycle.turn()
    mine = MemoryCoordination(cluster.store)
    await mine.start()
    with pytest.raises(Conflict, match=r"^sidecars still run: a; stop them first$"):
        await uninstall(mine, dry_run=True)
    await sidecar.coordination.close()
    admin = MemoryAdmin(cluster.model)
    admin.set_endpoints(cluster.model.endpoints())
    context = TakeoverContext(
        admin=admin,
        commands=admin,
        coordination=mine,
        metadata=cluster.metadata,
        clock=cluster.clock,
        endpoints=cluster.model.endpoints(),
    )
    await takeover(context, split=False, reason="r", by="ann")
    with pytest.raises(Conflict, match=r"a takeover is in force: run `bundlekeel handback` first"):
        await uninstall(mine, dry_run=False)
    await handback(context, reason="r", by="ann")
    lines = await uninstall(mine, dry_run=True)
    assert {"takeover", "epoch"} < set(lines)
    assert await mine.paths() == lines
    assert await uninstall(mine, dry_run=False) == lines
    assert await mine.paths() == []
    for dry_run in (True, False):
        assert await uninstall(mine, dry_run=dry_run) == []


class Overtaken(MemoryCoordination):
    """A session during which a sidecar takes its seat right before the nodes are deleted."""

    async def erase(self, paths: Sequence[str]) -> None:
        """Late by one seat."""
        other = MemoryCoordination(self.store)
        await other.start()
        await other.take_seat(Member(id="late"), seats=3)
        await super().erase(paths)


async def test_a_sidecar_that_starts_meanwhile_is_no_half_deletion() -> None:
    """The store deletes all or nothing; the message says what to do."""
    mine = Overtaken(FakeCluster().store)
    await mine.start()
    await mine.write_shared("desired/x", b"1", version=None)
    with pytest.raises(Conflict, match=r"nothing was deleted, a sidecar wrote meanwhile: stop it and try again"):
        await uninstall(mine, dry_run=False)
    assert await mine.read("desired/x") is not None
