"""The nightly run on a real Spark cluster, from recorded files to thresholds.json, and what refuses it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bundlekeel.model.codes import Code
from bundlekeel.model.errors import StoreError
from bundlekeel.recalibration.backtest.search import SearchDepth
from bundlekeel.recalibration.jobs.options import Options, newest
from bundlekeel.recalibration.jobs.recalibrate import Progress, RecalibrationResult, run_recalibration
from bundlekeel.recalibration.jobs.rules import HistoryRules, TooLittleHistory
from bundlekeel.recalibration.parquet import ParquetStore
from bundlekeel.recalibration.rules.thresholds import AdoptionRules as Adoption
from bundlekeel.recalibration.rules.thresholds import checked
from bundlekeel.recalibration.rules.thresholds_json import parsed
from dev.history_model import World
from dev.history_worlds import records
from dev.spark_cluster import BRIEF
from tests.spark.conftest import SMALL, hashes

pytestmark = pytest.mark.timeout(1800, method="signal")
NOW = datetime(2023, 11, 16, 2, tzinfo=UTC)
COMMAND = [sys.executable, "-m", "bundlekeel.recalibration.jobs", "--conf", f"spark.driver.extraJavaOptions={BRIEF}"]
LOCAL = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"}
SILENT = Progress(tell=lambda _: None, begin=lambda _: None)
SEARCH = SearchDepth(points=2, rounds=1, names=("avg_low_threshold_percent", "move_price"))


def options(history: Path, out: Path) -> Options:
    """A small search on three days."""
    return Options(
        history=str(history),
        out=str(out),
        now=NOW,
        rules=HistoryRules(min_days=3),
        search=SEARCH,
    )


def run(spark: SparkSession, options: Options, progress: Progress) -> RecalibrationResult:
    """On the history as it is now, as the command does."""
    return run_recalibration(spark, options, newest(options), progress)


@dataclass(frozen=True, slots=True)
class Night:
    """The output of a run, its messages, its steps, and the history's files before it."""

    written: RecalibrationResult
    out: Path
    messages: list[str]
    steps: list[str]
    before: dict[str, str]


@pytest.fixture(scope="module")
def night(spark: SparkSession, small: Path, tmp_path_factory: pytest.TempPathFactory) -> Night:
    """One run, which several tests look at."""
    before, lines, steps, out = hashes(small), list[str](), list[str](), tmp_path_factory.mktemp("night")
    progress = Progress(tell=lines.append, begin=steps.append)
    return Night(run(spark, options(small, out), progress), out, lines, steps, before)


def test_a_whole_night(night: Night, small: Path) -> None:
    """Thresholds and report are written, the sidecar can read them, and nothing else is left or touched."""
    assert hashes(small) == night.before
    (results,) = night.out.iterdir()
    assert results.name == "2023-11-16T020000Z"
    assert sorted(hashes(results)) == ["report.html", "report.json", "thresholds.json"]
    document = parsed((results / "thresholds.json").read_bytes())
    assert document == night.written.thresholds
    assert document.strategy == "avg"
    assert document.evidence.held_out == ("2023-11-15",)
    assert document.data.days == ("2023-11-13", "2023-11-14", "2023-11-15")
    assert document.data.coverage == pytest.approx(1.0)
    assert document.data.cycles == 3 * 96
    assert set(document.parameters) == set(SEARCH.names)
    assert document.previous == {name: getattr(SMALL.params, name) for name in SEARCH.names}
    assert set(document.evidence.strategies) == {"AvgShedder", "ThresholdShedder", "TransferShedder"}
    # The sidecar objects to nothing but, maybe, that nothing was found to be better.
    codes = {item.code for item in checked(document, SMALL.params, Adoption(min_days=3), document.created_ms)}
    assert codes <= {Code.NOT_BETTER, Code.NOTHING_NEW}
    assert (Code.NOTHING_NEW in codes) == (document.values == document.previous)
    assert night.written.messages[0] == document.decision
    report = json.loads((results / "report.json").read_text())
    assert report["decision"] == document.decision
    # A curve: the present settings, Pulsar's three classes, and at least one other candidate.
    kinds = Counter(point["kind"] for point in report["trade_off"])
    assert kinds["present"] == 1 and kinds["native"] == 3 and kinds["tested"] + kinds["chosen"] > 0
    page = (results / "report.html").read_text()
    assert "<svg" in page
    # Namespaces of SVG are names, not addresses.
    assert set(re.findall(r'http[^"]*', page)) <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    used = re.findall(r'data-head="day">(2023-11-\d\d)<.*?data-head="used for">([\w ]+)<', page)
    assert used == [("2023-11-13", "search"), ("2023-11-14", "search"), ("2023-11-15", "held out")]
    assert any("candidates in" in line for line in night.messages)


