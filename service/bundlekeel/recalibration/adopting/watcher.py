"""Check, show and adopt the thresholds that the nightly job proposes, and revert an adoption with worse results.

The rules are in recalibration/rules/. Adopted thresholds are stored with the operators' requests in the metadata store,
so that every later leader plans with them, too.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import structlog

from bundlekeel.leader.gate.gate import Action, Gate, GateQuestion
from bundlekeel.leader.state.adopted_thresholds import KEPT, TRIAL, Adopted
from bundlekeel.leader.state.documents import Desired
from bundlekeel.leader.state.effective_parameters import EffectiveParameters
from bundlekeel.leader.state.shared_state import SharedState
from bundlekeel.model.calls import reads
from bundlekeel.model.codes import EXPLANATIONS, Code, reason_of
from bundlekeel.model.errors import Conflict, Forbidden, NotFound, SnapshotError, StoreError
from bundlekeel.planning.engine import PlanInput, PlanResult
from bundlekeel.planning.relocation import NOT_FOR_BALANCE
from bundlekeel.ports import Clock, Journal, Telemetry
from bundlekeel.recalibration.adopting.first_stage import measure_stage
from bundlekeel.recalibration.adopting.responses import (
    AdoptionView,
    ObjectionView,
    ReversionView,
    RevertedView,
    ThresholdsView,
)
from bundlekeel.recalibration.adopting.threshold_inbox import ThresholdInbox
from bundlekeel.recalibration.adopting.threshold_views import (
    describe_changes,
    describe_state,
    list_changes,
    view_adopted,
)
from bundlekeel.recalibration.history.ports import CalibrationStore
from bundlekeel.recalibration.rules.adoption import (
    adopted_values,
    adoption,
    before_and_after,
    judged,
    noted,
    one_back,
    resting,
    reverted_before,
    taken_back,
    widened,
)
from bundlekeel.recalibration.rules.thresholds import (
    OVERRIDABLE,
    WAY_BACK,
    AdoptionRules,
    Number,
    Objection,
    Thresholds,
    checked,
)

_log = structlog.get_logger(__name__)

OURSELVES: Final = "bundlekeel"
_LANDED: Final = ("done", "landed_elsewhere", "released")


@dataclass(kw_only=True, eq=False)
class Calibration:
    """Watches and adopts proposed thresholds. Every replica reads proposals; only the leader acts automatically.

    `mode`: off, recommend or adopt. `store` opens the store of the proposals; it is called in a thread, and again after
    a StoreError. `interval_seconds`: seconds between two cycles. `trial_namespaces`: names or patterns of namespaces
    that use adopted thresholds first, if there is a trial; (): all use them immediately. `no_picture` returns why there
    is no snapshot of the cluster, or "". Without a snapshot, `effective_parameters` lacks the brokers' settings.
    """

    mode: str
    rules: AdoptionRules
    every_seconds: float
    interval_seconds: float
    trial_seconds: float
    trial_namespaces: tuple[str, ...]
    store: Callable[[], CalibrationStore]
    effective_parameters: EffectiveParameters
    shared_state: SharedState
    no_picture: Callable[[], str]
    journal: Journal
    telemetry: Telemetry
    clock: Clock
    gate: Gate

    def __post_init__(self) -> None:
        self.inbox = ThresholdInbox(self.store, self.telemetry, self.clock)
        self._recorded: tuple[str, tuple[str, ...]] | None = None
        self._started_ms = self.clock.wall_ms()

    # --- watching ---

    async def run(self) -> None:
        """Check the proposals and the adopted thresholds every `every_seconds`, until cancelled."""
        while True:
            try:
                await self.check()
            except StoreError as error:
                _log.info("thresholds could not be checked; the next check tries again", error=str(error))
            await asyncio.sleep(self.every_seconds)

    async def check(self) -> None:
        """Read the newest proposal. The leader also judges adopted thresholds on trial, and adopts or refuses
        proposals."""
        await self.inbox.read()
        if self.shared_state.leading:
            await self._judge()
            await self._consider()
        self._publish()

    async def close(self) -> None:
        """Stop reading proposals."""
        self.inbox.close()

    def cycle_ended(
        self, epoch: int | None, plan_input: PlanInput | None, result: PlanResult | None, record: Mapping[str, Any]
    ) -> None:
        """Record the balance after a cycle (`leader.cycle.cycle.CycleListener`), for the trial of adopted thresholds.

        Cycles of followers, cycles that could not act and cycles during a drain are ignored: their balance does not
        depend on the thresholds alone.
        """
        if epoch is not None:
            awaited_ms = self.shared_state.awaited_ms or self.clock.wall_ms()
            self.shared_state.awaited_ms = 0 if self.mode == "off" else awaited_ms
        if self.mode == "off":
            return
        stopped = record["obstacle"] is not None or record.get("operations")
        if epoch is None or plan_input is None or result is None or stopped:
            return
        spread = result.plan.imbalance("score_before")
        # Infinite values and NaN must not be stored, because the next leader reads the record.
        if not 0 < spread < math.inf:
            return
        landed = sum(record["outcomes"].get(outcome, 0) for outcome in _LANDED)
        planned = sum(move.rule not in NOT_FOR_BALANCE for move in result.plan.moves)
        shared_state, now, moves = self.shared_state, self.clock.wall_ms(), min(landed, planned)
        adopted = shared_state.desired.adopted
        stage = measure_stage(plan_input, result.plan, adopted.since_ms, moves) if adopted is not None else None
        shared_state.realised = noted(shared_state.realised, now, spread - 1, moves, self.interval_seconds, stage)

    # --- automatic adoption ---

    @property
    def _first_namespaces(self) -> tuple[str, ...]:
        """Return the namespaces of a first stage; (): there is none. With `compat` there is never one."""
        staged = self.trial_seconds > 0 and self.effective_parameters.base.compat == "none"
        return self.trial_namespaces if staged else ()

    @property
    def _first_in(self) -> str:
        """Return the namespaces of a first stage as the end of a sentence."""
        return f", first in {', '.join(self._first_namespaces)}" if self._first_namespaces else ""

    @property
    def _on_trial(self) -> bool:
        """Return whether the adopted thresholds are on trial. A trial also ends if the settings override all of
        them."""
        adopted = self.shared_state.desired.adopted
        return adopted is not None and adopted.state == TRIAL and bool(self._in_effect)

    @property
    def _in_effect(self) -> Mapping[str, Number]:
        """Return the adopted values in effect, by parameter; in the first stage, those of its namespaces."""
        trial = self.effective_parameters.trial
        return self.effective_parameters.values if trial is None else trial.values

    async def _judge(self) -> None:
        adopted = self.shared_state.desired.adopted
        if adopted is None or not self._on_trial:
            return
        before, after = before_and_after(self.shared_state.realised, adopted, self.clock.wall_ms())
        judgement = judged(adopted, before, after)
        if judgement is None:
            return
        if judgement.worse:
            await self._revert(adopted, by=OURSELVES, reason=judgement.sentence)
            return

        if adopted.namespaces and self.gate.check(GateQuestion(action=Action.ADOPTION)) is not None:
            return
        if adopted.namespaces:
            change = self._widening(adopted, by=OURSELVES, reason=judgement.sentence)
            text = (
                f"now in all namespaces, after a first stage in {', '.join(adopted.namespaces)}: {judgement.sentence}"
            )
            await self._by_ourselves(change, "widened", adopted.digest, text)
            return

        def keep(desired: Desired) -> Desired:
            _require_same(desired, adopted)
            return msgspec.structs.replace(desired, adopted=replace(adopted, state=KEPT))

        await self._by_ourselves(keep, "kept", adopted.digest, judgement.sentence)

    def _widening(self, adopted: Adopted, *, by: str, reason: str) -> Callable[[Desired], Desired]:
        """Return a change of the stored requests after which all namespaces use the adopted thresholds."""
        now_ms = self.clock.wall_ms()

        def change(desired: Desired) -> Desired:
            _require_same(desired, adopted)
            return msgspec.structs.replace(desired, adopted=widened(adopted, by=by, reason=reason, now_ms=now_ms))

        return change

    async def _by_ourselves(self, change: Callable[[Desired], Desired], what: str, digest: str, sentence: str) -> None:
        """Apply an automatic change, unless an operator or another sidecar changed the thresholds at the same time."""
        try:
            await self.shared_state.change_desired(change)
        except Conflict as error:
            _log.info("thresholds changed meanwhile; automatic change skipped", digest=digest, reason=str(error))
            return
        self._record(what, digest, sentence)

    async def _consider(self) -> None:
        inbox, adopted = self.inbox, self.shared_state.desired.adopted
        # Without a snapshot the brokers' settings are unknown, so a proposal cannot be compared with them.
        if self.no_picture():
            return
        if inbox.found is None or (adopted is not None and inbox.digest and adopted.digest == inbox.digest):
            return
        objections, known_by = self.objections(), inbox.digest or inbox.found.path
        if self.mode == "adopt" and inbox.document is not None and not objections:
            changes_text = describe_changes(self.effective_parameters.current, inbox.document)
            sentence = f"{changes_text}, by {len(inbox.document.data.days)} days of history{self._first_in}"
            change = self._adopting(inbox.document, inbox.digest, by=OURSELVES, reason=sentence)
            await self._by_ourselves(change, "adopted", inbox.digest, sentence)
            return
        codes = tuple(item.code.value for item in objections)
        if self._recorded == (known_by, codes):
            return
        self._recorded = (known_by, codes)
        if objections:
            reasons = "; ".join(f"{item.code.value}: {item.detail}" for item in objections)
            self._record("refused", inbox.digest, reasons, codes=codes)
        elif inbox.document is not None:
            self._record(
                "recommended", inbox.digest, describe_changes(self.effective_parameters.current, inbox.document)
            )

    def objections(self, *, person: bool = False) -> tuple[Objection, ...]:
        """Return the objections to the newest proposal; empty also if there is no proposal.

        `person`: whether an operator adopts. Objections that only prevent an automatic adoption are then omitted.
        """
        inbox, desired, now = self.inbox, self.shared_state.desired, self.clock.wall_ms()
        if inbox.unreadable is not None:
            return (inbox.unreadable,)
        if inbox.document is None:
            return ()
        if desired.adopted is not None and desired.adopted.digest == inbox.digest and self._in_effect:
            return (Objection(code=Code.NOTHING_NEW, field="", detail="it is in force"),)
        objections = checked(inbox.document, self.effective_parameters.current, self.rules, now)
        before = reverted_before(desired.reverted, inbox.digest, inbox.document.values, now)
        if before is not None:
            detail = f"by {before.by}: {before.reason}"
            objections = (Objection(code=Code.REVERTED, field="", detail=detail), *objections)
        by_itself = self.mode == "adopt" and not person
        return (*objections, *self._not_by_itself(desired, now)) if by_itself else objections

    def _not_by_itself(self, desired: Desired, now: int) -> list[Objection]:
        """Return why the proposal cannot be adopted automatically: the gate forbids it, or another adoption is on
        trial."""
        objections, obstacle = [], self.gate.check(GateQuestion(action=Action.ADOPTION))
        if obstacle is not None:
            detail = obstacle.detail or "nothing is adopted automatically then"
            objections.append(Objection(code=obstacle.code, field="", detail=detail))
        adopted = desired.adopted
        if adopted is not None and adopted.digest and self._on_trial:
            objections.append(Objection(code=Code.ON_PROBATION, field="", detail=f"{adopted.digest} is on trial"))
        elif waits := resting(adopted, desired.reverted, desired.person_reverted_ms, now):
            objections.append(Objection(code=Code.ON_PROBATION, field="", detail=waits))
        return objections

    # --- views ---

    @reads
    async def view(self) -> ThresholdsView:
        """Return the newest proposal, its objections, and the adopted and reverted thresholds."""
        inbox, desired = self.inbox, self.shared_state.desired
        adopted, objections = desired.adopted, self.objections()
        binding = {item.code for item in self.objections(person=True)}
        standing = None
        if adopted is not None:
            before, after = before_and_after(self.shared_state.realised, adopted, self.clock.wall_ms())
            obstacle = str(self.shared_state.shared.report.get("obstacle") or "")
            standing = view_adopted(adopted, self._in_effect, before, after, obstacle)
        changes_text = (
            describe_changes(self.effective_parameters.current, inbox.document) if inbox.document is not None else ""
        )
        return ThresholdsView(
            mode=self.mode,
            sentence=describe_state(self.mode, inbox, adopted if self._in_effect else None, objections, changes_text),
            error=inbox.error,
            read_ms=inbox.read_ms,
            document=inbox.view(),
            changes=list_changes(self.effective_parameters.current, inbox.document),
            objections=[
                ObjectionView(
                    code=item.code.value,
                    field=item.field,
                    detail=item.detail,
                    explanation=EXPLANATIONS[item.code],
                    person="yes" if item.code not in binding else "force" if item.code in OVERRIDABLE else "no",
                )
                for item in objections
            ],
            adopted=standing,
            reverted=[
                RevertedView(digest=digest, by=item.by, reason=item.reason, since_ms=item.since_ms)
                for digest, item in sorted(desired.reverted.items(), key=lambda pair: pair[1].since_ms)
            ],
        )

    async def adopt(
        self, *, digest: str | None, force: bool, reason: str, by: str, everywhere: bool = False
    ) -> AdoptionView:
        """Adopt the newest proposal. Raises Conflict if there are objections that `force` does not override.

        `everywhere`: skip the first stage, or end that of the adopted thresholds.
        """
        self._on()
        adopted = self.shared_state.desired.adopted
        if everywhere and adopted is not None and adopted.namespaces and digest in {None, adopted.digest}:
            await self.shared_state.change_desired(self._widening(adopted, by=by, reason=reason))
            sentence = f"{by} adopted {adopted.digest} in all namespaces ({reason})"
            self._record("widened", adopted.digest, sentence, by=by, reason=reason)
            return AdoptionView(digest=adopted.digest, changes=[], sentence=f"{sentence}. {WAY_BACK}")
        if blind := self.no_picture():
            raise SnapshotError(blind)
        inbox = self.inbox
        await inbox.read()
        if inbox.found is None:
            raise NotFound(f"there is no proposal{f': {inbox.error}' if inbox.error else ''}")
        if digest is not None and digest != inbox.digest:
            newest = inbox.digest or "unreadable"
            text = f"the newest proposal is {newest}, not {digest}"
            raise Conflict(text, code="changed", difference=[f"the newest is {newest}"])
        objections = self.objections(person=True)
        remaining = [item for item in objections if not (force and item.code in OVERRIDABLE)]
        if remaining or inbox.document is None:
            why = [f"{item.code.value}: {item.detail}" for item in remaining]
            raise Conflict(
                "the proposal is not adopted",
                code=reason_of([item.code.value for item in remaining]),
                difference=why,
            )
        changes = list_changes(self.effective_parameters.current, inbox.document)
        changes_text = describe_changes(self.effective_parameters.current, inbox.document)
        change = self._adopting(inbox.document, inbox.digest, by=by, reason=reason, force=force, everywhere=everywhere)
        ended = adopted if self._on_trial else None
        await self.shared_state.change_desired(change)
        sentence = f"{by} adopted {inbox.digest}: {changes_text}{'' if everywhere else self._first_in} ({reason})"
        if ended is not None:
            again = "" if ended.namespaces else "; a revert starts it again"
            sentence += f". The trial of {ended.digest} ends without a result{again}"
        self._record("adopted", inbox.digest, sentence, by=by, reason=reason)
        return AdoptionView(digest=inbox.digest, changes=changes, sentence=f"{sentence}. {WAY_BACK}")

    async def revert(self, *, digest: str | None, reason: str, by: str) -> ReversionView:
        """Revert the last adoption."""
        self._on()
        adopted = self.shared_state.desired.adopted
        if adopted is None:
            raise NotFound("no thresholds are adopted")
        if digest not in {None, adopted.digest}:
            raise _other_adoption(adopted)
        return await self._revert(adopted, by=by, reason=reason)

    def _on(self) -> None:
        if self.mode == "off":
            raise Forbidden("calibration.mode is off: set it in the settings file", code="calibration-off")

    def _adopting(
        self,
        document: Thresholds,
        digest: str,
        *,
        by: str,
        reason: str,
        force: bool = False,
        everywhere: bool = False,
    ) -> Callable[[Desired], Desired]:
        now, current = self.clock.wall_ms(), self.shared_state.desired.adopted

        def change(desired: Desired) -> Desired:
            if desired.adopted != current or (not force and digest in desired.reverted):
                raise Conflict(
                    "the adopted thresholds changed in the meantime; check them and try again",
                    code="changed",
                    difference=["adopted meanwhile"],
                )
            adoption_record = adoption(
                document,
                digest,
                base=self.effective_parameters.base,
                now=desired.adopted,
                by=by,
                reason=reason,
                now_ms=now,
                trial_seconds=self.trial_seconds,
            )
            adoption_record = replace(adoption_record, namespaces=() if everywhere else self._first_namespaces)
            reverted_ms = desired.person_reverted_ms if by == OURSELVES else 0
            return msgspec.structs.replace(desired, adopted=adoption_record, person_reverted_ms=reverted_ms)

        return change

    async def _revert(self, adopted: Adopted, *, by: str, reason: str) -> ReversionView:
        digest, now_ms = adopted.digest, self.clock.wall_ms()
        left = one_back(adopted, by=by, reason=reason, now_ms=now_ms)

        def change(desired: Desired) -> Desired:
            if desired.adopted is None or desired.adopted.digest != digest:
                raise _other_adoption(desired.adopted)
            reverted = desired.reverted
            if digest:
                reverted = taken_back(reverted, adopted, by=by, reason=reason, now_ms=now_ms)
            reverted_ms = desired.person_reverted_ms if by == OURSELVES else now_ms
            return msgspec.structs.replace(desired, adopted=left, reverted=reverted, person_reverted_ms=reverted_ms)

        values = adopted_values(self.effective_parameters.base, left)
        again = "on trial again, from the beginning" if left is not None and left.state == TRIAL else ""
        entries = [left.digest if left else "", *(f"{name} {value:g}" for name, value in sorted(values.items())), again]
        now = ", ".join(filter(None, entries)) if values else "only the settings"
        sentence = f"{by} reverted {digest or 'the thresholds of earlier nights'}: {reason}. In effect now: {now}"
        if by == OURSELVES:
            await self._by_ourselves(change, "reverted", digest, sentence)
        else:
            await self.shared_state.change_desired(change)
            self._record("reverted", digest, sentence, by=by, reason=reason)
        return ReversionView(digest=digest, sentence=sentence)

    # --- reporting ---

    def _record(
        self,
        what: str,
        digest: str,
        sentence: str,
        *,
        by: str = OURSELVES,
        reason: str = "",
        codes: tuple[str, ...] = (),
    ) -> None:
        record = {
            "kind": "adoption",
            "what": what,
            "code": f"Thresholds{what.capitalize()}",
            "wall_ms": self.clock.wall_ms(),
            "version": digest,
            "reverted": what == "reverted",
            "codes": list(codes),
        }
        self.journal.append(record | {"by": by, "reason": reason, "sentence": sentence})
        self.telemetry.count("thresholds_total", what=what)
        _log.info("proposed or adopted thresholds have a new state", what=what, digest=digest, sentence=sentence)

    def _publish(self) -> None:
        telemetry = self.telemetry
        codes = {item.code.value for item in self.objections()}
        for code in sorted(codes):
            telemetry.gauge("thresholds_objections", 1.0, code=code)
        telemetry.retain("thresholds_objections", "code", codes)
        telemetry.gauge("thresholds_in_force", float(len(self._in_effect)))
        telemetry.gauge("thresholds_on_trial", 1.0 if self._on_trial else 0.0)
        telemetry.gauge("thresholds_first_stage", 1.0 if self.effective_parameters.trial is not None else 0.0)
        created_ms, days = self.inbox.created_ms, self.rules.min_days
        # Before the first proposal, the age counts from the day on which the history can be long enough for one. A
        # restart or another leader does not change that day.
        awaited_ms = (self.shared_state.awaited_ms or self._started_ms) + days * 24 * 3_600_000
        since = awaited_ms if created_ms is None else created_ms
        telemetry.gauge("thresholds_age_seconds", max(0.0, (self.clock.wall_ms() - since) / 1000))


def _require_same(desired: Desired, adopted: Adopted) -> None:
    """Raise Conflict if another request changed the adopted thresholds in the meantime."""
    if desired.adopted != adopted:
        raise _other_adoption(desired.adopted)


def _other_adoption(adopted: Adopted | None) -> Conflict:
    current = "nothing" if adopted is None else adopted.digest or "what earlier nights adopted"
    return Conflict(
        "the adopted thresholds changed in the meantime; check them and try again",
        code="changed",
        difference=[f"adopted is {current}"],
    )
