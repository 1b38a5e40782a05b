"""The search and the choice: on generated answers whose best is known, and on a small world."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bundlekeel.model.parameters import Parameters, defaults
from bundlekeel.recalibration.backtest import Candidate, CandidateMeasures
from bundlekeel.recalibration.backtest.choice import (
    Choice,
    TriedCandidates,
    choose,
    likely_saving,
    ranked,
    split_days,
    worse,
)
from bundlekeel.recalibration.backtest.intervals import chance, measures_of
from bundlekeel.recalibration.backtest.measures import ByRunDay
from bundlekeel.recalibration.backtest.search import (
    NATIVES,
    PRESENT,
    SearchDepth,
    SearchSpace,
    grid,
    natives,
    neighbours,
    pilot_days,
    search,
)
from bundlekeel.recalibration.rules.thresholds import RANGES, searched, steps_between
from bundlekeel.settings.model import Settings
from bundlekeel.settings.parameters import to_parameters
from dev.history_model import World, dense
from tests.support.backtest_cases import measured

DAYS = tuple(range(10))
BASE = Parameters()
GOAL = "client_seconds_per_hour"


def day(imbalance: float, clients: float, overloaded: float = 0.0) -> CandidateMeasures:
    """One day. `clients`: client-seconds."""
    return CandidateMeasures(
        seconds=86_400.0, weighted=imbalance * 86_400, client_seconds=clients, overloaded_minutes=overloaded
    )


def run(*days: CandidateMeasures) -> ByRunDay:
    """One run of these days, from the recorded owners."""
    return {(0, number): measures for number, measures in enumerate(days)}


class Answers:
    """Fewer client-seconds for higher thresholds and prices; above 30 points and a price of 100, balance is lost."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, candidates: Sequence[Candidate]) -> Mapping[str, ByRunDay]:
        self.asked += [candidate.key for candidate in candidates]
        return {candidate.key: self.measure(candidate) for candidate in candidates}

    @staticmethod
    def measure(candidate: Candidate) -> ByRunDay:
        """Return ten days that differ only by the settings of the candidate."""
        params = candidate.params(BASE)
        low, price = params.avg_low_threshold_percent, params.move_price
        cost = 0.02 * max(0.0, low - 30.0) + 0.005 * max(0.0, price - 100)
        clients = 4000.0 - 50 * low - 5 * price
        return run(*(day(0.2 + 0.01 * (number % 3) + cost, clients + number) for number in DAYS))


SPACE = SearchSpace(base=BASE, requested=("avg_low_threshold_percent", "move_price"))


def search_all(space: SearchSpace = SPACE, **options: int) -> TriedCandidates:
    """Search on all days."""
    return search(space, Answers(), Answers(), days=DAYS, depth=SearchDepth(**options))


