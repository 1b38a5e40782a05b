"""Progress on standard error while a command waits."""

from __future__ import annotations

import io

from rich.console import Console

from bundlekeel.cli.output import ProgressLine

STEPS = ("b1:8080: draining, 2 [left]", "b1:8080: draining, 2 [left]", "b1:8080: empty")


def render_progress(*, terminal: bool) -> str:
    """All that was written."""
    file = io.StringIO()
    with ProgressLine(Console(file=file, force_terminal=terminal, width=60, soft_wrap=True)) as line:
        for step in STEPS:
            line.tell(step)
    return file.getvalue()


def test_a_pipe_gets_a_line_for_each_change() -> None:
    assert render_progress(terminal=False) == "b1:8080: draining, 2 [left]\nb1:8080: empty\n"


def test_a_terminal_has_one_line_that_is_gone_at_the_end() -> None:
    written = render_progress(terminal=True)
    assert written.count("2 [left] · 0 s") == 2 and written.count("\n") == 1
    assert written.endswith("\x1b[1A\x1b[2K")


def test_a_long_run_tells_a_pipe_now_and_then() -> None:
    """A short one nothing; the terminal has its line all the same."""
    file = io.StringIO()
    with ProgressLine(Console(file=file, width=60), pause=3600) as line:
        line.tell("1 of 9 runs")
    assert file.getvalue() == ""
