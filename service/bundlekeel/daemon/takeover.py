"""Turning the brokers' own shedding off, and back on exactly as it was (pulsar.md 7.3).

Dynamic overrides are cluster-wide and survive restarts, so what was there before is written into the shared document
`takeover` before anything is changed; that record stays until every broker is seen to run as before. A person asks
for these calls, no leader: the admin given here carries a permit of its own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from bundlekeel.core.codes import Code
from bundlekeel.core.errors import AdminApiError, CodecError
from bundlekeel.ports import BrokerAdmin, BrokerEndpoint, Clock, Coordination

TAKEOVER: Final = "takeover"
ENABLED: Final = "loadBalancerEnabled"
SHEDDING: Final = "loadBalancerSheddingEnabled"
SPLITTING: Final = "loadBalancerAutoBundleSplitEnabled"
PLACEMENT: Final = "loadBalancerLoadPlacementStrategy"
LOAD_MANAGER: Final = "loadManagerClassName"
VERIFY_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.25
_STARTED: Final = "startTimestamp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The shared document. `overrides`: what each key's dynamic override was, None for none. `runtime`: what each
    broker ran with then, by broker id and key, with its start. `active` is False once handed back: the port for what
    any replica may write has no delete.
    """

    by: str
    reason: str
    wall_ms: int
    overrides: Mapping[str, str | None]
    runtime: Mapping[str, Mapping[str, str]]
    active: bool = True

    def encode(self) -> bytes:
        """The document's JSON."""
        record = {
            "by": self.by,
            "reason": self.reason,
            "wall_ms": self.wall_ms,
            "overrides": dict(self.overrides),
            "runtime": {broker: dict(values) for broker, values in self.runtime.items()},
            "active": self.active,
        }
        return json.dumps(record, ensure_ascii=False, sort_keys=True).encode()


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
class Desk:
    """What both ways need: an admin whose permit is a person's, the shared state, the brokers registered now."""

    admin: BrokerAdmin
    coordination: Coordination
    endpoints: Mapping[str, BrokerEndpoint]
    clock: Clock
    verify_seconds: float = VERIFY_SECONDS


async def takeover(desk: Desk, *, split: bool, reason: str, by: str) -> TakeoverResult:
    """Turn the brokers' shedding off, with `split` their automatic splits too, and verify each broker.

    A second takeover keeps what the first one recorded. StaleWrite when another one runs at the same moment;
    AdminApiError when the brokers' settings cannot be read: nothing is changed then.
    """
    keys = (SHEDDING, SPLITTING) if split else (SHEDDING,)
    stored = await desk.admin.dynamic_configuration()
    before = await _runtime(desk)
    record = await _remember(desk, keys, stored, before, reason=reason, by=by)
    warnings = []
    for key in keys:
        if stored.get(key) == "false":
            continue
        try:
            await desk.admin.set_dynamic(key, "false")
        except AdminApiError as error:
            # Perhaps it took effect: the brokers are read next, and they decide.
            warnings.append(f"{key} could not be set: {error}")
    rows = await _verify(desk, {broker: dict.fromkeys(keys, "false") for broker in desk.endpoints})
    warnings += _placement_warnings(rows) + _report_warnings(rows)
    return TakeoverResult(
        complete=all(row.verified for row in rows),
        brokers=rows,
        overrides=record.overrides,
        warnings=tuple(warnings),
        splits_by=_who_splits(rows),
    )


async def handback(desk: Desk) -> TakeoverResult | None:
    """Restore what the record says, verify each broker, close the record. None when there is no takeover to undo."""
    found = await read_record(desk.coordination)
    if found is None:
        return None
    record, version = found
    warnings = []
    for key, value in record.overrides.items():
        try:
            if value is None:
                await desk.admin.delete_dynamic(key)
            else:
                await desk.admin.set_dynamic(key, value)
        except AdminApiError as error:
            warnings.append(f"{key} could not be restored: {error}")
    rows = await _verify(desk, {broker: _restored(record, endpoint) for broker, endpoint in desk.endpoints.items()})
    complete = all(row.verified for row in rows) and await _overrides_match(desk, record, warnings)
    if complete:
        closed = replace(record, active=False)
        await desk.coordination.write_shared(TAKEOVER, closed.encode(), version=version)
    return TakeoverResult(
        complete=complete,
        brokers=rows,
        overrides=record.overrides,
        warnings=tuple(warnings),
        splits_by=_who_splits(rows),
    )


async def read_record(coordination: Coordination) -> tuple[Record, int] | None:
    """The takeover in force with its version, or None. CodecError when the document cannot be read: it must not be
    overwritten, because it alone knows what was there before."""
    document = await coordination.read(TAKEOVER)
    if document is None:
        return None
    record = _decode(document.data)
    return (record, document.version) if record.active else None


async def sheds_itself(admin: BrokerAdmin, endpoints: Mapping[str, BrokerEndpoint]) -> dict[str, bool]:
    """For each broker whether its own shedding is on. A broker that cannot be asked counts as shedding: acting needs
    proof that nobody else sheds."""
    answers = await _ask_all(admin, endpoints)
    return {
        broker: not isinstance(values, dict) or (_is_true(values, ENABLED) and _is_true(values, SHEDDING))
        for broker, values in answers.items()
    }


