"""One unbroken run over the held-out days: pieces of history as one course, and refusals of a proposal."""

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


def record_plan(plans: Plans, candidate: Candidate, step: CandidateStep) -> None:
    """Add the plan of a step to `plans`."""
    assert step.result is not None
    plan = step.result.plan
    moves = [(move.bundle, move.source, move.target) for move in plan.moves]
    plans.append((candidate.name, step.wall_ms, moves, [split.bundle for split in plan.splits]))


def wider(traffic: RecordedTraffic) -> RecordedTraffic:
    """Add an absent broker and an unreported bundle to the traffic, both first in the order of names."""

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
    """Pieces of history are planned as one course."""

    @pytest.mark.parametrize("others", [False, True], ids=["same names", "other names"])
    def test_j13_pieces_are_planned_on_as_the_whole_is(self, others: bool) -> None:
        """Plans and measures equal those of the whole. Moves and split bundles are kept between pieces, also if the
        next piece has other bundles and brokers.
        """
        traffic = hours(BUSY, 6, 14)
        at_once, in_turn = Plans(), Plans()
        whole = backtest(traffic, CANDIDATES, warm=30, observe=lambda *step: record_plan(at_once, *step))
        parts = [
            replace(part, traffic=wider(part.traffic)) if others and number % 2 else part
            for number, part in enumerate(chunks(traffic, 60, 30))
        ]
        # The first one has nothing before it.
        parts[0] = replace(parts[0], warm=30)
        rows = unbroken(parts, CANDIDATES, observe=lambda *step: record_plan(in_turn, *step))
        assert in_turn == at_once
        assert sum(len(moves) for _, _, moves, _ in at_once) > 20
        assert sum(len(splits) for *_, splits in at_once) > 2
        assert [(row.candidate, row.day) for row in rows] == [(row.candidate, row.day) for row in whole]
        for one, other in zip(rows, whole, strict=True):
            assert one.measures.row() == pytest.approx(other.measures.row())

    def test_j13_blocks_begin_at_the_recorded_placement_and_a_course_does_not(self) -> None:
        """A bundle that a candidate moved in one piece is at its new broker in the next one."""
        traffic = hours(BUSY, 6, 10)
        first, second = chunks(traffic, traffic.periods // 2, 0)
        steps: list[CandidateStep] = []
        unbroken([first, second], [EAGER], observe=lambda _, step: steps.append(step))
        before, after = steps[first.traffic.periods - 1], steps[first.traffic.periods]
        assert before.inputs is not None and before.result is not None and after.inputs is not None
        moved = {move.bundle: move.target for move in before.result.plan.moves}
        expected = [moved.get(name) or place_of(before.inputs, name) for name in traffic.bundles]
        recorded = [traffic.brokers[row] for row in second.traffic.owner[0]]
        assert [place_of(after.inputs, name) for name in traffic.bundles] == expected != recorded

    def test_j13_a_day_that_is_left_out_between_two_pieces(self) -> None:
        """The course continues after it. Recorded owners count only for new bundles, and for bundles of a broker that
        left.
        """
        traffic = hours(BUSY, 6, 10)
        first, second = chunks(traffic, traffic.periods // 2, 0)
        later = owned(second.traffic, np.where(second.traffic.owner == 0, 1, second.traffic.owner).astype(np.int64))
        later = replace(later, present=later.present & (np.arange(len(later.brokers)) > 0))
        steps: list[CandidateStep] = []
        rows = unbroken(
            [first, Chunk(traffic=later, warm=5)], [STILL, EAGER], observe=lambda _, step: steps.append(step)
        )
        assert sum(row.measures.periods for row in rows) == 2 * (traffic.periods - 5)
        last = steps[-1].inputs
        assert last is not None and traffic.brokers[0] not in last.snapshot.brokers.ids
        assert len(last.snapshot.bundles) == len(traffic.bundles)

    def test_j13_a_piece_that_is_there_already_changes_nothing(self) -> None:
        """The second copy of a period is skipped."""
        piece = Chunk(traffic=hours(BUSY, 6, 8), warm=0)
        assert unbroken([piece, piece], [EAGER]) == unbroken([piece], [EAGER])


def with_unbroken(before: float, after: float) -> dict[str, Any]:
    """Return a good proposal with these imbalances of its unbroken run."""
    evidence = document()["evidence"]
    return document(
        evidence=evidence | {"unbroken": {"previous": measures(before, 6.0), "chosen": measures(after, 4.0)}}
    )


class TestRefusal:
    """Objections of the sidecar and of the job."""

    @pytest.mark.parametrize(
        ("before", "after", "good"), [(0.1, 0.1009, True), (0.1, 0.05, True), (0.1, 0.1011, False), (0.1, 0.122, False)]
    )
    def test_j13_a_proposal_that_loses_balance_unbroken_is_refused(
        self, before: float, after: float, good: bool
    ) -> None:
        """A loss above one percent has its own code and both values."""
        objections = checked(thresholds_of(with_unbroken(before, after)), Parameters(), AdoptionRules(), NOW_MS)
        assert [item.code for item in objections] == ([] if good else [Code.WORSE_UNBROKEN])
        if not good:
            assert f"max/mean {1 + before:.3f} -> {1 + after:.3f} " in objections[0].detail
            assert objections[0].field == "evidence.unbroken"

    def test_j13_a_proposal_without_an_unbroken_run_is_refused(self) -> None:
        """The job makes no such run where it proposes no change."""
        proposal = document()
        proposal["evidence"]["unbroken"] = None
        objections = checked(thresholds_of(proposal), Parameters(), AdoptionRules(), NOW_MS)
        assert [item.code for item in objections] == [Code.WORSE_UNBROKEN]
        assert "bundlekeel-recalibrate" in objections[0].detail

    @pytest.mark.parametrize("value", [3, {}, {"previous": measures(0.1, 1.0)}])
    def test_j13_figures_that_are_none_are_refused_by_name(self, value: object) -> None:
        """The error names the field, as for any other field of the document."""
        with pytest.raises(ThresholdsError, match=r"evidence\.unbroken"):
            thresholds_of(document(evidence=document()["evidence"] | {"unbroken": value}))

    def test_j13_the_report_shows_both_figures(self) -> None:
        """The report shows them next to the values of the blocks, and the stored document keeps them."""
        thresholds = parsed(json.dumps(document_of(thresholds_of(with_unbroken(0.1, 0.122)))))
        objections = checked(thresholds, Parameters(), AdoptionRules(), NOW_MS)
        html = page(thresholds, ReportInputs(objections=objections))
        assert "in force, unbroken" in html and "proposed, unbroken" in html
        assert "WorseUnbroken" in html and "1.122" in html

    def test_j13_one_course_has_no_interval(self) -> None:
        """Low and high equal the mean, and the report shows only the mean."""
        one = CandidateMeasures(seconds=86_400.0, weighted=8640.0, moves=24.0)
        measured = measures_of({0: one}, seed=3)
        assert (measured.imbalance.low, measured.imbalance.mean, measured.imbalance.high) == pytest.approx(
            (0.1, 0.1, 0.1)
        )
        unbroken = Unbroken(previous=measured, chosen=measured)
        assert unbroken.chosen.moves_per_hour.mean == pytest.approx(1.0)
        thresholds = thresholds_of(document())
        html = page(replace(thresholds, evidence=replace(thresholds.evidence, unbroken=unbroken)), ReportInputs())
        assert "<small>1 to 1<" not in html and "<small>5.4 to 6.6<" in html
