"""From a real cluster's history to active thresholds and back: one sidecar, the nightly command, real files.

Three minutes are recorded. In mode `recommend` every cycle proposes the same moves; then mode `act` follows. This
history is refused as too short. Fourteen generated days of the same schema are calibrated. Their balancer ran with the
parameters that the sidecar recorded. A sidecar adopts the result automatically, and an operator reverts it.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bundlekeel.model.parameters import Parameters
from bundlekeel.recalibration.history.frames import input_of
from bundlekeel.recalibration.history.replay import rebuilt
from bundlekeel.recalibration.parquet import ParquetStore
from bundlekeel.recalibration.recorder.history_reading import HistoryReading
from dev.cluster import ClusterSpec, open_cluster
from dev.history_model import World
from dev.history_worlds import write
from dev.sidecar import Sidecar, bundlekeel
from dev.spark_cluster import BRIEF
from evidence.fidelity import features
from tests.chaos.stage import EAGER, Scene, change_hands, person, traffic_for, until
from tests.spark.conftest import hashes

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(1200, method="signal")]
RECORDED_SECONDS = 180.0
RECORDED_CYCLES = 100
MOVING_CYCLES = 30
DAYS = 14
PERIOD = 1800
# The search covers when a move starts. One parameter is enough to test the whole way.
SEARCHED = ("move_price",)
QUICKLY = f"spark.driver.extraJavaOptions={BRIEF}"


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Three brokers, their own shedding off, all traffic on the first one."""
    folder = tmp_path_factory.mktemp("person")
    with open_cluster(ClusterSpec(brokers=3, mode="modular")) as cluster:
        change_hands("takeover", person(cluster, folder))
        traffic = traffic_for(cluster)
        traffic.place_all_on(cluster.brokers[0].broker_id)
        with traffic:
            yield Scene(cluster, traffic)


def test_recorded_refused_calibrated_adopted_reverted(scene: Scene, tmp_path: Path) -> None:
    """Each step as the sidecar and the command line tell it; no recorded file is ever changed."""
    history, days, proposals = tmp_path / "history", tmp_path / "days", tmp_path / "calibration"
    changes: dict[str, Any] = {
        "history": {"uri": str(history), "wal": str(tmp_path / "wal")},
        "calibration": {"mode": "adopt", "uri": str(proposals), "interval": "1s", "trial": "6h"},
        "parameters": EAGER,
    }
    with scene.sidecars("A", tmp_path, **changes) as (sidecar,):
        params = record(sidecar, history)
        before = files_of(history)
        refused(history, tmp_path)
        replays(history)
        write(generated(params), days)
        digests = hashes(days)
    calibrate(days, proposals)
    with scene.sidecars("B", tmp_path, **changes) as (sidecar,):
        adopt_and_revert(sidecar, params)
        assert hashes(days) == digests
        # The sidecar records on, and puts the minutes of an hour together when it is over; it changes no file.
        after = files_of(history)
        assert {name: after[name] for name in before if name in after} == {n: before[n] for n in before if n in after}


def record(sidecar: Sidecar, history: Path) -> Parameters:
    """Three minutes and a hundred cycles at least, published; the parameters that were recorded last."""
    began = time.monotonic()
    mode(sidecar, "recommend")
    sidecar.until(lambda: proposing(sidecar) >= MOVING_CYCLES, "it would move something, often enough", within=150)
    mode(sidecar, "act")
    sidecar.until(lambda: any(move["outcome"] == "done" for move in sidecar.moves()), "a bundle moves", within=60)

    def recorded() -> bool:
        cycles = sidecar.metric("history_cycles_total", outcome="recorded")
        return time.monotonic() - began >= RECORDED_SECONDS and cycles >= RECORDED_CYCLES

    sidecar.until(recorded, "enough is recorded", within=RECORDED_SECONDS + 300)
    store = ParquetStore(history)

    def published() -> int:
        return sum(store.span(file).cycles for file in store.files())

    # A minute is published when it is over.
    sidecar.until(lambda: published() >= RECORDED_CYCLES, "the minutes are published", within=120)
    reading = HistoryReading(store)
    last = [item.frame for item in rebuilt(reading.records(store.files()))][-1]
    assert last is not None
    assert not reading.unreadable
    return input_of(last).params


def files_of(history: Path) -> dict[str, str]:
    """Return every published file with its hash, while the sidecar runs."""
    paths = {}
    for file in ParquetStore(history).files():
        with suppress(FileNotFoundError):
            paths[file.path] = hashlib.sha256((history / file.path).read_bytes()).hexdigest()
    return paths


def proposing(sidecar: Sidecar) -> int:
    """Return how many cycles so far had moves to propose."""
    return sum(1 for row in sidecar.records() if row["kind"] == "cycle" and row["planned"] > 0)


