"""libfaketime is found, installed, or its lack said in one sentence; it sets the wall clock and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from dev.tools_faketime import ADVICE, INSTALL, FakeClock, ensure
from dev.tools_prometheus import ToolsMissing

FOUND = Path("/usr/lib/somewhere/faketime/libfaketimeMT.so.1")


def test_one_that_is_there_is_taken() -> None:
    assert ensure(find=lambda: FOUND, run=lambda command: pytest.fail(str(command))) == FOUND


def test_a_missing_one_is_installed() -> None:
    """By Debian's package."""
    there: list[Path] = []

    def install(command: Sequence[str]) -> str:
        if tuple(command) == INSTALL:
            there.append(FOUND)
        return ""

    assert ensure(find=lambda: there[0] if there else None, run=install) == FOUND


def test_one_that_cannot_be_had_is_said() -> None:
    """With apt-get's own reason and what to do."""
    with pytest.raises(ToolsMissing) as caught:
        ensure(find=lambda: None, run=lambda command: "E: are you root?" if command == INSTALL else "")
    assert str(caught.value).endswith(f"could not be installed (apt-get: E: are you root?): {ADVICE}")


def test_the_file_says_how_far_and_how_fast(tmp_path: Path) -> None:
    clock = FakeClock(FOUND, tmp_path / "clock")
    clock.set(-3600, 1.1)
    assert Path(clock.environment["FAKETIME_TIMESTAMP_FILE"]).read_text() == "-3600 x1.1\n"
