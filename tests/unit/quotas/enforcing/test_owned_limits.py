"""Foreign nodes among the chunks of the record of set limits (issue S)."""

from __future__ import annotations

from typing import Any

import pytest

from bundlekeel.leader.state.documents import store_blob
from bundlekeel.quotas.enforcing.owned_limits import HELD, REPORT, OwnedLimits
from tests.support.world import FakeCluster, FakeSidecar
from tests.unit.leader.state.test_foreign_chunks import NAMES, undeletable


@pytest.mark.parametrize("name", NAMES)
async def test_s_a_foreign_chunk_of_quotas_changes_nothing(name: str, monkeypatch: Any) -> None:
    sidecar = await FakeSidecar(FakeCluster()).lead()
    epoch, limits = sidecar.shared_state.current_epoch(), OwnedLimits(sidecar.coordination)
    for folder in (HELD, REPORT):
        await sidecar.coordination.write_shared(f"{folder}/{name}", b"{", version=None)
    undeletable(sidecar, monkeypatch)
    assert await limits.load() == ({}, {})
    await limits.store(epoch, {})
    await limits.store_report(epoch, {"a": 1})
    assert await limits.read_report() == {"a": 1}


async def test_s_a_chunk_that_cannot_be_deleted_does_not_stop_the_leader(monkeypatch: Any) -> None:
    """A smaller document leaves chunks behind; the first one says how many count."""
    sidecar = await FakeSidecar(FakeCluster()).lead()
    epoch = sidecar.shared_state.current_epoch()
    await store_blob(sidecar.coordination, epoch, REPORT, {"a": "x" * 600_000}, [])
    undeletable(sidecar, monkeypatch)
    await OwnedLimits(sidecar.coordination).store_report(epoch, {"a": 1})
    assert await OwnedLimits(sidecar.coordination).read_report() == {"a": 1}
