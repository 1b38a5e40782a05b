"""One cycle: snapshot, plan, guard, execute, journal. It ends in one report with one sentence; it never raises.

The leader's cycle carries out; a follower's cycle keeps averages warm and computes the same plan for people to see.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import structlog

from bundlekeel.core.codes import Code
from bundlekeel.core.engine import PlanInput, PlanResult, plan
from bundlekeel.core.errors import BundlekeelError, LeadershipLost, SnapshotError, StoreError
from bundlekeel.core.guard import GuardState, Moved
from bundlekeel.core.ledger import Ledger, dropped, landed, open_entries
from bundlekeel.core.memory import Memory
from bundlekeel.core.params import Parameters
from bundlekeel.core.plan import Move, Plan, imbalance
from bundlekeel.core.snapshot import Snapshot
from bundlekeel.daemon.acting import Obstacle, acting_obstacle, picture_obstacle
from bundlekeel.daemon.brokerconfig import BrokerConfig
from bundlekeel.daemon.documents import Desired
from bundlekeel.daemon.intents import MoveOutcome
from bundlekeel.daemon.observer import Observer
from bundlekeel.ports import BrokerAdmin, Clock, Journal, Picture, Telemetry

_log = structlog.get_logger(__name__)

# Above this many bundles a plan is made in a worker thread, so that heartbeats and the API stay prompt.
THREAD_ABOVE_BUNDLES = 2_000
# Rest of a bundle whose move left it where it was.
STAYED_COOL_DOWN_MS = 60_000


class Hand(Protocol):
    """What carries moves out (daemon/executor.py)."""

    async def carry_out(
        self, moves: Sequence[Move], *, epoch: int, cycle: int, on_outcome: Callable[[MoveOutcome], None]
    ) -> list[MoveOutcome]:
        """Carry out moves, several at a time within its caps; calls back as each one ends."""


class Term(Protocol):
    """What the cycle needs to know of leadership and shared state (daemon/sharing.py)."""

    @property
    def leading(self) -> bool:
        """Whether we lead now, by our own deadline."""

    @property
    def desired(self) -> Desired:
        """What people asked for at run time."""

    @property
    def frozen(self) -> frozenset[str]:
        """Bundles with an open intent of another epoch."""

    def current_epoch(self) -> int:
        """The epoch; LeadershipLost when we do not lead."""

    async def save(self, standing: Standing, report: Mapping[str, Any]) -> None:
        """Store the leader's standing (fenced); does nothing on a follower."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What one cycle leaves to the next one, and one leader to the next."""

    cycle: int = 0
    memory: Memory = field(default_factory=Memory)
    ledger: Ledger = field(default_factory=Ledger)
    recent: Mapping[str, Moved] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class CycleReport:
    """What one cycle saw, decided and did."""

    cycle: int
    wall_ms: int
    sentence: str
    code: Code
    acted: bool = False
    obstacle: Obstacle | None = None
    plan: Plan | None = None
    outcomes: list[MoveOutcome] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def record(self, epoch: int | None) -> dict[str, Any]:
        """The journal line of this cycle."""
        return {
            "kind": "cycle",
            "cycle": self.cycle,
            "wall_ms": self.wall_ms,
            "epoch": epoch,
            "code": self.code.value,
            "sentence": self.sentence,
            "acted": self.acted,
            "obstacle": self.obstacle.code.value if self.obstacle else None,
            "plan": self.plan.hash if self.plan else None,
            "digest": self.plan.snapshot_digest if self.plan else None,
            "planned": len(self.plan.moves) if self.plan else 0,
            "refused": dict(Counter(item.code.value for item in self.plan.refusals)) if self.plan else {},
            "outcomes": dict(Counter(item.outcome for item in self.outcomes)),
            "seconds": {key: round(value, 4) for key, value in self.seconds.items()},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleParts:
    """What a cycle works with. `mode` is the settings file's ceiling; `parameters` merges adopted broker settings."""

    observer: Observer
    admin: BrokerAdmin
    config: BrokerConfig
    hand: Hand
    term: Term
    journal: Journal
    telemetry: Telemetry
    clock: Clock
    mode: str
    parameters: Callable[[Mapping[str, str]], Parameters]
    describe: Callable[[MoveOutcome], Mapping[str, Any]]


class Cycle:
    """Runs cycles one after the other; holds the standing between them."""

    def __init__(self, parts: CycleParts) -> None:
        self._parts = parts
        self._observer = parts.observer
        self._config = parts.config
        self._term = parts.term
        self._telemetry = parts.telemetry
        self._clock = parts.clock
        self.standing = Standing()
        self.snapshot: Snapshot | None = None
        self.picture: Picture | None = None
        self.report: CycleReport | None = None
        self.params: Parameters = parts.parameters({})
        self.busy = asyncio.Lock()
        self.epoch: int | None = None
        self.progress_boot = parts.clock.boot()

    @property
    def leads(self) -> bool:
        """Whether we lead now, in the very term that the standing was adopted for. A term won in the middle of a
        turn does not count: its standing is taken over first, and must not be overwritten with the one at hand."""
        return self.epoch is not None and self._epoch_now() == self.epoch

    def adopt(self, standing: Standing, epoch: int | None) -> None:
        """Go on from this standing, for this term (None: as a follower). Only while no cycle is under way."""
        self.standing, self.epoch = standing, epoch

    async def turn(self, adopt: Callable[[], None] | None = None) -> CycleReport:
        """One whole cycle. Whatever goes wrong is in the report. `adopt` is called first, when no other cycle is
        under way; without it the standing at hand is that of the present term."""
        async with self.busy:
            if adopt is None:
                self.adopt(self.standing, self._epoch_now())
            else:
                adopt()
            started = self.progress_boot = self._clock.boot()
            self.standing = replace(self.standing, cycle=self.standing.cycle + 1)
            try:
                report = await self._turn()
            except (StoreError, SnapshotError) as error:
                code = Code.STORE_UNAVAILABLE if isinstance(error, StoreError) else Code.NO_LOAD_DATA
                report = self._blank(code, f"no decision: {error}")
            except BundlekeelError as error:
                report = self._blank(Code.UNKNOWN, f"the cycle ended early: {error}")
            except Exception:  # noqa: BLE001 - top of the cycle, one of the three named places
                _log.exception("cycle failed", cycle=self.standing.cycle)
                self._telemetry.count("unexpected_errors_total", where="cycle")
                report = self._blank(Code.INTERNAL_ERROR, "the cycle failed unexpectedly; see the log")
            report.seconds["total"] = self._clock.boot() - started
            await self._finish(report)
            return report

    async def _turn(self) -> CycleReport:
        started = self._clock.boot()
        self._observer.in_transit = self.standing.ledger.bundles()
        snapshot, picture = await self._observer.snapshot()
        self.snapshot, self.picture = snapshot, picture
        self._parts.admin.set_endpoints(picture.endpoints)
        await self._config.refresh(picture.endpoints)
        self.params = self._parts.parameters(self._config.adoptable())
        given = self.plan_input(snapshot)
        result = await self.compute(given)
        # What was booked while a worker thread planned stays; the next cycle settles it.
        ledger = result.ledger if self.standing.ledger is given.ledger else self.standing.ledger
        self.standing = replace(
            self.standing, memory=result.memory, ledger=ledger, recent=self._still_recent(snapshot.wall_ms)
        )
        report = CycleReport(
            cycle=self.standing.cycle,
            wall_ms=snapshot.wall_ms,
            plan=result.plan,
            code=result.plan.verdict.code,
            sentence=result.plan.verdict.sentence,
        )
        report.seconds["plan"] = self._clock.boot() - started
        cluster = picture_obstacle(picture, self._config)
        if cluster is not None:
            report.code, report.sentence = cluster.code, cluster.sentence
        report.obstacle = acting_obstacle(
            picture=picture,
            config=self._config,
            ceiling=self._parts.mode,
            desired=self._term.desired,
            now_ms=snapshot.wall_ms,
            leading=self.leads,
        )
        if report.obstacle is None and result.plan.moves:
            await self._act(report, result.plan.moves, snapshot)
        report.sentence = self._sentence(report)
        return report

    def plan_input(self, snapshot: Snapshot) -> PlanInput:
        """What the next plan on this snapshot depends on."""
        guard = GuardState(recent=self.standing.recent, frozen=self._term.frozen, pinned=self._term.desired.pinned)
        return PlanInput(
            snapshot=snapshot, params=self.params, memory=self.standing.memory, ledger=self.standing.ledger, guard=guard
        )

    async def compute(self, given: PlanInput) -> PlanResult:
        """`plan()`, in a worker thread when the cluster is large."""
        if len(given.snapshot.bundles) > THREAD_ABOVE_BUNDLES:
            return await asyncio.to_thread(plan, given)
        return plan(given)

    async def execute(self, decide: Callable[[], Awaitable[tuple[Move, ...]]]) -> list[MoveOutcome]:
        """Carry out moves that a person asked for, with the same books as a cycle's own. `decide` says which, and
        is asked when no cycle is under way: the one before may have made those very moves."""
        async with self.busy:
            if self.snapshot is None:
                raise SnapshotError("there is no picture of the cluster yet")
            moves = await decide()
            report = self._blank(Code.ADMIN, f"{len(moves)} moves a person asked for")
            await self._act(report, moves, self.snapshot)
            return report.outcomes

    async def _act(self, report: CycleReport, moves: tuple[Move, ...], snapshot: Snapshot) -> None:
        """Book, store, carry out. The books are stored before the first call: a new leader must know."""
        started = self._clock.boot()
        epoch = self._own_epoch()
        self.standing = replace(
            self.standing, ledger=open_entries(self.standing.ledger, moves, snapshot, self._clock.wall_ms())
        )
        self._observer.in_transit = self.standing.ledger.bundles()
        try:
            await self._term.save(self.standing, report.record(epoch))
            report.acted = True
            report.outcomes = await self._parts.hand.carry_out(
                moves, epoch=epoch, cycle=report.cycle, on_outcome=self.book
            )
        finally:
            self._forget_unstarted(moves, report.outcomes)
            report.seconds["execute"] = self._clock.boot() - started

    def book(self, outcome: MoveOutcome) -> None:
        """Enter one outcome into ledger, cool-down, journal and metrics, as soon as it is known."""
        self.progress_boot = self._clock.boot()
        now = self._clock.wall_ms()
        ledger, recent = self.standing.ledger, dict(self.standing.recent)
        if outcome.outcome == "refused" or outcome.landed_on == outcome.source:
            ledger = dropped(ledger, outcome.bundle)
        elif outcome.landed_on:
            ledger = landed(ledger, outcome.bundle, outcome.landed_on, outcome.landed_wall_ms or now)
        if outcome.outcome != "refused":
            # A bundle that is where it was has not moved: it may be planned again, but not in every cycle.
            short = outcome.landed_on == outcome.source
            early = int(1000 * self.params.cool_down_seconds) - STAYED_COOL_DOWN_MS if short else 0
            recent[outcome.bundle] = Moved(at_ms=now - max(0, early), source=outcome.source)
        self.standing = replace(self.standing, ledger=ledger, recent=recent)
        self._telemetry.count("moves_total", outcome=outcome.outcome)
        if outcome.landed_on:
            self._telemetry.time("move_duration_seconds", outcome.seconds)
        self._parts.journal.append(self._parts.describe(outcome))

    def arrived(self, bundles: Mapping[str, str]) -> None:
        """Bundles of an earlier leader's open moves that are seen at their target: the books need not wait."""
        ledger = self.standing.ledger
        for bundle, broker in bundles.items():
            ledger = landed(ledger, bundle, broker, self._clock.wall_ms())
        self.standing = replace(self.standing, ledger=ledger)

    def _forget_unstarted(self, moves: tuple[Move, ...], outcomes: list[MoveOutcome]) -> None:
        ended = {outcome.bundle for outcome in outcomes}
        ledger = self.standing.ledger
        for move in moves:
            if move.bundle not in ended and move.bundle not in self._term.frozen:
                ledger = dropped(ledger, move.bundle)
        self.standing = replace(self.standing, ledger=ledger)

    def _still_recent(self, now_ms: int) -> dict[str, Moved]:
        until = now_ms - int(1000 * self.params.cool_down_seconds)
        return {name: moved for name, moved in self.standing.recent.items() if moved.at_ms > until}

    def _sentence(self, report: CycleReport) -> str:
        assert report.plan is not None
        text = report.sentence
        if report.acted:
            counts = Counter(outcome.outcome for outcome in report.outcomes)
            done = ", ".join(f"{amount} {name.replace('_', ' ')}" for name, amount in sorted(counts.items()))
            return f"{text}: {done or 'none started'}."
        if report.plan.moves and report.obstacle is not None:
            return f"{text}; not carried out: {report.obstacle.sentence}."
        return f"{text}."

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
        return CycleReport(cycle=self.standing.cycle, wall_ms=self._clock.wall_ms(), code=code, sentence=sentence)

    async def _finish(self, report: CycleReport) -> None:
        self.report = report
        epoch = self.epoch if self.leads else None
        record = report.record(epoch)
        self._parts.journal.append(record)
        _log.info("cycle", **{key: record[key] for key in ("cycle", "code", "sentence", "planned", "outcomes")})
        self._publish(report)
        if epoch is not None:
            try:
                await self._term.save(self.standing, record)
            except StoreError as error:
                _log.warning("leader state could not be stored", error=str(error))

    def _publish(self, report: CycleReport) -> None:
        self._telemetry.count("cycles_total", outcome=report.code.value)
        for phase, seconds in report.seconds.items():
            self._telemetry.time("cycle_duration_seconds", seconds, phase=phase)
        self._telemetry.gauge("ledger_entries", len(self.standing.ledger.entries))
        if report.plan is None:
            return
        self._telemetry.gauge("planned_moves", len(report.plan.moves))
        for code, amount in Counter(item.code.value for item in report.plan.refusals).items():
            self._telemetry.count("refusals_total", amount, code=code)
        loads = report.plan.loads
        for load in loads:
            self._telemetry.gauge("broker_score_ratio", load.score_before, broker=load.broker)
            self._telemetry.gauge("broker_throughput_bytes_per_second", load.throughput_before, broker=load.broker)
            self._telemetry.gauge("broker_msg_rate", load.msg_rate_before, broker=load.broker)
            self._telemetry.gauge("broker_bundles", load.bundles_before, broker=load.broker)
        for name in ("broker_score_ratio", "broker_throughput_bytes_per_second", "broker_msg_rate", "broker_bundles"):
            self._telemetry.retain(name, "broker", {load.broker for load in loads})
        spread = imbalance([load.throughput_before for load in loads])
        self._telemetry.gauge("load_spread_ratio", spread, stat="throughput_max_mean")
        self._telemetry.gauge(
            "load_spread_ratio", imbalance([item.score_before for item in loads]), stat="score_max_mean"
        )
