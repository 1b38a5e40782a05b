"""An emergency stop amid a plan, or the stop of its task: asked of a follower, it stops the leader half-way."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from dev.sidecar import leader_of
from tests.chaos.stage import PATIENT, UNLIMITED, Stage, carry_out, ended, until, web_address

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

HEEDED_SECONDS = 2.0
STOPPED_SECONDS = 1.0


def test_a_pause_stops_the_rest_of_a_plan(stage: Stage, tmp_path: Path) -> None:
    """Moves are slow; two seconds after the pause none begins any more, and those under way end as moves do."""
    with stage.sidecars("AB", tmp_path, parameters={**PATIENT, **UNLIMITED}) as sidecars:
        leader = until(lambda: leader_of(sidecars), "somebody leads", within=30)
        follower = next(item for item in sidecars if item is not leader)
        first_hop = web_address(stage.leader_broker())
        _, task = carry_out(
            stage,
            leader,
            lambda _plan: stage.recorder.set_delay(1.0, first_hop),
            undo=lambda: stage.recorder.set_delay(0.0, first_hop),
            at_least=8,
        )
        answer = follower.post("/api/v1/pause", {"reason": "stop", "by": "test"})
        paused_ms = time.time() * 1000
        assert answer.status_code == 200, answer.text
        result = ended(leader, task, within=60)
        outcomes = [move["outcome"] for move in result["moves"]]
        first = {item.bundle: item.wall_ms for item in reversed(stage.unloads())}
        last = (max(first.values()) - paused_ms) / 1000
        refused = outcomes.count("refused")
        print(f"\nlast move begun {last:.2f} s after the pause; {refused} of {len(outcomes)} not begun")  # noqa: T201
        assert last <= HEEDED_SECONDS
        assert refused >= 2
        assert set(outcomes) == {"done", "refused"}
        codes = {record["code"] for record in leader.records() if record["kind"] == "move"}
        assert codes == {"", "Paused"}


def test_a_stop_ends_a_task_between_two_moves(stage: Stage, tmp_path: Path) -> None:
    """Moves are slow; a second after the stop is answered none of the task begins any more, and it says so."""
    with stage.sidecars("AB", tmp_path, parameters={**PATIENT, **UNLIMITED}) as sidecars:
        leader = until(lambda: leader_of(sidecars), "somebody leads", within=30)
        follower = next(item for item in sidecars if item is not leader)
        first_hop = web_address(stage.leader_broker())
        _, task = carry_out(
            stage,
            leader,
            lambda _plan: stage.recorder.set_delay(1.0, first_hop),
            undo=lambda: stage.recorder.set_delay(0.0, first_hop),
            at_least=8,
        )
        answer = follower.post(f"/api/v1/tasks/{task}/stop", {"reason": "enough", "by": "test"})
        stopped_ms = time.time() * 1000
        assert answer.status_code == 202, answer.text
        result = ended(leader, task, within=60)
        outcomes = [move["outcome"] for move in result["moves"]]
        first = {item.bundle: item.wall_ms for item in reversed(stage.unloads())}
        last = (max(first.values()) - stopped_ms) / 1000
        refused = [move["code"] for move in result["moves"] if move["outcome"] == "refused"]
        print(f"\nlast move begun {last:.2f} s after the stop; {len(refused)} of {len(outcomes)} not begun")  # noqa: T201
        assert last <= STOPPED_SECONDS
        assert result["state"] == "stopped"
        assert set(outcomes) == {"done", "refused"}
        assert set(refused) == {"Stopped"}
