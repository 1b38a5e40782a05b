"""Responses about the shared state: role, takeover, tasks. Tasks are stored in this form, with the leader's state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from bundlekeel.model.codes import OUTCOMES, Code
from bundlekeel.model.doc import Answer, Doc
from bundlekeel.model.response_fields import Bundle, By, Detail, Hash, Reason, WallMs

Role = Literal["leader", "follower", "bench"]
TaskKind = Annotated[str, Doc("kind of the task", of=("plan", "transfer", "unload", "split"))]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeView(Answer):
    """The result of a move of a task."""

    bundle: Bundle
    outcome: Annotated[str, Doc("outcome of the move", of=OUTCOMES)]
    landed_on: Annotated[str, Doc("broker that owns the bundle afterwards; empty: none, or unknown")] = ""
    code: Annotated[str | None, Doc("code of why the move was refused or failed; null: none", grows=Code)] = None

    def __post_init__(self) -> None:
        """Replace the empty code of a stored move by None."""
        object.__setattr__(self, "code", self.code or None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskView(Answer):
    """A request that the leader executes (task), and its progress. Tasks are also stored in this form."""

    task: Annotated[str, Doc("id of the task")]
    hash: Hash = ""
    state: Annotated[
        str,
        Doc(
            "waiting: for the leader. done: executed; see the `outcome` of each of `moves`. failed: no bundle reached "
            "its target, or not all moves were started; bundles may have moved, see `moves`",
            of=("waiting", "running", "done", "failed", "stopped"),
        ),
    ]
    kind: TaskKind = "plan"
    reason: Reason = ""
    by: By = ""
    left_ms: Annotated[int, Doc("time at which the request was stored for the leader; 0: unknown")] = 0
    detail: Detail = ""
    moves: Annotated[list[OutcomeView], Doc("results of the moves")] = field(default_factory=list)
    difference: Annotated[list[str], Doc("changes since the request that made it fail; empty: none")] = field(
        default_factory=list
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedView(Answer):
    """The end of a takeover of the brokers' load shedding."""

    by: By
    reason: Reason
    wall_ms: WallMs
    deadman: Annotated[bool, Doc("whether the failsafe job ended it")]


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeoverView(Answer):
    """The last takeover of the brokers' own load shedding."""

    active: Annotated[bool, Doc("whether the takeover is active")]
    by: By
    reason: Reason
    wall_ms: WallMs
    namespaces: Annotated[tuple[str, ...], Doc("namespaces of a partial takeover; empty: all namespaces")]
    ended: Annotated[EndedView | None, Doc("end of the takeover; null: it is active")]
