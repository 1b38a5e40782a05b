"""Dry runs: the same `plan()` on the newest snapshot with overrides; nothing is stored, nothing is touched."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from bundlekeel.core.model.codes import EXPLANATIONS
from bundlekeel.core.model.errors import ConfigError, NotFound, SnapshotError
from bundlekeel.core.model.load import RATE_IN, RATE_OUT, RESOURCES, THROUGHPUT_IN, THROUGHPUT_OUT, Floats
from bundlekeel.core.model.parameters import Parameters, check_pair, coerce, in_form, with_strategy
from bundlekeel.core.model.plan import Move, Plan, Refusal, Traffic4, measure_of
from bundlekeel.core.model.snapshot import Snapshot
from bundlekeel.core.model.text_format import numbered, unknown_broker
from bundlekeel.core.operations.relocation import REPAIR
from bundlekeel.core.planning.costs import learn
from bundlekeel.core.planning.draft import Draft
from bundlekeel.core.planning.engine import PlanInput
from bundlekeel.core.planning.ledger import Ledger
from bundlekeel.core.planning.whatif import finish, landed, scaled, with_brokers, without_brokers
from bundlekeel.daemon.answers.picture import TrafficView
from bundlekeel.daemon.answers.plans import (
    MoveUsageView,
    MoveView,
    PlanImbalance,
    PlanRequest,
    PlanSummary,
    PlanView,
    RefusalView,
    SplitView,
)
from bundlekeel.daemon.cycle.cycle import Cycle
from bundlekeel.daemon.gate.in_force import LeftAlone
from bundlekeel.settings.parameters import canonical, check_used

EXPIRES_MS = 15 * 60 * 1000
_SCORES = ("score_before", "score_after")
_KEPT = 100
# Moves and refusals of all plans that are kept: half a kilobyte each.
_KEPT_ROWS = 50_000
_NOT_REPAIRED = "placement.repair is off, so only `bundlekeel plan execute` makes the moves marked `repair`"


class Planner:
    """Makes plans for operators and keeps them for 15 minutes, by hash."""

    def __init__(
        self, cycle: Cycle, wall_ms: Callable[[], int], *, eta: Callable[[int], float], interval_seconds: float
    ) -> None:
        """`eta`: how long so many moves take, in seconds; `interval_seconds`: between two cycles."""
        self._cycle = cycle
        self._wall_ms = wall_ms
        self._eta = eta
        self._interval_seconds = interval_seconds
        self._kept: OrderedDict[str, tuple[PlanView, PlanRequest]] = OrderedDict()
        # One thread: what-ifs together compute no longer than one after the other, and none holds up plans of cycles.
        self._what_ifs = ThreadPoolExecutor(1, "what-if")

    async def compute(self, request: PlanRequest) -> Plan:
        """The plan of this request on the newest snapshot. SnapshotError before the first cycle."""
        return (await self._cycle.compute((await self._input(request, self._cycle.demand_snapshot()))[0])).plan

    async def _input(self, request: PlanRequest, snapshot: Snapshot) -> tuple[PlanInput, tuple[Refusal, ...]]:
        """Return the input of the plan, and bundles of removed brokers that have no place in it."""
        given = self._cycle.plan_input(snapshot)
        given = replace(given, params=parameters_of(request, given.params))
        return await self._in_turn(_altered, given, request) if request.what_if else (given, ())

    async def _in_turn(self, work: Callable[..., Any], *args: Any) -> Any:
        """Run a part of a what-if in the one thread of what-ifs: with many brokers it takes seconds."""
        return await asyncio.get_running_loop().run_in_executor(self._what_ifs, work, *args)

    async def make(self, request: PlanRequest, *, by_leader: bool = False) -> PlanView:
        """A plan as an answer of the API."""
        before = self._cycle.demand_snapshot()
        inputs, homeless = await self._input(request, before)
        given, result = await self._cycle.decide(inputs)
        told = LeftAlone(self._cycle.shared_state.desired, self._wall_ms()).told
        # In a thread: thousands of refusals take a tenth of a second.
        made = await asyncio.to_thread(_as_told, result.plan, homeless, told)
        if not self._cycle.params.placement_repair and any(move.rule == REPAIR for move in made.moves):
            text = f"{made.verdict.sentence}; {_NOT_REPAIRED}"
            made = replace(made, verdict=replace(made.verdict, sentence=text))
        expires_ms = self._wall_ms() + EXPIRES_MS
        answer = await asyncio.to_thread(plan_view, made, expires_ms=expires_ms, what_if=request.what_if)
        if request.what_if:
            ended = partial(finish, given, result, interval_seconds=self._interval_seconds, eta=self._eta)
            finished = await self._in_turn(ended)
            assumption = await self._in_turn(_assumption, request, before, made, homeless, given.params)
            answer = replace(answer, finished=finished, assumption=assumption)
        return self.keep(replace(answer, by_leader=by_leader), request)

    def keep(self, answer: PlanView, request: PlanRequest) -> PlanView:
        """Remember a plan made here or by another sidecar, with its request: to carry it out it is planned again."""
        kept = replace(answer, request=replace(request, forwarded=False).to_json())
        self._kept[kept.hash] = (kept, request)
        self._kept.move_to_end(kept.hash)
        rows = sum(len(plan.refusals) + len(plan.moves) for plan, _ in self._kept.values())
        while len(self._kept) > _KEPT or (rows > _KEPT_ROWS and len(self._kept) > 1):
            _, (dropped, _) = self._kept.popitem(last=False)
            rows -= len(dropped.refusals) + len(dropped.moves)
        return kept

    def find(self, hash_: str) -> tuple[PlanView, PlanRequest]:
        """A plan kept here. NotFound when it is unknown or has expired."""
        found = self._kept.get(hash_)
        if found is None or found[0].expires_ms < self._wall_ms():
            raise NotFound(f"no plan {hash_}, or it has expired; make a new one with `bundlekeel plan`")
        return found

    def all(self) -> list[PlanSummary]:
        """Plans kept here, oldest first, without their moves."""
        now = self._wall_ms()
        return [
            PlanSummary(
                hash=item.hash,
                wall_ms=item.wall_ms,
                strategy=item.strategy,
                placement=item.placement,
                verdict=item.verdict,
                expires_ms=item.expires_ms,
                moves=len(item.moves),
                what_if=item.what_if,
            )
            for item, _ in self._kept.values()
            if item.expires_ms >= now
        ]


def _as_told(made: Plan, homeless: Sequence[Refusal], told: Callable[[Refusal], Refusal]) -> Plan:
    """Return the plan with its refusals as operators are told them, those of homeless bundles first."""
    return replace(
        made,
        refusals=(*homeless, *map(told, made.refusals)),
        split_refusals=tuple(map(told, made.split_refusals)),
    )


def parameters_of(request: PlanRequest, running: Parameters) -> Parameters:
    """The running parameters with the request's overrides, each checked. ConfigError names field, value, allowed."""
    given, problems = canonical(request.parameters)
    if problems:
        raise problems[0]
    changes: dict[str, Any] = {name: item.value for name, item in given.items()}
    if request.strategy is not None:
        changes["strategy"] = coerce("strategy", request.strategy)
    if request.placement is not None:
        changes["placement"] = coerce("placement", request.placement)
    if request.what_if if request.ignore_hit_counts is None else request.ignore_hit_counts:
        changes |= {"move_price": 0.0, "avg_hit_count_low": 1, "avg_hit_count_high": 1, "transfer_hit_count": 0}
        changes |= {"split_hit_count": 0}
    # A dry run shows these moves, whether or not cycles make them.
    changes.setdefault("placement_repair", True)
    changed = replace(in_form(running, str(changes.get("compat", running.compat))), **changes)
    check_used(changed.compat, given)
    if "placement" not in changes:
        changed = with_strategy(changed, changed.strategy)
    check_pair(changed.compat, changed.strategy, changed.placement)
    return changed