class TestSearch:
    """`search`."""

    def test_it_finds_a_known_best(self) -> None:
        """From a grid of three points. A round changes one parameter, so the other one is a step of 1.25 away."""
        best = ranked(search_all(points=3, rounds=4), DAYS, "calm")[0].params(BASE)
        assert best.avg_low_threshold_percent == 30.0
        assert best.move_price == pytest.approx(50 * 1.25**2)

    def test_what_makes_no_difference_is_not_refined(self) -> None:
        """A parameter without effect in the grid is tried only there; the others are refined."""
        space = replace(SPACE, requested=(*SPACE.requested, "overloaded_threshold_percent"))
        first = {item.key for item in grid(space, points=3)}
        tried = search_all(space, points=3, rounds=3)
        changed = [item for item in tried.candidates.values() if "overloaded_threshold_percent" in item.changes]
        assert changed and {item.key for item in changed} <= first
        assert any(item.key not in first for item in tried.candidates.values())

    def test_a_pilot_leaves_few_candidates(self) -> None:
        """The first days exclude most candidates, and each one without effect. The best one is found nevertheless.

        None is measured twice: a back-test of a candidate may take an hour.
        """
        space = replace(SPACE, requested=(*SPACE.requested, "overloaded_threshold_percent"))
        answers, first = Answers(), Answers()

        def pilot(candidates: Sequence[Candidate]) -> Mapping[str, ByRunDay]:
            rows = first(candidates).items()
            return {key: {row: days[row] for row in days if row[1] in pilot_days(DAYS)} for key, days in rows}

        tried = search(space, answers, pilot, days=DAYS, depth=SearchDepth(rounds=4))
        best = ranked(tried, DAYS, "calm")[0].params(BASE)
        assert (best.avg_low_threshold_percent, best.move_price) == (30.0, pytest.approx(50 * 1.25**2))
        assert PRESENT.key in tried.results and sorted(answers.asked) == sorted(tried.results)
        assert len(first.asked) == len(set(first.asked)) == len(tried.candidates)
        assert set(answers.asked) < set(first.asked) and 2 * len(answers.asked) <= len(first.asked)
        assert not any("overloaded_threshold_percent" in key for key in answers.asked)

    @pytest.mark.parametrize(("count", "first"), [(1, 1), (2, 1), (7, 1), (10, 2)])
    def test_days_of_the_pilot(self, count: int, first: int) -> None:
        """A fifth of the days, at least one."""
        assert pilot_days(range(count)) == tuple(range(first))

    def test_held_out_days_are_not_looked_at(self) -> None:
        """The search is the same for any values of the held-out days."""

        def other(candidates: Sequence[Candidate]) -> Mapping[str, ByRunDay]:
            late = {(0, 8): day(9.0, 9.0), (0, 9): day(0.0, 0.0)}
            return {item.key: {**Answers.measure(item), **late} for item in candidates}

        ours, theirs = (
            search(SPACE, evaluate, evaluate, days=DAYS[:8], depth=SearchDepth()) for evaluate in (other, Answers())
        )
        assert list(ours.candidates) == list(theirs.candidates)

    @pytest.mark.parametrize("strategy", ["avg", "threshold", "uniform", "overload", "transfer", "deviation"])
    def test_candidates_are_allowed_ones(self, strategy: str) -> None:
        """Each candidate is valid, unique, and within the range of proposals."""
        base = Parameters(strategy=strategy)
        candidates = grid(SearchSpace(base=base))
        assert len({item.key for item in candidates}) == len(candidates) > 10
        assert {name for item in candidates for name in item.changes} <= set(searched(strategy))
        for item in candidates:
            item.params(base)
            for name, value in item.changes.items():
                assert RANGES[name].minimum <= float(value) <= RANGES[name].maximum

    @pytest.mark.parametrize("base", [BASE, Parameters(move_price=300.0, strategy="transfer", max_unload_ratio=0.3)])
    def test_pulsars_classes_have_their_defaults(self, base: Parameters) -> None:
        """Whatever is in effect now."""
        params = {item.name: item.params(base) for item in natives()}
        assert set(params) == set(NATIVES)
        assert [(item.strategy, item.placement, item.compat) for item in params.values()] == [
            ("avg", "avg", "4.2"),
            ("threshold", "least_long_term_message_rate", "4.2"),
            ("transfer", "least_long_term_message_rate", "4.2"),
        ]
        assert {item.max_unload_ratio for item in params.values()} == {0.2}
        assert {item.move_price for item in params.values()} == {50.0}

    def test_pulsars_classes_have_none_of_our_limits(self) -> None:
        """A broker executes all moves of a plan."""
        strict = Parameters(max_moves_per_hour=20, max_moves_per_source=1, max_moves_per_tenant=2)
        params = [item.params(strict) for item in natives()]
        names = [name for name in defaults() if name.startswith("max_moves_per_")]
        assert len(names) == 6 and min(getattr(item, name) for item in params for name in names) >= 1_000_000

    @given(reach=st.floats(1.0, 6.0), points=st.integers(2, 5), steps=st.sampled_from([1.0, 2.0, 8.0]))
    def test_reach(self, reach: float, points: int, steps: float) -> None:
        """No candidate of grid or refinement is further from the present values than one night may go."""
        space = SearchSpace(base=BASE, reach=reach)
        first = grid(space, points=points)
        for item in [*first, *neighbours(first[-3], space, steps=steps), *neighbours(first[3], space, steps=steps)]:
            for name, value in item.changes.items():
                # A whole number is at most half a step away from where the reach ends.
                slack = 0.5 if isinstance(getattr(BASE, name), int) else 1e-6
                assert steps_between(name, float(getattr(BASE, name)), float(value)) <= reach + slack

    def test_back_to_what_holds_now_is_no_change(self) -> None:
        """Otherwise the same settings would be tried under another key."""
        back = [item for other in neighbours(PRESENT, SPACE) for item in neighbours(other, SPACE)]
        assert PRESENT.key in {item.key for item in back}

    def test_a_base_out_of_range_is_left_as_it_is(self) -> None:
        """A value that an operator set outside of the range is not a starting point."""
        space = SearchSpace(base=Parameters(avg_low_threshold_percent=90.0))
        assert not any("avg_low_threshold_percent" in item.changes for item in grid(space))


