"""The draft: predicted load while moves are added one by one, and what bars and books leave of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bundlekeel.model.codes import Code
from bundlekeel.model.load import BANDWIDTH_IN, BANDWIDTH_OUT, CPU
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.snapshot import Snapshot
from bundlekeel.planning.draft import Draft
from bundlekeel.planning.ledger import Ledger
from bundlekeel.planning.scores import weights_of
from bundlekeel.planning.target_bans import TargetBans
from tests.support.builders import NOW_MS, broker, bundle_name, cluster, entry, report, snapshot, traffic

PARAMS = Parameters()
LOADS = [[0.2, 0.3], [0.1], [0.1]]


def drafted(current: Snapshot | None = None, ledger: Ledger | None = None) -> Draft:
    """A draft without moves."""
    return Draft(current or snapshot(cluster(LOADS)), ledger or Ledger(), PARAMS)


def booked(bundle: int, source: int = 0, target: int = 1, cpu: float = 20.0) -> Ledger:
    """One move under way that carries a fifth of a broker."""
    load = {"traffic": traffic(0.2), "pressure": (cpu, 0.0, 0.0, 0.0, 0.0, 0.0)}
    return Ledger(entries=(entry(bundle_name(bundle), broker(source), broker(target), **load),))


def test_a_move_changes_both_brokers_in_everything() -> None:
    """Rule: score, traffic, number of bundles and topics, and the long-term rate follow each move; the next too."""
    draft = drafted()
    before = draft.long_rate().tolist()
    move = draft.take(0, 0, 1, rule="any", threshold=0.5, runner_up=2)
    assert (move.source_before, move.source_after) == pytest.approx((0.5, 0.3))
    assert (move.target_before, move.target_after) == pytest.approx((0.1, 0.3))
    assert (move.runner_up, move.threshold, move.rule) == (broker(2), 0.5, "any")
    assert draft.score.tolist() == pytest.approx([0.3, 0.3, 0.1])
    assert draft.traffic.sum(axis=1).tolist() == pytest.approx([sum(traffic(share)) for share in (0.3, 0.3, 0.1)])
    assert draft.bundle_count.tolist() == [1, 2, 1]
    assert draft.topics.tolist() == [1, 2, 1]
    assert draft.turn == 2
    assert (draft.long_rate() - before).tolist() == pytest.approx([-20_000.0, 20_000.0, 0.0])
    assert draft.movable(0, np.ones(4, dtype=bool)).tolist() == [1], "the one that moved is through"
    assert draft.take(3, 2, 1, rule="any", threshold=0.0).runner_up == ""
    assert draft.take(1, 0, 2, rule="any", threshold=0.0).target_after == pytest.approx(0.3)
    assert draft.turn == 0, "after the last broker comes the first"


def test_a_move_takes_along_all_topics_of_its_bundle() -> None:
    """Rule: a target is full of topics after the move that fills it, by topics and not by consumers or producers."""
    counts = np.array([[3, 7, 9], [1, 7, 9]])
    big = report(broker(0), {bundle_name(0): 0.2, bundle_name(1): 0.2}, bundle_counts=counts, num_topics=4)
    params = Parameters(max_topics_per_broker=2)
    draft = Draft(snapshot([big, *cluster([[], []])[1:]]), Ledger(), params)
    assert draft.has_room().tolist() == [False, True]
    draft.take(0, 0, 1, rule="any", threshold=0.0)
    assert draft.topics.tolist() == [1, 3]
    assert draft.has_room().tolist() == [True, False]
    assert draft.legal_targets().tolist() == [True, False]


def test_brokers_of_unlike_limits_have_the_same_scores_however_they_are_asked() -> None:
    """Rule: a resource that only one broker limits counts on that one, whatever it weighs."""
    limits = [[100.0, 1024.0, -1000.0, 0.0], [400.0, -1000.0, 50.0, 0.0]]
    used = np.array([30.0, 512.0, 20.0, 5.0])
    reports = [
        report(broker(row), {bundle_name(row): 0.1}, usage=used, limit=np.array(limit))
        for row, limit in enumerate(limits)
    ]
    for weights, expected in (((1.0, 1.0), [0.5, 0.4]), ((1.0, 0.0), [0.3, 0.4]), ((0.0, 0.5), [0.25, 0.4])):
        params = Parameters(cpu_weight=weights[0], direct_memory_weight=weights[1])
        draft = Draft(snapshot(reports), Ledger(), params)
        assert draft.score.tolist() == pytest.approx(expected)
        assert draft.scores(draft.usage, np.array([0, 1])).tolist() == pytest.approx(expected)


def test_loads_tell_what_these_moves_do() -> None:
    """Rule: the table holds before and after of the moves that it is given, be they all of the draft's or not."""
    draft = drafted()
    first, second = (draft.take(row, 0, row + 1, rule="any", threshold=0.0) for row in (0, 1))
    third = draft.take(2, 1, 2, rule="any", threshold=0.0)
    for moves, scores, counts in (
        ((), (0.5, 0.1, 0.1), (2, 1, 1)),
        ((first,), (0.3, 0.3, 0.1), (1, 2, 1)),
        ((second,), (0.2, 0.1, 0.4), (1, 1, 2)),
        ((third,), (0.5, 0.0, 0.2), (2, 0, 2)),
        ((first, second, third), (0.0, 0.2, 0.5), (0, 1, 3)),
    ):
        rows = draft.loads(moves)
        assert [row.score_before for row in rows] == pytest.approx([0.5, 0.1, 0.1])
        assert [row.score_after for row in rows] == pytest.approx(scores, abs=1e-6)
        assert [row.bundles_after for row in rows] == list(counts)
        assert [row.msg_rate_after for row in rows] == pytest.approx([score * 100e3 for score in scores], abs=1e-3)
        assert [row.throughput_after for row in rows] == pytest.approx([score * 100e6 for score in scores], abs=1)
        assert (rows[0].msg_rate_before, rows[0].throughput_before) == pytest.approx((50e3, 50e6))