def _altered(given: PlanInput, request: PlanRequest) -> tuple[PlanInput, tuple[Refusal, ...]]:
    """The input with moves under way landed, brokers taken out or added and traffic scaled, as the request asks;
    nothing in it is wrong. What those that are taken out carried goes to the others, not to added ones: these begin
    empty, as if just started. The refusals name bundles that have no place then."""
    snapshot, params, learnt = given.snapshot, given.params, given.memory.costs
    _check_removed(request.remove_brokers, snapshot)
    _check_added(request.add_brokers, snapshot)
    if not request.traffic_scale > 0:
        raise ConfigError(
            "traffic_scale must be above 0", field="traffic_scale", value=request.traffic_scale, allowed="> 0"
        )
    altered = landed(snapshot, given.ledger, params, learnt)
    homeless: tuple[Refusal, ...] = ()
    if request.remove_brokers:
        altered, homeless = without_brokers(altered, request.remove_brokers, params, given.policies)
    if request.traffic_scale != 1.0:
        altered = scaled(altered, request.traffic_scale)
    if request.add_brokers:
        costs = learn(learnt, snapshot, params, given.ledger.unsettled())
        altered = with_brokers(altered, request.add_brokers, costs.least_idle())
    # What the decision rule remembers is of the brokers and the traffic as they are.
    memory = replace(given.memory, courses={})
    return replace(given, snapshot=altered, ledger=Ledger(), memory=memory), homeless