class TestWorse:
    """Rules for a worse result."""

    @pytest.mark.parametrize(
        ("after", "reason"),
        [
            (day(0.2, 40), ""),
            (day(0.2019, 50), ""),
            (day(0.2021, 40), "max/mean 1.200 -> 1.202"),
            (day(0.1, 99), "client-seconds an hour 2.083 -> 4.125"),
            (day(0.1, 1, overloaded=11), ""),
            (day(0.1, 1, overloaded=11.1), "overloaded minutes a day 10 -> "),
        ],
    )
    def test_by_more_than_a_hundredth(self, after: CandidateMeasures, reason: str) -> None:
        """Each measure above 101 % of the earlier value is worse; one more minute of overload per day can be chance."""
        text = worse(run(day(0.2, 50, overloaded=10)), run(after))
        assert text.startswith(reason)
        assert bool(text) == bool(reason)


def tried(**results: ByRunDay) -> TriedCandidates:
    """Return results by name. `now` names the present settings."""
    candidates = {
        name: Candidate(name=name, changes={"move_price": 51.0 + number}) for number, name in enumerate(results)
    }
    candidates["now"] = PRESENT
    keys = {name: item.key for name, item in candidates.items()}
    return TriedCandidates(
        present=PRESENT.key,
        candidates={keys[name]: item for name, item in candidates.items()},
        results={keys[name]: days for name, days in results.items()},
    )


def days(imbalance: float, clients: float, held_out: float | None = None) -> ByRunDay:
    """Return ten days. `held_out`: imbalance of the last three; None: the same."""
    return run(
        *(
            day(
                (imbalance if number < 7 or held_out is None else held_out) + 0.002 * (number % 2),
                clients + 3 * (number % 4),
            )
            for number in DAYS
        )
    )


TRAIN, HELD = split_days(DAYS)


def choice_of(results: TriedCandidates, prefer: str = "calm", held_out: Sequence[int] = HELD) -> Choice:
    """Return the choice: the best on the days of the search, judged by the held-out days."""
    best = ranked(results, TRAIN, prefer)[0]
    return choose(best, PRESENT, results.results, held_out, prefer)


