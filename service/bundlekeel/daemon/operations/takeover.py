"""Turning the brokers' own shedding off, and back on exactly as it was.

Dynamic overrides are cluster-wide and survive restarts, so what was there before is written into the shared document
`takeover` before anything is changed; that record stays until every broker is seen to run as before. A person asks
for these calls, no leader: they need no lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from bundlekeel.core.model.codes import LASTING, Code, explain
from bundlekeel.core.model.errors import AdminApiError, CodecError, Conflict, StaleWrite, StoreError
from bundlekeel.core.model.text_format import numbered, suggest
from bundlekeel.daemon.state.documents import decode_state
from bundlekeel.daemon.state.shared_state import STATE
from bundlekeel.daemon.state.takeover_record import (
    EXCLUDED,
    SPLITTING,
    TAKEOVER,
    TakeoverEnd,
    TakeoverRecord,
    decode_takeover,
    name_set,
)
from bundlekeel.ports import BrokerAdmin, BrokerEndpoint, Clock, Coordination, Metadata
from bundlekeel.ports.commands import BrokerCommands, LookAgain, by_person, no_look

ENABLED: Final = "loadBalancerEnabled"
SHEDDING: Final = "loadBalancerSheddingEnabled"
PLACEMENT: Final = "loadBalancerLoadPlacementStrategy"
LOAD_MANAGER: Final = "loadManagerClassName"
VERIFY_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.25
_STARTED: Final = "startTimestamp"
NO_LEADER: Final = "no sidecar leads"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRow:
    """One broker after the change: what it runs with, and whether that is what was asked for."""

    broker_id: str
    verified: bool
    values: Mapping[str, str] = field(default_factory=dict)
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeoverResult:
    """What a takeover or a handback came to. Not `complete`: the record stays, and rows and warnings say what is
    missing; doing it again continues. `overrides` is what was there before the first takeover."""

    complete: bool
    brokers: tuple[BrokerRow, ...]
    overrides: Mapping[str, str | None]
    warnings: tuple[str, ...] = ()
    splits_by: str = ""

    @property
    def unverified(self) -> tuple[str, ...]:
        """The brokers not seen to run with what was asked for."""
        return tuple(row.broker_id for row in self.brokers if not row.verified)


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeoverContext:
    """What both ways need: the brokers registered now, how to ask and to change them, the shared state. `tell`: is told
    how many brokers are verified."""

    admin: BrokerAdmin
    commands: BrokerCommands
    coordination: Coordination
    metadata: Metadata
    endpoints: Mapping[str, BrokerEndpoint]
    clock: Clock
    verify_seconds: float = VERIFY_SECONDS
    tell: Callable[[str], None] = lambda _: None


async def takeover(
    context: TakeoverContext, *, split: bool, reason: str, by: str, namespaces: Sequence[str] = ()
) -> TakeoverResult:
    """Turn the brokers' shedding off, with `split` their automatic splits too, and verify each broker.

    With `namespaces` (tenant/namespace) a partial takeover: the brokers go on shedding, but leave those namespaces to
    us. A later takeover may name more of them, or none for the whole cluster, which ends what was excluded for us. What
    the brokers ran with before the first one is kept; who, why and when are those of the latest.
    StoreMigrated from the beginning of a migration of the metadata store on. StaleWrite when another one runs at the
    same moment; Conflict when brokers do not know such namespaces (before 4.2);
    AdminApiError when the brokers' settings cannot be read: nothing is changed then.
    """
    (await context.metadata.migration()).demand_writable()
    # First, so that the write below is refused when a handback ends while the settings are read.
    last, version = await _stored(context.coordination) or (None, None)
    stored = await context.admin.dynamic_configuration()
    before = await _runtime(context)
    known = _in_force(last)
    there = _excluded(stored, before)
    values = _wanted(known, there, before, split=split, namespaces=namespaces)
    made = _record(context, known, tuple(values), stored, before)
    ours = {*made.excluded_by_us, *(set(namespaces) - there)}
    record = replace(
        made,
        by=by,
        reason=reason,
        wall_ms=context.clock.wall_ms(),
        namespaces=_scope(known, namespaces),
        excluded_by_us=tuple(sorted(ours)),
    )
    await context.coordination.write_shared(TAKEOVER, record.encode(), version=version)
    # Last, once nobody sheds them: brokers place new bundles of excluded namespaces in turn instead of by load.
    ended: dict[str, str | None] = {}
    if not namespaces and EXCLUDED in record.overrides:
        ended[EXCLUDED] = _without_ours(record, stored.get(EXCLUDED, ""))
    warnings = await _put_all(context, {**values, **ended}, stored)
    of_files = replace(record, overrides=ended)
    rows = await _verify(
        context, {broker: {**values, **_restored(of_files, endpoint)} for broker, endpoint in context.endpoints.items()}
    )
    warnings += _warnings(rows, record.namespaces, last, stored)
    return TakeoverResult(
        complete=all(row.verified for row in rows),
        brokers=rows,
        overrides=record.overrides,
        warnings=tuple(warnings),
        splits_by=_who_splits(rows),
    )


async def preview(context: TakeoverContext, *, split: bool, namespaces: Sequence[str] = ()) -> TakeoverResult:
    """What `takeover` would come to, with its warnings; nothing is changed. A broker that cannot be asked is not
    verified: `takeover` refuses then. Conflict, AdminApiError as `takeover`."""
    last, _ = await _stored(context.coordination) or (None, None)
    stored = await context.admin.dynamic_configuration()
    answers = await _ask_all(context.admin, context.endpoints)
    before = {broker: settings for broker, settings in answers.items() if isinstance(settings, dict)}
    known = _in_force(last)
    values = _wanted(known, _excluded(stored, before), before, split=split, namespaces=namespaces)
    would = f"would leave {', '.join(namespaces)} to Bundlekeel" if namespaces else "would be set"
    rows = tuple(
        replace(_row(broker, answer | values, {}), detail=would)
        if isinstance(answer, dict)
        else _row(broker, answer, values)
        for broker, answer in answers.items()
    )
    warnings = tuple(_warnings(rows, _scope(known, namespaces), last, stored))
    return TakeoverResult(complete=False, brokers=rows, overrides={}, warnings=warnings, splits_by=_who_splits(rows))


def _excluded(stored: Mapping[str, str], before: Mapping[str, Mapping[str, str]]) -> frozenset[str]:
    """The namespaces that the brokers' own shedding leaves alone already."""
    return name_set(stored.get(EXCLUDED, "")).union(*(name_set(item.get(EXCLUDED, "")) for item in before.values()))


