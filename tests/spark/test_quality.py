"""Quality on a real Spark cluster: sound days are good, poisoned ones are refused with the reason, files stay."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from bundlekeel.core.errors import HistoryError
from bundlekeel.jobs import quality, schemas
from bundlekeel.jobs.rules import BadDays, Rules, TooLittleHistory, accept, judge
from dev.history_worlds import POISONS, write
from tests.spark.conftest import SMALL, digested, hashes

pytestmark = pytest.mark.timeout(1800)
RULES = Rules(min_days=3)
MIDDLE = "2023-11-14"
SAID = {
    "missing_hours": "75.0% recorded, longest gap 375 min",
    "nan": "values are no numbers",
    "negative": "values are below zero",
    "duplicates": "cycles are there twice",
    "future_schema": "a newer release recorded it",
    "zero_day": "no traffic at all in 100% of the cycles",
    "lying_broker": "broker-0003:8080 contradicts itself",
    "torn": "torn or no Parquet file",
}


def test_every_poison_has_a_case() -> None:
    """A new way to spoil history needs a test of what is said about it."""
    assert set(SAID) == set(POISONS)


def test_sound_days_are_good(small_digest: DataFrame) -> None:
    """Nothing is held against three sound days, and their figures are those of what was written."""
    assert quality.days(small_digest).schema.names == schemas.DAYS.names
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


@pytest.mark.parametrize("poison", sorted(SAID))
def test_poisoned_days_are_refused(spark: SparkSession, tmp_path: Path, poison: str) -> None:
    """The day is bad, for the right reason, the other two are not, and no file is touched."""
    write(SMALL, tmp_path, poison=poison)
    before = hashes(tmp_path)
    judged = judge(quality.figures(digested(spark, tmp_path)), RULES)
    assert {item.day.date: item.verdict for item in judged} == {
        "2023-11-13": "good",
        MIDDLE: "bad",
        "2023-11-15": "good",
    }, [item.reasons for item in judged]
    with pytest.raises(BadDays, match=MIDDLE) as refused:
        accept(judged, RULES)
    assert isinstance(refused.value, HistoryError)
    assert SAID[poison] in refused.value.figures["bad_days"][MIDDLE]
    assert hashes(tmp_path) == before
    # A person who has looked at the day may leave it out; two days are then too few.
    with pytest.raises(TooLittleHistory, match="2 good days; 3 are needed"):
        accept(judged, Rules(min_days=3, leave_out=frozenset({MIDDLE})))
