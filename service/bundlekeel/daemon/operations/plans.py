"""Plans as people ask for them at any replica: made by the leader, found wherever they were made, and carried out only
while their inputs are what they were."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from dataclasses import dataclass, replace

import msgspec

from bundlekeel.core.model.errors import Conflict, Forbidden, NotFound, StoreError
from bundlekeel.daemon.answers.doc import Json
from bundlekeel.daemon.answers.plans import PlanRequest, PlanView, Submitted, TaskView
from bundlekeel.daemon.cycle.planner import Planner
from bundlekeel.daemon.gate.gate import Action, Gate, GateQuestion
from bundlekeel.daemon.operations.executions import PlannedActions, difference, task_of
from bundlekeel.daemon.operations.operator_requests import OperatorRequests
from bundlekeel.daemon.state.leadership import Leadership
from bundlekeel.daemon.state.shared_state import SharedState
from bundlekeel.ports import Member, Peers

# What a plan's hash looks like: nothing else becomes part of another sidecar's URL.
_HASH = re.compile(r"[0-9a-f]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plans:
    """Create, find and execute plans."""

    gate: Gate
    leadership: Leadership
    shared_state: SharedState
    planner: Planner
    peers: Peers
    operator_requests: OperatorRequests

    async def make(self, request: PlanRequest) -> PlanView:
        """A dry run; a follower passes it on to the leader, and answers itself when that one does not."""
        answer = None if request.forwarded else await self._by_leader(request)
        if answer is not None:
            return self.planner.keep(answer, request)
        return await self.planner.make(request, by_leader=self.leadership.leading)

    async def _by_leader(self, request: PlanRequest) -> PlanView | None:
        """The leader's plan; None when we lead, or its API is away or of another release: our own picture and its
        stored memory give the same plan then."""
        leader = self._leader()
        if leader is None:
            return None
        try:
            answer = await self.peers.make_plan(leader.url, replace(request, forwarded=True).to_json())
            return await asyncio.to_thread(msgspec.convert, answer, PlanView)
        except (StoreError, msgspec.ValidationError):
            return None

    async def _wanted_now(self, request: PlanRequest) -> PlannedActions:
        """What the same request would do now; nothing of it is kept."""
        answer = await self._by_leader(request)
        return (
            PlannedActions.of_view(answer)
            if answer is not None
            else PlannedActions.of(await self.planner.compute(request))
        )

    async def find(self, hash_: str, *, here: bool = False) -> PlanView:
        """A plan made lately, here or (unless `here`) by another sidecar. NotFound."""
        return (await self._found(hash_, here=here))[0]

    async def execute(self, hash_: str, *, reason: str, by: str) -> Submitted:
        """Leave the plan for the leader to carry out; Conflict when it would not be the same plan any more."""
        answer, request = await self._found(hash_)
        self._may_be_carried_out(request)
        wanted = PlannedActions.of_view(answer)
        if not any(wanted):
            raise Conflict(
                "the plan has no moves and no splits", code="nothing-to-do", difference=["nothing to carry out"]
            )
        # The leader plans again right before it acts. Planned now as well, the answer says at once what is different.
        changed = difference(wanted, await self._wanted_now(request))
        if changed:
            raise Conflict(
                f"the inputs changed since the plan was made: {'; '.join(changed[:5])}",
                code="changed",
                difference=changed,
            )
        body = {"hash": hash_, "reason": reason, "by": by, **wanted._asdict(), "request": request.to_json()}
        splits = f", {len(wanted.splits)} splits" if wanted.splits else ""
        left = await self.operator_requests.submit(hash_, f"plan {hash_}: {len(wanted.moves)} moves{splits}", body)
        return Submitted(hash=hash_, moves=len(wanted.moves), splits=len(wanted.splits), **left)

    async def tasks(self) -> list[TaskView]:
        """What is, or was, carried out, oldest first, then requests that the leader has not taken yet (`waiting`). When
        the store does not answer: what is known here."""
        shared_state, asked = self.shared_state, list[tuple[str, Json]]()
        with suppress(StoreError):
            asked = await shared_state.take_requests()
            # In this order: what the leader takes meanwhile is in one of the two.
            if not shared_state.leading:
                await shared_state.refresh()
        known = {item.get("task") for item in shared_state.tasks}
        waiting = [task_of(id_, body, "waiting") for id_, body in asked if id_ not in known]
        return msgspec.convert([*shared_state.tasks, *waiting], list[TaskView])

    def _may_be_carried_out(self, request: PlanRequest) -> None:
        if request.what_if:
            text = "this plan is a what-if: brokers or traffic in it are not as they are; make one without"
            raise Forbidden(text, code="what-if")
        self.gate.demand(GateQuestion(action=Action.SUBMISSION))

    def _leader(self) -> Member | None:
        """Another sidecar that leads and can be asked."""
        leadership = self.leadership
        leader = leadership.leader
        known = leader is not None and leader.url and leader.id != leadership.member.id
        return leader if known and not leadership.leading else None

    async def _found(self, hash_: str, *, here: bool = False) -> tuple[PlanView, PlanRequest]:
        """From here, else from whichever sidecar made it; then it is kept here too."""
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
            found = await asyncio.to_thread(msgspec.convert, answer, PlanView)
            request = PlanRequest.of(found.request)
        except (TypeError, ValueError) as error:
            raise NotFound(f"plan {hash_} is one of another version of Bundlekeel; make a new one ({error})") from error
        self.planner.keep(found, request)
        return self.planner.find(hash_)

    async def _elsewhere(self, hash_: str) -> tuple[Json | None, list[str]]:
        """The plan as another sidecar kept it, and who did not answer."""
        own, leader = self.leadership.member.id, self._leader()
        members = {item.id: item for item in (*self.leadership.members, *([leader] if leader else []))}
        others = [item for item in members.values() if item.id != own and item.url]
        found = await asyncio.gather(*(self.peers.plan(item.url, hash_) for item in others), return_exceptions=True)
        silent = []
        for member, answer in zip(others, found, strict=True):
            if isinstance(answer, StoreError):
                silent.append(member.id)
            elif isinstance(answer, BaseException):
                raise answer
            elif answer is not None and answer["hash"] == hash_ and isinstance(answer.get("request"), dict):
                return answer, []
        return None, silent
