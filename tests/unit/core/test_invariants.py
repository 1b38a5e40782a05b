"""The laws on moves that no strategy of ours would make: what is dropped, why, and what is told of the rest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bundlekeel.core.guard.eligibility import Eligibility, eligibility
from bundlekeel.core.guard.state import GuardState
from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.load import BrokerReport
from bundlekeel.core.model.parameters import Parameters
from bundlekeel.core.model.plan import Move, Refusal
from bundlekeel.core.model.snapshot import Snapshot
from bundlekeel.core.planning.draft import Draft
from bundlekeel.core.planning.invariants import SLACK, accounted, lawful
from bundlekeel.core.planning.ledger import Ledger
from tests.support.builders import NOW_MS, broker, bundle_name, cluster, report, snapshot
from tests.support.plan_inputs import reports

LOADS = [[0.2, 0.2, 0.1, 0.0], [0.3], [0.84]]


def drafted(seen: Snapshot) -> tuple[Draft, Eligibility]:
    """A draft without moves, and what may move."""
    params = Parameters()
    return Draft(seen, Ledger(), params), eligibility(seen, GuardState(), params, NOW_MS, frozenset())


def taken(draft: Draft, bundle: int, target: int) -> Move:
    """A move of the draft, as a shedder makes it, without asking anybody."""
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
    move = replace(taken(draft, 0, 1), **change)
    assert lawful(draft, eligible, [move]) == ((), [Refusal(code, move.bundle, move.source, "final check")])


def test_lawful_moves_stay_as_they_are() -> None:
    """Rule: what keeps the laws is not touched, not even its figures."""
    draft, eligible = drafted(snapshot(cluster(LOADS)))
    moves = (taken(draft, 0, 1), taken(draft, 2, 1))
    assert lawful(draft, eligible, draft.moves) == (moves, [])


def test_the_maximum_counts_over_the_whole_plan() -> None:
    """Rule: one move after the other onto one broker is lawful only as long as the sum is not the new maximum."""
    loads = [[0.1] * 6, [0.1] * 4, [0.1]]
    draft, eligible = drafted(snapshot(cluster(loads)))
    for bundle in (6, 7, 8, 0, 1, 2):
        taken(draft, bundle, 2)
    kept, refused = lawful(draft, eligible, draft.moves)
    assert [move.bundle for move in kept] == [bundle_name(n) for n in (6, 7, 8, 0, 1)]
    assert [item.code for item in refused] == [Code.NO_GAIN]
    assert kept[-1].target_after == pytest.approx(0.6)


def test_a_broker_without_any_limit_is_not_full() -> None:
    """Rule: what cannot be compared with a limit counts as nothing, for the laws as for the draft."""
    blind = {"limit": np.full(4, -1000.0)}
    draft, eligible = drafted(snapshot([*cluster([[0.2, 0.1], []], **blind)]))
    move = taken(draft, 0, 1)
    assert lawful(draft, eligible, [move]) == ((move,), [])
    assert (move.target_before, move.target_after) == (0.0, 0.0)


def test_scores_are_told_without_what_was_dropped() -> None:
    """Rule: figures of later moves do not count on a move that is not made."""
    draft, eligible = drafted(snapshot(cluster([[0.2, 0.3], [0.1], [0.84]])))
    unlawful, fine = taken(draft, 0, 2), taken(draft, 1, 1)
    assert fine.source_after == pytest.approx(0.0)
    (kept,), (refused,) = lawful(draft, eligible, [unlawful, fine])
    assert refused.bundle == bundle_name(0)
    assert (kept.source_before, kept.source_after) == pytest.approx((0.5, 0.2))


def test_figures_of_a_handmade_move_are_not_believed() -> None:
    """Rule: traffic and pressure are the draft's; a move without a `take` is weighed like any other."""
    seen = snapshot(cluster(LOADS))
    draft, eligible = drafted(seen)
    real = taken(draft, 0, 1)
    untouched, eligible = drafted(seen)
    false = replace(real, pressure=(), traffic=(0.0, 0.0, 0.0, 0.0), target_after=0.0)
    (kept,), refused = lawful(untouched, eligible, [false])
    assert (kept.pressure, kept.traffic, refused) == (real.pressure, real.traffic, [])
    assert kept.target_after == pytest.approx(0.5)
    assert [round(row.score_after, 3) for row in untouched.loads((kept,))] == [0.3, 0.5, 0.84]


def test_second_move_of_a_bundle_is_left_out() -> None:
    """Rule: the first one stands and accounts for the bundle."""
    draft, eligible = drafted(snapshot(cluster(LOADS)))
    move = taken(draft, 0, 1)
    assert lawful(draft, eligible, [move, replace(move, target=broker(2))]) == ((move,), [])


