"""Quality on a real Spark cluster: sound days are good, poisoned ones are refused with the reason, files stay."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from bundlekeel.model.errors import HistoryError
from bundlekeel.recalibration.jobs import quality, read
from bundlekeel.recalibration.jobs.options import Options, newest
from bundlekeel.recalibration.jobs.recalibrate import Progress, run_recalibration
from bundlekeel.recalibration.jobs.rules import BadDays, HistoryRules, TooLittleHistory, accept, judge
from dev.history_worlds import POISONS, write
from tests.spark.conftest import SMALL, digested, hashes

pytestmark = pytest.mark.timeout(1800, method="signal")
RULES = HistoryRules(min_days=3)
MIDDLE = "2023-11-14"
SAID = {
    "missing_hours": "75.0% recorded, longest gap 375 min",
    "nan": "values are not numbers",
    "negative": "values are negative",
    "duplicates": "cycles are recorded twice",
    "future_schema": "another release recorded it",
    "zero_day": "no traffic in 100% of the cycles",
    "lying_broker": "broker-0003:8080 contradicts itself",
    "torn": "torn or no Parquet file",
}
# One that the rules see, and one that the reader does; the others at night.
TRIED = ("lying_broker", "torn")


def test_every_poison_has_a_case() -> None:
    """A new way to spoil history needs a test of its message."""
    assert set(SAID) == set(POISONS)


def test_sound_days_are_good(small_digest: DataFrame) -> None:
    """Three sound days have no faults, and their values are those in the files."""
    assert quality.days(small_digest).schema.names == read.DAYS.names
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


@pytest.mark.parametrize(
    "poison", [item if item in TRIED else pytest.param(item, marks=pytest.mark.nightly) for item in sorted(SAID)]
)
def test_poisoned_history_promotes_nothing(spark: SparkSession, tmp_path: Path, poison: str) -> None:
    """Refused for the right reason, the other two days are good, nothing is written, no file is touched."""
    history, out = tmp_path / "history", tmp_path / "out"
    write(SMALL, history, poison=poison)
    before, lines = hashes(history), list[str]()
    night = Options(history=str(history), out=str(out), now=datetime(2023, 11, 16, 2, tzinfo=UTC), rules=RULES)
    with pytest.raises(BadDays, match=MIDDLE) as refused:
        run_recalibration(spark, night, newest(night), Progress(tell=lines.append, begin=lambda _: None))
    assert isinstance(refused.value, HistoryError)
    figures = refused.value.figures
    assert (figures["good_days"], list(figures["bad_days"])) == (2, [MIDDLE]), lines
    assert SAID[poison] in figures["bad_days"][MIDDLE]
    assert hashes(history) == before
    assert not out.exists()


def test_a_day_that_a_person_left_out_is_not_held_against_the_others(spark: SparkSession, tmp_path: Path) -> None:
    """Two days are then too few for rules that ask for three, and enough for rules that ask for two."""
    write(SMALL, tmp_path, poison="nan")
    judged = judge(quality.figures(digested(spark, tmp_path)), RULES)
    with pytest.raises(TooLittleHistory, match="2 good days; 3 are needed"):
        accept(judged, HistoryRules(min_days=3, leave_out=frozenset({MIDDLE})))
    assert len(accept(judged, HistoryRules(min_days=2, leave_out=frozenset({MIDDLE})))) == 2
