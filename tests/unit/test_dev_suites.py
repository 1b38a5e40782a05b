"""What the suites' runner makes of a suite that fails, and of one that fails once."""

from __future__ import annotations

import sys

import pytest

from dev.suites import Suite, run

# Stands for pytest: fails unless it is told to run only what failed last.
UNSTEADY = (sys.executable, "-c", "import sys; sys.exit('--last-failed' not in sys.argv)")
BROKEN = (sys.executable, "-c", "import sys; sys.exit(1)")
SOUND = (sys.executable, "-c", "")


@pytest.mark.parametrize(
    ("suite", "code", "said"),
    [
        (Suite("sound", 1, (SOUND,), real=True), 0, "all suites passed"),
        (Suite("unsteady", 1, (UNSTEADY,), real=True), 0, "UNSTEADY"),
        (Suite("no excuse", 1, (UNSTEADY,)), 1, "FAILED in no excuse"),
        (Suite("broken", 1, (BROKEN,), real=True), 1, "FAILED in broken"),
    ],
)
def test_only_suites_on_real_servers_get_a_second_attempt(
    suite: Suite, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the table says so."""
    assert run((suite,)) == code
    out = capsys.readouterr().out
    assert said in out and ("UNSTEADY" in out) == (suite.name == "unsteady")