def test_policies_and_groups() -> None:
    """Rule: a forbidden broker takes nothing, and one move of an anti-affinity group is all a plan may make."""
    names = {bundle_name(n, f"t/{n}"): 0.1 for n in range(3)}
    draft, eligible = drafted(snapshot([report(broker(0), names), *cluster([[], [], []])[1:]]))
    allowed = np.ones((3, 3), dtype=bool)
    allowed[0, 1] = False
    draft.restrict(allowed, np.array([-1, 0, 0]))
    for bundle in range(3):
        taken(draft, bundle, 1)
    kept, refused = lawful(draft, eligible, draft.moves)
    assert [move.bundle for move in kept] == [bundle_name(1, "t/1")]
    assert [item.code for item in refused] == [Code.POLICY_FORBIDS, Code.ANTI_AFFINITY]


def test_accounts_are_filled_in() -> None:
    """Rule: a dropped move's refusal wins, what nobody mentions has its own obstacle or was not chosen."""
    draft, eligible = drafted(snapshot(cluster(LOADS)))
    moves = (taken(draft, 0, 1),)
    dropped = [Refusal(Code.NO_GAIN, bundle_name(1), broker(0), "final check")]
    said = [Refusal(Code.TOO_BIG, bundle_name(1), broker(0)), Refusal(Code.BALANCED, "", broker(0))]
    told = accounted(draft, eligible, moves, said, dropped)
    assert {item.bundle: item.code for item in told} == {
        bundle_name(1): Code.NO_GAIN,
        bundle_name(2): Code.BALANCED,
        bundle_name(3): Code.IDLE,
    }


def test_a_broker_that_was_not_looked_at_is_told_as_one() -> None:
    """Rule: unless one of its bundles is told as well."""
    draft, eligible = drafted(snapshot(cluster(LOADS)))
    moves = (taken(draft, 0, 1),)
    whole = [Refusal(code=Code.BUDGET_PER_CYCLE, broker=broker(row)) for row in (0, 2)]
    found = accounted(draft, eligible, moves, whole, ())
    assert [item for item in found if not item.bundle] == whole[1:]
    assert {item.bundle for item in found if item.bundle} == {bundle_name(number) for number in (1, 2, 3)}


ANY = settings(suppress_health_check=list(HealthCheck))


def test_any_moves_at_all() -> None:
    """Law: whatever moves a shedder makes, what is left is legal, makes no maximum worse, and accounts for the rest."""
    tried: list[bool] = []
    moved: list[bool] = []

    @ANY
    @given(seen=reports(), choices=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 6)), max_size=12))
    def law(seen: list[BrokerReport], choices: list[tuple[int, int]]) -> None:
        picture = snapshot(seen)
        draft, eligible = drafted(picture)
        for bundle, target in choices if len(picture.bundles) else ():
            if not draft.moved[bundle % len(picture.bundles)]:
                taken(draft, bundle % len(picture.bundles), target % len(picture.brokers))
        kept, dropped = lawful(draft, eligible, draft.moves)
        loads = draft.loads(kept)
        before, after = ([getattr(row, name) for row in loads] for name in ("score_before", "score_after"))
        assert max(after, default=0.0) <= max(before, default=0.0) + SLACK
        for move in kept:
            assert move.source != move.target
            assert move.target_after <= 0.85 + SLACK
            assert eligible.mask[picture.bundles.names.index(move.bundle)]
        told = accounted(draft, eligible, kept, [], dropped)
        named = [move.bundle for move in kept] + [item.bundle for item in told]
        donors = {move.source for move in draft.moves}
        assert len(named) == len(set(named))
        assert set(named) == {name for item in seen if item.broker_id in donors for name in item.bundle_names}
        tried.append(bool(draft.moves))
        moved.append(bool(kept))

    law()
    assert sum(tried) >= 0.1 * len(tried), f"only {sum(tried)} of {len(tried)} examples try a move"
    assert any(moved), "no move of any example is lawful"


@pytest.mark.parametrize("change", [{"traffic": (9.0, 9.0, 9.0, 9.0)}, {"pressure": (9.0,) * 6}])
def test_figures_of_a_move_are_those_of_the_draft(change: dict[str, tuple[float, ...]]) -> None:
    """Rule: what a move says of its bundle does not count, neither its traffic nor its pressure."""
    draft, eligible = drafted(snapshot(cluster(LOADS)))
    move = taken(draft, 0, 1)
    assert lawful(draft, eligible, [replace(move, **change)]) == ((move,), [])
