"""Usage of a broker without traffic is not charged to its bundles, also when no broker is idle any more."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bundlekeel.model.load import CPU, BrokerReport, ExcludedBroker
from bundlekeel.model.parameters import Parameters
from bundlekeel.planning.costs import BrokerEvidence, CpuCosts, learn
from bundlekeel.planning.draft import Draft
from bundlekeel.planning.ledger import Ledger, open_entries
from bundlekeel.planning.memory import StrategyMemory
from bundlekeel.planning.pressure import shares_of
from tests.support.builders import NOW_MS, cluster, eager, run, snapshot

PARAMS = Parameters()


def with_idle_cpu(reports: list[BrokerReport], percent: float) -> list[BrokerReport]:
    created = []
    for item in reports:
        usage = item.usage.copy()
        usage[CPU] += percent / 100 * item.limit[CPU]
        created.append(replace(item, usage=usage))
    return created


ALL_ON_ONE = with_idle_cpu(cluster([[0.1] * 8, [], []]), 10.0)


def learn_idle(reports: list[BrokerReport], unsettled: frozenset[str] = frozenset()) -> dict[str, float]:
    return idle_of(learn(CpuCosts(), snapshot(reports), PARAMS, unsettled))


def idle_of(costs: CpuCosts) -> dict[str, float]:
    """CPU without traffic by broker, where it was seen."""
    return {broker: item.idle for broker, item in costs.brokers.items() if item.idle >= 0}


def test_the_first_plan_is_exact() -> None:
    """Rule: with 10 points of idle CPU on each of three brokers, eight equal bundles end as 3, 3 and 2."""
    plan = eager(ALL_ON_ONE).plan
    assert len(plan.moves) in (5, 6)
    assert sorted(row.bundles_after for row in plan.loads) in ([2, 3, 3], [2, 2, 4])
    assert {round(row.score_after, 6) for row in plan.loads} <= {0.3, 0.4, 0.5}


def test_a_bundle_takes_its_share_of_what_is_above_idle() -> None:
    """Rule: of 90 % CPU, 10 are the broker's own and each of eight bundles has a tenth of the limit."""
    current = snapshot(ALL_ON_ONE)
    draft = Draft(current, Ledger(), PARAMS)
    limit = current.brokers.limit[0, CPU]
    assert np.allclose(draft.pressure(0)[:, CPU] / limit, 0.1)
    assert (draft.score - draft.base_score()).tolist() == pytest.approx([0.8, 0.0, 0.0])


def test_it_is_remembered_when_no_broker_is_idle_any_more() -> None:
    """Rule: the plan after the move charges what the plan before it charged."""
    memory = run(ALL_ON_ONE).memory
    assert set(idle_of(memory.costs)) == {item.broker_id for item in ALL_ON_ONE[1:]}
    even = with_idle_cpu(cluster([[0.1] * 3, [0.1] * 3, [0.1] * 2]), 10.0)
    later = snapshot(even)
    assert Draft(later, Ledger(), PARAMS).pressure(0)[0, CPU] > 0.13 * later.brokers.limit[0, CPU]
    draft = Draft(later, Ledger(), PARAMS, costs=memory.costs)
    for row in range(3):
        assert np.allclose(draft.pressure(row)[:, CPU] / later.brokers.limit[row, CPU], 0.1)
    assert idle_of(run(even, memory=memory).memory.costs) == idle_of(memory.costs)


def test_a_busy_host_says_nothing() -> None:
    """Rule: more than 35 points without traffic is a neighbour on the machine, not the broker."""
    assert learn_idle(with_idle_cpu(cluster([[0.1] * 8, []]), 36.0)) == {}
    assert len(learn_idle(with_idle_cpu(cluster([[0.1] * 8, []]), 34.0))) == 1


def test_a_broker_that_just_started_says_nothing() -> None:
    """Rule: before one statistics and one host-usage interval its CPU is that of starting, or of its predecessor."""
    young = [ALL_ON_ONE[0], *(replace(item, start_timestamp=item.last_update - 119_000) for item in ALL_ON_ONE[1:])]
    assert learn_idle(young) == {}
    old = [ALL_ON_ONE[0], *(replace(item, start_timestamp=item.last_update - 120_000) for item in ALL_ON_ONE[1:])]
    assert len(learn_idle(old)) == 2


