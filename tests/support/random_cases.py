"""Small random inputs of `plan()` by seed, with many sets and maps. Plans must be the same in every process."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np

import bundlekeel.compat.in_plan  # noqa: F401 - plans with `compat` need it, in other processes too
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.policies import IsolationPolicy, Policies
from bundlekeel.model.snapshot import Snapshot
from bundlekeel.planning.engine import PlanInput, plan
from bundlekeel.planning.guard.state import GuardState, RecentMove
from bundlekeel.planning.ledger import Ledger, landed, open_entries
from bundlekeel.planning.memory import StrategyMemory
from bundlekeel.planning.strategies import SHEDDERS
from bundlekeel.planning.strategies.placement import PLACEMENTS
from tests.support.builders import EAGER, NOW_MS, broker, bundle_name, report, snapshot

AT_ONCE: dict[str, Any] = {
    "move_price": 0,
    "avg_hit_count_low": 1,
    "avg_hit_count_high": 1,
    "transfer_hit_count": 0,
    "transfer_target_std": 0.05,
    "deviation_threshold": 0.5,
    "lower_boundary_shedding": True,
    "threshold_percent": 5.0,
}


def random_case(rng: np.random.Generator) -> PlanInput:
    """One input: two to seven brokers, Pareto loads, books, guard state, histories, policies now and then."""
    snapshot = _snapshot(rng)
    names = list(snapshot.bundles.names)
    params = Parameters(
        strategy=str(rng.choice(sorted(SHEDDERS))),
        placement=str(rng.choice(sorted(PLACEMENTS))),
        compat=str(rng.choice(["none", "none", "4.0", "4.2"])),
        bundles_with_policies=bool(rng.integers(2)),
        **(EAGER if rng.integers(2) else {}) | AT_ONCE,
    )
    some = frozenset(str(name) for name in rng.choice(names, min(4, len(names)), replace=False))
    guard = GuardState(
        recent={name: RecentMove(at_ms=NOW_MS - 1000, source="b") for name in sorted(some)[:1]},
        frozen=frozenset(sorted(some)[1:2]),
        pinned=dict.fromkeys(sorted(some)[2:], NOW_MS + 1),
    )
    plan_input = PlanInput(
        snapshot=snapshot,
        params=params,
        memory=StrategyMemory(turn=int(rng.integers(4))),
        guard=guard,
        policies=_policies(rng),
        seed=int(rng.integers(100)),
    )
    if rng.integers(3):
        return plan_input
    books = open_entries(Ledger(), plan(plan_input).plan.moves, snapshot, NOW_MS - 1000)
    for entry in books.entries[::2]:
        books = landed(books, entry.bundle, entry.target, NOW_MS - 500)
    return PlanInput(
        snapshot=snapshot,
        params=params,
        memory=plan_input.memory,
        ledger=books,
        guard=guard,
        policies=plan_input.policies,
    )


def random_plans(cases: int, seed: int) -> Iterator[str]:
    """Yield a digest of each of `cases` plans, complete to the last digit and letter."""
    rng = np.random.default_rng(seed)
    for _ in range(cases):
        yield hashlib.sha256(repr(plan(random_case(rng)).plan).encode()).hexdigest()


def _snapshot(rng: np.random.Generator) -> Snapshot:
    reports = []
    for row in range(int(rng.integers(2, 8))):
        shares = np.minimum(rng.pareto(1.5, int(rng.integers(1, 12))) / 20, 1.0) * rng.integers(0, 2)
        namespace = [f"t/{letter}" for letter in rng.choice(list("abc"), len(shares))]
        names = [bundle_name(row * 50 + number, space) for number, space in enumerate(namespace)]
        loads = {name: float(share) for name, share in zip(names, shares, strict=True)}
        busy = min(1.0, sum(loads.values()))
        reports.append(report(broker(row), loads, cpu=busy, last_update=NOW_MS - int(rng.integers(900_000))))
    return snapshot(reports)


def _policies(rng: np.random.Generator) -> Policies:
    if rng.integers(3):
        return Policies()
    keep = IsolationPolicy(name="p", namespaces=("t/a",), primary=("b000[0-3]",), secondary=("b000[45]",), min_limit=1)
    return Policies(isolation=(keep,), anti_affinity={"t/b": "g", "t/c": "g"} if rng.integers(2) else {})
