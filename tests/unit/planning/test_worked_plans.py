"""Explanations of a plan, word by word: why each broker and bundle stays or moves, with the values before and after.

There is one cluster for each situation of each strategy (brokers, parameters, and more of the input). worked_plans.txt
contains the words: `b0` is a broker, `#0` a bundle, scores are in percent, `or` names the next best target.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bundlekeel.model.load import BrokerReport
from bundlekeel.model.parameter_table import STRATEGIES
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import Plan
from bundlekeel.model.policies import IsolationPolicy, Policies
from bundlekeel.planning.engine import PlanInput, plan
from bundlekeel.planning.guard.state import GuardState, RecentMove
from bundlekeel.planning.memory import StrategyMemory
from tests.support.builders import EAGER, NOW_MS, broker, bundle_name, cluster, report, snapshot


def sized(loads: Sequence[Sequence[float]], *percents: float) -> list[BrokerReport]:
    created, number = [], 0
    for row, (shares, percent) in enumerate(zip(loads, percents, strict=True)):
        names = {bundle_name(number + place): share for place, share in enumerate(shares)}
        number += len(shares)
        created.append(report(broker(row), names, limit=np.array([percent, 1024.0, -1000.0, -1000.0])))
    return created


def planned(case: str) -> Plan:
    """The whole plan at once, unless the case's parameters say otherwise; its first word may name the strategy."""
    reports, params, more = (*CASES[case], {}, {})[:3]
    word = case.partition(" ")[0]
    options = dict(EAGER) | ({"strategy": word} if word in STRATEGIES else {}) | params
    return plan(PlanInput(snapshot=snapshot(reports), params=Parameters(**options), **more)).plan


def short(name: str) -> str:
    """A broker by its number, a bundle by its own."""
    return f"#{int(name.rpartition('/')[2][2:6], 16)}" if "/" in name else name[:1] + name[4:5]


def story(result: Plan) -> list[str]:
    """Verdicts, moves and refusals as lines; refusals that only differ in the bundle share one."""
    lines = [f"{result.verdict.code}: {result.verdict.sentence}"]
    lines += [f"{short(output.broker)} {output.code}: {output.sentence}" for output in result.brokers]
    for move in result.moves:
        sides = (
            (move.source, move.source_before, move.source_after),
            (move.target, move.target_before, move.target_after),
        )
        way = ", ".join(f"{short(name)} {100 * before:.1f} -> {100 * after:.1f}" for name, before, after in sides)
        lines.append(
            f"{short(move.bundle)}: {way} ({move.rule} {move.threshold:.4g}) or {short(move.runner_up)}".strip()
        )
    why: dict[str, list[str]] = {}
    for item in result.refusals:
        why.setdefault(f"{short(item.broker)} {item.code} {item.detail}".strip(), []).append(short(item.bundle))
    return lines + [f"{' '.join(names)} {reason}".strip() for reason, names in why.items()]


