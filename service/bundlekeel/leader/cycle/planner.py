"""Dry runs: plan on the newest snapshot, with overridden settings if requested. They change nothing in the cluster."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from bundlekeel.leader.cycle.plan_responses import (
    MoveUsageView,
    MoveView,
    PlanImbalance,
    PlanRequest,
    PlanSummary,
    PlanView,
    RefusalView,
    SplitView,
)
from bundlekeel.leader.gate.in_force import LeftAlone
from bundlekeel.model.codes import EXPLANATIONS
from bundlekeel.model.errors import ConfigError, NotFound, SnapshotError
from bundlekeel.model.load import RATE_IN, RATE_OUT, RESOURCES, THROUGHPUT_IN, THROUGHPUT_OUT, Floats
from bundlekeel.model.parameters import Parameters, check_pair, coerce, in_form, with_strategy
from bundlekeel.model.plan import Move, Plan, PlanHead, Refusal, Traffic4, measure_of
from bundlekeel.model.response_fields import TrafficView
from bundlekeel.model.snapshot import Snapshot
from bundlekeel.model.text_format import numbered, unknown_broker
from bundlekeel.planning.costs import learn
from bundlekeel.planning.draft import Draft
from bundlekeel.planning.engine import PlanInput
from bundlekeel.planning.ledger import Ledger
from bundlekeel.planning.relocation import REPAIR
from bundlekeel.planning.whatif import finish, landed, scaled, with_brokers, without_brokers
from bundlekeel.settings.parameters import canonical, check_compat

if TYPE_CHECKING:
    from bundlekeel.leader.cycle.cycle import Cycle

EXPIRES_MS = 15 * 60 * 1000
_SCORES = ("score_before", "score_after")
_KEPT = 100
# Largest number of moves and refusals (0.5 KB each) in all stored plans together.
_KEPT_ROWS = 50_000
_NOT_REPAIRED = "placement.repair is off, so only `bundlekeel plan execute` makes the moves marked `repair`"


class Planner:
    """Computes plans for operators and stores them by hash for 15 minutes."""

    def __init__(
        self, cycle: Cycle, wall_ms: Callable[[], int], *, eta: Callable[[int], float], interval_seconds: float
    ) -> None:
        """`eta`: returns the seconds that a number of moves takes. `interval_seconds`: seconds between two cycles."""
        self._cycle = cycle
        self._wall_ms = wall_ms
        self._eta = eta
        self._interval_seconds = interval_seconds
        self._kept: OrderedDict[str, tuple[PlanView, PlanRequest]] = OrderedDict()
        # One thread: what-ifs do not delay the plans of cycles, and parallel what-ifs would not be faster.
        self._what_ifs = ThreadPoolExecutor(1, "what-if")

    async def compute(self, request: PlanRequest) -> Plan:
        """Return the plan of a request on the newest snapshot. Raises SnapshotError before the first cycle."""
        return (await self._cycle.compute((await self._input(request, self._cycle.demand_snapshot()))[0])).plan

    async def _input(self, request: PlanRequest, snapshot: Snapshot) -> tuple[PlanInput, tuple[Refusal, ...]]:
        plan_input = self._cycle.plan_input(snapshot)
        running, params = plan_input.params, parameters_of(request, plan_input.params)
        # Values on trial would override the parameters of the request.
        same = params == replace(running, placement_repair=params.placement_repair)
        plan_input = replace(plan_input, params=params, trial=plan_input.trial if same else None)
        return await self._in_turn(_altered, plan_input, request) if request.what_if else (plan_input, ())

    async def _in_turn(self, work: Callable[..., Any], *args: Any) -> Any:
        """Run `work` in the single thread of what-ifs (plans with assumed brokers or traffic): it can take seconds."""
        return await asyncio.get_running_loop().run_in_executor(self._what_ifs, work, *args)

    async def make(self, request: PlanRequest, *, by_leader: bool = False) -> PlanView:
        """Compute the plan of a request, and return it in the form of the API."""
        before = self._cycle.demand_snapshot()
        inputs, homeless = await self._input(request, before)
        plan_input, result = await self._cycle.decide(inputs)
        explain = LeftAlone(self._cycle.shared_state.desired, self._wall_ms()).explain
        # In a thread, because thousands of refusals take 0.1 s.
        plan = await asyncio.to_thread(_explain_refusals, result.plan, homeless, explain)
        if not self._cycle.params.placement_repair and any(move.rule == REPAIR for move in plan.moves):
            text = f"{plan.verdict.sentence}; {_NOT_REPAIRED}"
            plan = replace(plan, verdict=replace(plan.verdict, sentence=text))
        expires_ms = self._wall_ms() + EXPIRES_MS
        answer = await asyncio.to_thread(plan_view, plan, expires_ms=expires_ms, what_if=request.what_if)
        if request.what_if:
            ended = partial(finish, plan_input, result, interval_seconds=self._interval_seconds, eta=self._eta)
            finished = await self._in_turn(ended)
            assumption = await self._in_turn(_assumption, request, before, plan, homeless, plan_input.params)
            answer = replace(answer, finished=finished, assumption=assumption)
        return self.keep(replace(answer, by_leader=by_leader), request)

    def keep(self, answer: PlanView, request: PlanRequest) -> PlanView:
        """Store a plan of this or another sidecar. The request is stored, too: before an execution, its plan is
        computed again."""
        stored = replace(answer, request=replace(request, forwarded=False).to_json())
        self._kept[stored.hash] = (stored, request)
        self._kept.move_to_end(stored.hash)
        rows = sum(len(plan.refusals) + len(plan.moves) for plan, _ in self._kept.values())
        while len(self._kept) > _KEPT or (rows > _KEPT_ROWS and len(self._kept) > 1):
            _, (dropped, _) = self._kept.popitem(last=False)
            rows -= len(dropped.refusals) + len(dropped.moves)
        return stored

    def find(self, hash_: str) -> tuple[PlanView, PlanRequest]:
        """Return a stored plan and its request. Raises NotFound if the plan is unknown or has expired."""
        entry = self._kept.get(hash_)
        if entry is None or entry[0].expires_ms < self._wall_ms():
            raise NotFound(f"no plan {hash_}, or it has expired; make a new one with `bundlekeel plan`")
        return entry

    def all(self) -> list[PlanSummary]:
        """Return the stored plans, oldest first, without their moves."""
        now = self._wall_ms()
        return [
            PlanSummary(
                **PlanHead.part_of(plan),
                expires_ms=plan.expires_ms,
                moves=len(plan.moves),
                what_if=plan.what_if,
            )
            for plan, _ in self._kept.values()
            if plan.expires_ms >= now
        ]


def _explain_refusals(plan: Plan, homeless: Sequence[Refusal], explain: Callable[[Refusal], Refusal]) -> Plan:
    return replace(
        plan,
        refusals=(*homeless, *map(explain, plan.refusals)),
        split_refusals=tuple(map(explain, plan.split_refusals)),
    )


def parameters_of(request: PlanRequest, running: Parameters) -> Parameters:
    """Return the parameters `running` with the request's overrides. Raises ConfigError if an override is invalid."""
    overrides, problems = canonical(request.parameters)
    if problems:
        raise problems[0]
    changes: dict[str, Any] = {name: item.value for name, item in overrides.items()}
    if request.strategy is not None:
        changes["strategy"] = coerce("strategy", request.strategy)
    if request.placement is not None:
        changes["placement"] = coerce("placement", request.placement)
    if request.what_if if request.ignore_hit_counts is None else request.ignore_hit_counts:
        changes |= {"move_price": 0.0, "avg_hit_count_low": 1, "avg_hit_count_high": 1, "transfer_hit_count": 0}
        changes |= {"split_hit_count": 0}
    # A dry run shows repair moves even if cycles do not execute them.
    changes.setdefault("placement_repair", True)
    changed = replace(in_form(running, str(changes.get("compat", running.compat))), **changes)
    check_compat(changed.compat, overrides)
    if "placement" not in changes and (changed.compat, changed.strategy) != (running.compat, running.strategy):
        changed = with_strategy(changed, changed.strategy)
    check_pair(changed.compat, changed.strategy, changed.placement)
    return changed


