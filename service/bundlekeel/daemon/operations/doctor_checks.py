"""Checks of `doctor`: clocks, the ownership channel, documents under our root, and whether the sidecars may act."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import median_low
from typing import Any, Final
from urllib.parse import unquote

from bundlekeel.codec.external_input import unreadable
from bundlekeel.codec.report import is_bundle
from bundlekeel.core.filters.isolation import isolate, matches
from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.errors import CodecError, StoreError
from bundlekeel.core.model.plan import Plan
from bundlekeel.core.model.policies import IsolationPolicy
from bundlekeel.core.model.text_format import numbered, some
from bundlekeel.daemon.answers.picture import Check
from bundlekeel.daemon.answers.summary import SummaryView
from bundlekeel.daemon.execution.intents import INTENTS, decode_intent
from bundlekeel.daemon.execution.split_intents import SPLITS, decode_split
from bundlekeel.daemon.operations.reviews import REVIEWS, decode_reviews
from bundlekeel.daemon.sources.channel_watch import VARIANTS, ChannelWatch
from bundlekeel.daemon.sources.counters import LiveLoads
from bundlekeel.daemon.state.documents import AveragesPart, Desired, decode, decode_moves, decode_request, decode_state
from bundlekeel.daemon.state.owned_limits import HELD, NATIVE, OwnedLimits
from bundlekeel.daemon.state.shared_state import AVERAGES, DESIRED, MOVES, REQUESTS, STATE
from bundlekeel.daemon.state.takeover_record import TAKEOVER, decode_takeover
from bundlekeel.ports import Clock, Coordination, Document, Metadata, RawClusterView

UNREADABLE_FIX: Final = (
    "it is ignored, or read as the safe state (paused, frozen); check who may write below Bundlekeel's root, then "
    "delete that node (`desired`: not that one; `bundlekeel pause`, ask again for what people wanted, and "
    "`bundlekeel resume` last)"
)
# Of the takeover and of limits: nothing else knows it.
_FIX_RECORD: Final = (
    "do not delete that node yet: it alone says what the brokers had before; copy it, and put these values back by "
    "hand (runbook BundlekeelDocumentsUnreadable)"
)
_SINGLE: Final[Mapping[str, Callable[[Document], object]]] = {
    DESIRED: lambda found: decode(found.data, Desired, what=found.path, exact=True) if found.data else None,
    TAKEOVER: lambda found: decode_takeover(found.data),
    REVIEWS: lambda found: decode_reviews(found.data),
}
_FOLDERS: Final[Mapping[str, Callable[[Document], object]]] = {
    AVERAGES: lambda found: decode(found.data, AveragesPart, what=found.path),
    MOVES: lambda found: decode_moves(found.data, what=found.path),
    REQUESTS: lambda found: decode_request(found.data, what=found.path),
    INTENTS: lambda found: decode_intent(_of_bundle(found)),
    SPLITS: lambda found: decode_split(_of_bundle(found), _bundle(found)),
}


async def document_check(coordination: Coordination) -> Check:
    """Whether all of them can be read; those that cannot, with why."""
    bad: list[str] = []
    fixes: set[str] = set()

    def look(read: Callable[[Any], object], found: Any, fix: str = UNREADABLE_FIX) -> None:
        try:
            read(found)
        except CodecError as error:
            bad.append(str(error))
            fixes.add(fix)

    try:
        for path, read in _SINGLE.items():
            document = await coordination.read(path)
            if document is not None:
                await asyncio.to_thread(look, read, document, _FIX_RECORD if path == TAKEOVER else UNREADABLE_FIX)
        for folder, read in _FOLDERS.items():
            for found in await coordination.read_tree(folder):
                await asyncio.to_thread(look, read, found)
        state = await coordination.read_tree(STATE)
        if state:
            await asyncio.to_thread(look, lambda chunks: decode_state(chunks, what=STATE), state)
    except StoreError as error:
        return Check.failed("documents", str(error), "try again")
    try:
        await OwnedLimits(coordination).load()
    except StoreError as error:
        bad.append(f"{HELD} or {NATIVE}: {error}")
        fixes.add(_FIX_RECORD)
    if bad:
        fix = "; any other: ".join(fix for fix in (_FIX_RECORD, UNREADABLE_FIX) if fix in fixes)
        return Check.failed("documents", "; ".join(bad[:5]), fix)
    return Check.passed("documents", "everything below Bundlekeel's root can be read")


async def migration_check(metadata: Metadata) -> Check:
    """Check that the brokers do not move their metadata to another store (PIP-454), and have not moved it."""
    name = "store migration"
    try:
        state = await metadata.migration()
    except StoreError as error:
        return Check.failed(name, str(error), "grant read below /pulsar/migration-coordinator to this identity")
    if state.code is None:
        return Check.passed(name, state.detail)
    detail = f"{state.code}: {state.code.explanation} ({state.detail})"
    if state.code is Code.STORE_MIGRATING:
        return Check.warned(name, detail, "wait until Pulsar has completed the migration; nothing moves until then")
    fix = "run `bundlekeel handback`, then stop the sidecars (runbook BundlekeelStoreMigrated)"
    return Check.failed(name, detail, fix)


def _bundle(found: Document) -> str:
    return unquote(found.path.rpartition("/")[2])


def _of_bundle(found: Document) -> Document:
    if not is_bundle(_bundle(found)):
        raise unreadable(found.path, "its name is that of no bundle", code=Code.WRONG_TYPE)
    return found


_APART_SECONDS: Final = 30.0


def clocks_check(picture: RawClusterView, now_ms: int) -> Check:
    """Compare the clocks of brokers and of this host. Decisions of Pulsar depend on them, ours do not.

    Brokers are compared with each other: the newest report of a quiet cluster may be old, so that all of them seem to
    be behind this host.
    """
    ahead = {r.broker_id: (r.clock_ahead_ms or max(0, r.last_update - now_ms)) / 1000 for r in picture.reports}
    usual = median_low(ahead.values()) if ahead else 0.0
    apart = {broker: by - usual for broker, by in ahead.items() if abs(by - usual) >= _APART_SECONDS}
    lines = [
        f"{name} is {abs(by):.0f} s {'ahead of' if by > 0 else 'behind'} other brokers" for name, by in apart.items()
    ]
    if usual >= _APART_SECONDS:
        lines.append(f"this host is {usual:.0f} s behind the brokers")
    if not lines:
        return Check.passed("clocks", "the brokers' clocks agree, and this host's is not behind them")
    return Check.warned("clocks", some(lines), "synchronise the clocks (NTP); balancing does not depend on them")


# What `doctor` says of the ownership channel.


_PAUSE_SECONDS = 0.1


async def channel_checks(watch: ChannelWatch, clock: Clock, *, within: float = 10.0) -> list[Check]:
    """Is it followed, where is it, is anything wrong in it? Nothing to check where the load manager has none.

    Looks by itself, for a process in which `watch.run` is no task.
    """
    deadline = clock.boot() + within
    await watch.turn()
    while watch.expected and not watch.followed and clock.boot() < deadline:
        await clock.sleep(_PAUSE_SECONDS)
        await watch.turn()
    if not watch.expected:
        return []
    checks = [_followed(watch)]
    return [*checks, _variant(watch), _findings(watch)] if watch.followed else checks


def _followed(watch: ChannelWatch) -> Check:
    if watch.view is not None and watch.followed:
        return Check.passed("ownership channel", f"followed, {numbered(len(watch.view.units), 'bundle')}")
    return Check.failed(
        "ownership channel",
        watch.fault,
        "let this host reach the brokers' service and web ports, and the metadata store; its identity must be "
        "allowed to read the brokers' settings and to consume in the namespace pulsar/system",
    )


def _variant(watch: ChannelWatch) -> Check:
    obstacle = watch.obstacle()
    where = VARIANTS[watch.view.variant] if watch.view is not None else "unknown"
    return Check(
        name="channel variant",
        ok=not obstacle,
        detail=obstacle or f"in the {where} on every broker",
        fix="finish the migration of the channel; nothing is moved until then" if obstacle else "",
    )


def _findings(watch: ChannelWatch) -> Check:
    found = Counter(row.code for row in watch.findings())
    text = ", ".join(f"{count} {code}" for code, count in found.items())
    return Check(
        name="channel findings",
        ok=not found,
        detail=text or "nothing wrong",
        fix="`bundlekeel channel` lists each with its remedy" if found else "",
        severity="warning" if found else "error",
    )


# `doctor --for act`: may the sidecars begin to act? What `doctor` tests, and what only a running sidecar knows.


# A day of recommendations has the load of day and night in it; a restart or two may fall into it.
DAY_MS: Final = 86_400_000
_NEARLY_MS: Final = DAY_MS * 9 // 10


def go_live(
    checks: Sequence[Check], *, mode_ceiling: str, members: int, looked_ms: int, day: SummaryView, plan: Plan | None
) -> list[Check]:
    """`checks`: of `examine`; `looked_ms`: when the failsafe looked last, 0: never; `day`: the last 24 hours, to now.
    What does not hold is an error (no go) or, where a person may know better, a warning."""
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
    return Check(name="mode", ok=ok, detail=f"the settings file says {ceiling}", fix=fix, severity="warning")


def _seats(members: int) -> Check:
    ok = members > 1
    fix = "" if ok else "run a second sidecar, which takes over when the leader fails"
    return Check(name="replicas", ok=ok, detail=f"{numbered(members, 'sidecar')} running", fix=fix, severity="warning")


# As of the alert BundlekeelFailsafeNotRunning: seven of its usual rounds.
_LOOKS_WITHIN_MS = 900_000


def _failsafe(looked_ms: int, now_ms: int) -> Check:
    ago = max(0, now_ms - looked_ms)
    told = f"it looked {ago // 1000} s ago" if looked_ms else "it has never looked"
    if looked_ms and ago <= _LOOKS_WITHIN_MS:
        return Check.passed("failsafe", told)
    fix = "run `bundlekeel deadman` as a CronJob or timer before the takeover (docs/operations/deadman.md)"
    return Check.warned("failsafe", told, fix)


def _recommendations(day: SummaryView) -> Check:
    known = 0 if day.known_since_ms is None else day.until_ms - day.known_since_ms
    span = f"{known / 3_600_000:.1f} hours" if known >= 3_600_000 else numbered(round(known / 60_000), "minute")
    ok = day.cycles > 0 and known >= _NEARLY_MS
    return Check(
        name="a day of recommendations",
        ok=ok,
        detail=f"{numbered(day.cycles, 'cycle')} in the last {span}",
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
        before, after = plan.imbalance("score_before"), plan.imbalance("score_after")
        detail += f"; the last plan: {numbered(len(plan.moves), 'move')}, max/mean {before:.2f} to {after:.2f}"
    fix = "see `bundlekeel summary` and `bundlekeel plan`: what is not carried out is recommended again"
    return Check(name="what acting would do", ok=not often, detail=detail, fix=fix if often else "", severity="warning")


# By state of a broker, for those that last until somebody does something.
_LIVE_FIXES = {
    "disagree": "let Prometheus drop no series of topics; if the brokers set their own topicBundleAssignmentStrategy, "
    "set `counters.source: off`; reports are used until both agree",
    "too_many_topics": "set `counters.source: prometheus`, or raise `counters.max_topics`",
    "no_topics": "set exposeTopicLevelMetricsInPrometheus=true, and let Prometheus drop no topics",
    "no_cpu": "let the metrics have process_cpu_seconds_total; reports are used until then",
    "outdated": "compare the clocks of this host, the brokers and Prometheus, and read or scrape more often",
}


# One late scrape makes a broker outdated until two more are there: two minutes, where Prometheus scrapes by the minute.
_LATE_SECONDS = 300.0


def live_loads_check(live: LiveLoads) -> Check:
    """Which brokers are seen by their counters."""
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
    told = {state for state in states.values() if state != "outdated" or not passing}
    fixes = [fix for state, fix in _LIVE_FIXES.items() if state in told]
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
