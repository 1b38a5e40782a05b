"""The main job as people see it: `python -m dev.demo` on a cluster of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.cluster
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "how",
    [
        pytest.param(("--mode", "modular"), id="modular"),
        pytest.param(("--mode", "extensible"), id="extensible", marks=pytest.mark.nightly),
        pytest.param(("--mode", "modular", "--secure"), id="secure", marks=pytest.mark.nightly),
    ],
)
def test_demo_balances_a_real_cluster(how: tuple[str, ...], tmp_path: Path) -> None:
    """The demo exits 0 only if the load became even, the leader was replaced, moves landed and no message was lost."""
    report = tmp_path / "demo.json"
    ended = subprocess.run(
        [sys.executable, "-m", "dev.demo", *how, "--idle", "5", "--report", str(report)],
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    outcome = json.loads(report.read_text(encoding="utf-8"))
    assert outcome["held"] is True
    assert outcome["messages"]["lost"] == 0 < outcome["messages"]["acked"]
    assert {move["outcome"] for move in outcome["moves"]} == {"done"}
