"""Pulsar 5.0 moves its metadata from ZooKeeper to Oxia (PIP-454) while sidecars act: they stop and report it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dev.sidecar import Sidecar, leader_of
from dev.wheels import directory_of
from tests.chaos.stage import EAGER, Stage, admin, change_hands, open_stage, overrides, person, until
from tests.chaos.zk import kazoo, read
from tests.support.recorder import RecordedRequest

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.nightly,
    pytest.mark.skipif(os.environ.get("PULSAR") != "5.0", reason="only Pulsar 5.0 migrates to Oxia (PULSAR=5.0)"),
    pytest.mark.timeout(900),
]

ROOT = Path(__file__).resolve().parents[2]
MIGRATION = "/pulsar/migration-coordinator/migration"
PHASES = ["NOT_STARTED", "PREPARATION", "COPYING", "COMPLETED"]
# The permit of a request is checked before its last part is sent, and the test reads the phase every 10 ms.
IN_TRANSIT_MS = 100
# With these limits the failsafe would restore the shedding during the migration if that prevented a cycle.
LIMITS = ("--after", "3s", "--confirm", "1s", "--every", "1s")


@contextmanager
def oxia() -> Iterator[str]:
    """Run the fake server, and yield the URL of an empty store in it."""
    command = [sys.executable, str(ROOT / "dev" / "oxia_fake.py")]
    environment = {**os.environ, "PYTHONPATH": str(directory_of("oxia"))}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"oxia://127.0.0.1:{process.stdout.readline().strip()}/migrated"
        finally:
            process.terminate()


@contextmanager
def failsafe(config: Path, log: Path) -> Iterator[None]:
    """Run the failsafe, which checks every second."""
    command = [sys.executable, "-m", "bundlekeel", "deadman", *LIMITS, "-o", "json", "-c", str(config)]
    with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) as process:
        try:
            yield
        finally:
            process.terminate()


def migrate(stage: Stage, target: str) -> dict[str, float]:
    """Start the migration, and return when each of its phases was first seen in ZooKeeper (Unix ms)."""
    times: dict[str, float] = {}
    with kazoo(stage.cluster) as client:

        def completed() -> bool:
            data = read(client, MIGRATION)
            times.setdefault(json.loads(data)["phase"] if data else "NOT_STARTED", time.time() * 1000)
            return "COMPLETED" in times

        completed()
        admin(stage.cluster.brokers[0], "POST", f"metadata/migration/start?target={target}")
        until(completed, "the migration is completed", within=120)
    return times


def owners(stage: Stage) -> dict[str, str]:
    """Return the owner of each bundle, as the brokers themselves report it."""
    cluster = stage.cluster.spec.cluster_name
    return {
        bundle: broker.broker_id
        for broker in stage.cluster.brokers
        for bundle in json.loads(admin(broker, "GET", f"brokers/{cluster}/{broker.broker_id}/ownedNamespaces"))
    }


def moves_of(sidecars: list[Sidecar]) -> list[dict[str, Any]]:
    """Return the records of all moves in the journals, oldest first."""
    records = [item for sidecar in sidecars for item in sidecar.records() if item["kind"] == "move"]
    return sorted(records, key=lambda item: int(item["wall_ms"]))


def migration_reported(sidecar: Sidecar, target: str) -> bool:
    """Return whether the sidecar reports that its store is outdated, names the new one, and says what to do."""
    (check,) = (item for item in sidecar.get("/api/v1/doctor") if item["name"] == "store migration")
    reported = not check["ok"] and target in check["detail"] and "bundlekeel handback" in check["fix"]
    return reported and sidecar.state()["acting_obstacle"] == "StoreMigrated"


def show(events: dict[str, float], changes: list[RecordedRequest], moves: list[dict[str, Any]], start: float) -> None:
    """Print a timeline, in seconds after `start`. Times are Unix ms."""
    rows = [(at, text) for text, at in events.items()]
    rows += [(item.wall_ms, f"{item.user_agent}: {item.method} {item.path}") for item in changes]
    rows += [(item["wall_ms"], f"journal: {item['sentence']}") for item in moves]
    for at, text in sorted(rows):
        print(f"{(at - start) / 1000:8.2f} {text}")  # noqa: T201


def test_a_migration_to_oxia(tmp_path: Path) -> None:
    """From PREPARATION to COMPLETED no request changes anything. Afterwards no sidecar leads, each one reports the new
    store, and the failsafe restores the brokers' own shedding through the brokers.

    The store has no chroot: with one, brokers of 5.0.1 cannot prepare. They delete a node by its absolute path, and the
    migration fails after two minutes.
    """
    with oxia() as target, open_stage(tmp_path, chroots=False) as stage:
        change_hands("handback", tmp_path / "chaos.json")
        before = overrides(stage.cluster)
        with stage.sidecars("AB", tmp_path, parameters=EAGER) as sidecars:
            name = stage.root.rpartition("/")[2]
            job = person(stage.cluster, tmp_path, "failsafe", root=name, cycle={"interval": "1s"})
            change_hands("takeover", job)
            log = tmp_path / "failsafe.log"
            with failsafe(job, log):
                until(stage.unloads, "they act", within=60)
                phases = migrate(stage, target)
                until(lambda: leader_of(sidecars) is None, "no sidecar leads", within=10)
                events = phases | {"no sidecar leads": time.time() * 1000}
                for sidecar in sidecars:
                    sidecar.until(lambda item=sidecar: migration_reported(item, target), "it reports it", within=30)
                until(lambda: '"restored"' in log.read_text(), "the failsafe restores the shedding", within=60)
            start, moves = phases["PREPARATION"], moves_of(sidecars)
            show(events, stage.mutations(), moves, start)
            assert list(phases) == PHASES
            changes = [item for item in stage.mutations() if item.wall_ms > start + IN_TRANSIT_MS]
            assert {item.user_agent.rpartition("(")[2] for item in changes} == {"failsafe)"}
            assert min(item.wall_ms for item in changes) > phases["COMPLETED"]
            assert overrides(stage.cluster) == before
            settings = [
                json.loads(admin(item, "GET", "brokers/configuration/runtime")) for item in stage.cluster.brokers
            ]
            assert {item["loadBalancerSheddingEnabled"] for item in settings} == {"true"}
            assert leader_of(sidecars) is None
            ends = {"done": "landed_on", "refused": "source"}
            last = {item["bundle"]: item for item in moves if item["outcome"] in ends}
            assert {item["outcome"] for item in moves} <= {*ends, "unknown"}
            assert {name: item[ends[item["outcome"]]] for name, item in last.items()}.items() <= owners(stage).items()
