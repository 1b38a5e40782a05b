"""Executes plans and moves that operators requested.

Any replica stores a request in the shared state. The leader takes each request from there and executes it once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import structlog

from bundlekeel.leader.cycle.planner import Planner
from bundlekeel.leader.execution.executor import Executor
from bundlekeel.leader.execution.intents import MoveOutcome
from bundlekeel.leader.gate.gate import Action, GateQuestion
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import BundlekeelError, Conflict, Forbidden, SnapshotError, StoreError
from bundlekeel.model.plan import Move, Plan, Split
from bundlekeel.requests.manual_moves import UNREADABLE
from bundlekeel.requests.operator_requests import OperatorRequests
from bundlekeel.requests.plans import PlannedActions, difference, request_of
from bundlekeel.requests.tasks import task_of
from bundlekeel.requests.unload import UnloadTask

_log = structlog.get_logger(__name__)

# Requests that waited longer than this are not executed, because the operator does not expect them any more.
REQUEST_MAX_AGE_MS: Final = 10 * 60 * 1000


class Executions:
    """Executes operators' requests while this sidecar leads.

    A request is removed from the store before its execution starts, so it is never executed twice.
    """

    def __init__(self, requests: OperatorRequests, planner: Planner, executor: Executor) -> None:
        self._requests, self._planner, self._executor = requests, planner, executor
        self._shared_state, self._cycle, self._gate = requests.shared_state, requests.cycle, requests.gate
        # The last epoch in which the results of all reviewed tasks were stored.
        self._settled = -1
        # Unloads of many bundles. After each cycle the first one unloads some bundles and moves to the end of the
        # list, because all unloads share the budgets of a cycle. `_unloaded`: number of the last cycle after which
        # an unload ran.
        self._unloads: list[UnloadTask] = []
        self._unloaded = -1

    async def serve(self) -> None:
        """Execute the waiting requests, oldest first. Raises StoreError if the store does not respond.

        Does nothing before the first cycle as leader: that cycle loads the stored state, which requests would
        overwrite."""
        if not self._cycle.leads:
            return
        epoch = self._shared_state.current_epoch()
        await self._settle_reviews()
        for request_id, body in await self._shared_state.take_requests():
            task = task_of(request_id, body, "running")
            try:
                self._shared_state.remember_task(task)
                # Store the task before removing the request, so that a replica always sees at least one of them.
                await self._shared_state.save(self._cycle.cycle_state, self._shared_state.shared.report, epoch=epoch)
                await self._shared_state.close_request(request_id, epoch)
            except StoreError as error:
                # Do not start it: whether the request was removed is unknown. If it still exists, the next call
                # takes it.
                task.update(
                    state="failed",
                    detail=f"not started, because the leader could not write to the metadata store: {error}",
                )
                raise
            await self._run_step(task, partial(self._carry_out, task, body), epoch)
        self._unloads = [unload for unload in self._unloads if unload.epoch == self._shared_state.current_epoch()]
        if self._unloads and self._unloaded != self._cycle.cycle_state.cycle:
            unload = self._unloads.pop(0)
            self._shared_state.remember_task(unload.task)
            await self._run_step(unload.task, partial(self._unload, unload), unload.epoch)

    async def _run_step(self, task: dict[str, Any], step: Callable[[], Awaitable[None]], epoch: int) -> None:
        try:
            await step()
        except BundlekeelError as error:
            task.update(state="stopped" if task["state"] == "stopped" else "failed", detail=str(error))
            if isinstance(error, Conflict):
                task["difference"] = error.difference
        if task["state"] != "running":
            _log.info("execution ended", task=task["task"], state=task["state"], detail=task["detail"])
        await self._shared_state.save(self._cycle.cycle_state, self._shared_state.shared.report, epoch=epoch)
        self._settled = -1
        await self._settle_reviews()

    async def _settle_reviews(self) -> None:
        """Store the results of tasks that needed the approval of a second operator.

        Runs after each task, and once when this sidecar becomes the leader, because the previous leader may have
        stopped during a task."""
        epoch = self._shared_state.current_epoch()
        if self._settled != epoch:
            await self._requests.review_store.settle()
            self._settled = epoch

    async def _carry_out(self, task: dict[str, Any], body: Mapping[str, Any]) -> None:
        if task["kind"] == "split":
            (split,) = await self._cycle.execute_split(partial(self._split_still_wanted, task, body)) or (None,)
            if split is None or split.outcome != "done":
                raise Conflict(f"not split: {split.code} {split.error}".strip() if split else "not split")
            done = f"split into {', '.join(split.children)}"
            task.update(state="done", detail=done)
            if body.get("unload"):
                # Unload the children after the next cycle, because until then their loads are unknown.
                self._unloaded = self._cycle.cycle_state.cycle
                left = dict.fromkeys(split.children, split.broker)
                unload = UnloadTask(
                    task=task, body=body, epoch=split.epoch, left=left, before=f"{done}; ", started=True
                )
                self._unloads.append(unload)
                task.update(state="running", detail=unload.progress)
            return
        if "sources" in body:
            self._check_age(body)
            left = dict(body["sources"])
            self._unloads.append(UnloadTask(task=task, body=body, epoch=self._shared_state.current_epoch(), left=left))
            return
        splits: list[Split] = []
        outcomes = await self._cycle.execute(partial(self._moves_still_wanted, task, body, splits))
        landed = sum(outcome.outcome in ("done", "released") for outcome in outcomes)
        stopped = any(outcome.code == Code.STOPPED for outcome in outcomes)
        splits = [] if stopped else splits
        task.update(
            state="stopped" if stopped else "running" if splits else "done" if landed or not outcomes else "failed",
            detail=f"{landed} of {len(outcomes)} reached the requested broker" if outcomes or not splits else "",
            moves=[_row(outcome) for outcome in outcomes],
        )
        if splits:
            await self._split_too(task, body, splits, landed=landed)

    async def _split_too(
        self, task: dict[str, Any], body: Mapping[str, Any], splits: Sequence[Split], *, landed: int
    ) -> None:
        """Execute the splits of a plan after its moves. `landed`: number of moves that reached their target."""
        done, failed, before = 0, list[str](), f"{task['detail']}; " if task["detail"] else ""
        for split in splits:
            try:
                outcomes = await self._cycle.execute_split(partial(self._split_of_plan, task, body, split))
            except BundlekeelError as error:
                text = "; ".join([f"{before}{done} of {len(splits)} split", *failed, str(error)])
                raise Conflict(text, difference=[str(error)]) from error
            done += sum(outcome.outcome == "done" for outcome in outcomes)
            failed += [
                f"{item.bundle}: {item.code} {item.error}".strip() for item in outcomes if item.outcome != "done"
            ]
            if any(item.code == Code.STOPPED for item in outcomes):
                task.update(state="stopped")
                break
        if task["state"] == "running":
            task.update(state="done" if done or landed else "failed")
        task.update(detail="; ".join([f"{before}{done} of {len(splits)} split", *failed]))

    async def _split_of_plan(self, task: dict[str, Any], body: Mapping[str, Any], split: Split) -> Split:
        await self._may_begin(task, body, started=True)
        return split

    async def _unload(self, unload: UnloadTask) -> None:
        """Unload as many bundles as the limits of one cycle allow; the other bundles wait for a later cycle."""
        task = unload.task
        try:
            outcomes = await self._cycle.execute(partial(self._unloads_still_wanted, unload))
        except (StoreError, SnapshotError) as error:
            # Try again after the next cycle of this leader. A later leader does not continue the task.
            self._unloads.append(unload)
            task.update(detail=f"{unload.progress}; {len(unload.left)} wait: {error}")
            return
        except BundlekeelError as error:
            if not unload.started:
                raise
            stopped = task["state"] == "stopped"
            unload.end(Code.STOPPED if stopped else Code.NOT_PERMITTED)
            task.update(state="stopped" if stopped else "failed", detail=f"{unload.progress}; {error}")
            return
        for outcome in outcomes:
            task["moves"].append(_row(outcome))
            unload.left.pop(outcome.bundle, None)
        state, unload.started = "done" if unload.landed else "failed", True
        if any(outcome.code == Code.STOPPED for outcome in outcomes):
            unload.end(Code.STOPPED)
            state = "stopped"
        elif unload.left:
            self._unloads.append(unload)
            state = "running"
        task.update(state=state, detail=f"{unload.progress}{unload.waits if state == 'running' else ''}")

    async def _may_begin(self, task: dict[str, Any], body: Mapping[str, Any], *, started: bool = False) -> None:
        """Check that a task may start; called while no cycle is running.

        Raises Forbidden if the gate refuses it. Raises Conflict if the request cannot be read, if it is too old, or if
        its proposal is not approved any more. `started`: an earlier cycle started the task, so its age does not matter.
        """
        if not body:
            raise Conflict(UNREADABLE)
        if not started:
            self._check_age(body)
        review = str(body.get("review") or "")
        request = GateQuestion(action=Action.REQUEST, epoch=self._cycle.epoch, task=task["task"], approved=bool(review))
        obstacle = await self._gate.check_anew(request)
        if obstacle is not None:
            if obstacle.code is Code.STOPPED:
                task.update(state="stopped")
            raise Forbidden(f"not carried out: {obstacle.sentence}")
        if review:
            await self._requests.review_store.begin(review, task["task"])
        self._executor.request = request

    def _check_age(self, body: Mapping[str, Any]) -> None:
        """Raise Conflict if the request is so old that the operator has probably given up or sent it again."""
        left = body.get("left_ms")
        waited = self._shared_state.wall_ms() - left if isinstance(left, int) else 0
        if waited > REQUEST_MAX_AGE_MS:
            text = f"{waited / 60_000:.0f} min, {REQUEST_MAX_AGE_MS // 60_000} min are the limit"
            raise Conflict(f"not carried out: too old, it waited for {text}; ask again", difference=[text])

    async def _split_still_wanted(self, task: dict[str, Any], body: Mapping[str, Any]) -> Split:
        await self._may_begin(task, body)
        return await self._requests.split_of(body)

    async def _unloads_still_wanted(self, unload: UnloadTask) -> tuple[tuple[Move, ...], Plan | None]:
        self._unloaded = self._cycle.cycle_state.cycle
        await self._may_begin(unload.task, unload.body, started=True)
        override = bool(unload.body.get("override_cool_down"))
        unloads = await self._requests.unloads_of(unload.left, override_cool_down=override)
        for refusal in unloads.refused:
            unload.refuse(refusal.bundle, refusal.code)
        unload.waiting = unloads.waiting
        return unloads.admitted, None

    async def _moves_still_wanted(
        self, task: dict[str, Any], body: Mapping[str, Any], splits: list[Split]
    ) -> tuple[tuple[Move, ...], Plan | None]:
        """Plan a request again; return the moves and the plan, and add the splits that follow the moves to `splits`.

        Returns no plan for manual moves, because it would predict a better balance, which is not their purpose. Raises
        Forbidden if the gate refuses the task, and Conflict if the new plan differs from the requested one."""
        await self._may_begin(task, body)
        if task["kind"] != "plan":
            return await self._requests.moves_of(body), None
        try:
            requested = PlannedActions(*([tuple(item) for item in body.get(name, [])] for name in ("moves", "splits")))
            request = request_of(body)
        except (TypeError, ValueError) as error:
            raise Conflict(f"{UNREADABLE} ({error})") from error
        plan = await self._planner.compute(request)
        now = PlannedActions.of(plan)
        changed = difference(requested, now)
        if changed:
            raise Conflict(f"the inputs changed since the plan was made: {'; '.join(changed[:5])}", difference=changed)
        splits += plan.splits
        return plan.moves, plan


def _row(outcome: MoveOutcome) -> dict[str, Any]:
    return {name: getattr(outcome, name) for name in ("bundle", "outcome", "landed_on", "code")}
