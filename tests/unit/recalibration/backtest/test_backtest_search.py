"""The search and the choice: on made-up answers whose best is known, and on a small world."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bundlekeel.model.parameters import Parameters
from bundlekeel.recalibration.backtest import Candidate, CandidateMeasures, backtest
from bundlekeel.recalibration.backtest.choice import choose, split_days
from bundlekeel.recalibration.backtest.intervals import chance, measures_of
from bundlekeel.recalibration.backtest.measures import ByBlock
from bundlekeel.recalibration.backtest.search import (
    SearchSpace,
    TriedCandidates,
    grid,
    neighbours,
    present,
    ranked,
    saving,
    search,
    together,
    total,
    worse,
)
from bundlekeel.recalibration.rules.thresholds import HIT_COUNTS, RANGES, searched, steps_between
from bundlekeel.settings.model import Settings
from bundlekeel.settings.parameters import to_parameters
from dev.history_model import World, dense

DAYS = tuple(range(10))
BASE = Parameters()


def day(imbalance: float, moves: float, overloaded: float = 0.0) -> CandidateMeasures:
    """One day."""
    return CandidateMeasures(seconds=86_400.0, weighted=imbalance * 86_400, moves=moves, overloaded_minutes=overloaded)


class Answers:
    """Results with fewer moves for higher thresholds and hit counts; above 30 points and 12 hits, balance is lost."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, candidates: Sequence[Candidate]) -> Mapping[str, ByBlock]:
        self.asked += [candidate.key for candidate in candidates]
        return {candidate.key: self.measure(candidate) for candidate in candidates}

    @staticmethod
    def measure(candidate: Candidate) -> ByBlock:
        """Return ten days that differ only by the settings of the candidate."""
        params = candidate.params(BASE)
        low, hits = params.avg_low_threshold_percent, params.split_hit_count
        cost = 0.02 * max(0.0, low - 30.0) + 0.05 * max(0, hits - 12)
        moves = 400.0 - 5 * low - 8 * hits if params.strategy == "avg" else 500.0
        return {number: day(0.2 + 0.01 * (number % 3) + cost, moves + number) for number in DAYS}


SPACE = SearchSpace(base=BASE, strategies=("avg", "threshold"), names=("avg_low_threshold_percent", "split_hit_count"))


class TestSearch:
    """`search`."""

    def test_it_finds_a_known_best(self) -> None:
        """The search finds the exact step from a grid of three points."""
        tried = search(SPACE, Answers(), points=3, rounds=4)
        best = ranked(tried)[0].params(BASE)
        assert best.strategy == "avg"
        assert best.avg_low_threshold_percent == 30.0
        assert best.split_hit_count == 12

    def test_nothing_is_asked_twice(self) -> None:
        """A back-test of a candidate may take an hour."""
        answers = Answers()
        tried = search(SPACE, answers, points=4, rounds=3)
        assert len(answers.asked) == len(set(answers.asked))
        assert set(answers.asked) == set(tried.results) == set(tried.candidates)

    def test_what_makes_no_difference_is_not_refined(self) -> None:
        """A parameter without effect in the grid is tried only there; the others are refined."""
        space = replace(SPACE, names=(*SPACE.names, "overloaded_threshold_percent"))
        first = {item.key for strategy in space.strategies for item in grid(strategy, space, points=3)}
        tried = search(space, Answers(), points=3, rounds=3)
        changed = [item for item in tried.candidates.values() if "overloaded_threshold_percent" in item.changes]
        assert changed and {item.key for item in changed} <= first
        assert any(item.key not in first for item in tried.candidates.values())

    def test_held_out_days_are_not_looked_at(self) -> None:
        """The search is the same for any values of the held-out days."""

        def other(candidates: Sequence[Candidate]) -> Mapping[str, ByBlock]:
            return {item.key: {**Answers.measure(item), 8: day(9.0, 9.0), 9: day(0.0, 0.0)} for item in candidates}

        days = DAYS[:8]
        assert list(search(SPACE, other, blocks=days).candidates) == list(
            search(SPACE, Answers(), blocks=days).candidates
        )

    @pytest.mark.parametrize("strategy", ["avg", "threshold", "uniform", "overload", "transfer", "deviation"])
    def test_candidates_are_allowed_ones(self, strategy: str) -> None:
        """Each candidate is valid, unique, and within the range of proposals."""
        candidates = grid(strategy, SearchSpace(base=BASE))
        assert len({item.key for item in candidates}) == len(candidates) > 10
        changed = {name for item in candidates for name in item.changes}
        assert changed - {"strategy"} <= set(searched(strategy))
        for item in candidates:
            item.params(BASE)
            for name, value in item.changes.items():
                if name in RANGES:
                    assert RANGES[name].minimum <= float(value) <= RANGES[name].maximum

    @given(reach=st.floats(1.0, 6.0), points=st.integers(2, 5), steps=st.sampled_from([1.0, 2.0, 8.0]))
    def test_reach(self, reach: float, points: int, steps: float) -> None:
        """No candidate of grid or refinement is further from the present values than one night may go."""
        space = SearchSpace(base=BASE, reach=reach)
        first = grid("avg", space, points=points)
        for item in [*first, *neighbours(first[-3], space, steps=steps), *neighbours(first[3], space, steps=steps)]:
            for name, value in item.changes.items():
                # A whole number is at most half a step away from where the reach ends.
                slack = 0.5 if isinstance(getattr(BASE, name), int) else 1e-6
                assert steps_between(name, float(getattr(BASE, name)), float(value)) <= reach + slack

    def test_back_to_what_holds_now_is_no_change(self) -> None:
        """Otherwise the same settings would be tried under another key."""
        one = neighbours(present(), SPACE)
        back = [item for other in one for item in neighbours(other, SPACE)]
        assert present().key in {item.key for item in back}

    def test_what_helped_alone_is_tried_together(self) -> None:
        """Changes are combined within a strategy only."""
        first = Candidate(name="a", changes={"split_hit_count": 10})
        second = Candidate(name="b", changes={"avg_low_threshold_percent": 20.0})
        other = Candidate(name="c", changes={"strategy": "threshold"})
        candidates = together([first, second, other], BASE)
        assert [item.changes for item in candidates] == [{"avg_low_threshold_percent": 20.0, "split_hit_count": 10}]

    def test_a_base_out_of_range_is_left_as_it_is(self) -> None:
        """A value that an operator set outside of the range is not a starting point."""
        space = SearchSpace(base=Parameters(avg_low_threshold_percent=90.0))
        assert not any("avg_low_threshold_percent" in item.changes for item in grid("avg", space))

    def test_what_is_to_be_left_alone_is_in_no_candidate(self) -> None:
        """Excluded parameters are in no candidate of grid or refinement, also if they were requested."""
        space = SearchSpace(
            base=BASE, names=(*SPACE.names, "max_unload_ratio"), without=dict.fromkeys(HIT_COUNTS, "why")
        )
        candidates = [*grid("avg", space), *neighbours(present(), space)]
        changed = {name for item in candidates for name in item.changes}
        assert changed == {"avg_low_threshold_percent", "max_unload_ratio"}
        assert HIT_COUNTS == ("split_hit_count",)


