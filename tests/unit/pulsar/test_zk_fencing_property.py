"""Fencing under every order of events: candidates campaign, write, resign, are cut off and expire at random."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from bundlekeel.model.errors import LeadershipLost, StoreError
from bundlekeel.ports import DocumentChange
from tests.support.contracts.coordination import member
from tests.support.memory_coordination import MemoryCoordination, MemoryStore

ACTIONS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["campaign", "write", "resign", "suspend", "resume", "expire"])),
    max_size=60,
)


@given(ACTIONS)
@settings(deadline=None)
def test_only_the_newest_epoch_writes(actions: list[tuple[int, str]]) -> None:
    """Epochs never repeat or shrink, at most one candidate leads, and no write of an older epoch takes effect."""
    asyncio.run(_play(actions))


async def _play(actions: list[tuple[int, str]]) -> None:
    store = MemoryStore()
    crowd = [MemoryCoordination(store) for _ in range(3)]
    for candidate in crowd:
        await candidate.start()
    believed = [0, 0, 0]
    newest = 0
    for who, action in actions:
        candidate = crowd[who]
        if action == "suspend":
            store.suspend(candidate)
        elif action == "resume":
            store.resume(candidate)
        elif action == "expire":
            store.expire(candidate)
        try:
            if action == "campaign":
                epoch = await candidate.campaign(member(str(who)))
                if epoch is not None:
                    assert epoch > newest
                    believed[who] = newest = epoch
            elif action == "resign":
                await candidate.resign(believed[who])
            elif action == "write":
                create = "state/x" not in store.nodes
                text = str(believed[who]).encode()
                try:
                    await candidate.write_fenced(
                        believed[who], [DocumentChange(path="state/x", data=text, create=create)]
                    )
                    assert believed[who] == newest
                except LeadershipLost:
                    assert believed[who] < newest or newest == 0
        except StoreError:
            assert not candidate.connected
        leading = [i for i in range(3) if crowd[i].connected and await crowd[i].still_leading(believed[i])]
        assert len(leading) <= 1
        assert all(believed[i] == newest for i in leading)
