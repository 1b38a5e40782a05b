"""Common parts of drains (empty a broker) and warm-ups (fill a broker): the dry run, which shows all their moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

from bundlekeel.leader.cycle.plan_responses import MoveView, RefusalView
from bundlekeel.leader.cycle.planner import counted, move_view, refusal_view
from bundlekeel.leader.gate.gate import Action
from bundlekeel.model.codes import Code
from bundlekeel.model.doc import Answer, Doc
from bundlekeel.model.plan import Move, Refusal
from bundlekeel.model.response_fields import Broker, Detail, Sentence
from bundlekeel.planning.engine import PlanResult
from bundlekeel.planning.owned import with_owned
from bundlekeel.planning.relocation import RULES
from bundlekeel.requests.verb import DryRun, Held, HeldExplanation, Verb

# A dry run has no budget, so it shows all bundles that would leave.
UNLIMITED: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RelocationView(Answer):
    """Response to a drain (empty a broker) or warm-up (fill a broker), with its moves."""

    broker: Broker
    dry_run: DryRun
    bundles: Annotated[int, Doc("number of bundles that the broker owns (drain), or that it receives (warm-up)")]
    moves: Annotated[list[MoveView], Doc("moves, in order")]
    refusals: Annotated[list[RefusalView], Doc("bundles that do not move for now, with reasons")]
    refusal_counts: Annotated[dict[str, int], Doc("number of refusals by code", keys=Code)]
    eta_seconds: Annotated[float | None, Doc("estimated duration of these moves; null: none may move")]
    sentence: Sentence
    detail: Detail
    held: Held = ""
    held_explanation: HeldExplanation = ""


class Relocation(Verb):
    """Requests to drain (empty) or warm up (fill) a broker."""

    async def _plan_relocations(
        self,
        *,
        draining: frozenset[str] = frozenset(),
        warming: frozenset[str] = frozenset(),
        owned: Mapping[str, frozenset[str]] | None = None,
    ) -> PlanResult:
        """Return all moves that a drain or warm-up would cause over the next plans.

        They come from one plan without limits on the number of moves."""
        inputs = self.cycle.plan_input(with_owned(self.cycle.demand_snapshot(), owned or {}))
        cordoned = inputs.guard.cordoned | draining
        guard = replace(inputs.guard, cordoned=cordoned, draining=draining, warming=warming)
        if warming:
            # A warm-up waits for the end of a roll-out. Show the moves that follow then.
            guard = replace(guard, changed_brokers={}, rolling_ms=0)
        params = replace(inputs.params, drain_max_moves_per_cycle=UNLIMITED, warm_max_moves_per_cycle=UNLIMITED)
        return await self.cycle.compute(replace(inputs, guard=guard, params=params, owned=owned or {}))

    def _relocation_view(
        self, broker: str, moves: Sequence[Move], refusals: Sequence[Refusal], **fields: Any
    ) -> RelocationView:
        return RelocationView(
            broker=broker,
            moves=[move_view(move) for move in moves],
            refusals=[refusal_view(item) for item in refusals],
            refusal_counts=counted(refusals),
            **fields,
            **self._held(Action.ORDER),
        )


def relocations(result: PlanResult) -> list[Move]:
    """Return the moves of drains and warm-ups in a plan."""
    return [move for move in result.plan.moves if move.rule in RULES]
