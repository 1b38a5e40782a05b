"""Candidates through recorded cycles: as recorded where nothing differs, by their own ownership where it does."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bundlekeel.model.errors import ConfigError, HistoryError
from bundlekeel.model.load import ExcludedBroker
from bundlekeel.model.names import namespace_of, parse_bundle
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import Plan
from bundlekeel.planning.costs import NO_COSTS
from bundlekeel.planning.engine import PlanInput, PlanResult
from bundlekeel.planning.guard.state import GuardState
from bundlekeel.planning.scores import score_of, weights_of
from bundlekeel.recalibration.backtest import Candidate, CandidateStep, backtest
from bundlekeel.recalibration.backtest.events import LONGEST_SECONDS, HeldInput
from bundlekeel.recalibration.backtest.run import LANDING_SECONDS, NATIVE_MS
from bundlekeel.recalibration.history.frames import frame_of, input_of
from bundlekeel.recalibration.history.record import Frame, HistoryRecord
from bundlekeel.recalibration.history.replay import rebuilt
from bundlekeel.simulator.balancers import RunBooks
from dev.history_model import GeneratedTraffic, World, dense, inputs_of
from dev.history_worlds import records
from tests.support.backtest_cases import (
    BUSY,
    EAGER_SPLITS,
    PRESENT,
    STILL,
    UNSPLIT,
    course,
    frames,
    history,
    hours,
    measured,
    whole,
)
from tests.support.live_loop import lasting_step, play

# No bundle is split, neither in the recording nor in the back-test.
WHOLE = replace(BUSY, params=Parameters(split_enabled=False))
# Each of five brokers is read every 15 s, one every 3 s, as a sidecar reads counters.
COUNTERS = replace(BUSY, period_seconds=3, reading_periods=5, counters=True, params=WHOLE.params)
STRATEGIES = ("avg", "threshold", "uniform", "overload", "transfer", "deviation")


def inputs(traffic: GeneratedTraffic, candidate: Candidate) -> list[PlanInput]:
    """Return the input of each plan of a candidate."""
    return [step.inputs for step in course(traffic, candidate) if step.inputs is not None]


def again(records: list[HistoryRecord] | tuple[HistoryRecord, ...], **options: bool) -> list[CandidateStep]:
    """Return every step of the recorded settings through recorded cycles."""
    steps: list[CandidateStep] = []
    recorded = [input_of(frame) for frame in frames(records)]
    backtest(recorded, [PRESENT], NO_COSTS, observe=lambda _, step: steps.append(step), **options)
    return steps


class RecordingBooks(RunBooks):
    """The simulator's books, with a frame and the plan of each cycle."""

    def __init__(self) -> None:
        super().__init__()
        self.recorded: list[tuple[Frame, Plan]] = []

    def plan(self, data: PlanInput) -> PlanResult:
        """Plan as the simulator does, and record the plan."""
        result = super().plan(data)
        self.recorded.append((frame_of(data), result.plan))
        return result


def moves_of(plan: Plan) -> list[tuple[str, str, str]]:
    """Return bundle, source and target of each move."""
    return [(move.bundle, move.source, move.target) for move in plan.moves]


def place_of(data: PlanInput, bundle: str) -> str:
    """Return the broker that reports a bundle."""
    bundles = data.snapshot.bundles
    return data.snapshot.brokers.ids[int(bundles.owner[bundles.names.index(bundle)])]


