"""Transitions of a cycle's state: pure functions from one `CycleState` to the next. Only `Cycle` stores the result."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from bundlekeel.leader.execution.intents import MoveOutcome
from bundlekeel.leader.execution.split_intents import SplitOutcome
from bundlekeel.leader.state.cycle_state import CycleState
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import Move, Plan
from bundlekeel.model.snapshot import Snapshot
from bundlekeel.planning import effects, ledger
from bundlekeel.planning.effects import EffectRecords
from bundlekeel.planning.engine import PlanInput, PlanResult
from bundlekeel.planning.guard import external_moves as guard
from bundlekeel.planning.guard.external_moves import ExternalMove
from bundlekeel.planning.guard.state import RecentMove, SplitFailed
from bundlekeel.planning.ledger import Ledger
from bundlekeel.planning.splitting.children import RecentSplit

# Cool-down of a bundle that stayed on its broker despite a move.
STAYED_COOL_DOWN_MS: Final = 60_000
_Dated = TypeVar("_Dated", RecentMove, SplitFailed)


def external_moves_noted(
    state: CycleState, changes: Collection[ExternalMove], drains: Collection[str], now_ms: int
) -> CycleState:
    """Return the state after moves that Bundlekeel did not start: with the cool-downs of their bundles.

    Moves that reverted Bundlekeel's own moves are counted, because they indicate a second balancer."""
    moved = {change.bundle: RecentMove(at_ms=now_ms, source=change.source) for change in changes}
    noted = guard.noted(state.external_moves, guard.apart_from(changes, drains), now_ms)
    return replace(state, recent={**state.recent, **moved}, external_moves=noted)


def settled_ledger(state: CycleState, plan_input: PlanInput, result: PlanResult) -> Ledger:
    """Return the plan's ledger of moves in transit, or the state's own ledger if it changed during planning."""
    return result.ledger if state.ledger is plan_input.ledger else state.ledger


def planned(
    state: CycleState,
    plan_input: PlanInput,
    result: PlanResult,
    *,
    judged: EffectRecords,
    recent_splits: Mapping[str, RecentSplit],
    brokers: Collection[str],
) -> CycleState:
    """Return the state after planning: with the strategies' new memory, and without ended cool-downs.

    `judged`: records about the effects of moves."""
    params, now_ms = plan_input.params, plan_input.snapshot.wall_ms
    trial_values = plan_input.trial.values if plan_input.trial is not None else {}
    rest = max(params.cool_down_seconds, trial_values.get("cool_down_seconds", 0))
    longest = max(params.cool_down_limited_factor * rest, params.no_return_seconds)
    return replace(
        state,
        memory=result.waiting,
        ledger=settled_ledger(state, plan_input, result),
        recent=_younger(state.recent, now_ms, longest),
        split_failed=_younger(state.split_failed, now_ms, rest),
        recent_splits=dict(recent_splits),
        brokers=tuple(sorted(brokers)),
        effects=judged,
    )


def begun(state: CycleState, moves: Sequence[Move], plan: Plan | None, snapshot: Snapshot, now_ms: int) -> CycleState:
    """Return the state with these moves in the ledger of moves in transit, before they are executed.

    Without a plan (an operator's move) no effect is predicted."""
    expected = effects.begun(state.effects, moves, plan, now_ms) if plan is not None else state.effects
    return replace(state, ledger=ledger.open_entries(state.ledger, moves, snapshot, now_ms), effects=expected)


def not_begun(state: CycleState, bundles: Collection[str]) -> CycleState:
    """Return the state without the ledger entries of these bundles, because their moves did not start."""
    left = state.ledger
    for bundle in bundles:
        left = ledger.dropped(left, bundle)
    return replace(state, ledger=left)


def moved(state: CycleState, outcome: MoveOutcome, params: Parameters, now_ms: int) -> CycleState:
    """Return the state after a move: its ledger entry, the bundle's cool-down, and whether its effect can be judged."""
    entries, recent, expected = state.ledger, dict(state.recent), state.effects
    stayed = outcome.landed_on == outcome.source
    if outcome.outcome in ("refused", "released") or stayed:
        entries = ledger.dropped(entries, outcome.bundle)
    elif outcome.landed_on:
        entries = ledger.landed(entries, outcome.bundle, outcome.landed_on, outcome.landed_wall_ms or now_ms)
    if outcome.outcome != "refused":
        # A bundle that stayed on its broker gets only a short cool-down, so that not every cycle plans it again.
        early = int(1000 * params.cool_down_seconds) - STAYED_COOL_DOWN_MS if stayed else 0
        recent[outcome.bundle] = RecentMove(at_ms=now_ms - max(0, early), source=outcome.source)
    if outcome.outcome != "done":
        expected = effects.came_to_nothing(expected, outcome.bundle)
    return replace(state, ledger=entries, recent=recent, effects=expected)


def arrived(state: CycleState, bundles: Mapping[str, str], now_ms: int) -> CycleState:
    """Return the state after bundles that an earlier leader moved have arrived (`bundles`: bundle -> broker)."""
    entries = state.ledger
    for bundle, broker in bundles.items():
        entries = ledger.landed(entries, bundle, broker, now_ms)
    return replace(state, ledger=entries)


def split(
    state: CycleState,
    outcome: SplitOutcome,
    params: Parameters,
    *,
    recent_splits: Mapping[str, RecentSplit],
    now_ms: int,
) -> CycleState:
    """Return the state after a split. A failed split is not retried for a while.

    `recent_splits`: finished splits that the observer knows, including this one."""
    if outcome.outcome == "done" and outcome.split is not None:
        state = replace(state, ledger=ledger.parted(state.ledger, outcome.bundle), recent_splits=dict(recent_splits))
    if (rest := outcome.rest_seconds(params.cool_down_seconds)) > 0:
        since = now_ms - int(1000 * (params.cool_down_seconds - rest))
        failed = {outcome.bundle: SplitFailed(at_ms=since, code=outcome.code)}
        state = replace(state, split_failed={**state.split_failed, **failed})
    return state


def _younger(dated: Mapping[str, _Dated], now_ms: int, seconds: float) -> dict[str, _Dated]:
    since = now_ms - int(1000 * seconds)
    return {name: item for name, item in dated.items() if item.at_ms > since}
