"""`plan()`: the one function behind live cycles, dry runs, simulation, replay and Spark. Pure.

Snapshot, ledger, memory, guard state, parameters and seed in; plan, new memory and settled ledger out. Same input,
same output, byte for byte.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace

from bundlekeel.core.codes import Code
from bundlekeel.core.draft import Draft
from bundlekeel.core.guard import GuardState, admit, completeness, eligibility
from bundlekeel.core.ledger import Ledger, settle
from bundlekeel.core.memory import Memory
from bundlekeel.core.params import Parameters
from bundlekeel.core.placement import PLACEMENTS
from bundlekeel.core.plan import Move, Plan, Refusal, Verdict, plan_hash
from bundlekeel.core.shedding import SHEDDERS
from bundlekeel.core.shedding.common import Context, Decision
from bundlekeel.core.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInput:
    """Everything a plan depends on."""

    snapshot: Snapshot
    params: Parameters
    memory: Memory = field(default_factory=Memory)
    ledger: Ledger = field(default_factory=Ledger)
    guard: GuardState = field(default_factory=GuardState)
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanResult:
    """The plan, and what the next cycle starts from."""

    plan: Plan
    memory: Memory
    ledger: Ledger


def plan(given: PlanInput) -> PlanResult:
    """Decide. Never raises for any snapshot: what cannot be decided is a typed verdict."""
    snapshot, params = given.snapshot, given.params
    ledger = settle(given.ledger, snapshot, params, snapshot.wall_ms)
    draft = Draft(snapshot, ledger, params)
    obstacle = _obstacle(snapshot, draft, params)
    if obstacle is not None:
        decision = Decision(verdict=obstacle, memory=given.memory)
        return _result(given, draft, decision, ledger)
    under_way = ledger.under_way()
    eligible = eligibility(
        snapshot, given.guard, params, snapshot.wall_ms, under_way, unsettled=ledger.bundles() - under_way
    )
    context = Context(
        snapshot=snapshot,
        draft=draft,
        eligible=eligible,
        memory=given.memory,
        params=params,
        placement=PLACEMENTS[params.placement],
        unsettled=ledger.unheard(params, snapshot.wall_ms),
        seed=given.seed,
    )
    decision = SHEDDERS[params.strategy](context)
    return _result(given, draft, _explained(decision), ledger)


def _obstacle(snapshot: Snapshot, draft: Draft, params: Parameters) -> Verdict | None:
    """Why nothing can be decided at all, or None."""
    count = len(snapshot.brokers)
    if snapshot.registered == 0:
        return Verdict(code=Code.NO_BROKERS, sentence="no broker is registered")
    if count == 0:
        return Verdict(code=Code.NO_LOAD_DATA, sentence=f"none of {snapshot.registered} brokers has a usable report")
    incomplete = completeness(snapshot, params)
    if incomplete is not None:
        return Verdict(code=Code.INCOMPLETE_PICTURE, sentence=incomplete.detail)
    if count == 1:
        return Verdict(
            code=Code.SOLE_BROKER,
            sentence=f"{snapshot.brokers.ids[0]} is the only broker: nothing to balance",
        )
    if params.strategy != "uniform" and not draft.score.any():
        text = (
            "the average load is zero: either there is no traffic, or the reports are blind (see `bundlekeel doctor`)"
        )
        return Verdict(code=Code.ZERO_AVERAGE, sentence=text)
    return None


def _explained(decision: Decision) -> Decision:
    """When a donor had bundles but none could be chosen, say what stood in the way most often."""
    if decision.verdict.code not in (Code.NO_BUNDLES, Code.UNSPLITTABLE) or not decision.refusals:
        return decision
    common = Counter(refusal.code for refusal in decision.refusals).most_common(2)
    why = ", ".join(f"{count} {code.value}" for code, count in common)
    decision.verdict = replace(decision.verdict, sentence=f"{decision.verdict.sentence} ({why})")
    return decision


def _result(given: PlanInput, draft: Draft, decision: Decision, ledger: Ledger) -> PlanResult:
    admitted, over_budget = admit(tuple(draft.moves), given.params)
    refusals = (*decision.refusals, *over_budget)
    scores = draft.score.tolist()
    made = Plan(
        wall_ms=given.snapshot.wall_ms,
        strategy=given.params.strategy,
        placement=given.params.placement,
        seed=given.seed,
        snapshot_digest=given.snapshot.digest,
        verdict=_with_budget(decision.verdict, admitted, over_budget),
        brokers=tuple(decision.brokers),
        moves=admitted,
        refusals=refusals,
        loads=draft.loads(admitted),
        mean=math.fsum(scores) / len(scores) if scores else 0.0,
    )
    return PlanResult(plan=replace(made, hash=plan_hash(made)), memory=decision.memory, ledger=ledger)


def _with_budget(verdict: Verdict, admitted: tuple[Move, ...], refused: tuple[Refusal, ...]) -> Verdict:
    if not refused:
        return verdict
    text = f"{verdict.sentence}; {len(admitted)} now, {len(refused)} in later cycles (budgets)"
    return replace(verdict, sentence=text)