class TestChoice:
    """`ranked`, `choose`."""

    def test_fewest_client_seconds_at_the_same_balance(self) -> None:
        """A loss of one percent of balance is tolerated. The decision has the gain with its interval."""
        results = tried(now=days(0.2, 100), fewer=days(0.2, 60), fewest=days(0.2015, 40), worse=days(0.2065, 20))
        choice = choice_of(results)
        assert choice.candidate.name == "fewest"
        assert choice.decision == (
            "fewest: 58 % fewer client-seconds (95 %: 55 to 60), balance unchanged (max/mean 1.203)"
        )

    def test_best_balance_with_as_many_client_seconds(self) -> None:
        """The operator chooses the direction."""
        results = tried(now=days(0.2, 100), calm=days(0.2, 40), even=days(0.15, 100), busy=days(0.1, 120))
        assert choice_of(results, "balance").candidate.name == "even"
        assert choice_of(results, "balance").decision.endswith(
            "% less imbalance (95 %: 25 to 25), not more client-seconds"
        )
        assert choice_of(results).candidate.name == "calm"

    def test_what_does_not_hold_is_dropped(self) -> None:
        """No other candidate is tried on the held-out days, because that would be a search."""
        lucky = days(0.19, 40, held_out=0.3)
        choice = choice_of(tried(now=days(0.2, 100), lucky=lucky, sound=days(0.2, 80)))
        assert choice.candidate == PRESENT and choice.best.name == "lucky"
        assert choice.decision == (
            "keep the present settings: lucky was best in the search, but not on 3 held-out days: "
            "max/mean 1.201 -> 1.301 (part above 1: +49.7%)"
        )

    def test_a_likely_gain_goes_before_a_lucky_one(self) -> None:
        """One candidate halves the client-seconds, but is worse on most days. The other saves less on every day."""
        swings = run(*(day(0.1 if number == 0 else 0.215, 50) for number in DAYS))
        results = tried(now=days(0.2, 100), lucky=swings, sound=days(0.2, 60))
        assert choice_of(results).candidate.name == "sound"
        by_name = {item.name: likely_saving(results, key, TRAIN, "calm") for key, item in results.candidates.items()}
        assert 0 < by_name["lucky"] < by_name["sound"]
        assert by_name["present"] == 0

    def test_nothing_better(self) -> None:
        """Without a better candidate, the present settings stay."""
        choice = choice_of(tried(now=days(0.2, 50), other=days(0.2, 60), worse=days(0.4, 10)))
        assert choice.candidate == PRESENT
        assert choice.decision == (
            "keep the present settings: no tested value lowered client-seconds an hour without making another measure "
            "worse"
        )

    def test_no_imbalance_at_all(self) -> None:
        """Without imbalance, only the client-seconds decide."""
        level, fewer = (run(*(day(0.0, clients) for _ in DAYS)) for clients in (80, 40))
        assert choice_of(tried(now=level, fewer=fewer)).candidate.name == "fewer"

    def test_a_gain_that_may_be_chance_is_none(self) -> None:
        """The candidate costs less on one held-out day and more on another."""
        unsteady = run(*(day(0.2, clients) for clients in (1, 1, 1, 1, 1, 1, 1, 100, 20, 100)))
        choice = choice_of(tried(now=run(*(day(0.2, 80) for _ in DAYS)), unsteady=unsteady))
        assert choice.candidate == PRESENT
        assert "a gain is not certain: 8 % fewer client-seconds (95 %: -25 to " in choice.decision

    def test_one_day_confirms_nothing(self) -> None:
        """Its interval has no width, so any gain would be certain."""
        choice = choice_of(tried(now=days(0.2, 100), fewer=days(0.2, 60)), held_out=[DAYS[-1]])
        assert choice.candidate == PRESENT and "one day cannot confirm a gain" in choice.decision

    def test_no_held_out_day(self) -> None:
        with pytest.raises(ValueError, match="no held-out"):
            choice_of(tried(now=days(0.2, 50)), held_out=[99])

    def test_no_counted_time(self) -> None:
        """Measures of no time are all 0. They are no reason to keep the present settings."""
        nothing = run(*(CandidateMeasures() for _ in DAYS))
        with pytest.raises(ValueError, match="no counted time"):
            choice_of(tried(now=nothing, other=nothing))

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
        results = run(*(day(float(value), 50) for value in np.random.default_rng(3).random(9)))
        first, again, other = (measures_of(results, seed=seed).imbalance for seed in (1, 1, 2))
        assert first == again
        assert first != other
        assert first.low < first.mean == other.mean < first.high

    def test_days_that_are_alike_leave_no_doubt(self) -> None:
        """Equal days give an interval of length 0."""
        interval = measures_of(run(*[day(0.2, 48)] * 5), seed=0).client_seconds_per_hour
        assert (interval.low, interval.mean, interval.high) == (2.0, 2.0, 2.0)

    def test_more_placements_of_the_same_days_are_no_more_evidence(self) -> None:
        """They have the same traffic, so the interval does not become narrower."""
        results = run(*(day(float(value), 50) for value in np.random.default_rng(3).random(4)))
        thrice = {(placement, number): value for placement in range(3) for (_, number), value in results.items()}
        one, three = (measures_of(item, seed=1).imbalance for item in (results, thrice))
        assert (three.low, three.high) == pytest.approx((one.low, one.high))

    @given(seed=st.integers(0, 10_000))
    def test_shared_differences_of_days_leave_no_doubt(self, seed: int) -> None:
        """A paired difference that is equal on all days has an interval of length 0."""
        rng = np.random.default_rng(seed)
        before = {(run, number): day(float(rng.random()), 50) for run in range(2) for number in range(4)}
        after = {key: day(value.imbalance + 0.001, 26) for key, value in before.items()}
        result = measures_of(after, seed=seed, before=before)
        assert result.imbalance.low == pytest.approx(0.001)
        assert result.imbalance.high == pytest.approx(0.001)
        assert result.client_seconds_per_hour.mean == pytest.approx(-1.0)

    @pytest.mark.parametrize("imbalance", [0.15, 0.2, 0.2019, 0.2021, 0.25])
    @pytest.mark.parametrize("overloaded", [0.0, 10.05, 10.9, 11.1])
    def test_chance_agrees_with_the_rule(self, imbalance: float, overloaded: float) -> None:
        """If all days are equal, so are all draws. The chance is 0 or 1, as `worse` decides."""
        before, after = run(*[day(0.2, 50, overloaded=10)] * 5), run(*[day(imbalance, 40, overloaded=overloaded)] * 5)
        assert chance(before, after, before, GOAL) == (0.0 if worse(before, after) else 1.0)

    def test_chance_counts_draws(self) -> None:
        """With one good and one bad day, only two draws of the good day are not worse: a chance of 1/4."""
        before = run(*[day(0.2, 50)] * 2)
        assert chance(before, run(day(0.2, 40), day(0.4, 40)), before, GOAL) == pytest.approx(0.25, abs=0.05)
        assert chance(before, before, before, GOAL) == 0


