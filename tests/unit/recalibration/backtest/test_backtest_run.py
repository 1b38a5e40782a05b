"""Candidates through recorded traffic: as recorded where nothing differs, by their own ownership where it does."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bundlekeel.model.errors import ConfigError
from bundlekeel.model.load import ExcludedBroker
from bundlekeel.model.names import parse_bundle
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import Plan
from bundlekeel.planning.engine import PlanInput, PlanResult
from bundlekeel.planning.scores import score_of, weights_of
from bundlekeel.recalibration.backtest import (
    Candidate,
    CandidateMeasures,
    RecordedTraffic,
    backtest,
    chunks,
    traffic_of,
)
from bundlekeel.recalibration.backtest.frames import CIRCUMSTANCES
from bundlekeel.recalibration.history.frames import frame_of
from bundlekeel.recalibration.history.record import Frame, dumped
from bundlekeel.simulator.balancers import RunBooks
from dev.history_model import World, dense
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
    owned,
    whole,
)
from tests.support.live_loop import lasting_step, play

# No bundle is split, neither in the recording nor in the back-test.
WHOLE = replace(BUSY, params=Parameters(split_enabled=False))
STRATEGIES = ("avg", "threshold", "uniform", "overload", "transfer", "deviation")


def inputs(traffic: RecordedTraffic, candidate: Candidate) -> list[PlanInput]:
    """Return the input of each plan of a candidate."""
    return [step.inputs for step in course(traffic, candidate) if step.inputs is not None]


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
        records = history(WHOLE)
        traffic = traffic_of(frames(records), dtype=np.float64)
        plans: list[tuple[bool, str]] = []
        backtest(
            traffic,
            [PRESENT],
            digests=True,
            observe=lambda _, step: plans.append((step.agrees, step.result.plan.hash if step.result else "")),
        )
        assert sum(record.outcome.planned > 0 for record in records) >= 10
        assert plans == [(True, record.outcome.plan_hash) for record in records]

    def test_same_moves_and_splits(self) -> None:
        """This includes split bundles. Averages of their halves are recorded rounded, so hashes may differ, but
        decisions do not.
        """
        records = history(BUSY)
        recorded = [
            (
                [(move["bundle"], move["target"]) for move in record.outcome.details["moves"]],
                [split["bundle"] for split in record.outcome.details["splits"]],
            )
            for record in records
        ]
        steps = course(traffic_of(frames(records), dtype=np.float64), PRESENT)
        plans = [step.result.plan for step in steps if step.result is not None]
        assert all(step.agrees for step in steps)
        assert sum(bool(splits) for _, splits in recorded) >= 1
        assert recorded == [
            ([(move.bundle, move.target) for move in plan.moves], [split.bundle for split in plan.splits])
            for plan in plans
        ]

    def test_a_hit_for_each_reading_of_counters(self) -> None:
        """A cycle every 3 to 10 s and a reading of each broker every 3 to 15 s: the same moves in the same cycles.
        Rates are recorded rounded, so hashes may differ.
        """
        books = RecordingBooks()
        play(lasting_step(2.0, 150, usage=0.4), 3, counters=True, books=books)
        traffic = traffic_of([frame for frame, _ in books.recorded], period_ms=1000, dtype=np.float64)
        again = RecordedTraffic.from_bytes(traffic.to_bytes())
        planned = [moves_of(step.result.plan) for step in course(again, PRESENT) if step.result is not None]
        assert planned == [moves_of(plan) for _, plan in books.recorded]
        assert sum(map(len, planned)) >= 3

    def test_from_the_middle(self) -> None:
        """The first frame contains averages, memory, ledger and cool-downs, so the moves are as recorded."""
        later = [
            frame for frame in frames(history(BUSY)) if frame.document["wall_ms"] >= BUSY.start_ms + 10 * 3_600_000
        ]
        traffic = traffic_of(later[:120], dtype=np.float64)
        planned = [moves_of(step.result.plan) for step in course(traffic, PRESENT) if step.result is not None]
        recorded = [
            [(move["bundle"], move["source"], move["target"]) for move in record.outcome.details["moves"]]
            for record in history(BUSY)[300:420]
        ]
        assert sum(map(len, recorded)) >= 2
        assert planned == recorded

    def test_another_start_of_the_same_world(self) -> None:
        """The moves of a candidate depend on the traffic, and not on the moves of the recorded balancer."""
        generated = dense(WHOLE, 0, 300)
        slopes = dict(zip(generated.brokers, generated.per_unit, strict=True))
        recorded = traffic_of(frames(history(WHOLE)[:300]), dtype=np.float64, per_unit=slopes)
        candidate = Candidate(name="x", changes={"strategy": "threshold"})
        ours, theirs = (
            [len(step.result.plan.moves) if step.result else 0 for step in course(item, candidate)]
            for item in (generated, recorded)
        )
        assert sum(ours) > 5
        assert ours == theirs

    def test_twice_is_the_same(self) -> None:
        """The same input gives the same result."""
        traffic = hours(BUSY, 8, 10)
        assert backtest(traffic, [PRESENT, STILL]) == backtest(traffic, [PRESENT, STILL])

    def test_candidates_do_not_touch_each_other(self) -> None:
        """Results are the same together or alone, in any order."""
        traffic = hours(BUSY, 8, 10)
        several = [Candidate(name=name, changes={"strategy": name}) for name in STRATEGIES]
        together = {row.candidate: row.measures for row in backtest(traffic, several)}
        for candidate in reversed(several):
            assert whole(traffic, candidate) == together[candidate.key]


class TestOwnership:
    """Owners of bundles in a back-test."""

    def test_nobody_moves(self) -> None:
        """Without moves, the measures are those of the reports."""
        traffic = hours(BUSY, 6, 12)
        scores = np.array(
            [score_of(traffic.usage[t], traffic.limit[0], weights_of(traffic.params)) for t in range(traffic.periods)]
        )
        measures = whole(traffic, STILL)
        assert measures.imbalance == pytest.approx((scores.max(axis=1) / scores.mean(axis=1) - 1).mean())
        assert (measures.moves, measures.plans, measures.seconds) == (0, traffic.periods, 6 * 3600)

    @settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(
        strategy=st.sampled_from(STRATEGIES),
        seed=st.integers(0, 1000),
        hot=st.floats(0.1, 0.6),
        cycle=st.sampled_from([0.0, 180.0]),
    )
    def test_traffic_is_neither_made_nor_lost(self, strategy: str, seed: int, hot: float, cycle: float) -> None:
        """Brokers always have the traffic of their bundles, and all together the recorded traffic."""
        world = World(days=1, brokers=4, bundles=24, period_seconds=120, noise=0.4, seed=seed)
        traffic = hours(world, 9, 12)
        changes: dict[str, float | str] = {"strategy": strategy, "split_hot_share": hot, "cool_down_seconds": 300.0}
        for data in inputs(traffic, Candidate(name="any", changes=changes, cycle_seconds=cycle)):
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

    def test_longer_cycles(self) -> None:
        """The candidate plans at its own interval, and all periods are measured."""
        measures = whole(hours(BUSY, 0, 2), Candidate(name="x", cycle_seconds=300.0))
        assert (measures.plans, measures.periods) == (20, 60)

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
        counts[:, :, 0] = 1
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
        traffic = replace(owned(traffic, owner), present=present)
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

    def test_a_broker_without_a_usable_report_keeps_its_bundles(self) -> None:
        """They are absent from the snapshot until the broker reports again."""
        traffic = hours(BUSY, 0, 1)
        owner, present = traffic.owner.astype(np.int64), traffic.present.copy()
        owner[20:25][owner[20:25] == 0] = -1
        present[20:25, 0] = False
        excluded = dumped([{"broker_id": traffic.brokers[0], "code": "STALE", "detail": ""}])
        members = traffic.members.copy()
        members[20:25, CIRCUMSTANCES.index("excluded")] = len(traffic.texts)
        traffic = owned(traffic, owner)
        traffic = replace(traffic, present=present, members=members, texts=(*traffic.texts, excluded))
        plan_inputs = inputs(traffic, STILL)
        assert plan_inputs[20].snapshot.excluded == (ExcludedBroker(broker_id=traffic.brokers[0], code="STALE"),)
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
        order = np.argsort([*traffic.bundles, *children])
        wide = replace(
            traffic,
            bundles=tuple(np.array([*traffic.bundles, *children])[order].tolist()),
            rates=rates[:, order],
            counts=np.concatenate([traffic.counts, traffic.counts[:, :1], traffic.counts[:, :1]], axis=1)[:, order],
            short=rates[0, order],
            long=rates[0, order],
            samples=np.ones((len(order), 2), dtype=np.int64),
        )
        eager = Candidate(name="x", changes={"strategy": "threshold", "threshold_percent": 2.0, "split_enabled": False})
        plan_inputs = inputs(owned(wide, owner[:, order]), eager)
        assert traffic.bundles[0] in plan_inputs[at - 1].snapshot.bundles.names
        assert traffic.bundles[0] not in plan_inputs[at].snapshot.bundles.names
        home = place_of(plan_inputs[at - 1], traffic.bundles[0])
        assert [place_of(plan_inputs[at], child) for child in children] == [home, home]


class TestChunks:
    """Chunks with warm-up, as Spark runs them."""

    def test_sums_of_chunks_are_near_the_whole(self) -> None:
        """The recorded settings: within 5 % in imbalance and 15 % in moves. Each chunk starts with the recorded
        owners, which are the candidate's own, two hours earlier, because swings are stored for two hours.
        """
        traffic = traffic_of(frames(history(BUSY)), dtype=np.float64)
        parts = [whole(chunk.traffic, PRESENT, warm=chunk.warm) for chunk in chunks(traffic, 120, 60)]
        pieces, unbroken = CandidateMeasures.sum(parts), whole(traffic, PRESENT)
        assert pieces.seconds == unbroken.seconds
        assert pieces.imbalance == pytest.approx(unbroken.imbalance, rel=0.05)
        assert pieces.moves == pytest.approx(unbroken.moves, rel=0.15)

    def test_another_strategy_in_chunks(self) -> None:
        """Each chunk begins with the ownership that was recorded, which is not the candidate's: over several worlds,
        its imbalance is drawn towards that of the recorded settings. In a single world chance can be larger."""
        other = Candidate(name="threshold", changes={"strategy": "threshold"})
        pieces, unbroken, recorded = list[CandidateMeasures](), list[CandidateMeasures](), list[CandidateMeasures]()
        for seed in range(1, 5):
            traffic = traffic_of(frames(history(replace(BUSY, seed=seed))), dtype=np.float64)
            pieces += [whole(chunk.traffic, other, warm=chunk.warm) for chunk in chunks(traffic, 240, 60)]
            unbroken.append(whole(traffic, other))
            recorded.append(whole(traffic, PRESENT))
        cut, full, own = map(CandidateMeasures.sum, (pieces, unbroken, recorded))
        assert cut.seconds == full.seconds
        assert own.imbalance < cut.imbalance < full.imbalance
        assert 0 < cut.moves < full.moves

    def test_days_are_told_apart(self) -> None:
        """One result per counted day, and none for a day of warm-up only."""
        world = replace(BUSY, days=3, period_seconds=1800)
        rows = backtest(dense(world), [STILL, PRESENT], warm=48)
        first = world.start_ms // 86_400_000
        assert [(row.candidate, row.day) for row in rows] == [
            (candidate.key, first + day) for candidate in (STILL, PRESENT) for day in (1, 2)
        ]


class TestCandidates:
    """`Candidate`."""

    def test_text_and_back(self) -> None:
        """The text is a cell of a table."""
        candidate = Candidate(name="x", changes={"strategy": "avg", "split_hit_count": 4}, cycle_seconds=120.0)
        assert Candidate.from_json(candidate.to_json()) == candidate

    def test_the_same_settings_have_the_same_key(self) -> None:
        """The key does not depend on the name or the order of changes."""
        one = Candidate(name="a", changes={"cpu_weight": 1.0, "strategy": "avg"})
        other = Candidate(name="b", changes={"strategy": "avg", "cpu_weight": 1.0})
        assert one.key == other.key
        assert one.key != replace(one, cycle_seconds=60.0).key

    @pytest.mark.parametrize("changes", [{"split_hit_count": -1}, {"no_such": 1.0}, {"strategy": "best"}])
    def test_what_is_out_of_range_is_refused(self, changes: dict[str, float | str]) -> None:
        """The error comes before the first plan."""
        with pytest.raises(ConfigError):
            backtest(hours(BUSY, 0, 1), [Candidate(name="x", changes=changes)])

    def test_another_strategy_is_the_corrected_form(self) -> None:
        """This also holds if the recorded strategy was Pulsar's own class."""
        base = replace(hours(BUSY, 0, 1).params, compat="4.2")
        assert Candidate(name="x", changes={"strategy": "threshold"}).params(base).compat == "none"
        assert PRESENT.params(base).compat == "4.2"