class TestWorse:
    """Rules for a worse result."""

    @pytest.mark.parametrize(
        ("after", "reason"),
        [
            (day(0.2, 10), ""),
            (day(0.2019, 10), ""),
            (day(0.2021, 10), "max/mean 1.200 -> 1.202"),
            (day(0.1, 99), ""),
            (day(0.1, 1, overloaded=11), "overloaded minutes per day 10 -> "),
        ],
    )
    def test_by_more_than_a_hundredth(self, after: CandidateMeasures, reason: str) -> None:
        """Imbalance or overload above 101 % of the earlier value is worse. More moves are not."""
        assert worse(day(0.2, 50, overloaded=10), after, 0.01).startswith(reason)
        assert bool(worse(day(0.2, 50, overloaded=10), after, 0.01)) == bool(reason)

    @pytest.mark.parametrize(("minutes", "reason"), [(20.0, ""), (20.1, "overloaded minutes per day 10 -> ")])
    def test_one_picture_a_day_is_no_overload(self, minutes: float, reason: str) -> None:
        """With a snapshot every ten minutes, ten more minutes of overload are a single snapshot."""
        before, after = (replace(day(0.2, 50, overloaded=value), periods=144.0) for value in (10.0, minutes))
        assert worse(before, after, 0.01).startswith(reason)
        assert bool(worse(before, after, 0.01)) == bool(reason)


def tried(**results: ByBlock) -> TriedCandidates:
    """Return results by name. `now` names the present settings."""
    candidates = {
        name: Candidate(name=name, changes={"split_hit_count": 1 + number}) for number, name in enumerate(results)
    }
    candidates["now"] = present()
    keys = {name: item.key for name, item in candidates.items()}
    return TriedCandidates(
        present=present().key,
        candidates={keys[name]: item for name, item in candidates.items()},
        results={keys[name]: blocks for name, blocks in results.items()},
    )


def days(imbalance: float, moves: float, held_out: float | None = None) -> ByBlock:
    """Return ten days. `held_out`: imbalance of the last three; None: the same."""
    return {
        number: day(
            (imbalance if number < 7 or held_out is None else held_out) + 0.002 * (number % 2), moves + 3 * (number % 4)
        )
        for number in DAYS
    }


TRAIN, HELD = split_days(DAYS)


