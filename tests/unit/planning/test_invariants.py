"""Laws on moves that no built-in strategy violates: which moves are dropped, why, and the refusals of the rest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bundlekeel.model.codes import Code
from bundlekeel.model.load import BrokerReport
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import Move, Refusal
from bundlekeel.model.snapshot import Snapshot
from bundlekeel.planning.draft import Draft
from bundlekeel.planning.guard.eligibility import Eligibility, eligibility
from bundlekeel.planning.guard.state import GuardState
from bundlekeel.planning.invariants import SLACK, accounted, lawful
from bundlekeel.planning.ledger import Ledger
from tests.support.builders import NOW_MS, broker, bundle_name, cluster, report, snapshot
from tests.support.plan_inputs import reports

LOADS = [[0.2, 0.2, 0.1, 0.0], [0.3], [0.84]]


def drafted(current: Snapshot) -> tuple[Draft, Eligibility]:
    params = Parameters()
    return Draft(current, Ledger(), params), eligibility(current, GuardState(), params, NOW_MS, frozenset())


def make_move(draft: Draft, bundle: int, target: int) -> Move:
    source = int(draft.snapshot.bundles.owner[bundle])
    return draft.take(bundle, source, target, rule="any", threshold=0.0)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"target": broker(0)}, Code.SAME_BROKER),
        ({"target": "gone:1"}, Code.NO_LEGAL_TARGET),
        ({"source": broker(1)}, Code.OWNER_CHANGED),
        ({"source": "gone:1"}, Code.OWNER_CHANGED),
        ({"bundle": bundle_name(99)}, Code.OWNER_CHANGED),
        ({"bundle": bundle_name(3)}, Code.IDLE),
        ({"target": broker(2)}, Code.TARGET_OVERLOADED),
    ],
)
def test_unlawful_move(change: dict[str, str], code: Code) -> None:
    """Rule: each law has its code."""
    draft, eligible = drafted(snapshot(cluster(LOADS)))
    move = replace(make_move(draft, 0, 1), **change)
    assert lawful(draft, eligible, [move]) == ((), [Refusal(code, move.bundle, move.source, "final check")])


def test_lawful_moves_stay_as_they_are() -> None:
    """Rule: what keeps the laws is not touched, not even its figures."""
    draft, eligible = drafted(snapshot(cluster(LOADS)))
    moves = (make_move(draft, 0, 1), make_move(draft, 2, 1))
    assert lawful(draft, eligible, draft.moves) == (moves, [])


def test_the_maximum_counts_over_the_whole_plan() -> None:
    """Rule: one move after the other onto one broker is lawful only as long as the sum is not the new maximum."""
    loads = [[0.1] * 6, [0.1] * 4, [0.1]]
    draft, eligible = drafted(snapshot(cluster(loads)))
    for bundle in (6, 7, 8, 0, 1, 2):
        make_move(draft, bundle, 2)
    moves, refused = lawful(draft, eligible, draft.moves)
    assert [move.bundle for move in moves] == [bundle_name(n) for n in (6, 7, 8, 0, 1)]
    assert [item.code for item in refused] == [Code.NO_GAIN]
    assert moves[-1].target_after == pytest.approx(0.6)


def test_a_broker_without_any_limit_is_not_full() -> None:
    """Rule: a value that cannot be compared with a limit counts as 0, for the laws as for the draft."""
    blind = {"limit": np.full(4, -1000.0)}
    draft, eligible = drafted(snapshot([*cluster([[0.2, 0.1], []], **blind)]))
    move = make_move(draft, 0, 1)
    assert lawful(draft, eligible, [move]) == ((move,), [])
    assert (move.target_before, move.target_after) == (0.0, 0.0)


def test_scores_are_told_without_what_was_dropped() -> None:
    """Rule: figures of later moves do not count on a move that is not made."""
    draft, eligible = drafted(snapshot(cluster([[0.2, 0.3], [0.1], [0.84]])))
    unlawful, fine = make_move(draft, 0, 2), make_move(draft, 1, 1)
    assert fine.source_after == pytest.approx(0.0)
    (moves,), (refused,) = lawful(draft, eligible, [unlawful, fine])
    assert refused.bundle == bundle_name(0)
    assert (moves.source_before, moves.source_after) == pytest.approx((0.5, 0.2))


def test_figures_of_a_handmade_move_are_not_believed() -> None:
    """Rule: traffic and pressure are the draft's; a move without a `take` is weighed like any other."""
    current = snapshot(cluster(LOADS))
    draft, eligible = drafted(current)
    real = make_move(draft, 0, 1)
    untouched, eligible = drafted(current)
    false = replace(real, pressure=(), traffic=(0.0, 0.0, 0.0, 0.0), target_after=0.0)
    (moves,), refused = lawful(untouched, eligible, [false])
    assert (moves.pressure, moves.traffic, refused) == (real.pressure, real.traffic, [])
    assert moves.target_after == pytest.approx(0.5)
    assert [round(row.score_after, 3) for row in untouched.loads((moves,))] == [0.3, 0.5, 0.84]


