"""Tasks: requests that the leader executes. Operators see their progress and can stop them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec

from bundlekeel.leader.state.documents import Desired
from bundlekeel.leader.state.responses import TaskView
from bundlekeel.model.calls import reads
from bundlekeel.model.doc import Answer, Doc
from bundlekeel.model.errors import Conflict, NotFound, StoreError
from bundlekeel.model.response_fields import Json
from bundlekeel.pulsar.formats import external_input
from bundlekeel.requests.verb import Verb

# A request to stop a task is deleted after this time, when the task has ended long ago.
STOP_KEPT_MS: Final = 24 * 3600 * 1000
_ENDED: Final = ("done", "failed", "stopped")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping(Answer):
    """Response to the stop of a task: no further move of it starts."""

    task: Annotated[str, Doc("id of the task")]
    state: Annotated[str, Doc("no further move starts", of=("stopping",))]


class Tasks(Verb):
    """Requests to list tasks and to stop one."""

    @reads
    async def tasks(self) -> list[TaskView]:
        """Return the tasks, oldest first, then the requests that the leader has not taken yet (`waiting`).

        If the store does not respond, returns the tasks that this replica has read.
        """
        shared_state, requests = self.shared_state, list[tuple[str, Json]]()
        with suppress(StoreError):
            requests = await shared_state.take_requests()
            # Read requests before tasks: a request that becomes a task in between is then in at least one of them.
            if not shared_state.leading:
                await shared_state.refresh()
        ids = {item.get("task") for item in shared_state.tasks}
        waiting = [task_of(id_, body, "waiting") for id_, body in requests if id_ not in ids]
        return external_input.convert([*shared_state.tasks, *waiting], list[TaskView])

    @reads
    async def task(self, task: str) -> TaskView:
        """Return one task. Raises NotFound if there is no such task."""
        return external_input.convert(await self._task_json(task), TaskView)

    async def _task_json(self, task: str) -> Json:
        row = self._task(task)
        if row is None:
            requests = dict(await self.shared_state.take_requests())
            if task in requests:
                return task_of(task, requests[task], "waiting")
            # The leader may have taken it since this replica last read the state.
            await self.shared_state.refresh()
            row = self._task(task)
        if row is None:
            raise NotFound(f"no task {task}; `bundlekeel plan tasks` (`GET /api/v1/tasks`) lists those there are")
        return row

    def _task(self, task: str) -> Json | None:
        return next((item for item in self.shared_state.tasks if item.get("task") == task), None)

    async def stop(self, task: str, *, reason: str, by: str) -> Stopping:
        """Stop a task: moves in progress finish, and no further one starts."""
        row = await self.task(task)
        if row.state in _ENDED:
            raise Conflict(f"task {task} is {row.state} already", code="wrong-state", difference=[f"state {row.state}"])
        operator_request = self._operator_request(reason, by)

        def stopped(desired: Desired) -> Desired:
            fresh = {
                name: item
                for name, item in desired.stops.items()
                if operator_request.since_ms - item.since_ms < STOP_KEPT_MS
            }
            return msgspec.structs.replace(desired, stops=fresh | {task: operator_request})

        await self._note(stopped, f"stop of {task}", reason, by)
        return Stopping(task=task, state="stopping")


def task_of(request_id: str, body: Mapping[str, Any], state: str) -> dict[str, Any]:
    """Return a stored request as a task in this state, as JSON for API responses."""
    return {
        "task": request_id,
        "kind": str(body.get("kind", "plan")),
        "hash": str(body.get("hash", "")),
        "reason": body.get("reason", ""),
        "by": body.get("by", ""),
        "left_ms": body.get("left_ms", 0),
        "state": state,
        "detail": "",
        "moves": [],
    }
