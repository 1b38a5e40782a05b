"""One cycle: snapshot, plan, guard, execute, journal. It ends in one report with one sentence; it never raises.

The leader's cycle carries out; a follower's cycle keeps averages warm and computes the same plan for people to see.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

import structlog

from bundlekeel.core.guard.budgets import CYCLE_BUDGETS as BUDGETS
from bundlekeel.core.guard.budgets import GENTLE
from bundlekeel.core.guard.external_moves import apart_from, noted
from bundlekeel.core.guard.state import GuardState, RecentMove, SplitFailed
from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.errors import BundlekeelError, LeadershipLost, SnapshotError, StoreError, WrongCluster
from bundlekeel.core.model.parameters import Parameters
from bundlekeel.core.model.plan import Move, Plan, Split
from bundlekeel.core.model.snapshot import Snapshot
from bundlekeel.core.operations.relocation import RULES
from bundlekeel.core.planning.effects import came_to_nothing
from bundlekeel.core.planning.engine import PlanInput, PlanResult, plan
from bundlekeel.core.planning.ledger import dropped, landed, open_entries, parted, settle
from bundlekeel.daemon.cycle.external_moves import SplitWatch
from bundlekeel.daemon.cycle.parts import CycleParts
from bundlekeel.daemon.cycle.report import CycleReport, publish_plan
from bundlekeel.daemon.execution.intents import MoveOutcome
from bundlekeel.daemon.execution.split_intents import SplitOutcome
from bundlekeel.daemon.gate.gate import Action, GateQuestion, Obstacle
from bundlekeel.daemon.state.cycle_state import CycleState
from bundlekeel.daemon.state.takeover_record import namespaces_of
from bundlekeel.ports import Picture

_log = structlog.get_logger(__name__)
_Noted = TypeVar("_Noted", RecentMove, SplitFailed)

CYCLE_BUDGETS = BUDGETS | {Code.BUDGET_OF_DRAIN}
# Above this many bundles a plan is made in a worker thread, so that heartbeats and the API stay prompt.
THREAD_ABOVE_BUNDLES = 2_000
# Rest of a bundle whose move left it where it was.
STAYED_COOL_DOWN_MS = 60_000


class Cycle:
    """Runs cycles one after the other; holds the state between them."""

    def __init__(self, parts: CycleParts) -> None:
        self._parts = parts
        self._observer = parts.observer
        self._config = parts.config
        self._term = parts.term
        self._telemetry = parts.telemetry
        self._own_splits = SplitWatch(parts.config, parts.journal.append, parts.telemetry)
        self._clock = parts.clock
        self.cycle_state = CycleState()
        self.snapshot: Snapshot | None = None
        self.picture: Picture | None = None
        self.report: CycleReport | None = None
        self.params: Parameters = parts.parameters({}, ())
        self.busy = asyncio.Lock()
        self.epoch: int | None = None
        self._planned: tuple[PlanInput, PlanResult] | None = None
        # Which rule asked for the moves under way, by bundle: outcomes do not say it.
        self._rules: dict[str, str] = {}
        self.progress_boot = parts.clock.boot()

    @property
    def leads(self) -> bool:
        """Whether we lead now, in the very term that the state was adopted for. A term won in the middle of a
        turn does not count: its state is taken over first, and must not be overwritten with the one at hand."""
        return self.epoch is not None and self._epoch_now() == self.epoch

    @property
    def cut_off(self) -> bool:
        """Whether the last cycle moved bundles and would have moved more, but for the budgets of one cycle.

        Where a share of traffic or the adaptive rate holds it back, the rest is to come later, not at once.
        """
        report = self.report
        if report is None or report.plan is None or not report.outcomes:
            return False
        codes = {refusal.code for refusal in report.plan.refusals}
        return bool(codes & CYCLE_BUDGETS) and not codes & GENTLE

    def adopt(self, cycle_state: CycleState, epoch: int | None) -> None:
        """Go on from this state, for this term (None: as a follower). Only while no cycle is under way."""
        self.cycle_state, self.epoch = cycle_state, epoch
        self._observer.adopt(cycle_state.divisions)

    async def turn(self, adopt: Callable[[], None] | None = None) -> CycleReport:
        """One whole cycle. Whatever goes wrong is in the report. `adopt` is called first, when no other cycle is
        under way; without it the state at hand is that of the present term."""
        async with self.busy:
            if adopt is None:
                self.adopt(self.cycle_state, self._epoch_now())
            else:
                adopt()
            started = self.progress_boot = self._clock.boot()
            self._planned = None
            self.cycle_state = replace(self.cycle_state, cycle=self.cycle_state.cycle + 1)
            try:
                report = await self._turn()
            except (StoreError, SnapshotError) as error:
                code = Code.STORE_UNAVAILABLE if isinstance(error, StoreError) else Code.NO_LOAD_DATA
                report = self._blank(code, f"no decision: {error}")
            except WrongCluster:
                raise
            except BundlekeelError as error:
                report = self._blank(Code.UNKNOWN, f"the cycle ended early: {error}")
            except Exception:  # noqa: BLE001 - top of the cycle
                _log.exception("cycle failed", cycle=self.cycle_state.cycle)
                self._telemetry.count("unexpected_errors_total", where="cycle")
                report = self._blank(Code.INTERNAL_ERROR, "the cycle failed unexpectedly; see the log")
            report.seconds["total"] = self._clock.boot() - started
            await self._finish(report)
            return report

    async def _turn(self) -> CycleReport:
        started = self._clock.boot()
        snapshot, picture = await self._look()
        await self._mind_others(snapshot, picture)
        given = self.plan_input(snapshot)
        result = await self.compute(given)
        self._planned = given, result
        rest, limited = self.params.cool_down_seconds, self.params.cool_down_limited_factor
        # What was booked while a worker thread planned stays; the next cycle settles it.
        ledger = result.ledger if self.cycle_state.ledger is given.ledger else self.cycle_state.ledger
        self.cycle_state = replace(
            self.cycle_state,
            memory=result.memory,
            ledger=ledger,
            recent=_since(self.cycle_state.recent, snapshot.wall_ms, limited * rest, self.params.no_return_seconds),
            split_failed=_since(self.cycle_state.split_failed, snapshot.wall_ms, rest),
            divisions=dict(self._observer.divisions),
            brokers=tuple(sorted(picture.endpoints)),
        )
        effects = self._parts.effects.judge(self.cycle_state.effects, ledger, snapshot, result.plan, leading=self.leads)
        self.cycle_state = replace(self.cycle_state, effects=effects)
        report = CycleReport.of(result.plan, self.cycle_state.cycle)
        report.measured_seconds = snapshot.slowest_seconds
        report.seconds["plan"] = self._clock.boot() - started
        cluster = self._parts.gate.cluster_obstacle()
        if cluster is not None:
            report.code, report.sentence = cluster.code, cluster.sentence
        report.obstacle = closed = self._obstacle(Action.PLAN)
        relocates = self._obstacle(Action.RELOCATION) is None
        await self._parts.requests.planned(result.ready, result.plan.refusals, acting=relocates)
        await self._after_rollout(snapshot, acting=closed is None)
        report.operations = self._parts.requests.record()
        report.shadow = self._parts.shadow()
        if relocates:
            await self._carry_out(report, result.plan, snapshot)
        report.sentence = report.full_sentence()
        return report

    async def _after_rollout(self, snapshot: Snapshot, *, acting: bool) -> None:
        """When brokers have stopped restarting, those that did are filled gently (warm), by whoever leads then."""
        restarted = self._parts.guard_memory.rolled_out(snapshot.wall_ms, self.params.rollout_quiet_seconds)
        if restarted and acting:
            await self._parts.requests.warm_up(restarted)

    def _obstacle(self, action: Action) -> Obstacle | None:
        return self._parts.gate.check(GateQuestion(action=action, epoch=self.epoch))

    async def _look(self) -> tuple[Snapshot, Picture]:
        """The newest picture, and everything about it that a plan needs."""
        self._observer.in_transit = self.cycle_state.ledger.bundles()
        snapshot, picture = await self._observer.snapshot()
        self.snapshot, self.picture = snapshot, picture
        self._parts.guard_memory.see(picture, snapshot.wall_ms)
        self._parts.admin.set_endpoints(picture.endpoints)
        await self._config.refresh(picture.endpoints)
        self._parts.gate.see(picture)
        self._own_splits.look(picture, self._term.takeover)
        self.params = self._parts.parameters(self._config.adoptable(), namespaces_of(self._term.takeover))
        if (measured := snapshot.slowest_seconds) is not None:
            # Hits, ledger and silence go by the age of what was really seen.
            self.params = replace(
                self.params, statistics_interval_seconds=measured, host_usage_interval_seconds=measured
            )
        self.snapshot = snapshot = await self._parts.requests.complete(snapshot, picture)
        await self._parts.policies.refresh(snapshot)
        return snapshot, picture

    async def _mind_others(self, snapshot: Snapshot, picture: Picture) -> None:
        """What somebody else moved is left alone for its cool-down, and a second balancer is noticed. Only where we
        would act: while people or brokers move bundles because they are meant to, no move counts as external."""
        now, params = snapshot.wall_ms, self.params
        books = settle(self.cycle_state.ledger, snapshot, params, now)
        changes = await self._parts.external_moves.look(
            snapshot,
            picture,
            moves=self._term.moves,
            unsettled=books.bundles() | self._term.frozen,
            trusted=self._obstacle(Action.RELOCATION) is None,
            lag_seconds=params.statistics_interval_seconds + params.host_usage_interval_seconds,
            within=namespaces_of(self._term.takeover),
        )
        told = apart_from(changes, self._term.desired.drains)
        recent = {
            **self.cycle_state.recent,
            **{item.bundle: RecentMove(at_ms=now, source=item.source) for item in changes},
        }
        self.cycle_state = replace(
            self.cycle_state, recent=recent, external_moves=noted(self.cycle_state.external_moves, told, now)
        )

    async def _carry_out(self, report: CycleReport, made: Plan, snapshot: Snapshot) -> None:
        """Moves first: they relieve at once. Splits need a term that still lasts after them. Outside of the maintenance
        windows only what a person asked for is done."""
        closed = report.obstacle is not None
        moves = tuple(move for move in made.moves if move.rule in RULES) if closed else made.moves
        back = () if closed else self._parts.effects.take_back(snapshot)
        if back or moves:
            # What made things worse is taken back first; the plan did not reckon with that, so it is made anew.
            await self._act(report, back or moves, snapshot)
        if made.splits and not closed and self.leads:
            await self._split(report, made.splits)

    def plan_input(self, snapshot: Snapshot) -> PlanInput:
        """What the next plan on this snapshot depends on."""
        guard = GuardState(
            recent=self.cycle_state.recent,
            frozen=self._term.frozen,
            split_failed=self.cycle_state.split_failed,
            quarantined=self.cycle_state.effects.quarantined(snapshot.wall_ms),
        )
        return PlanInput(
            snapshot=snapshot,
            params=self.params,
            memory=self.cycle_state.memory,
            ledger=self.cycle_state.ledger,
            guard=self._parts.requests.guard(
                self._parts.guard_memory.state(guard, self.cycle_state.ledger, snapshot.wall_ms), snapshot.wall_ms
            ),
            owned=self._parts.requests.owned,
            policies=self._parts.policies.current,
            brokers_split=self._config.brokers_split(self.picture.endpoints if self.picture is not None else ()),
        )

    async def compute(self, given: PlanInput) -> PlanResult:
        """`plan()`, in a worker thread when the cluster is large."""
        if len(given.snapshot.bundles) > THREAD_ABOVE_BUNDLES:
            return await asyncio.to_thread(plan, given)
        return plan(given)

    async def execute(self, decide: Callable[[], Awaitable[tuple[tuple[Move, ...], Plan | None]]]) -> list[MoveOutcome]:
        """Carry out moves that a person asked for, in the same books. `decide` says which, with the plan that predicts
        their effect, if any; it is asked when no cycle is under way: the one before may have made those moves."""
        async with self._asked():
            if self.snapshot is None:
                raise SnapshotError("there is no picture of the cluster yet")
            moves, made = await decide()
            report = self._blank(Code.ADMIN, f"{len(moves)} moves a person asked for")
            report.plan = made
            await self._act(report, moves, self.snapshot)
            return report.outcomes

    async def execute_split(self, decide: Callable[[], Awaitable[Split]]) -> list[SplitOutcome]:
        """Split a bundle because a person asked for it; `decide` as in `execute`."""
        async with self._asked():
            split = await decide()
            report = self._blank(Code.ADMIN, f"a split of {split.bundle} a person asked for")
            await self._split(report, (split,))
            return report.splits

    @asynccontextmanager
    async def _asked(self) -> AsyncIterator[None]:
        """Between two cycles. The request ends before the next cycle begins: that one's moves are no part of it."""
        async with self.busy:
            try:
                yield
            finally:
                self._parts.executor.request = None

    async def _act(self, report: CycleReport, moves: tuple[Move, ...], snapshot: Snapshot) -> None:
        """Book, store, carry out. The books are stored before the first call: a new leader must know."""
        started = self._clock.boot()
        epoch = self._own_epoch()
        now = self._clock.wall_ms()
        self.cycle_state = replace(
            self.cycle_state,
            ledger=open_entries(self.cycle_state.ledger, moves, snapshot, now),
            effects=self._parts.effects.begun(self.cycle_state.effects, moves, report.plan, now),
        )
        self._observer.in_transit = self.cycle_state.ledger.bundles()
        self._rules = {move.bundle: move.rule for move in moves}
        try:
            await self._term.save(self.cycle_state, report.record(epoch), epoch=epoch)
            report.acted = True
            report.outcomes = await self._parts.executor.carry_out(
                moves, epoch=epoch, cycle=report.cycle, on_outcome=self.book
            )
        finally:
            self._forget_unstarted(moves, report.outcomes)
            report.seconds["execute"] = self._clock.boot() - started

    async def _split(self, report: CycleReport, splits: tuple[Split, ...]) -> None:
        """Split at the owners. The children are in the next snapshot, whatever the brokers report by then."""
        started, epoch = self._clock.boot(), self._own_epoch()

        async def ended(outcome: SplitOutcome) -> None:
            self.book_split(outcome)
            # Whoever leads next has to know the children, and brokers do not report them yet.
            await self._store(report.record(epoch), epoch)

        report.splits = await self._parts.executor.split(
            splits,
            epoch=epoch,
            cycle=report.cycle,
            max_bundles=self.params.split_max_bundles,
            prepare=self._observer.expect_children,
            on_outcome=ended,
        )
        report.seconds["split"] = self._clock.boot() - started

    def book_split(self, outcome: SplitOutcome) -> None:
        """Enter the outcome of a split into what the observer knows, journal and metrics."""
        self.progress_boot = self._clock.boot()
        if outcome.outcome == "done" and outcome.family is not None:
            self._observer.divided(outcome.family)
            ledger = parted(self.cycle_state.ledger, outcome.bundle)
            self.cycle_state = replace(self.cycle_state, ledger=ledger, divisions=dict(self._observer.divisions))
        cool_down = self.params.cool_down_seconds
        if (rest := outcome.rest_seconds(cool_down)) > 0:
            since = self._clock.wall_ms() - int(1000 * (cool_down - rest))
            failed = {outcome.bundle: SplitFailed(at_ms=since, code=outcome.code)}
            self.cycle_state = replace(self.cycle_state, split_failed={**self.cycle_state.split_failed, **failed})
        self._telemetry.count("splits_total", outcome=outcome.outcome, rule=outcome.rule)
        self._parts.journal.append(outcome.record())

    def book(self, outcome: MoveOutcome) -> None:
        """Enter one outcome into ledger, cool-down, journal and metrics, as soon as it is known."""
        self.progress_boot = self._clock.boot()
        now = self._clock.wall_ms()
        ledger, recent = self.cycle_state.ledger, dict(self.cycle_state.recent)
        if outcome.outcome in ("refused", "released") or outcome.landed_on == outcome.source:
            ledger = dropped(ledger, outcome.bundle)
        elif outcome.landed_on:
            ledger = landed(ledger, outcome.bundle, outcome.landed_on, outcome.landed_wall_ms or now)
        if outcome.outcome != "refused":
            # A bundle that is where it was has not moved: it may be planned again, but not in every cycle.
            short = outcome.landed_on == outcome.source
            early = int(1000 * self.params.cool_down_seconds) - STAYED_COOL_DOWN_MS if short else 0
            recent[outcome.bundle] = RecentMove(at_ms=now - max(0, early), source=outcome.source)
        effects = self.cycle_state.effects
        if outcome.outcome != "done":
            effects = came_to_nothing(effects, outcome.bundle)
        self.cycle_state = replace(self.cycle_state, ledger=ledger, recent=recent, effects=effects)
        self._telemetry.count("moves_total", outcome=outcome.outcome)
        rule = self._rules.get(outcome.bundle) or "unknown"
        self._telemetry.count("moves_by_rule_total", rule=rule, outcome=outcome.outcome)
        if outcome.landed_on:
            self._telemetry.time("move_duration_seconds", outcome.moving_seconds or outcome.seconds)
        self._parts.journal.append(self._parts.describe(outcome))

    def arrived(self, bundles: Mapping[str, str]) -> None:
        """Bundles of an earlier leader's open moves that are seen at their target: the books need not wait."""
        ledger = self.cycle_state.ledger
        for bundle, broker in bundles.items():
            ledger = landed(ledger, bundle, broker, self._clock.wall_ms())
        self.cycle_state = replace(self.cycle_state, ledger=ledger)

    def _forget_unstarted(self, moves: tuple[Move, ...], outcomes: list[MoveOutcome]) -> None:
        ended = {outcome.bundle for outcome in outcomes}
        ledger = self.cycle_state.ledger
        for move in moves:
            if move.bundle not in ended and move.bundle not in self._term.frozen:
                ledger = dropped(ledger, move.bundle)
        self.cycle_state = replace(self.cycle_state, ledger=ledger)

    def _epoch_now(self) -> int | None:
        try:
            return self._term.current_epoch()
        except LeadershipLost:
            return None

    def _own_epoch(self) -> int:
        if self.epoch is None or not self.leads:
            raise LeadershipLost("the term of this standing is over, or has not begun")
        return self.epoch

    def _blank(self, code: Code, sentence: str) -> CycleReport:
        return CycleReport(cycle=self.cycle_state.cycle, wall_ms=self._clock.wall_ms(), code=code, sentence=sentence)

    async def _finish(self, report: CycleReport) -> None:
        self.report = report
        epoch = self.epoch if self.leads else None
        if epoch is not None and report.completed:
            self.cycle_state = replace(self.cycle_state, completed_ms=self._clock.wall_ms())
        record = report.record(epoch)
        self._parts.journal.append(record)
        # A term that ended meanwhile still had this cycle: its moves were made, and nobody else records it.
        given, result = self._planned or (None, None)
        self._parts.history(self.epoch, given, result, record)
        _log.info("cycle", **{key: record[key] for key in ("cycle", "code", "sentence", "planned", "outcomes")})
        self._telemetry.gauge("ledger_entries", len(self.cycle_state.ledger.entries))
        report.publish(self._telemetry)
        if given is not None and result is not None:
            publish_plan(self._telemetry, given, result)
        if epoch is not None:
            await self._store(record, epoch)

    async def _store(self, record: Mapping[str, Any], epoch: int) -> None:
        """The books as they are now; what the store does not take now is stored with the next cycle."""
        try:
            await self._term.save(self.cycle_state, record, epoch=epoch)
        except StoreError as error:
            _log.warning("leader state could not be stored", error=str(error))


def _since(noted: Mapping[str, _Noted], now_ms: int, *seconds: float) -> dict[str, _Noted]:
    """Those that are younger than the longest of these times."""
    until = now_ms - int(1000 * max(seconds))
    return {name: note for name, note in noted.items() if note.at_ms > until}
