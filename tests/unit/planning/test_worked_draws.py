"""Plans of small generated clusters, word by word, with memory, books and lookups.

Each number in worked_draws.txt detects a wrong limit, sign or order of planner, strategies, filters or guard that no
hand-made cluster detected (`python -m evidence.mutation`). `print(plan_text(n))` prints the words of cluster n.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bundlekeel.planning.draft import Draft
from bundlekeel.planning.engine import PlanInput, PlanResult, plan
from bundlekeel.planning.filters.assign import AssignmentInput, assign
from bundlekeel.planning.whatif import finish
from tests.support.drawn_clusters import drawn
from tests.unit.planning.test_worked_plans import short, story

TOLD = dict(part.split("\n", 1) for part in Path(__file__).with_name("worked_draws.txt").read_text().split("== ")[1:])


def remembered(result: PlanResult) -> list[str]:
    """Return the memory for the next plan; times are seconds from the builders' now."""
    memory, ledger = result.memory, result.ledger
    lines = [
        f"{short(name)} level {100 * item.level:.2f} of {item.seconds:g} s"
        + (f", {item.excess.side} {item.excess.seconds:g} s, {item.excess.cost:.6g}" if item.excess else "")
        + (", acted" if item.acted else "")
        for name, item in memory.courses.items()
    ]
    lines += [f"{short(name)} idle {item.idle:.2f}" for name, item in memory.costs.brokers.items() if item.idle >= 0]
    lines += [f"active {' '.join(map(short, memory.active))}"] if memory.active else []
    lines += [f"turn {memory.turn}"]
    for entry in ledger.entries:
        settled = "".join(" settled" if side else " open" for side in (entry.source_settled, entry.target_settled))
        lines.append(f"booked {short(entry.bundle)} {short(entry.source)} {short(entry.target)}{settled}")
    owned = [
        f"{short(item.broker)} held at {', '.join(f'{value:.6g}' for value in item.usage)}" for item in ledger.baselines
    ]
    return lines + owned


def looked_up(plan_input: PlanInput, result: PlanResult) -> list[str]:
    """The pipeline's steps for one bundle."""
    names = plan_input.snapshot.bundles.names
    if not len(names):
        return []
    draft = Draft(
        plan_input.snapshot, result.ledger, plan_input.params, plan_input.memory.turn, plan_input.memory.costs
    )
    inputs = AssignmentInput(
        draft=draft, ledger=result.ledger, policies=plan_input.policies, placement=plan_input.params.placement
    )
    choice = assign(inputs, names[plan_input.seed % len(names)], non_persistent=plan_input.seed % 7 == 0)
    lines = [
        f"lookup of {short(choice.bundle)}: {short(choice.chosen or '')} {choice.code or ''} by {choice.placement}"
    ]
    for step in choice.steps:
        dropped = "".join(f" -{short(item.broker)} {item.code}" for item in step.dropped)
        lines.append(f"{step.name}: {' '.join(map(short, step.candidates))}{dropped} {step.note}".strip())
    return lines


def plan_text(number: int) -> list[str]:
    plan_input = drawn(number)
    result = plan(plan_input)
    loads = [
        f"{short(row.broker)} {100 * row.score_before:.2f} -> {100 * row.score_after:.2f}, "
        f"{row.msg_rate_before:.0f} -> {row.msg_rate_after:.0f} msg/s, {row.bundles_before} -> {row.bundles_after}"
        for row in result.plan.loads
    ]
    lines = [*story(result.plan), *loads, *remembered(result), *looked_up(plan_input, result)]
    if number % 8 == 0:
        end = finish(plan_input, result, interval_seconds=30.0, eta=lambda moves: 4.0 * moves)
        words = f"{end.moves} moves in {end.cycles} cycles, {end.seconds:.0f} s, at {end.max_mean:.3f}"
        lines.append(words if end.complete else f"{words}, and not through")
    return [line.rstrip() for line in lines]


@pytest.mark.parametrize("number", TOLD)
def test_a_drawn_cluster_is_told_the_same(number: str) -> None:
    """Rule: the plan, what it remembers and what a lookup answers are what they were when its words were written."""
    assert plan_text(int(number)) == TOLD[number].strip().split("\n")
