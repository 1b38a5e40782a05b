"""Reviews: with `review: required`, an operator's request is a proposal that a second operator must approve.

States: proposed -> approved -> executing -> done | aborted, or proposed -> discarded. An approved proposal is
executed only if planning again gives the same actions; else its task fails with the differences, and the proposal is
aborted. The leader checks the proposal right before it starts (`begin`). It copies the task's result into the
proposal (`settle`), because a task is deleted earlier than its proposal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from bundlekeel.leader.gate.gate import Action, GateQuestion
from bundlekeel.leader.state.documents import SCHEMA, decode, encode
from bundlekeel.leader.state.responses import TaskKind
from bundlekeel.model.calls import reads
from bundlekeel.model.doc import Answer, Doc
from bundlekeel.model.errors import CodecError, Conflict, Forbidden, NotFound, StaleWrite, StoreError
from bundlekeel.model.response_fields import Json, Reason
from bundlekeel.ports import Clock, Coordination
from bundlekeel.pulsar.formats import external_input
from bundlekeel.requests.verb import Verb

if TYPE_CHECKING:
    from bundlekeel.leader.state.shared_state import SharedState

ReviewAction = Annotated[str, Doc("possible action on a review", grows=("approve", "discard", "stop"))]
REVIEWS: Final = "reviews"
# What an operator can do with a proposal in each state. In the states without an entry: nothing.
ACTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "proposed": ("approve", "discard"),
    # A proposal has this state only without a task: the store failed during the first approval, or another approval
    # is in progress.
    "approved": ("approve", "discard"),
    "executing": ("stop",),
}
EXPIRES_MS: Final = 24 * 3600 * 1000
_MOST_PROPOSALS: Final = 50
_CAS_TRIES: Final = 5
_NOT_ENDED: Final = ("waiting", "running")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewView(Answer):
    """A change that one operator proposed and another operator must approve."""

    id: Annotated[str, Doc("`hash` of the proposed change")]
    kind: TaskKind
    title: Annotated[str, Doc("proposed change, as text")]
    by: Annotated[str, Doc("operator who proposed the change")]
    reason: Reason
    at_ms: Annotated[int, Doc("time of the proposal")]
    state: Annotated[
        str,
        Doc("state of the review", of=("proposed", "approved", "executing", "done", "aborted", "discarded", "expired")),
    ]
    reviewer: Annotated[str, Doc("operator who approved or discarded the change; empty: none yet")]
    remark: Annotated[str, Doc("reason that the reviewer entered")]
    decided_ms: Annotated[int, Doc("time of the approval or discard; 0: not yet")]
    task: Annotated[str, Doc("id of the task; empty: none yet")]
    actions: Annotated[list[ReviewAction], Doc("actions that are possible now: approve, discard, stop")]


class ReviewProposal(msgspec.Struct, frozen=True, kw_only=True):
    """A requested action and its review.

    `state`: proposed, approved or discarded; done or aborted after the task has ended. Other states are not stored.
    """

    id: str
    kind: str
    title: str
    body: dict[str, Any]
    by: str
    reason: str
    at_ms: int
    state: str = "proposed"
    reviewer: str = ""
    remark: str = ""
    decided_ms: int = 0
    task: str = ""


class ReviewProposals(msgspec.Struct, frozen=True, kw_only=True):
    """The stored document with the newest proposals, oldest first."""

    schema: int = SCHEMA
    items: list[ReviewProposal] = []


def decode_reviews(data: bytes) -> ReviewProposals:
    """Return the proposals in a node. Raises CodecError if they cannot be read."""
    return decode(data, ReviewProposals, what=REVIEWS)


class Reviews:
    """Stores requests for the leader: immediately, or after a second operator has approved them."""

    def __init__(self, coordination: Coordination, shared_state: SharedState, clock: Clock, *, required: bool) -> None:
        self._coordination = coordination
        self._shared_state = shared_state
        self._clock = clock
        self.required = required

    async def submit(self, id_: str, kind: str, title: str, body: Mapping[str, Any]) -> Json:
        """Store a request for the leader, or as a proposal; return {task, state}.

        State `waiting`: the leader executes it. State `proposed`: it needs an approval and has no task yet.
        """
        if not self.required:
            return {"task": await self._shared_state.leave_request(body), "state": "waiting", "review": None}
        proposal = ReviewProposal(
            id=id_,
            kind=kind,
            title=title,
            body=dict(body),
            by=str(body.get("by", "")),
            reason=str(body.get("reason", "")),
            at_ms=self._clock.wall_ms(),
        )

        def added(items: list[ReviewProposal]) -> list[ReviewProposal]:
            if any(item.id == id_ and self._state(item) in ("proposed", "approved", "executing") for item in items):
                raise Conflict(
                    f"{id_} is proposed already", code="wrong-state", difference=["see `bundlekeel review list`"]
                )
            return [*(item for item in items if item.id != id_), proposal][-_MOST_PROPOSALS:]

        await self._change(added)
        return {"task": "", "state": "proposed", "review": id_}

    async def all(self) -> list[ReviewView]:
        """Return the proposals, oldest first, with their current state and the possible actions."""
        return [self._view(item) for item in (await self._read())[0]]

    async def approve(self, id_: str, *, reason: str, by: str) -> ReviewView:
        """Approve the execution of a proposal.

        Raises Forbidden for the operator who proposed it. Raises Conflict if the state of the proposal does not allow
        it, or if another operator discards it at the same time. After a StoreError the operator can approve again.
        """

        def approved(item: ReviewProposal) -> ReviewProposal:
            if _same_person(item.by, by):
                raise Forbidden(f"{by} proposed it; another operator has to approve it", code="own-proposal")
            return self._decided(item, "approve", "approved", reason, by)

        item = await self._decide(id_, approved)
        task = await self._shared_state.leave_request({**item.body, "approved_by": by, "review": id_})

        def attach_task(item: ReviewProposal) -> ReviewProposal:
            if item.task:
                # The leader has started it already, or another approval was first: keep the task of that approval.
                return item
            if item.state != "approved":
                raise Conflict(
                    f"the proposal was {item.state} meanwhile; nothing moves",
                    code="wrong-state",
                    difference=[f"state {item.state}"],
                )
            return msgspec.structs.replace(item, task=task)

        return self._view(await self._decide(id_, attach_task))

    async def discard(self, id_: str, *, reason: str, by: str) -> ReviewView:
        """Discard a proposal; the proposer may do this, too. Raises Conflict if it is executing or has ended."""
        return self._view(await self._decide(id_, lambda item: self._decided(item, "discard", "discarded", reason, by)))

    # --- the leader ---

    async def begin(self, id_: str, task: str) -> None:
        """Bind a proposal to `task`, right before the leader executes the task. Afterwards the proposal can only be
        stopped.

        Raises Conflict if the proposal is not approved any more or has another task, and NotFound if it was deleted."""

        def bind(item: ReviewProposal) -> ReviewProposal:
            state = self._state(item)
            if state not in ("approved", "executing"):
                raise Conflict(
                    f"not executed: the proposal is {state}", code="wrong-state", difference=[f"state {state}"]
                )
            if item.task not in ("", task):
                raise Conflict(
                    f"not executed: the proposal belongs to task {item.task}",
                    code="wrong-state",
                    difference=[item.task],
                )
            return msgspec.structs.replace(item, task=task)

        await self._decide(id_, bind)

    async def settle(self) -> None:
        """Store the result of proposals whose task has ended or is unknown.

        For the leader only, because only the leader takes requests. Raises StoreError if the store does not respond,
        or if this sidecar does not lead any more.
        """
        items, _ = await self._read()
        if not any(_has_open_task(item) for item in items):
            return
        states = {str(task.get("task")): str(task.get("state")) for task in self._shared_state.tasks}
        waiting = dict.fromkeys((id_ for id_, _ in await self._shared_state.take_requests()), "waiting")
        ended = {
            item.task: "done" if state == "done" else "aborted"
            for item in items
            if _has_open_task(item) and (state := (waiting | states).get(item.task, "lost")) not in _NOT_ENDED
        }
        # Raises StoreError if another sidecar leads now: the missing requests can be its tasks.
        self._shared_state.current_epoch()
        if ended:
            await self._change(lambda task: [_ended(item, ended) for item in task])

    # --- helpers ---

    def _decided(self, item: ReviewProposal, action: str, state: str, remark: str, by: str) -> ReviewProposal:
        now = self._state(item)
        if action not in ACTIONS.get(now, ()):
            allowed = ", ".join(ACTIONS.get(now, ())) or "none"
            raise Conflict(
                f"the proposal is {now}; possible actions: {allowed}", code="wrong-state", difference=[f"state {now}"]
            )
        return msgspec.structs.replace(item, state=state, reviewer=by, remark=remark, decided_ms=self._clock.wall_ms())

    def _state(self, item: ReviewProposal) -> str:
        """Return the current state of a proposal.

        An approved proposal has the state of its task. It is expired if it was neither approved nor discarded
        within a day.
        """
        since = item.decided_ms or item.at_ms
        if item.state in ("proposed", "approved") and not item.task and self._clock.wall_ms() - since > EXPIRES_MS:
            return "expired"
        if not _has_open_task(item):
            return item.state
        task = next((other for other in self._shared_state.tasks if other.get("task") == item.task), None)
        if task is None or task.get("state") in _NOT_ENDED:
            return "executing"
        return "done" if task["state"] == "done" else "aborted"

    def _view(self, item: ReviewProposal) -> ReviewView:
        state = self._state(item)
        fields = msgspec.to_builtins(item) | {"state": state, "actions": ACTIONS.get(state, ())}
        return external_input.convert(fields, ReviewView)

    async def _decide(self, id_: str, change: Callable[[ReviewProposal], ReviewProposal]) -> ReviewProposal:
        def changed(items: list[ReviewProposal]) -> list[ReviewProposal]:
            if not any(item.id == id_ for item in items):
                raise NotFound(f"no proposal {id_}; see `bundlekeel review list`")
            return [change(item) if item.id == id_ else item for item in items]

        return next(item for item in await self._change(changed) if item.id == id_)

    async def _read(self) -> tuple[list[ReviewProposal], int | None]:
        document, items, why = await self._coordination.read(REVIEWS), list[ReviewProposal](), dict[str, str]()
        try:
            if document is not None:
                items = decode_reviews(document.data).items
        except CodecError as error:
            why = {REVIEWS: str(error)}
        self._shared_state.set_aside(REVIEWS, why)
        return items, document.version if document else None

    async def _change(self, change: Callable[[list[ReviewProposal]], list[ReviewProposal]]) -> list[ReviewProposal]:
        for _ in range(_CAS_TRIES):
            items, version = await self._read()
            if why := self._shared_state.unreadable[REVIEWS]:
                raise StoreError(f"{why[REVIEWS]}; it is not overwritten: see `bundlekeel doctor`")
            changed = change(items)
            try:
                await self._coordination.write_shared(REVIEWS, encode(ReviewProposals(items=changed)), version=version)
            except StaleWrite:
                continue
            return changed
        raise StoreError("other operators changed the proposals several times meanwhile; try again")


class Review(Verb):
    """Requests that a second operator must approve (proposals)."""

    async def submit(self, id_: str, title: str, body: Mapping[str, Any]) -> Json:
        """Store a plan for the leader, or as a proposal if a second operator must approve it."""
        left = await self.review_store.submit(id_, "plan", title, body)
        self._record(title, str(body.get("reason", "")), str(body.get("by", "")))
        return left

    @reads
    async def reviews(self) -> list[ReviewView]:
        """Return all proposals."""
        return await self.review_store.all()

    async def approve(self, id_: str, *, reason: str, by: str) -> ReviewView:
        """Approve a proposal for execution."""
        self.gate.demand(GateQuestion(action=Action.SUBMISSION))
        answer = await self.review_store.approve(id_, reason=reason, by=by)
        self._record(f"approval of {id_}", reason, by)
        return answer

    async def discard(self, id_: str, *, reason: str, by: str) -> ReviewView:
        """Discard a proposal, so that it is not executed."""
        answer = await self.review_store.discard(id_, reason=reason, by=by)
        self._record(f"discard of {id_}", reason, by)
        return answer


def _has_open_task(item: ReviewProposal) -> bool:
    return item.state == "approved" and bool(item.task)


def _ended(item: ReviewProposal, ended: Mapping[str, str]) -> ReviewProposal:
    if not _has_open_task(item) or item.task not in ended:
        return item
    return msgspec.structs.replace(item, state=ended[item.task])


def _same_person(one: str, other: str) -> bool:
    return one.strip().casefold() == other.strip().casefold()
