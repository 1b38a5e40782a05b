"""One unbroken run over the held-out days: pieces of history in one course, and what a proposal is refused for."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bundlekeel.model.codes import Code
from bundlekeel.model.errors import ThresholdsError
from bundlekeel.model.parameters import Parameters
from bundlekeel.recalibration.backtest import (
    Candidate,
    CandidateMeasures,
    Chunk,
    RecordedTraffic,
    backtest,
    chunks,
    unbroken,
)
from bundlekeel.recalibration.backtest.intervals import measures_of
from bundlekeel.recalibration.backtest.run import CandidateStep
from bundlekeel.recalibration.jobs.report import ReportInputs, page
from bundlekeel.recalibration.rules.thresholds import AdoptionRules, Unbroken, checked
from bundlekeel.recalibration.rules.thresholds_json import document_of, parsed, thresholds_of
from tests.support.backtest_cases import BUSY, EAGER_SPLITS, PRESENT, STILL, hours, owned
from tests.support.threshold_cases import NOW_MS, document, measures
from tests.unit.recalibration.backtest.test_backtest_run import place_of

EAGER = Candidate(name="eager", changes={"strategy": "threshold", "threshold_percent": 2.0, "split_enabled": False})
CANDIDATES = [PRESENT, EAGER, EAGER_SPLITS]

Plans = list[tuple[str, int, list[tuple[str, str, str]], list[str]]]


def noted(found: Plans, candidate: Candidate, step: CandidateStep) -> None:
    """Note what a step planned."""
    assert step.result is not None
    plan = step.result.plan
    moves = [(move.bundle, move.source, move.target) for move in plan.moves]
    found.append((candidate.name, step.wall_ms, moves, [split.bundle for split in plan.splits]))


def wider(traffic: RecordedTraffic) -> RecordedTraffic:
    """The same with a broker that is never there and a bundle that nobody reports, both first in the order of names."""

    def first(rows: Any, value: float, axis: int) -> Any:
        return np.insert(rows, 0, value, axis=axis)

    by_bundle = {name: first(getattr(traffic, name), 0, 1) for name in ("rates", "counts")}
    by_broker = {
        name: first(getattr(traffic, name), 0, 1) for name in ("usage", "limit", "carried", "topics", "intervals")
    }
    stamps = {name: first(getattr(traffic, name), 0, 1) for name in ("present", "reported", "started")}
    of_bundles = {name: first(getattr(traffic, name), 0, 0) for name in ("short", "long", "samples")}
    owner = first(np.where(traffic.owner >= 0, traffic.owner + 1, -1), -1, 1).astype(np.int32)
    traits = json.loads(traffic.traits)
    return replace(
        traffic,
        bundles=("a/a/0x00000000_0xffffffff", *traffic.bundles),
        brokers=("a:8080", *traffic.brokers),
        owner=owner,
        per_unit=first(traffic.per_unit, 0, 0),
        traits=json.dumps(traits | {"a:8080": traits[traffic.brokers[0]]}),
        **(by_bundle | by_broker | stamps | of_bundles),
    )


class TestPieces:
    """Blocks of history in one course."""

    @pytest.mark.parametrize("others", [False, True], ids=["same names", "other names"])
    def test_j13_pieces_are_planned_on_as_the_whole_is(self, others: bool) -> None:
        """Every plan and figure is that of the whole, with moves and halves carried over, also where the next piece
        knows other bundles and brokers."""
        given = hours(BUSY, 6, 14)
        at_once, in_turn = Plans(), Plans()
        whole = backtest(given, CANDIDATES, warm=30, observe=lambda *step: noted(at_once, *step))
        parts = [
            replace(part, traffic=wider(part.traffic)) if others and number % 2 else part
            for number, part in enumerate(chunks(given, 60, 30))
        ]
        # The first one has nothing before it.
        parts[0] = replace(parts[0], warm=30)
        found = unbroken(parts, CANDIDATES, observe=lambda *step: noted(in_turn, *step))
        assert in_turn == at_once
        assert sum(len(moves) for _, _, moves, _ in at_once) > 20
        assert sum(len(splits) for *_, splits in at_once) > 2
        assert [(row.candidate, row.day) for row in found] == [(row.candidate, row.day) for row in whole]
        for one, other in zip(found, whole, strict=True):
            assert one.measures.row() == pytest.approx(other.measures.row())

    def test_j13_blocks_begin_at_the_recorded_placement_and_a_course_does_not(self) -> None:
        """What a candidate moved in a piece is still there in the next one."""
        given = hours(BUSY, 6, 10)
        first, second = chunks(given, given.periods // 2, 0)
        seen: list[CandidateStep] = []
        unbroken([first, second], [EAGER], observe=lambda _, step: seen.append(step))
        before, after = seen[first.traffic.periods - 1], seen[first.traffic.periods]
        assert before.inputs is not None and before.result is not None and after.inputs is not None
        moved = {move.bundle: move.target for move in before.result.plan.moves}
        wanted = [moved.get(name) or place_of(before.inputs, name) for name in given.bundles]
        recorded = [given.brokers[row] for row in second.traffic.owner[0]]
        assert [place_of(after.inputs, name) for name in given.bundles] == wanted != recorded

    def test_j13_a_day_that_is_left_out_between_two_pieces(self) -> None:
        """The course goes on after it; what was recorded meanwhile counts for new bundles only, and for those of a
        broker that is gone."""
        given = hours(BUSY, 6, 10)
        first, second = chunks(given, given.periods // 2, 0)
        later = owned(second.traffic, np.where(second.traffic.owner == 0, 1, second.traffic.owner).astype(np.int64))
        later = replace(later, present=later.present & (np.arange(len(later.brokers)) > 0))
        seen: list[CandidateStep] = []
        found = unbroken(
            [first, Chunk(traffic=later, warm=5)], [STILL, EAGER], observe=lambda _, step: seen.append(step)
        )
        assert sum(row.measures.periods for row in found) == 2 * (given.periods - 5)
        last = seen[-1].inputs
        assert last is not None and given.brokers[0] not in last.snapshot.brokers.ids
        assert len(last.snapshot.bundles) == len(given.bundles)

    def test_j13_a_piece_that_is_there_already_changes_nothing(self) -> None:
        """Its periods are passed over."""
        piece = Chunk(traffic=hours(BUSY, 6, 8), warm=0)
        assert unbroken([piece, piece], [EAGER]) == unbroken([piece], [EAGER])


def with_unbroken(before: float, after: float) -> dict[str, Any]:
    """A good proposal whose unbroken run came to these imbalances."""
    evidence = document()["evidence"]
    return document(
        evidence=evidence | {"unbroken": {"previous": measures(before, 6.0), "chosen": measures(after, 4.0)}}
    )


class TestRefusal:
    """What the sidecar, and before it the job, says of it."""

    @pytest.mark.parametrize(
        ("before", "after", "good"), [(0.1, 0.1009, True), (0.1, 0.05, True), (0.1, 0.1011, False), (0.1, 0.122, False)]
    )
    def test_j13_a_proposal_that_loses_balance_unbroken_is_refused(
        self, before: float, after: float, good: bool
    ) -> None:
        """By more than the one percent that blocks have, by a code of its own and with both figures."""
        found = checked(thresholds_of(with_unbroken(before, after)), Parameters(), AdoptionRules(), NOW_MS)
        assert [item.code for item in found] == ([] if good else [Code.WORSE_UNBROKEN])
        if not good:
            assert f"max/mean {1 + before:.3f} -> {1 + after:.3f} " in found[0].detail
            assert found[0].field == "evidence.unbroken"

    def test_j13_a_proposal_without_an_unbroken_run_is_refused(self) -> None:
        """The job makes no such run where it proposes no change."""
        made = document()
        made["evidence"]["unbroken"] = None
        found = checked(thresholds_of(made), Parameters(), AdoptionRules(), NOW_MS)
        assert [item.code for item in found] == [Code.WORSE_UNBROKEN]
        assert "bundlekeel-recalibrate" in found[0].detail

    @pytest.mark.parametrize("value", [3, {}, {"previous": measures(0.1, 1.0)}])
    def test_j13_figures_that_are_none_are_refused_by_name(self, value: object) -> None:
        """As any other field of the document."""
        with pytest.raises(ThresholdsError, match=r"evidence\.unbroken"):
            thresholds_of(document(evidence=document()["evidence"] | {"unbroken": value}))

    def test_j13_the_report_shows_both_figures(self) -> None:
        """Beside those of the blocks; the document gives them back."""
        made = parsed(json.dumps(document_of(thresholds_of(with_unbroken(0.1, 0.122)))))
        found = checked(made, Parameters(), AdoptionRules(), NOW_MS)
        shown = page(made, ReportInputs(objections=found))
        assert "in force, unbroken" in shown and "proposed, unbroken" in shown
        assert "WorseUnbroken" in shown and "1.122" in shown

    def test_j13_one_course_has_no_interval(self) -> None:
        """Low and high are the mean, and the report shows that alone."""
        one = CandidateMeasures(seconds=86_400.0, weighted=8640.0, moves=24.0)
        found = measures_of({0: one}, seed=3)
        assert (found.imbalance.low, found.imbalance.mean, found.imbalance.high) == pytest.approx((0.1, 0.1, 0.1))
        unbroken = Unbroken(previous=found, chosen=found)
        assert unbroken.chosen.moves_per_hour.mean == pytest.approx(1.0)
        made = thresholds_of(document())
        shown = page(replace(made, evidence=replace(made.evidence, unbroken=unbroken)), ReportInputs())
        assert "<small>1 to 1<" not in shown and "<small>5.4 to 6.6<" in shown
