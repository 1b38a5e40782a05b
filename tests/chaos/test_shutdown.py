"""SIGTERM amid moves: calls end or leave their intent to the next leader; leadership is given up at once."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from dev.sidecar import Sidecar, leader_of
from tests.chaos.stage import PATIENT, Stage, carry_out, until, web_address
from tests.chaos.zk import kazoo, read

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

GRACE_SECONDS = 20.0


def leader_node(stage: Stage) -> bytes | None:
    """Who leads, as ZooKeeper has it."""
    with kazoo(stage.cluster) as client:
        return read(client, f"{stage.root}/leader")


def test_a_call_in_flight_ends(stage: Stage, tmp_path: Path) -> None:
    """A slow move is finished and recorded before the leader leaves; its node is gone with it."""
    with stage.sidecars("A", tmp_path, parameters={**PATIENT, "max_moves_per_cycle": 2}) as (leader,):
        session = leader.state()["store"]["session_seconds"]
        first_hop = web_address(stage.leader_broker())
        carry_out(
            stage,
            leader,
            lambda _plan: stage.recorder.set_delay(1.5, first_hop),
            undo=lambda: stage.recorder.set_delay(0.0, first_hop),
        )
        until(stage.unloads, "a move is in flight", within=30)
        started = time.monotonic()
        code = leader.stop(GRACE_SECONDS)
        seconds = time.monotonic() - started
        gone = leader_node(stage) is None
        records = [record for record in leader.records() if record["kind"] == "move"]
        print(f"\nleft after {seconds:.1f} s (session {session:.0f} s): {[r['outcome'] for r in records]}")  # noqa: T201
        assert code == 0
        assert gone, "nobody waits for the session to expire"
        assert stage.intents() == []
        assert records
        assert {record["outcome"] for record in records} <= {"done", "refused"}
        assert any(record["outcome"] == "done" for record in records)


def test_a_call_that_hangs_is_left_to_the_next_leader(stage: Stage, tmp_path: Path) -> None:
    """The leader leaves in time although a broker hangs; its intent stays, and the next leader settles it."""
    parameters = {**PATIENT, "max_moves_per_cycle": 1}
    with stage.sidecars("AB", tmp_path, parameters=parameters, admin={"read_timeout": "17s"}) as sidecars:
        old = until(lambda: leader_of(sidecars), "somebody leads", within=30)
        new = next(item for item in sidecars if item is not old)
        first_hop = web_address(stage.leader_broker())
        plan, _ = carry_out(
            stage,
            old,
            lambda _plan: stage.recorder.freeze(True, first_hop),
            undo=lambda: stage.recorder.freeze(False, first_hop),
        )
        until(stage.unloads, "a move is in flight", within=30)
        bundle = plan["moves"][0]["bundle"]
        started = time.monotonic()
        code = old.stop(GRACE_SECONDS)
        seconds = time.monotonic() - started
        assert code == 0
        until(lambda: new.state().get("role") == "leader", "the other one leads at once", within=3)
        stage.recorder.freeze(False, first_hop)
        assert stage.intents() == [bundle]
        assert new.state()["intents"] == [bundle]
        until(lambda: code_of(new, bundle) == "FrozenIntent", "its bundle is frozen", within=20)
        until(lambda: not stage.intents(), "the intent is settled", within=90)
        record = next(record for record in new.moves() if record["bundle"] == bundle)
        print(f"\nleft after {seconds:.1f} s; settled as {record['outcome']}: {record['sentence']}")  # noqa: T201
        assert record["landed_on"] == stage.owners()[bundle]
        assert len([item for item in stage.unloads() if item.bundle == bundle]) == 1
        assert new.state()["intents"] == []


def code_of(sidecar: Sidecar, bundle: str) -> str | None:
    """Why a bundle may not move."""
    rows = sidecar.get("/api/v1/bundles") or []
    return next((row["code"] for row in rows if row["bundle"] == bundle), None)