async def _remember(
    desk: Desk,
    keys: tuple[str, ...],
    stored: dict[str, str],
    before: dict[str, dict[str, str]],
    *,
    reason: str,
    by: str,
) -> Record:
    """Write down what was there, absence included, before anything changes; keys known already keep their value."""
    document = await desk.coordination.read(TAKEOVER)
    known = _decode(document.data) if document is not None else None
    if known is not None and not known.active:
        known = None
    first = known.overrides if known is not None else {}
    runtime: dict[str, Mapping[str, str]] = {
        broker: {
            SHEDDING: values.get(SHEDDING, ""),
            SPLITTING: values.get(SPLITTING, ""),
            _STARTED: str(desk.endpoints[broker].start_timestamp),
        }
        for broker, values in before.items()
    }
    record = Record(
        by=known.by if known is not None else by,
        reason=known.reason if known is not None else reason,
        wall_ms=known.wall_ms if known is not None else desk.clock.wall_ms(),
        overrides={**{key: stored.get(key) for key in keys}, **first},
        runtime=_merged(known, runtime),
    )
    if record != known:
        version = document.version if document is not None else None
        await desk.coordination.write_shared(TAKEOVER, record.encode(), version=version)
    return record


def _merged(known: Record | None, fresh: dict[str, Mapping[str, str]]) -> dict[str, Mapping[str, str]]:
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


def _restored(record: Record, endpoint: BrokerEndpoint) -> dict[str, str | None]:
    """What this broker must run with after a handback. Without an override it is what its own file says: known from
    the record, unless the broker joined or restarted since; None stands for "anything" then."""
    was = record.runtime.get(endpoint.broker_id, {})
    if was.get(_STARTED) != str(endpoint.start_timestamp):
        was = {}
    return {key: value if value is not None else was.get(key) for key, value in record.overrides.items()}


async def _overrides_match(desk: Desk, record: Record, warnings: list[str]) -> bool:
    try:
        stored = await desk.admin.dynamic_configuration()
    except AdminApiError as error:
        warnings.append(f"dynamic configuration could not be read: {error}")
        return False
    return all(stored.get(key) == value for key, value in record.overrides.items())


async def _runtime(desk: Desk) -> dict[str, dict[str, str]]:
    """Every broker's settings. Raises the first failure: what is not known cannot be restored."""
    answers = await _ask_all(desk.admin, desk.endpoints)
    settings = {}
    for broker, values in answers.items():
        if not isinstance(values, dict):
            raise values
        settings[broker] = values
    return settings


async def _verify(desk: Desk, wanted: Mapping[str, Mapping[str, str | None]]) -> tuple[BrokerRow, ...]:
    """Read each broker until it runs with what is wanted (None: anything) or time is up."""
    deadline = desk.clock.boot() + desk.verify_seconds
    rows: dict[str, BrokerRow] = {}
    while True:
        pending = {b: e for b, e in desk.endpoints.items() if b not in rows or not rows[b].verified}
        for broker, answer in (await _ask_all(desk.admin, pending)).items():
            rows[broker] = _row(broker, answer, wanted[broker])
        if all(row.verified for row in rows.values()) or desk.clock.boot() >= deadline:
            return tuple(rows[broker] for broker in sorted(rows))
        await desk.clock.sleep(_POLL_SECONDS)


def _row(broker: str, answer: dict[str, str] | AdminApiError, wanted: Mapping[str, str | None]) -> BrokerRow:
    if not isinstance(answer, dict):
        return BrokerRow(broker_id=broker, verified=False, detail=str(answer))
    values = {key: answer.get(key, "") for key in (ENABLED, SHEDDING, SPLITTING, PLACEMENT, LOAD_MANAGER)}
    wrong = [
        f"{key} is {answer.get(key)}, not {value}" for key, value in wanted.items() if _differs(answer, key, value)
    ]
    return BrokerRow(broker_id=broker, verified=not wrong, values=values, detail="; ".join(wrong))


def _differs(values: Mapping[str, str], key: str, wanted: str | None) -> bool:
    return wanted is not None and values.get(key) != wanted


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


def _who_splits(rows: tuple[BrokerRow, ...]) -> str:
    known = [row for row in rows if row.values]
    on = [row for row in known if _is_true(row.values, SPLITTING)]
    if not known:
        return "unknown"
    return "brokers" if len(on) == len(known) else "nobody" if not on else "some brokers"


def _is_true(values: Mapping[str, str], key: str) -> bool:
    """Settings are on by default in Pulsar, and anything but `true` is off (`Boolean.parseBoolean`)."""
    return values.get(key, "true").strip().lower() == "true"


def _decode(data: bytes) -> Record:
    try:
        record: dict[str, Any] = json.loads(data)
        return Record(
            by=str(record["by"]),
            reason=str(record["reason"]),
            wall_ms=int(record["wall_ms"]),
            overrides={str(k): None if v is None else str(v) for k, v in record["overrides"].items()},
            runtime={str(b): {str(k): str(v) for k, v in values.items()} for b, values in record["runtime"].items()},
            active=bool(record["active"]),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CodecError(f"the document {TAKEOVER} cannot be read: {error}", code=Code.WRONG_TYPE) from error
