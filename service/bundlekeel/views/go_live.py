"""Checks of `doctor --for act`: whether it is safe that the sidecars start to move bundles (mode `act`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bundlekeel.model.check import Check
from bundlekeel.model.plan import Plan
from bundlekeel.model.text_format import numbered
from bundlekeel.views.summary_fields import SummaryView

# Mode `recommend` must have run for a day, because that covers day and night. A tenth can be missing, for restarts.
DAY_MS: Final = 86_400_000
_NEARLY_MS: Final = DAY_MS * 9 // 10


def go_live(
    checks: Sequence[Check], *, mode_ceiling: str, members: int, looked_ms: int, day: SummaryView, plan: Plan | None
) -> list[Check]:
    """Return the checks of `doctor` (`checks`), and further checks of the running sidecars.

    `looked_ms`: last run of the failsafe job, Unix ms; 0: never. `day`: summary of the last 24 hours. A failed check
    is an error if mode `act` is not safe, or a warning if the operator must decide.
    """
    ours = [_mode(mode_ceiling), _seats(members), _failsafe(looked_ms, day.until_ms)]
    return [*checks, *ours, _recommendations(day), _would_do(day, plan)]


def _mode(ceiling: str) -> Check:
    ok = ceiling == "act"
    fix = (
        ""
        if ok
        else "when all other checks hold: `mode: act` in the settings file, restart the sidecars one by one, then "
        "`bundlekeel takeover`"
    )
    return Check(name="mode", ok=ok, detail=f"the settings file sets {ceiling}", fix=fix, severity="warning")


def _seats(members: int) -> Check:
    ok = members > 1
    fix = "" if ok else "run a second sidecar, which takes over when the leader fails"
    return Check(name="replicas", ok=ok, detail=f"{numbered(members, 'sidecar')} running", fix=fix, severity="warning")


# The failsafe must have run within this time, as in the alert BundlekeelFailsafeNotRunning: seven usual intervals.
_LOOKS_WITHIN_MS = 900_000


def _failsafe(looked_ms: int, now_ms: int) -> Check:
    ago = max(0, now_ms - looked_ms)
    detail = f"it ran {ago // 1000} s ago" if looked_ms else "it has never run"
    if looked_ms and ago <= _LOOKS_WITHIN_MS:
        return Check.passed("failsafe", detail)
    fix = "run `bundlekeel deadman` as a CronJob or timer before the takeover (docs/operations/deadman.md)"
    return Check.warned("failsafe", detail, fix)


def _recommendations(day: SummaryView) -> Check:
    span_ms = 0 if day.known_since_ms is None else day.until_ms - day.known_since_ms
    span = f"{span_ms / 3_600_000:.1f} hours" if span_ms >= 3_600_000 else numbered(round(span_ms / 60_000), "minute")
    ok = day.cycles > 0 and span_ms >= _NEARLY_MS
    return Check(
        name="a day of recommendations",
        ok=ok,
        detail=f"{numbered(day.cycles, 'cycle')} in the last {span}",
        fix="" if ok else "run in mode `recommend` for a day, and keep the journal over restarts (`journal.path`)",
    )


def _would_do(day: SummaryView, plan: Plan | None) -> Check:
    """Check in how many cycles mode `act` would have moved bundles. If in more than half, plans follow noise."""
    often = day.cycles > 0 and day.recommended > day.cycles / 2
    if day.recommended:
        detail = f"{day.recommended} of {numbered(day.cycles, 'cycle')} recommended moves, "
        detail += f"{day.recommended_moves} at most in one"
    else:
        detail = "no move was recommended"
    if plan is not None and plan.moves:
        before, after = plan.imbalance("score_before"), plan.imbalance("score_after")
        detail += f"; the last plan: {numbered(len(plan.moves), 'move')}, max/mean {before:.2f} to {after:.2f}"
    fix = "see `bundlekeel summary` and `bundlekeel plan`: what is not carried out is recommended again"
    return Check(name="what acting would do", ok=not often, detail=detail, fix=fix if often else "", severity="warning")
