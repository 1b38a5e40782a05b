"""A nightly run that SIGKILL ends at any time leaves no partial result, and a later run succeeds."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from bundlekeel.recalibration.parquet.threshold_files import calibration_folder
from bundlekeel.recalibration.rules.thresholds_json import parsed
from tests.spark.conftest import hashes
from tests.spark.test_recalibrate import COMMAND, LOCAL

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600, method="signal")]
SEED = int(os.environ.get("SEED") or 0)
# The run is killed within two seconds after each of these lines, and within 20 ms after its first file exists.
LINES = ("hours of history", "good days of", "round 1 of", "candidates in")
SEARCH = ("--min-days", "3", "--points", "2", "--rounds", "0", "--parameter", "move_price", "--placements", "1")


def test_a_killed_run_leaves_nothing_that_is_read(small: Path, tmp_path: Path) -> None:
    """Neither in an empty directory nor in one with an earlier proposal; its Java and Python processes end."""
    out, before, moments = tmp_path / "out", hashes(small), random.Random(SEED)
    command = [*COMMAND, "--master", "local[*]", "--history", str(small), "--out", str(out), *SEARCH]
    for line in (*LINES, ""):
        delay = moments.uniform(0, 2) if line else moments.uniform(0, 0.02)
        kill(command, line, out, delay)
        assert hashes(small) == before
        # The killed run may have been faster than its signal: then its proposal is complete.
        assert proposal(out) is None or not line, f"{line!r} and {delay:.3f} s"
    assert subprocess.run(command, env=LOCAL, check=False, capture_output=True).returncode == 0
    complete = proposal(out)
    assert complete is not None
    kill(command, "", out, moments.uniform(0, 0.02))
    assert proposal(out) is not None and hashes(small) == before


def proposal(out: Path) -> str | None:
    """Return the decision of the proposal that a sidecar would read; None: it would read none. A proposal has a
    report."""
    document = calibration_folder(out).newest()
    if document is None:
        return None
    assert {path.name for path in (out / document.path).parent.iterdir()} >= {"report.html", "report.json"}
    return parsed(document.data).decision


def kill(command: list[str], line: str, out: Path, delay: float) -> None:
    """Run the command and kill it `delay` seconds after it prints a line with this text; "": after it writes below
    `out`. Return when its other processes have ended."""
    written = newest_write(out)
    with subprocess.Popen(command, env=LOCAL, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        if line:
            assert any(line in printed for printed in running.stderr)
        else:
            while newest_write(out) == written and running.poll() is None:
                time.sleep(0.001)
        time.sleep(delay)
        others = psutil.Process(running.pid).children(recursive=True)
        running.send_signal(signal.SIGKILL)
        running.stderr.close()
    assert running.returncode == -signal.SIGKILL
    assert psutil.wait_procs(others, timeout=120)[1] == []


def newest_write(out: Path) -> int:
    """Return the latest modification time below a directory, in ns; 0: it does not exist."""
    return max((path.stat().st_mtime_ns for path in (out, *out.rglob("*")) if path.exists()), default=0)