def _assumption(
    request: PlanRequest, before: Snapshot, made: Plan, homeless: Sequence[Refusal], params: Parameters
) -> str:
    """What a what-if assumes. Its loads begin where the bundles of removed brokers have found a place already, so the
    load of `before` is told beside them."""
    parts = []
    if request.remove_brokers:
        names = ", ".join(sorted(set(request.remove_brokers)))
        left = f", but {numbered(len(homeless), 'bundle')} that no other may take (see refusals)" if homeless else ""
        parts.append(f"without {names}, whose bundles went to the others, the largest to the least loaded{left}")
    if request.add_brokers:
        parts.append(f"with {', '.join(request.add_brokers)}, empty at first")
    if request.traffic_scale != 1.0:
        parts.append(f"all traffic times {request.traffic_scale:g}")
    now = Draft(before, Ledger(), params).score.max(initial=0.0)
    first, then = (max((getattr(load, name) for load in made.loads), default=0.0) for name in _SCORES)
    limit = params.overloaded_threshold_percent / 100
    over = numbered(sum(load.score_after > limit for load in made.loads), "broker")
    return (
        f"what if: {'; '.join(parts)}. The busiest broker is at {now:.1%} now, then at {first:.1%}, and at "
        f"{then:.1%} after the moves; {over} above {limit:.0%} (overloaded_threshold_percent)"
    )


def _check_removed(gone: Sequence[str], snapshot: Snapshot) -> None:
    unknown = [broker for broker in gone if broker not in snapshot.brokers.rows]
    if unknown:
        raise NotFound(unknown_broker(unknown[0], snapshot.brokers.ids))
    if gone and len(set(gone)) >= len(snapshot.brokers):
        text = "at least one broker must stay"
        raise ConfigError(text, field="remove_brokers", value=", ".join(gone), allowed="fewer brokers")


def _check_added(names: Sequence[str], snapshot: Snapshot) -> None:
    if names and not len(snapshot.brokers):
        raise SnapshotError("no broker has a usable report: there is none to take an added one's capacity from")
    taken = {*snapshot.brokers.ids, *(item.broker_id for item in snapshot.excluded)}
    for name in names:
        if name in taken:
            text = f"there is a broker {name!r} already, or it is named twice"
            raise ConfigError(text, field="add_brokers", value=name, allowed="names that no broker has, each once")
        taken.add(name)


def plan_view(made: Plan, *, expires_ms: int, what_if: bool = False) -> PlanView:
    """A plan as an answer of the API, with explanations next to its codes."""
    measure = measure_of(made.strategy)
    return PlanView(
        hash=made.hash,
        wall_ms=made.wall_ms,
        expires_ms=expires_ms,
        strategy=made.strategy,
        placement=made.placement,
        snapshot_digest=made.snapshot_digest,
        verdict=made.verdict,
        brokers=list(made.brokers),
        moves=[move_view(move) for move in made.moves],
        refusals=[refusal_view(item) for item in made.refusals],
        refusal_counts=counted(made.refusals),
        splits=[SplitView(**asdict(item) | {"at": list(item.at)}, sentence=item.sentence) for item in made.splits],
        split_refusals=[refusal_view(item) for item in made.split_refusals],
        loads=list(made.loads),
        imbalance=PlanImbalance(
            measure=measure,
            before=made.imbalance(f"{measure}_before"),
            after=made.imbalance(f"{measure}_after"),
        ),
        what_if=what_if,
    )


def traffic_view(traffic: Floats | Traffic4) -> TrafficView:
    """A row of a traffic matrix, by name."""
    return TrafficView(
        msg_rate_in=float(traffic[RATE_IN]),
        msg_rate_out=float(traffic[RATE_OUT]),
        throughput_in=float(traffic[THROUGHPUT_IN]),
        throughput_out=float(traffic[THROUGHPUT_OUT]),
    )


def move_view(move: Move) -> MoveView:
    """A move as an answer of the API."""
    values = asdict(move) | {"traffic": list(move.traffic), "pressure": list(move.pressure)}
    usage = MoveUsageView(**dict(zip(RESOURCES, move.pressure, strict=True)))
    return MoveView(**values, rates=traffic_view(move.traffic), usage=usage, sentence=move.sentence)


def refusal_view(item: Refusal) -> RefusalView:
    """A refusal as an answer of the API."""
    return RefusalView(**item._asdict() | {"code": item.code.value}, explanation=EXPLANATIONS[item.code])


def counted(refusals: Sequence[Refusal]) -> dict[str, int]:
    """How many refusals there are, by code."""
    return dict(Counter(item.code.value for item in refusals))
