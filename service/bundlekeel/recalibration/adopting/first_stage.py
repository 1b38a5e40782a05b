"""Measure the namespaces that try adopted thresholds first, and all other namespaces. Pure."""

from __future__ import annotations

import numpy as np

from bundlekeel.model.load import THROUGHPUT_IN, THROUGHPUT_OUT
from bundlekeel.model.names import namespace_of
from bundlekeel.model.plan import Plan
from bundlekeel.planning.engine import PlanInput
from bundlekeel.planning.relocation import NOT_FOR_BALANCE
from bundlekeel.recalibration.rules.adoption import StageCycle


def measure_stage(plan_input: PlanInput, plan: Plan, since_ms: int, landed: int) -> StageCycle | None:
    """Return the results of one cycle in the first stage of the adoption at `since_ms`.

    `landed`: number of moves that arrived, of all namespaces. None if the cluster has no load.
    """
    bundles, trial = plan_input.snapshot.bundles, plan_input.trial
    names = trial.names(bundles, plan_input.params) if trial is not None else ()
    inside = np.isin(bundles.namespaces, names)[bundles.namespace]
    traffic = bundles.short[:, THROUGHPUT_IN] + bundles.short[:, THROUGHPUT_OUT]
    part, whole, mean = float(traffic[inside].sum()), float(traffic.sum()), plan.mean_of("score_before")
    if whole <= 0 or mean <= 0:
        return None
    excess = np.array([load.score_before for load in plan.loads])[bundles.owner] / mean - 1
    moves = sum(move.rule not in NOT_FOR_BALANCE and namespace_of(move.bundle) in names for move in plan.moves)
    return StageCycle(
        since_ms=since_ms,
        share=part / whole,
        imbalance=float(np.average(excess[inside], weights=traffic[inside])) if part else 0.0,
        other_imbalance=float(np.average(excess[~inside], weights=traffic[~inside])) if part < whole else 0.0,
        moves=min(landed, moves),
    )
