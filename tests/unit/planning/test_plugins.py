"""Third parties' shedders and placements: a real distribution on the path of a real process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.builders import bundle_name

MODULE = '''
from dataclasses import replace
import numpy as np
from bundlekeel.model.codes import Code
from bundlekeel.model.plan import Verdict
from bundlekeel.planning.strategies import Context, Decision


def to_the_last(context: Context) -> Decision:
    """Every bundle of the first broker to the last one, lawful or not, and a word about none of the others."""
    draft = context.draft
    for row in range(*context.snapshot.bundles.starts[:2]):
        draft.take(row, 0, len(draft.score) - 1, rule="to_the_last", threshold=0.0)
    return Decision(verdict=Verdict(code=Code.OVERLOADED, sentence="as asked"), memory=context.memory)


def last_first(draft, row, source, candidates):
    return candidates[::-1]


NOT_CALLABLE = 1
'''
GOOD = "[bundlekeel.shedders]\nto_the_last = keel_extra:to_the_last\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A path with the module of a distribution; `install` adds its metadata."""
    (tmp_path / "keel_extra.py").write_text(MODULE)
    return tmp_path


def install(folder: Path, entry_points: str, name: str = "keel-extra") -> None:
    info = folder / f"{name.replace('-', '_')}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(entry_points)


def keel(folder: Path, *arguments: str, lines: tuple[Any, ...] = ()) -> subprocess.CompletedProcess[str]:
    """`bundlekeel` in a process of its own that has the folder on its path."""
    return subprocess.run(
        [sys.executable, "-m", "bundlekeel", *arguments],
        input="\n".join(map(json.dumps, lines)),
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(folder), "NO_COLOR": "1"},
        check=False,
    )


def turn(*loads: list[float]) -> dict[str, Any]:
    """A line for `decide`: one broker a list, CPU as its sum."""
    brokers: dict[str, Any] = {}
    for index, shares in enumerate(loads):
        names = [bundle_name(100 * index + number) for number in range(len(shares))]
        stats = {
            name: {"msgRateIn": 1000.0 * share, "msgThroughputIn": 1e6 * share, "topics": 1}
            for name, share in zip(names, shares, strict=True)
        }
        brokers[f"b{index}:1"] = {
            "cpu": {"usage": 100 * sum(shares), "limit": 100.0},
            "msgRateIn": 1000.0 * sum(shares),
            "msgThroughputIn": 1e6 * sum(shares),
            "lastUpdate": 1_700_000_000_000,
            "bundles": names,
            "lastStats": stats,
        }
    return {"brokers": brokers}


def test_decide_with_a_third_partys_shedder(folder: Path) -> None:
    """Rule: it is found by its entry point, the laws hold for it, and every bundle is accounted for."""
    install(folder, GOOD)
    reset = {"reset": {"strategy": "to_the_last"}}
    done = keel(folder, "decide", lines=(reset, turn([0.1, 0.2, 0.3, 0.0], [0.1], [0.05])))
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    # 5 + 10 + 20 points fit below the 60 that were the maximum; 30 more do not; the idle one never moves.
    assert answer["to"] == {bundle_name(0): "b2:1", bundle_name(1): "b2:1"}
    refused = {item["bundle"]: item["code"] for item in answer["refused"]}
    assert refused == {bundle_name(2): "NoGain", bundle_name(3): "Idle"}
    assert "2 of the strategy's moves dropped" in answer["verdict"]["sentence"]


def test_decide_with_a_third_partys_placement(folder: Path) -> None:
    """Rule: `threshold` asks it; the last broker takes what the first one would have taken by default."""
    install(folder, "[bundlekeel.placements]\nlast_first = keel_extra:last_first\n")
    cluster = turn([0.1] * 6, [0.1] * 2, [0.1] * 2)
    for placement, target in (("last_first", "b2:1"), ("least_resource_usage", "b1:1")):
        reset = {"reset": {"strategy": "threshold", "placement": placement}}
        done = keel(folder, "decide", lines=(reset, cluster))
        assert next(iter(json.loads(done.stdout)["to"].values())) == target


def test_settings_may_name_it(folder: Path) -> None:
    """Rule: `config check` accepts installed names, and lists them with the built-in ones when a name is wrong."""
    install(folder, GOOD)
    settings = folder / "keel.yaml"
    settings.write_text("metadata_store: zk:localhost:2181\nstrategy: to_the_last\n")
    assert keel(folder, "config", "check", str(settings)).returncode == 0
    settings.write_text("metadata_store: zk:localhost:2181\nstrategy: to_the_first\n")
    wrong = keel(folder, "config", "check", str(settings))
    assert wrong.returncode == 2 and "deviation, to_the_last)" in wrong.stderr


def test_the_simulator_runs_it(folder: Path) -> None:
    """Rule: `simulate` accepts the values of `strategy`; the error for a wrong name lists the installed ones."""
    install(folder, GOOD)
    ran = keel(folder, "simulate", "03-step", "-s", "to_the_last", "--source", "reports", "-o", "json")
    assert ran.returncode == 0, ran.stderr
    assert [run["strategy"] for run in json.loads(ran.stdout)["runs"]] == ["to_the_last"]
    wrong = keel(folder, "simulate", "03-step", "--strategy", "to_the_first")
    assert wrong.returncode == 2 and "deviation, to_the_last" in wrong.stderr


BAD = {
    "missing = keel_extra:nothing_there": "cannot be loaded: AttributeError",
    "broken = keel_gone:shed": "cannot be loaded: ModuleNotFoundError: No module named 'keel_gone'",
    "number = keel_extra:NOT_CALLABLE": "is not callable: its type is int",
    "avg = keel_extra:to_the_last": "the strategy 'avg' exists already",
    "No-Name = keel_extra:to_the_last": "'No-Name' is not a valid name for a strategy (allowed: a-z",
}


def test_bad_plugins_are_named(folder: Path) -> None:
    """Rule: each error names distribution and entry point; commands that plan stop, others only say it."""
    install(folder, "\n".join(["[bundlekeel.shedders]", *BAD, "to_the_last = keel_extra:to_the_last", ""]))
    stopped = keel(folder, "decide")
    assert stopped.returncode == 2
    for entry, message in BAD.items():
        name = entry.partition(" ")[0]
        assert f"error: keel-extra 1.2, entry point '{name}' of bundlekeel.shedders: {message}" in stopped.stderr
    assert stopped.stderr.count("error: ") == len(BAD), "the good one is none"
    warned = keel(folder, "version")
    assert warned.returncode == 0 and warned.stderr == stopped.stderr


def test_two_distributions_with_one_name(folder: Path) -> None:
    """Rule: the second one is an error that names it."""
    install(folder, GOOD)
    install(folder, GOOD, name="keel-other")
    done = keel(folder, "decide")
    assert done.returncode == 2 and done.stderr.count("'to_the_last' exists already") == 1