class TestAsRecorded:
    """The recorded settings through the recorded history."""

    def test_same_plans(self) -> None:
        """Every plan has the recorded hash: the input of the back-test equals that of the sidecar, bit by bit."""
        records = history(BUSY)
        steps = again(records, digests=True)
        assert sum(record.outcome.planned > 0 for record in records) >= 10
        assert sum(bool(record.outcome.details["splits"]) for record in records) >= 1
        assert all(step.agrees for step in steps)
        assert [step.result and step.result.plan.hash for step in steps] == [item.outcome.plan_hash for item in records]

    def test_same_plans_with_counters(self) -> None:
        """Also from the middle of a history with a reading every 3 s: its first input contains the leader's state."""
        cycles = records(COUNTERS)
        items = list(rebuilt([record for record, _ in zip(cycles, range(600), strict=False)]))
        recorded = [input_of(item.frame) for item in items[100:] if item.frame is not None]
        hashes: list[str] = []
        backtest(
            recorded,
            [PRESENT],
            NO_COSTS,
            digests=True,
            observe=lambda _, step: hashes.append(step.result.plan.hash if step.result else ""),
        )
        assert hashes == [item.record.outcome.plan_hash for item in items[100:]]
        assert sum(item.record.outcome.planned for item in items[100:]) >= 1

    def test_a_hit_for_each_reading_of_counters(self) -> None:
        """A simulated cycle every 3 to 10 s and a reading of each broker every 3 to 15 s: the same moves in the same
        cycles.
        """
        books = RecordingBooks()
        play(lasting_step(2.0, 150, usage=0.4), 3, counters=True, books=books)
        steps: list[CandidateStep] = []
        recorded = [input_of(frame) for frame, _ in books.recorded]
        backtest(recorded, [PRESENT], NO_COSTS, observe=lambda _, step: steps.append(step))
        planned = [moves_of(step.result.plan) for step in steps if step.result is not None]
        assert planned == [moves_of(plan) for _, plan in books.recorded]
        assert sum(map(len, planned)) >= 3

    def test_another_start_of_the_same_world(self) -> None:
        """The moves of a candidate depend on the traffic, and not on the moves of the recorded balancer."""
        generated = dense(WHOLE, 0, 300)
        candidate, theirs = Candidate(name="x", changes={"strategy": "threshold"}), list[CandidateStep]()
        recorded = [input_of(frame) for frame in frames(history(WHOLE)[:300])]
        backtest(recorded, [candidate], generated.costs, observe=lambda _, step: theirs.append(step))
        ours = course(generated, candidate)
        counts = [[len(step.result.plan.moves) if step.result else 0 for step in steps] for steps in (ours, theirs)]
        assert sum(counts[0]) > 5
        assert counts[0] == counts[1]

    def test_twice_is_the_same(self) -> None:
        """The same input gives the same result."""
        traffic = hours(BUSY, 8, 10)
        assert measured(traffic, [PRESENT, STILL]) == measured(traffic, [PRESENT, STILL])

    def test_candidates_do_not_touch_each_other(self) -> None:
        """Results are the same together or alone, in any order."""
        traffic = hours(BUSY, 8, 10)
        several = [Candidate(name=name, changes={"strategy": name}) for name in STRATEGIES]
        together = {row.candidate: row.measures for row in measured(traffic, several)}
        for candidate in reversed(several):
            assert whole(traffic, candidate) == together[candidate.key]