def _altered(plan_input: PlanInput, request: PlanRequest) -> tuple[PlanInput, tuple[Refusal, ...]]:
    """Return the plan input of a what-if, with refusals for bundles that no broker can take.

    In this input, moves in progress have landed, brokers are removed or added, and traffic is scaled. Bundles of
    removed brokers are on the other existing brokers; added brokers are empty. Raises an error if the request is
    invalid."""
    snapshot, params, learnt = plan_input.snapshot, plan_input.params, plan_input.memory.costs
    _check_removed(request.remove_brokers, snapshot)
    _check_added(request.add_brokers, snapshot)
    if not request.traffic_scale > 0:
        raise ConfigError(
            "traffic_scale must be above 0", field="traffic_scale", value=request.traffic_scale, allowed="> 0"
        )
    altered = landed(snapshot, plan_input.ledger, params, learnt)
    homeless: tuple[Refusal, ...] = ()
    if request.remove_brokers:
        altered, homeless = without_brokers(altered, request.remove_brokers, params, plan_input.policies)
    if request.traffic_scale != 1.0:
        altered = scaled(altered, request.traffic_scale)
    if request.add_brokers:
        costs = learn(learnt, snapshot, params, plan_input.ledger.unsettled())
        altered = with_brokers(altered, request.add_brokers, costs.least_idle())
    # The decision rule's memory is valid only for the present brokers and traffic.
    memory = replace(plan_input.memory, courses={}, trial=None)
    return replace(plan_input, snapshot=altered, ledger=Ledger(), memory=memory), homeless


