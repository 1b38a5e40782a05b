"""Turns the brokers' own shedding off (takeover), and restores the previous settings exactly (handback).

Dynamic settings of brokers apply to the whole cluster and survive restarts. So the previous values are written to
the shared document `takeover` before anything is changed. This record stays active until every broker is verified
to have its previous settings. An operator calls these functions, not the leader, so they need no leader's lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from bundlekeel.leader.state.documents import decode_state
from bundlekeel.leader.state.responses import EndedView
from bundlekeel.leader.state.shared_state import STATE
from bundlekeel.leader.state.takeover_record import (
    EXCLUDED,
    SPLITTING,
    TAKEOVER,
    TakeoverRecord,
    decode_takeover,
    name_set,
)
from bundlekeel.model.codes import LASTING, Code, explain
from bundlekeel.model.errors import AdminApiError, CodecError, Conflict, StaleWrite, StoreError
from bundlekeel.model.text_format import numbered, suggest
from bundlekeel.ports import BrokerAdmin, BrokerEndpoint, Clock, Coordination, Metadata
from bundlekeel.ports.commands import BrokerCommands, LookAgain, by_person, no_look

ENABLED: Final = "loadBalancerEnabled"
SHEDDING: Final = "loadBalancerSheddingEnabled"
PLACEMENT: Final = "loadBalancerLoadPlacementStrategy"
LOAD_MANAGER: Final = "loadManagerClassName"
# In 4.2 and 5.0 the setting is not dynamic, so a takeover cannot change it.
SET_PLACEMENT: Final = (
    f"set {PLACEMENT}=org.apache.pulsar.broker.loadbalance.impl.LeastResourceUsageWithWeight in broker.conf and restart"
)
VERIFY_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.25
_STARTED: Final = "startTimestamp"
NO_LEADER: Final = "no sidecar leads"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRow:
    """One broker after a takeover or handback: its settings, and whether they are as requested (`verified`)."""

    broker_id: str
    verified: bool
    values: Mapping[str, str] = field(default_factory=dict)
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeoverResult:
    """Result of a takeover of the brokers' load shedding, or of its end (handback).

    If the result is not `complete`, the stored record stays active, rows and warnings list what is missing, and the
    operator runs the command again. `overrides`: the dynamic settings before the first takeover; None: not set.
    `splits_by`: whether brokers split bundles themselves."""

    complete: bool
    brokers: tuple[BrokerRow, ...]
    overrides: Mapping[str, str | None]
    warnings: tuple[str, ...] = ()
    splits_by: str = ""

    @property
    def unverified(self) -> tuple[str, ...]:
        """Brokers whose settings are not, or not yet, as requested."""
        return tuple(row.broker_id for row in self.brokers if not row.verified)


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeoverContext:
    """Dependencies of takeover and handback: the registered brokers, their API, the shared state.

    `tell`: called with texts about the progress of the verification."""

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
    """Turn the brokers' shedding off, with `split` also their automatic splits, and verify each broker.

    With `namespaces` (tenant/namespace) it is a partial takeover: the brokers continue to shed, but exclude those
    namespaces. A later takeover can add namespaces, or take over the whole cluster, which removes these exclusions. The
    stored record keeps the values from before the first takeover, and operator, reason and time of the latest.

    Raises StoreMigrated if a migration of the metadata store has started, StaleWrite if another takeover runs at the
    same time, and Conflict if brokers do not support excluded namespaces (before 4.2). Raises AdminApiError if the
    brokers' settings cannot be read; nothing is changed then."""
    (await context.metadata.migration()).demand_writable()
    # Read the record first, so that the write below is refused if a handback ends in between.
    last, version = await _stored(context.coordination) or (None, None)
    stored = await context.admin.dynamic_configuration()
    before = await _runtime(context)
    active = _in_force(last)
    excluded = _excluded(stored, before)
    values = _target_overrides(active, excluded, before, split=split, namespaces=namespaces)
    recorded = _record(context, active, tuple(values), stored, before)
    ours = {*recorded.excluded_by_us, *(set(namespaces) - excluded)}
    record = replace(
        recorded,
        by=by,
        reason=reason,
        wall_ms=context.clock.wall_ms(),
        namespaces=_scope(active, namespaces),
        excluded_by_us=tuple(sorted(ours)),
    )
    await context.coordination.write_shared(TAKEOVER, record.encode(), version=version)
    # After a full takeover remove our exclusions: no broker sheds any more, and brokers place new bundles of excluded
    # namespaces in turn instead of by load. Do it last, so that no broker sheds these namespaces in between.
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
    """Return the result that `takeover` would have, with its warnings, without any change.

    If a broker cannot be queried, `takeover` would fail, but this function only shows the broker as not verified. For
    all other reasons it raises Conflict and AdminApiError as `takeover` does."""
    last, _ = await _stored(context.coordination) or (None, None)
    stored = await context.admin.dynamic_configuration()
    answers = await _ask_all(context.admin, context.endpoints)
    before = {broker: settings for broker, settings in answers.items() if isinstance(settings, dict)}
    active = _in_force(last)
    values = _target_overrides(active, _excluded(stored, before), before, split=split, namespaces=namespaces)
    would = f"would leave {', '.join(namespaces)} to Bundlekeel" if namespaces else "would be set"
    rows = tuple(
        replace(_row(broker, answer | values, {}), detail=would)
        if isinstance(answer, dict)
        else _row(broker, answer, values)
        for broker, answer in answers.items()
    )
    warnings = tuple(_warnings(rows, _scope(active, namespaces), last, stored))
    return TakeoverResult(complete=False, brokers=rows, overrides={}, warnings=warnings, splits_by=_who_splits(rows))


