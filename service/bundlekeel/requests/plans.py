"""Plans that operators request at any replica.

The leader makes a plan. Any replica finds it by its hash, and it is executed only if planning again gives the same
actions.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec

from bundlekeel.leader.cycle.plan_responses import PlanRequest, PlanView
from bundlekeel.leader.gate.gate import Action, GateQuestion
from bundlekeel.model.doc import Answer, Doc
from bundlekeel.model.errors import Conflict, Forbidden, NotFound, StoreError
from bundlekeel.model.plan import Plan
from bundlekeel.model.response_fields import Hash, Json
from bundlekeel.ports import Peers
from bundlekeel.pulsar.formats import external_input
from bundlekeel.requests.verb import ReviewId

if TYPE_CHECKING:
    from bundlekeel.leader.cycle.planner import Planner
    from bundlekeel.leader.state.leadership import Leadership
    from bundlekeel.requests.operator_requests import OperatorRequests

# Format of a plan's hash. It becomes part of a URL of another sidecar, so all other text is rejected.
_HASH = re.compile(r"[0-9a-f]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted(Answer):
    """A plan that waits for the leader or for a review."""

    hash: Hash
    moves: Annotated[int, Doc("number of moves")]
    splits: Annotated[int, Doc("number of splits")]
    task: Annotated[str, Doc("id of the task; empty (not null): a second operator must approve first")]
    state: Annotated[
        str, Doc("waiting (for the leader) or proposed (to a second operator)", of=("waiting", "proposed"))
    ]
    review: ReviewId


@dataclass(frozen=True, slots=True, kw_only=True)
class Plans:
    """Creates, finds and executes plans for operators."""

    leadership: Leadership
    planner: Planner
    peers: Peers
    operator_requests: OperatorRequests

    async def make(self, request: PlanRequest) -> PlanView:
        """Return a new plan as a dry run.

        A follower forwards the request to the leader. If the leader does not respond, the follower computes the plan.
        """
        answer = None if request.forwarded else await self._by_leader(request)
        if answer is not None:
            return self.planner.keep(answer, request)
        return await self.planner.make(request, by_leader=self.leadership.leading)

    async def _by_leader(self, request: PlanRequest) -> PlanView | None:
        """Return the leader's plan; None if this sidecar leads, or if the leader does not send a readable plan.

        In that case this sidecar can plan itself with the same result: it reads the same cluster and the leader's
        stored state."""
        leader = self.leadership.other_leader
        if leader is None:
            return None
        try:
            answer = await self.peers.make_plan(leader.url, replace(request, forwarded=True).to_json())
            return await asyncio.to_thread(external_input.convert, answer, PlanView)
        except (StoreError, msgspec.ValidationError):
            return None

    async def _actions_now(self, request: PlanRequest) -> PlannedActions:
        answer = await self._by_leader(request)
        return (
            PlannedActions.of_view(answer)
            if answer is not None
            else PlannedActions.of(await self.planner.compute(request))
        )

    async def find(self, hash_: str, *, here: bool = False) -> PlanView:
        """Return a recent plan by its hash. Raises NotFound if no sidecar has it.

        `here`: search only this sidecar.
        """
        return (await self._find_anywhere(hash_, here=here))[0]

    async def execute(self, hash_: str, *, reason: str, by: str) -> Submitted:
        """Store the plan for execution by the leader. Raises Conflict if planning again gives other actions."""
        answer, request = await self._find_anywhere(hash_)
        self._may_be_carried_out(request)
        actions = PlannedActions.of_view(answer)
        if not any(actions):
            raise Conflict(
                "the plan has no moves and no splits", code="nothing-to-do", difference=["nothing to carry out"]
            )
        # The leader plans again right before it acts. Planning here, too, shows the operator differences immediately.
        changed = difference(actions, await self._actions_now(request))
        if changed:
            raise Conflict(
                f"the inputs changed since the plan was made: {'; '.join(changed[:5])}",
                code="changed",
                difference=changed,
            )
        body = {"hash": hash_, "reason": reason, "by": by, **actions._asdict(), "request": request.to_json()}
        splits = f", {len(actions.splits)} splits" if actions.splits else ""
        left = await self.operator_requests.submit(hash_, f"plan {hash_}: {len(actions.moves)} moves{splits}", body)
        return Submitted(hash=hash_, moves=len(actions.moves), splits=len(actions.splits), **left)

    def _may_be_carried_out(self, request: PlanRequest) -> None:
        if request.what_if:
            text = "this plan is a what-if: brokers or traffic in it are not as they are; make one without"
            raise Forbidden(text, code="what-if")
        self.operator_requests.gate.demand(GateQuestion(action=Action.SUBMISSION))

    async def _find_anywhere(self, hash_: str, *, here: bool = False) -> tuple[PlanView, PlanRequest]:
        try:
            return self.planner.find(hash_)
        except NotFound as unknown:
            if here or not _HASH.fullmatch(hash_):
                raise
            answer, silent = await self._elsewhere(hash_)
            if answer is None:
                also = f" ({', '.join(silent)} did not answer)" if silent else ""
                raise NotFound(f"{unknown}{also}") from unknown
        try:
            plan = await asyncio.to_thread(external_input.convert, answer, PlanView)
            request = PlanRequest.of(plan.request)
        except (TypeError, ValueError) as error:
            raise NotFound(f"plan {hash_} is one of another version of Bundlekeel; make a new one ({error})") from error
        self.planner.keep(plan, request)
        return self.planner.find(hash_)

    async def _elsewhere(self, hash_: str) -> tuple[Json | None, list[str]]:
        own, leader = self.leadership.member.id, self.leadership.other_leader
        members = {item.id: item for item in (*self.leadership.members, *([leader] if leader else []))}
        others = [item for item in members.values() if item.id != own and item.url]
        responses = await asyncio.gather(*(self.peers.plan(item.url, hash_) for item in others), return_exceptions=True)
        silent = []
        for member, answer in zip(others, responses, strict=True):
            if isinstance(answer, StoreError):
                silent.append(member.id)
            elif isinstance(answer, BaseException):
                raise answer
            elif answer is not None and answer["hash"] == hash_ and isinstance(answer.get("request"), dict):
                return answer, []
        return None, silent


def request_of(body: Mapping[str, Any]) -> PlanRequest:
    """Return the plan request that a stored request wants to execute.

    Raises TypeError or ValueError if it is malformed."""
    return PlanRequest.of(body.get("request") or {})


class PlannedActions(NamedTuple):
    """Actions of a plan: moves (bundle, source, target) and splits (bundle, owner)."""

    moves: list[tuple[str, ...]]
    splits: list[tuple[str, ...]]

    @classmethod
    def of(cls, plan: Plan) -> PlannedActions:
        """Return the actions of a computed plan."""
        moves = [(move.bundle, move.source, move.target) for move in plan.moves]
        return cls(list(moves), [(split.bundle, split.broker) for split in plan.splits])

    @classmethod
    def of_view(cls, plan: PlanView) -> PlannedActions:
        """Return the actions of a plan in API form (leader/cycle/planner.py)."""
        moves = [(move.bundle, move.source, move.target) for move in plan.moves]
        return cls(list(moves), [(split.bundle, split.broker) for split in plan.splits])


def difference(requested: PlannedActions, now: PlannedActions) -> list[str]:
    """Return one text per action that only one of the two plans has; empty if their actions are equal."""
    if requested == now:
        return []
    changes = []
    for before, after, does in ((requested.moves, now.moves, "move"), (requested.splits, now.splits, "be split")):
        then, rows = {row[0]: row[1:] for row in before}, {row[0]: row[1:] for row in after}
        changes += [f"{bundle} would no longer {does}" for bundle in then if bundle not in rows]
        changes += [f"{bundle} would {does} now" for bundle in rows if bundle not in then]
        verb = "go" if does == "move" else "be split at"
        changes += [
            f"{bundle} would {verb} {' -> '.join(rows[bundle])}"
            for bundle, place in then.items()
            if rows.get(bundle, place) != place
        ]
    return changes or ["the order of the moves"]