def test_offers_and_scores_agree_with_the_move() -> None:
    """Rule: what a bundle would do is what it does, for one target or for many."""
    draft = drafted()
    offer = draft.offer(np.array([0, 1]), 0, 2)
    assert offer.source_after.tolist() == pytest.approx([0.3, 0.2])
    assert offer.target_after.tolist() == pytest.approx([0.3, 0.4])
    assert draft.with_bundle(1, 0, np.array([1, 2])).tolist() == pytest.approx([0.4, 0.4])


def test_books_count_and_keep_their_bundle() -> None:
    """Rule: a move under way is off its source and on its target in all figures, and its bundle is not free."""
    draft = drafted(ledger=booked(0))
    assert draft.score.tolist() == pytest.approx([0.3, 0.3, 0.1])
    assert draft.bundle_count.tolist() == [1, 2, 1]
    assert draft.movable(0, np.ones(4, dtype=bool)).tolist() == [1]
    assert draft.movable(1, np.ones(4, dtype=bool)).tolist() == [2]
    assert draft.reported.tolist() == pytest.approx([0.5, 0.1, 0.1]), "what is reported stays"
    assert draft.expected(1).sum() == pytest.approx(sum(traffic(0.1))), "what comes is not charged to those there"
    assert draft.carried() == {}, "nothing depends on it"
    limited = Draft(draft.snapshot, booked(0), Parameters(max_traffic_share_per_cycle=0.5))
    assert sum(limited.carried()[broker(0)]) == pytest.approx(sum(traffic(0.3)))


def test_books_of_a_bundle_that_landed() -> None:
    """Rule: where the target's report has the bundle, its traffic is there already; settled sides change nothing."""
    draft = drafted(ledger=booked(2, source=0, target=1))
    assert draft.bundle_count.tolist() == [2, 1, 1]
    assert draft.traffic[1].tolist() == pytest.approx(list(traffic(0.2))), "what is expected, not what it has so far"
    (begun,) = booked(0).entries
    for source, target in ((True, False), (False, True)):
        sides = Ledger(entries=(replace(begun, source_settled=source, target_settled=target),))
        expected = [0.5 if source else 0.3, 0.1 if target else 0.3, 0.1]
        assert drafted(ledger=sides).score.tolist() == pytest.approx(expected)


def test_books_never_make_a_figure_negative() -> None:
    """Rule: a move that is booked with more than its source reports leaves nothing, not less than nothing."""
    draft = drafted(ledger=booked(0, cpu=90.0))
    assert draft.usage.min() == 0.0
    assert draft.score.tolist() == pytest.approx([0.0, 1.0, 0.1])
    absent = drafted(ledger=booked(99, source=7, target=8))
    assert absent.score.tolist() == pytest.approx([0.5, 0.1, 0.1]), "brokers that are gone"
    assert absent.movable(2, np.ones(4, dtype=bool)).tolist() == [3]