def _excluded(stored: Mapping[str, str], before: Mapping[str, Mapping[str, str]]) -> frozenset[str]:
    return name_set(stored.get(EXCLUDED, "")).union(*(name_set(item.get(EXCLUDED, "")) for item in before.values()))


def _target_overrides(
    active: TakeoverRecord | None,
    excluded: frozenset[str],
    before: Mapping[str, Mapping[str, str]],
    *,
    split: bool,
    namespaces: Sequence[str],
) -> dict[str, str]:
    """Return the dynamic settings that a takeover sets. `excluded`: namespaces that brokers already exclude.

    Raises Conflict if a partial takeover is not possible, or if the whole cluster is already taken over.
    """
    values = {SPLITTING: "false"} if split else {}
    if not namespaces:
        return {SHEDDING: "false", **values}
    if active is not None and not active.namespaces:
        raise Conflict(
            "the whole cluster is taken over already; `bundlekeel handback` first",
            difference=[f"by {active.by}: {active.reason}"],
        )
    old = sorted(broker for broker, settings in before.items() if EXCLUDED not in settings)
    if old:
        text = f"{', '.join(old)} do not know {EXCLUDED} (Pulsar 4.2 and later): take the whole cluster over instead"
        raise Conflict(text, difference=old)
    # Keep the namespaces that are already excluded for another reason. They are not part of the takeover, so
    # Bundlekeel does not balance them either.
    return {EXCLUDED: ",".join(sorted(excluded.union(namespaces))), **values}


def _scope(active: TakeoverRecord | None, namespaces: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted({*(active.namespaces if active is not None else ()), *namespaces})) if namespaces else ()


async def handback(
    context: TakeoverContext,
    *,
    reason: str = "",
    by: str = "",
    deadman: bool = False,
    look_again: LookAgain = no_look,
) -> TakeoverResult | None:
    """Restore the settings from before the takeover, verify each broker, and close the takeover's record.

    Returns None if there is no takeover to undo. Two calls at the same time do no harm. `deadman`: the failsafe job
    calls. `look_again`: awaited right before each write to a broker; an error that it raises ends the handback. Raises
    StoreMigrated while a migration of the metadata store is in progress."""
    await _demand_no_migration(context.metadata)
    stored = await read_record(context.coordination)
    if stored is None:
        return None
    record, version = stored
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
    targets = {broker: _restored(record, endpoint) for broker, endpoint in context.endpoints.items()}
    rows = tuple(_mark_unrestored(row, targets[row.broker_id], failed) for row in await _verify(context, targets))
    complete = all(row.verified for row in rows) and await _overrides_match(context, record, warnings)
    if complete:
        ended = EndedView(by=by, reason=reason, wall_ms=context.clock.wall_ms(), deadman=deadman)
        complete = await _close(context, replace(record, active=False, ended=ended), version, warnings)
    return TakeoverResult(
        complete=complete,
        brokers=rows,
        overrides=record.overrides,
        warnings=tuple(warnings),
        splits_by=_who_splits(rows),
    )


