"""Thresholds over the settings: what counts, what a revert brings back, and when an adoption did worse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bundlekeel.leader.state.adopted_thresholds import Adopted, Realised, Reverted
from bundlekeel.model.parameters import Parameters
from bundlekeel.recalibration.rules.adoption import (
    BUCKET_MS,
    KEPT_BUCKETS,
    KEPT_REVERTS,
    KEPT_UNJUDGED,
    REVERTED_MS,
    TimeStretch,
    adopted_values,
    adoption,
    before_and_after,
    in_force,
    judged,
    noted,
    one_back,
    reverted_before,
    stretch,
    taken_back,
)
from bundlekeel.recalibration.rules.thresholds import RANGES
from bundlekeel.recalibration.rules.thresholds_json import thresholds_of
from tests.support.threshold_cases import NOW_MS, document, proposed

BASE = Parameters()
LOW, HITS, WORTH = "avg_low_threshold_percent", "max_moves_per_source", "swing_worth"


def adopt(
    values: Mapping[str, float], now: Adopted | None = None, digest: str = "d1", base: Parameters = BASE
) -> Adopted:
    rows = {name: proposed(value, getattr(base, name)) for name, value in values.items()}
    thresholds = thresholds_of(document(parameters=rows))
    return adoption(thresholds, digest, base=base, now=now, by="ann", reason="r", now_ms=NOW_MS, trial_seconds=3600.0)


def test_adopted_values_lie_over_the_settings() -> None:
    """Whole numbers stay whole; everything else is as it was."""
    parameters = in_force(BASE, adopt({LOW: 20.0, HITS: 6}))
    assert parameters == replace(BASE, avg_low_threshold_percent=20.0, max_moves_per_source=6)
    assert isinstance(parameters.max_moves_per_source, int)
    assert in_force(BASE, None) is BASE


def test_whoever_changes_the_settings_means_it() -> None:
    adopted = adopt({LOW: 20.0, HITS: 6})
    changed = replace(BASE, avg_low_threshold_percent=10.0)
    assert adopted_values(changed, adopted) == {HITS: 6}


def test_another_strategy_knows_nothing_of_it() -> None:
    """The evidence was about one."""
    assert adopted_values(replace(BASE, strategy="transfer"), adopt({LOW: 20.0})) == {}


@given(
    values=st.dictionaries(st.sampled_from([*RANGES, "nobody"]), st.floats(allow_nan=True) | st.integers(), max_size=5)
)
def test_nothing_out_of_range_comes_into_force(values: dict[str, float]) -> None:
    base = {name: float(getattr(BASE, name)) for name in values if name in RANGES}
    adopted = Adopted(digest="d", strategy="avg", values=values, instead_of=base | {"nobody": 1.0})
    for name, value in adopted_values(BASE, adopted).items():
        assert RANGES[name].minimum <= value <= RANGES[name].maximum
    in_force(BASE, adopted)


def test_nights_add_up_and_are_taken_back_one_by_one() -> None:
    """The second night's revert brings back the first one's values, the next revert the settings."""
    first = replace(adopt({LOW: 20.0}), state="kept")
    second = adopt({HITS: 6}, first, "d2")
    assert adopted_values(BASE, second) == {LOW: 20.0, HITS: 6}
    back = one_back(second, by="ann", reason="no", now_ms=NOW_MS)
    assert (
        back is not None and adopted_values(BASE, back) == {LOW: 20.0} and back.digest == "d1" and back.state == "kept"
    )
    assert one_back(back, by="ann", reason="no", now_ms=NOW_MS) is None


def test_a_trial_that_another_adoption_ended_begins_again() -> None:
    zero = replace(adopt({WORTH: 9000.0}), state="kept")
    first = replace(adopt({LOW: 20.0}, zero, "d2"), imbalance_high=0.5, moves_high=9.0)
    second = replace(adopt({HITS: 6}, first, "d3"), since_ms=NOW_MS + 7_200_000)
    later = NOW_MS + 14_400_000
    stored = msgspec.json.decode(msgspec.json.encode(second), type=Adopted)
    back = one_back(stored, by="ann", reason="no", now_ms=later)
    assert back is not None and adopted_values(BASE, back) == {WORTH: 9000.0, LOW: 20.0}
    assert (back.digest, back.state, back.since_ms, back.trial_seconds) == ("d2", "trial", later, 3600.0)
    assert (back.imbalance_high, back.moves_high) == (0.5, 9.0)
    realised = run(3600, 0.1, start=NOW_MS - 3_600_000)
    realised = run(14_400, 0.9, start=NOW_MS, before=realised)
    before, after = before_and_after(run(3600, 0.3, start=later, before=realised), back, later + 3_600_000)
    assert before.imbalance == pytest.approx(0.1) and after.imbalance == pytest.approx(0.3)
    left = one_back(back, by="ann", reason="no", now_ms=later)
    assert left is not None and (left.digest, left.state, dict(left.values)) == ("d1", "kept", {WORTH: 9000.0})


def test_what_an_older_release_stored_is_kept_after_a_revert() -> None:
    """It did not store whether the first one was on trial."""
    second = replace(adopt({HITS: 6}, adopt({LOW: 20.0}), "d2"), unjudged=())
    raw = msgspec.to_builtins(second)
    del raw["unjudged"], raw["compared_ms"]
    back = one_back(msgspec.convert(raw, Adopted), by="ann", reason="no", now_ms=NOW_MS)
    assert back is not None and (back.digest, back.state) == ("d1", "kept")


def test_only_so_many_trials_wait() -> None:
    """People may adopt night after night while a trial stands still."""
    adopted = adopt({LOW: 20.0}, None, "d0")
    for number in range(KEPT_UNJUDGED + 5):
        adopted = adopt({LOW: 20.0 + number}, adopted, f"e{number}")
    assert [item.digest for item in adopted.unjudged] == [f"e{number}" for number in range(4, 4 + KEPT_UNJUDGED)]
    assert all(item.unjudged == () for item in adopted.unjudged)


def test_what_a_changed_setting_outdid_does_not_come_back() -> None:
    changed = replace(BASE, avg_low_threshold_percent=10.0)
    second = adopt({HITS: 6}, adopt({LOW: 20.0}), "d2", changed)
    assert one_back(second, by="ann", reason="no", now_ms=NOW_MS) is None


def test_reverted_values_are_known_again_under_another_name() -> None:
    """For a month; the document itself for as long as it is remembered."""
    adopted = adopt({LOW: 20.0})
    reverted = taken_back({}, adopted, by="ann", reason="no", now_ms=NOW_MS)
    assert reverted_before(reverted, "d1", {}, NOW_MS + 10 * REVERTED_MS) is reverted["d1"]
    assert reverted_before(reverted, "d9", {LOW: 20.0}, NOW_MS + 1) is reverted["d1"]
    assert reverted_before(reverted, "d9", {LOW: 20.0}, NOW_MS + REVERTED_MS) is None
    assert reverted_before(reverted, "d9", {LOW: 17.5}, NOW_MS) is None
    assert reverted_before(reverted, "d9", {LOW: 20.0, HITS: 6}, NOW_MS) is None


def test_only_so_many_reverts_are_remembered() -> None:
    """The newest."""
    expected_names = {
        f"o{number}": Reverted(values={}, by="ann", reason="", since_ms=number) for number in range(KEPT_REVERTS)
    }
    reverted = taken_back(expected_names, adopt({LOW: 20.0}), by="ann", reason="no", now_ms=NOW_MS)
    assert len(reverted) == KEPT_REVERTS and "d1" in reverted and "o0" not in reverted


# --- what is realised ---


def run(
    seconds: int, imbalance: float, moves: int = 0, start: int = NOW_MS, before: Realised | None = None
) -> Realised:
    """Cycles every ten seconds, the moves in the first ones."""
    result = before or Realised()
    for number in range(seconds // 10):
        result = noted(result, start + 10_000 * number, imbalance, 1 if number < moves else 0)
    return result


def test_time_is_weighed_and_gaps_are_not_counted() -> None:
    """The imbalance of a cycle stands for the time since the one before, unless that was long ago."""
    start = NOW_MS - NOW_MS % BUCKET_MS
    record = noted(Realised(), start, 9.0, 1)
    record = noted(record, start + 60_000, 0.1, 0)
    record = noted(record, start + 80_000, 0.4, 2)
    record = noted(record, start + 480_000, 9.0, 0)
    period = stretch(record, start, start + 1)
    assert (period.seconds, period.moves) == (80.0, 3)
    assert period.imbalance == pytest.approx((60 * 0.1 + 20 * 0.4) / 80)
    assert period.moves_per_hour == pytest.approx(3 * 3600 / 80)


def test_a_trial_ends_where_cycles_are_long() -> None:
    """A cycle every ten minutes: the time between two of them counts. It did not, so that no trial ever ended."""
    adopted = replace(adopt({LOW: 20.0}), since_ms=NOW_MS, trial_seconds=6 * 3600.0)
    realised, now = Realised(), NOW_MS
    for number in range(40):
        now = NOW_MS + number * 600_000
        realised = noted(realised, now, 0.1, 0, interval_seconds=600.0)
    judgement = judged(adopted, *before_and_after(realised, adopted, now))
    assert judgement is not None and not judgement.worse


def test_only_two_days_are_kept() -> None:
    """The document must not grow."""
    realised = Realised()
    for number in range(2000):
        realised = noted(realised, NOW_MS + number * 290_000, 0.1, 0)
    assert len(realised.buckets) == KEPT_BUCKETS
    assert realised.buckets[-1].at_ms > realised.buckets[0].at_ms > NOW_MS


@pytest.mark.parametrize(("hours_a_day", "trial_hours"), [(2, 6), (8, 24)])
def test_a_trial_ends_where_little_of_a_day_is_ours(hours_a_day: int, trial_hours: int) -> None:
    """Maintenance windows: the hours of each day add up until there are enough, however many days that takes."""
    adopted = replace(adopt({LOW: 20.0}), since_ms=NOW_MS, trial_seconds=trial_hours * 3600.0)
    realised, judgements = Realised(), list[bool]()
    for minute in range(60 * hours_a_day * 10):
        day, rest = divmod(minute, 60 * hours_a_day)
        now = NOW_MS + day * 86_400_000 + rest * 60_000
        realised = noted(realised, now, 0.1, 0)
        judgement = judged(adopted, *before_and_after(realised, adopted, now))
        judgements += [judgement.worse] if judgement else []
    assert judgements and not any(judgements)


def test_a_clock_that_goes_back_does_no_harm() -> None:
    """Buckets later than now are dropped, and no time is counted."""
    record = noted(run(3600, 0.1), NOW_MS - BUCKET_MS, 0.5, 0)
    assert [bucket.at_ms for bucket in record.buckets] == [NOW_MS - BUCKET_MS - (NOW_MS - BUCKET_MS) % BUCKET_MS]


def test_the_minutes_of_the_adoption_belong_to_neither_side() -> None:
    """Before and after are apart."""
    adopted = replace(adopt({LOW: 20.0}), since_ms=NOW_MS, trial_seconds=3600.0)
    realised = run(7200, 0.3, start=NOW_MS - 7_200_000)
    realised = run(7200, 0.1, start=NOW_MS, before=realised)
    before, after = before_and_after(realised, adopted, NOW_MS + 7_200_000)
    assert before.imbalance == pytest.approx(0.3) and after.imbalance == pytest.approx(0.1)
    assert 2900 <= before.seconds <= 3600 and after.seconds >= 6000


ADOPTED = Adopted(
    digest="d", strategy="avg", values={}, instead_of={}, imbalance_high=0.12, moves_high=4.0, trial_seconds=3600.0
)
UNSEEN = TimeStretch()


def build_period(imbalance: float, moves: int, seconds: float = 3600.0) -> TimeStretch:
    """An hour, if not said otherwise."""
    return TimeStretch(seconds=seconds, imbalance=imbalance, moves=moves)


@pytest.mark.parametrize(
    ("before", "after", "worse"),
    [
        (UNSEEN, UNSEEN, None),
        (UNSEEN, build_period(0.5, 0, 800.0), None),
        (UNSEEN, build_period(0.5, 0, 1000.0), True),
        (UNSEEN, build_period(0.1, 2, 1000.0), None),
        (UNSEEN, build_period(0.1, 2), False),
        (build_period(0.2, 2), build_period(0.15, 2), False),
        (build_period(0.14, 2), build_period(0.15, 2), True),
        (build_period(0.14, 2, 100.0), build_period(0.13, 2), True),
        (UNSEEN, build_period(0.1, 8), False),
        (UNSEEN, build_period(0.1, 9), True),
        (build_period(0.1, 10), build_period(0.1, 9), False),
        (build_period(0.1, 8), build_period(0.1, 9), True),
    ],
)
def test_worse_is_beyond_the_promise_and_beyond_before(
    before: TimeStretch, after: TimeStretch, worse: bool | None
) -> None:
    """A quarter of the time has to be seen; good news takes all of it. A few moves more are chance."""
    result = judged(ADOPTED, before, after)
    assert (result.worse if result is not None else None) is worse


def test_the_sentence_has_the_figures() -> None:
    """For the journal."""
    result = judged(ADOPTED, build_period(0.1, 4), build_period(0.2, 40))
    assert result is not None
    for part in ("max/mean 1.200", "predicted at most 1.120", "before: 1.100", "40.0 moves an hour", "4.0"):
        assert part in result.sentence
