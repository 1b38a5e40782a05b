"""Checks of `doctor`: documents below Bundlekeel's root, store migration, clocks, CPU, loads, isolation policies."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from statistics import median_low
from typing import Any, Final
from urllib.parse import unquote

from bundlekeel.leader.execution.intents import INTENTS, decode_intent
from bundlekeel.leader.execution.split_intents import SPLITS, decode_split
from bundlekeel.leader.state.documents import AveragesPart, Desired, decode, decode_moves, decode_request, decode_state
from bundlekeel.leader.state.shared_state import AVERAGES, DESIRED, MOVES, REQUESTS, STATE
from bundlekeel.leader.state.takeover_record import TAKEOVER, decode_takeover
from bundlekeel.model.check import Check
from bundlekeel.model.codes import Code
from bundlekeel.model.double_service import ServedTwice
from bundlekeel.model.errors import AdminApiError, CodecError, StoreError
from bundlekeel.model.policies import IsolationPolicy
from bundlekeel.model.text_format import numbered, some
from bundlekeel.planning.filters.isolation import isolate, matches
from bundlekeel.ports import BrokerAdmin, Coordination, Document, Metadata, RawClusterView
from bundlekeel.pulsar.counters.counters import LiveLoads
from bundlekeel.pulsar.formats.external_input import unreadable
from bundlekeel.pulsar.formats.report import is_bundle
from bundlekeel.requests.review import REVIEWS, decode_reviews

StateCheck = Callable[[Coordination], Awaitable[None]]

UNREADABLE_FIX: Final = (
    "it is ignored, or read as the safe state (paused, frozen); check who may write below "
    "Bundlekeel's root, then delete that node. Do not delete `desired`: run `bundlekeel pause`, "
    "repeat the operators' requests, then run `bundlekeel resume`"
)
# For the documents of takeovers and quota limits: only these contain the values that brokers had before.
_FIX_RECORD: Final = (
    "do not delete that node yet: only it contains the brokers' previous values; copy it, and restore "
    "these values manually (runbook BundlekeelDocumentsUnreadable)"
)
_SINGLE: Final[Mapping[str, Callable[[Document], object]]] = {
    DESIRED: lambda document: decode(document.data, Desired, what=document.path, exact=True) if document.data else None,
    TAKEOVER: lambda document: decode_takeover(document.data),
    REVIEWS: lambda document: decode_reviews(document.data),
}
_FOLDERS: Final[Mapping[str, Callable[[Document], object]]] = {
    AVERAGES: lambda document: decode(document.data, AveragesPart, what=document.path),
    MOVES: lambda document: decode_moves(document.data, what=document.path),
    REQUESTS: lambda document: decode_request(document.data, what=document.path),
    INTENTS: lambda document: decode_intent(_of_bundle(document)),
    SPLITS: lambda document: decode_split(_of_bundle(document), _bundle(document)),
}


async def document_check(coordination: Coordination, records: Sequence[StateCheck]) -> Check:
    """Check that all documents below Bundlekeel's root can be read; the check contains the error of each unreadable
    one.

    `records`: functions of optional features. Each reads a document with the brokers' previous values, and raises
    StoreError if it cannot be read."""
    bad: list[str] = []
    fixes: set[str] = set()

    def look(read: Callable[[Any], object], item: Any, fix: str = UNREADABLE_FIX) -> None:
        try:
            read(item)
        except CodecError as error:
            bad.append(str(error))
            fixes.add(fix)

    try:
        for path, read in _SINGLE.items():
            document = await coordination.read(path)
            if document is not None:
                await asyncio.to_thread(look, read, document, _FIX_RECORD if path == TAKEOVER else UNREADABLE_FIX)
        for folder, read in _FOLDERS.items():
            for document in await coordination.read_tree(folder):
                await asyncio.to_thread(look, read, document)
        state = await coordination.read_tree(STATE)
        if state:
            await asyncio.to_thread(look, lambda chunks: decode_state(chunks, what=STATE), state)
    except StoreError as error:
        return Check.failed("documents", str(error), "try again")
    for check in records:
        try:
            await check(coordination)
        except StoreError as error:
            bad.append(str(error))
            fixes.add(_FIX_RECORD)
    if bad:
        fix = "; for all other nodes: ".join(fix for fix in (_FIX_RECORD, UNREADABLE_FIX) if fix in fixes)
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


async def segment_checks(metadata: Metadata) -> list[Check]:
    """Check that layouts of scalable topics can be read: without them no split or merge by Pulsar is noticed."""
    try:
        await metadata.layouts()
    except StoreError as error:
        return [Check.warned("scalable topics", str(error), "grant read below /topics to this identity")]
    return []


def _bundle(document: Document) -> str:
    return unquote(document.path.rpartition("/")[2])


def _of_bundle(document: Document) -> Document:
    if not is_bundle(_bundle(document)):
        raise unreadable(document.path, "its name is not a bundle name", code=Code.WRONG_TYPE)
    return document


_APART_SECONDS: Final = 30.0


def clocks_check(picture: RawClusterView, now_ms: int) -> Check:
    """Check the brokers' clocks by the times in their reports: Pulsar's decisions depend on these, Bundlekeel's do not.

    The brokers are compared with each other, and not with this host: in a cluster without changes even the newest
    report can be old, so that all brokers would seem to be behind this host."""
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


# Pulsar's own scripts set them. Without one of them the broker cannot write the response, and returns 400.
_JVM_OPTIONS: Final = (
    "--add-opens jdk.management/com.sun.management.internal=ALL-UNNAMED "
    "--add-opens java.management/sun.management=ALL-UNNAMED"
)


async def jvm_check(admin: BrokerAdmin, brokers: Sequence[str]) -> Check:
    """Check that each broker's JVM reports its CPU time, without which Bundlekeel notices a change of load late.

    Brokers that do not respond, or reject the token, are part of other checks.
    """

    async def refusal(broker: str) -> str:
        try:
            await admin.cpu_seconds(broker)
        except AdminApiError as error:
            return str(error) if error.status in (400, 500) else ""
        return ""

    name = "CPU of the brokers' JVMs"
    answers = zip(brokers, await asyncio.gather(*map(refusal, brokers)), strict=True)
    refusals = {broker: text for broker, text in answers if text}
    if not refusals:
        return Check.passed(name, "no broker fails to report it")
    detail = f"{some(list(refusals))} cannot report it: {next(iter(refusals.values()))}"
    fix = f"start these brokers with the JVM options {_JVM_OPTIONS}; loads are from counters and reports until then"
    return Check.warned(name, detail, fix)


# What an operator can do, by state of a broker's counters. Other states end without an operator.
_LIVE_FIXES: Final = {
    "disagree": "configure Prometheus to keep all series of topics; "
    "if the brokers set their own topicBundleAssignmentStrategy, set `counters.source: off`; "
    "load reports are used until they agree with the counters",
    "too_many_topics": "set `counters.source: prometheus`, or raise `counters.max_topics`",
    "no_topics": "set exposeTopicLevelMetricsInPrometheus=true, and let Prometheus drop no topics",
    "no_cpu": "let the brokers' metrics contain process_cpu_seconds_total; reports are used until then",
    "outdated": "compare the clocks of this host, the brokers and Prometheus, and read or scrape more often",
}
# A broker can be outdated this long without a warning: after one late scrape two more are needed, which is two
# minutes if Prometheus scrapes once per minute.
_LATE_SECONDS: Final = 300.0


def live_loads_check(live: LiveLoads) -> Check:
    """Check for which brokers the load is computed from their Prometheus counters, and why not for the others."""
    name, states, refused = "live loads", live.states(), live.refusals()
    if not states:
        return Check.passed(
            name,
            "loads are from the brokers' reports: only the leader reads counters (from extensible brokers "
            "only in mode act while none sheds load itself, or from Prometheus); `bundlekeel doctor --for "
            "act` checks the leader",
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


def double_service_checks(reports: Sequence[ServedTwice]) -> list[Check]:
    """Return an error for each bundle with topics that two brokers serve, by the counters that the leader reads."""
    return [
        Check.failed(
            "double service",
            f"{item.bundle}: {' and '.join(item.brokers)} serve {numbered(item.topics, 'topic')} at the same time; "
            "messages can be lost",
            "restart the broker that `bundlekeel where` does not show as the owner (runbook BundlekeelServedTwice)",
        )
        for item in reports
    ]


def unmatched_checks(policies: tuple[IsolationPolicy, ...], brokers: tuple[str, ...]) -> list[Check]:
    """Return a warning for each isolation policy without a live broker that matches its primary patterns."""
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
                + ("; its patterns are compared with broker ids that contain a port" if with_ports else ""),
                "correct its patterns: each must match whole host names, without ports; bundles of a policy without a "
                "matching broker do not move, and no broker owns them after an unload",
            )
        )
    return checks