async def _put_all(context: TakeoverContext, values: Mapping[str, str | None], stored: Mapping[str, str]) -> list[str]:
    """Set dynamic settings that differ from `stored`, in the order of `values`. Returns a warning for each failure."""
    warnings = []
    for key, value in values.items():
        if stored.get(key) == value or (value is not None and not _differs(stored, key, value)):
            continue
        try:
            await _put(context, key, value)
        except AdminApiError as error:
            # Only warn, because a failed call can have taken effect: the verification reads the brokers afterwards.
            warnings.append(f"{key} could not be set: {error}")
    return warnings


async def _put(context: TakeoverContext, key: str, value: str | None, look_again: LookAgain = no_look) -> None:
    async def look() -> None:
        await look_again()
        await _demand_no_migration(context.metadata)

    if value is None:
        await context.commands.delete_dynamic(key, permit=by_person, look_again=look)
    else:
        await context.commands.set_dynamic(key, value, permit=by_person, look_again=look)


async def _demand_no_migration(metadata: Metadata) -> None:
    """Raise StoreMigrated while the brokers move their metadata to another store.

    Afterwards the brokers write requested settings to the new store. An unreadable state does not prevent a handback:
    no sidecar completes a cycle then.
    """
    try:
        migration = await metadata.migration()
    except StoreError:
        return
    if migration.code is Code.STORE_MIGRATING:
        migration.demand_writable()


def _without_ours(record: TakeoverRecord, stored: str) -> str | None:
    """Return the namespaces to exclude after a handback: the previous ones, and those that operators added since."""
    before = record.overrides[EXCLUDED]
    of_files = frozenset[str]().union(*(name_set(values.get(EXCLUDED, "")) for values in record.runtime.values()))
    previous = of_files if before is None else name_set(before)
    added = name_set(stored) - previous - of_files - frozenset(record.excluded_by_us)
    # A dynamic setting replaces the value of the broker's file, so it must contain that value, too.
    return ",".join(sorted(previous | added)) if added else before


async def _close(context: TakeoverContext, closed: TakeoverRecord, version: int, warnings: list[str]) -> bool:
    try:
        await context.coordination.write_shared(TAKEOVER, closed.encode(), version=version)
    except StaleWrite:
        if await read_record(context.coordination) is None:
            return True  # another handback has just closed it
        warnings.append("another operator took over again at the same time; check `bundlekeel status`")
        return False
    return True


async def why_nothing_balances(coordination: Coordination) -> str:
    """Return why no sidecar would balance the bundles after a takeover; "": no obstacle is known. Never raises.

    Ignores the brokers' own shedding, because it is still on before a takeover."""
    try:
        leader, chunks = await coordination.leader(), await coordination.read_tree(STATE)
        code = str(decode_state(chunks, what=STATE).report.get("obstacle") or "") if chunks else ""
    except StoreError:
        return ""
    if leader is None:
        return NO_LEADER
    hindered = code in LASTING and code != Code.BROKERS_SHED_THEMSELVES
    return f"{leader.id} is the leader, but executes no moves ({code}: {explain(code)})" if hindered else ""


async def unknown_namespaces(metadata: Metadata, namespaces: Sequence[str]) -> list[str]:
    """Return a warning for each namespace that does not exist. Never raises.

    A missing namespace is not an error, because it can be created later. But a misspelled one would never be balanced.
    """
    try:
        existent = await metadata.namespaces() if namespaces else []
    except (StoreError, CodecError):
        return []
    return [
        f"there is no namespace {name} now{suggest(name, existent)}"
        for name in namespaces
        if existent and name not in existent
    ]


