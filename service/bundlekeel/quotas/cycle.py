"""Quota cycle: measure usage, compute each topic's share of its quota group's limit, and write it as a rate.

It runs in parallel to the balancing cycles. Only the leader queries brokers and writes. It stores its report, so that
every replica shows the same values.

Brokers average rates over `statsUpdateFrequencyInSecs`. A cycle lasts at least two of these intervals: then the rates
that a cycle reads were measured while the rates written by the previous cycle were in effect.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import numpy as np
import structlog

from bundlekeel.leader.cycle.status import CycleStatus
from bundlekeel.leader.gate.gate import Action, Gate, GateQuestion, Obstacle
from bundlekeel.leader.gate.responses import Mode
from bundlekeel.leader.state.shared_state import SharedState
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import LeadershipLost, StoreError
from bundlekeel.model.names import tenant_of
from bundlekeel.model.numbers import setting
from bundlekeel.model.snapshot import Snapshot
from bundlekeel.ports import Clock, Coordination, Journal, Metadata, RawClusterView, Telemetry
from bundlekeel.pulsar.sources.broker_settings import BrokerConfig
from bundlekeel.quotas.enforcing.namespaces import NamespaceReader
from bundlekeel.quotas.enforcing.owned_limits import OwnedLimits
from bundlekeel.quotas.enforcing.rate_keeper import RateKeeper, RateWriteResult
from bundlekeel.quotas.enforcing.resource_group_keeper import (
    NativeWriteResult,
    ResourceGroupKeeper,
    add_planned,
    native_record,
)
from bundlekeel.quotas.ports import QuotaAdmin, UsageFeed
from bundlekeel.quotas.published.usage_listener import UsageListener
from bundlekeel.quotas.rate_commands import QuotaCommands
from bundlekeel.quotas.report import (
    MOST_CHANGES,
    QuotaCycleReport,
    add_held_back,
    change_row,
    group_rows,
    publish,
    publish_topics,
)
from bundlekeel.quotas.requests import requests_of
from bundlekeel.quotas.rules.groups import Membership, resolve
from bundlekeel.quotas.rules.lines import Lines, latest, lines_of
from bundlekeel.quotas.rules.rate_plan import NOT_REACHED, EnforcerPlan, SkippedPolicy, WriteBudget
from bundlekeel.quotas.rules.resource_group_plan import NativePlan
from bundlekeel.quotas.rules.shares import ShareMemory, Shares, TopicClaims, claims_of, share_out
from bundlekeel.quotas.rules.usage import Catalogue, UsageTable
from bundlekeel.quotas.settings import QuotaSettings
from bundlekeel.quotas.stored_groups import DeclaredGroups, GroupRegister
from bundlekeel.quotas.topic_usage import UsageAnswers, UsageSurvey

_log = structlog.get_logger(__name__)

Json = dict[str, Any]
_IDLE_SECONDS: Final = 1.0
_STATS_KEY: Final = "statsUpdateFrequencyInSecs"
_STATS_DEFAULT: Final = 60.0
_MINUTE: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaAdapters:
    """Access to brokers for quota groups: reads, writes, and the usage that brokers publish."""

    admin: QuotaAdmin
    commands: QuotaCommands
    usage_feed: UsageFeed


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaParts:
    """Dependencies of `Quotas`.

    `ceiling`: the mode in the settings file, the highest that operators can set. `permit`: raises LeadershipLost if
    the epoch that it gets (number of a leader's term) is not this sidecar's current term.
    """

    settings: QuotaSettings
    adapters: QuotaAdapters
    permit: Callable[[int], None]
    usage_listener: UsageListener
    metadata: Metadata
    config: BrokerConfig
    coordination: Coordination
    shared_state: SharedState
    status: CycleStatus
    gate: Gate
    journal: Journal
    telemetry: Telemetry
    clock: Clock
    ceiling: Mode


@dataclass(slots=True)
class _Outcome:
    plan: EnforcerPlan
    written: RateWriteResult
    native: NativePlan = field(default_factory=NativePlan)
    attached: NativeWriteResult = field(default_factory=NativeWriteResult)
    problems: tuple[str, ...] = ()


class Quotas:
    """Runs the quota cycles of one sidecar, and contains the results of the last cycle."""

    def __init__(self, parts: QuotaParts) -> None:
        self._p = parts
        self.register = GroupRegister(parts.settings.declared())
        self.book = OwnedLimits(parts.coordination)
        admin, commands = parts.adapters.admin, parts.adapters.commands
        self.namespaces = NamespaceReader(admin, parts.config, parts.clock)
        self.rates = RateKeeper(commands, parts.config, self.book, self.namespaces)
        self.native = ResourceGroupKeeper(admin, commands, parts.config, self.book, self.namespaces)
        self.usage = UsageSurvey(admin, parts.metadata, parts.clock, parts.settings.ask_all_every)
        self.epoch: int | None = None
        self.report: Json | None = None
        # The complete result of the leader's last cycle, because `report` contains only the busiest topics.
        self.seen: QuotaCycleReport | None = None
        self._catalogue = Catalogue()
        # The latest usage that each broker returned, and the state of the share computation.
        self._lines, self._memory = Lines(), ShareMemory()
        # Brokers that have returned their usage since this sidecar became the leader.
        self._reporting: set[str] = set()
        self._problems: tuple[str, ...] = ()
        self._last_boot = parts.clock.boot()
        # Writes of the last minute: boot time in seconds, number of writes.
        self._recent_writes: deque[tuple[float, int]] = deque()

    # --- time ---

    async def run(self) -> None:
        """Run cycles until cancelled.

        After an error the next cycle tries again. A changed group, or a change of the leader, starts the next cycle
        within a second.
        """
        try:
            await self._run()
        finally:
            await asyncio.gather(self.rates.stop(), self.native.stop(), self._p.usage_listener.stop())

    async def _run(self) -> None:
        while True:
            start, measured, requests = self._p.clock.boot(), False, requests_of(self._p.shared_state.desired)
            try:
                measured = await self.step()
            except (StoreError, LeadershipLost) as error:
                _log.info("quota cycle stopped, the next one tries again", error=str(error))
                self.epoch = None
            until = start + (self.cycle_seconds if measured else _IDLE_SECONDS)
            while True:
                left = until - self._p.clock.boot()
                await asyncio.sleep(max(0.05, min(left, _IDLE_SECONDS)))
                if (
                    left <= _IDLE_SECONDS
                    or requests_of(self._p.shared_state.desired) != requests
                    or not self._p.shared_state.leading
                ):
                    break

    @property
    def cycle_seconds(self) -> float:
        """Seconds per cycle: from the settings, but at least two statistics intervals of the brokers."""
        stats = setting(self._p.config.adoptable(), _STATS_KEY, _STATS_DEFAULT)
        return max(self._p.settings.cycle, 2 * stats)

    def limited(self, namespaces: frozenset[str]) -> frozenset[str]:
        """Return those of `namespaces` whose rates a quota group limits; empty if no limits are enforced."""
        p = self._p
        if p.settings.enforcer == "off" or self.handed_back or not namespaces:
            return frozenset()
        declared = self.register.now(requests_of(p.shared_state.desired))
        return frozenset(resolve(declared.groups, {tenant_of(name) for name in namespaces}, namespaces).group_of)

    # --- one cycle ---

    async def step(self) -> bool:
        """Run one cycle if this sidecar leads, else clear the state of earlier cycles.

        Returns whether usage was measured. Raises StoreError or LeadershipLost if the cycle cannot continue.
        """
        p = self._p
        if not p.shared_state.leading:
            if self.report is not None:
                # Delete the metrics of groups here, because the next leader publishes them.
                self.report = None
                publish(p.telemetry, [], 0.0)
            self.epoch, self.seen = None, None
            await p.usage_listener.stop()
            return False
        epoch = p.shared_state.current_epoch()
        if epoch != self.epoch:
            await self._begin(epoch)
        declared = self.register.now(requests_of(p.shared_state.desired))
        picture, snapshot = p.status.picture, p.status.snapshot
        busy = declared.groups or self.rates.owned or self.native.kept or self.report is not None
        if picture is None or not busy:
            return False
        # Read settings and usage in parallel, so that a broker that hangs delays the cycle only once.
        settings = asyncio.create_task(p.config.refresh(picture.endpoints))
        try:
            membership, survey = await self._survey(declared, picture, snapshot)
        finally:
            await settings
        await p.usage_listener.follow(bool(declared.groups), picture.endpoints)
        table, claims, shares = await self._share(membership, survey, picture)
        outcome = await self._enforce(shares, membership, epoch)
        reported = p.usage_listener.reported(membership, table, picture.endpoints)
        native = p.settings.enforcer == "native"
        self.seen = cycle_report = QuotaCycleReport(
            membership=membership,
            table=table,
            claims=claims,
            shares=shares,
            demand=np.maximum(self._memory.known, self._memory.claims.usage),
            plan=outcome.plan,
            defects=self.native.defects(membership, table, picture.endpoints, reported) if native else (),
            reported=reported,
        )
        await self._publish(cycle_report, outcome, survey, epoch)
        return True

    async def _survey(
        self, declared: DeclaredGroups, picture: RawClusterView, snapshot: Snapshot | None
    ) -> tuple[Membership, UsageAnswers]:
        membership = await self.usage.membership(declared.groups, snapshot)
        membership = replace(membership, problems=(*declared.problems, *membership.problems))
        if not membership.group_of:
            return membership, UsageAnswers(measured=(), queried=(), unresponsive={})
        serving = self._lines.speaking()
        arriving = [(entry.bundle, entry.target) for entry in self._p.status.state.ledger.entries]
        return membership, await self.usage.survey(membership, picture, snapshot, arriving, serving)

    async def _begin(self, epoch: int) -> None:
        owned, resource_groups = await self.book.load()
        permit = partial(self._permit, epoch)
        self.rates.begin(owned, permit)
        self.native.begin(resource_groups, permit)
        self.namespaces.clear()
        self.report, self.seen = await self.book.read_report(), None
        self._lines, self._memory = Lines(), ShareMemory()
        self._reporting.clear()
        self._last_boot = self._p.clock.boot()
        self.epoch = epoch

    async def _share(
        self, membership: Membership, survey: UsageAnswers, picture: RawClusterView
    ) -> tuple[UsageTable, TopicClaims, Shares]:
        """Return the usage table, the measured values of each topic (claims), and the shares of topics.

        Computes in a thread, because 100,000 topics would block the event loop for too long.
        """
        table = await asyncio.to_thread(self._catalogue.table, survey.measured, membership)
        partitions = await self.usage.partitions(self._counted(table, picture))
        claims, shares = await asyncio.to_thread(self._shared, membership, table, picture, partitions)
        return table, claims, shares

    def _counted(self, table: UsageTable, picture: RawClusterView) -> Mapping[str, int]:
        """Return the topics whose number of partitions must be read, each with the number of reported partitions.

        These are the measured topics. Until each broker has returned its usage to this leader, all topics whose rate
        Bundlekeel has set are included, too.
        """
        if self._reporting.issuperset(picture.endpoints):
            return table.seen
        return {place.topic: 1 for place in self.rates.owned} | dict(table.seen)

    def _shared(
        self,
        membership: Membership,
        table: UsageTable,
        picture: RawClusterView,
        partitions: Mapping[str, int],
    ) -> tuple[TopicClaims, Shares]:
        """Return measured values (claims) and shares of topics. Brokers that do not respond keep their last values."""
        p, names = self._p, [group.name for group in membership.groups]
        now = lines_of(table, partitions, self.rates.passing(table.keys))
        self._lines = latest(self._lines, now, picture.endpoints)
        claims = claims_of(self._lines, names)
        limits = membership.limits()
        self._reporting.update(table.brokers)
        if not self._reporting.issuperset(picture.endpoints):
            limits = self.rates.left_of(limits, names, {topic for _, topic in claims.keys}, partitions)
        shares, self._memory = share_out(limits, names, claims, self._memory, p.settings.tuning())
        return claims, shares

    # --- enforcing ---

    def obstacle(self) -> Obstacle | None:
        """Return what blocks writing rates now, or None."""
        return self._p.gate.check(GateQuestion(action=Action.QUOTAS, epoch=self.epoch))

    def _permit(self, epoch: int) -> None:
        """Raise Forbidden, LeadershipLost or StoreError if this sidecar may not write rates now.

        Called right before each request to a broker, so that an operator's pause stops the rest of a cycle.
        """
        self._p.permit(epoch)
        self._p.gate.demand(GateQuestion(action=Action.QUOTAS, epoch=epoch))

    @property
    def handed_back(self) -> bool:
        """Whether the last takeover of load shedding has ended, and no operator has requested mode `act` since.

        If so, quota cycles restore the rates from before the quota groups, and set no rates.
        """
        record, desired = self._p.shared_state.takeover, self._p.shared_state.desired
        if record is None or record.active:
            return False
        asked_ms = desired.mode_ms if desired.mode == "act" else 0
        return record.ended is None or asked_ms <= record.ended.wall_ms

    async def _enforce(self, shares: Shares, membership: Membership, epoch: int) -> _Outcome:
        p, may, seconds = self._p, self.obstacle() is None, self.cycle_seconds
        enforcer = "off" if self.handed_back else p.settings.enforcer
        now, write_budget = p.clock.boot(), self._write_budget()
        plan = EnforcerPlan(owned=self.rates.owned)
        if enforcer == "policies":
            plan = await self.rates.plan(shares, membership, write_budget, ask=may, seconds=seconds)
        elif self.rates.owned and may:
            plan = await self.rates.plan_back(write_budget.most, seconds)
        written = await self.rates.carry_out(plan, epoch, seconds) if may else RateWriteResult()
        self._recent_writes.append((now, written.started))
        late = (SkippedPolicy(change.place, NOT_REACHED) for change in written.late)
        failed = (SkippedPolicy(change.place, Code.RATE_NOT_WRITTEN) for change, _ in written.failed)
        outcome = _Outcome(plan=replace(plan, left=(*plan.left, *late, *failed)), written=written)
        if enforcer == "native" or self.native.kept:
            target = membership if enforcer == "native" else Membership()
            outcome.native = await self.native.plan(target, seconds)
            outcome.problems = self.native.problems
            if may:
                most = max(0, write_budget.most - written.started)
                outcome.attached = await self.native.carry_out(outcome.native, epoch, most=most, seconds=seconds)
                self._recent_writes.append((now, outcome.attached.started))
        return outcome

    def _write_budget(self) -> WriteBudget:
        """Return the limits of this cycle's writes.

        The limit of writes is one cycle's part of `writes_per_minute`, or less after many writes in the last minute.
        """
        per_minute, since = self._p.settings.writes_per_minute, self._p.clock.boot() - _MINUTE
        while self._recent_writes and self._recent_writes[0][0] <= since:
            self._recent_writes.popleft()
        part = max(1, int(per_minute * self.cycle_seconds / _MINUTE))
        left = per_minute - sum(count for _, count in self._recent_writes)
        return replace(self._p.settings.write_budget(), most=max(0, min(part, left)))

    # --- reporting ---

    async def _publish(
        self, cycle_report: QuotaCycleReport, outcome: _Outcome, survey: UsageAnswers, epoch: int
    ) -> None:
        p, now = self._p, self._p.clock.boot()
        rows = await asyncio.to_thread(group_rows, cycle_report, self.rates.rate_of)
        add_held_back(rows, self.report, now - self._last_boot)
        add_planned(rows, outcome.native)
        obstacle = self.obstacle()
        problems = [str(item) for item in cycle_report.membership.problems]
        if self.rates.unread:
            problems.append(f"rates in force could not be read: {self.rates.unread}")
        problems += outcome.problems
        problems += [f"{name} did not report its usage: {why}" for name, why in sorted(survey.unresponsive.items())]
        left = [item.why for item in outcome.plan.left if isinstance(item.why, Code)] + outcome.attached.left
        left += [Code.RATE_NOT_WRITTEN] * len(outcome.attached.failed)
        self.report = {
            "enforcer": p.settings.enforcer,
            "acting": obstacle is None and p.settings.enforcer != "off" and not self.handed_back,
            "obstacle": self._obstacle_code(obstacle),
            "wall_ms": p.clock.wall_ms(),
            "cycle_seconds": self.cycle_seconds,
            "problems": [*problems, *(f"{put.what}: {why}" for put, why in outcome.attached.failed[:MOST_CHANGES])],
            "writes": self._writes(outcome),
            "left": {code.value: left.count(code) for code in sorted(set(left))},
            "transport": p.usage_listener.view(),
            "groups": rows,
        }
        publish(p.telemetry, rows, now - self._last_boot)
        publish_topics(p.telemetry, cycle_report, p.settings.topic_metrics, self.rates.rate_of)
        self._last_boot = now
        self._count(outcome, left)
        self._record(outcome, tuple(problems))
        await self.book.store_report(epoch, self.report)

    def _writes(self, outcome: _Outcome) -> dict[str, int]:
        return {
            "written": len(outcome.written.done) + len(outcome.attached.done),
            "planned": len(outcome.plan.changes) + len(outcome.native.puts),
            "failed": len(outcome.written.failed) + len(outcome.attached.failed),
            "held": len(self.rates.owned) + len(self.native.kept),
        }

    def _obstacle_code(self, obstacle: Obstacle | None) -> str | None:
        if self._p.settings.enforcer == "off":
            return Code.QUOTAS_OFF.value
        if obstacle is not None:
            return obstacle.code.value
        return Code.PUT_ASIDE.value if self.handed_back else None

    def _count(self, outcome: _Outcome, left: list[Code]) -> None:
        telemetry, writes = self._p.telemetry, self._writes(outcome)
        for name in ("written", "failed"):
            telemetry.count("quota_writes_total", writes[name], outcome=name)
        for code in set(left):
            telemetry.gauge("quota_rates_left", float(left.count(code)), code=code.value)
        telemetry.retain("quota_rates_left", "code", {code.value for code in left})
        telemetry.gauge("quota_rates_held", float(len(self.rates.owned)))

    def _record(self, outcome: _Outcome, problems: tuple[str, ...]) -> None:
        """Add the cycle's writes to the journal, and the list of problems if it has changed."""
        done, failed = outcome.written.done, outcome.written.failed
        base = {"kind": "quota", "wall_ms": self._p.clock.wall_ms()}
        if done or failed:
            restored = sum(change.restores for change in done)
            sentence = f"{len(done)} rates of topics written, {restored} of them restored, {len(failed)} failed"
            changes = [change_row(change) for change in done[:MOST_CHANGES]]
            errors = [change_row(change) | {"error": why} for change, why in failed[:MOST_CHANGES]]
            record = base | {"what": "rates", "code": "RatesWritten", "changes": changes, "errors": errors}
            self._p.journal.append(record | {"sentence": sentence})
        if outcome.attached.done or outcome.attached.failed:
            self._p.journal.append(base | native_record(outcome.attached))
        if problems != self._problems:
            self._problems = problems
            sentence = "; ".join(problems) or "nothing is wrong with quota groups any more"
            record = base | {"what": "problems", "code": "QuotaProblems", "problems": list(problems)}
            self._p.journal.append(record | {"sentence": sentence})
