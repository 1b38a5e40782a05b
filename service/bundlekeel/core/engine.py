"""`plan()`: the one function behind live cycles, dry runs, simulation, replay and Spark. Pure.

Snapshot, ledger, memory, guard state, parameters and seed in; plan, new memory and settled ledger out. Same input,
same output, byte for byte.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np

from bundlekeel.core.codes import Code
from bundlekeel.core.compat import COMPAT_SHEDDERS
from bundlekeel.core.compat.shedder import shed_in_plan
from bundlekeel.core.compat.transfer_plan import transfer_in_plan
from bundlekeel.core.draft import Draft
from bundlekeel.core.filters.allowed import limits_of, with_policies
from bundlekeel.core.guard import Eligibility, GuardState, admit, completeness, eligibility, leave_alone
from bundlekeel.core.laws import accounted, lawful
from bundlekeel.core.ledger import Ledger, settle
from bundlekeel.core.memory import Memory
from bundlekeel.core.params import Parameters
from bundlekeel.core.placement import PLACEMENTS
from bundlekeel.core.plan import Move, Plan, Refusal, Verdict, plan_hash
from bundlekeel.core.policies import Policies
from bundlekeel.core.shedding import SHEDDERS, Shedder
from bundlekeel.core.shedding.common import Context, Decision
from bundlekeel.core.snapshot import Snapshot
from bundlekeel.core.splitting.rules import SplitChoice, SplitInput, choose_splits


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInput:
    """Everything a plan depends on. `brokers_split`: the brokers' own automatic split is on."""

    snapshot: Snapshot
    params: Parameters
    memory: Memory = field(default_factory=Memory)
    ledger: Ledger = field(default_factory=Ledger)
    guard: GuardState = field(default_factory=GuardState)
    policies: Policies = field(default_factory=Policies)
    seed: int = 0
    brokers_split: bool = False


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
    draft = Draft(snapshot, ledger, params, given.memory.turn, given.memory.idle)
    obstacle = _obstacle(snapshot, draft, params)
    if obstacle is not None:
        decision = Decision(verdict=obstacle, memory=given.memory)
        return _result(given, draft, decision, ledger, ())
    splits = _splits(given, draft, ledger)
    limits = limits_of(snapshot, given.policies, ledger)
    if limits is not None:
        draft.restrict(limits.mask, limits.group)
    under_way = ledger.under_way()
    eligible = eligibility(
        snapshot,
        given.guard,
        params,
        snapshot.wall_ms,
        under_way,
        unsettled=ledger.bundles() - under_way,
        splitting=frozenset(split.bundle for split in splits.splits),
        limits=limits,
    )
    if params.strategy == "transfer" and not params.bundles_with_policies:
        eligible = leave_alone(eligible, with_policies(snapshot, given.policies)[snapshot.bundles.namespace])
    context = Context(
        snapshot=snapshot,
        draft=draft,
        eligible=eligible,
        memory=given.memory,
        params=params,
        placement=PLACEMENTS[params.placement],
        unsettled=ledger.unheard(params, snapshot.wall_ms),
        seed=given.seed,
        guard=given.guard,
    )
    decision = _shedder(params)(context)
    decision.memory = replace(decision.memory, idle=draft.idle)
    decision = _explained(decision, _held(decision.refusals, draft, eligible))
    moves = _final_moves(context, decision)
    return _result(given, draft, decision, ledger, moves, splits)


def _shedder(params: Parameters) -> Shedder:
    """The corrected strategy, a third party's, or Pulsar's class of one release where it ships that strategy."""
    if params.compat != "none" and params.strategy == "transfer":
        return transfer_in_plan
    native = params.compat != "none" and params.strategy in COMPAT_SHEDDERS
    return shed_in_plan if native else SHEDDERS[params.strategy]


def _splits(given: PlanInput, draft: Draft, ledger: Ledger) -> SplitChoice:
    return choose_splits(
        SplitInput(
            snapshot=given.snapshot,
            draft=draft,
            params=given.params,
            memory=given.memory,
            ledger=ledger,
            guard=given.guard,
            brokers_split=given.brokers_split,
        )
    )


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


def _held(refusals: list[Refusal], draft: Draft, eligible: Eligibility) -> list[Refusal]:
    """Bundles that would have been free to move, but for another move of their anti-affinity group in this plan."""
    if not draft.held.any():
        return refusals
    bundles = draft.snapshot.bundles
    waiting = np.flatnonzero(draft.held[bundles.namespace] & eligible.mask & ~draft.moved)
    names = {bundles.names[row] for row in waiting.tolist()}
    return [item._replace(code=Code.ANTI_AFFINITY, detail="") if item.bundle in names else item for item in refusals]


def _explained(decision: Decision, refusals: list[Refusal]) -> Decision:
    """With these refusals; when a donor had bundles but none could be chosen, say what stood in the way most often."""
    decision.refusals = refusals
    if decision.verdict.code not in (Code.NO_BUNDLES, Code.UNSPLITTABLE) or not decision.refusals:
        return decision
    common = Counter(refusal.code for refusal in decision.refusals).most_common(2)
    why = ", ".join(f"{count} {code.value}" for code, count in common)
    decision.verdict = replace(decision.verdict, sentence=f"{decision.verdict.sentence} ({why})")
    return decision


def _final_moves(context: Context, decision: Decision) -> tuple[Move, ...]:
    """The moves that keep the laws and fit the budgets; the decision gets a refusal for each other one."""
    draft, eligible = context.draft, context.eligible
    moves, dropped = lawful(draft, eligible, draft.moves)
    refusals = accounted(draft, eligible, moves, decision.refusals, dropped)
    admitted, over_budget = admit(moves, context.params)
    if over_budget:
        # A broker may take because it gave before; without what the budgets cut out, that must still hold.
        admitted, unlawful = lawful(draft, eligible, admitted)
        dropped += unlawful
        refusals += [*over_budget, *unlawful]
    decision.refusals = refusals
    decision.verdict = _with_cuts(decision.verdict, len(admitted), len(over_budget), len(dropped))
    return admitted


def _result(
    given: PlanInput,
    draft: Draft,
    decision: Decision,
    ledger: Ledger,
    admitted: tuple[Move, ...],
    choice: SplitChoice | None = None,
) -> PlanResult:
    splits = choice or SplitChoice(hits=given.memory.split_hits)
    scores = draft.score.tolist()
    made = Plan(
        wall_ms=given.snapshot.wall_ms,
        strategy=given.params.strategy,
        placement=given.params.placement,
        seed=given.seed,
        snapshot_digest=given.snapshot.digest,
        verdict=decision.verdict,
        brokers=tuple(decision.brokers),
        moves=admitted,
        refusals=tuple(decision.refusals),
        loads=draft.loads(admitted),
        splits=splits.splits,
        split_refusals=splits.refusals,
        mean=math.fsum(scores) / len(scores) if scores else 0.0,
    )
    turn = draft.turn if given.params.placement == "round_robin" else given.memory.turn
    memory = replace(decision.memory, turn=turn, split_hits=splits.hits)
    return PlanResult(plan=replace(made, hash=plan_hash(made)), memory=memory, ledger=ledger)


def _with_cuts(verdict: Verdict, admitted: int, over_budget: int, unlawful: int) -> Verdict:
    text = verdict.sentence
    if over_budget:
        text = f"{text}; {admitted} now, {over_budget} in later cycles (budgets)"
    if unlawful:
        text = f"{text}; {unlawful} of the strategy's moves dropped, they break the laws"
    return replace(verdict, sentence=text)
