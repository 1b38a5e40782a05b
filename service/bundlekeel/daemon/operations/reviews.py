"""Reviews: with `review: required` nothing a person asks for is carried out before another one approved.

proposed -> approved -> executing -> done | aborted, or proposed -> discarded. What is approved is still carried out
only if the plan is the same then; else its task fails with what has changed, and the proposal is aborted. The leader
asks the proposal right before it begins (`begin`), and stores how it ended (`settle`): tasks are forgotten sooner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from bundlekeel.core.model.errors import CodecError, Conflict, Forbidden, NotFound, StaleWrite, StoreError
from bundlekeel.daemon.answers.doc import Json
from bundlekeel.daemon.answers.plans import ReviewView
from bundlekeel.daemon.state.documents import SCHEMA, decode, encode
from bundlekeel.daemon.state.shared_state import SharedState
from bundlekeel.ports import Clock, Coordination

REVIEWS: Final = "reviews"
# What people may do in each state; the others end by themselves.
ACTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "proposed": ("approve", "discard"),
    # No task was left yet: the store failed the first approval, or another one is in the middle of it.
    "approved": ("approve", "discard"),
    "executing": ("stop",),
}
EXPIRES_MS: Final = 24 * 3600 * 1000
_KEPT: Final = 50
_CAS_TRIES: Final = 5
_GOING: Final = ("waiting", "running")


class ReviewProposal(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody wants done, and what another one said to it. `state` as stored: proposed, approved, discarded, and
    once its task is over done or aborted."""

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
    """The document: the newest proposals, oldest first."""

    schema: int = SCHEMA
    items: list[ReviewProposal] = []


def decode_reviews(data: bytes) -> ReviewProposals:
    """Return the proposals in a node. Raises CodecError if they cannot be read."""
    return decode(data, ReviewProposals, what=REVIEWS)


