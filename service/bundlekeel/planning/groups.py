"""Run the strategy once for each group of brokers that may exchange bundles by policy, and merge the decisions.

Each run uses only the brokers of its group, so the group has its own mean, thresholds and targets. The groups share the
budgets. The group with the most loaded broker comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from bundlekeel.model.codes import Code
from bundlekeel.model.plan import GroupVerdict, Refusal, Verdict
from bundlekeel.planning import calm
from bundlekeel.planning.filters.allowed import AllowedTargets
from bundlekeel.planning.memory import BrokerCourse, StrategyMemory
from bundlekeel.planning.strategies.common import Context, Decision
from bundlekeel.planning.strategies.timing import tolerance

# At most this many brokers or groups are listed in a sentence; the others are counted.
NAMED = 3
_REST = frozenset({Code.BALANCED, Code.POLICY_FORBIDS})


def decide_groups(context: Context, limits: AllowedTargets | None, decide: Callable[[Context], Decision]) -> Decision:
    """Run `decide` for each group of brokers and merge the decisions; `compat` (Pulsar's classes) has no groups."""
    if limits is None or context.params.compat != "none":
        return decide(context)
    groups = limits.exchanging(context.snapshot.bundles)
    if len(groups) == 1:
        return decide(context)
    draft, ids = context.draft, context.snapshot.brokers.ids
    everyone, score, mean = draft.members, draft.score_before, context.mean
    decisions: list[tuple[Decision, GroupVerdict, int]] = []
    for rows in sorted(groups, key=lambda rows: -float(score[rows].max())):
        planned, names = len(draft.moves), tuple(ids[row] for row in rows.tolist())
        if len(rows) == 1:
            decision = _alone(context, int(rows[0]), mean)
        else:
            draft.narrow(np.isin(np.arange(len(ids)), rows))
            doubt = np.zeros(len(ids))
            doubt[rows] = calm.doubts(context.courses, names)
            unsettled = context.unsettled.intersection(names)
            decision = decide(
                replace(context, doubt=doubt, unsettled=unsettled, planned=planned, _mean=None, _base=None)
            )
        decisions.append((decision, GroupVerdict(names, decision.verdict), len(draft.moves) - planned))
    draft.narrow(everyone)
    return _merged(context, decisions)


def _alone(context: Context, row: int, mean: float) -> Decision:
    """Return the decision for a broker that policies do not let exchange bundles with any other.

    If the broker is above the cluster's mean, its bundles get refusals.
    """
    broker, score = context.snapshot.brokers.ids[row], float(context.draft.score_before[row])
    text = f"{score:.1%}; isolation policies let this broker exchange bundles with no other broker"
    verdict = Verdict(Code.POLICY_FORBIDS, text, broker)
    memory = StrategyMemory(courses={broker: replace(context.courses[broker], excess=None)})
    refusals = context.eligible.refusals(context.snapshot, row) if score > mean else []
    return Decision(verdict=replace(verdict, broker=""), memory=memory, brokers=[verdict], refusals=refusals)


def _merged(context: Context, decisions: Sequence[tuple[Decision, GroupVerdict, int]]) -> Decision:
    """Return one decision: the verdict of the most important group of brokers, with the codes of the others."""
    _, first, _ = max(decisions, key=lambda item: _importance(item[1].verdict, item[2]))
    others = [group for _, group, _ in decisions if group is not first]
    parts = [f"{_names(first.brokers)}: {first.verdict.sentence}"]
    parts += [f"{_names(group.brokers)}: {group.verdict.code}" for group in others[:NAMED]]
    parts += [f"and {len(others) - NAMED} more groups"] if len(others) > NAMED else []
    before, index = context.draft.score_before, context.snapshot.brokers.rows
    means = [float(before[[index[name] for name in group.brokers]].mean()) for _, group, _ in decisions]
    if first.verdict.code in _REST and max(means) - min(means) >= tolerance(context.params, context.mean):
        parts.append(f"isolation policies cause the difference of {max(means) - min(means):.1%} between these groups")
    courses, rows = dict[str, BrokerCourse](), context.snapshot.brokers.rows
    brokers, refusals = list[Verdict](), list[Refusal]()
    for decision, group, _ in decisions:
        members = frozenset(group.brokers)
        courses |= {name: item for name, item in decision.memory.courses.items() if name in members}
        brokers += [item for item in decision.brokers if item.broker in members]
        refusals += [item for item in decision.refusals if item.broker in members]
    memory = replace(
        decisions[0][0].memory,
        courses=courses,
        active=tuple(name for decision, _, _ in decisions for name in decision.memory.active),
        urgent=any(decision.memory.urgent for decision, _, _ in decisions),
    )
    return Decision(
        verdict=replace(first.verdict, sentence="; ".join(parts)),
        memory=memory,
        brokers=sorted(brokers, key=lambda item: rows[item.broker]),
        refusals=refusals,
        groups=tuple(group for _, group, _ in decisions),
        sides={broker: side for decision, _, _ in decisions for broker, side in decision.sides.items()},
    )


def _importance(verdict: Verdict, moves: int) -> tuple[bool, bool, bool, float]:
    """Return a sort key: highest for groups that move bundles, then groups that wait to move, then groups that
    cannot."""
    share = verdict.cost / verdict.price if verdict.price > 0 else 0.0
    return moves > 0, verdict.code is Code.HIT_COUNT, verdict.code not in _REST, share


def _names(brokers: Sequence[str]) -> str:
    more = len(brokers) - NAMED
    return ", ".join(brokers[:NAMED]) + (f" and {more} more" if more > 0 else "")
