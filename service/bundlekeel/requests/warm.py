"""Warm-ups of brokers: bundles move gradually to a new or restarted broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from bundlekeel.leader.cycle.planner import counted
from bundlekeel.leader.gate.gate import Action, GateQuestion
from bundlekeel.leader.state.documents import Desired, OperatorRequest
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import Conflict, StoreError
from bundlekeel.model.text_format import numbered
from bundlekeel.planning.engine import PlanResult
from bundlekeel.planning.guard.holds import rollout_of
from bundlekeel.ports import Clock
from bundlekeel.requests.relocation import Relocation, RelocationView, relocations
from bundlekeel.requests.verb import put

if TYPE_CHECKING:
    from bundlekeel.leader.state.shared_state import SharedState

_log = structlog.get_logger(__name__)

# A broker counts as warm after this many successive plans that found it loaded enough.
WARM_PLANS: Final = 3


class Warm(Relocation):
    """The request to fill a broker gradually (warm-up)."""

    async def warm(self, broker: str, *, dry_run: bool, reason: str, by: str) -> RelocationView:
        """Store a request to fill a broker gradually; with `dry_run`, only return the moves."""
        self._check_registered(broker)
        _open_to_bundles(self.shared_state.desired, broker)
        view = await self._preview_warm(broker, dry_run=dry_run)

        def warmed(desired: Desired) -> Desired:
            _open_to_bundles(desired, broker)
            return put(desired, "warms", broker, self._operator_request(reason, by))

        if not dry_run:
            self.gate.demand(GateQuestion(action=Action.ORDER))
            await self._note(warmed, f"warm of {broker}", reason, by)
        return view

    async def _preview_warm(self, broker: str, *, dry_run: bool) -> RelocationView:
        result = await self._plan_relocations(warming=frozenset({broker}))
        moves = relocations(result)
        inputs = self.cycle.plan_input(self.cycle.demand_snapshot())
        hold = rollout_of(inputs.snapshot, inputs.guard, inputs.params)
        detail = f"it starts after the roll-out: {hold.sentence}" if hold else ""
        return self._relocation_view(
            broker,
            moves,
            [],
            dry_run=dry_run,
            bundles=len(moves),
            eta_seconds=self.drain_tracker.eta(len(moves)),
            sentence=f"{numbered(len(moves), 'bundle', 'come')} to {broker}",
            detail=detail if moves else _explain_empty_warm(broker, result, self.cycle.params.warm_until_share),
        )


class WarmTracker:
    """Starts and ends warm-ups (gradual filling of brokers) for the leader's cycle."""

    def __init__(self, shared_state: SharedState, clock: Clock) -> None:
        self._shared_state, self._clock = shared_state, clock
        self._warm_plans: Counter[str] = Counter()

    async def planned(self, ready: Mapping[str, bool], *, acting: bool) -> None:
        """After a plan, record which of the brokers in a warm-up have enough load (`ready`).

        With `acting`, ends the warm-up of brokers that had enough load in several plans. Never raises."""
        self._warm_plans = Counter({broker: self._warm_plans[broker] + 1 for broker, done in ready.items() if done})
        warm = [broker for broker, plans in self._warm_plans.items() if plans >= WARM_PLANS]
        if not warm or not acting:
            return
        try:
            await self._shared_state.change_desired(lambda desired: _without_warms(desired, warm))
        except StoreError as error:
            _log.info(
                "end of a warm-up could not be stored; the next cycle tries again", brokers=warm, error=str(error)
            )
            return
        _log.info("warm-up ended, brokers have enough load", brokers=warm)
        self._warm_plans.clear()

    async def warm_up(self, brokers: Collection[str]) -> None:
        """Request a warm-up of brokers that restarted in a roll-out, except cordoned and drained ones. Never raises."""
        operator_request = OperatorRequest(
            by="bundlekeel", reason="the roll-out is over", since_ms=self._clock.wall_ms()
        )
        try:
            await self._shared_state.change_desired(lambda desired: _with_warms(desired, brokers, operator_request))
        except StoreError as error:
            _log.info(
                "warm-up after a roll-out could not be stored, restarted brokers get bundles without it",
                brokers=sorted(brokers),
                error=str(error),
            )
            return
        _log.info("roll-out ended, warming up the restarted brokers", brokers=sorted(brokers))


def _open_to_bundles(desired: Desired, broker: str) -> None:
    if broker in desired.drains or broker in desired.cordons:
        text = f"{broker} is cordoned or drained; uncordon it first"
        raise Conflict(text, code=Code.CORDONED.value, difference=["cordoned"])


def _explain_empty_warm(broker: str, result: PlanResult, share: float) -> str:
    """Return why a warm-up would move no bundle to `broker`, as one clause for operators.

    `share`: part of the mean load (0 to 1) from which a broker has enough load."""
    plan = result.plan
    if broker not in result.ready:
        return plan.verdict.sentence
    scores = {row.broker: row.score_before for row in plan.loads}
    mean = sum(scores.values()) / len(scores)
    if scores[broker] >= share * mean:
        return f"the broker has its share of the load: its load is {scores[broker]:.1%}, the mean {mean:.1%}"
    codes = counted([item for item in plan.refusals if item.bundle and item.broker != broker])
    reasons = ", ".join(f"{count} {code}" for code, count in codes.items())
    return (
        "no bundle of another broker may move here, or none of them has a suitable "
        f"size{f': {reasons}' if reasons else ''}"
    )


def _with_warms(desired: Desired, brokers: Collection[str], operator_request: OperatorRequest) -> Desired:
    empty = desired.cordons.keys() | desired.drains.keys()
    fresh = {broker: operator_request for broker in sorted(brokers) if broker not in empty}
    return msgspec.structs.replace(desired, warms=fresh | desired.warms)


def _without_warms(desired: Desired, brokers: Collection[str]) -> Desired:
    left: dict[str, OperatorRequest] = {
        broker: operator_request for broker, operator_request in desired.warms.items() if broker not in brokers
    }
    return msgspec.structs.replace(desired, warms=left)
