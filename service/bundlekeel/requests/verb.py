"""Base class of operators' requests, with what several of them share.

The replica that receives a request stores it in the shared state, and the leader reads it there. A module contains one
kind of request (a verb): its rule, its responses and its service calls. The command line imports the responses, so
imports for annotations alone are behind `TYPE_CHECKING`: otherwise each command would import the control loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from bundlekeel.leader.gate.gate import Action, Gate, GateQuestion
from bundlekeel.leader.gate.in_force import LeftAlone
from bundlekeel.leader.state.documents import Desired, LastingRequest, OperatorRequest, request_record
from bundlekeel.model.codes import LASTING, explain
from bundlekeel.model.doc import Doc
from bundlekeel.model.errors import Conflict, NotFound, SnapshotError
from bundlekeel.model.names import as_pulsar_writes
from bundlekeel.model.response_fields import CODE_OR_EMPTY, Broker, Requested
from bundlekeel.model.text_format import unknown_broker
from bundlekeel.ports import Clock, Journal, Metadata, Ownership

if TYPE_CHECKING:
    from bundlekeel.leader.cycle.cycle import Cycle
    from bundlekeel.leader.state.shared_state import SharedState
    from bundlekeel.requests.drain import DrainTracker
    from bundlekeel.requests.review import Reviews

UntilMs = Annotated[int, Doc("end time; 0: it lasts until an operator ends it")]
Matched = Annotated[int | None, Doc("number of known bundles that match now; null: unknown. 0 can be intended")]
DryRun = Annotated[bool, Doc("whether this is a dry run, which executes nothing")]
ReviewId = Annotated[str | None, Doc("id of the review that the request waits for; null: none")]
Held = Annotated[
    str,
    Doc(
        "code of the obstacle that blocks the request or the leader now; empty: none",
        grows=CODE_OR_EMPTY,
    ),
]
HeldExplanation = Annotated[str, Doc("meaning of the code; empty: no code")]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestView(Requested):
    """A cordon (no bundle moves to the broker) or warm-up (the broker is filled) of a broker."""

    broker: Broker


@dataclass(frozen=True, kw_only=True)
class Verb:
    """The parts of a sidecar that operators' requests use, and how a request is stored and recorded."""

    shared_state: SharedState
    cycle: Cycle
    drain_tracker: DrainTracker
    review_store: Reviews
    metadata: Metadata
    ownership: Ownership
    journal: Journal
    clock: Clock
    gate: Gate

    def _held(self, action: Action | None = None) -> dict[str, Any]:
        """Return code and explanation of what blocks this action now, or of what blocked all moves in the last cycle.

        From the leader's last cycle, only an obstacle that lasts until an operator acts is returned. Code and
        explanation are "" if nothing blocks it."""
        refused = self.gate.check(GateQuestion(action=action)) if action else None
        last = str(self.shared_state.shared.report.get("obstacle") or "")
        code = refused.code.value if refused else last if last in LASTING else ""
        return {"held": code, "held_explanation": explain(code)}

    def _registered(self) -> tuple[str, ...]:
        if self.cycle.picture is None:
            raise SnapshotError(self.cycle.no_picture)
        return tuple(self.cycle.picture.endpoints)

    def _check_registered(self, broker: str) -> None:
        if broker not in self._registered():
            raise NotFound(unknown_broker(broker, self._registered()))

    def _check_others_open(self, desired: Desired, broker: str) -> None:
        """Raise Conflict if all other brokers are drained or cordoned: then no broker could receive the bundles."""
        if not set(self._registered()) - {broker, *desired.drains, *desired.cordons}:
            raise Conflict(
                f"no other broker is open to bundles: all but {broker} are drained or cordoned; uncordon one first",
                code="last-broker",
                difference=["no other broker can receive the bundles"],
            )

    def _left_alone(self) -> LeftAlone:
        return LeftAlone(self.shared_state.desired, self.clock.wall_ms())

    def _operator_request(self, reason: str, by: str) -> OperatorRequest:
        return OperatorRequest(by=by, reason=reason, since_ms=self.clock.wall_ms())

    def _lasting_request(self, seconds: float | None, reason: str, by: str) -> LastingRequest:
        return LastingRequest(by=by, reason=reason, since_ms=self.clock.wall_ms(), until_ms=self._until(seconds))

    def _until(self, seconds: float | None) -> int:
        return self.clock.wall_ms() + int(seconds * 1000) if seconds else 0

    async def _note(self, change: Callable[[Desired], Desired], what: str, reason: str, by: str) -> None:
        await self.shared_state.change_desired(change)
        self._record(what, reason, by)

    def _record(self, what: str, reason: str, by: str) -> None:
        self.journal.append(request_record(what, reason=reason, by=by, wall_ms=self.clock.wall_ms()))


def as_stored(text: str) -> str:
    """Return a scope or pattern as it is stored: names in Pulsar's spelling, without whitespace around its parts."""
    return ":".join(as_pulsar_writes(part.strip()) for part in text.split(":", 1))


def put(desired: Desired, table: str, name: str, value: Any) -> Desired:
    return msgspec.structs.replace(desired, **{table: {**getattr(desired, table), name: value}})


def drop(desired: Desired, table: str, name: str) -> Desired:
    left = {key: value for key, value in getattr(desired, table).items() if key != name}
    return msgspec.structs.replace(desired, **{table: left})
