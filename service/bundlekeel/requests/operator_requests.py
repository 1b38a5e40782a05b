"""Operators' requests about brokers and bundles: drains, pins, pauses, moves and reviews.

The replica that receives a request stores it in the shared state, and the leader reads it there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from bundlekeel.leader.cycle.cycle import Cycle
from bundlekeel.leader.cycle.plan_responses import RefusalView
from bundlekeel.leader.cycle.planner import counted, move_view, refusal_view
from bundlekeel.leader.gate.gate import Action, Gate, GateQuestion
from bundlekeel.leader.gate.in_force import LeftAlone, lasts, pause_view
from bundlekeel.leader.gate.patterns import count_matches, pattern_of, scope_of
from bundlekeel.leader.state.documents import Desired, LastingRequest, OperatorRequest, Pause, request_record
from bundlekeel.leader.state.responses import TaskView
from bundlekeel.leader.state.shared_state import SharedState
from bundlekeel.model.calls import reads
from bundlekeel.model.codes import LASTING, Code, explain, reason_of, way_out
from bundlekeel.model.errors import AdminApiError, ConfigError, Conflict, NotFound, SnapshotError
from bundlekeel.model.names import as_pulsar_writes
from bundlekeel.model.response_fields import Json
from bundlekeel.model.text_format import numbered, unknown_broker
from bundlekeel.planning.engine import PlanResult
from bundlekeel.planning.owned import with_owned
from bundlekeel.planning.relocation import RULES
from bundlekeel.planning.splitting.algorithms import BY_LOAD, SplitOptions
from bundlekeel.ports import Clock, Journal, Metadata, Ownership
from bundlekeel.requests.drain_tracker import DrainTracker
from bundlekeel.requests.executions import task_of
from bundlekeel.requests.manual_move_responses import ManualMoveView, NamespaceUnloadView, Verb
from bundlekeel.requests.manual_moves import ManualMoves
from bundlekeel.requests.operator_responses import (
    CordonedView,
    DrainView,
    ExcludedView,
    ExclusionView,
    IncludedView,
    OperationsView,
    PausedScopeView,
    PinnedView,
    PinView,
    RelocationView,
    RequestView,
    ResumedScopeView,
    ReviewView,
    ScopePauseView,
    Stopping,
    UncordonedView,
    UnpinnedView,
)
from bundlekeel.requests.reviews import Reviews
from bundlekeel.requests.where import whole_bundles

# A request to stop a task is deleted after this time, when the task has ended long ago.
STOP_KEPT_MS: Final = 24 * 3600 * 1000
# A dry run has no budget, so it shows all bundles that would leave.
_ALL: Final = 1_000_000
_ENDED: Final = ("done", "failed", "stopped")
DryRun = TypeVar("DryRun", ManualMoveView, NamespaceUnloadView)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRequests:
    """Checks and stores requests of operators about brokers and bundles, and lists the stored ones."""

    shared_state: SharedState
    cycle: Cycle
    drain_tracker: DrainTracker
    manual_moves: ManualMoves
    review_store: Reviews
    metadata: Metadata
    ownership: Ownership
    journal: Journal
    clock: Clock
    gate: Gate

    # --- queries ---

    @reads
    async def operations(self) -> OperationsView:
        """Return all requests about brokers and bundles, with the progress of drains."""
        desired, now, progress = self.shared_state.desired, self.clock.wall_ms(), self.drain_tracker.progress()
        # What blocks plans also blocks drains, except for a closed time window, which is not a lasting obstacle.
        obstacle = self._held()
        without_end = {"eta_seconds": None} if obstacle["held"] else {}
        return OperationsView(
            **obstacle,
            drains=[
                msgspec.convert(
                    msgspec.to_builtins(operator_request) | {"broker": broker} | progress.get(broker, {}) | without_end,
                    DrainView,
                )
                for broker, operator_request in sorted(desired.drains.items())
            ],
            cordons=_rows(desired.cordons),
            warms=_rows(desired.warms),
            pins=[PinView(bundle=name, **item) for name, item in _lasting(desired.pinned, now)],
            exclusions=[ExclusionView(pattern=name, **item) for name, item in _lasting(desired.excluded, now)],
            pauses=[ScopePauseView(scope=name, **item) for name, item in _lasting(desired.all_pauses(), now)],
        )

    @reads
    async def task(self, task: str) -> TaskView:
        """Return one task. Raises NotFound if there is no such task."""
        return msgspec.convert(await self._task_json(task), TaskView)

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

    def _held(self, action: Action | None = None) -> dict[str, Any]:
        """Return the code and explanation of what blocks this action now, or else blocked all moves in the last cycle.

        Of the leader's last cycle, only an obstacle that lasts until an operator acts is returned. Both "": none.
        """
        refused = self.gate.check(GateQuestion(action=action)) if action else None
        last = str(self.shared_state.shared.report.get("obstacle") or "")
        code = refused.code.value if refused else last if last in LASTING else ""
        return {"held": code, "held_explanation": explain(code)}

    def _task(self, task: str) -> Json | None:
        return next((item for item in self.shared_state.tasks if item.get("task") == task), None)

    # --- brokers ---

    async def drain(self, broker: str, *, dry_run: bool, reason: str, by: str) -> RelocationView:
        """Store a request to empty a broker and keep it empty; with `dry_run`, only return the moves."""
        self._check_registered(broker)
        self._check_others_open(self.shared_state.desired, broker)
        view = await self._preview(broker, draining=True, dry_run=dry_run)

        def drained(desired: Desired) -> Desired:
            # Check the stored requests again: another replica may have added a drain in between.
            self._check_others_open(desired, broker)
            return _put(desired, "drains", broker, self._operator_request(reason, by))

        if not dry_run:
            self.gate.demand(GateQuestion(action=Action.ORDER))
            await self._note(drained, f"drain of {broker}", reason, by)
        return view

    async def warm(self, broker: str, *, dry_run: bool, reason: str, by: str) -> RelocationView:
        """Store a request to fill a broker gradually; with `dry_run`, only return the moves."""
        self._check_registered(broker)
        _open_to_bundles(self.shared_state.desired, broker)
        view = await self._preview(broker, draining=False, dry_run=dry_run)

        def warmed(desired: Desired) -> Desired:
            _open_to_bundles(desired, broker)
            return _put(desired, "warms", broker, self._operator_request(reason, by))

        if not dry_run:
            self.gate.demand(GateQuestion(action=Action.ORDER))
            await self._note(warmed, f"warm of {broker}", reason, by)
        return view

    async def cordon(self, broker: str, *, reason: str, by: str) -> CordonedView:
        """Stop moving bundles to a broker."""
        self._check_registered(broker)

        def cordoned(desired: Desired) -> Desired:
            if broker not in desired.cordons:
                self._check_others_open(desired, broker)
            return _put(desired, "cordons", broker, self._operator_request(reason, by))

        await self._note(cordoned, f"cordon of {broker}", reason, by)
        return CordonedView(broker=broker, state="cordoned")

    async def uncordon(self, broker: str, *, reason: str, by: str) -> UncordonedView:
        """End the cordon, drain and warm-up of a broker, even if the broker is not registered."""
        ended = [kind for kind in ("cordons", "drains", "warms") if broker in getattr(self.shared_state.desired, kind)]
        if not ended:
            raise NotFound(f"{broker} is neither cordoned nor drained nor warmed")

        def without(desired: Desired) -> Desired:
            for kind in ("cordons", "drains", "warms"):
                desired = _drop(desired, kind, broker)
            return desired

        await self._note(without, f"uncordon of {broker}", reason, by)
        return UncordonedView(broker=broker, ended=[kind[:-1] for kind in ended])

    # --- pins, exclusions and pauses ---

    async def pin(self, bundle: str, *, seconds: float | None, reason: str, by: str) -> PinnedView:
        """Keep a bundle, or the bundle of a topic, where it is."""
        name, pin = await self._bundle_of(bundle), self._lasting_request(seconds, reason, by)
        await self._note(lambda desired: _put(desired, "pinned", name, pin), f"pin of {name}", reason, by)
        owner = await self.ownership.owner(name)
        broker = owner.broker_id if owner is not None else None
        return PinnedView(bundle=name, broker=broker, **msgspec.to_builtins(pin))

    async def unpin(self, bundle: str, *, reason: str, by: str) -> UnpinnedView:
        """End the pin of a bundle, or of the bundle of a topic, even if that bundle has been split since."""
        pinned = self.shared_state.desired.pinned
        name = as_pulsar_writes(bundle)
        name = name if name in pinned else await self._bundle_of(name)
        if name not in pinned:
            raise NotFound(f"{name} is not pinned")
        await self._note(lambda desired: _drop(desired, "pinned", name), f"unpin of {name}", reason, by)
        return UnpinnedView(bundle=name)

    async def _bundle_of(self, name: str) -> str:
        wholes = await whole_bundles(name, metadata=self.metadata)
        if len(wholes) != 1:
            raise ConfigError(
                f"{name!r} covers {len(wholes)} bundles, but the command needs one", field="bundle", value=name
            )
        return wholes[0].bundle

    async def exclude(self, pattern: str, *, seconds: float | None, reason: str, by: str) -> ExcludedView:
        """Do not move bundles that match a pattern."""
        pattern, exclusion = pattern_of(pattern, self._registered), self._lasting_request(seconds, reason, by)
        change = partial(_put, table="excluded", name=pattern, value=exclusion)
        await self._note(change, f"exclusion of {pattern}", reason, by)
        bundles = count_matches(pattern, self.cycle.snapshot)
        return ExcludedView(pattern=pattern, bundles=bundles, **msgspec.to_builtins(exclusion))

    async def include(self, pattern: str, *, reason: str, by: str) -> IncludedView:
        """End an exclusion."""
        pattern = _as_stored(pattern)
        if pattern not in self.shared_state.desired.excluded:
            raise NotFound(f"{pattern} is not excluded at run time; the settings file may exclude it")
        await self._note(lambda desired: _drop(desired, "excluded", pattern), f"inclusion of {pattern}", reason, by)
        return IncludedView(pattern=pattern)

    async def pause_scope(self, scope: str, *, seconds: float | None, reason: str, by: str) -> PausedScopeView:
        """Pause moves of all bundles in one scope, for example a namespace; `seconds` None: until resumed."""
        scope, pattern = scope_of(scope, self._registered)
        pause = Pause(reason=reason, by=by, since_ms=self.clock.wall_ms(), until_ms=self._until(seconds))
        await self._note(lambda desired: _put(desired, "pauses", scope, pause), f"pause of {scope}", reason, by)
        bundles = count_matches(pattern, self.cycle.snapshot)
        return PausedScopeView(scope=scope, **asdict(pause_view(pause)), bundles=bundles)

    async def resume_scope(self, scope: str, *, reason: str, by: str) -> ResumedScopeView:
        """End the pause of one scope."""
        scope = _as_stored(scope)
        if scope not in self.shared_state.desired.pauses:
            raise NotFound(f"{scope} is not paused")
        await self._note(lambda desired: _drop(desired, "pauses", scope), f"resume of {scope}", reason, by)
        return ResumedScopeView(scope=scope, reason=reason, by=by)

    # --- manual moves ---

    async def manual_move(
        self,
        verb: Verb,
        name: str,
        *,
        to: str = "",
        options: SplitOptions = BY_LOAD,
        override_cool_down: bool = False,
        execute: bool = False,
        reason: str = "",
        by: str = "",
    ) -> ManualMoveView:
        """Move or split one bundle; a dry run unless `execute`."""
        if verb == "transfer" and not to:
            raise ConfigError("a transfer names a broker", field="to", value=to, allowed="a broker id")
        if verb == "split":
            answer, operator_request = await self.manual_moves.split(name, options)
        else:
            aim = to if verb == "transfer" else ""
            answer, operator_request = await self.manual_moves.move(name, aim, override_cool_down=override_cool_down)
        return await self._respond(verb, answer, operator_request, execute=execute, reason=reason, by=by)

    async def unload_namespace(
        self,
        namespace: str,
        *,
        override_cool_down: bool = False,
        execute: bool = False,
        reason: str = "",
        by: str = "",
    ) -> NamespaceUnloadView:
        """Unload every bundle of a namespace; a dry run unless `execute`."""
        answer, operator_request = await self.manual_moves.unload_namespace(
            namespace, override_cool_down=override_cool_down
        )
        answer = replace(answer, eta_seconds=self.drain_tracker.eta(len(answer.moves)) if operator_request else None)
        return await self._respond("unload", answer, operator_request, execute=execute, reason=reason, by=by)

    async def _respond(
        self, verb: Verb, answer: DryRun, operator_request: Json, *, execute: bool, reason: str, by: str
    ) -> DryRun:
        """Return the response to the operator, and store the request for the leader if `execute`."""
        answer = replace(answer, **self._held(Action.SUBMISSION))
        if not execute:
            return answer
        self.gate.demand(GateQuestion(action=Action.SUBMISSION))
        if not operator_request:
            reasons = sorted({_refusal_text(item) for item in answer.refusals})
            codes = {item.code for item in answer.refusals}
            text = f"not carried out: {'; '.join(reasons)}{way_out(verb, codes)}"
            raise Conflict(text, code=reason_of(codes), difference=reasons)
        left = await self.review_store.submit(
            answer.hash, verb, answer.sentence, operator_request | {"reason": reason, "by": by}
        )
        what = answer.bundle if isinstance(answer, ManualMoveView) else answer.namespace
        self._record(f"{verb} of {what}", reason, by)
        return replace(answer, dry_run=False, **left | {"task": left["task"] or None})

    async def submit(self, id_: str, title: str, body: Mapping[str, Any]) -> Json:
        """Store a plan for the leader, or as a proposal if a second operator must approve it."""
        left = await self.review_store.submit(id_, "plan", title, body)
        self._record(title, str(body.get("reason", "")), str(body.get("by", "")))
        return left

    async def stop(self, task: str, *, reason: str, by: str) -> Stopping:
        """Start no further move of a task."""
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

    # --- reviews ---

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

    # --- helpers ---

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
                difference=["no broker is left"],
            )

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

    async def _preview(self, broker: str, *, draining: bool, dry_run: bool) -> RelocationView:
        """Return all moves that this request would cause over the next plans, by planning once without a budget."""
        cycle, snapshot = self.cycle, self.cycle.demand_snapshot()
        owned: dict[str, frozenset[str]] = {}
        detail = ""
        if draining:
            try:
                owned[broker] = await self.drain_tracker.listed(broker)
            except (AdminApiError, TimeoutError) as error:
                detail = f"{broker} did not list its bundles ({error}); its load report is used"
        inputs = cycle.plan_input(with_owned(snapshot, owned))
        guard = replace(
            inputs.guard,
            cordoned=inputs.guard.cordoned | ({broker} if draining else set()),
            draining=frozenset({broker} if draining else ()),
            warming=frozenset(() if draining else {broker}),
        )
        params = replace(inputs.params, drain_max_moves_per_cycle=_ALL, warm_max_moves_per_cycle=_ALL)
        result = await cycle.compute(replace(inputs, guard=guard, params=params, owned=owned))
        plan = result.plan
        moves = [move for move in plan.moves if move.rule in RULES]
        with_cause = LeftAlone(self.shared_state.desired, self.clock.wall_ms()).explain
        refusals = [with_cause(item) for item in plan.refusals if draining and item.broker == broker and item.bundle]
        if not draining and not moves:
            detail = _explain_empty_warm(broker, result, params.warm_until_share)
        count = len(owned.get(broker, ())) if owned else len(moves) + len(refusals)
        moved = numbered(len(moves), "bundle", "leave") if draining else f"{numbered(len(moves), 'bundle', 'come')} to"
        stay = f", {len(refusals)} {'stays' if len(refusals) == 1 else 'stay'} for now" if refusals else ""
        return RelocationView(
            broker=broker,
            dry_run=dry_run,
            bundles=count,
            moves=[move_view(move) for move in moves],
            refusals=[refusal_view(item) for item in refusals],
            refusal_counts=counted(refusals),
            # A drain does not end if all its bundles must stay: return no expected time.
            eta_seconds=None if count and not moves else self.drain_tracker.eta(len(moves)),
            sentence=f"{moved} {broker}{stay}",
            detail=detail,
            **self._held(Action.ORDER),
        )


def _as_stored(text: str) -> str:
    """Return a scope or pattern as it is stored: without whitespace around its parts."""
    return ":".join(as_pulsar_writes(part.strip()) for part in text.split(":", 1))


def _refusal_text(refusal: RefusalView) -> str:
    """Return a refusal as text, with the pause or exclusion that causes it.

    Omits other details: they differ between bundles, and operators see one text per reason.
    """
    detail = f" ({refusal.detail})" if refusal.code in (Code.PAUSED, Code.EXCLUDED) else ""
    return f"{refusal.code}: {refusal.explanation}{detail}"


def _open_to_bundles(desired: Desired, broker: str) -> None:
    if broker in desired.drains or broker in desired.cordons:
        text = f"{broker} is cordoned or drained; uncordon it first"
        raise Conflict(text, code=Code.CORDONED.value, difference=["cordoned"])


def _explain_empty_warm(broker: str, result: PlanResult, share: float) -> str:
    """Return why a warm would move no bundle to `broker`, as one clause for operators.

    `share`: part of the mean load (0 to 1) from which a broker counts as warm.
    """
    plan = result.plan
    if broker not in result.ready:
        return plan.verdict.sentence
    scores = {row.broker: row.score_before for row in plan.loads}
    mean = sum(scores.values()) / len(scores)
    if scores[broker] >= share * mean:
        return f"it carries its share: its load is {scores[broker]:.1%}, the mean {mean:.1%}"
    codes = counted([item for item in plan.refusals if item.bundle and item.broker != broker])
    reasons = ", ".join(f"{count} {code}" for code, count in codes.items())
    return f"no bundle of another broker may come, or is of a size that helps{f': {reasons}' if reasons else ''}"


def _rows(requests: Mapping[str, OperatorRequest]) -> list[RequestView]:
    return [
        RequestView(broker=broker, **msgspec.to_builtins(operator_request))
        for broker, operator_request in sorted(requests.items())
    ]


def _lasting(requests: Mapping[str, LastingRequest], now: int) -> list[tuple[str, Json]]:
    return [(name, msgspec.to_builtins(item)) for name, item in sorted(requests.items()) if lasts(item.until_ms, now)]


def _put(desired: Desired, table: str, name: str, value: Any) -> Desired:
    return msgspec.structs.replace(desired, **{table: {**getattr(desired, table), name: value}})


def _drop(desired: Desired, table: str, name: str) -> Desired:
    left = {key: value for key, value in getattr(desired, table).items() if key != name}
    return msgspec.structs.replace(desired, **{table: left})
