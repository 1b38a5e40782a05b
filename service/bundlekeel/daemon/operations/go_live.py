"""`doctor --for act`: may the sidecars begin to act? What `doctor` tests, and what only a running sidecar knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bundlekeel.core.model.plan import Plan, imbalance
from bundlekeel.core.model.text_format import numbered
from bundlekeel.daemon.answers.picture import Check
from bundlekeel.daemon.answers.summary import SummaryView

# A day of recommendations has the load of day and night in it; a restart or two may fall into it.
DAY_MS: Final = 86_400_000
_NEARLY_MS: Final = DAY_MS * 9 // 10


def go_live(
    checks: Sequence[Check], *, mode_ceiling: str, members: int, day: SummaryView, plan: Plan | None
) -> list[Check]:
    """`checks`: of `examine` for mode act; `day`: of the last 24 hours. What does not hold is an error (no go) or,
    where a person may know better, a warning."""
    return [*checks, _mode(mode_ceiling), _seats(members), _failsafe(), _recommendations(day), _would_do(day, plan)]


def _mode(ceiling: str) -> Check:
    ok = ceiling == "act"
    fix = "" if ok else "when all else holds: `mode: act` in the settings file, then restart the sidecars one by one"
    return Check(name="mode", ok=ok, detail=f"the settings file says {ceiling}", fix=fix, severity="warning")


def _seats(members: int) -> Check:
    ok = members > 1
    fix = "" if ok else "run a second sidecar: without one nobody takes over from a leader that is gone"
    return Check(name="replicas", ok=ok, detail=f"{numbered(members, 'sidecar')} running", fix=fix, severity="warning")


def _failsafe() -> Check:
    return Check(
        name="failsafe job",
        ok=False,
        detail="it leaves no trace that a sidecar could see",
        fix="see that `bundlekeel deadman` runs as a CronJob or timer (docs/operations/deadman.md)",
        severity="warning",
    )


def _recommendations(day: SummaryView) -> Check:
    known = 0 if day.known_since_ms is None else day.until_ms - day.known_since_ms
    ok = day.cycles > 0 and known >= _NEARLY_MS
    return Check(
        name="a day of recommendations",
        ok=ok,
        detail=f"{numbered(day.cycles, 'cycle')} in the last {known / 3_600_000:.1f} hours",
        fix="" if ok else "run in mode `recommend` for a day, and keep the journal over restarts (`journal.path`)",
    )


def _would_do(day: SummaryView, plan: Plan | None) -> Check:
    """What acting would have come to. Moving in most cycles would mean that plans chase noise."""
    often = day.cycles > 0 and day.recommended > day.cycles / 2
    if day.recommended:
        detail = f"{day.recommended} of {numbered(day.cycles, 'cycle')} recommended moves, "
        detail += f"{day.recommended_moves} at most in one"
    else:
        detail = "no move was recommended"
    if plan is not None and plan.moves:
        before, after = (
            imbalance([getattr(load, name) for load in plan.loads]) for name in ("score_before", "score_after")
        )
        if before is not None and after is not None:
            detail += f"; the last plan: {numbered(len(plan.moves), 'move')}, max/mean {before:.2f} to {after:.2f}"
    fix = "see `bundlekeel summary` and `bundlekeel plan`: what is not carried out is recommended again"
    return Check(name="what acting would do", ok=not often, detail=detail, fix=fix if often else "", severity="warning")
