"""Laws of the guard: whatever a strategy wants, no plan breaks a budget, a bar or a hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bundlekeel.model.codes import Code
from bundlekeel.model.names import namespace_of, tenant_of
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import Move, Traffic4
from bundlekeel.model.text_format import HOUR_MS
from bundlekeel.planning.guard.budgets import admit, share_of
from bundlekeel.planning.guard.state import BegunMove, GuardState, RecentMove
from tests.support import builders
from tests.support.builders import EAGER, NOW_MS, broker, bundle_name, report, run

BROKERS = [broker(index) for index in range(4)]
BUDGETS = {
    Code.BUDGET_PER_CYCLE,
    Code.BUDGET_PER_SOURCE,
    Code.BUDGET_PER_TARGET,
    Code.BUDGET_PER_NAMESPACE,
    Code.BUDGET_PER_TENANT,
    Code.BUDGET_PER_HOUR,
    Code.BUDGET_OF_TRAFFIC,
    Code.ADAPTIVE_RATE,
}
few = st.integers(0, 6)


@st.composite
def parameters(draw: st.DrawFn, least: int = 0) -> dict[str, Any]:
    """All budgets at once, tight and wide ones."""
    few = st.integers(least, 6)
    return {
        "max_moves_per_cycle": draw(few),
        "max_moves_per_source": draw(few),
        "max_moves_per_target": draw(few),
        "max_moves_per_namespace": draw(few),
        "max_moves_per_tenant": draw(st.one_of(st.just(-1), few)),
        "max_moves_per_hour": draw(st.one_of(st.just(-1), st.integers(2 * least, 16))),
        "max_traffic_share_per_cycle": draw(st.sampled_from([0.0, 0.1, 0.3, 0.5, 1.0])),
    }


@st.composite
def states(draw: st.DrawFn) -> GuardState:
    """Moves of the last hours, and what the adaptive rate allows."""
    ages = draw(st.lists(st.integers(0, 2 * HOUR_MS), max_size=10))
    hour = tuple(BegunMove(bundle="t/a/x", source="a", target="b", at_ms=NOW_MS - age) for age in ages)
    return GuardState(last_hour=hour, rate=draw(st.one_of(st.none(), few)))


@st.composite
def plans(draw: st.DrawFn) -> list[Move]:
    """Moves between four brokers, one a bundle, swaps among them."""
    moves: list[Move] = []
    for number in range(draw(st.integers(0, 14))):
        source, target = draw(st.permutations(BROKERS))[:2]
        back = draw(st.booleans())
        if moves and back:
            source, target = moves[-1].target, moves[-1].source
        share = draw(st.sampled_from([0.0, 0.05, 0.2, 0.4, 0.9]))
        space = draw(st.sampled_from(["t/a", "t/b", "u/a"]))
        carried = (share * 50, share * 50, share * 500, share * 500)
        moves.append(builders.move(bundle_name(number, space), source, target, traffic=carried))
    return moves


CARRIED: dict[str, Traffic4] = dict.fromkeys(BROKERS, (50.0, 50.0, 500.0, 500.0))


def broken(moves: Iterable[Move], params: Parameters, guard: GuardState, carried: dict[str, Traffic4]) -> list[str]:
    """Return the budgets that these moves exceed, counted in another way than `admit` counts."""
    done = list(moves)
    problems = [] if len(done) <= params.max_moves_per_cycle else ["cycle"]
    counts = {
        "source": (Counter(item.source for item in done), params.max_moves_per_source),
        "target": (Counter(item.target for item in done), params.max_moves_per_target),
        "namespace": (Counter(namespace_of(item.bundle) for item in done), params.max_moves_per_namespace),
    }
    if params.max_moves_per_tenant >= 0:
        counts["tenant"] = (Counter(tenant_of(item.bundle) for item in done), params.max_moves_per_tenant)
    problems += [name for name, (used, limit) in counts.items() if max(used.values(), default=0) > limit]
    before = sum(started.at_ms > NOW_MS - HOUR_MS for started in guard.last_hour)
    if done and 0 <= params.max_moves_per_hour < before + len(done):
        problems.append("hour")
    if guard.rate is not None and len(done) > guard.rate:
        problems.append("rate")
    for name in BROKERS:
        shares = [share_of(item, carried[name]) for item in done if item.source == name]
        limit = params.max_traffic_share_per_cycle
        if limit < 1 and len(shares) > 1 and sum(shares) > limit + 1e-6:
            problems.append("traffic")
    return problems


@given(plans(), parameters(), states())
def test_no_budget_is_ever_broken(moves: list[Move], given_params: dict[str, Any], guard: GuardState) -> None:
    """Law: of all budgets at once none is broken, each move is admitted or refused, in order, with limit and use."""
    params = Parameters(**given_params)
    done, refused = admit(moves, params, guard, NOW_MS, CARRIED)
    assert broken(done, params, guard, CARRIED) == []
    bundles = [item.bundle for item in done] + [item.bundle for item in refused]
    assert sorted(bundles) == sorted(item.bundle for item in moves)
    assert [item for item in moves if item in done] == list(done)
    for item in refused:
        assert item.code in BUDGETS
        assert item.limit is not None and item.used is not None
        assert item.used >= item.limit or item.code is Code.BUDGET_OF_TRAFFIC
        assert item.frees_ms == 0 or NOW_MS < item.frees_ms <= NOW_MS + HOUR_MS


@given(plans(), parameters(), states())
def test_swaps_stay_whole(moves: list[Move], given_params: dict[str, Any], guard: GuardState) -> None:
    """Law: what comes back for a bundle moves if and only if the bundle does."""
    done = {item.bundle for item in admit(moves, Parameters(**given_params), guard, NOW_MS, CARRIED)[0]}
    first = None
    for item in moves:
        if first is not None and (item.source, item.target) == (first.target, first.source):
            assert (item.bundle in done) is (first.bundle in done)
        else:
            first = item


@st.composite
def guards(draw: st.DrawFn) -> GuardState:
    """Everything the guard may know of a small cluster."""
    names = [bundle_name(number) for number in range(16)]
    some = st.sets(st.sampled_from(BROKERS), max_size=2)
    when = st.integers(NOW_MS - 2 * HOUR_MS, NOW_MS)
    # 0: without an end.
    ends = st.one_of(st.just(0), st.integers(NOW_MS - 10, NOW_MS + 10))
    quarantine = st.integers(NOW_MS - 10, NOW_MS + 10)
    recent = draw(st.dictionaries(st.sampled_from(names), st.tuples(when, st.sampled_from(BROKERS)), max_size=8))
    pairs = st.tuples(st.sampled_from(BROKERS), st.sampled_from(BROKERS))
    return replace(
        draw(states()),
        recent={name: RecentMove(at_ms=at, source=source) for name, (at, source) in recent.items()},
        cordoned=frozenset(draw(some)),
        excluded=draw(
            st.dictionaries(
                st.sampled_from(["t:t", "n:t/n?", "b:*1_*", "b:*6_*", "b:*b_*", "r:b0001*", "r:b0002*", "r:b0003*"]),
                ends,
                max_size=2,
            )
        ),
        quarantined=draw(st.dictionaries(pairs, quarantine, max_size=3)),
        pinned=draw(st.dictionaries(st.sampled_from(names), ends, max_size=6)),
        changed_brokers=draw(st.dictionaries(st.sampled_from(BROKERS), when, max_size=4)),
        relief_until=draw(st.sampled_from([None, None, None, NOW_MS + 1000])),
    )


def lasts(end_ms: int) -> bool:
    """Whether a pin or an exclusion with this end holds now; 0: it has no end."""
    return end_ms == 0 or end_ms > NOW_MS


def covers(pattern: str, move: Move) -> bool:
    """Whether an exclusion names the bundle, what it belongs to, or a broker of the move."""
    kind, _, text = pattern.partition(":")
    tenant, namespace = tenant_of(move.bundle), namespace_of(move.bundle)
    names = {"t": [tenant], "n": [namespace], "b": [move.bundle], "r": [move.source, move.target]}
    return any(fnmatchcase(name, text) for name in names[kind])


@st.composite
def loads(draw: st.DrawFn) -> list[float]:
    """Four bundles on each of the four brokers, those of the first one large, so that strategies have work to do."""
    large, small = st.sampled_from([0.15, 0.2, 0.25]), st.sampled_from([0.0, 0.05, 0.1, 0.2])
    hot, rest = st.lists(large, min_size=4, max_size=4), st.lists(small, min_size=12, max_size=12)
    return [*draw(hot), *draw(rest)]


STRATEGIES = ("avg", "threshold", "overload", "uniform", "transfer", "deviation")


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(loads(), parameters(least=1), guards())
def test_whole_plans(
    moved: list[bool], strategy: str, shares: list[float], given_params: dict[str, Any], guard: GuardState
) -> None:
    """Law: the plan of any strategy keeps all budgets, sends nothing to closed brokers, nothing back, nothing between
    quarantined brokers, nothing pinned, and under a hold relieves overload only."""
    reports = [
        report(name, {bundle_name(4 * index + n): shares[4 * index + n] for n in range(4)})
        for index, name in enumerate(BROKERS)
    ]
    aggressive = {
        "strategy": strategy,
        "transfer_hit_count": 0,
        "move_price": 0,
        "threshold_percent": 5.0,
        "deviation_threshold": 0.3,
        "uniform_max_unload_ratio": 0.5,
    }
    params = {**EAGER, **aggressive, **given_params}
    plan = run(reports, guard=guard, **params).plan
    moved.append(bool(plan.moves))
    carried = {row.broker: (0.0, row.msg_rate_before, 0.0, row.throughput_before) for row in plan.loads}
    assert broken(plan.moves, Parameters(**params), guard, carried) == []
    protected = any(at > NOW_MS - 60_000 for at in guard.changed_brokers.values()) or guard.relief_until is not None
    for move in plan.moves:
        assert move.target not in guard.cordoned
        assert (move.source, move.target) not in {pair for pair, end in guard.quarantined.items() if end > NOW_MS}
        assert not lasts(guard.pinned.get(move.bundle, NOW_MS))
        assert not any(lasts(end) and covers(pattern, move) for pattern, end in guard.excluded.items())
        if move.bundle in guard.recent:
            left = guard.recent[move.bundle]
            assert left.at_ms <= NOW_MS - HOUR_MS or left.source != move.target
            assert left.at_ms <= NOW_MS - HOUR_MS // 2
        assert not protected or move.source_before > 0.85
