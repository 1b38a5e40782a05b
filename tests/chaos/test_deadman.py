"""All sidecars killed: the failsafe job puts the brokers' own shedding back on every broker, exactly as it was."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from dev.sidecar import bundlekeel, leader_of
from tests.chaos.stage import EAGER, Stage, admin, change_hands, overrides, person, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420)]

SHEDDING = "loadBalancerSheddingEnabled"
SPLITTING = "loadBalancerAutoBundleSplitEnabled"
AFTER_SECONDS = 6


def running(stage: Stage, key: str) -> set[str]:
    """Return the value of a setting that is in effect at each broker."""
    answers = [admin(broker, "GET", "brokers/configuration/runtime") for broker in stage.cluster.brokers]
    return {json.loads(values)[key] for values in answers}


def job(stage: Stage, directory: Path) -> Path:
    """The settings of a job of its own, with the sidecars' root."""
    return person(stage.cluster, directory, "deadman", root=stage.root.rpartition("/")[2], cycle={"interval": "1s"})


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
    before = overrides(stage.cluster)
    with stage.sidecars("AB", tmp_path, parameters=EAGER) as sidecars:
        file = job(stage, tmp_path)
        # The stage was taken over below another root. This root needs its own record of the values before the takeover.
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
        assert overrides(stage.cluster) == before
        assert deadman(file)[1]["state"] == "not_taken_over"
        sidecars[0].start()
        until(lambda: leader_of(sidecars[:1]), "it leads", within=60)
        until(lambda: sidecars[0].state()["acting_obstacle"] == "PutAside", "it sees that it was put aside", within=30)


def test_shedding_is_back_on_every_broker(stage: Stage, tmp_path: Path) -> None:
    """Shedding is on by the brokers' defaults, off after the takeover, and on after the failsafe job. Splits follow it,
    also when the takeover is repeated.
    """
    outer = person(stage.cluster, tmp_path, "chaos")
    change_hands("handback", outer)
    try:
        assert running(stage, SHEDDING) == running(stage, SPLITTING) == {"true"}
        with stage.sidecars("A", tmp_path, parameters=EAGER) as (sidecar,):
            file = job(stage, tmp_path)
            change_hands("takeover", file, "--split", "off")
            assert running(stage, SHEDDING) == running(stage, SPLITTING) == {"false"}
            until(stage.unloads, "it acts", within=60)
            sidecar.kill()
            until(lambda: deadman(file)[1]["state"] == "restored", "the failsafe job restores", within=60)
            assert running(stage, SHEDDING) == running(stage, SPLITTING) == {"true"}
            change_hands("takeover", file, "--again")
            assert running(stage, SHEDDING) == running(stage, SPLITTING) == {"false"}
            change_hands("handback", file)
    finally:
        change_hands("takeover", outer)
