"""What if brokers were there that are not? The altered picture, and the plan on it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bundlekeel.model.codes import Code
from bundlekeel.model.load import CPU, DIRECT_MEMORY, BrokerReport
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.policies import IsolationPolicy, Policies
from bundlekeel.model.snapshot import Snapshot
from bundlekeel.planning.costs import CpuCosts
from bundlekeel.planning.engine import PlanInput, PlanResult, plan
from bundlekeel.planning.ledger import Ledger, LedgerEntry
from bundlekeel.planning.whatif import finish, landed, middle_broker, scaled, with_brokers, without_brokers
from tests.support.builders import EAGER, NOW_MS, bundle_name, cluster, report, snapshot, traffic

# Two brokers that share the load evenly: without a further one there is nothing to do.
EVEN = [[0.1] * 6, [0.1] * 6]
# What makes each strategy look at such a cluster at all.
KEEN: dict[str, dict[str, Any]] = {
    "avg": {},
    "threshold": {},
    "overload": {"overloaded_threshold_percent": 50.0},
    "deviation": {"deviation_threshold": 0.5},
    "uniform": {"throughput_multiple": 1.1, "msg_rate_difference_percent": 1},
    "transfer": {"transfer_hit_count": 0, "move_price": 0},
}


def planned(current: Snapshot, policies: Policies | None = None, **params: Any) -> PlanResult:
    """The whole plan at once."""
    return plan(PlanInput(snapshot=current, params=Parameters(**{**EAGER, **params}), policies=policies or Policies()))


def of(current: Snapshot) -> dict[str, set[str]]:
    names = current.bundles.names
    return {broker: set(names[current.bundles.rows_of(row)]) for row, broker in enumerate(current.brokers.ids)}


@pytest.mark.parametrize("strategy", sorted(KEEN))
def test_an_added_broker_is_filled(strategy: str) -> None:
    """Each strategy fills it as it would fill a broker that has just come, and leaves an even cluster alone without."""
    current = snapshot(cluster(EVEN))
    params = {"strategy": strategy, **KEEN[strategy]}
    alone, more = planned(current, **params).plan, planned(with_brokers(current, ["new-1"]), **params).plan
    assert strategy == "overload" or not alone.moves
    assert more.moves and {move.target for move in more.moves} == {"new-1"}
    after = {load.broker: load for load in more.loads}
    assert after["new-1"].bundles_before == 0 < after["new-1"].bundles_after
    assert more.hash != alone.hash


def test_it_is_the_same_as_the_broker_being_there() -> None:
    """The picture with an empty broker added is the picture that such a broker's own report gives, row by row."""
    uneven = cluster([[0.3, 0.1], [0.2, 0.2, 0.1]])
    real = snapshot([*uneven, report("a-new:8080", {}, start_timestamp=NOW_MS)])
    changed = with_brokers(snapshot(uneven), ["a-new:8080"])
    assert changed.brokers.ids == real.brokers.ids == ("a-new:8080", "b0000:8080", "b0001:8080")
    for table in ("brokers", "bundles"):
        for name in getattr(real, table).__dataclass_fields__:
            inputs, expected = (getattr(getattr(item, table), name) for item in (changed, real))
            assert np.array_equal(inputs, expected), name
    assert changed.registered == real.registered == 3
    assert planned(changed).plan.moves == planned(real).plan.moves != ()


def test_added_brokers_are_as_large_as_the_middle_one() -> None:
    sizes = {"b1": (800.0, 100.0), "b2": (400.0, 900.0), "b3": (1600.0, 200.0), "b4": (100.0, 500.0)}
    reports: list[BrokerReport] = [
        report(broker, {bundle_name(number): 0.1}, limit=np.array([*size, -1000.0, -1000.0]))
        for number, (broker, size) in enumerate(sizes.items())
    ]
    current = snapshot(reports)
    assert current.brokers.ids[middle_broker(current.brokers)] == "b2"
    changed = with_brokers(current, ["new-1", "new-2"])
    for name in ("new-1", "new-2"):
        row = changed.broker_row(name)
        assert changed.brokers.limit[row, [CPU, DIRECT_MEMORY]].tolist() == [400.0, 900.0]
        assert not changed.brokers.traffic[row].any() and not changed.brokers.topics[row]
    assert middle_broker(snapshot(reports[:3]).brokers) == 0
    with pytest.raises(ValueError, match="no broker"):
        with_brokers(snapshot([]), ["new-1"])


