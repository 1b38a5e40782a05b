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

# Nobody splits, neither then nor now.
WHOLE = replace(BUSY, params=Parameters(split_enabled=False))
STRATEGIES = ("avg", "threshold", "uniform", "overload", "transfer", "deviation")


def inputs(traffic: RecordedTraffic, candidate: Candidate) -> list[PlanInput]:
    """What a candidate planned on."""
    return [step.inputs for step in course(traffic, candidate) if step.inputs is not None]


class RecordingBooks(RunBooks):
    """The simulator's books, with a frame and the plan of each cycle."""

    def __init__(self) -> None:
        super().__init__()
        self.recorded: list[tuple[Frame, Plan]] = []

    def plan(self, given: PlanInput) -> PlanResult:
        """As the simulator's, and recorded."""
        result = super().plan(given)
        self.recorded.append((frame_of(given), result.plan))
        return result


def moves_of(plan: Plan) -> list[tuple[str, str, str]]:
    """Which bundles, from where and to where."""
    return [(move.bundle, move.source, move.target) for move in plan.moves]


def place_of(given: PlanInput, bundle: str) -> str:
    """The broker that a bundle is reported by."""
    bundles = given.snapshot.bundles
    return given.snapshot.brokers.ids[int(bundles.owner[bundles.names.index(bundle)])]


class TestAsRecorded:
    """The recorded settings through the recorded history."""

    def test_same_plans(self) -> None:
        """Every plan has the recorded hash: what the back-test plans on is, bit by bit, what the sidecar saw."""
        records = history(WHOLE)
        traffic = traffic_of(frames(records), dtype=np.float64)
        found: list[tuple[bool, str]] = []
        backtest(
            traffic,
            [PRESENT],
            digests=True,
            observe=lambda _, step: found.append((step.agrees, step.result.plan.hash if step.result else "")),
        )
        assert sum(record.outcome.planned > 0 for record in records) >= 10
        assert found == [(True, record.outcome.plan_hash) for record in records]

    def test_same_moves_and_splits(self) -> None:
        """Where bundles were split, too: averages of the halves are recorded rounded, so that hashes may differ in
        their last digit, but nothing that is decided does."""
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
            ([(move.bundle, move.target) for move in made.moves], [split.bundle for split in made.splits])
            for made in plans
        ]

    def test_a_hit_for_each_reading_of_counters(self) -> None:
        """A cycle each 3 to 10 s, a reading of each broker each 3 to 15 s: the same moves in the same cycles. Averages
        are of rates that are recorded rounded, so that hashes may differ in their last digit."""
        books = RecordingBooks()
        play(lasting_step(2.0, 150, usage=0.4), 3, counters=True, books=books)
        traffic = traffic_of([frame for frame, _ in books.recorded], period_ms=1000, dtype=np.float64)
        again = RecordedTraffic.from_bytes(traffic.to_bytes())
        planned = [moves_of(step.result.plan) for step in course(again, PRESENT) if step.result is not None]
        assert planned == [moves_of(plan) for _, plan in books.recorded]
        assert sum(map(len, planned)) >= 3

    def test_from_the_middle(self) -> None:
        """Averages, memory, ledger and cool-downs of that moment are in the first frame: moves go on as recorded."""
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
        """What a candidate does depends on the traffic, not on what the recorded balancer did with it meanwhile."""
        made = dense(WHOLE, 0, 300)
        slopes = dict(zip(made.brokers, made.per_unit, strict=True))
        told = traffic_of(frames(history(WHOLE)[:300]), dtype=np.float64, per_unit=slopes)
        candidate = Candidate(name="x", changes={"strategy": "threshold"})
        ours, theirs = (
            [len(step.result.plan.moves) if step.result else 0 for step in course(traffic, candidate)]
            for traffic in (made, told)
        )
        assert sum(ours) > 5
        assert ours == theirs

    def test_twice_is_the_same(self) -> None:
        """Nothing but the input decides."""
        given = hours(BUSY, 8, 10)
        assert backtest(given, [PRESENT, STILL]) == backtest(given, [PRESENT, STILL])

    def test_candidates_do_not_touch_each_other(self) -> None:
        """Together or alone, in any order."""
        given = hours(BUSY, 8, 10)
        several = [Candidate(name=name, changes={"strategy": name}) for name in STRATEGIES]
        together = {row.candidate: row.measures for row in backtest(given, several)}
        for candidate in reversed(several):
            assert whole(given, candidate) == together[candidate.key]