def _wanted(
    known: TakeoverRecord | None,
    there: frozenset[str],
    before: Mapping[str, Mapping[str, str]],
    *,
    split: bool,
    namespaces: Sequence[str],
) -> dict[str, str]:
    """The overrides a takeover sets. `there`: what is excluded already. Conflict when it would make a partial takeover
    of a whole one, or cannot make one."""
    values = {SPLITTING: "false"} if split else {}
    if not namespaces:
        return {SHEDDING: "false", **values}
    if known is not None and not known.namespaces:
        raise Conflict(
            "the whole cluster is taken over already; `bundlekeel handback` first",
            difference=[f"by {known.by}: {known.reason}"],
        )
    old = sorted(broker for broker, settings in before.items() if EXCLUDED not in settings)
    if old:
        text = f"{', '.join(old)} do not know {EXCLUDED} (Pulsar 4.2 and later): take the whole cluster over instead"
        raise Conflict(text, difference=old)
    # What was excluded before for another reason stays excluded: it is not in our record, so we leave it alone too.
    return {EXCLUDED: ",".join(sorted(there.union(namespaces))), **values}


def _scope(known: TakeoverRecord | None, namespaces: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted({*(known.namespaces if known is not None else ()), *namespaces})) if namespaces else ()


async def handback(
    context: TakeoverContext,
    *,
    reason: str = "",
    by: str = "",
    deadman: bool = False,
    look_again: LookAgain = no_look,
) -> TakeoverResult | None:
    """Restore what the record says, verify each broker, close the record with who did it and why. None when there is no
    takeover to undo. Two at once do the same: the one that closes the record second finds it closed. `look_again`:
    awaited right before each broker is asked to write; what it raises ends it there."""
    found = await read_record(context.coordination)
    if found is None:
        return None
    record, version = found
    warnings, failed, overrides = [], [], dict(record.overrides)
    for key in record.overrides:
        try:
            if key == EXCLUDED:
                overrides[key] = _without_ours(record, (await context.admin.dynamic_configuration()).get(key, ""))
            await _put(context, key, overrides[key], look_again)
        except AdminApiError as error:
            failed.append(key)
            warnings.append(f"{key} could not be restored: {error}")
    record = replace(record, overrides=overrides)
    wanted = {broker: _restored(record, endpoint) for broker, endpoint in context.endpoints.items()}
    rows = tuple(_known(row, wanted[row.broker_id], failed) for row in await _verify(context, wanted))
    complete = all(row.verified for row in rows) and await _overrides_match(context, record, warnings)
    if complete:
        ended = TakeoverEnd(by=by, reason=reason, wall_ms=context.clock.wall_ms(), deadman=deadman)
        complete = await _close(context, replace(record, active=False, ended=ended), version, warnings)
    return TakeoverResult(
        complete=complete,
        brokers=rows,
        overrides=record.overrides,
        warnings=tuple(warnings),
        splits_by=_who_splits(rows),
    )


