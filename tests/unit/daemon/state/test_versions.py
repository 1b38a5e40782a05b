"""Two sidecars of adjacent versions: the newer one writes what the older one does not know, and neither is misled."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from bundlekeel.core.model.codes import Code
from bundlekeel.daemon.execution.intents import INTENTS, Intent
from bundlekeel.daemon.state.documents import SCHEMA, Pause
from bundlekeel.ports import DocumentChange
from tests.support.memory_coordination import MemoryCoordination
from tests.support.world import FakeCluster, FakeSidecar

NEW = {"from_the_future": {"deep": [1, 2, 3]}}


def newer(record: Any) -> Any:
    """A document as the next version would write it: a higher schema, and a field more everywhere."""
    if isinstance(record, list):
        return [newer(item) for item in record]
    if isinstance(record, dict):
        schema = {"schema": SCHEMA + 1} if "schema" in record else {}
        return record | schema | NEW
    return record


def rewritten(path: str, data: bytes) -> bytes:
    """The same bytes, a version later. Chunks of the leader's state begin with how many they are."""
    head, body = (data[:4], data[4:]) if path.startswith("state/leader") else (b"", data)
    try:
        plain = zlib.decompress(body)
    except zlib.error:
        return head + json.dumps(newer(json.loads(body))).encode()
    return head + zlib.compress(json.dumps(newer(json.loads(plain))).encode())


class NewerStore(MemoryCoordination):
    """What a sidecar of the next version writes."""

    async def write_fenced(self, epoch: int, changes: Sequence[DocumentChange]) -> None:
        made = [c if c.data is None else replace(c, data=rewritten(c.path, c.data)) for c in changes]
        await super().write_fenced(epoch, made)

    async def write_shared(self, path: str, data: bytes, *, version: int | None) -> int:
        return await super().write_shared(path, rewritten(path, data), version=version)


class NewerSidecar(FakeSidecar):
    """A sidecar of the next version."""

    def connect(self) -> MemoryCoordination:
        """What it writes is a version later."""
        return NewerStore(self.cluster.store)


@pytest.mark.parametrize(("first_kind", "second_kind"), [(NewerSidecar, FakeSidecar), (FakeSidecar, NewerSidecar)])
async def test_one_goes_on_where_the_other_left_off(
    first_kind: type[FakeSidecar], second_kind: type[FakeSidecar]
) -> None:
    """Ledger, cool-down and records of moves are taken over in both directions: nothing is moved again."""
    cluster = FakeCluster()
    first = await first_kind(cluster, "a").lead()
    outcomes = (await first.cycle.turn()).outcomes
    assert outcomes
    cluster.store.expire(first.coordination)
    second = await second_kind(cluster, "b").lead()
    second.cycle.adopt(second.shared_state.taken_over(), second.leadership.epoch)
    assert set(second.cycle.cycle_state.recent) == {outcome.bundle for outcome in outcomes}
    assert [item["bundle"] for item in second.shared_state.moves] == [outcome.bundle for outcome in outcomes]
    assert second.cycle.cycle_state.cycle == first.cycle.cycle_state.cycle
    cluster.publish()
    moved = {item.bundle for item in (await second.cycle.turn()).outcomes}
    assert not moved & {outcome.bundle for outcome in outcomes}


@pytest.mark.parametrize(("writer", "reader"), [(NewerSidecar, FakeSidecar), (FakeSidecar, NewerSidecar)])
async def test_an_intent_of_the_other_version_freezes_its_bundle(
    writer: type[FakeSidecar], reader: type[FakeSidecar]
) -> None:
    """It is read as what it is: left alone until its deadline, then settled with its id, source and destination."""
    cluster = FakeCluster()
    first = await writer(cluster, "a").lead()
    bundle = next(iter(cluster.owners()))
    term = first.leadership.current_epoch()
    await first.coordination.write_fenced(term, [left_open(bundle, first)])
    cluster.store.expire(first.coordination)
    second = await reader(cluster, "b").lead()
    assert second.shared_state.frozen == {bundle}
    cluster.clock.offset = 60.0
    cluster.store.expire(second.coordination)
    await second.leadership.turn()
    (record,) = [item for item in second.shared_state.moves if item["bundle"] == bundle]
    assert (record["intent"], record["source"], record["outcome"]) == ("1.9", "b1:8080", "landed_elsewhere")


def left_open(bundle: str, sidecar: FakeSidecar) -> DocumentChange:
    """An intent without an end."""
    now = sidecar.clock.wall_ms()
    intent = Intent(
        id="1.9",
        bundle=bundle,
        source="b1:8080",
        destination="b2:8080",
        epoch=1,
        member="a",
        wall_ms=now,
        deadline_ms=now + 5_000,
        cycle_id="",
        topic="",
    )
    assert intent.path.startswith(INTENTS)
    return DocumentChange(path=intent.path, data=intent.encode(), create=True)


async def test_a_stop_of_the_other_version_stops_both() -> None:
    """A pause is understood in both directions, and what the newer one wrote beside it survives the older one."""
    cluster = FakeCluster()
    older = await FakeSidecar(cluster, "a").lead()
    other = await NewerSidecar(cluster, "b").lead()
    pause = Pause(reason="stop", by="people", since_ms=1)
    await other.shared_state.change_desired(lambda desired: msgspec.structs.replace(desired, pause=pause))
    await older.shared_state.refresh()
    report = await older.cycle.turn()
    assert report.obstacle is not None
    assert report.obstacle.code is Code.PAUSED
    await older.shared_state.change_desired(lambda desired: msgspec.structs.replace(desired, pause=None))
    await other.shared_state.refresh()
    assert other.shared_state.desired.pause is None
    stored = await older.coordination.read("desired")
    assert stored is not None
    assert json.loads(zlib.decompress(stored.data))["from_the_future"] == NEW["from_the_future"]
