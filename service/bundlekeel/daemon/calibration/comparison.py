"""Compares the plan of a shadow strategy with the plan of the strategy in use, for the same input. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from bundlekeel.core.model.plan import Plan
from bundlekeel.core.operations.relocation import NOT_FOR_BALANCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One shadow plan beside the live one. Moves of drains and warms are in both and count for neither.

    disagreement: share (0..1) of the moves of either plan that the other does not make; 0 when neither moves anything.
    agreement: both_move, both_rest, only_live, only_shadow. regret: predicted max/mean of the scores after the live
    plan less that after the shadow's; above 0 the shadow would have left the brokers more even.
    """

    strategy: str
    moves: int
    disagreement: float
    agreement: str
    regret: float
    plan_hash: str


def compared(live: Plan, shadow: Plan) -> Comparison:
    """Two plans of the same input."""
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


def _moves(made: Plan) -> set[tuple[str, str]]:
    return {(move.bundle, move.target) for move in made.moves if move.rule not in NOT_FOR_BALANCE}
