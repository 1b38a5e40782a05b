"""`plan()` decides the moves and splits for one snapshot. Pure.

Live cycles, dry runs, the simulator, replays and Spark jobs use it. The same input gives the same output, byte for
byte.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from bundlekeel.model.codes import Code
from bundlekeel.model.errors import ConfigError
from bundlekeel.model.load import CPU, Floats
from bundlekeel.model.names import namespace_of
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import Move, Plan, Refusal, Verdict, plan_hash
from bundlekeel.model.scalable import changed_brokers
from bundlekeel.model.snapshot import Snapshot
from bundlekeel.planning import calm
from bundlekeel.planning.costs import CostEstimate, CpuCosts, estimate, learn
from bundlekeel.planning.draft import Draft
from bundlekeel.planning.filters.allowed import AllowedTargets, limits_of, with_policies
from bundlekeel.planning.filters.versions import VersionKey, version_key
from bundlekeel.planning.groups import decide_groups
from bundlekeel.planning.guard.budgets import admit
from bundlekeel.planning.guard.eligibility import Eligibility, completeness, eligibility, hold_back, leave_alone
from bundlekeel.planning.guard.holds import Hold, hold_of, rollout_of
from bundlekeel.planning.guard.stops import bans_of, calm_brokers, relief_only, returning, stopped, verdict_of
from bundlekeel.planning.invariants import accounted, lawful
from bundlekeel.planning.ledger import Ledger, settle
from bundlekeel.planning.memory import BrokerCourse, StrategyMemory
from bundlekeel.planning.relocation import NOT_FOR_BALANCE, REPAIR, Relocation, relocate
from bundlekeel.planning.repair import repair
from bundlekeel.planning.scores import score_of, weights_of
from bundlekeel.planning.situation import Situation
from bundlekeel.planning.splitting.rules import SplitChoice, choose_splits
from bundlekeel.planning.strategies import PULSAR_SHEDDERS, SHEDDERS, Shedder
from bundlekeel.planning.strategies.common import Context, Decision
from bundlekeel.planning.strategies.placement import PLACEMENTS
from bundlekeel.planning.strategies.timing import measured
from bundlekeel.planning.trial import TrialParameters, both, excluding
from bundlekeel.planning.wrong_limits import explain_wrong_limits

# A broker divides its first CPU sample by the time since 1970, so it reports less than this.
FIRST_SAMPLE_PERCENT = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInput(Situation):
    """Complete input of a plan. `seed`: seed of all random choices. `trial`: values that some namespaces try; None: no
    trial."""

    seed: int = 0
    trial: TrialParameters | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanResult:
    """The plan and the state for the next cycle.

    `memory`: memory of the strategies if the moves start. `waiting`: this memory if no move starts. `ledger`: earlier
    moves that reports do not show yet. `ready`: by broker under warm-up, whether it is warm.
    """

    plan: Plan
    memory: StrategyMemory
    waiting: StrategyMemory
    ledger: Ledger
    ready: Mapping[str, bool] = field(default_factory=dict)


def plan(inputs: PlanInput) -> PlanResult:
    """Return the plan for a snapshot. If nothing can be planned, its verdict contains the reason."""
    trial, params, memory, guard = inputs.trial, inputs.params, inputs.memory, inputs.guard
    named = {*inputs.ledger.bundles(), *guard.recent, *guard.pinned, *guard.frozen, *guard.served_twice}
    named |= guard.segments_changed.keys() | guard.segments_above.keys()
    inputs.snapshot.bundles.rows_named(named)
    names = trial.names(inputs.snapshot.bundles, params) if trial is not None else ()
    if trial is None or not names:
        return _plan(inputs if memory.trial is None else replace(inputs, memory=replace(memory, trial=None)))[0]
    common = replace(memory, trial=None)
    first, draft = _plan(replace(inputs, memory=common), skipped=names)
    trial_inputs = replace(inputs, params=trial.parameters(params, names, first.plan), memory=memory.trial or common)
    second, _ = _plan(trial_inputs, first=first.plan)
    urgent = first.memory.urgent or second.memory.urgent
    return replace(
        first,
        plan=both(first.plan, second.plan, draft, trial, names),
        memory=replace(first.memory, trial=second.memory, urgent=urgent),
        waiting=replace(first.waiting, trial=second.waiting, urgent=urgent),
    )


def _plan(inputs: PlanInput, *, skipped: tuple[str, ...] = (), first: Plan | None = None) -> tuple[PlanResult, Draft]:
    """Return the plan by one set of parameters, and its draft.

    `skipped`: namespaces whose bundles only drains, warm-ups and repairs move. `first`: a plan of the same cycle whose
    moves have started, including those of drains, warm-ups and repairs.
    """
    snapshot, params, guard = inputs.snapshot, excluding(inputs.params, skipped), inputs.guard
    ledger = settle(inputs.ledger, snapshot, params, snapshot.wall_ms)
    hold = hold_of(snapshot, guard, params)
    relocation = Relocation() if stopped(hold) or first is not None else _relocate(inputs, ledger, hold)
    earlier = first.moves if first is not None else relocation.moves
    books, inputs = Relocation(moves=earlier).booked(ledger, snapshot), replace(inputs, params=params)
    learned, courses, seconds, scale = _levels(inputs, books)
    draft = Draft(snapshot, books, params, inputs.memory.turn, scale=scale, learned=learned)
    if (bans := bans_of(snapshot, guard, params)) is not None:
        draft.ban(bans)
    obstacle = _obstacle(snapshot, draft, params) or stopped(hold)
    if obstacle is not None:
        decision = Decision(verdict=obstacle, memory=inputs.memory)
        explain_wrong_limits(decision, draft)
        return _whole(relocation, _result(inputs, draft, decision, ledger, ())), draft
    splits = choose_splits(inputs, draft, books) if hold is None else SplitChoice(hits=inputs.memory.split_hits)
    limits = limits_of(snapshot, inputs.policies, books)
    if limits is not None:
        draft.restrict(limits.mask, limits.group)
    unknown = _close_unknown(snapshot, draft, courses)
    eligible = _eligible(inputs, draft, books, splits, limits, hold, unknown)
    context = Context(
        snapshot=snapshot,
        draft=draft,
        eligible=eligible,
        memory=inputs.memory,
        params=params,
        placement=PLACEMENTS[params.placement],
        unsettled=books.not_yet_reported(params, snapshot.wall_ms) | unknown,
        seed=inputs.seed,
        courses=courses,
        seconds=seconds,
        doubt=calm.doubts(courses, snapshot.brokers.ids),
        guard=guard,
    )
    decision = decide_groups(context, limits, lambda group: _decide(group, splits))
    moves = _final_moves(context, decision, hold, earlier)
    decision.verdict = verdict_of(decision.verdict, decision.refusals, hold, bool(moves))
    explain_wrong_limits(decision, draft)
    return _whole(relocation, _result(inputs, draft, decision, ledger, moves, splits)), draft


def _close_unknown(snapshot: Snapshot, draft: Draft, courses: Mapping[str, BrokerCourse]) -> frozenset[str]:
    """Close brokers whose CPU use is not known yet, so that they accept no bundle; return their ids.

    A broker samples its CPU use once a minute. Until the first sample, it reports about 0; with the extensible load
    manager it can also report 1, the initial value. A broker is closed, too, if its CPU use falls although its traffic
    does not: other processes may have taken the CPU.
    """
    brokers, params = snapshot.brokers, draft.params
    wait = params.statistics_interval_seconds + params.host_usage_interval_seconds
    if params.compat != "none" or params.cpu_weight == 0:
        return frozenset()
    extensible = snapshot.mode == "extensible"
    young = snapshot.wall_ms - brokers.start_timestamp < 1000 * wait
    used = brokers.percent()[:, CPU]
    first = (brokers.limit[:, CPU] > 0) & ((used < FIRST_SAMPLE_PERCENT) | (extensible & (used == 100)))
    fallen = np.array([calm.has_fallen(courses[broker]) for broker in brokers.ids]) & (draft.score < draft.mean())
    rows = np.flatnonzero(fallen | (first & young & ~snapshot.counted & brokers.traffic.any(axis=1)))
    draft.close(rows.tolist())
    return frozenset(brokers.ids[row] for row in rows.tolist())


def _decide(context: Context, splits: SplitChoice) -> Decision:
    """Run the strategy; then add to its verdicts and refusals: guard, policies, or CPU that no traffic causes."""
    draft = context.draft
    decision = _shedder(context.params)(context)
    if decision.memory.courses is not context.memory.courses:
        before, rows = draft.score_before, context.snapshot.brokers.rows
        concerned = {broker for move in context.moves for broker in (move.source, move.target)}
        decision.sides = {name: "hot" if before[rows[name]] >= context.mean else "cold" for name in concerned}
    decision = _explained(decision, returning(_mark_group_waits(decision.refusals, draft, context.eligible), draft))
    if decision.verdict.code is Code.UNSPLITTABLE:
        decision.verdict = _with_migration(_at_maximum(decision.verdict, splits), context.snapshot, decision.refusals)
    _explain_bases(context, decision)
    return decision


def _levels(
    inputs: PlanInput, books: Ledger
) -> tuple[tuple[CpuCosts, CostEstimate], dict[str, BrokerCourse], Floats, Floats]:
    """Return CPU costs and their estimate, load history by broker, newly measured seconds, and `scale` of `Draft`.

    The scale, shape (n, 1), replaces the last reading of a broker by its mean score. It is 1 for Pulsar's own classes
    (`compat`), which use the last reading.
    """
    snapshot, params = inputs.snapshot, inputs.params
    brokers = snapshot.brokers
    limit = np.where(brokers.wrong() & (params.compat == "none"), 0.0, brokers.limit)
    weights = weights_of(params, snapshot.mode)
    costs = learn(inputs.memory.costs, snapshot, params, books.unsettled())
    scores = score_of(brokers.usage, limit, weights)
    estimates, caused = estimate(costs, brokers.ids, brokers.limit[:, CPU]), np.zeros_like(brokers.usage)
    caused[:, CPU] = estimates.caused(brokers.traffic, estimates.factor)
    readings = measured(snapshot, params, scores, np.minimum(score_of(caused, limit, weights), scores))
    changed = changed_brokers(snapshot, inputs.guard.segments_changed)
    courses, seconds = calm.follow_levels(inputs.memory.courses, readings, books.unsettled(), changed)
    levels = np.array([courses[broker].level for broker in brokers.ids])
    steady = (scores > 0) & (params.compat == "none")
    scale = np.divide(levels, scores, out=np.ones(len(scores)), where=steady)
    return (costs, estimates), courses, seconds, scale[:, np.newaxis]


def _eligible(
    inputs: PlanInput,
    draft: Draft,
    books: Ledger,
    splits: SplitChoice,
    limits: AllowedTargets | None,
    hold: Hold | None,
    unknown: frozenset[str],
) -> Eligibility:
    snapshot, params, under_way = inputs.snapshot, inputs.params, books.under_way()
    eligible = eligibility(
        snapshot,
        inputs.guard,
        params,
        snapshot.wall_ms,
        under_way,
        unsettled=books.bundles() - under_way,
        splitting=frozenset(split.bundle for split in splits.splits),
        limits=limits,
    )
    if unknown:
        rows = np.isin(snapshot.bundles.owner, list(map(snapshot.broker_row, unknown)))
        eligible = hold_back(eligible, rows, Code.UNSETTLED, 0)
    if hold is not None:
        calm = calm_brokers(draft)[snapshot.bundles.owner]
        eligible = hold_back(eligible, calm, hold.code, hold.until_ms)
    if params.strategy == "transfer" and not params.bundles_with_policies:
        eligible = leave_alone(eligible, with_policies(snapshot, inputs.policies)[snapshot.bundles.namespace])
    return eligible


def _relocate(inputs: PlanInput, ledger: Ledger, hold: Hold | None) -> Relocation:
    """Return the moves of drains, warm-ups and repairs, which are planned before the moves of the strategy.

    Warm-ups wait for the end of a roll-out.
    """
    guard = inputs.guard
    if rollout_of(inputs.snapshot, guard, inputs.params) is not None:
        # A warm-up takes bundles from brokers that restart next: the bundles would move twice.
        guard = replace(guard, warming=frozenset())
    relocation = relocate(replace(inputs, ledger=ledger, guard=guard))
    if not inputs.params.placement_repair:
        return relocation
    return relocation.followed_by(repair(replace(inputs, ledger=relocation.booked(ledger, inputs.snapshot)), hold))


def _whole(relocation: Relocation, result: PlanResult) -> PlanResult:
    return replace(result, plan=relocation.merged(result.plan), ready=relocation.ready)


def _shedder(params: Parameters) -> Shedder:
    """Return the strategy of the settings; with `compat`, Pulsar's own class of that name if there is one.

    Raises ConfigError for `compat` if `bundlekeel.compat.in_plan` is not imported.
    """
    if params.compat == "none":
        return SHEDDERS[params.strategy]
    if not PULSAR_SHEDDERS:
        text = f"compat {params.compat} needs bundlekeel.compat.in_plan, which is not imported"
        raise ConfigError(text, field="compat", value=params.compat, allowed="none")
    return PULSAR_SHEDDERS.get(params.strategy) or SHEDDERS[params.strategy]


def _obstacle(snapshot: Snapshot, draft: Draft, params: Parameters) -> Verdict | None:
    """Return a verdict with the reason why nothing can be decided for this snapshot; None if it can."""
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
            code=Code.SOLE_BROKER, sentence=f"{snapshot.brokers.ids[0]} is the only broker: nothing to balance"
        )
    if params.strategy != "uniform" and not draft.score.any():
        text = "the average load is zero: no traffic, or reports without resource limits (see `bundlekeel doctor`)"
        return Verdict(code=Code.ZERO_AVERAGE, sentence=text)
    return None


def _mark_group_waits(refusals: list[Refusal], draft: Draft, eligible: Eligibility) -> list[Refusal]:
    """Set the code `ANTI_AFFINITY` for bundles that wait because another bundle of their group moves in this plan."""
    if not draft.held.any():
        return refusals
    bundles = draft.snapshot.bundles
    waiting = np.flatnonzero(draft.held[bundles.namespace] & eligible.mask & ~draft.moved)
    names = {bundles.names[row] for row in waiting.tolist()}
    return [item._replace(code=Code.ANTI_AFFINITY, detail="") if item.bundle in names else item for item in refusals]


def _explained(decision: Decision, refusals: list[Refusal]) -> Decision:
    """Set the refusals of the decision; if no bundle could move, add their most frequent codes to its verdict."""
    decision.refusals = refusals
    if decision.verdict.code not in (Code.NO_BUNDLES, Code.UNSPLITTABLE) or not decision.refusals:
        return decision
    common = Counter(refusal.code for refusal in decision.refusals).most_common(2)
    why = ", ".join(f"{count} {code.value}" for code, count in common)
    decision.verdict = replace(decision.verdict, sentence=f"{decision.verdict.sentence} ({why})")
    return decision


# The first release with scalable topics.
_SCALABLE_TOPICS: Final[VersionKey] = (5, 0, 0, True, ())
# Verdicts of a cycle that moves nothing because no bundle is suitable.
_UNSUITABLE = frozenset({Code.NO_BUNDLES, Code.BELOW_MINIMUM, Code.UNSPLITTABLE, Code.TARGET_OVERLOADED})


def _explain_bases(context: Context, decision: Decision) -> None:
    """Explain why overloaded brokers cannot be relieved: the CPU that no bundle causes (base) alone is above the mean.

    The text is added to the verdict of each such broker, and to that of the cycle if nothing moves.
    """
    draft, params, ids = context.draft, context.params, context.snapshot.brokers.rows
    if params.compat != "none" or not any(item.code is Code.OVERLOADED for item in decision.brokers):
        return
    base, limit = draft.base_score(), context.mean * (1 + params.min_unload_share)
    giving, hot = {move.source for move in context.moves}, list[str]()
    for place, item in enumerate(decision.brokers):
        row = ids.get(item.broker, -1)
        if item.code is not Code.OVERLOADED or row < 0 or base[row] <= limit:
            continue
        freed = max(float(draft.score_before[row] - base[row]), 0.0)
        text = f"its bundles cause {freed:.1%}; moving all of them leaves {base[row]:.1%}"
        code = item.code if item.broker in giving else Code.BASE_LOAD
        decision.brokers[place] = replace(item, code=code, sentence=f"{item.sentence}; {text}")
        hot.append(f"{item.broker} (its bundles cause {freed:.1%} of {draft.score_before[row]:.1%})")
    if hot and not context.moves and decision.verdict.code in _UNSUITABLE:
        text = (
            f"moving bundles does not help {', '.join(hot)}: check function workers, proxies, garbage collection, "
            "compaction and other processes"
        )
        decision.verdict = replace(decision.verdict, code=Code.BASE_LOAD, sentence=text)


def _at_maximum(verdict: Verdict, splits: SplitChoice) -> Verdict:
    """Add to a verdict that recommends a split the first namespace that has its maximum number of bundles, if any."""
    full = next((item for item in splits.refusals if item.code is Code.NAMESPACE_MAXIMUM), None)
    if full is None:
        return verdict
    text = f"{namespace_of(full.bundle)} has {full.detail} (split_max_bundles)"
    return replace(verdict, sentence=f"{verdict.sentence}; {text}")


def _with_migration(verdict: Verdict, snapshot: Snapshot, refusals: Sequence[Refusal]) -> Verdict:
    """Add to a verdict that recommends a split what to do with a hot topic that is alone in its bundle.

    No split divides it. Pulsar 5.0 can migrate it to a scalable topic, whose segments it divides itself.
    """
    versions = [version_key(text) for text in snapshot.brokers.versions]
    if not all(version is not None and version >= _SCALABLE_TOPICS for version in versions):
        return verdict
    large = {item.bundle for item in refusals if item.code is Code.TOO_BIG}
    alone = [row for row in snapshot.bundles.rows_named(large) if int(snapshot.bundles.counts[row, 0]) == 1]
    if not alone:
        return verdict
    text = f"{snapshot.bundles.names[alone[0]]} has only one topic: `pulsar-admin scalable-topics migrate` divides it"
    return replace(verdict, sentence=f"{verdict.sentence}; {text}, unless it is a segment")


def _final_moves(context: Context, decision: Decision, hold: Hold | None, before: tuple[Move, ...]) -> tuple[Move, ...]:
    """Return the moves that invariants and budgets allow; add a refusal for each other move to the decision.

    `before`: earlier moves of this cycle. Repairs and moves for the balance use the same budgets.
    """
    draft, eligible = context.draft, context.eligible
    moves, dropped = lawful(draft, eligible, draft.moves)
    refusals = accounted(draft, eligible, moves, decision.refusals, dropped)
    relief, waiting = relief_only(moves, hold, context.params)
    admitted, over_budget = admit(
        relief,
        context.params,
        context.guard,
        context.snapshot.wall_ms,
        draft.carried(),
        before=[move for move in before if move.rule == REPAIR],
        admitted_before=[move for move in before if move.rule not in NOT_FOR_BALANCE],
    )
    if over_budget or waiting:
        # A broker may have headroom only because of a move that is dropped now, so check the other moves again.
        admitted, unlawful = lawful(draft, eligible, admitted)
        dropped += unlawful
        refusals += [*waiting, *over_budget, *unlawful]
    decision.refusals = refusals
    decision.verdict = _with_cuts(decision.verdict, len(admitted), len(over_budget), len(dropped))
    return admitted


def _result(
    inputs: PlanInput,
    draft: Draft,
    decision: Decision,
    ledger: Ledger,
    admitted: tuple[Move, ...],
    choice: SplitChoice | None = None,
) -> PlanResult:
    splits = choice or SplitChoice(hits=inputs.memory.split_hits)
    scores = draft.score.tolist()
    result = Plan(
        wall_ms=inputs.snapshot.wall_ms,
        strategy=inputs.params.strategy,
        placement=inputs.params.placement,
        seed=inputs.seed,
        snapshot_digest=inputs.snapshot.digest,
        verdict=decision.verdict,
        groups=decision.groups,
        brokers=tuple(decision.brokers),
        moves=admitted,
        refusals=tuple(decision.refusals),
        loads=draft.loads(admitted),
        closed=frozenset(inputs.snapshot.brokers.ids[row] for row in np.flatnonzero(draft.closed).tolist()),
        splits=splits.splits,
        split_refusals=splits.refusals,
        mean=math.fsum(scores) / len(scores) if scores else 0.0,
    )
    turn = draft.turn if inputs.params.placement == "round_robin" else inputs.memory.turn
    costs = draft.costs if choice is not None else inputs.memory.costs
    memory = replace(decision.memory, turn=turn, split_hits=splits.hits, costs=costs)
    started = waiting = replace(memory, active=())
    if admitted and decision.sides:
        started = replace(memory, courses=calm.acted(memory.courses, memory.active, decision.sides))
    return PlanResult(plan=replace(result, hash=plan_hash(result)), memory=started, waiting=waiting, ledger=ledger)


def _with_cuts(verdict: Verdict, admitted: int, over_budget: int, unlawful: int) -> Verdict:
    text = verdict.sentence
    if over_budget:
        text = f"{text}; {admitted} now, {over_budget} in later cycles (budgets)"
    if unlawful:
        text = f"{text}; {unlawful} of the strategy's moves dropped, they break the invariants"
    return replace(verdict, sentence=text)