def test_a_silent_broker_is_as_it_said_last() -> None:
    """Rule: up for two intervals, its last report soon after its start: had its CPU changed, it would have reported."""
    expected = [
        replace(item, start_timestamp=NOW_MS - 300_000, last_update=NOW_MS - 280_000) for item in ALL_ON_ONE[1:]
    ]
    assert len(learn_idle([ALL_ON_ONE[0], *expected])) == 2
    fresh = [replace(item, start_timestamp=NOW_MS - 100_000, last_update=NOW_MS - 80_000) for item in ALL_ON_ONE[1:]]
    assert learn_idle([ALL_ON_ONE[0], *fresh]) == {}


def test_a_broker_whose_bundles_just_left_says_nothing() -> None:
    """Rule: its CPU sample is older than the moves."""
    current = snapshot(ALL_ON_ONE)
    moves = eager(ALL_ON_ONE).plan.moves
    books = open_entries(Ledger(), moves, current, NOW_MS)
    assert learn_idle(ALL_ON_ONE, unsettled=books.unsettled()) == {}


def test_brokers_that_are_gone_are_forgotten_and_silent_ones_are_not() -> None:
    """Rule: memory does not grow with every broker that ever was."""
    silent = ExcludedBroker(broker_id="silent:8080", code="NoLoadData", detail="")
    current = snapshot(ALL_ON_ONE[:1], excluded=[silent])
    expected_names = {"gone:8080": BrokerEvidence(idle=1.0), "silent:8080": BrokerEvidence(idle=2.0)}
    assert idle_of(learn(CpuCosts(brokers=expected_names), current, PARAMS)) == {"silent:8080": 2.0}


@pytest.mark.parametrize("busy", [0.0, 0.2])
def test_pressure_is_never_negative(busy: float) -> None:
    """Rule: an idle value above a broker's usage charges nothing, and nothing below."""
    reports = with_idle_cpu(cluster([[0.01], [0.3, 0.3]]), 100 * busy)
    current = snapshot(reports)
    costs = CpuCosts(brokers=dict.fromkeys(current.brokers.ids, BrokerEvidence(idle=1e9)))
    draft = Draft(current, Ledger(), PARAMS, costs=costs)
    assert all((draft.pressure(row) >= 0).all() for row in range(2))


def test_memory_begins_without_costs() -> None:
    """Rule: nothing is known of costs before the first snapshot."""
    assert StrategyMemory().costs == CpuCosts()


def test_a_broker_without_a_limit_says_nothing() -> None:
    """Rule: usage that cannot be compared with a limit is not idle usage, not even 0."""
    first, *others = cluster([[0.1] * 8, [], []])
    blind = [replace(item, limit=np.array([0.0, *item.limit[1:]])) for item in others]
    assert learn_idle([first, *blind]) == {}
    assert set(learn_idle([first, *others])) == {item.broker_id for item in others}


@pytest.mark.parametrize("cpu", [0.005, 0.5])
def test_little_usage_is_charged_as_it_is(cpu: float) -> None:
    """Rule: the only bundle of a broker accounts for all of its usage, be it less than a point."""
    draft = Draft(snapshot(cluster([[0.1], [0.1]], cpu=cpu)), Ledger(), PARAMS)
    assert draft.pressure(0)[0, CPU] == pytest.approx(100 * cpu)


def test_shares_of_each_resource() -> None:
    """Rule: bandwidth by bytes of its direction, memory by bytes, CPU by the mean of the shares there are."""
    carried = np.array([[0.1, 0.1, 10.0, 30.0], [0.0, 0.0, 30.0, 10.0]])
    both = shares_of(carried, np.array([0.2, 0.2, 40.0, 40.0]))
    # cpu, direct memory, bandwidth in, bandwidth out, messages, bytes
    assert both.tolist() == [[0.5, 0.5, 0.25, 0.75, 0.5, 0.5], [0.25, 0.5, 0.75, 0.25, 0.0, 0.5]]
    silent = shares_of(carried * [0, 0, 1, 1], np.array([0.0, 0.0, 40.0, 40.0]))
    assert silent.tolist() == [[0.5, 0.5, 0.25, 0.75, 0.0, 0.5], [0.5, 0.5, 0.75, 0.25, 0.0, 0.5]]
    assert not shares_of(carried * 0, np.zeros(4)).any()
