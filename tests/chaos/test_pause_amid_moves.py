"""A pause during a plan, or a stop of its task: requested at a follower, it stops the leader half-way."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.chaos.stage import PATIENT, UNLIMITED, Stage, carry_out_hurt, ended, lead_and_follow

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    ("path", "status", "heeded", "state", "code"),
    [
        pytest.param("pause", 200, 2.0, None, "Paused", id="pause"),
        pytest.param("tasks/{task}/stop", 202, 1.0, "stopped", "Stopped", id="stop"),
    ],
)
def test_the_rest_of_a_plan_is_not_begun(
    stage: Stage, tmp_path: Path, path: str, status: int, heeded: float, state: str | None, code: str
) -> None:
    """Moves are slow; two seconds after the pause, or one after the stop, none begins any more, those under way end as
    moves do, and both say why."""
    with stage.sidecars("AB", tmp_path, parameters={**PATIENT, **UNLIMITED}) as sidecars:
        leader, (follower,) = lead_and_follow(sidecars)
        _, task, _ = carry_out_hurt(stage, leader, seconds=1.0, at_least=8)
        answer = follower.post(f"/api/v1/{path.format(task=task)}", {"reason": "stop", "by": "test"})
        stopped_ms = time.time() * 1000
        assert answer.status_code == status, answer.text
        result = ended(leader, task, within=60)
        outcomes = [move["outcome"] for move in result["moves"]]
        first = {item.bundle: item.wall_ms for item in reversed(stage.unloads())}
        last = (max(first.values()) - stopped_ms) / 1000
        refused = [move["code"] for move in result["moves"] if move["outcome"] == "refused"]
        print(f"\nlast move begun {last:.2f} s after it; {len(refused)} of {len(outcomes)} not begun")  # noqa: T201
        assert last <= heeded
        assert state in (None, result["state"])
        assert len(refused) >= (2 if code == "Paused" else 1)
        assert set(outcomes) == {"done", "refused"}
        assert set(refused) == {code}
        codes = {record["code"] for record in leader.records() if record["kind"] == "move"}
        assert codes == {"", code}