def test_what_an_idle_broker_uses_is_used_but_not_learnt() -> None:
    current = snapshot(cluster([[0.3], [0.3], []], cpu=0.33, start_timestamp=NOW_MS - 10**7))
    idle = replace(current, brokers=replace(current.brokers, usage=np.array(current.brokers.usage)))
    idle.brokers.usage[2, CPU] = 3.0
    changed = with_brokers(idle, ["new-1"], idle_cpu=3.0)
    assert changed.brokers.usage[changed.broker_row("new-1"), CPU] == 3.0
    result = planned(with_brokers(idle, ["new-1"]))
    assert {broker: item.idle for broker, item in result.memory.costs.brokers.items() if item.idle >= 0} == {
        "b0002:8080": 3.0
    }


def test_removed_added_and_scaled_together() -> None:
    """A removed broker's bundles are on those that stay, the added one is empty, and traffic is scaled; then evened."""
    current = snapshot(cluster([[0.1] * 4, [0.1] * 4, [0.1] * 4]))
    rest = without_brokers(current, ["b0002:8080"], Parameters(), Policies())[0]
    changed = with_brokers(scaled(rest, 0.5), ["c-1", "a-1"])
    assert changed.brokers.ids == ("a-1", "b0000:8080", "b0001:8080", "c-1")
    owned = of(changed)
    assert not owned["a-1"] | owned["c-1"] and {b: owned[b] for b in rest.brokers.ids} == of(rest)
    assert changed.brokers.traffic.sum() == pytest.approx(current.brokers.traffic.sum() / 2)
    result = planned(changed).plan
    assert {load.broker for load in result.loads if load.bundles_after} == set(changed.brokers.ids)
    assert changed.registered == 4
    digests = {current.digest, rest.digest, changed.digest, with_brokers(rest, ["c-1", "a-1"]).digest}
    assert len(digests) == 4


def test_policies_count_by_the_name_it_is_given() -> None:
    """A namespace bound to brokers of a name goes to an added one only if that is its name."""
    current = snapshot(
        [report("gold-1:8080", {bundle_name(n, "t/gold"): 0.1 for n in range(6)}), report("b1:8080", {})]
    )
    bound = Policies(isolation=(IsolationPolicy(name="p", namespaces=("t/gold",), primary=("gold-.*",)),))
    assert not planned(with_brokers(current, ["new-1"]), bound).plan.moves
    moves = planned(with_brokers(current, ["gold-2"]), bound).plan.moves
    assert moves and {move.target for move in moves} == {"gold-2"}


def test_hits_are_counted_from_cycle_to_cycle() -> None:
    """Every cycle has newer reports than the one before, so that a strategy that waits for hits gets them."""
    params = Parameters(statistics_interval_seconds=1.0, host_usage_interval_seconds=1.0)
    plan_input = PlanInput(snapshot=snapshot(cluster([[0.1] * 6, []])), params=params)
    first = plan(plan_input)
    assert not first.plan.moves and first.plan.verdict.code is Code.HIT_COUNT
    finished_run = finish(plan_input, first, interval_seconds=2.0, eta=float)
    assert finished_run.complete and (finished_run.moves, finished_run.cycles, finished_run.seconds) == (3, 2, 5.0)
    assert finished_run.max_mean == pytest.approx(1.0)


def test_removed_brokers_leave_by_policy() -> None:
    free, bound = bundle_name(0, "t/free"), bundle_name(1, "t/bound")
    current = snapshot([report("b1", {free: 0.1, bound: 0.2}), report("b2", {}), report("gold", {})])
    gold = IsolationPolicy(name="gold", namespaces=("t/gold",), primary=("gold",))
    rest, homeless = without_brokers(current, ["b1"], Parameters(), Policies(isolation=(gold,)))
    assert of(rest) == {"b2": {free, bound}, "gold": set()} and not homeless
    only = IsolationPolicy(name="only", namespaces=("t/bound",), primary=("b1",))
    rest, homeless = without_brokers(current, ["b1"], Parameters(), Policies(isolation=(gold, only)))
    assert of(rest) == {"b2": {free}, "gold": set()}
    assert [(item.code, item.bundle, item.broker) for item in homeless] == [(Code.POLICY_FORBIDS, bound, "b1")]
    assert rest.brokers.traffic.sum() == pytest.approx(current.brokers.traffic.sum() / 3)
    _, homeless = without_brokers(current, ["b1"], Parameters(), Policies(unknown="the store is away"))
    assert {item.code for item in homeless} == {Code.POLICY_UNREADABLE} and len(homeless) == 2


