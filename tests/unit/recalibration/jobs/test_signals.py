"""SIGTERM ends the job wherever it is."""

from __future__ import annotations

import array
import fcntl
import os
import signal
import subprocess
import sys
import termios
import time

WRITES = """
from bundlekeel.recalibration.jobs.__main__ import _terminated, screen
with _terminated():
    while True:
        screen.write("x" * 4096)
"""
# Standard error as it is by default, with a buffer.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


def waiting(descriptor: int) -> int:
    count = array.array("i", [0])
    fcntl.ioctl(descriptor, termios.FIONREAD, count)
    return count[0]


def test_a_signal_in_the_middle_of_a_line_ends_the_run() -> None:
    with subprocess.Popen([sys.executable, "-c", WRITES], env=ENVIRONMENT, stderr=subprocess.PIPE) as job:
        assert job.stderr is not None
        before, now = -1, 0
        while now == 0 or now != before:
            time.sleep(0.2)
            before, now = now, waiting(job.stderr.fileno())
        job.send_signal(signal.SIGTERM)
        text = job.stderr.read()
    assert text.endswith(b" SIGTERM: the run ends\n"), text[-500:]
    assert job.returncode == 143
