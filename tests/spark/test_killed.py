"""A nightly run that SIGKILL ends at any time leaves no partial result."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from random import Random

import psutil
import pytest

from bundlekeel.recalibration.parquet.threshold_files import calibration_folder
from tests.spark.conftest import hashes
from tests.spark.test_recalibrate import COMMAND, LOCAL

pytestmark = pytest.mark.timeout(1800, method="signal")
SEED = int(os.environ.get("SEED") or 0)
# The run is killed within 20 ms after it creates a file of its results, or within two seconds after one of these lines.
FIRST_FILE, LINES = "", ("hours of history", "good days of", "round 1 of", "candidates in")
SEARCH = ("--min-days", "3", "--points", "2", "--rounds", "0", "--parameter", "move_price", "--placements", "1")


def command(history: Path, out: Path) -> list[str]:
    """Return the command of a small nightly run."""
    return [*COMMAND, "--master", "local[*]", "--history", str(history), "--out", str(out), *SEARCH]


@pytest.fixture(scope="module")
def earlier(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with the results of an earlier run of the same day."""
    out = tmp_path_factory.mktemp("out")
    ran = subprocess.run(command(small, out), env=LOCAL, check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return out


@pytest.mark.parametrize("line", [FIRST_FILE, *(pytest.param(line, marks=pytest.mark.nightly) for line in LINES)])
def test_a_killed_run_leaves_no_partial_result(small: Path, earlier: Path, tmp_path: Path, line: str) -> None:
    """History and earlier results are unchanged, the newest proposal has its own report, and no temporary file and no
    process remains."""
    history, results = hashes(small), hashes(earlier)
    delay = Random(f"{SEED} {line}").uniform(0, 2 if line else 0.02)
    kill([*command(small, earlier), "--conf", f"spark.local.dir={tmp_path}"], line, earlier, delay, tmp_path)
    assert hashes(small) == history
    assert results.items() <= hashes(earlier).items(), f"killed {delay:.3f} s after {line!r}"
    newest = calibration_folder(earlier).newest()
    assert newest is not None
    report = json.loads((earlier / newest.path).with_name("report.json").read_bytes())
    assert report["thresholds"] == json.loads(newest.data)
    assert (earlier / newest.path).with_name("report.html").exists()
    assert list(tmp_path.iterdir()) == []


def kill(command: list[str], line: str, out: Path, delay: float, temporary: Path) -> None:
    """Run the command and kill it `delay` seconds after it prints a line with this text; "": after it creates a file
    below `out`. Return when its child processes have ended."""
    before = set(out.rglob("*"))
    with subprocess.Popen(
        command, env=LOCAL | {"TMPDIR": str(temporary)}, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stderr is not None
        if line:
            assert any(line in printed for printed in running.stderr)
        else:
            while set(out.rglob("*")) == before and running.poll() is None:
                time.sleep(0.001)
        time.sleep(delay)
        children = psutil.Process(running.pid).children(recursive=True)
        running.send_signal(signal.SIGKILL)
        running.stderr.close()
    assert running.returncode == -signal.SIGKILL
    assert psutil.wait_procs(children, timeout=120)[1] == []