def moved(bundle: str, source: str, target: str, share: float) -> LedgerEntry:
    """A move that landed a moment ago and is in neither report yet."""
    load = traffic(share)
    pressure = (100 * share, 0.0, 0.0, 0.0, load[2], load[3])
    return LedgerEntry(
        bundle=bundle, source=source, target=target, opened_ms=NOW_MS, landed_ms=NOW_MS, traffic=load, pressure=pressure
    )


@pytest.mark.parametrize("message", ["by the source", "by the target", "by neither"])
def test_every_bundle_counts_while_moves_are_unsettled(message: str) -> None:
    """Whatever the reports show of a move so far, its bundle is at one broker; removed brokers take nothing with
    them."""
    names = [bundle_name(number) for number in range(6)]
    moving = dict.fromkeys(names[:3], 0.1)
    reports = [
        report("b1", moving if message == "by the source" else {}),
        report("b2", dict.fromkeys(names[3:], 0.1) | (moving if message == "by the target" else {})),
        report("b3", {}),
    ]
    current = snapshot(reports)
    entries = tuple(moved(name, "b1", "b2", 0.1) for name in names[:3])
    at_rest = landed(current, Ledger(entries=entries), Parameters(), CpuCosts())
    assert of(at_rest) == {"b1": set(), "b2": set(names), "b3": set()}
    whole = 6 * sum(traffic(0.1))
    assert at_rest.brokers.traffic.sum() == pytest.approx(whole)
    rest, _ = without_brokers(at_rest, ["b2"], Parameters(), Policies())
    assert len(of(rest)["b1"]) == len(of(rest)["b3"]) == 3
    assert rest.brokers.traffic.sum() == pytest.approx(whole)
    split = replace(moved("t/ns/0x00000000_0x00000001", "b1", "b2", 0.1), traffic=(0.0,) * 4)
    assert landed(current, Ledger(entries=(split,)), Parameters(), CpuCosts()) is current


@pytest.mark.parametrize(("strategy", "score"), [("avg", True), ("uniform", False)])
def test_it_ends_by_what_the_strategy_evens_out(strategy: str, score: bool) -> None:
    """A broker of twice the CPU carries twice as much by score, and as much as the other by throughput."""
    sizes = {"b1:8080": 200.0, "b2:8080": 100.0}
    reports = [
        report(
            name, {bundle_name(12 * row + n): 0.05 for n in range(12)}, limit=np.array([size, 1024.0, -1000.0, -1000.0])
        )
        for row, (name, size) in enumerate(sizes.items())
    ]
    plan_input = PlanInput(snapshot=snapshot(reports), params=Parameters(**EAGER, strategy=strategy))
    finished_run = finish(plan_input, plan(plan_input), interval_seconds=2.0, eta=float)
    assert (finished_run.moves > 0, finished_run.max_mean == pytest.approx(1.0)) == (score, True)


def test_each_broker_keeps_its_own_interval() -> None:
    """Rule: brokers that are added or removed do not shift the intervals of the others, and plans can be made."""
    reports = [replace(item, interval_ms=1000 * place) for place, item in enumerate(cluster([[0.2], [0.3], [0.4]]), 1)]
    current = snapshot(reports)
    more = with_brokers(current, ["a-first:8080", "b0000x:8080"])
    fewer, _ = without_brokers(current, ["b0000:8080"], Parameters(), Policies())
    for changed in (more, fewer):
        remaining = {name: changed.interval_ms(row) for row, name in enumerate(changed.brokers.ids)}
        assert remaining.items() >= {"b0001:8080": 2000, "b0002:8080": 3000}.items()
        assert len(changed.intervals) == len(changed.brokers)
        assert plan(PlanInput(snapshot=changed, params=Parameters())).plan.verdict
