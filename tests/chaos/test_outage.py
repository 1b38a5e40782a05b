"""ZooKeeper away for longer than everybody's session: the brokers come back first, then it is quiet, then moves."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from dev.sidecar import leader_of
from tests.chaos.stage import EAGER, Stage, lead_and_follow, ready, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420)]

SETTLE_SECONDS = 15.0


@pytest.mark.nightly
def test_nothing_moves_before_the_registry_is_complete_and_quiet(stage: Stage, tmp_path: Path) -> None:
    """The sidecars stop during moves for longer than a session. The new leader reports SettlingAfterOutage. It unloads
    only after all brokers were registered for the whole period. Then it balances the load.
    """
    store = {"session_timeout": "4s", "settle_after_outage": f"{SETTLE_SECONDS:g}s"}
    with stage.sidecars("AB", tmp_path, parameters=EAGER, store=store) as sidecars:
        leader = until(lambda: leader_of(sidecars), "somebody leads", within=30)
        session = leader.state()["store"]["session_seconds"]
        until(stage.unloads, "the first move begins", within=60)
        stage.cluster.pause("zookeeper")
        time.sleep(2 * session)
        back_ms = time.time() * 1000
        stage.cluster.resume("zookeeper")
        led = until(lambda: leader_of(sidecars), "somebody leads again", within=60)
        until(lambda: led.state()["acting_obstacle"] == "SettlingAfterOutage", "the verdict", within=30)
        settling = led.state()["settling"]
        assert "did not answer" in settling["why"] and settling["sentence"]
        assert all(item.state()["settling"] for item in sidecars), "every replica knows"
        stage.traffic.place_all_on(stage.cluster.brokers[0].broker_id)
        first = until(
            lambda: next((item for item in stage.unloads() if item.wall_ms > back_ms + 1000), None),
            "moves go on",
            within=10 * SETTLE_SECONDS,
        )
        waited = (first.wall_ms - back_ms) / 1000
        print(f"\nfirst unload {waited:.1f} s after the store came back (settle {SETTLE_SECONDS:g} s)")  # noqa: T201
        assert waited >= SETTLE_SECONDS - 1
        until(lambda: stage.max_mean() <= 1.25, "the load is even", within=180)
        until(lambda: all(ready(item) for item in sidecars), "all are ready", within=40)
        assert all(item.alive for item in sidecars)


@pytest.mark.nightly
def test_a_fail_over_does_not_wait(stage: Stage, tmp_path: Path) -> None:
    """With the default of 180 s: a killed leader does not count as an outage, and its successor moves within
    seconds.
    """
    with stage.sidecars("AB", tmp_path, parameters=EAGER) as sidecars:
        leader, (other,) = lead_and_follow(sidecars)
        until(stage.unloads, "the first move begins", within=60)
        before = len(stage.unloads())
        leader.kill()
        until(lambda: len(stage.unloads(other.name)) > 0 or stage.max_mean() <= 1.25, "the next one goes on", within=60)
        assert other.state()["settling"] is None
        assert len(stage.unloads()) >= before
