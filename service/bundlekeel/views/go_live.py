"""`doctor --for act`: whether the sidecars may start to act, by the checks of `doctor` and of a running sidecar."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from bundlekeel.model.codes import Code
from bundlekeel.model.plan import Plan
from bundlekeel.model.policies import IsolationPolicy
from bundlekeel.model.text_format import numbered
from bundlekeel.planning.filters.isolation import isolate, matches
from bundlekeel.pulsar.counters.counters import LiveLoads
from bundlekeel.views.picture import Check
from bundlekeel.views.summary_fields import SummaryView

# One day of recommendations covers day and night; a restart or two may interrupt it.
DAY_MS: Final = 86_400_000
_NEARLY_MS: Final = DAY_MS * 9 // 10


def go_live(
    checks: Sequence[Check], *, mode_ceiling: str, members: int, looked_ms: int, day: SummaryView, plan: Plan | None
) -> list[Check]:
    """Return the checks of `examine` with those of a running sidecar.

    `looked_ms`: last run of the failsafe, Unix ms; 0: never. `day`: summary of the last 24 hours. A failed check is
    an error (do not start), or a warning if the operator may know better.
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


# As in the alert BundlekeelFailsafeNotRunning: seven of its usual intervals.
_LOOKS_WITHIN_MS = 900_000


def _failsafe(looked_ms: int, now_ms: int) -> Check:
    ago = max(0, now_ms - looked_ms)
    detail = f"it looked {ago // 1000} s ago" if looked_ms else "it has never looked"
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
    """Check how often acting would have moved bundles. Moves in most cycles mean that plans follow noise."""
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


# Fixes by state of a broker, for states that last until an operator acts.
_LIVE_FIXES = {
    "disagree": "let Prometheus drop no series of topics; if the brokers set their own topicBundleAssignmentStrategy, "
    "set `counters.source: off`; reports are used until both agree",
    "too_many_topics": "set `counters.source: prometheus`, or raise `counters.max_topics`",
    "no_topics": "set exposeTopicLevelMetricsInPrometheus=true, and let Prometheus drop no topics",
    "no_cpu": "let the metrics have process_cpu_seconds_total; reports are used until then",
    "outdated": "compare the clocks of this host, the brokers and Prometheus, and read or scrape more often",
}


# One late scrape makes a broker outdated until there are two more: two minutes, if Prometheus scrapes once per minute.
_LATE_SECONDS = 300.0


def live_loads_check(live: LiveLoads) -> Check:
    """Check which brokers' loads come from their counters."""
    name, states, refused = "live loads", live.states(), live.refusals()
    if not states:
        return Check.passed(
            name,
            "no counters are read here: only the leader reads them, of extensible brokers only in mode act while none "
            "sheds by itself, or from Prometheus; loads here are those of the brokers' reports (of the leader: "
            "`bundlekeel doctor --for act`)",
        )
    counted = ", ".join(f"{state} {count}" for state, count in sorted(Counter(states.values()).items()))
    detail = f"{numbered(len(states), 'broker')}: {counted}"
    if refused:
        return Check.warned(
            name,
            f"{detail}; {min(refused)}: {refused[min(refused)]}",
            "let this host read /metrics/ of the brokers with topics in it (exposeTopicLevelMetricsInPrometheus=true), "
            "or set `counters.source` to prometheus or off; reports are used until then",
        )
    if doubts := live.doubts():
        detail += f"; {Code.COUNTERS_DISAGREE} at {min(doubts)}: {doubts[min(doubts)]}"
    late = live.outdated()
    passing = len(late) == 1 and max(late.values()) < _LATE_SECONDS
    lasting = {state for state in states.values() if state != "outdated" or not passing}
    fixes = [fix for state, fix in _LIVE_FIXES.items() if state in lasting]
    return Check.warned(name, detail, fixes[0]) if fixes else Check.passed(name, detail)


def unmatched_checks(policies: tuple[IsolationPolicy, ...], brokers: tuple[str, ...]) -> list[Check]:
    """Return a warning for each isolation policy that matches no live broker, or none as primary."""
    applied = isolate(policies, (), brokers)
    checks = []
    for number, policy in enumerate(policies):
        primary, secondary = applied.matched[number].tolist()
        if primary or not applied.readable[number]:
            continue
        with_ports = any(matches((*policy.primary, *policy.secondary), broker) for broker in brokers)
        checks.append(
            Check.warned(
                "policies",
                f"isolation policy {policy.name} matches no broker{' as primary' if secondary else ''}"
                + ("; its patterns match broker ids with ports" if with_ports else ""),
                "write patterns that match host names fully, without ports; bundles whose policy matches no broker do "
                "not move, and no broker owns them after an unload",
            )
        )
    return checks