async def _put_all(context: TakeoverContext, values: Mapping[str, str | None], stored: Mapping[str, str]) -> list[str]:
    """Set those of a takeover that differ from what is `stored`, in this order; returns a warning for each failure."""
    warnings = []
    for key, value in values.items():
        if stored.get(key) == value or (value is not None and not _differs(stored, key, value)):
            continue
        try:
            await _put(context, key, value)
        except AdminApiError as error:
            # Perhaps it took effect: the brokers are read next, and they decide.
            warnings.append(f"{key} could not be set: {error}")
    return warnings


async def _put(context: TakeoverContext, key: str, value: str | None, look_again: LookAgain = no_look) -> None:
    """Set a dynamic override; None: delete it. AdminApiError."""
    if value is None:
        await context.commands.delete_dynamic(key, permit=by_person, look_again=look_again)
    else:
        await context.commands.set_dynamic(key, value, permit=by_person, look_again=look_again)


def _without_ours(record: TakeoverRecord, stored: str) -> str | None:
    """What to restore of the exclusions: what was there before, and what others have added since."""
    before = record.overrides[EXCLUDED]
    of_files = frozenset[str]().union(*(name_set(values.get(EXCLUDED, "")) for values in record.runtime.values()))
    there = of_files if before is None else name_set(before)
    added = name_set(stored) - there - of_files - frozenset(record.excluded_by_us)
    # An override takes the place of a file's value, so it has to hold that too.
    return ",".join(sorted(there | added)) if added else before


async def _close(context: TakeoverContext, closed: TakeoverRecord, version: int, warnings: list[str]) -> bool:
    try:
        await context.coordination.write_shared(TAKEOVER, closed.encode(), version=version)
    except StaleWrite:
        if await read_record(context.coordination) is None:
            return True  # somebody else has just done the same
        warnings.append("somebody took over again at the same moment; look at `bundlekeel status`")
        return False
    return True


async def nobody_balances(coordination: Coordination) -> str:
    """Why nothing balances what is taken over; empty: nothing is known to prevent it. That brokers shed is not told:
    before a takeover they do. Never raises."""
    try:
        leader, chunks = await coordination.leader(), await coordination.read_tree(STATE)
        code = str(decode_state(chunks, what=STATE).report.get("obstacle") or "") if chunks else ""
    except StoreError:
        return ""
    if leader is None:
        return NO_LEADER
    hindered = code in LASTING and code != Code.BROKERS_SHED_THEMSELVES
    return f"{leader.id} leads, but carries nothing out ({code}: {explain(code)})" if hindered else ""


async def unknown_namespaces(metadata: Metadata, namespaces: Sequence[str]) -> list[str]:
    """A warning for each of these that does not exist. None is refused: it may be created later, but a misspelt one
    would never be balanced. Never raises."""
    try:
        known = await metadata.namespaces() if namespaces else []
    except (StoreError, CodecError):
        return []
    return [
        f"there is no namespace {name} now{suggest(name, known)}" for name in namespaces if known and name not in known
    ]


async def last_takeover(coordination: Coordination) -> tuple[bool, tuple[str, ...]]:
    """How the last takeover was asked for, in force or ended: whether it turned the brokers' splits off, and its
    namespaces. Conflict when there was none; CodecError."""
    last, _ = await _stored(coordination) or (None, None)
    if last is None or not last.by:
        raise Conflict("there was no takeover to repeat: omit --again")
    return SPLITTING in last.overrides, last.namespaces


async def read_record(coordination: Coordination) -> tuple[TakeoverRecord, int] | None:
    """The takeover in force with its version, or None. CodecError when the document cannot be read: it must not be
    overwritten, because it alone knows what was there before."""
    found = await _stored(coordination)
    return found if found is not None and found[0].active else None


