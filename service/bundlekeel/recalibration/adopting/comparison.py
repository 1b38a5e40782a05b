"""Compare the plan of a shadow strategy with the plan of the strategy in use, for the same input. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from bundlekeel.model.plan import Plan
from bundlekeel.planning.relocation import NOT_FOR_BALANCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A shadow plan (not executed) compared with the live plan (of the strategy in use) for the same input.

    Moves that drain or warm a broker are in both plans and are not counted. disagreement: share (0 to 1) of all moves
    that are in only one of the plans; 0 if no plan moves anything. agreement: which plans move something: both_move,
    both_rest (neither plan), only_live or only_shadow. regret: predicted imbalance (max/mean of the brokers' scores)
    after the live plan minus the imbalance after the shadow plan; above 0, the shadow plan balances better.
    """

    strategy: str
    moves: int
    disagreement: float
    agreement: str
    regret: float
    plan_hash: str


def compare_plans(live: Plan, shadow: Plan) -> Comparison:
    """Return how `shadow` differs from `live`, two plans of the same input."""
    ours, theirs = _moves(live), _moves(shadow)
    either = ours | theirs
    acts = ("both_rest", "only_shadow", "only_live", "both_move")[2 * bool(ours) + bool(theirs)]
    return Comparison(
        strategy=shadow.strategy,
        moves=len(theirs),
        disagreement=len(ours ^ theirs) / len(either) if either else 0.0,
        agreement=acts,
        regret=live.imbalance("score_after") - shadow.imbalance("score_after"),
        plan_hash=shadow.hash,
    )


def _moves(plan: Plan) -> set[tuple[str, str]]:
    return {(move.bundle, move.target) for move in plan.moves if move.rule not in NOT_FOR_BALANCE}
