"""Transfers: an operator moves one bundle to a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bundlekeel.leader.cycle.planner import move_view, refusal_view
from bundlekeel.model.codes import EXPLANATIONS, Code
from bundlekeel.model.errors import Conflict
from bundlekeel.model.plan import Move as PlannedMove
from bundlekeel.model.response_fields import Json
from bundlekeel.planning.manual_moves import ManualPlan, TargetCandidate, manual_move
from bundlekeel.requests.manual_moves import UNREADABLE, CandidateView, ManualMoves, ManualMoveView, hash_of, text_of
from bundlekeel.requests.where import WholeBundle


class Move(ManualMoves):
    """The request to move one bundle."""

    async def transfer(
        self,
        name: str,
        *,
        to: str,
        override_cool_down: bool = False,
        execute: bool = False,
        reason: str = "",
        by: str = "",
    ) -> ManualMoveView:
        """Move one bundle to a broker; a dry run unless `execute`."""
        answer, operator_request = await self.plan_move(name, to, override_cool_down=override_cool_down)
        return await self._respond("transfer", answer, operator_request, execute=execute, reason=reason, by=by)

    async def plan_move(
        self, name: str, to: str = "", *, override_cool_down: bool = False
    ) -> tuple[ManualMoveView, Json]:
        """Return the dry run of moving one bundle, and the request for the leader (empty if the move is refused).

        `name`: a bundle or topic. `to`: the target broker; "": the broker with most headroom."""
        whole = await self._whole(name)
        owner = await self._owner(whole.bundle)
        if to:
            self._check_registered(to)
        plan = await self._planned(whole.bundle, owner, to, override_cool_down=override_cool_down)
        kind = "transfer" if to else "unload"
        candidates = [self._candidate(item) for item in plan.candidates]
        answer = _answer(kind, name, whole, owner, plan, candidates=candidates, override_cool_down=override_cool_down)
        if plan.move is None:
            return answer, {}
        target = plan.move.target
        body = {"kind": kind, "bundle": whole.bundle, "source": owner, "target": target}
        # A leader that can execute only plans reads `moves`, does not find such a plan, and refuses the request.
        return answer, body | {
            "override_cool_down": override_cool_down,
            "moves": [[whole.bundle, owner, target]],
            "hash": answer.hash,
        }

    async def moves_of(self, body: Mapping[str, Any]) -> tuple[PlannedMove, ...]:
        """Plan the move that a stored request contains again. Raises Conflict with the difference if it has changed."""
        bundle, source, target = (str(body.get(key, "")) for key in ("bundle", "source", "target"))
        if not bundle or not source or not target:
            raise Conflict(UNREADABLE, code="refused", difference=[UNREADABLE])
        owner = await self._owner(bundle)
        if owner != source:
            raise Conflict(
                "the inputs changed since it was asked for",
                code="changed",
                difference=[f"{bundle} is owned by {owner} now"],
            )
        plan = await self._planned(bundle, owner, target, override_cool_down=bool(body.get("override_cool_down")))
        if plan.move is None:
            assert plan.refusal is not None
            text = text_of(plan.refusal)
            raise Conflict(f"not carried out: {text}", code=plan.refusal.code.value, difference=[text])
        return (plan.move,)

    async def _planned(self, bundle: str, owner: str, to: str, *, override_cool_down: bool) -> ManualPlan:
        request = await self._with_policies({bundle: owner})
        plan = await asyncio.to_thread(manual_move, request, bundle, owner, to, override_cool_down=override_cool_down)
        if plan.refusal is None:
            return plan
        return replace(plan, refusal=self._left_alone().explain(plan.refusal))

    def _candidate(self, item: TargetCandidate) -> CandidateView:
        code = item.code
        if code is Code.EXCLUDED:
            code, _ = self._left_alone().why("", item.broker)
        return CandidateView(
            broker=item.broker,
            score_before=item.score_before,
            score_after=item.score_after,
            code=code.value if code is not None else None,
            explanation=EXPLANATIONS[code] if code is not None else "",
        )


def _answer(
    kind: str,
    name: str,
    whole: WholeBundle,
    owner: str,
    plan: ManualPlan,
    *,
    candidates: list[CandidateView],
    override_cool_down: bool,
) -> ManualMoveView:
    move = plan.move
    sentence = whole.sentence if plan.refusal is None else whole.sentence_with("would move")
    return ManualMoveView(
        kind=kind,
        name=name,
        bundle=whole.bundle,
        source=owner,
        target=move.target if move is not None else None,
        move=move_view(move) if move is not None else None,
        refusals=[refusal_view(plan.refusal)] if plan.refusal is not None else [],
        candidates=candidates,
        loads=list(plan.loads),
        sentence=f"{sentence}; refused: {text_of(plan.refusal)}" if plan.refusal is not None else sentence,
        hash=hash_of(kind, whole.bundle, owner, move.target if move is not None else ""),
        override_cool_down=override_cool_down,
    )
