"""Quality on a real Spark cluster: sound days are good, poisoned ones are refused with the reason, files stay."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from bundlekeel.recalibration.jobs import quality
from bundlekeel.recalibration.jobs.options import Options, newest
from bundlekeel.recalibration.jobs.recalibrate import Progress, run_recalibration
from bundlekeel.recalibration.jobs.rules import (
    BadDays,
    DayFigures,
    HistoryRules,
    TooLittleHistory,
    UnfitHistory,
    accept,
    judge,
)
from bundlekeel.recalibration.parquet import ParquetStore
from dev.history_worlds import POISONS, records, write
from tests.spark.conftest import SMALL, digested, hashes

pytestmark = pytest.mark.timeout(1800, method="signal")
RULES = HistoryRules(min_days=3)
MIDDLE = "2023-11-14"
HOUR = f"date={MIDDLE}/hour=07"


def poisoned(kind: str) -> Callable[[Path], object]:
    """Return a function that writes history with this fault on the middle day."""
    return lambda folder: write(SMALL, folder, poison=kind)


def sound(spoil: Callable[[Path], object]) -> Callable[[Path], object]:
    """Return a function that writes history and then spoils the files with `spoil`."""
    return lambda folder: (write(SMALL, folder), spoil(folder))


def rewritten(change: Callable[[pa.Table], pa.Table]) -> Callable[[Path], object]:
    """Return a function that writes history and then changes the rows of the file of 07:00."""

    def spoil(folder: Path) -> None:
        (path,) = (folder / HOUR).iterdir()
        pq.write_table(change(pq.read_table(path)), path)

    return sound(spoil)


def in_local_time(folder: Path) -> None:
    """Rename the directories of the hours of the middle day to UTC+1, without its last hour."""
    shutil.rmtree(folder / f"date={MIDDLE}/hour=23")
    for hour in reversed(range(23)):
        (folder / f"date={MIDDLE}/hour={hour:02d}").replace(folder / f"date={MIDDLE}/hour={hour + 1:02d}")


def in_the_future(folder: Path) -> None:
    """Copy an hour to a day of another year, as a leader with a wrong clock would record it."""
    shutil.copytree(folder / HOUR, folder / "date=2031-01-01/hour=07")


def of_two_clusters(folder: Path) -> None:
    """Record another cluster, with another term, into the same directory."""
    write(SMALL, folder, cluster="east")
    cycles = [replace(item, epoch=2) for item, _ in zip(records(SMALL), range(4), strict=False)]
    ParquetStore(folder, "west").publish(2, 1, cycles)


# Faults of a history: a function that makes the fault, and the text of the refusal.
CASES: dict[str, tuple[Callable[[Path], object], str]] = {
    "torn file": (
        poisoned("torn"),
        f"1 unreadable file: date={MIDDLE}/hour=00/1-25.parquet is torn or no Parquet file",
    ),
    "file of another tool": (
        rewritten(lambda _: pa.table({"topic": ["a"], "rate": [1.0]})),
        f"1 unreadable file: {HOUR}/1-32.parquet is not a file of recorded cycles: ",
    ),
    "other schema": (
        poisoned("future_schema"),
        "24 cycles that cannot be rebuilt: cycle 1:121 is of schema 3, and this release reads only schema 2",
    ),
    "missing rows": (
        rewritten(lambda rows: rows.slice(0, rows.num_rows - 3)),
        "1 cycle that cannot be rebuilt: cycle 1:128: its checksum does not hold",
    ),
    "hours twice": (
        poisoned("duplicates"),
        f"24 cycles recorded twice: date={MIDDLE}/hour=06/1-100031.parquet repeats cycle 1:121",
    ),
    "folders in local time": (
        sound(in_local_time),
        f"92 cycles in the directory of another hour (UTC): date={MIDDLE}/hour=01/1-25.parquet contains cycle 1:100 of "
        f"{MIDDLE} 00:00",
    ),
    "clock set back": (poisoned("clock_back"), "the leader's clock was set back by 45 minutes"),
    "clock ahead": (
        sound(in_the_future),
        "date=2031-01-01/hour=07/1-32.parquet is from the future (now is 2023-11-16 02:00 UTC): the clock of its "
        "leader or of this host was wrong; move the file away, or set the clock",
    ),
    "missing hours": (poisoned("missing_hours"), "75.0% recorded, longest gap 375 min"),
    "empty day": (sound(lambda folder: shutil.rmtree(folder / f"date={MIDDLE}")), "nothing is recorded"),
    "zeros": (poisoned("zero_day"), "no traffic in 100% of the cycles"),
    "no numbers": (poisoned("nan"), "values that are not finite: usage_cpu of broker-0000:8080 is nan in cycle 1:121"),
    "negative values": (poisoned("negative"), " negative values: latest_msg_rate_in of tenant-"),
    "lying broker": (poisoned("lying_broker"), "broker-0003:8080 contradicts itself: its CPU"),
    "two clusters": (
        of_two_clusters,
        "2 clusters recorded here: east (date=2023-11-13/hour=00/1-1.parquet, ",
    ),
    "one broker": (
        lambda folder: write(replace(SMALL, brokers=1), folder),
        "the 3 good days have 1 broker; at least 2 are needed, because a bundle moves to another broker",
    ),
    "one bundle": (
        lambda folder: write(replace(SMALL, bundles=1), folder),
        "the 3 good days have 1 bundle; at least 2 are needed",
    ),
}
# Faults that different code finds: before Spark, in the reader, in the digest, and in the rules. The others at night.
DAY = ("clock ahead", "two clusters", "torn file", "no numbers", "clock set back", "lying broker", "one broker")


def test_sound_days_are_good(small_digest: DataFrame) -> None:
    """Three sound days have no faults, and their values are those in the files."""
    columns = {item.name for item in fields(DayFigures)} - {"lying", "leaders"}
    assert columns <= set(quality.days(small_digest).columns)
    judged = judge(quality.figures(small_digest), RULES)
    assert [item.verdict for item in judged] == ["good"] * 3, [item.reasons for item in judged]
    for item in judged:
        day = item.day
        assert (day.cycles, day.brokers, day.bundles, day.missing) == (96, 4, 32, 0)
        assert day.interval_seconds == 900
        assert day.coverage == pytest.approx(1.0)
        assert day.messages > 0
        assert day.imbalance > 0
    assert accept(judged, RULES) == judged


def test_every_poison_has_a_case() -> None:
    """A new way to spoil history needs a test of its message."""
    source = Path(__file__).read_text(encoding="utf-8")
    assert [kind for kind in POISONS if f'poisoned("{kind}")' not in source] == []


@pytest.mark.parametrize(
    "case", [name if name in DAY else pytest.param(name, marks=pytest.mark.nightly) for name in CASES]
)
def test_invalid_history_is_refused_in_one_sentence(spark: SparkSession, tmp_path: Path, case: str) -> None:
    """The sentence names place, value and fix; nothing is written, and no file of the history changes."""
    history, out = tmp_path / "history", tmp_path / "out"
    spoil, sentence = CASES[case]
    spoil(history)
    before = hashes(history)
    night = Options(history=str(history), out=str(out), now=datetime(2023, 11, 16, 2, tzinfo=UTC), rules=RULES)
    with pytest.raises(UnfitHistory) as refused:
        run_recalibration(spark, night, newest(night), Progress(tell=lambda _: None, begin=lambda _: None))
    message = str(refused.value)
    assert sentence in message and "\n" not in message, message
    if isinstance(refused.value, BadDays) and case != "clock ahead":
        figures = refused.value.figures
        assert (figures["good_days"], list(figures["bad_days"])) == (2, [MIDDLE]), message
        assert message.endswith(f"; to omit a day: --leave-out {MIDDLE}"), message
    assert hashes(history) == before
    assert not out.exists()


def test_a_day_that_a_person_left_out_is_not_held_against_the_others(spark: SparkSession, tmp_path: Path) -> None:
    """Two days are then too few for rules that ask for three, and enough for rules that ask for two."""
    write(SMALL, tmp_path, poison="nan")
    judged = judge(quality.figures(digested(spark, tmp_path)), RULES)
    with pytest.raises(TooLittleHistory, match="2 good days; 3 are needed"):
        accept(judged, HistoryRules(min_days=3, leave_out=frozenset({MIDDLE})))
    assert len(accept(judged, HistoryRules(min_days=2, leave_out=frozenset({MIDDLE})))) == 2