def mode(sidecar: Sidecar, expected: str) -> None:
    """Set the mode of all sidecars, within the ceiling of the settings."""
    answer = sidecar.put("/api/v1/mode", {"mode": expected, "reason": "test", "by": "test"})
    assert answer.status_code == 200, answer.text


def refused(history: Path, folder: Path) -> None:
    """The nightly command says that three minutes are too little, and writes nothing."""
    out = folder / "nothing"
    ran = recalibrate("--history", str(history), "--out", str(out))
    assert ran.returncode == 1, ran.stderr
    line = next(line for line in ran.stderr.splitlines() if '"refused"' in line)
    figures = json.loads(line.partition(" ")[2])
    assert (figures["refused"], figures["min_days"]) == ("TooLittleHistory", 7)
    assert 1 <= figures["span_days"] <= 2
    assert not out.exists()


def replays(history: Path) -> None:
    """Every recorded cycle gives the recorded plan again, also without numpy's processor features."""
    checked = json.loads(bundlekeel("history", "check", "--history", str(history), "-o", "json").stdout)
    assert checked["ok"], checked
    command = [sys.executable, "-m", "bundlekeel", "replay", "all", "--history", str(history), "-o", "json"]
    for environment in ({}, {"NPY_DISABLE_CPU_FEATURES": features()}):
        ran = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        hashes_found = json.loads(ran.stdout)
        assert hashes_found["same"] == hashes_found["cycles"] >= RECORDED_CYCLES
        assert hashes_found["moved"] >= MOVING_CYCLES


def generated(params: Parameters) -> World:
    """Fourteen days up to the last midnight, whose balancer ran with these parameters."""
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    start = midnight - timedelta(days=DAYS)
    return World(
        seed=6,
        days=DAYS,
        brokers=4,
        bundles=64,
        period_seconds=PERIOD,
        # Nothing is ever overloaded: only balance and moves decide.
        load=0.25,
        # A measurement says little about the next period, so moves at the first sign have no lasting effect.
        noise=0.02,
        flicker=15,
        zipf=0.5,
        spiky=0,
        start_ms=int(start.timestamp() * 1000),
        params=params,
    )


def calibrate(days: Path, proposals: Path) -> None:
    """The nightly command on the generated days."""
    options = [part for name in SEARCHED for part in ("--parameter", name)]
    ran = recalibrate(
        *("--history", str(days), "--out", str(proposals), *options),
        *("--points", "3", "--rounds", "0"),
    )
    assert ran.returncode == 0, ran.stderr
    assert "To adopt it: `bundlekeel thresholds adopt" in ran.stderr, ran.stderr


def adopt_and_revert(sidecar: Sidecar, params: Parameters) -> None:
    """The sidecar adopts the proposal by itself and plans with it; a person's revert stays."""

    def thresholds() -> dict[str, Any]:
        thresholds_view = sidecar.get("/api/v1/thresholds")
        return thresholds_view if isinstance(thresholds_view, dict) else {}

    until(lambda: thresholds().get("adopted"), f"it is adopted: {thresholds().get('sentence')}", within=60)
    before = thresholds()
    adopted = before["adopted"]
    assert (adopted["by"], adopted["state"]) == ("bundlekeel", "trial")
    assert adopted["digest"] == before["document"]["digest"]
    assert before["document"]["data"]["days"] and len(before["document"]["data"]["days"]) == DAYS
    changed = {name: value for name, value in adopted["values"].items() if value != getattr(params, name)}
    assert changed
    assert effective(sidecar, changed) == changed
    config = str(sidecar.config)
    ran = bundlekeel("thresholds", "revert", "-c", config, "--reason", "seen enough", "--by", "test")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert thresholds()["adopted"] is None
    assert effective(sidecar, changed) == {name: getattr(params, name) for name in changed}
    events = [row["what"] for row in sidecar.get("/api/v1/journal", kind="adoption", limit=100)]
    assert events[:2] == ["adopted", "reverted"], events
    # It checks again each second, and does not repeat a reverted adoption.
    read = thresholds()["read_ms"]
    until(lambda: thresholds()["read_ms"] > read + 2000, "it looks again", within=60)
    assert thresholds()["adopted"] is None
    assert [item["code"] for item in thresholds()["objections"]][:1] == ["Reverted"]


def effective(sidecar: Sidecar, names: dict[str, Any]) -> dict[str, Any]:
    """Return the current values of these parameters."""
    rows = {row["key"]: row["value"] for row in sidecar.get("/api/v1/settings")}
    return {name: rows[f"parameters.{name}"] for name in names}


def recalibrate(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m bundlekeel.recalibration.jobs` on all cores of this machine."""
    return subprocess.run(
        [sys.executable, "-m", "bundlekeel.recalibration.jobs", "--master", "local[2]", "--conf", QUICKLY, *arguments],
        env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
    )