ONLY = Policies(isolation=(IsolationPolicy(name="p", namespaces=("t/ns",), primary=("b000[01]",)),))
# The bundle that should leave would lift its target to 84.5 %, and to 85 %.
NEARLY_FULL = [[0.15] * 6, [0.695], [0.72]]
FULL = [[0.15] * 6, [0.7], [0.72]]
CASES: dict[str, tuple[Any, ...]] = {
    "avg waits": (cluster([[0.2] * 4, [0.1], [0.1, 0.15]]), {"move_price": 50}),
    "avg far apart": (cluster([[0.2] * 4, [0.1], [0.1, 0.15]]),),
    "avg balanced": (cluster([[0.2, 0.2], [0.39]]),),
    "avg swaps": (cluster([[0.4, 0.4], [0.03] * 10]),),
    "avg swaps no more than half": (cluster([[0.4, 0.4], [0.2, 0.2]]), {"max_moves_per_cycle": 1}),
    "avg finds all too big or full": (cluster([[0.9, 0.05, 0.001], [0.84], [0.02]]),),
    "avg below what an operator set": (
        cluster([[0.2, 0.2, 0.001], []]),
        {"min_unload_message_rate": 50000.0, "min_unload_throughput": 1000000000.0},
    ),
    "avg gives a quarter": (cluster([[0.1, 0.1], [0.3], [0.2, 0.2, 0.2]]), {"max_unload_ratio": 0.25}),
    "avg among unequal brokers": (sized([[0.1] * 6, [0.01], [0.02], []], 100, 20, 50, 400),),
    "avg keeps to policies": (cluster([[0.2] * 3, [0.1], []]), {}, {"policies": ONLY}),
    "avg makes room": (cluster([[0.42, 0.32], *[[0.1, 0.1, 0.16, 0.2]] * 3]),),
    "avg within budgets": (cluster([[0.2] * 4, [0.1], [0.1, 0.15]]), {"max_moves_per_cycle": 1}),
    "threshold": (cluster([[0.1] * 7 + [0.001], [0.1] * 3, [0.1]]),),
    "threshold leaves a cold broker": (cluster([[0.11] * 4, [0.11] * 4, [0.11] * 4, [0.1]]),),
    "threshold with the lower boundary": (
        cluster([[0.11] * 4, [0.11] * 4, [0.11] * 4, [0.1]]),
        {"lower_boundary_shedding": True},
    ),
    "threshold below what an operator set": (
        cluster([[0.8], [0.05] * 13, [0.1], [0.1]]),
        {"min_unload_throughput_mb": 40.0},
    ),
    "threshold never above its own line": (cluster([[0.16] * 5, [0.1] * 5, [0.1] * 3]),),
    "overload": (cluster([[0.1] * 9 + [0.001], [0.15] * 6, [0.1, 0.2], [0.3]]),),
    "overload everywhere": (cluster([[0.1] * 9, [0.1] * 8, [0.4, 0.4]]),),
    "overload by one bundle": (cluster([[0.45, 0.45], [0.4], [0.75]]),),
    "overload round robin": (
        cluster([[0.06] * 15, [0.1], [0.1], [0.1]]),
        {"placement": "round_robin"},
        {"memory": StrategyMemory(turn=2)},
    ),
    "overload by long-term rate": (
        cluster([[0.06] * 15, [0.1], [0.05], [0.1]]),
        {"placement": "least_long_term_message_rate"},
    ),
    "deviation": (cluster([[0.1] * 6 + [0.001], [0.05] * 4, [0.05] * 3, [0.05] * 4, [0.3]]),),
    "deviation of one bundle": (cluster([[0.8], [0.05] * 9, [0.05], [0.05]]), {"deviation_threshold": 0.5}),
    "deviation tries five targets": (sized([[0.1] * 6, [], [], [], [], [], []], 100, 10, 11, 12, 13, 100, 14),),
    "deviation of noise": (cluster([[0.1] * 4 + [0.005], [0.1] * 4, [0.1] * 4]),),
    "uniform": (cluster([[0.05, 0.1, 0.15, 0.2, 0.0001], [0.05], [0.1]]),),
    "uniform takes no more than allowed": (
        cluster([[0.05] * 8, [0.01]]),
        {"max_unload_bundles": 2, "uniform_max_unload_ratio": 0.5},
    ),
    "uniform finds no gain": (sized([[0.02] * 10, [0.02]], 400, 20),),
    "uniform below what an operator set": (
        cluster([[0.1] * 3, [0.1]]),
        {"min_unload_message_rate": 1000000.0, "min_unload_throughput": 1000000000.0},
    ),
    "uniform with one bundle": (cluster([[0.3], [0.1]]),),
    "transfer": (cluster([[0.2] * 4, [0.05] * 2, [0.1] * 4, [0.1] * 6]), {"transfer_target_std": 0.05}),
    "transfer swaps": (cluster([[0.4, 0.4], [0.2, 0.2]]), {"transfer_target_std": 0.05}),
    "transfer waits": (cluster([[0.2] * 4, [0.05] * 2, [0.1] * 4]), {"move_price": 50}),
    "transfer fills an idle broker": (cluster([[0.1] * 3, [0.1] * 3, [0.01]]),),
    "transfer holds two brokers": (
        [
            *cluster([[0.2] * 4, [0.05] * 2]),
            report(broker(2), {bundle_name(20): 0.9}, last_update=NOW_MS - 3_600_000),
            report(broker(3), {bundle_name(21): 0.1, bundle_name(22): 0.6}),
        ],
        {"transfer_target_std": 0.05},
        {"guard": GuardState(recent={bundle_name(21): RecentMove(at_ms=NOW_MS - 5000, source="b9:8080")})},
    ),
    "transfer goes on to the next giver": (cluster([[0.9], [0.5, 0.3], [0.05]]), {"transfer_target_std": 0.02}),
    "transfer goes on to the next taker": (sized([[0.2] * 4, [], [], [0.1]], 100, 20, 100, 100),),
    "what may not move": (
        [
            report(
                broker(0),
                {
                    bundle_name(0): 0.3,
                    bundle_name(1): 0.0,
                    bundle_name(2, "x/c"): 0.2,
                    bundle_name(3): 0.2,
                    bundle_name(4, "pulsar/system"): 0.1,
                },
            ),
            report(broker(1), {}),
        ],
        {"excluded_namespaces": ("x/c",)},
        {"guard": GuardState(recent={bundle_name(3): RecentMove(at_ms=NOW_MS - 1000, source="b")})},
    ),
    "avg ends what it has begun": (
        cluster([[0.2] * 3, [0.43], [0.2]]),
        {},
        {"memory": StrategyMemory(active=(broker(1),))},
    ),
    "overload by more than needed": (cluster([[0.3] * 3, [0.5], [0.52]]),),
    "overload by more than helps": (cluster([[0.3] * 3, [0.51], [0.52]]),),
    "overload to a small broker": (sized([[0.3] * 3, []], 100, 40),),
    "overload to a large broker": (sized([[0.9, 0.00001], []], 100, 400),),
    "overload to unequal brokers": (sized([[0.35, 0.3, 0.25], [], [0.2]], 100, 50, 400),),
    "held while a broker restarts": (
        cluster([[0.1] * 10, [0.1] * 5, [], [], []]),
        {},
        {"guard": GuardState(changed_brokers={broker(2): NOW_MS - 1000})},
    ),
    "avg to just below the limit": (cluster(NEARLY_FULL),),
    "avg not to the limit": (cluster(FULL),),
    "threshold to just below the limit": (cluster(NEARLY_FULL),),
    "threshold not to the limit": (cluster(FULL),),
    "deviation to just below the limit": (cluster(NEARLY_FULL),),
    "deviation not to the limit": (cluster(FULL),),
    "transfer to just below the limit": (cluster(NEARLY_FULL), {"transfer_target_std": 0.02}),
    "transfer not to the limit": (cluster(FULL), {"transfer_target_std": 0.02}),
    "uniform to just below the limit": (
        cluster(NEARLY_FULL),
        {"throughput_multiple": 1.1, "uniform_max_unload_ratio": 1.0},
    ),
    "uniform not above the limit": (
        cluster([[0.16] * 6, [0.7], [0.72]]),
        {"throughput_multiple": 1.1, "uniform_max_unload_ratio": 1.0},
    ),
    "avg of brokers without bundles": ([report(broker(0), {}, cpu=0.8), report(broker(1), {})],),
    "transfer without load data": (cluster([[0.2] * 4, [0.1]], last_update=NOW_MS - 3_600_000),),
    "transfer waits for reports": (
        cluster([[0.2] * 4, [0.1], [0.1]]),
        {},
        {"guard": GuardState(recent_brokers={broker(0): NOW_MS - 1000, broker(1): NOW_MS - 1000})},
    ),
    "transfer has one broker left": (
        [*cluster([[0.2] * 4, [0.1]]), report(broker(2), {bundle_name(20): 0.1}, last_update=NOW_MS - 3_600_000)],
        {},
        {"guard": GuardState(recent_brokers={broker(0): NOW_MS - 1000})},
    ),
    "transfer knows two old reports": (
        [
            *cluster([[0.2] * 4]),
            *(report(broker(row), {bundle_name(20 + row): 0.1}, last_update=NOW_MS - 3_600_000) for row in (1, 2)),
        ],
    ),
    "one move of an anti-affinity group": (
        [
            report(
                broker(0),
                {
                    bundle_name(0, "t/a"): 0.2,
                    bundle_name(1, "t/b"): 0.2,
                    bundle_name(2, "t/c"): 0.1,
                    bundle_name(3, "t/c"): 0.1,
                },
            ),
            report(broker(1), {bundle_name(9): 0.05}),
        ],
        {},
        {"policies": Policies(anti_affinity={"t/a": "g", "t/b": "g"})},
    ),
    "uniform below a message rate": (cluster([[0.1] * 3, [0.1]]), {"min_unload_message_rate": 4001.0}),
    "uniform at a message rate": (cluster([[0.1] * 3, [0.1]]), {"min_unload_message_rate": 4000.0}),
    "uniform below a throughput": (
        cluster(NEARLY_FULL),
        {"throughput_multiple": 1.1, "min_unload_throughput": 100000000.0},
    ),
    "deviation of two brokers": (cluster([[0.1] * 8, [0.1]]),),
    "transfer at its deviation": (cluster([[0.3, 0.3], [0.2]]), {"transfer_target_std": 0.2}),
    "transfer at its lower limit": (
        [
            report(broker(0), {bundle_name(0): 0.6, bundle_name(1): 0.1}, cpu=0.1),
            report(broker(1), {bundle_name(2): 0.5}, cpu=0.7),
        ],
        {"transfer_target_std": 0.5},
    ),
    "transfer at its upper limit": (cluster([[0.17] * 5, [0.75]]), {"transfer_target_std": 0.05}),
    "transfer above its upper limit": (cluster([[0.15] * 6, [0.7], [0.74], [0.76]]), {"transfer_target_std": 0.1}),
    "threshold takes what is needed": (
        cluster([[0.05] * 10, [0.44], [0.26]]),
        {"placement": "round_robin"},
        {"memory": StrategyMemory(turn=1)},
    ),
    "threshold at its limit": (cluster([[0.1] * 5, [0.15] * 3, [0.05] * 5]),),
    "uniform at its rate": (cluster([[0.05] * 3, [0.1]]),),
    "uniform at its throughput": (
        cluster([[0.1] * 4, [0.1]]),
        {"msg_rate_difference_percent": 0, "throughput_multiple": 4.0},
    ),
    "uniform above its throughput": (
        cluster([[0.1] * 4, [0.09]]),
        {"msg_rate_difference_percent": 0, "throughput_multiple": 4.0},
    ),
    "uniform without limits": (
        cluster([[0.1] * 4, [0.09]]),
        {"msg_rate_difference_percent": 0, "throughput_multiple": 0.0},
    ),
    "uniform with what just fits": (cluster([[0.1] * 3, [0.1]]), {"uniform_max_unload_ratio": 0.5}),
    "uniform with no bundle allowed": (
        cluster([[0.1] * 3, [0.1]]),
        {"uniform_max_unload_ratio": 0.5, "max_unload_bundles": 0},
    ),
    "uniform to the limit": (cluster(FULL), {"throughput_multiple": 1.1, "uniform_max_unload_ratio": 1.0}),
    "uniform that would only exchange two": (cluster([[0.2, 0.2], [0.2]]), {"uniform_max_unload_ratio": 1.0}),
    "avg at the low threshold": (cluster([[0.43], [0.37]]), {"move_price": 50}),
    "avg at the minimum of an operator": (cluster([[0.2, 0.2], []]), {"min_unload_message_rate": 20000.0}),
    "threshold has nothing for a cold broker": (
        cluster([[0.4], [0.4], [0.4], [0.1]]),
        {"lower_boundary_shedding": True},
    ),
    "threshold up to its own line": (cluster([[0.25, 0.25, 0.3], [0.35], [0.35]]),),
    "avg swaps the smallest that is too big": (
        cluster([[0.35, 0.32, 0.18], [0.045] * 10]),
        {},
        {"guard": GuardState(frozen=frozenset((bundle_name(2),)))},
    ),
    "avg swaps nothing that goes above the limit": (cluster([[0.42, 0.48], [0.045] * 10]),),
    "avg swaps for none that just left": (
        cluster([[0.4, 0.4], [0.03] * 10]),
        {},
        {
            "guard": GuardState(
                recent={
                    bundle_name(number): RecentMove(at_ms=NOW_MS - 2_400_000, source=broker(0))
                    for number in range(2, 12)
                }
            )
        },
    ),
    "transfer at its upper limit and far above the mean": (
        cluster([[0.17] * 5, [0.75], [0.75]]),
        {"transfer_target_std": 0.05},
    ),
    "threshold fills a cold broker up to its line": (
        cluster([[0.22, 0.22], [0.44], [0.44], [0.1]]),
        {"lower_boundary_shedding": True},
    ),
    "transfer swaps for more than half of what is left": (
        cluster([[0.12, 0.4, 0.28], [0.05, 0.05]]),
        {"transfer_target_std": 0.05},
        {"guard": GuardState(frozen=frozenset((bundle_name(2),)))},
    ),
    "threshold at its lower limit": (cluster([[0.55], [0.55], [0.4], [0.5]]), {"lower_boundary_shedding": True}),
}

TOLD = dict(part.split("\n", 1) for part in Path(__file__).with_name("worked_plans.txt").read_text().split("== ")[1:])


def test_each_case_has_its_words() -> None:
    """Rule: absent cases are not reported."""
    assert TOLD.keys() == CASES.keys()


@pytest.mark.parametrize("case", CASES)
def test_a_plan_tells_what_it_does_and_why(case: str) -> None:
    """Rule: every broker and bundle has its reason, and every figure is the one that decided."""
    assert story(planned(case)) == TOLD[case].strip().split("\n")