def _assumption(
    request: PlanRequest, before: Snapshot, plan: Plan, homeless: Sequence[Refusal], params: Parameters
) -> str:
    """Return the assumptions of a what-if as a sentence.

    The sentence also contains the highest load now (from `before`), because the first loads of the plan already assume
    that brokers were removed or added."""
    parts = []
    if request.remove_brokers:
        names = ", ".join(sorted(set(request.remove_brokers)))
        left = (
            f", except {numbered(len(homeless), 'bundle')} that no other broker can receive (see refusals)"
            if homeless
            else ""
        )
        parts.append(
            f"without {names}, whose bundles moved to the other brokers, the largest to the least loaded{left}"
        )
    if request.add_brokers:
        parts.append(f"with {', '.join(request.add_brokers)}, empty at first")
    if request.traffic_scale != 1.0:
        parts.append(f"all traffic times {request.traffic_scale:g}")
    now = Draft(before, Ledger(), params).score.max(initial=0.0)
    first, then = (max((getattr(load, name) for load in plan.loads), default=0.0) for name in _SCORES)
    limit = params.overloaded_threshold_percent / 100
    over = numbered(sum(load.score_after > limit for load in plan.loads), "broker")
    return (
        f"what if: {'; '.join(parts)}. The most loaded broker is at {now:.1%} now, at {first:.1%} in the "
        f"what-if, and at {then:.1%} after its moves; {over} above {limit:.0%} "
        "(overloaded_threshold_percent)"
    )


def _check_removed(removed: Sequence[str], snapshot: Snapshot) -> None:
    unknown = [broker for broker in removed if broker not in snapshot.brokers.rows]
    if unknown:
        raise NotFound(unknown_broker(unknown[0], snapshot.brokers.ids))
    if removed and len(set(removed)) >= len(snapshot.brokers):
        text = "at least one broker must stay"
        raise ConfigError(text, field="remove_brokers", value=", ".join(removed), allowed="fewer brokers")


def _check_added(names: Sequence[str], snapshot: Snapshot) -> None:
    if names and not len(snapshot.brokers):
        raise SnapshotError("no broker has a usable report, so the capacity of an added broker is unknown")
    names_in_use = {*snapshot.brokers.ids, *(item.broker_id for item in snapshot.excluded)}
    for name in names:
        if name in names_in_use:
            text = f"there is a broker {name!r} already, or the request names it twice"
            raise ConfigError(text, field="add_brokers", value=name, allowed="names that no broker has, each once")
        names_in_use.add(name)


def plan_view(plan: Plan, *, expires_ms: int, what_if: bool = False) -> PlanView:
    """Return a plan in the form of the API, with explanations of its codes."""
    measure = measure_of(plan.strategy)
    return PlanView(
        **PlanHead.part_of(plan),
        expires_ms=expires_ms,
        snapshot_digest=plan.snapshot_digest,
        brokers=list(plan.brokers),
        moves=[move_view(move) for move in plan.moves],
        refusals=[refusal_view(item) for item in plan.refusals],
        refusal_counts=counted(plan.refusals),
        splits=[SplitView(**asdict(item), sentence=item.sentence) for item in plan.splits],
        split_refusals=[refusal_view(item) for item in plan.split_refusals],
        loads=list(plan.loads),
        imbalance=PlanImbalance(
            measure=measure,
            before=plan.imbalance(f"{measure}_before"),
            after=plan.imbalance(f"{measure}_after"),
        ),
        what_if=what_if,
    )


def traffic_view(traffic: Floats | Traffic4) -> TrafficView:
    """Return a row of a traffic matrix (rates and throughputs) with named fields."""
    return TrafficView(
        msg_rate_in=float(traffic[RATE_IN]),
        msg_rate_out=float(traffic[RATE_OUT]),
        throughput_in=float(traffic[THROUGHPUT_IN]),
        throughput_out=float(traffic[THROUGHPUT_OUT]),
    )


def move_view(move: Move) -> MoveView:
    """Return a move in the form of the API."""
    usage = MoveUsageView(**dict(zip(RESOURCES, move.pressure, strict=True)))
    return MoveView(**asdict(move), rates=traffic_view(move.traffic), usage=usage, sentence=move.sentence)


def refusal_view(item: Refusal) -> RefusalView:
    """Return a refusal (why a bundle does not move) in the form of the API."""
    return RefusalView(**item._asdict() | {"code": item.code.value}, explanation=EXPLANATIONS[item.code])


def counted(refusals: Sequence[Refusal]) -> dict[str, int]:
    """Return the number of refusals by code."""
    return dict(Counter(item.code.value for item in refusals))
