"""Random small clusters by number, for plans whose texts are compared. Loads are multiples of a step, so that some
equal a limit exactly.

`random.Random` gives the same numbers on every release of Python and numpy.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np

from bundlekeel.model.capacity import CapacityOverride
from bundlekeel.model.load import BrokerReport, ExcludedBroker
from bundlekeel.model.parameter_table import PLACEMENTS, STRATEGIES
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.policies import IsolationPolicy, Policies
from bundlekeel.model.snapshot import Snapshot
from bundlekeel.planning.costs import BrokerEvidence, CpuCosts
from bundlekeel.planning.engine import PlanInput, plan
from bundlekeel.planning.guard.state import BegunMove, GuardState, RecentMove
from bundlekeel.planning.ledger import Ledger, landed, open_entries
from bundlekeel.planning.memory import BrokerCourse, Excess, StrategyMemory, Swing
from tests.support.builders import BLIND_NIC, EAGER, MINUTE, NOW_MS, broker, bundle_name, report, snapshot

SHARES = (0.0001, 0.01, 0.02, 0.05, 0.05, 0.1, 0.1, 0.15, 0.2, 0.2, 0.3, 0.4, 0.6, 0.8)
NAMESPACES = ("t/a", "t/a", "t/a", "t/b", "t/c", "u/d", "pulsar/system")
OVERRIDES = (
    CapacityOverride(pattern="*", throughput=60e6, ignore=("cpu",)),
    CapacityOverride(pattern="b0001*", cores=2.0, nic_gbps=0.4),
)
# Parameters that some clusters change, with the values to choose from.
SOMETIMES: dict[str, tuple[Any, ...]] = {
    "overloaded_threshold_percent": (30.0, 50.0, 60.0, 100.0),
    "cpu_weight": (0.0, 0.5),
    "direct_memory_weight": (1.0,),
    "history_weight": (0.0, 0.5),
    "threshold_percent": (0.0, 5.0, 20.0),
    "lower_boundary_shedding": (True,),
    "avg_low_threshold_percent": (5.0, 40.0),
    "move_price": (20.0, 200.0),
    "swing_worth": (100.0,),
    "max_unload_ratio": (0.25, 1.0),
    "uniform_max_unload_ratio": (0.1, 0.5, 1.0),
    "msg_rate_difference_percent": (0.0, 100.0),
    "throughput_multiple": (0.0, 1.2, 2.0),
    "max_unload_bundles": (1, 2),
    "transfer_target_std": (0.02, 0.05, 0.1),
    "transfer_max_brokers": (1, 2),
    "bundles_with_policies": (True,),
    "deviation_threshold": (0.5, 1.5),
    "max_topics_per_broker": (4, 6),
    "min_unload_share": (0.0, 0.3),
    "min_unload_message_rate": (5000.0, 20000.0),
    "min_unload_throughput": (5e6, 20e6),
    "max_moves_per_cycle": (1, 2, 3),
    "max_moves_per_source": (1,),
    "max_moves_per_target": (1,),
    "max_moves_per_namespace": (1,),
    "max_moves_per_tenant": (1, 2),
    "max_moves_per_hour": (2, 3),
    "max_traffic_share_per_cycle": (0.2, 0.5),
    "excluded_namespaces": (("t/b",),),
    "excluded_brokers": (("b0001*",),),
    "included_namespaces": (("t/*",),),
    "load_data_ttl_seconds": (60.0,),
}


def drawn(number: int) -> PlanInput:
    """Return the input of `plan()` with this number."""
    chance = Random(number)
    mode = chance.choice(("modular", "modular", "extensible"))
    reports = _reports(chance)
    aside = chance.random() < 0.1 and len(reports) > 2
    excluded = [ExcludedBroker(broker_id=reports.pop().broker_id, code="Drained")] if aside else []
    capacity = [chance.choice(OVERRIDES)] if chance.random() < 0.2 else []
    drawn_snapshot = snapshot(reports, mode=mode, excluded=excluded, capacity=capacity)
    params = _params(chance)
    plan_input = PlanInput(
        snapshot=drawn_snapshot,
        params=params,
        memory=_memory(chance, drawn_snapshot),
        guard=_guard(chance, drawn_snapshot) if chance.random() < 0.5 else GuardState(),
        policies=_policies(chance) if chance.random() < 0.4 else Policies(),
        seed=number,
    )
    return _with_books(chance, plan_input, reports) if chance.random() < 0.3 else plan_input


def _reports(chance: Random) -> list[BrokerReport]:
    reports, equal = [], chance.random() < 0.6
    for row in range(chance.randrange(2, 6)):
        most = chance.choice((0.1, 0.2, 1.0))
        shares = [share for share in SHARES if share <= most]
        loads = {
            bundle_name(20 * row + place, chance.choice(NAMESPACES)): chance.choice(shares)
            for place in range(chance.choice((0, 1, 2, 3, 4, 6, 8)))
        }
        busy = min(1.0, sum(loads.values()))
        cores = 100.0 if equal else chance.choice((50.0, 100.0, 400.0))
        changes: dict[str, Any] = {
            "cpu": busy + chance.choice((0.0, 0.0, 0.0, 0.05)),
            "limit": np.array([cores, 1024.0, *[chance.choice((BLIND_NIC, BLIND_NIC, 800e3))] * 2]),
            "last_update": NOW_MS - chance.choice((0, 0, 1000, 30_000, MINUTE, 300_000)),
            "load_manager": chance.choice(("", "", "", "M", "M2")),
            "version": chance.choice(("", "4.0.1", "4.0.1", "4.2.0")),
            "persistent_topics_enabled": chance.random() > 0.05,
        }
        reports.append(report(broker(row), loads, **changes))
    return reports


def _params(chance: Random) -> Parameters:
    values: dict[str, Any] = {"strategy": chance.choice(STRATEGIES), "placement": chance.choice(PLACEMENTS)}
    if chance.random() < 0.8:
        values |= {
            **EAGER,
            "transfer_hit_count": 0,
            "move_price": 0,
            "transfer_target_std": 0.1,
            "msg_rate_difference_percent": 20.0,
        }
    return Parameters(**values | {name: chance.choice(SOMETIMES[name]) for name in SOMETIMES if chance.random() < 0.12})


def _memory(chance: Random, cluster: Snapshot) -> StrategyMemory:
    ids = cluster.brokers.ids
    some = [name for name in ids if chance.random() < 0.4]
    courses = {
        name: BrokerCourse(
            level=chance.choice((0.1, 0.3, 0.5, 0.9)),
            until_ms=NOW_MS - chance.choice((0, 30_000, 120_000)),
            seconds=chance.choice((0.0, 15.0, 60.0)),
            readings=chance.choice(((), ((0.3, 15.0), (0.31, 15.0), (0.29, 15.0), (0.3, 15.0)))),
            excess=Excess(
                side=chance.choice(("hot", "cold")),
                since_ms=NOW_MS - chance.choice((30_000, 300_000)),
                seconds=chance.choice((30.0, 300.0)),
                cost=chance.choice((10.0, 300.0)),
                rate=1.0,
                readings=chance.randrange(1, 3),
            ),
            swing=chance.choice((None, Swing(seconds=300.0, rate=2.0, at_ms=NOW_MS - 600_000))),
        )
        for name in some
    }
    return StrategyMemory(
        courses=courses,
        active=tuple(name for name in some if chance.random() < 0.3),
        turn=chance.randrange(4),
        costs=CpuCosts(brokers={name: BrokerEvidence(idle=5.0) for name in ids if chance.random() < 0.1}),
    )


def _guard(chance: Random, cluster: Snapshot) -> GuardState:
    names, ids = list(cluster.bundles.names), list(cluster.brokers.ids)

    def some(share: float, bundle_names: list[str]) -> list[str]:
        return [name for name in bundle_names if chance.random() < share]

    def ago(*choices: int) -> int:
        return NOW_MS - chance.choice(choices)

    def pair() -> tuple[str, str]:
        return chance.choice(ids), chance.choice(ids)

    return GuardState(
        recent={
            name: RecentMove(at_ms=ago(1000, 1_800_000, 2_400_000, 3_600_000, 3_700_000), source=chance.choice(ids))
            for name in some(0.2, names)
        },
        recent_brokers={name: ago(1000, 120_000, 300_000) for name in some(0.1, ids)},
        frozen=frozenset(some(0.05, names)),
        pinned={name: chance.choice((0, NOW_MS, NOW_MS + 1)) for name in some(0.1, names)},
        last_hour=tuple(
            BegunMove(bundle=name, source=pair()[0], target=pair()[1], at_ms=ago(1000, 3_599_999, 3_600_000), share=0.1)
            for name in some(0.1, names)
        ),
        cordoned=frozenset(some(0.1, ids)),
        warming=frozenset(some(0.05, ids)),
        draining=frozenset(some(0.05, ids)),
        excluded={
            pattern: chance.choice((0, NOW_MS, NOW_MS + 1))
            for pattern in some(
                0.04, [*(f"b:{name}" for name in names), *(f"r:{name}" for name in ids), "n:t/*", "t:u"]
            )
        },
        changed_brokers={name: ago(1000, MINUTE, 120_000) for name in some(0.1, ids)},
        quarantined={pair(): chance.choice((NOW_MS, NOW_MS + 5000)) for _ in range(chance.choice((0, 0, 1, 2)))},
        rate=chance.choice((None, None, None, None, 0, 1, 2)),
        relief_until=chance.choice((None, None, None, None, None, 0, NOW_MS + 5000)),
        limited=frozenset(some(0.05, names)),
    )


def _policies(chance: Random) -> Policies:
    hosts = ("b000[01]", "b000[12]", "b0000", ".*[03]", "(", "b0009")
    isolation = tuple(
        IsolationPolicy(
            name=f"p{place}",
            namespaces=(chance.choice(("t/a", "t/.*", "t/b", "u/d")),),
            primary=(chance.choice(hosts),),
            secondary=chance.choice(((), ("b000[23]",), (".*",))),
            min_limit=chance.randrange(3),
        )
        for place in range(chance.choice((0, 1, 1, 2)))
    )
    return Policies(
        isolation=isolation,
        anti_affinity=chance.choice(({}, {"t/a": "g", "t/b": "g"}, {"t/a": "g", "u/d": "g", "t/b": "h", "t/c": "h"})),
        failure_domains={"east": (broker(0), broker(1)), "west": (broker(2), broker(3))},
        failure_domains_enabled=chance.random() < 0.5,
        distribute_evenly=chance.random() < 0.5,
        prefer_later_versions=chance.random() < 0.5,
        load_manager=chance.choice(("", "M")),
        unreadable=frozenset(("t/c",)) if chance.random() < 0.1 else frozenset(),
        unknown="not read" if chance.random() < 0.03 else "",
    )


def _with_books(chance: Random, plan_input: PlanInput, reports: list[BrokerReport]) -> PlanInput:
    """Return the input after a first plan: its moves are in the ledger (moves that reports do not show yet), some have
    ended, and some brokers have reported since."""
    moves = plan(plan_input).plan.moves
    ledger = open_entries(Ledger(), moves, plan_input.snapshot, NOW_MS - 1000)
    for move in moves:
        if chance.random() < 0.6:
            ledger = landed(ledger, move.bundle, move.target, NOW_MS + 5000)
    at = NOW_MS + chance.choice((5000, 100_000, 400_000))
    parts = {name: getattr(plan_input, name) for name in ("params", "memory", "guard", "policies", "seed")}
    later = [
        replace(item, last_update=at - chance.choice((0, 1000))) if chance.random() < 0.6 else item for item in reports
    ]
    return PlanInput(snapshot=snapshot(later, wall_ms=at, mode=plan_input.snapshot.mode), ledger=ledger, **parts)
