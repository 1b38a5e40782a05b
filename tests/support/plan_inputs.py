"""Inputs of `plan()` for laws, drawn by hypothesis: clusters with zero, equal and unequal loads, limits and books."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
from hypothesis import strategies as st

from bundlekeel.model.capacity import CapacityOverride
from bundlekeel.model.load import BrokerReport, ExcludedBroker
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.policies import IsolationPolicy, Policies
from bundlekeel.planning.engine import PlanInput, plan
from bundlekeel.planning.guard.state import GuardState, RecentMove
from bundlekeel.planning.ledger import landed, open_entries
from bundlekeel.planning.memory import BrokerCourse, StrategyMemory
from tests.support.builders import EAGER, NOW_MS, averages_of, broker, bundle_name, report, snapshot
from tests.support.random_cases import AT_ONCE

SYSTEM = ("pulsar/system", "pulsar/b0:8080", "sla-monitor/c/b0:8080")
OVERRIDES: list[list[CapacityOverride]] = [
    [],
    [CapacityOverride(pattern="*", throughput=60e6, ignore=("cpu",))],
    [CapacityOverride(pattern="b0*", nic_gbps=1.0, msg_rate=50e3), CapacityOverride(pattern="*", cores=2)],
    [CapacityOverride(pattern="*", ignore=("cpu", "bandwidth", "direct_memory"))],
]
DRAINED = ExcludedBroker(broker_id=broker(5), code="Drained")
# Bundles of t/a may live on the first two brokers only.
KEPT = IsolationPolicy(name="p", namespaces=("t/a",), primary=("b000[01]",))
POLICIES = (Policies(), Policies(isolation=(KEPT,)), Policies(anti_affinity={"t/a": "g", "t/b": "g"}))
shares = st.one_of(st.just(0.0), st.sampled_from([0.1, 0.2, 0.4]), st.floats(0, 1.2), st.floats(0, 1e-4))
namespaces = st.sampled_from(["t/a", "t/a", "t/b", "x/c", *SYSTEM])


@st.composite
def reports(draw: st.DrawFn) -> list[BrokerReport]:
    """0..6 brokers with 0..8 bundles each, with zero and equal loads, unequal and zero limits, and blind CPUs."""
    result, number = [], 0
    for index in range(draw(st.integers(0, 6))):
        loads = {}
        for share in draw(st.lists(shares, max_size=8)):
            loads[bundle_name(number, draw(namespaces))] = share
            number += 1
        cpu = draw(st.one_of(st.none(), st.just(0.0), st.floats(0, 1.2)))
        limit = np.array([draw(st.sampled_from([100.0, 100.0, 300.0, 0.0])), 1024.0, -1000.0, 0.0])
        when = NOW_MS + draw(st.integers(-900_000, 0))
        result.append(report(broker(index), loads, cpu=cpu, limit=limit, last_update=when))
    return result


@st.composite
def inputs(draw: st.DrawFn) -> PlanInput:
    """Everything that `plan()` reads, but strategy, placement and compat."""
    drawn = draw(reports())
    excluded = [item for item in drawn if item.broker_id == DRAINED.broker_id and draw(st.booleans())]
    drawn = [item for item in drawn if item not in excluded]
    averages = averages_of(drawn)
    for item in drawn:
        rows = dict.fromkeys(item.bundle_names, draw(st.sampled_from([0.0, 0.05, 0.1, 0.3])))
        averages.add_report(report(item.broker_id, rows, last_update=NOW_MS + 1), now_ms=NOW_MS + 1)
    view = snapshot(
        drawn, averages=averages, capacity=draw(st.sampled_from(OVERRIDES)), excluded=[DRAINED] if excluded else []
    )
    names = list(view.bundles.names)
    some = st.frozensets(st.sampled_from(names), max_size=4) if names else st.just(frozenset())
    guard = GuardState(
        recent={name: RecentMove(at_ms=NOW_MS - 1000, source="b") for name in draw(some)},
        frozen=draw(some),
        pinned=dict.fromkeys(draw(some), NOW_MS + 1),
    )
    ids = view.brokers.ids
    courses = {
        name: BrokerCourse(
            level=draw(st.floats(0, 1)), until_ms=NOW_MS - 30_000, seconds=draw(st.sampled_from([0.0, 60.0]))
        )
        for name in ids
        if draw(st.booleans())
    }
    params: dict[str, Any] = {
        **(EAGER if draw(st.booleans()) else {}),
        **AT_ONCE,
        "bundles_with_policies": draw(st.booleans()),
        "excluded_namespaces": draw(st.sampled_from([(), ("x/c",)])),
        "overloaded_threshold_percent": draw(st.sampled_from([85.0, 40.0, 100.0])),
        "lower_boundary_shedding": draw(st.booleans()),
        "max_unload_ratio": draw(st.sampled_from([0.2, 0.5, 1.0])),
    }
    memory = StrategyMemory(
        courses=courses, active=ids[:2] if draw(st.booleans()) else (), turn=draw(st.integers(0, 7))
    )
    policies = draw(st.sampled_from(POLICIES))
    return PlanInput(snapshot=view, params=Parameters(**params), memory=memory, guard=guard, policies=policies)


def with_books(plan_input: PlanInput) -> PlanInput:
    """Return the input after the moves of a first plan were added to the ledger and every other one has landed."""
    moves = plan(plan_input).plan.moves
    ledger = open_entries(plan_input.ledger, moves, plan_input.snapshot, NOW_MS - 1000)
    for move in moves[::2]:
        ledger = landed(ledger, move.bundle, move.target, NOW_MS - 500)
    values = {item.name: getattr(plan_input, item.name) for item in fields(plan_input)}
    return PlanInput(**{**values, "ledger": ledger})