class Reviews:
    """Leaves requests for the leader: at once, or after a second person has approved."""

    def __init__(self, coordination: Coordination, shared_state: SharedState, clock: Clock, *, required: bool) -> None:
        self._coordination = coordination
        self._shared_state = shared_state
        self._clock = clock
        self.required = required

    async def submit(self, id_: str, kind: str, title: str, body: Mapping[str, Any]) -> Json:
        """{task, state}: the request is left (`waiting`), or waits for approval (`proposed`, no task yet)."""
        if not self.required:
            return {"task": await self._shared_state.leave_request(body), "state": "waiting", "review": None}
        made = ReviewProposal(
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
            return [*(item for item in items if item.id != id_), made][-_KEPT:]

        await self._change(added)
        return {"task": "", "state": "proposed", "review": id_}

    async def all(self) -> list[ReviewView]:
        """Proposals with their state now and what may be done with each, oldest first."""
        return [self._shown(item) for item in (await self._read())[0]]

    async def approve(self, id_: str, *, reason: str, by: str) -> ReviewView:
        """Let it be carried out. Forbidden for the person who proposed it; Conflict unless it is proposed, or approved
        without a task, or when somebody discards it at the same moment. StoreError: it may be approved again."""

        def approved(item: ReviewProposal) -> ReviewProposal:
            if _same_person(item.by, by):
                raise Forbidden(f"{by} proposed it; somebody else has to approve it", code="own-proposal")
            return self._decided(item, "approve", "approved", reason, by)

        item = await self._decide(id_, approved)
        task = await self._shared_state.leave_request({**item.body, "approved_by": by, "review": id_})

        def left(found: ReviewProposal) -> ReviewProposal:
            if found.task:
                return found  # the leader has begun it already, or another approval came first: only that task is
            if found.state != "approved":
                raise Conflict(
                    f"it was {found.state} meanwhile; nothing moves",
                    code="wrong-state",
                    difference=[f"state {found.state}"],
                )
            return msgspec.structs.replace(found, task=task)

        return self._shown(await self._decide(id_, left))

    async def discard(self, id_: str, *, reason: str, by: str) -> ReviewView:
        """Discard it; the proposer may, too. Conflict once it is being carried out, or over."""
        return self._shown(
            await self._decide(id_, lambda item: self._decided(item, "discard", "discarded", reason, by))
        )

    # --- the leader ---

    async def begin(self, id_: str, task: str) -> None:
        """Right before the leader carries out `task`: from now on it can only be stopped. Conflict unless the proposal
        is approved still, and left to this very task; NotFound when it is forgotten."""

        def begun(item: ReviewProposal) -> ReviewProposal:
            state = self._state(item)
            if state not in ("approved", "executing"):
                raise Conflict(
                    f"not carried out: its proposal is {state}", code="wrong-state", difference=[f"state {state}"]
                )
            if item.task not in ("", task):
                raise Conflict(
                    f"not carried out: its proposal was left to {item.task}", code="wrong-state", difference=[item.task]
                )
            return msgspec.structs.replace(item, task=task)

        await self._decide(id_, begun)

    async def settle(self) -> None:
        """Store how proposals ended whose task is over, or is no longer known. Only the leader may ask: it
        alone takes requests. StoreError when the store does not answer, or we no longer lead."""
        items, _ = await self._read()
        if not any(_carried_out(item) for item in items):
            return
        known = {str(found.get("task")): str(found.get("state")) for found in self._shared_state.tasks}
        waiting = dict.fromkeys((id_ for id_, _ in await self._shared_state.take_requests()), "waiting")
        ended = {
            item.task: "done" if state == "done" else "aborted"
            for item in items
            if _carried_out(item) and (state := (waiting | known).get(item.task, "lost")) not in _GOING
        }
        self._shared_state.current_epoch()  # somebody else may lead by now, and have taken what we did not find
        if ended:
            await self._change(lambda found: [_ended(item, ended) for item in found])

    # --- parts ---

    def _decided(self, item: ReviewProposal, action: str, state: str, remark: str, by: str) -> ReviewProposal:
        now = self._state(item)
        if action not in ACTIONS.get(now, ()):
            allowed = ", ".join(ACTIONS.get(now, ())) or "nothing"
            raise Conflict(
                f"it is {now}: {allowed} may be done with it", code="wrong-state", difference=[f"state {now}"]
            )
        return msgspec.structs.replace(item, state=state, reviewer=by, remark=remark, decided_ms=self._clock.wall_ms())

    def _state(self, item: ReviewProposal) -> str:
        """The state now: what is approved goes on with its task; what was not approved or discarded within a day has
        expired.
        """
        since = item.decided_ms or item.at_ms
        if item.state in ("proposed", "approved") and not item.task and self._clock.wall_ms() - since > EXPIRES_MS:
            return "expired"
        if not _carried_out(item):
            return item.state
        task = next((found for found in self._shared_state.tasks if found.get("task") == item.task), None)
        if task is None or task.get("state") in _GOING:
            return "executing"
        return "done" if task["state"] == "done" else "aborted"

    def _shown(self, item: ReviewProposal) -> ReviewView:
        state = self._state(item)
        shown = msgspec.to_builtins(item) | {"state": state, "actions": ACTIONS.get(state, ())}
        return msgspec.convert(shown, ReviewView)

    async def _decide(self, id_: str, change: Callable[[ReviewProposal], ReviewProposal]) -> ReviewProposal:
        def changed(items: list[ReviewProposal]) -> list[ReviewProposal]:
            if not any(item.id == id_ for item in items):
                raise NotFound(f"no proposal {id_}; see `bundlekeel review list`")
            return [change(item) if item.id == id_ else item for item in items]

        return next(item for item in await self._change(changed) if item.id == id_)

    async def _read(self) -> tuple[list[ReviewProposal], int | None]:
        """Return the proposals and the version of their node. None of them if the node cannot be read."""
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
            wanted = change(items)
            try:
                await self._coordination.write_shared(REVIEWS, encode(ReviewProposals(items=wanted)), version=version)
            except StaleWrite:
                continue
            return wanted
        raise StoreError("the proposals change faster than they can be written; try again")


def _carried_out(item: ReviewProposal) -> bool:
    """Whether it was left to a task of which no end is stored."""
    return item.state == "approved" and bool(item.task)


def _ended(item: ReviewProposal, ended: Mapping[str, str]) -> ReviewProposal:
    if not _carried_out(item) or item.task not in ended:
        return item
    return msgspec.structs.replace(item, state=ended[item.task])


def _same_person(one: str, other: str) -> bool:
    return one.strip().casefold() == other.strip().casefold()