class TestOwnership:
    """Whose bundles are where."""

    def test_nobody_moves(self) -> None:
        """Then the measures are those of the reports."""
        given = hours(BUSY, 6, 12)
        scores = np.array(
            [score_of(given.usage[t], given.limit[0], weights_of(given.params)) for t in range(given.periods)]
        )
        found = whole(given, STILL)
        assert found.imbalance == pytest.approx((scores.max(axis=1) / scores.mean(axis=1) - 1).mean())
        assert (found.moves, found.plans, found.seconds) == (0, given.periods, 6 * 3600)

    @settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(
        strategy=st.sampled_from(STRATEGIES),
        seed=st.integers(0, 1000),
        hot=st.floats(0.1, 0.6),
        cycle=st.sampled_from([0.0, 180.0]),
    )
    def test_traffic_is_neither_made_nor_lost(self, strategy: str, seed: int, hot: float, cycle: float) -> None:
        """Whatever is moved and split: brokers carry what bundles do, and together what was recorded."""
        world = World(days=1, brokers=4, bundles=24, period_seconds=120, noise=0.4, seed=seed)
        given = hours(world, 9, 12)
        changes: dict[str, float | str] = {"strategy": strategy, "split_hot_share": hot, "cool_down_seconds": 300.0}
        for seen in inputs(given, Candidate(name="any", changes=changes, cycle_seconds=cycle)):
            brokers, bundles = seen.snapshot.brokers, seen.snapshot.bundles
            sums = np.zeros((len(brokers), 4))
            np.add.at(sums, bundles.owner, bundles.latest)
            assert np.allclose(sums, brokers.traffic, rtol=1e-6, atol=0.5)
            at = int(np.searchsorted(given.wall_ms, seen.snapshot.wall_ms))
            assert np.allclose(bundles.latest.sum(axis=0), given.rates[at].sum(axis=0), rtol=1e-6, atol=0.5)
            assert len(set(bundles.names)) == len(bundles)

    def test_what_was_moved_is_there_in_the_next_picture(self) -> None:
        """And usage follows it."""
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
        """Cool-downs are those of the candidate's own moves."""
        found: dict[str, list[int]] = {}
        for step in course(hours(BUSY, 8, 14), Candidate(name="x", changes={"cool_down_seconds": 7200.0})):
            for move in step.result.plan.moves if step.result else ():
                found.setdefault(move.bundle, []).append(step.wall_ms)
        gaps = [later - earlier for times in found.values() for earlier, later in pairwise(times)]
        assert found
        assert all(gap >= 7_200_000 for gap in gaps)

    def test_longer_cycles(self) -> None:
        """It plans as often as it says, and is measured all the time."""
        found = whole(hours(BUSY, 0, 2), Candidate(name="x", cycle_seconds=300.0))
        assert (found.plans, found.periods) == (20, 60)

    def test_halves_share_the_traffic(self) -> None:
        """A bundle that is split is replaced by its halves, which together are what it was."""
        given = hours(BUSY, 0, 2)
        assert whole(given, EAGER_SPLITS).splits >= 1
        last = inputs(given, EAGER_SPLITS)[-1].snapshot.bundles
        parents = [row for row, name in enumerate(given.bundles) if name not in last.names]
        assert parents
        for parent in parents:
            wide = parse_bundle(given.bundles[parent])
            parts = [
                row
                for row, name in enumerate(map(parse_bundle, last.names))
                if name.namespace == wide.namespace and wide.lower <= name.lower and name.upper <= wide.upper
            ]
            assert len(parts) >= 2
            assert last.latest[parts].sum(axis=0) == pytest.approx(given.rates[-1, parent], abs=0.01)

    def test_a_bundle_of_one_topic_is_not_split(self) -> None:
        """As the broker would refuse."""
        given = hours(BUSY, 0, 2)
        counts = given.counts.copy()
        counts[:, :, 0] = 1
        assert whole(replace(given, counts=counts), EAGER_SPLITS).splits == 0