class TestOwnership:
    """Owners of bundles in a back-test."""

    def test_nobody_moves(self) -> None:
        """Without moves, the measures are those of the reports."""
        traffic = hours(BUSY, 6, 12)
        recorded = [data.snapshot.brokers for data in inputs_of(traffic)]
        scores = np.array([score_of(brokers.usage, brokers.limit, weights_of(Parameters())) for brokers in recorded])
        measures = whole(traffic, STILL)
        assert measures.imbalance == pytest.approx((scores.max(axis=1) / scores.mean(axis=1) - 1).mean())
        assert (measures.moves, measures.plans, measures.seconds) == (0, traffic.periods, 6 * 3600)

    @settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(
        strategy=st.sampled_from(STRATEGIES),
        seed=st.integers(0, 1000),
        hot=st.floats(0.1, 0.6),
    )
    def test_traffic_is_neither_made_nor_lost(self, strategy: str, seed: int, hot: float) -> None:
        """Brokers always have the traffic of their bundles, and all together the recorded traffic."""
        world = World(days=1, brokers=4, bundles=24, period_seconds=120, noise=0.4, seed=seed)
        traffic = hours(world, 9, 12)
        changes: dict[str, float | str] = {"strategy": strategy, "split_hot_share": hot, "cool_down_seconds": 300.0}
        for data in inputs(traffic, Candidate(name="any", changes=changes)):
            brokers, bundles = data.snapshot.brokers, data.snapshot.bundles
            sums = np.zeros((len(brokers), 4))
            np.add.at(sums, bundles.owner, bundles.latest)
            assert np.allclose(sums, brokers.traffic, rtol=1e-6, atol=0.5)
            at = int(np.searchsorted(traffic.wall_ms, data.snapshot.wall_ms))
            assert np.allclose(bundles.latest.sum(axis=0), traffic.rates[at].sum(axis=0), rtol=1e-6, atol=0.5)
            assert len(set(bundles.names)) == len(bundles)

    def test_what_was_moved_is_there_in_the_next_picture(self) -> None:
        """The usage of the brokers changes with it."""
        steps = course(hours(BUSY, 0, 2), PRESENT)
        moved = 0
        for step, after in pairwise(steps):
            assert step.result is not None
            assert after.inputs is not None
            for move in step.result.plan.moves:
                moved += 1
                assert place_of(after.inputs, move.bundle) == move.target
        assert moved > 2
        assert steps[0].agrees
        assert not steps[-1].agrees

    def test_bundles_rest_after_a_move(self) -> None:
        """Cool-downs start with the candidate's own moves."""
        times_by_bundle: dict[str, list[int]] = {}
        for step in course(hours(BUSY, 8, 14), Candidate(name="x", changes={"cool_down_seconds": 7200.0})):
            for move in step.result.plan.moves if step.result else ():
                times_by_bundle.setdefault(move.bundle, []).append(step.wall_ms)
        gaps = [later - earlier for times in times_by_bundle.values() for earlier, later in pairwise(times)]
        assert times_by_bundle
        assert all(gap >= 7_200_000 for gap in gaps)

    def test_clients_without_service(self) -> None:
        """Each move costs its producers and consumers the time until the bundle has landed."""
        traffic, clients, moves = hours(BUSY, 0, 2), 0, 0
        for step in course(traffic, UNSPLIT):
            for move in step.result.plan.moves if step.result else ():
                moves += 1
                clients += int(traffic.counts[traffic.bundles.index(move.bundle), 1:].sum())
        measures = whole(traffic, UNSPLIT)
        assert measures.moves == moves > 2
        assert measures.client_seconds == clients * LANDING_SECONDS

    def test_nothing_moves_while_the_gate_is_closed(self) -> None:
        """For example outside of a window. As soon as it opens, the candidate moves."""
        recorded = list(inputs_of(hours(BUSY, 0, 2)))
        half = len(recorded) // 2
        held = [*map(HeldInput.of, recorded[:half]), *recorded[half:]]
        steps: list[CandidateStep] = []
        rows = backtest(held, [UNSPLIT], NO_COSTS, observe=lambda _, step: steps.append(step))
        counts = [len(step.result.plan.moves) if step.result else 0 for step in steps]
        assert not any(counts[:half]) and all(step.agrees for step in steps[:half])
        assert sum(row.measures.moves for row in rows) == sum(counts[half:]) > 2

    def test_drains_cost_every_candidate_the_same(self) -> None:
        """So they are not part of its measures; the trial after an adoption does not count them either."""
        traffic = hours(BUSY, 0, 0.5)
        guard = GuardState(draining=frozenset(traffic.brokers[:1]), cordoned=frozenset(traffic.brokers[:1]))
        recorded = [replace(item, guard=guard) for item in inputs_of(traffic)]
        steps: list[CandidateStep] = []
        rows = backtest(recorded, [STILL], NO_COSTS, observe=lambda _, step: steps.append(step))
        assert sum(len(step.result.plan.moves) for step in steps if step.result) > 2
        assert [row.measures.moves + row.measures.client_seconds for row in rows] == [0]

    def test_pulsars_own_classes_run_once_per_minute(self) -> None:
        """They count their calls, and a broker calls them once per minute."""
        native = Candidate(name="native", changes={"strategy": "threshold", "compat": "4.2"})
        steps = [step.wall_ms for step in course(hours(replace(BUSY, period_seconds=5), 0, 0.1), native) if step.result]
        assert [later - earlier for earlier, later in pairwise(steps)] == [NATIVE_MS] * 5

    def test_halves_share_the_traffic(self) -> None:
        """The halves replace a split bundle, and together have its traffic."""
        traffic = hours(BUSY, 0, 2)
        assert whole(traffic, EAGER_SPLITS).splits >= 1
        last = inputs(traffic, EAGER_SPLITS)[-1].snapshot.bundles
        parents = [row for row, name in enumerate(traffic.bundles) if name not in last.names]
        assert parents
        for parent in parents:
            wide = parse_bundle(traffic.bundles[parent])
            parts = [
                row
                for row, name in enumerate(map(parse_bundle, last.names))
                if name.namespace == wide.namespace and wide.lower <= name.lower and name.upper <= wide.upper
            ]
            assert len(parts) >= 2
            assert last.latest[parts].sum(axis=0) == pytest.approx(traffic.rates[-1, parent], abs=0.01)

    def test_a_bundle_of_one_topic_is_not_split(self) -> None:
        """A broker would refuse this split."""
        traffic = hours(BUSY, 0, 2)
        counts = traffic.counts.copy()
        counts[:, 0] = 1
        assert whole(replace(traffic, counts=counts), EAGER_SPLITS).splits == 0