async def _stored(coordination: Coordination) -> tuple[TakeoverRecord, int] | None:
    """The same of a takeover that is in force or has ended."""
    document = await coordination.read(TAKEOVER)
    return (decode_takeover(document.data), document.version) if document is not None else None


def _in_force(last: TakeoverRecord | None) -> TakeoverRecord | None:
    return last if last is not None and last.active else None


def _record(
    context: TakeoverContext,
    known: TakeoverRecord | None,
    keys: tuple[str, ...],
    stored: dict[str, str],
    before: dict[str, dict[str, str]],
) -> TakeoverRecord:
    """What was there, absence included, before anything changes; keys known already keep their value."""
    first = known.overrides if known is not None else {}
    runtime: dict[str, Mapping[str, str]] = {
        broker: {
            **{key: values.get(key, "") for key in (SHEDDING, SPLITTING, *keys)},
            _STARTED: str(context.endpoints[broker].start_timestamp),
        }
        for broker, values in before.items()
    }
    overrides = {**{key: stored.get(key) for key in keys}, **first}
    merged = _merged(known, runtime)
    if known is not None:
        return replace(known, overrides=overrides, runtime=merged)
    return TakeoverRecord(by="", reason="", wall_ms=0, overrides=overrides, runtime=merged)


def _merged(known: TakeoverRecord | None, fresh: dict[str, Mapping[str, str]]) -> dict[str, Mapping[str, str]]:
    """What each broker ran with before we changed it: for keys taken over already only the first record knows."""
    if known is None:
        return fresh
    merged = dict(known.runtime)
    for broker, values in fresh.items():
        was = known.runtime.get(broker, {})
        same_run = was.get(_STARTED) == values[_STARTED]
        kept = {key: value for key, value in was.items() if key in known.overrides and same_run}
        merged[broker] = {key: value for key, value in values.items() if key not in known.overrides} | kept
    return merged


def _restored(record: TakeoverRecord, endpoint: BrokerEndpoint) -> dict[str, str | None]:
    """What this broker must run with after a handback. Without an override it is what its own file says: known from
    the record, unless the broker joined or restarted since; None stands for "anything" then."""
    was = record.runtime.get(endpoint.broker_id, {})
    if was.get(_STARTED) != str(endpoint.start_timestamp):
        was = {}
    return {key: value if value is not None else was.get(key) for key, value in record.overrides.items()}


def _known(row: BrokerRow, wanted: Mapping[str, str | None], failed: Sequence[str]) -> BrokerRow:
    """What could not be restored, and has nothing to be compared with, may be as the takeover left it: not verified."""
    unknown = [f"{key} could not be restored" for key in failed if wanted[key] is None]
    return replace(row, verified=False, detail="; ".join(unknown)) if row.verified and unknown else row


async def _overrides_match(context: TakeoverContext, record: TakeoverRecord, warnings: list[str]) -> bool:
    try:
        stored = await context.admin.dynamic_configuration()
    except AdminApiError as error:
        warnings.append(f"dynamic configuration could not be read: {error}")
        return False
    return all(stored.get(key) == value for key, value in record.overrides.items())


async def _runtime(context: TakeoverContext) -> dict[str, dict[str, str]]:
    """Every broker's settings. Raises the first failure: what is not known cannot be restored."""
    answers = await _ask_all(context.admin, context.endpoints)
    settings = {}
    for broker, values in answers.items():
        if not isinstance(values, dict):
            raise values
        settings[broker] = values
    return settings


async def _verify(context: TakeoverContext, wanted: Mapping[str, Mapping[str, str | None]]) -> tuple[BrokerRow, ...]:
    """Read each broker until it runs with what is wanted (None: anything) or time is up."""
    deadline = context.clock.boot() + context.verify_seconds
    rows: dict[str, BrokerRow] = {}
    while True:
        pending = {b: e for b, e in context.endpoints.items() if b not in rows or not rows[b].verified}
        for broker, answer in (await _ask_all(context.admin, pending)).items():
            rows[broker] = _row(broker, answer, wanted[broker])
        verified = sum(row.verified for row in rows.values())
        context.tell(f"{verified} of {numbered(len(context.endpoints), 'broker')} verified")
        if all(row.verified for row in rows.values()) or context.clock.boot() >= deadline:
            return tuple(rows[broker] for broker in sorted(rows))
        await context.clock.sleep(_POLL_SECONDS)


