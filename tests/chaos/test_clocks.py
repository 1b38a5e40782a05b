"""Clocks that are set or run fast, on real processes: leadership, time-outs and moves use the boot clock."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from dev.sidecar import Sidecar, leader_of
from tests.chaos.stage import EAGER, Stage, ready, until
from tests.chaos.test_leader_killed import check_nothing_twice
from tests.support.fake_clock import FakeClock

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

HOUR = 3600


def far_off(sidecar: Sidecar) -> float:
    """Return how far the sidecar's wall clock is from the true time, in seconds, by the newest line of its journal."""
    return float(sidecar.records()[-1]["wall_ms"] / 1000 - time.time())


def newest_cycle(sidecar: Sidecar) -> int:
    """The number of its last cycle."""
    return int(sidecar.state()["cycle"]["id"])


def check_goes_on(sidecars: list[Sidecar], leader: Sidecar, epoch: int) -> None:
    """Check that for longer than a session the leader and its term stay, its cycles continue, and nothing unexpected
    happens.
    """
    session = leader.state()["store"]["session_seconds"]
    cycle = newest_cycle(leader)
    time.sleep(session + 2.0)
    until(lambda: newest_cycle(leader) >= cycle + 2, "cycles go on", within=30)
    assert leader_of(sidecars) is leader
    assert leader.state()["epoch"] == epoch
    for item in sidecars:
        assert ready(item)
        assert item.metric("unexpected_errors_total") == 0


@pytest.mark.nightly
def test_a8_clock_steps(stage: Stage, tmp_path: Path) -> None:
    """A clock runs 10 % too fast, then is set back and forward by an hour. There is one term, every move is made once,
    no bundle moves again within its cool-down, and both sidecars stop normally.
    """
    with stage.sidecars("AB", tmp_path, start=False, parameters=EAGER) as sidecars:
        clocks = {item.name: FakeClock(tmp_path / f"clock-{item.name}") for item in sidecars}
        for item in sidecars:
            item.environment = clocks[item.name].environment
            item.start()
        leader = until(lambda: leader_of(sidecars), "somebody leads", within=60)
        until(lambda: all(ready(item) for item in sidecars), "everybody is well", within=60)
        clock, epoch = clocks[leader.name], leader.state()["epoch"]
        clock.set(0, 1.1)
        until(stage.unloads, "moves begin", within=90)
        check_goes_on(sidecars, leader, epoch)
        clock.set(-HOUR)
        until(lambda: far_off(leader) < -HOUR / 2, "its clock is an hour behind", within=60)
        check_goes_on(sidecars, leader, epoch)
        moved = Counter(move["bundle"] for move in leader.moves() if move["outcome"] != "refused")
        assert moved
        assert set(moved.values()) == {1}
        clock.set(HOUR)
        until(lambda: far_off(leader) > HOUR / 2, "its clock is an hour ahead", within=60)
        check_goes_on(sidecars, leader, epoch)
        check_nothing_twice(stage, leader)
        assert all(0.0 <= move["seconds"] < 60.0 for move in leader.moves())
        assert [item.stop() for item in sidecars] == [0, 0]
