"""Select the broker of an unowned bundle when a client looks it up (as Pulsar's `selectBrokerForAssignment`).

Only the brokers that own the fewest bundles of the namespace are considered. The placement (`settings.lookup`) selects
one of them.
"""

from __future__ import annotations

import numpy as np

from bundlekeel.model.load import CPU, RATE_IN, RATE_OUT, BrokerReport, Ints
from bundlekeel.simulator.scenario import ScenarioSettings

# LeastResourceUsageWithWeight prefers brokers this far below the average.
BELOW_AVERAGE = 0.10
OVERLOADED = 85.0


def choose(
    candidates: Ints,
    in_namespace: Ints,
    reports: list[BrokerReport | None],
    settings: ScenarioSettings,
    rng: np.random.Generator,
) -> int:
    """Return the broker that gets a bundle. `in_namespace`: number of bundles of its namespace on each candidate.

    `rng` draws one of several equal brokers, as real brokers do.
    """
    if settings.evenly:
        candidates = candidates[in_namespace == in_namespace.min()]
    if settings.lookup == "least_long_term_message_rate":
        score = np.array([_rate(reports[broker]) for broker in candidates.tolist()])
        candidates = candidates[score == score.min()]
    elif settings.lookup == "least_resource_usage":
        # A broker with unknown load is selected only if no broker is far below the average.
        usage = np.array([_cpu(reports[broker]) for broker in candidates.tolist()])
        below = usage + BELOW_AVERAGE <= usage[~np.isnan(usage)].sum() / max(1, int((~np.isnan(usage)).sum()))
        candidates = candidates[below] if below.any() else candidates
    return int(candidates[rng.integers(0, len(candidates))])


def _rate(report: BrokerReport | None) -> float:
    if report is None:
        return 0.0
    return np.inf if report.usage[CPU] > OVERLOADED else float(report.traffic[RATE_IN] + report.traffic[RATE_OUT])


def _cpu(report: BrokerReport | None) -> float:
    return np.nan if report is None else float(report.usage[CPU]) / 100