def _row(broker: str, answer: dict[str, str] | AdminApiError, wanted: Mapping[str, str | None]) -> BrokerRow:
    if not isinstance(answer, dict):
        return BrokerRow(broker_id=broker, verified=False, detail=str(answer))
    values = {key: answer.get(key, "") for key in (ENABLED, SHEDDING, SPLITTING, PLACEMENT, LOAD_MANAGER, EXCLUDED)}
    wrong = [
        f"{key} is {answer.get(key)}, not {value}" for key, value in wanted.items() if _differs(answer, key, value)
    ]
    return BrokerRow(broker_id=broker, verified=not wrong, values=values, detail="; ".join(wrong))


def _differs(values: Mapping[str, str], key: str, wanted: str | None) -> bool:
    if wanted is None:
        return False
    if key == EXCLUDED and key in values:
        return name_set(values[key]) != name_set(wanted)
    return values.get(key) != wanted


async def _ask_all(
    admin: BrokerAdmin, endpoints: Mapping[str, BrokerEndpoint]
) -> dict[str, dict[str, str] | AdminApiError]:
    async def ask(broker: str) -> dict[str, str] | AdminApiError:
        try:
            return await admin.runtime_configuration(broker)
        except AdminApiError as error:
            return error

    brokers = sorted(endpoints)
    answers = await asyncio.gather(*(ask(broker) for broker in brokers))
    return dict(zip(brokers, answers, strict=True))


def _warnings(
    rows: tuple[BrokerRow, ...], namespaces: Sequence[str], last: TakeoverRecord | None, stored: Mapping[str, str]
) -> list[str]:
    """What a takeover of these (none: the whole cluster) leaves to be known. `rows`: as the brokers run after it.
    `last`: the takeover before it. `stored`: the dynamic configuration before it."""
    warnings = [*_placement_warnings(rows), *_report_warnings(rows), *_partial_takeover_warnings(namespaces)]
    if last is not None and last.namespaces and not namespaces:
        only = ", ".join(last.namespaces)
        warnings.append(f"the takeover before was of {only} only; this one is of the whole cluster")
    if _in_force(last) is None and SHEDDING in stored and not _is_true(stored, SHEDDING):
        warnings.append(
            f"{SHEDDING} was false in the dynamic configuration before this takeover. A handback sets it to false "
            "again, and then nothing balances. If an earlier takeover left it there, and its record is lost: "
            "`bundlekeel handback`, then "
            f"`pulsar-admin brokers delete-dynamic-config --config {SHEDDING}`, then take over again"
        )
    return warnings


def _placement_warnings(rows: tuple[BrokerRow, ...]) -> list[str]:
    random = [
        row.broker_id
        for row in rows
        # The extensible load manager has one placement and ignores the setting.
        if row.values.get(PLACEMENT, "").endswith("AvgShedder") and "Extensible" not in row.values[LOAD_MANAGER]
    ]
    if not random:
        return []
    return [
        f"{PLACEMENT} is AvgShedder on {', '.join(random)}: without its own shedding it places new bundles at random; "
        "choose another placement"
    ]


def _report_warnings(rows: tuple[BrokerRow, ...]) -> list[str]:
    frozen = [row.broker_id for row in rows if row.values and not _is_true(row.values, ENABLED)]
    if not frozen:
        return []
    return [f"{ENABLED} is false on {', '.join(frozen)}: their reports never change, so nothing can be balanced"]


def _partial_takeover_warnings(namespaces: Sequence[str]) -> list[str]:
    if not namespaces:
        return []
    names = ", ".join(namespaces)
    return [
        f"the takeover is of {names} only: the brokers go on shedding all other bundles, and they place new bundles of "
        f"{names} in turn (RoundRobinBrokerSelector) instead of by load"
    ]


def _who_splits(rows: tuple[BrokerRow, ...]) -> str:
    known = [row for row in rows if row.values]
    on = [row for row in known if _is_true(row.values, SPLITTING)]
    if not known:
        return "unknown"
    return "brokers" if len(on) == len(known) else "none" if not on else "some brokers"


def _is_true(values: Mapping[str, str], key: str) -> bool:
    """Settings are on by default in Pulsar, and anything but `true` is off (`Boolean.parseBoolean`)."""
    return values.get(key, "true").strip().lower() == "true"
