"""All sidecars killed: the failsafe job puts the brokers' own shedding back on every broker, exactly as it was."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from dev.sidecar import bundlekeel, leader_of, settings_for
from tests.chaos.stage import EAGER, Stage, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420)]

SHEDDING = "loadBalancerSheddingEnabled"
AFTER_SECONDS = 6


def shedding(stage: Stage) -> dict[str, str]:
    """What each broker runs with, asked by the test itself."""
    found = {}
    for broker in stage.cluster.brokers:
        answer = httpx.get(f"{broker.web_url}/admin/v2/brokers/configuration/runtime", timeout=20)
        found[broker.broker_id] = answer.json()[SHEDDING]
    return found


def overrides(stage: Stage) -> dict[str, str]:
    """The dynamic overrides of the cluster."""
    url = f"{stage.cluster.brokers[0].web_url}/admin/v2/brokers/configuration/values"
    values: dict[str, str] = httpx.get(url, timeout=20).json()
    return values


def person(stage: Stage, directory: Path) -> Path:
    """The settings of a job of its own, with the sidecars' root."""
    name = stage.root.rpartition("/")[2]
    settings = settings_for(stage.cluster, "deadman", directory, root=name, cycle={"interval": "1s"})
    file = directory / "deadman.json"
    file.write_text(json.dumps(settings), encoding="utf-8")
    return file


def deadman(file: Path, *more: str) -> tuple[int, dict[str, Any]]:
    """One run: exit code and answer."""
    limits = ("--after", f"{AFTER_SECONDS}s", "--confirm", "3s")
    ended = bundlekeel("deadman", *limits, "-o", "json", "-c", str(file), *more, within=120)
    assert ended.stdout, ended.stderr
    return ended.returncode, json.loads(ended.stdout)


@pytest.mark.nightly
def test_all_sidecars_killed(stage: Stage, tmp_path: Path) -> None:
    """While they live it does nothing; killed with SIGKILL, it restores, verifies every broker and says so; those that
    come back do not act before a new takeover."""
    before = overrides(stage)
    with stage.sidecars("AB", tmp_path, parameters=EAGER) as sidecars:
        file = person(stage, tmp_path)
        # The stage was taken over below another root: this one needs a record of its own, with what was there before.
        bundlekeel("takeover", "-c", str(file), "--yes", "--reason", "chaos", within=120)
        until(stage.unloads, "they act", within=60)
        time.sleep(AFTER_SECONDS)
        assert deadman(file)[1]["state"] == "alive"
        for item in sidecars:
            item.kill()
        until(lambda: deadman(file, "--dry-run")[1]["state"] == "dead", "it sees that they are dead", within=60)
        started = time.monotonic()
        code, answer = deadman(file)
        print(f"\nrestored in {time.monotonic() - started:.1f} s: {answer['sentence']}")  # noqa: T201
        assert (code, answer["state"], answer["done"]) == (1, "restored", True)
        assert [row["ok"] for row in answer["brokers"]] == [True] * 3
        assert overrides(stage) == before
        assert deadman(file)[1]["state"] == "not_taken_over"
        sidecars[0].start()
        until(lambda: leader_of(sidecars[:1]), "it leads", within=60)
        until(lambda: sidecars[0].state()["acting_obstacle"] == "PutAside", "it sees that it was put aside", within=30)


def test_shedding_is_back_on_every_broker(stage: Stage, tmp_path: Path) -> None:
    """From the brokers' defaults: shedding on before the takeover, off after it, on after the failsafe job."""
    outer = tmp_path / "outer.json"
    outer.write_text(json.dumps(settings_for(stage.cluster, "cli", tmp_path, root="chaos")), encoding="utf-8")
    assert bundlekeel("handback", "-c", str(outer), "--yes", "--reason", "own shedding on", within=120).returncode == 0
    try:
        assert set(shedding(stage).values()) == {"true"}
        with stage.sidecars("A", tmp_path, parameters=EAGER) as (sidecar,):
            file = person(stage, tmp_path)
            assert bundlekeel("takeover", "-c", str(file), "--yes", "--reason", "chaos", within=120).returncode == 0
            assert set(shedding(stage).values()) == {"false"}
            until(stage.unloads, "it acts", within=60)
            sidecar.kill()
            until(lambda: deadman(file)[1]["state"] == "restored", "the failsafe job restores", within=60)
            assert set(shedding(stage).values()) == {"true"}
    finally:
        taken = bundlekeel("takeover", "-c", str(outer), "--yes", "--reason", "chaos", within=120)
        assert taken.returncode == 0, taken.stdout + taken.stderr