class TestChoice:
    """`choose`."""

    def test_fewest_moves_at_the_same_balance(self) -> None:
        """Days outside of the search decide. A loss of one percent of balance is tolerated."""
        choice = choose(
            tried(now=days(0.2, 100), fewer=days(0.2, 60), fewest=days(0.2015, 40), worse=days(0.2065, 20)),
            train=TRAIN,
            held_out=HELD,
        )
        assert choice.candidate.name == "fewest"
        assert choice.chosen == total(days(0.2015, 40), HELD)

    def test_what_does_not_hold_is_dropped(self) -> None:
        """No other candidate is tried on the held-out days, because that would be a search."""
        lucky = days(0.19, 40, held_out=0.3)
        choice = choose(tried(now=days(0.2, 100), lucky=lucky, sound=days(0.2, 80)), train=TRAIN, held_out=HELD)
        assert choice.candidate == present()
        assert choice.present == choice.chosen == total(days(0.2, 100), HELD)
        assert (
            "not confirmed on 3 held-out blocks: lucky: max/mean 1.201 -> 1.301 (part above 1: +49.7%)" in choice.reason
        )

    def test_a_likely_gain_goes_before_a_lucky_one(self) -> None:
        """One candidate halves the moves, but is worse on most days. The other saves fewer moves on every day."""
        swings = {number: day(0.1 if number == 0 else 0.215, 50) for number in DAYS}
        results = tried(now=days(0.2, 100), lucky=swings, sound=days(0.2, 60))
        assert not worse(total(days(0.2, 100), TRAIN), total(swings, TRAIN), 0.01)
        choice = choose(results, train=TRAIN, held_out=HELD)
        assert choice.candidate.name == "sound"
        by_name = {
            item.name: saving(results, key, blocks=TRAIN, tolerance=0.01) for key, item in results.candidates.items()
        }
        assert 0 < by_name["lucky"] < by_name["sound"]
        assert by_name["present"] == 0

    def test_what_is_on_the_edge_comes_after_what_is_sure(self) -> None:
        """Both save moves at the same mean balance. One alternates between better and worse, so half of all choices of
        held-out days would refuse it.
        """
        edge = {number: day(0.17 if number % 2 else 0.23, 40) for number in DAYS}
        choice = choose(tried(now=days(0.2, 100), edge=edge, sound=days(0.2, 70)), train=TRAIN, held_out=HELD)
        assert choice.candidate.name == "sound"

    def test_nothing_better(self) -> None:
        """Without a better candidate, the present settings stay."""
        choice = choose(tried(now=days(0.2, 50), other=days(0.2, 60), worse=days(0.4, 10)), train=TRAIN, held_out=HELD)
        assert choice.candidate == present()
        assert choice.present == choice.chosen

    def test_who_does_not_move_cannot_save(self) -> None:
        """This also holds if all other candidates move bundles."""
        others = {f"other{number}": days(0.2, 50 + number) for number in range(8)}
        still = {number: day(0.2, 0) for number in DAYS}
        choice = choose(
            tried(now=still, too={number: day(0.1, 0) for number in DAYS}, **others), train=TRAIN, held_out=HELD
        )
        assert choice.candidate == present()
        assert choice.reason == "no candidate reduced moves without worsening balance"

    def test_no_imbalance_at_all(self) -> None:
        """Without imbalance, only the moves decide."""
        level = {number: day(0.0, 80) for number in DAYS}
        choice = choose(tried(now=level, fewer={number: day(0.0, 40) for number in DAYS}), train=TRAIN, held_out=HELD)
        assert choice.candidate.name == "fewer"

    def test_a_gain_that_may_be_chance_is_none(self) -> None:
        """The candidate makes fewer moves on one held-out day and more on another."""
        unsteady = {
            number: day(0.2, moves) for number, moves in zip(DAYS, [1, 1, 1, 1, 1, 1, 1, 100, 20, 100], strict=True)
        }
        steady = {number: day(0.2, 80) for number in DAYS}
        choice = choose(tried(now=steady, unsteady=unsteady), train=TRAIN, held_out=HELD)
        assert choice.candidate == present()
        reason = (
            "fewer moves are not certain: the difference is -0.28 moves per hour, and on other days it may be up to "
        )
        assert f"{reason}+0.83" in choice.reason

    def test_no_held_out_day(self) -> None:
        """A choice needs days of the search and other days."""
        with pytest.raises(ValueError, match="held-out"):
            choose(tried(now=days(0.2, 50)), train=TRAIN, held_out=[99])
        with pytest.raises(ValueError, match="of the search"):
            choose(tried(now=days(0.2, 50)), train=[99], held_out=HELD)

    @pytest.mark.parametrize(("count", "held_out"), [(2, 1), (3, 1), (10, 3), (14, 4)])
    def test_the_last_days_are_held_out(self, count: int, held_out: int) -> None:
        """Later days judge the results of earlier ones."""
        first, last = split_days(range(count))
        assert [*first, *last] == list(range(count))
        assert len(last) == held_out

    def test_one_day_cannot_be_divided(self) -> None:
        """One day is an error."""
        with pytest.raises(ValueError, match="1 days"):
            split_days([5])


