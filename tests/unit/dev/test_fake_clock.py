"""The clock of a process is set from outside, while it runs; its boot clock is not."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from tests.support.fake_clock import FakeClock

HOUR = 3600
# Says both clocks a line, whenever it is asked.
SAYS = "import sys, time\nfor _ in sys.stdin:\n    print(time.time(), time.time_ns(), time.monotonic(), flush=True)\n"


def test_the_wall_clock_alone_is_set(tmp_path: Path) -> None:
    clock = FakeClock(tmp_path / "clock")
    command = [sys.executable, "-c", SAYS]
    with subprocess.Popen(
        command, env=clock.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None

        def read_clocks() -> tuple[float, float]:
            time.sleep(0.2)
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write("\n")
            process.stdin.flush()
            wall, nanoseconds, boot = map(float, process.stdout.readline().split())
            assert abs(nanoseconds / 1e9 - wall) < 1
            return wall - time.time(), boot - time.monotonic()

        assert abs(read_clocks()[0]) < 1
        clock.set(-HOUR)
        wall, boot = read_clocks()
        assert abs(wall + HOUR) < 1 and abs(boot) < 1
        clock.set(HOUR, 10.0)
        first, then = read_clocks()[0], read_clocks()[0]
        assert HOUR < first < then
        process.stdin.close()
        process.wait(10)