def test_what_policies_leave() -> None:
    """Rule: brokers that at least one of the bundles may go to; a group that moved stays put in this draft alone."""
    spaces = [bundle_name(n, f"t/{n}") for n in range(3)]
    draft = drafted(snapshot([report(broker(0), dict.fromkeys(spaces, 0.1)), *cluster([[], [], []])[1:]]))
    assert draft.reachable(np.array([0])).all()
    allowed = np.array([[True, True, False], [True, False, True], [True, False, False]])
    draft.restrict(allowed, np.array([0, 0, -1]))
    assert draft.reachable(np.array([0, 1])).tolist() == [True, True, True]
    assert draft.reachable(np.array([1, 2])).tolist() == [True, False, True]
    assert draft.reachable(np.array([], dtype=np.int64)).all()
    assert [draft.group_of(row) for row in range(3)] == [0, 0, -1]
    assert np.isfinite(draft.offer(np.array([0, 1]), 0, 1).target_after).tolist() == [True, False]
    assert np.isfinite(draft.with_bundle(1, 0, np.array([1, 2]))).tolist() == [False, True]
    draft.take(2, 0, 1, rule="any", threshold=0.0)
    assert not draft.held.any(), "it is in no group"
    draft.take(0, 0, 1, rule="any", threshold=0.0)
    assert draft.held.tolist() == [True, True, False]
    assert not draft.reachable(np.array([1])).any()
    assert allowed.sum() == 5, "the caller's matrix stays as it is"


def test_bars_by_broker_by_way_back_and_by_pair() -> None:
    """Rule: one bundle checked for many targets, many checked for one, and the code agree."""
    bars = TargetBans(closed={3: Code.CORDONED}, back={1: (2, NOW_MS)}, pairs=frozenset({(0, 4)}))
    targets, rows = np.array([1, 2, 3, 4]), np.array([0, 1])
    codes = [[bars.code(row, 0, target) for target in targets.tolist()] for row in rows.tolist()]
    assert codes == [
        [None, None, Code.CORDONED, Code.QUARANTINED],
        [None, Code.NO_RETURN, Code.CORDONED, Code.QUARANTINED],
    ]
    for index, target in enumerate(targets.tolist()):
        assert bars.forbidden(rows, 0, target).tolist() == [codes[0][index] is not None, codes[1][index] is not None]
    for row in rows.tolist():
        assert bars.forbidden_targets(row, 0, targets).tolist() == [code is not None for code in codes[row]]
    assert not bars.forbidden(rows, 5, 4).any(), "another source"
    empty = TargetBans(closed={}, back={}, pairs=frozenset())
    assert not empty.forbidden(rows, 0, 4).any()
    draft = drafted()
    draft.ban(TargetBans(closed={1: Code.CORDONED}, back={}, pairs=frozenset()))
    assert draft.legal_targets().tolist() == [True, False, True]
    assert np.isinf(draft.offer(np.array([0]), 0, 1).target_after[0])
    assert np.isfinite(draft.with_bundle(0, 0, np.array([1, 2]))).tolist() == [False, True]


def test_targets_are_below_the_threshold_in_prediction_and_report() -> None:
    """Rule: exactly at it is not above it; who asks gets a copy."""
    draft = Draft(snapshot(cluster([[0.5], [0.51], []])), Ledger(), Parameters(overloaded_threshold_percent=50.0))
    assert draft.legal_targets().tolist() == [True, False, True]
    draft.legal_targets()[:] = False
    assert draft.legal_targets().any()
    draft.take(1, 1, 2, rule="any", threshold=0.0)
    assert draft.legal_targets().tolist() == [True, False, False], "the report still says what it said"


def test_weights_of_resources() -> None:
    """Rule: modular scores are weighted as configured; an extensible broker's figures come weighted already."""
    params = Parameters(cpu_weight=0.5, direct_memory_weight=0.0)
    assert weights_of(params).tolist() == [0.5, 0.0, params.bandwidth_in_weight, params.bandwidth_out_weight, 1.0, 1.0]
    assert weights_of(params, "extensible").tolist() == [1.0] * 6
    assert Draft(snapshot(cluster(LOADS)), Ledger(), params).score.tolist() == pytest.approx([0.25, 0.05, 0.05])


def test_the_resource_used_most_is_the_score_after_a_move_too() -> None:
    """Rule: of CPU and network the larger share counts, before a move and after it."""
    carried = {"usage": np.array([50.0, 0.0, 20.0, 10.0]), "limit": np.array([100.0, 1024.0, 100.0, 100.0])}
    draft = drafted(snapshot(cluster([[0.25, 0.25], [0.25, 0.25]], **carried)))
    assert draft.score.tolist() == pytest.approx([0.5, 0.5])
    draft.take(0, 0, 1, rule="any", threshold=0.0)
    shares = draft.usage[:, [CPU, BANDWIDTH_IN, BANDWIDTH_OUT]] / 100
    assert draft.score.tolist() == pytest.approx(shares.max(axis=1).tolist())
    assert (shares.min(axis=1) < shares.max(axis=1)).all()