@pytest.mark.nightly
def test_a_small_world_is_calibrated() -> None:
    """With six days of snapshots every ten minutes, the choice is not worse on held-out days."""
    traffic = dense(World(days=6, brokers=6, bundles=72, period_seconds=600, noise=0.25, seed=9))
    first, last = split_days(np.unique(traffic.wall_ms // 86_400_000).tolist())

    def evaluate(candidates: Sequence[Candidate]) -> Mapping[str, ByRunDay]:
        results: dict[str, dict[tuple[int, int], CandidateMeasures]] = {}
        for row in measured(traffic, candidates, placements=(0, 1)):
            results.setdefault(row.candidate, {})[row.placement, row.day] = row.measures
        return results

    results = search(SPACE, evaluate, evaluate, days=first, depth=SearchDepth(rounds=2))
    choice = choose(ranked(results, first, "calm")[0], PRESENT, results.results, last, "calm")
    held_out = [
        {key: value for key, value in results.results[item.key].items() if key[1] in last}
        for item in (PRESENT, choice.candidate)
    ]
    assert not worse(*held_out)


def test_j03_a_back_test_of_the_other_form_begins_with_its_defaults() -> None:
    native = to_parameters(Settings(compat="4.2", parameters={"min_unload_throughput": 5.0}))[0]
    corrected = Candidate(name="x", changes={"strategy": "avg"}).params(native)
    assert (corrected.min_unload_message_rate, corrected.max_unload_ratio) == (0.0, 0.5)
    assert corrected.min_unload_throughput == 5.0
    back = Candidate(name="x", changes={"compat": "4.2"}).params(Parameters())
    assert (back.min_unload_message_rate, back.max_unload_ratio) == (1000.0, 0.2)