class TestBootstrap:
    """Confidence intervals."""

    def test_the_same_seed_the_same_interval(self) -> None:
        """Another seed gives another interval, of the same mean."""
        blocks = {number: day(float(value), 50) for number, value in enumerate(np.random.default_rng(3).random(9))}
        first, again, other = (measures_of(blocks, seed=seed).imbalance for seed in (1, 1, 2))
        assert first == again
        assert first != other
        assert first.low < first.mean == other.mean < first.high

    def test_days_that_are_alike_leave_no_doubt(self) -> None:
        """Equal days give an interval of length 0."""
        measured = measures_of(dict.fromkeys(range(5), day(0.2, 48)), seed=0)
        assert (measured.moves_per_hour.low, measured.moves_per_hour.mean, measured.moves_per_hour.high) == (
            2.0,
            2.0,
            2.0,
        )

    @given(seed=st.integers(0, 10_000))
    def test_shared_differences_of_days_leave_no_doubt(self, seed: int) -> None:
        """A paired difference that is equal on all days has an interval of length 0."""
        rng = np.random.default_rng(seed)
        before = {number: day(float(value), 50) for number, value in enumerate(rng.random(8))}
        after = {number: day(measured.imbalance + 0.001, 26) for number, measured in before.items()}
        measured = measures_of(after, seed=seed, before=before)
        assert measured.imbalance.low == pytest.approx(0.001)
        assert measured.imbalance.high == pytest.approx(0.001)
        assert measured.moves_per_hour.mean == pytest.approx(-1.0)

    @pytest.mark.parametrize("imbalance", [0.15, 0.2, 0.2019, 0.2021, 0.25])
    @pytest.mark.parametrize("overloaded", [0.0, 10.05, 19.9, 20.1])
    def test_chance_agrees_with_the_rule(self, imbalance: float, overloaded: float) -> None:
        """If all days are equal, so are all draws. The chance is 0 or 1, as `worse` decides."""
        before = {number: replace(day(0.2, 50, overloaded=10), periods=144.0) for number in range(5)}
        after = {number: replace(day(imbalance, 40, overloaded=overloaded), periods=144.0) for number in range(5)}
        wrong = worse(total(before), total(after), 0.01)
        assert chance(before, after, range(5), 0.01) == (0.0 if wrong else 1.0)

    def test_chance_counts_draws(self) -> None:
        """With one good and one bad day, only two draws of the good day are not worse: a chance of 1/4."""
        before = {number: day(0.2, 50) for number in range(2)}
        after = {0: day(0.2, 40), 1: day(0.4, 40)}
        assert chance(before, after, [0, 1], 0.01) == pytest.approx(0.25, abs=0.05)
        assert chance(before, {number: day(0.2, 50) for number in range(2)}, [0, 1], 0.01) == 0


@pytest.mark.nightly
def test_a_small_world_is_calibrated() -> None:
    """With six days of snapshots every ten minutes, the choice is not worse on held-out days and saves moves."""
    traffic = dense(World(days=6, brokers=6, bundles=72, period_seconds=600, noise=0.25, seed=9))
    first, last = split_days(traffic.days)

    def evaluate(candidates: Sequence[Candidate]) -> Mapping[str, ByBlock]:
        blocks: dict[str, dict[int, CandidateMeasures]] = {}
        for row in backtest(traffic, candidates, warm=6):
            blocks.setdefault(row.candidate, {})[row.day] = row.measures
        return blocks

    space = SearchSpace(
        base=traffic.params, strategies=("avg",), names=("avg_low_threshold_percent", "split_hit_count")
    )
    choice = choose(search(space, evaluate, blocks=first, rounds=2), train=first, held_out=last)
    assert not worse(choice.present, choice.chosen, 0.01)
    assert choice.chosen.moves <= choice.present.moves


def test_j03_a_back_test_of_the_other_form_begins_with_its_defaults() -> None:
    native = to_parameters(Settings(compat="4.2", parameters={"min_unload_throughput": 5.0}))[0]
    corrected = Candidate(name="x", changes={"strategy": "avg"}).params(native)
    assert (corrected.min_unload_message_rate, corrected.max_unload_ratio) == (0.0, 0.5)
    assert corrected.min_unload_throughput == 5.0
    back = Candidate(name="x", changes={"compat": "4.2"}).params(Parameters())
    assert (back.min_unload_message_rate, back.max_unload_ratio) == (1000.0, 0.2)
