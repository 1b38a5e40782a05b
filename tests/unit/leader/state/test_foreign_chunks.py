"""Foreign nodes among the chunks of the leader's state do not stop sidecars from leading (issue S)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from bundlekeel.leader.state.shared_state import AVERAGES, STATE
from bundlekeel.model.errors import StoreError
from bundlekeel.ports import DocumentChange
from bundlekeel.requests.doctor import examine
from tests.support.world import FakeCluster, FakeSidecar

NAMES = ("-", "!", "000", "0000-old", "00000", "9999x", "zz", "n" * 500)


def undeletable(sidecar: FakeSidecar, monkeypatch: Any) -> None:
    """Let ZooKeeper refuse to delete nodes, as it does with a node that has children."""
    write = sidecar.coordination.write_fenced

    async def refusing(epoch: int, changes: Sequence[DocumentChange]) -> None:
        if any(change.data is None for change in changes):
            raise StoreError("NotEmptyError")
        await write(epoch, changes)

    monkeypatch.setattr(sidecar.coordination, "write_fenced", refusing)


@pytest.mark.parametrize("name", NAMES)
async def test_s_a_foreign_chunk_of_the_state_does_not_stop_a_term(name: str, monkeypatch: Any) -> None:
    """It is neither read nor deleted, and reported; what the last leader left is read."""
    sidecar = await FakeSidecar(FakeCluster()).lead()
    state = sidecar.shared_state
    epoch = state.current_epoch()
    await sidecar.cycle.turn()
    await state.save(sidecar.cycle.cycle_state, {"cycle": 7}, epoch=epoch)
    for folder in (STATE, AVERAGES):
        await sidecar.coordination.write_shared(f"{folder}/{name}", b"\x00\x00\x00\x09x", version=None)
    undeletable(sidecar, monkeypatch)
    await state.begin_term(epoch)
    assert state.shared.report == {"cycle": 7} and list(state.unreadable[STATE]) == [f"{STATE}/{name}"[:60]]
    state._chunks.clear()
    await state.save(sidecar.cycle.cycle_state, {"cycle": 8}, epoch=epoch)
    await state.save_averages(sidecar.observer.averages)
    await state.begin_term(epoch)
    assert state.shared.report == {"cycle": 8}
    assert await sidecar.coordination.read(f"{STATE}/{name}") is not None
    assert await examine(sidecar.doctor_context())
