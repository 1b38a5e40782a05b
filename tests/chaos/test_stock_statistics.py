"""Brokers at Pulsar's own pace: reports a minute old, sidecars at ten seconds a cycle, and still no move too many."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.sidecar import Sidecar, leader_of
from tests.chaos.stage import CAPACITY, UNLIMITED, Stage, make_plan, open_stage, until

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(1500)]

# As shipped: what the stage makes quick for other tests goes back to the defaults.
AS_SHIPPED = {
    "capacity": CAPACITY,
    "cycle": {"interval": "10s"},
    "store": {"session_timeout": "10s", "call_timeout": "3s"},
    "leadership": {"heartbeat": "2s"},
    "admin": {"read_timeout": "90s"},
}
QUIET_SECONDS = 200.0
REASON = {"reason": "stock statistics", "by": "test"}


@pytest.fixture(scope="module")
def slow_stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Brokers that count and report once a minute."""
    with open_stage(tmp_path_factory.mktemp("slow"), fast_stats=False) as stage:
        yield stage


def steady(stage: Stage, sidecar: Sidecar) -> bool:
    """Whether the reports show the traffic as it is."""
    rows = sidecar.get("/api/v1/bundles", namespace="chaos/traffic") or []
    rates = {row["bundle"]: row["latest"]["msg_rate_in"] for row in rows}
    return all(abs(rates.get(plan.bundle, 0.0) - plan.rate) <= 0.1 * plan.rate for plan in stage.plans)


def test_no_move_too_many(slow_stage: Stage, tmp_path: Path) -> None:
    """All on one broker ends even, with as many moves as a plan on complete knowledge has, and at most two more."""
    stage = slow_stage
    stage.gather()
    with stage.sidecars("ABC", tmp_path, **AS_SHIPPED) as sidecars:
        leader = until(lambda: leader_of(sidecars), "somebody leads", within=30)
        assert leader.post("/api/v1/pause", REASON).status_code == 200
        until(lambda: steady(stage, leader), "the reports show the traffic", within=400)
        plan = make_plan(leader, **UNLIMITED)
        assert not leader.moves()
        assert leader.post("/api/v1/resume", REASON).status_code == 200
        started = time.monotonic()
        until(lambda: stage.max_mean() <= 1.25, "the load is even", within=600)
        seconds = time.monotonic() - started
        moves = len(leader.moves())
        # Late reports must not make it move more: as long as three reports take, and a little.
        time.sleep(QUIET_SECONDS)
        outcomes = Counter(record["outcome"] for record in leader.moves())
        print(  # noqa: T201
            f"\nplan on complete knowledge: {len(plan['moves'])} moves to {plan['imbalance']['after']:.3f}; "
            f"even after {seconds:.0f} s with {moves} moves; {QUIET_SECONDS:.0f} s later {dict(outcomes)}, "
            f"max/mean {stage.max_mean():.3f}"
        )
        assert stage.max_mean() <= 1.25
        assert sum(outcomes.values()) <= len(plan["moves"]) + 2
        assert leader_of(sidecars) is leader