async def last_takeover(coordination: Coordination) -> tuple[bool, tuple[str, ...]]:
    """Return whether the last takeover, active or ended, turned the brokers' splits off, and its namespaces.

    Raises Conflict if there was no takeover, and CodecError if its record cannot be read.
    """
    last, _ = await _stored(coordination) or (None, None)
    if last is None or not last.by:
        raise Conflict("there was no takeover to repeat: omit --again")
    return SPLITTING in last.overrides, last.namespaces


async def read_record(coordination: Coordination) -> tuple[TakeoverRecord, int] | None:
    """Return the record of the active takeover and the version of its document; None: there is no takeover.

    Raises CodecError if the document cannot be decoded. Then do not overwrite it: no other document contains the
    brokers' previous settings."""
    stored = await _stored(coordination)
    return stored if stored is not None and stored[0].active else None


async def _stored(coordination: Coordination) -> tuple[TakeoverRecord, int] | None:
    document = await coordination.read(TAKEOVER)
    return (decode_takeover(document.data), document.version) if document is not None else None


def _in_force(last: TakeoverRecord | None) -> TakeoverRecord | None:
    return last if last is not None and last.active else None


def _record(
    context: TakeoverContext,
    active: TakeoverRecord | None,
    keys: tuple[str, ...],
    stored: dict[str, str],
    before: dict[str, dict[str, str]],
) -> TakeoverRecord:
    """Return the takeover's record with the brokers' settings before any change; None stands for a missing value.

    Settings that the active takeover has already changed keep their recorded value."""
    first = active.overrides if active is not None else {}
    runtime: dict[str, Mapping[str, str]] = {
        broker: {
            **{key: values.get(key, "") for key in (SHEDDING, SPLITTING, *keys)},
            _STARTED: str(context.endpoints[broker].start_timestamp),
        }
        for broker, values in before.items()
    }
    overrides = {**{key: stored.get(key) for key in keys}, **first}
    merged = _merged(active, runtime)
    if active is not None:
        return replace(active, overrides=overrides, runtime=merged)
    return TakeoverRecord(by="", reason="", wall_ms=0, overrides=overrides, runtime=merged)


def _merged(active: TakeoverRecord | None, fresh: dict[str, Mapping[str, str]]) -> dict[str, Mapping[str, str]]:
    """Return the settings of each broker from before the takeover.

    Settings that the active takeover has already changed come from its record, all others from `fresh`."""
    if active is None:
        return fresh
    merged = dict(active.runtime)
    for broker, values in fresh.items():
        before = active.runtime.get(broker, {})
        same_run = before.get(_STARTED) == values[_STARTED]
        previous = {key: value for key, value in before.items() if key in active.overrides and same_run}
        merged[broker] = {key: value for key, value in values.items() if key not in active.overrides} | previous
    return merged


def _restored(record: TakeoverRecord, endpoint: BrokerEndpoint) -> dict[str, str | None]:
    """Return the settings that a broker must have after a handback; None: any value is right.

    A setting that was not set dynamically returns to the value in the broker's own file. The record does not contain
    that value if the broker joined or restarted after the takeover."""
    before = record.runtime.get(endpoint.broker_id, {})
    if before.get(_STARTED) != str(endpoint.start_timestamp):
        before = {}
    return {key: value if value is not None else before.get(key) for key, value in record.overrides.items()}


def _mark_unrestored(row: BrokerRow, target: Mapping[str, str | None], failed: Sequence[str]) -> BrokerRow:
    """Return the row as not verified if writing a setting failed and its previous value is unknown."""
    unknown = [f"{key} could not be restored" for key in failed if target[key] is None]
    return replace(row, verified=False, detail="; ".join(unknown)) if row.verified and unknown else row


async def _overrides_match(context: TakeoverContext, record: TakeoverRecord, warnings: list[str]) -> bool:
    try:
        stored = await context.admin.dynamic_configuration()
    except AdminApiError as error:
        warnings.append(f"dynamic configuration could not be read: {error}")
        return False
    return all(stored.get(key) == value for key, value in record.overrides.items())