class TestEvents:
    """Brokers and bundles that come and go, which is nobody's decision."""

    def test_a_broker_is_gone(self) -> None:
        """Its bundles are then where they were recorded; the others stay where the candidate has them."""
        given = hours(BUSY, 0, 3)
        # At a moment when the candidate has no move under way.
        places = [[place_of(item, name) for name in item.snapshot.bundles.names] for item in inputs(given, UNSPLIT)]
        at = next(number for number in range(given.periods // 2, given.periods) if places[number] == places[number - 1])
        owner = given.owner.astype(np.int64)
        owner[at:][owner[at:] == 0] = 1
        present = given.present.copy()
        present[at:, 0] = False
        given = replace(owned(given, owner), present=present)
        seen = inputs(given, UNSPLIT)
        before, after = seen[at - 1].snapshot, seen[at].snapshot
        homes = {name: place_of(seen[at - 1], name) for name in before.bundles.names}
        assert given.brokers[0] not in after.brokers.ids
        assert len(after.bundles) == len(given.bundles)
        for name in after.bundles.names:
            recorded = given.brokers[int(given.owner[at, given.bundles.index(name)])]
            wanted = recorded if homes[name] == given.brokers[0] else homes[name]
            assert place_of(seen[at], name) == wanted
        assert any(
            homes[name] != given.brokers[int(given.owner[at - 1, row])] for row, name in enumerate(given.bundles)
        )

    def test_a_broker_without_a_usable_report_keeps_its_bundles(self) -> None:
        """They are not seen for a while, and back with its report."""
        given = hours(BUSY, 0, 1)
        owner, present = given.owner.astype(np.int64), given.present.copy()
        owner[20:25][owner[20:25] == 0] = -1
        present[20:25, 0] = False
        excluded = dumped([{"broker_id": given.brokers[0], "code": "STALE", "detail": ""}])
        members = given.members.copy()
        members[20:25, CIRCUMSTANCES.index("excluded")] = len(given.texts)
        given = owned(given, owner)
        given = replace(given, present=present, members=members, texts=(*given.texts, excluded))
        seen = inputs(given, STILL)
        assert seen[20].snapshot.excluded == (ExcludedBroker(broker_id=given.brokers[0], code="STALE"),)
        assert len(seen[20].snapshot.bundles) < len(given.bundles)
        assert [place_of(seen[25], name) for name in given.bundles] == [
            place_of(seen[19], name) for name in given.bundles
        ]

    def test_a_recorded_split(self) -> None:
        """The children come to where the candidate had their parent."""
        given = hours(BUSY, 0, 3)
        name = parse_bundle(given.bundles[0])
        middle = (name.lower + name.upper) // 2
        children = [str(replace(name, upper=middle)), str(replace(name, lower=middle))]
        at = given.periods // 2
        rates = np.concatenate([given.rates, given.rates[:, :1] / 2, given.rates[:, :1] / 2], axis=1)
        extra = np.where(np.arange(given.periods) < at, -1, given.owner[:, 0])[:, None]
        owner = np.concatenate([given.owner, extra, extra], axis=1).astype(np.int64)
        owner[at:, 0] = -1
        order = np.argsort([*given.bundles, *children])
        wide = replace(
            given,
            bundles=tuple(np.array([*given.bundles, *children])[order].tolist()),
            rates=rates[:, order],
            counts=np.concatenate([given.counts, given.counts[:, :1], given.counts[:, :1]], axis=1)[:, order],
            short=rates[0, order],
            long=rates[0, order],
            samples=np.ones((len(order), 2), dtype=np.int64),
        )
        eager = Candidate(name="x", changes={"strategy": "threshold", "threshold_percent": 2.0, "split_enabled": False})
        seen = inputs(owned(wide, owner[:, order]), eager)
        assert given.bundles[0] in seen[at - 1].snapshot.bundles.names
        assert given.bundles[0] not in seen[at].snapshot.bundles.names
        home = place_of(seen[at - 1], given.bundles[0])
        assert [place_of(seen[at], child) for child in children] == [home, home]


class TestChunks:
    """Chunks with warm-up, as Spark runs them."""

    def test_sums_of_chunks_are_near_the_whole(self) -> None:
        """The recorded settings: within 5 % in imbalance and 15 % in moves. Each chunk begins with the ownership that
        was recorded, which is the candidate's own, and two hours earlier, because swings are remembered so long."""
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
        """One result a day that is counted, none for a day of warm-up only."""
        world = replace(BUSY, days=3, period_seconds=1800)
        rows = backtest(dense(world), [STILL, PRESENT], warm=48)
        first = world.start_ms // 86_400_000
        assert [(row.candidate, row.day) for row in rows] == [
            (candidate.key, first + day) for candidate in (STILL, PRESENT) for day in (1, 2)
        ]


class TestCandidates:
    """`Candidate`."""

    def test_text_and_back(self) -> None:
        """For a row of a table."""
        candidate = Candidate(name="x", changes={"strategy": "avg", "split_hit_count": 4}, cycle_seconds=120.0)
        assert Candidate.from_json(candidate.to_json()) == candidate

    def test_the_same_settings_have_the_same_key(self) -> None:
        """Whatever they are called, and in whichever order."""
        one = Candidate(name="a", changes={"cpu_weight": 1.0, "strategy": "avg"})
        other = Candidate(name="b", changes={"strategy": "avg", "cpu_weight": 1.0})
        assert one.key == other.key
        assert one.key != replace(one, cycle_seconds=60.0).key

    @pytest.mark.parametrize("changes", [{"split_hit_count": -1}, {"no_such": 1.0}, {"strategy": "best"}])
    def test_what_is_out_of_range_is_refused(self, changes: dict[str, float | str]) -> None:
        """Before anything is planned."""
        with pytest.raises(ConfigError):
            backtest(hours(BUSY, 0, 1), [Candidate(name="x", changes=changes)])

    def test_another_strategy_is_the_corrected_form(self) -> None:
        """Where Pulsar's own class was running."""
        base = replace(hours(BUSY, 0, 1).params, compat="4.2")
        assert Candidate(name="x", changes={"strategy": "threshold"}).params(base).compat == "none"
        assert PRESENT.params(base).compat == "4.2"