def test_second_move_of_a_bundle_is_left_out() -> None:
    """Rule: the first move stays and accounts for the bundle."""
    draft, eligible = drafted(snapshot(cluster(LOADS)))
    move = make_move(draft, 0, 1)
    assert lawful(draft, eligible, [move, replace(move, target=broker(2))]) == ((move,), [])


def test_policies_and_groups() -> None:
    """Rule: a forbidden broker takes nothing, and one move of an anti-affinity group is all a plan may make."""
    names = {bundle_name(n, f"t/{n}"): 0.1 for n in range(3)}
    draft, eligible = drafted(snapshot([report(broker(0), names), *cluster([[], [], []])[1:]]))
    allowed = np.ones((3, 3), dtype=bool)
    allowed[0, 1] = False
    draft.restrict(allowed, np.array([-1, 0, 0]))
    for bundle in range(3):
        make_move(draft, bundle, 1)
    moves, refused = lawful(draft, eligible, draft.moves)
    assert [move.bundle for move in moves] == [bundle_name(1, "t/1")]
    assert [item.code for item in refused] == [Code.POLICY_FORBIDS, Code.ANTI_AFFINITY]


def test_accounts_are_filled_in() -> None:
    """Rule: a dropped move's refusal wins; a bundle without a refusal has its own obstacle or was not chosen."""
    draft, eligible = drafted(snapshot(cluster(LOADS)))
    moves = (make_move(draft, 0, 1),)
    dropped = [Refusal(Code.NO_GAIN, bundle_name(1), broker(0), "final check")]
    refusals = [Refusal(Code.TOO_BIG, bundle_name(1), broker(0)), Refusal(Code.BALANCED, "", broker(0))]
    output = accounted(draft, eligible, moves, refusals, dropped)
    assert {item.bundle: item.code for item in output} == {
        bundle_name(1): Code.NO_GAIN,
        bundle_name(2): Code.BALANCED,
        bundle_name(3): Code.IDLE,
    }


def test_a_broker_that_was_not_looked_at_is_told_as_one() -> None:
    """Rule: unless one of its bundles is reported as well."""
    draft, eligible = drafted(snapshot(cluster(LOADS)))
    moves = (make_move(draft, 0, 1),)
    whole = [Refusal(code=Code.BUDGET_PER_CYCLE, broker=broker(row)) for row in (0, 2)]
    refusals = accounted(draft, eligible, moves, whole, ())
    assert [item for item in refusals if not item.bundle] == whole[1:]
    assert {item.bundle for item in refusals if item.bundle} == {bundle_name(number) for number in (1, 2, 3)}


ANY = settings(suppress_health_check=list(HealthCheck))


def test_any_moves_at_all() -> None:
    """Law: for any moves of a shedder, the remaining ones are legal, raise no maximum, and account for all others."""
    tried: list[bool] = []
    moved: list[bool] = []

    @ANY
    @given(current=reports(), choices=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 6)), max_size=12))
    def law(current: list[BrokerReport], choices: list[tuple[int, int]]) -> None:
        picture = snapshot(current)
        draft, eligible = drafted(picture)
        for bundle, target in choices if len(picture.bundles) else ():
            if not draft.moved[bundle % len(picture.bundles)]:
                make_move(draft, bundle % len(picture.bundles), target % len(picture.brokers))
        moves, dropped = lawful(draft, eligible, draft.moves)
        loads = draft.loads(moves)
        before, after = ([getattr(row, name) for row in loads] for name in ("score_before", "score_after"))
        assert max(after, default=0.0) <= max(before, default=0.0) + SLACK
        for move in moves:
            assert move.source != move.target
            assert move.target_after <= 0.85 + SLACK
            assert eligible.mask[picture.bundles.names.index(move.bundle)]
        refusals = accounted(draft, eligible, moves, [], dropped)
        named = [move.bundle for move in moves] + [item.bundle for item in refusals]
        donors = {move.source for move in draft.moves}
        assert len(named) == len(set(named))
        assert set(named) == {name for item in current if item.broker_id in donors for name in item.bundle_names}
        tried.append(bool(draft.moves))
        moved.append(bool(moves))

    law()
    assert sum(tried) >= 0.1 * len(tried), f"only {sum(tried)} of {len(tried)} examples try a move"
    assert any(moved), "no move of any example is lawful"


@pytest.mark.parametrize("change", [{"traffic": (9.0, 9.0, 9.0, 9.0)}, {"pressure": (9.0,) * 6}])
def test_figures_of_a_move_are_those_of_the_draft(change: dict[str, tuple[float, ...]]) -> None:
    """Rule: what a move says of its bundle does not count, neither its traffic nor its pressure."""
    draft, eligible = drafted(snapshot(cluster(LOADS)))
    move = make_move(draft, 0, 1)
    assert lawful(draft, eligible, [replace(move, **change)]) == ((move,), [])