async def _runtime(context: TakeoverContext) -> dict[str, dict[str, str]]:
    """Return every broker's settings. Raises the first error, because values that are unknown cannot be restored."""
    answers = await _ask_all(context.admin, context.endpoints)
    settings = {}
    for broker, values in answers.items():
        if not isinstance(values, dict):
            raise values
        settings[broker] = values
    return settings


async def _verify(context: TakeoverContext, targets: Mapping[str, Mapping[str, str | None]]) -> tuple[BrokerRow, ...]:
    """Read the brokers repeatedly until each has its target settings or the time is over (None: any value is right)."""
    deadline = context.clock.boot() + context.verify_seconds
    rows: dict[str, BrokerRow] = {}
    while True:
        pending = {b: e for b, e in context.endpoints.items() if b not in rows or not rows[b].verified}
        for broker, answer in (await _ask_all(context.admin, pending)).items():
            rows[broker] = _row(broker, answer, targets[broker])
        verified = sum(row.verified for row in rows.values())
        context.tell(f"{verified} of {numbered(len(context.endpoints), 'broker')} verified")
        if all(row.verified for row in rows.values()) or context.clock.boot() >= deadline:
            return tuple(rows[broker] for broker in sorted(rows))
        await context.clock.sleep(_POLL_SECONDS)


def _row(broker: str, answer: dict[str, str] | AdminApiError, target: Mapping[str, str | None]) -> BrokerRow:
    if not isinstance(answer, dict):
        return BrokerRow(broker_id=broker, verified=False, detail=str(answer))
    values = {key: answer.get(key, "") for key in (ENABLED, SHEDDING, SPLITTING, PLACEMENT, LOAD_MANAGER, EXCLUDED)}
    wrong = [
        f"{key} is {answer.get(key)}, not {value}" for key, value in target.items() if _differs(answer, key, value)
    ]
    return BrokerRow(broker_id=broker, verified=not wrong, values=values, detail="; ".join(wrong))


def _differs(values: Mapping[str, str], key: str, target: str | None) -> bool:
    if target is None:
        return False
    if key == EXCLUDED and key in values:
        return name_set(values[key]) != name_set(target)
    return values.get(key) != target


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
    """Return warnings for the operator after a takeover of `namespaces` (empty: of the whole cluster).

    `rows`: the brokers after the takeover. `last`: the previous takeover. `stored`: the dynamic settings before it."""
    warnings = [*_placement_warnings(rows), *_report_warnings(rows), *_partial_takeover_warnings(namespaces)]
    if last is not None and last.namespaces and not namespaces:
        only = ", ".join(last.namespaces)
        warnings.append(f"the previous takeover covered only {only}; this one covers the whole cluster")
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
        # Only for the modular load manager: the extensible one ignores the setting for the placement of bundles.
        if row.values.get(PLACEMENT, "").endswith("AvgShedder") and "Extensible" not in row.values[LOAD_MANAGER]
    ]
    if not random:
        return []
    return [
        f"{PLACEMENT} is AvgShedder (the default of Pulsar 5.0) on {', '.join(random)}: without its own shedding it "
        f"places new bundles at random; {SET_PLACEMENT} these brokers one by one"
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
        f"the takeover covers only {names}: the brokers continue to shed all other bundles, and they place "
        f"new bundles of {names} in turn (RoundRobinBrokerSelector) instead of by load"
    ]


def _who_splits(rows: tuple[BrokerRow, ...]) -> str:
    responding = [row for row in rows if row.values]
    on = [row for row in responding if _is_true(row.values, SPLITTING)]
    if not responding:
        return "unknown"
    return "brokers" if len(on) == len(responding) else "none" if not on else "some brokers"


def _is_true(values: Mapping[str, str], key: str) -> bool:
    """Return whether a setting is on: `true` as `Boolean.parseBoolean` reads it, or missing (Pulsar's default)."""
    return values.get(key, "true").strip().lower() == "true"