def test_each_step_has_a_name(night: Night) -> None:
    """In its order; of each round of the search a line says what is tried."""
    rounds = [f"search, round {number} of 2" for number in (1, 2)]
    first_days = "search, first days of N candidates"
    steps = [re.sub(r"\d+ candidates?", "N candidates", step) for step in night.steps if step != rounds[1]]
    begin, end = ["reading the days", first_days, rounds[0]], ["Pulsar's own classes", "other placements"]
    # The second round may have nothing new to measure.
    assert steps in ([*begin, *end], [*begin, first_days, *end])
    (first,) = [line for line in night.messages if line.startswith("round 1 of 2 (the grid): ")]
    assert re.fullmatch(r"round 1 of 2 \(the grid\): \d+ candidates, other \w.*", first)
    assert set(SEARCH.names) <= set(re.findall(r"\w+", first))


@pytest.mark.nightly
def test_a_second_night_says_the_same(spark: SparkSession, night: Night, small: Path, tmp_path: Path) -> None:
    """The same history and seed give the same document, whatever order Spark ran it in."""
    second = run(spark, options(small, tmp_path), SILENT)
    assert second.thresholds == night.written.thresholds


def test_no_history_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """An empty folder is too little history, and nothing is written."""
    (tmp_path / "history").mkdir()
    with pytest.raises(TooLittleHistory, match="nothing is recorded"):
        run(spark, options(tmp_path / "history", tmp_path / "out"), SILENT)
    assert not (tmp_path / "out").exists()


@pytest.mark.nightly
def test_a_store_that_goes_away_is_said(spark: SparkSession, small: Path, tmp_path: Path) -> None:
    """A place that cannot be written ends the run as an unreachable store, not as a crash."""
    blocked = tmp_path / "out"
    blocked.write_text("a file where a folder should be")
    with pytest.raises(StoreError):
        run(spark, options(small, blocked), SILENT)


def test_three_minutes_are_refused(tmp_path: Path) -> None:
    """The command itself, on three minutes of history: exit code 1, TooLittleHistory, files as they were."""
    history = tmp_path / "history"
    minutes = replace(SMALL, days=1, period_seconds=2)
    write_some(minutes, history, 100)
    before = hashes(history)
    ran = command("--history", str(history), "--out", str(tmp_path / "out"), "--master", "local[1]")
    assert ran.returncode == 1, ran.stderr
    line = next(line for line in ran.stderr.splitlines() if '"refused"' in line)
    figures = json.loads(line.partition(" ")[2])
    assert figures["refused"] == "TooLittleHistory"
    assert (figures["span_days"], figures["min_days"], figures["cycles"]) == (1, 7, None)
    assert hashes(history) == before
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("whole", [False, True], ids=["alone", "with its Java"])
def test_sigterm_leaves_nothing_behind_and_spark_says_nothing(small: Path, tmp_path: Path, *, whole: bool) -> None:
    """The command itself, or its group as `timeout` does, terminated in the search: exit code 143, nothing written,
    our own lines alone."""
    command = ("--history", str(small), "--out", str(tmp_path / "out"), "--master", "local[1]", "--min-days", "3")
    lines, sent = [], False
    with subprocess.Popen(
        [*COMMAND, *command], env=LOCAL, stderr=subprocess.PIPE, text=True, process_group=0
    ) as running:
        assert running.stderr is not None
        for line in running.stderr:
            lines.append(line)
            if "round 1 of" in line and not sent:
                sent = True
                (os.killpg if whole else os.kill)(running.pid, signal.SIGTERM)
    assert running.returncode == 143 and sent, "".join(lines)
    assert "SIGTERM" in lines[-1] and all(re.match(r"\d\d:\d\d:\d\d ", line) for line in lines), "".join(lines)
    assert not (tmp_path / "out").exists()


def test_explain_reads_names_only(small: Path, tmp_path: Path) -> None:
    """The plan of a run is printed without Spark, from names and sizes."""
    ran = command("--history", str(small), "--out", str(tmp_path / "out"), "--explain")
    assert ran.returncode == 0, ran.stderr
    output = json.loads(ran.stdout)
    assert output["days"] == ["2023-11-13", "2023-11-14", "2023-11-15"]
    assert (output["hours"], output["files"]) == (72, 72)
    assert not (tmp_path / "out").exists()


def write_some(world: World, folder: Path, cycles: int) -> None:
    """The first cycles of a world only."""
    store = ParquetStore(folder)
    store.publish(1, 1, [record for record, _ in zip(records(world), range(cycles), strict=False)])


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m bundlekeel.recalibration.jobs`."""
    return subprocess.run([*COMMAND, *arguments], env=LOCAL, capture_output=True, text=True, check=False)
