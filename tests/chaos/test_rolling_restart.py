"""A rolling restart of all brokers under traffic: nothing is moved by us twice, and no broker stays empty."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from dev.sidecar import leader_of
from tests.chaos.stage import EAGER, Stage, until

pytestmark = [pytest.mark.nightly, pytest.mark.cluster, pytest.mark.timeout(600)]

QUIET_SECONDS = 20.0
EVEN = 1.35
OVERLOADED = 0.85
# One broker that carries everything for a while, because Pulsar placed it so, is still not overloaded.
ROOMY = {"*": {"cpu": "ignore", "throughput": 4_000_000}}


def test_a_rolling_restart(stage: Stage, tmp_path: Path) -> None:
    """While brokers restart the plan waits (RolloutHold); then they are warmed, and all of them carry their part."""
    # Cool-down as shipped: bundles that were moved before the restarts rest, wherever the restarts put them.
    parameters = {**EAGER, "rollout_quiet_seconds": QUIET_SECONDS}
    with stage.sidecars("ABC", tmp_path, parameters=parameters, capacity=ROOMY) as sidecars:
        until(lambda: stage.max_mean() <= EVEN, "it is even before the restarts", within=120)
        began_ms = time.time() * 1000
        for broker in stage.cluster.brokers:
            stage.cluster.restart(broker.name)
        ended_ms = time.time() * 1000
        until(lambda: stage.max_mean() <= EVEN, "it is even again", within=180)
        leader = until(lambda: leader_of(sidecars), "somebody leads", within=30)
        records = [item for sidecar in sidecars for item in sidecar.records()]
        moves = [item for item in records if item["kind"] == "move" and item["started_ms"] >= began_ms]
        done = {(item["bundle"], item["intent"], item["epoch"]) for item in moves if item["outcome"] == "done"}
        twice = [bundle for bundle, times in Counter(item[0] for item in done).items() if times > 1]
        assert twice == []
        # What moves during the restarts leaves an overloaded broker: clients that catch up may make one for a moment.
        held_back = [item for item in moves if item["started_ms"] < ended_ms]
        assert [item for item in held_back if item["predicted"]["source_before"] <= OVERLOADED] == []
        codes = {item["code"] for item in leader.records() if item["kind"] == "cycle" and item["wall_ms"] >= began_ms}
        assert "RolloutHold" in codes or "BlastRadius" in codes
        logs = [tmp_path / f"{sidecar.name}.log" for sidecar in sidecars]
        until(
            lambda: any("roll-out ended, warming up the restarted brokers" in log.read_text() for log in logs),
            "those that restarted are warmed",
            within=60,
        )
        brokers = {broker.broker_id for broker in stage.cluster.brokers}
        until(lambda: set(stage.owners().values()) == brokers, "each serves a part, and nothing is unowned", within=60)
