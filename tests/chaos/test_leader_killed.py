"""A leader is killed during its moves. The next one starts in time, repeats nothing and finishes the work."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from dev.sidecar import Sidecar, leader_of
from tests.chaos.stage import EAGER, Stage, asked_twice, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

TICK_SECONDS = 0.5
SLACK_SECONDS = 2.0


def test_the_next_leader_is_there_in_time(stage: Stage, tmp_path: Path) -> None:
    """The first fenced write comes within session, tick and slack. No bundle is unloaded twice, and the load is
    balanced at the end.
    """
    with stage.sidecars("ABC", tmp_path, parameters=EAGER) as sidecars:
        leader = until(lambda: leader_of(sidecars), "somebody leads", within=30)
        session = leader.state()["store"]["session_seconds"]
        epoch = leader.state()["epoch"]
        until(stage.unloads, "the first move begins", within=60)
        leader.kill()
        killed_ms = time.time() * 1000
        left = set(stage.intents())
        term = until(
            lambda: (new_term := stage.document("state/term")) and new_term["epoch"] > epoch and new_term,
            "a new term begins",
            within=60,
        )
        seconds = (term["wall_ms"] - killed_ms) / 1000
        follower = next(item for item in sidecars if item.name == term["member"])
        until(lambda: not stage.intents(), "what was left open is settled", within=90)
        until(lambda: stage.max_mean() <= 1.25, "the load is even", within=90)
        print(  # noqa: T201
            f"\nfirst fenced write {seconds:.2f} s after the kill (session {session:.1f} s), {len(left)} moves left "
            f"open, {len(stage.unloads(leader.name))} unload requests before, {len(stage.unloads(follower.name))} "
            f"after, max/mean {stage.max_mean():.2f}"
        )
        assert 0 < seconds <= session + TICK_SECONDS + SLACK_SECONDS
        check_nothing_twice(stage, follower)
        records = {record["bundle"]: record for record in follower.moves() if record["epoch"] > epoch}
        assert left <= set(records), "each move left open is settled in the journal"


def check_nothing_twice(stage: Stage, sidecar: Sidecar) -> None:
    """No broker was asked twice for one intent: neither by one leader, nor by two."""
    unloads = stage.unloads()
    # A move may be under way: its record is there once its intent is gone.
    moving = {item.bundle for item in unloads}
    until(lambda: not moving & set(stage.intents()), "the moves seen are over", within=30)
    assert unloads
    # Reads are up to half a second old. A repeated request would still be visible.
    until(lambda: not asked_twice(unloads, sidecar.moves()), "each unload has its intent", within=5)
