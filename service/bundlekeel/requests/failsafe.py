"""The failsafe job: restores the brokers' own load shedding if no sidecar has completed a cycle for too long.

After a takeover only Bundlekeel balances. If all sidecars have failed, or all cycles of the leader fail, nothing
balances the cluster. `judge` works without a sidecar: it reads the takeover's record and the time of the last
completed cycle (`CycleState.completed_ms`) from the shared state, and restores the settings in the record.

It never restores if in doubt. A document that cannot be read is an error, and not a sign that the sidecars have
failed. The time of the last cycle is from another machine's clock, so the job watches the state for
`confirm_seconds` first. Any cycle that is completed during this time cancels the restoration, even one of a leader
whose clock is wrong or that has just recovered. The job reads the state once more right before each write to the
brokers, because reading their settings before can take long.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from bundlekeel.leader.state.documents import LeaderState, decode_state
from bundlekeel.leader.state.shared_state import STATE
from bundlekeel.leader.state.takeover_record import FAILSAFE, TakeoverRecord, encode_look
from bundlekeel.model.errors import StaleWrite, StoreError
from bundlekeel.model.text_format import numbered
from bundlekeel.ports import Clock, Coordination
from bundlekeel.requests.takeover import TakeoverContext, TakeoverResult, handback, read_record

CONFIRM_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 1.0
# Seconds. If a stored time is further ahead of our clock than this, its age is unknown.
_AHEAD_SECONDS: Final = 60.0

State = Literal["not_taken_over", "alive", "dead", "restored", "incomplete"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailsafeLimits:
    """Limits after which the sidecars count as failed.

    `after_seconds`: time without a completed cycle. `confirm_seconds`: how long the job then waits for a cycle. `by`:
    name of this job in the takeover's record."""

    after_seconds: float
    confirm_seconds: float = CONFIRM_SECONDS
    by: str = "deadman"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterActivity:
    """Activity of the sidecars, from the shared state.

    `completed_ms`: end of the last completed cycle, Unix time; 0: no cycle yet. `verdict`: result of the last cycle as
    a sentence. `cycle_seconds`: time since `completed_ms`. `takeover_seconds`: time since the takeover of the brokers'
    load shedding; infinite without a takeover."""

    record: TakeoverRecord | None
    completed_ms: int
    epoch: int
    cycle_seconds: float
    takeover_seconds: float
    verdict: str = ""

    @property
    def seconds(self) -> float:
        """Seconds since the last completed cycle or the takeover, whichever is later."""
        return min(self.cycle_seconds, self.takeover_seconds)

    def dead(self, after_seconds: float) -> bool:
        """Return whether the sidecars of an active takeover have failed.

        True if `seconds` is at least `after_seconds`, or unknown because the clock that set the times is ahead.
        """
        return self.record is not None and (self.seconds >= after_seconds or self.seconds < -_AHEAD_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailsafeResult:
    """Result of the failsafe job. `result`: result of the restoration; None: nothing was restored, as in a dry run."""

    state: State
    sentence: str
    activity: ClusterActivity
    result: TakeoverResult | None = None

    def view(self) -> dict[str, Any]:
        """Return the result as JSON, without the list of brokers."""
        record = self.activity.record
        return {
            "state": self.state,
            "sentence": self.sentence,
            "completed_ms": self.activity.completed_ms,
            "age_seconds": round(self.activity.seconds, 1),
            "epoch": self.activity.epoch,
            "takeover": asdict(record.view()) if record is not None else None,
        }


async def read_activity(coordination: Coordination, clock: Clock) -> ClusterActivity:
    """Return the current activity of the sidecars.

    Raises StoreError if the store does not respond, and CodecError if documents cannot be read.
    """
    stored = await read_record(coordination)
    documents = await coordination.read_tree(STATE)
    state = decode_state(documents, what="the leader's state") if documents else LeaderState()
    record = stored[0] if stored is not None else None
    now = clock.wall_ms()
    return ClusterActivity(
        record=record,
        completed_ms=state.cycle_state.completed_ms,
        epoch=state.epoch,
        cycle_seconds=(now - state.cycle_state.completed_ms) / 1000,
        takeover_seconds=(now - record.wall_ms) / 1000 if record is not None else math.inf,
        verdict=str(state.report.get("sentence", "")),
    )


async def judge(
    coordination: Coordination,
    clock: Clock,
    terms: FailsafeLimits,
    context: Callable[[], Awaitable[TakeoverContext]] | None,
) -> FailsafeResult:
    """Restore the brokers' shedding if the sidecars have failed and stay inactive for `confirm_seconds`.

    `context`: returns the connections to the brokers; called only if there is something to restore. None: a dry run.
    """
    activity = await read_activity(coordination, clock)
    if context is not None:
        await _record_look(coordination, clock.wall_ms())
    if activity.record is None:
        return FailsafeResult(state="not_taken_over", sentence="there is no takeover to undo", activity=activity)
    if not activity.dead(terms.after_seconds):
        return _alive(activity, terms.after_seconds)
    deadline = clock.boot() + terms.confirm_seconds
    while clock.boot() < deadline:
        await clock.sleep(min(_POLL_SECONDS, max(0.0, deadline - clock.boot())))
        called_off = _changed(activity, await read_activity(coordination, clock))
        if called_off is not None:
            return called_off
    why = _why(activity)
    if context is None:
        return FailsafeResult(
            state="dead", sentence=f"{why}; the brokers' shedding would be restored", activity=activity
        )

    brokers = await context()

    async def look_again() -> None:
        called_off = _changed(activity, await read_activity(coordination, clock))
        if called_off is not None:
            raise _CalledOff(called_off)

    try:
        return await _restore(brokers, activity, why, terms, look_again)
    except _CalledOff as error:
        return error.judgement


async def _record_look(coordination: Coordination, wall_ms: int) -> None:
    """Store the time of this check for the sidecars' metric. A failed write does not prevent a restoration."""
    with contextlib.suppress(StoreError, StaleWrite):
        document = await coordination.read(FAILSAFE)
        await coordination.write_shared(FAILSAFE, encode_look(wall_ms), version=document.version if document else None)


class _CalledOff(Exception):
    """Cancels a restoration, because a cycle was completed or the takeover changed during it."""

    def __init__(self, judgement: FailsafeResult) -> None:
        super().__init__(judgement.sentence)
        self.judgement = judgement


def _changed(activity: ClusterActivity, now: ClusterActivity) -> FailsafeResult | None:
    """Return the result that cancels a restoration if a sidecar is active or the takeover has changed; else None.

    `activity`: at the job's first check. `now`: at present."""
    if now.record is None:
        return FailsafeResult(
            state="not_taken_over", sentence="another process ended the takeover in the meantime", activity=now
        )
    if now.completed_ms != activity.completed_ms:
        # Do not show the age of this cycle: it depends on the leader's clock, which can be behind.
        return FailsafeResult(state="alive", sentence=_completed(now), activity=now)
    if now.record != activity.record:
        return FailsafeResult(state="alive", sentence="the takeover was changed in the meantime", activity=now)
    return None


async def _restore(
    context: TakeoverContext,
    activity: ClusterActivity,
    why: str,
    terms: FailsafeLimits,
    look_again: Callable[[], Awaitable[None]],
) -> FailsafeResult:
    result = await handback(context, reason=why, by=terms.by, deadman=True, look_again=look_again)
    if result is None:
        return FailsafeResult(
            state="not_taken_over", sentence="another process restored it in the meantime", activity=activity
        )
    if result.complete:
        count = len(result.brokers)
        text = f"{why}; the brokers' own shedding is back, verified on {numbered(count, 'broker')}"
        return FailsafeResult(state="restored", sentence=text, activity=activity, result=result)
    missing = ", ".join(result.unverified) or "the stored overrides"
    text = f"{why}; not verified at {missing}: the record stays, and the next run continues"
    return FailsafeResult(state="incomplete", sentence=text, activity=activity, result=result)


def _alive(activity: ClusterActivity, after_seconds: float) -> FailsafeResult:
    text = _completed(activity)
    if not activity.completed_ms or activity.cycle_seconds >= after_seconds:
        last = f"the last cycle was completed {_ago(activity.cycle_seconds)}"
        last = last if activity.completed_ms else "no cycle was completed yet"
        text = f"the takeover is recent ({_ago(activity.takeover_seconds)}); {last}"
    return FailsafeResult(state="alive", sentence=text, activity=activity)


def _completed(activity: ClusterActivity) -> str:
    return f"a cycle was completed {_ago(activity.cycle_seconds)}"


def _why(activity: ClusterActivity) -> str:
    if not activity.completed_ms:
        return f"no cycle was ever completed, and the takeover was {_ago(activity.takeover_seconds)}"
    last_cycle = f" (the last cycle: {activity.verdict.rstrip('.')})" if activity.verdict else ""
    ahead = -activity.cycle_seconds
    if ahead > 0:
        return f"no cycle is completed any more, and the last one's clock was {ahead:.0f} s ahead{last_cycle}"
    return f"no cycle was completed for {activity.cycle_seconds:,.0f} s{last_cycle}"


def _ago(seconds: float) -> str:
    seconds = max(0.0, seconds)
    if seconds < 2 * 60:
        return f"{seconds:.0f} s ago"
    return f"{seconds / 60:.0f} min ago" if seconds < 2 * 3600 else f"{seconds / 3600:.0f} h ago"
