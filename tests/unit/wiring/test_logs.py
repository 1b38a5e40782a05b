"""The log never breaks the program that writes it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_LOGS = """
import structlog
from bundlekeel.settings.model import Settings
from bundlekeel.wiring.logs import configure_logging

configure_logging(Settings(cluster="c"))
log = structlog.get_logger("test")
for _ in range(3):
    log.warning("nobody reads this")
print("went on")
"""


def _went_on(stderr: int) -> bool:
    done = subprocess.run([sys.executable, "-c", _LOGS], stdout=subprocess.PIPE, stderr=stderr, check=False, text=True)
    return done.stdout == "went on\n"


def test_a_reader_that_is_gone() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        assert _went_on(writing)
    finally:
        os.close(writing)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is Linux's")
def test_a_full_disk() -> None:
    """Nothing can be written: the same."""
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        assert _went_on(full.fileno())
