"""Faults of brokers during the execution of a plan. Each fault has its own outcome, and the other moves continue."""

from __future__ import annotations

import re
import time
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from dev.sidecar import Sidecar, bundlekeel
from tests.chaos.stage import (
    PATIENT,
    UNLIMITED,
    Stage,
    carry_out,
    carry_out_hurt,
    ended,
    lead_and_follow,
    until,
    web_address,
)
from tests.support.recorder import Recorder

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

TOKEN = "a-token-that-must-not-leak"

# Status of the scripted answer to the outcome and code it must lead to.
STATUS = {
    401: ("refused", "AdminUnauthorized"),
    409: ("refused", "AdminRefused"),
    412: ("refused", "AdminRefused"),
    500: ("unknown", "NoAnswer"),
}


def records_of(sidecar: Sidecar, plan: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The journal's record of each move of a plan."""
    bundles = {move["bundle"] for move in plan["moves"]}
    return {record["bundle"]: record for record in sidecar.moves() if record["bundle"] in bundles}


def unload_path(bundle: str) -> str:
    """An expression for the path of a bundle's unload."""
    return f"/admin/v2/namespaces/{re.escape(bundle)}/unload"


def script(stage: Stage, plan: dict[str, Any], foreign: str) -> dict[str, tuple[str, str]]:
    """Let the first moves of a plan fail, each in another way; gives the outcome and code each must have."""
    targets = {move["bundle"]: move["target"] for move in plan["moves"]}
    bundles = iter(targets)
    expected: dict[str, tuple[str, str]] = {}
    for status, outcome in STATUS.items():
        bundle = next(bundles)
        expected[bundle] = outcome
        stage.recorder.answer("PUT", unload_path(bundle), status, body='{"reason":"scripted"}')
    bundle = next(bundles)
    expected[bundle] = ("unknown", "NoAnswer")
    url = f"http://{foreign}/admin/v2/namespaces/{bundle}/unload"
    stage.recorder.answer("PUT", unload_path(bundle), 307, {"Location": url})
    bundle = next(bundles)
    expected[bundle] = ("unknown", "NoAnswer")
    brokers = stage.cluster.brokers
    for here, there in zip(brokers, brokers[1:] + brokers[:1], strict=True):
        query = f"destinationBroker={quote(targets[bundle], safe='')}"
        url = f"{there.web_url}/admin/v2/namespaces/{bundle}/unload?{query}"
        where = web_address(here)
        stage.recorder.answer("PUT", unload_path(bundle), 307, {"Location": url}, times=None, where=where)
    return expected


def test_each_answer_has_its_outcome(stage: Stage, tmp_path: Path) -> None:
    """401, 409, 412, 500, a loop and a foreign redirect in one plan: typed, counted, not repeated; the rest is done."""
    expected: dict[str, tuple[str, str]] = {}
    with (
        Recorder([("127.0.0.1", 0, "127.0.0.1", 9)]) as foreign,
        stage.sidecars("AB", tmp_path, parameters={**PATIENT, **UNLIMITED}, admin={"token": TOKEN}) as sidecars,
    ):
        leader, (follower,) = lead_and_follow(sidecars)

        def prepare(plan: dict[str, Any]) -> None:
            expected.clear()
            expected.update(script(stage, plan, foreign.address()))

        plan, task = carry_out(stage, leader, prepare, undo=stage.recorder.clear_answers, at_least=8)
        result = ended(leader, task, within=150)
        outcomes = {move["bundle"]: move["outcome"] for move in result["moves"]}
        records = records_of(leader, plan)
        print(f"\n{Counter((r['outcome'], r['code']) for r in records.values())}")  # noqa: T201
        assert {bundle: (records[bundle]["outcome"], records[bundle]["code"]) for bundle in expected} == expected
        rest = {bundle: outcome for bundle, outcome in outcomes.items() if bundle not in expected}
        assert rest
        assert set(rest.values()) == {"done"}
        for outcome, times in Counter(outcomes.values()).items():
            assert leader.metric("moves_total", outcome=outcome) == times
        for status in STATUS:
            assert leader.metric("admin_requests_total", method="PUT", code=str(status)) == 1
        owners = stage.owners()
        assert {owners[bundle] for bundle in expected} == {stage.cluster.brokers[0].broker_id}
        check_tokens(stage, foreign)
        counts = Counter((item.bundle, item.target) for item in stage.unloads())
        assert set(counts.values()) == {1}, "nothing is asked twice"
        until(lambda: follower.moves() == leader.moves(), "the journal is alike on every replica", within=20)
        output = bundlekeel("journal", "--kind", "move", "-c", str(leader.config), "-o", "json")
        assert output.returncode == 0, output.stderr
        assert "AdminUnauthorized" in output.stdout


def check_tokens(stage: Stage, foreign: Recorder) -> None:
    """Every request to a broker has the token, and no other server received a request."""
    assert {request.header("authorization") for request in stage.requests()} == {f"Bearer {TOKEN}"}
    assert foreign.requests() == []


@pytest.mark.nightly
def test_a_broker_that_hangs(stage: Stage, tmp_path: Path) -> None:
    """No response within the limit: the outcome is unknown, confirmed by reading and requested once. The leader's
    cycles continue.
    """
    parameters = {**PATIENT, "max_moves_per_cycle": 2}
    with stage.sidecars("A", tmp_path, parameters=parameters, admin={"read_timeout": "2s"}) as (leader,):
        plan, task, heal = carry_out_hurt(stage, leader)
        result = ended(leader, task, within=60)
        outcomes = {move["bundle"]: move["outcome"] for move in result["moves"]}
        assert set(outcomes.values()) == {"unknown"}
        records = records_of(leader, plan)
        assert {record["code"] for record in records.values()} == {"NoAnswer"}
        assert leader.metric("admin_requests_total", method="PUT", code="timeout") == len(outcomes)
        cycles = leader.metric("cycles_total")
        heal()
        until(lambda: leader.metric("cycles_total") > cycles + 1, "cycles go on", within=60)
        assert leader.state()["role"] == "leader"
        counts = Counter((item.bundle, item.target) for item in stage.unloads())
        assert set(counts.values()) == {1}
        assert {bundle for bundle, _ in counts} == set(outcomes)
        print(f"\n{[(record['outcome'], record['code'], record['seconds']) for record in records.values()]}")  # noqa: T201


@pytest.mark.nightly
def test_a_broker_that_dies_between_plan_and_call(stage: Stage, tmp_path: Path) -> None:
    """Moves to the dead broker end with a code, moves to others are done, and every bundle has a living owner."""
    first_hop = stage.leader_broker()
    dead = next(b for b in stage.cluster.brokers[1:] if b.broker_id != first_hop.broker_id)
    with stage.sidecars("A", tmp_path, parameters={**PATIENT, **UNLIMITED}) as (leader,):
        plan, task, heal = carry_out_hurt(stage, leader, seconds=1.0, at_least=8)
        stage.cluster.kill(dead.name)
        killed_ms = time.time() * 1000
        heal()
        result = ended(leader, task, within=200)
        records = records_of(leader, plan)
        to_dead = [record for record in records.values() if record["destination"] == dead.broker_id]
        others = [record for record in records.values() if record["destination"] != dead.broker_id]
        print(f"\n{Counter((r['outcome'], r['code']) for r in to_dead)} {Counter(r['outcome'] for r in others)}")  # noqa: T201
        assert result["state"] == "done"
        assert set(records) == {move["bundle"] for move in plan["moves"]}
        missed = [record for record in to_dead if record["outcome"] != "done"]
        assert missed
        assert all(record["code"] for record in missed)
        assert all(record["landed_ms"] <= killed_ms + 1000 for record in to_dead if record["outcome"] == "done")
        assert others
        assert {record["outcome"] for record in others} == {"done"}
        counts = Counter((item.bundle, item.target) for item in stage.unloads())
        assert set(counts.values()) == {1}
        until(lambda: dead.broker_id not in {row["broker"] for row in leader.get("/api/v1/brokers")}, "gone", within=60)
        until(lambda: not {"", dead.broker_id} & set(stage.owners().values()), "the living own all", within=60)
