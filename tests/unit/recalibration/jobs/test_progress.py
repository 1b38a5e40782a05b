"""Progress of a nightly run. These tests do not start Spark."""

from __future__ import annotations

import io
import re
from typing import NamedTuple

import pytest
from py4j.protocol import Py4JError

from bundlekeel.model.errors import HistoryError
from bundlekeel.model.text_format import how_far
from bundlekeel.recalibration.jobs.__main__ import Screen
from bundlekeel.recalibration.jobs.session import report_crash, show_progress


class Terminal(io.StringIO):
    """A stream that is a terminal, or a file."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""
        return self.terminal


def test_a_step_tells_count_rate_and_time_left() -> None:
    """Rate and remaining time are shown after the first task has ended."""
    assert how_far(0, 96, "task", 12.0) == "0 of 96 tasks"
    assert how_far(31, 96, "task", 12.4) == "31 of 96 tasks, 2.5 a second, 26 s left"
    assert how_far(1, 1000, "task", 2.0) == "1 of 1000 tasks, 0.5 a second, 33 min left"
    assert how_far(2, 4, "move", 60.0) == "2 of 4 moves, 2.0 a minute, 60 s left"


def test_on_a_terminal_one_line_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A permanent line replaces the changing one."""
    screen, stream = Screen(), Terminal(terminal=True)
    monkeypatch.setattr("sys.stderr", stream)
    for text in ("1 of 3 tasks", "2 of 3 tasks"):
        screen.show(text)
    screen.tell("24 candidates")
    pieces = stream.getvalue().split("\r\x1b[K")
    assert pieces[:3] == ["", "1 of 3 tasks", "2 of 3 tasks"] and re.fullmatch(r"[\d:]{8} 24 candidates\n", pieces[3])


def test_elsewhere_lines_stay_and_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most one line every half minute, without control characters."""
    screen, stream = Screen(), Terminal(terminal=False)
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr("time.monotonic", iter([1e9, 1e9, 1e9 + 1, 1e9 + 31, 1e9 + 31]).__next__)
    for text in ("1 of 3 tasks", "2 of 3 tasks", "3 of 3 tasks"):
        screen.show(text)
    assert re.fullmatch(r"[\d:]{8} 1 of 3 tasks\n[\d:]{8} 3 of 3 tasks\n", stream.getvalue())


class StageInfo(NamedTuple):
    """Spark's record of a stage."""

    numCompletedTasks: int
    numTasks: int


class Context:
    """A context of Spark with an active stage and one that Spark has deleted."""

    def __init__(self) -> None:
        self.done = 0
        self.stage = 5
        self.described: list[str] = []

    def statusTracker(self) -> Context:
        """Return this object, which is also the tracker."""
        return self

    def setJobDescription(self, text: str) -> None:
        """Record the name of the next jobs on Spark's page."""
        self.described.append(text)

    def getActiveStageIds(self) -> list[int]:
        """Return both stages."""
        return [4, self.stage]

    def getStageInfo(self, stage: int) -> StageInfo | None:
        """Complete one more task at each call."""
        self.done += stage >= 5
        return StageInfo(self.done, 8) if stage >= 5 else None


def test_what_spark_computes_is_watched_until_it_ends() -> None:
    """Progress has the name of the step, as on Spark's own page, and the pass if there are several."""
    lines, context = list[str](), Context()
    with show_progress(context, lines.append, 0.005) as begin:
        begin("reading the days")
        while len(lines) < 3:
            pass
        context.stage = 6
        while "pass 2" not in lines[-1]:
            pass
        begin("other placements")
        context.stage = 7
        while "placements" not in lines[-1]:
            pass
    count = len(lines)
    steps = [text.partition(",")[0] for text in lines[:2]]
    assert steps == ["reading the days: 1 of 8 tasks", "reading the days: 2 of 8 tasks"]
    assert lines[-1].startswith("other placements: ")
    assert context.described == ["reading the days", "other placements"]
    assert len(lines) == count


def test_output_of_spark_is_shown_only_after_a_crash() -> None:
    """The last output is shown after a crash, and not after a refusal by the job."""
    lines: list[str] = []
    for error, expected in ((HistoryError("too little"), []), (Py4JError("gone"), ["java.lang.OutOfMemoryError"])):
        with pytest.raises(type(error)), report_crash(io.BytesIO(b"java.lang.OutOfMemoryError"), lines.append):
            raise error
        assert lines == expected