class TestEvents:
    """Brokers and bundles that appear and disappear without a decision of the balancer."""

    def test_a_broker_is_gone(self) -> None:
        """The bundles of that broker get their recorded owners. Others keep the owners of the candidate."""
        traffic = hours(BUSY, 0, 3)
        # At a time when the candidate has no move in progress.
        places = [[place_of(item, name) for name in item.snapshot.bundles.names] for item in inputs(traffic, UNSPLIT)]
        at = next(
            number for number in range(traffic.periods // 2, traffic.periods) if places[number] == places[number - 1]
        )
        owner = traffic.owner.astype(np.int64)
        owner[at:][owner[at:] == 0] = 1
        present = traffic.present.copy()
        present[at:, 0] = False
        traffic = replace(traffic, owner=owner, present=present)
        plan_inputs = inputs(traffic, UNSPLIT)
        before, after = plan_inputs[at - 1].snapshot, plan_inputs[at].snapshot
        homes = {name: place_of(plan_inputs[at - 1], name) for name in before.bundles.names}
        assert traffic.brokers[0] not in after.brokers.ids
        assert len(after.bundles) == len(traffic.bundles)
        for name in after.bundles.names:
            recorded = traffic.brokers[int(traffic.owner[at, traffic.bundles.index(name)])]
            expected = recorded if homes[name] == traffic.brokers[0] else homes[name]
            assert place_of(plan_inputs[at], name) == expected
        assert any(
            homes[name] != traffic.brokers[int(traffic.owner[at - 1, row])] for row, name in enumerate(traffic.bundles)
        )

    def test_others_balance_the_namespaces_that_are_not_taken_over(self) -> None:
        """Their bundles follow the recorded owners, and the candidate moves only the others."""
        traffic = hours(BUSY, 0, 1)
        owner = traffic.owner.astype(np.int64)
        owner[10:] = (owner[10:] + 1) % len(traffic.brokers)
        theirs = namespace_of(traffic.bundles[0])
        own = tuple({namespace_of(name) for name in traffic.bundles} - {theirs})
        recorded = [
            replace(item, guard=GuardState(taken_over=own)) for item in inputs_of(replace(traffic, owner=owner))
        ]
        places: list[dict[str, str]] = []

        def note(_: Candidate, step: CandidateStep) -> None:
            assert step.inputs is not None
            places.append({name: place_of(step.inputs, name) for name in traffic.bundles})

        backtest(recorded, [STILL], NO_COSTS, observe=note)
        for row, name in enumerate(traffic.bundles):
            at = 10 if namespace_of(name) == theirs else 0
            assert places[10][name] == traffic.brokers[int(owner[at, row])]

    def test_a_broker_without_a_usable_report_keeps_its_bundles(self) -> None:
        """They are absent from the snapshot until the broker reports again."""
        traffic = hours(BUSY, 0, 1)
        owner, present = traffic.owner.astype(np.int64), traffic.present.copy()
        owner[20:25][owner[20:25] == 0] = -1
        present[20:25, 0] = False
        stale = (ExcludedBroker(broker_id=traffic.brokers[0], code="STALE"),)
        traffic = replace(traffic, owner=owner, present=present, excluded=dict.fromkeys(range(20, 25), stale))
        plan_inputs = inputs(traffic, STILL)
        assert plan_inputs[20].snapshot.excluded == stale
        assert len(plan_inputs[20].snapshot.bundles) < len(traffic.bundles)
        assert [place_of(plan_inputs[25], name) for name in traffic.bundles] == [
            place_of(plan_inputs[19], name) for name in traffic.bundles
        ]

    def test_a_recorded_split(self) -> None:
        """The children get the owner that the candidate's parent bundle had."""
        traffic = hours(BUSY, 0, 3)
        name = parse_bundle(traffic.bundles[0])
        middle = (name.lower + name.upper) // 2
        children = [str(replace(name, upper=middle)), str(replace(name, lower=middle))]
        at = traffic.periods // 2
        rates = np.concatenate([traffic.rates, traffic.rates[:, :1] / 2, traffic.rates[:, :1] / 2], axis=1)
        extra = np.where(np.arange(traffic.periods) < at, -1, traffic.owner[:, 0])[:, None]
        owner = np.concatenate([traffic.owner, extra, extra], axis=1).astype(np.int64)
        owner[at:, 0] = -1
        wide = replace(
            traffic,
            bundles=(*traffic.bundles, *children),
            rates=rates,
            owner=owner,
            counts=np.concatenate([traffic.counts, traffic.counts[:1], traffic.counts[:1]]),
        )
        eager = Candidate(name="x", changes={"strategy": "threshold", "threshold_percent": 2.0, "split_enabled": False})
        plan_inputs = inputs(wide, eager)
        assert traffic.bundles[0] in plan_inputs[at - 1].snapshot.bundles.names
        assert traffic.bundles[0] not in plan_inputs[at].snapshot.bundles.names
        home = place_of(plan_inputs[at - 1], traffic.bundles[0])
        assert [place_of(plan_inputs[at], child) for child in children] == [home, home]


class TestDays:
    """Measures by day and initial owners; the time that each cycle counts."""

    def test_days_are_told_apart(self) -> None:
        """One result per run and day."""
        world = replace(BUSY, days=3, period_seconds=1800)
        rows = measured(dense(world), [STILL, PRESENT], placements=(0, 7))
        first = world.start_ms // 86_400_000
        assert [(row.candidate, row.placement, row.day) for row in rows] == [
            (candidate.key, placement, first + day)
            for placement in (0, 7)
            for candidate in (STILL, PRESENT)
            for day in range(3)
        ]

    def test_random_owners_stay_in_their_namespace(self) -> None:
        """The brokers of a namespace exchange its bundles; each keeps as many."""
        traffic = hours(BUSY, 0, 1)
        places: list[dict[str, str]] = []

        def note(_: Candidate, step: CandidateStep) -> None:
            assert step.inputs is not None
            places.append({name: place_of(step.inputs, name) for name in traffic.bundles})

        measured(traffic, [STILL], placements=(7,), observe=note)
        recorded = {name: traffic.brokers[int(traffic.owner[0, row])] for row, name in enumerate(traffic.bundles)}
        assert places[0] == places[-1] != recorded
        for owners in (recorded, places[0]):
            pairs = sorted((namespace_of(name), broker) for name, broker in owners.items())
            assert pairs == sorted((namespace_of(name), broker) for name, broker in recorded.items())

    def test_a_gap_does_not_count(self) -> None:
        """A cycle lasts until the next one, but not over a gap of hours."""
        traffic = hours(replace(BUSY, period_seconds=300), 0, 4)
        wall_ms = traffic.wall_ms.copy()
        wall_ms[10:] += 2 * 3_600_000
        late = replace(traffic, wall_ms=wall_ms, reported=np.tile(wall_ms[:, None], 5))
        assert whole(late, STILL).seconds == 300.0 * traffic.periods

    def test_long_cycles_count(self) -> None:
        """Cycles that are all longer than a gap still have a duration, so no measure is 0 by mistake."""
        measures = whole(hours(replace(BUSY, period_seconds=1200), 0, 8), STILL)
        assert measures.seconds == 24 * LONGEST_SECONDS
        assert measures.imbalance > 0

    def test_cycles_out_of_order_are_refused(self) -> None:
        first, second = list(inputs_of(hours(BUSY, 0, 0.1)))[:2]
        with pytest.raises(HistoryError, match="order of time"):
            backtest([second, first], [PRESENT], NO_COSTS)

    def test_no_cycle_is_refused(self) -> None:
        with pytest.raises(HistoryError, match="no recorded cycle"):
            backtest([], [PRESENT], NO_COSTS)

    def test_a_plugin_that_is_not_installed_is_refused(self) -> None:
        """The message has its name."""
        first = next(inputs_of(hours(BUSY, 0, 0.1)))
        with pytest.raises(HistoryError, match="'ours' is not known here"):
            backtest([replace(first, params=replace(first.params, strategy="ours"))], [PRESENT], NO_COSTS)


class TestCandidates:
    """`Candidate`."""

    def test_text_and_back(self) -> None:
        """The text is a cell of a table."""
        candidate = Candidate(name="x", changes={"strategy": "avg", "split_hit_count": 4})
        assert Candidate.from_json(candidate.to_json()) == candidate

    def test_the_same_settings_have_the_same_key(self) -> None:
        """The key does not depend on the name or the order of changes."""
        one = Candidate(name="a", changes={"cpu_weight": 1.0, "strategy": "avg"})
        other = Candidate(name="b", changes={"strategy": "avg", "cpu_weight": 1.0})
        assert one.key == other.key
        assert one.key != replace(one, changes={}).key

    @pytest.mark.parametrize("changes", [{"split_hit_count": -1}, {"no_such": 1.0}, {"strategy": "best"}])
    def test_what_is_out_of_range_is_refused(self, changes: dict[str, float | str]) -> None:
        """The error comes before the first plan."""
        with pytest.raises(ConfigError):
            measured(hours(BUSY, 0, 1), [Candidate(name="x", changes=changes)])

    def test_another_strategy_is_the_corrected_form(self) -> None:
        """This also holds if the recorded strategy was Pulsar's own class."""
        base = Parameters(compat="4.2")
        assert Candidate(name="x", changes={"strategy": "threshold"}).params(base).compat == "none"
        assert PRESENT.params(base).compat == "4.2"
