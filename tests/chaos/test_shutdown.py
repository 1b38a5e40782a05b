"""SIGTERM during moves: calls end or leave their intent to the next leader, and leadership is given up immediately."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from dev.sidecar import Sidecar, bundlekeel, leader_of
from tests.chaos.stage import EAGER, PATIENT, Stage, carry_out_hurt, lead_and_follow, until
from tests.chaos.zk import kazoo, read

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

GRACE_SECONDS = 20.0


def leader_node(stage: Stage) -> bytes | None:
    """Return the leader node of ZooKeeper, None if there is no leader."""
    with kazoo(stage.cluster) as client:
        return read(client, f"{stage.root}/leader")


def test_a_call_in_flight_ends(stage: Stage, tmp_path: Path) -> None:
    """A slow move is finished and recorded before the leader leaves; its node is gone with it."""
    with stage.sidecars("A", tmp_path, parameters={**PATIENT, "max_moves_per_cycle": 2}) as (leader,):
        session = leader.state()["store"]["session_seconds"]
        carry_out_hurt(stage, leader, seconds=1.5)
        until(stage.unloads, "a move is in flight", within=30)
        started = time.monotonic()
        code = leader.stop(GRACE_SECONDS)
        seconds = time.monotonic() - started
        absent = leader_node(stage) is None
        records = [record for record in leader.records() if record["kind"] == "move"]
        print(f"\nleft after {seconds:.1f} s (session {session:.0f} s): {[r['outcome'] for r in records]}")  # noqa: T201
        assert code == 0
        assert absent, "nobody waits for the session to expire"
        assert stage.intents() == []
        assert records
        assert {record["outcome"] for record in records} <= {"done", "refused"}
        assert any(record["outcome"] == "done" for record in records)


@pytest.mark.nightly
def test_a_call_that_hangs_is_left_to_the_next_leader(stage: Stage, tmp_path: Path) -> None:
    """The leader leaves in time although a broker hangs; its intent stays, and the next leader settles it."""
    parameters = {**PATIENT, "max_moves_per_cycle": 1}
    with stage.sidecars("AB", tmp_path, parameters=parameters, admin={"read_timeout": "17s"}) as sidecars:
        old, (new,) = lead_and_follow(sidecars)
        plan, _, heal = carry_out_hurt(stage, old)
        until(stage.unloads, "a move is in flight", within=30)
        bundle = plan["moves"][0]["bundle"]
        started = time.monotonic()
        code = old.stop(GRACE_SECONDS)
        seconds = time.monotonic() - started
        assert code == 0
        until(lambda: new.state().get("role") == "leader", "the other one leads at once", within=3)
        heal()
        assert stage.intents() == [bundle]
        assert new.state()["intents"] == [bundle]
        until(lambda: code_of(new, bundle) == "FrozenIntent", "its bundle is frozen", within=20)
        until(lambda: not stage.intents(), "the intent is settled", within=90)
        record = next(record for record in new.moves() if record["bundle"] == bundle)
        print(f"\nleft after {seconds:.1f} s; settled as {record['outcome']}: {record['sentence']}")  # noqa: T201
        assert record["landed_on"] == stage.owners()[bundle]
        assert len([item for item in stage.unloads() if item.bundle == bundle]) == 1
        assert new.state()["intents"] == []


@pytest.mark.nightly
def test_a_second_signal_ends_it_at_once(stage: Stage, tmp_path: Path) -> None:
    """While it waits for a call that hangs: nothing more is waited for, and the intent stays for the next leader."""
    parameters = {**PATIENT, "max_moves_per_cycle": 1}
    with stage.sidecars("A", tmp_path, parameters=parameters, admin={"read_timeout": "17s"}) as (leader,):
        plan, _, heal = carry_out_hurt(stage, leader)
        until(stage.unloads, "a move is in flight", within=30)
        leader.send(signal.SIGTERM)
        until(lambda: '"stopping"' in leader.log.read_text(), "it has heard the first one", within=10)
        time.sleep(0.5)
        assert leader.alive, "the call in flight is waited for"
        leader.send(signal.SIGTERM)
        assert leader.ended(10.0) == -signal.SIGKILL
        assert "second signal" in leader.log.read_text()
        assert stage.intents() == [plan["moves"][0]["bundle"]]
        check_whole(leader)
        heal()


def check_whole(sidecar: Sidecar) -> None:
    """Every line of its journal can be read, and their chain of hashes holds."""
    sidecar.records()
    verified = bundlekeel("journal", "verify", "-c", str(sidecar.config))
    assert verified.returncode == 0, verified.stdout + verified.stderr


def ended_at_a_random_instant(stage: Stage, sidecar: Sidecar, dice: random.Random) -> str:
    """Start it, send it a signal (or two) some moment later, and look at what it leaves behind. How it ended."""
    sidecar.log.write_text("")
    sidecar.start(wait=dice.random() < 0.7)
    time.sleep(dice.uniform(0.0, 4.0))
    hard = dice.random() < 0.25
    announced = '"url"' in sidecar.log.read_text()
    sidecar.send(signal.SIGKILL if hard else dice.choice([signal.SIGTERM, signal.SIGINT]))
    code = sidecar.ended(GRACE_SECONDS + 20.0)
    if hard:
        assert code == -signal.SIGKILL
    elif announced:
        assert code == 0, sidecar.tail()
        assert leader_node(stage) is None, "nobody waits for the session to expire"
        assert stage.intents() == []
    else:
        assert code in (0, -signal.SIGTERM, -signal.SIGINT, 1, 130), sidecar.tail()
    if sidecar.records():
        check_whole(sidecar)
    return "killed" if hard else "left" if announced else "too early"


def signals(stage: Stage, directory: Path, seed: int, runs: int) -> None:
    """Run a sidecar `runs` times. Each run starts from the state that the previous one left, while bundles move."""
    dice = random.Random(seed)
    with stage.sidecars("A", directory, start=False, parameters={**EAGER, "cool_down_seconds": 1}) as (sidecar,):
        ways = Counter(ended_at_a_random_instant(stage, sidecar, dice) for _ in range(runs))
        sidecar.start()
        until(lambda: leader_of([sidecar]), "it leads after all of that", within=60)
        until(lambda: not stage.intents(), "what was left open is settled", within=90)
        owners, last = stage.owners(), {move["bundle"]: move for move in sidecar.moves()}
        print(f"\n{dict(ways)}; {len(sidecar.moves())} moves recorded")  # noqa: T201
        moving = set(stage.intents())
        assert not [
            name
            for name, move in last.items()
            if name not in moving and move["outcome"] == "done" and move["landed_on"] != owners[name]
        ]


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a12_signals_at_any_moment(stage: Stage, tmp_path: Path) -> None:
    """A few short lives: exit code 0 and the leader's node gone after SIGTERM, and a whole journal in any case."""
    signals(stage, tmp_path, seed=12, runs=4)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_two_hundred_signals(stage: Stage, tmp_path: Path) -> None:
    signals(stage, tmp_path, seed=13, runs=200)


def code_of(sidecar: Sidecar, bundle: str) -> str | None:
    """Return the code that explains why a bundle may not move."""
    rows = sidecar.get("/api/v1/bundles") or []
    return next((row["code"] for row in rows if row["bundle"] == bundle), None)
