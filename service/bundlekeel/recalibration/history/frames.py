"""Convert a plan's input to a frame (its form in the history) and back. Pure.

Plain values (numbers, strings, lists, maps) represent the frozen dataclasses that a plan depends on. Numbers are not
converted: an integer in a field of floats stays an integer, because the sentences of a plan would differ.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Mapping, Set
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from typing import Any, Final, get_type_hints

import numpy as np
from numpy.typing import NDArray

from bundlekeel.model.errors import HistoryError
from bundlekeel.model.load import RESOURCES, ExcludedBroker, Ints
from bundlekeel.model.names import is_system_bundle, namespace_of
from bundlekeel.model.snapshot import BrokerTable, BundleTable, Snapshot
from bundlekeel.planning.engine import PlanInput, PlanResult
from bundlekeel.recalibration.history.record import CycleOutcome, Document, Frame, Table, Texts

# Type of each field of a plan's input, except the snapshot. New fields of `PlanInput` are recorded automatically.
_KINDS: Final[Mapping[str, Any]] = {
    name: kind for name, kind in get_type_hints(PlanInput).items() if name != "snapshot"
}
_PARTS: Final = tuple(name for name, kind in _KINDS.items() if is_dataclass(kind))
# Parts of a plan's input that the leader itself computes, and a back-test replaces.
STATE: Final = ("params", "memory", "ledger")
_UNSAID: Final = -1


def frame_of(plan_input: PlanInput) -> Frame:
    """Return the frame of a plan's input. The frame uses the same arrays as the input."""
    snapshot = plan_input.snapshot
    return Frame(document_of(plan_input), _brokers(snapshot.brokers), _bundles(snapshot))


def document_of(plan_input: PlanInput) -> Document:
    """Return the values of a plan's input that are not in a table of the frame, by path."""
    snapshot = plan_input.snapshot
    document: Document = {
        "wall_ms": snapshot.wall_ms,
        "mode": snapshot.mode,
        "registered": snapshot.registered,
        "digest": snapshot.digest,
        "excluded": plain(snapshot.excluded),
        "namespaces": list(snapshot.bundles.namespaces),
    }
    if snapshot.intervals:
        document["intervals"] = list(snapshot.intervals)
    for part in _KINDS:
        value = getattr(plan_input, part)
        if part in _PARTS:
            document |= {f"{part}.{item.name}": plain(getattr(value, item.name)) for item in fields(value)}
        else:
            document[part] = plain(value)
    return document


def input_of(frame: Frame, state: PlanInput | None = None) -> PlanInput:
    """Return the plan's input that a frame contains. Raises HistoryError if the frame does not fit this release.

    `state`: take the leader's own state (`STATE`) from this input instead of the frame, which is faster.
    """
    document: Document = {"trial": None, **frame.document}
    parts = {
        part: restored(_KINDS[part], _members(document, part))
        if state is None or part not in STATE
        else getattr(state, part)
        for part in _PARTS
    }
    try:
        parts |= {name: restored(kind, document[name]) for name, kind in _KINDS.items() if name not in _PARTS}
        brokers = _broker_table(frame.brokers)
        snapshot = Snapshot(
            wall_ms=document["wall_ms"],
            mode=document["mode"],
            brokers=brokers,
            bundles=_bundle_table(frame.bundles, brokers.ids, tuple(document["namespaces"])),
            excluded=restored(tuple[ExcludedBroker, ...], document["excluded"]),
            registered=document["registered"],
            digest=document["digest"],
            intervals=tuple(document.get("intervals", ())),
        )
    except KeyError as error:
        raise HistoryError(f"a recorded cycle lacks {error}") from None
    return PlanInput(snapshot=snapshot, **parts)


def _members(document: Document, part: str) -> Document:
    start = f"{part}."
    return {path.removeprefix(start): value for path, value in document.items() if path.startswith(start)}


def _brokers(table: BrokerTable) -> Table:
    bits = table.from_traffic.astype(np.int64) @ (1 << np.arange(len(RESOURCES), dtype=np.int64))
    unsaid = (_UNSAID,) * len(table)
    flags = (table.persistent or unsaid, table.non_persistent or unsaid)
    whole = (bits, table.last_update, table.start_timestamp, table.topics, *flags)
    texts = ([",".join(touched) for touched in table.overridden], table.load_managers, table.versions)
    return Table(
        _objects(table.ids),
        np.column_stack([table.usage, table.limit, table.traffic]),
        np.column_stack([np.asarray(column, dtype=np.int64) for column in whole]),
        np.column_stack([_objects(column) for column in texts]),
    )


def _broker_table(table: Table) -> BrokerTable:
    width, whole = len(RESOURCES), table.whole
    overridden, managers, versions = (tuple(column.tolist()) for column in table.texts.T)
    return BrokerTable(
        ids=tuple(table.names.tolist()),
        usage=_frozen(table.floats[:, :width]),
        limit=_frozen(table.floats[:, width : 2 * width]),
        traffic=_frozen(table.floats[:, 2 * width :]),
        from_traffic=_frozen((whole[:, 0:1] >> np.arange(width, dtype=np.int64) & 1).astype(bool)),
        overridden=tuple(tuple(text.split(",")) if text else () for text in overridden),
        last_update=_frozen(whole[:, 1]),
        start_timestamp=_frozen(whole[:, 2]),
        topics=_frozen(whole[:, 3]),
        load_managers=managers,
        versions=versions,
        persistent=_flags(whole[:, 4]),
        non_persistent=_flags(whole[:, 5]),
    )


def _bundles(snapshot: Snapshot) -> Table:
    table = snapshot.bundles
    return Table(
        _objects(table.names),
        np.concatenate([table.latest, table.short, table.long], axis=1),
        np.concatenate([table.samples, table.counts], axis=1),
        _objects(snapshot.brokers.ids)[table.owner].reshape(-1, 1),
    )


def _bundle_table(table: Table, brokers: tuple[str, ...], namespaces: tuple[str, ...]) -> BundleTable:
    names, count = table.names.tolist(), len(table)
    row = {broker: number for number, broker in enumerate(brokers)}
    place = {namespace: number for number, namespace in enumerate(namespaces)}
    owner = np.fromiter((row[text] for text in table.texts[:, 0].tolist()), dtype=np.int64, count=count)
    namespace = np.fromiter((place[namespace_of(name)] for name in names), dtype=np.int64, count=count)
    system = np.array([is_system_bundle(f"{text}/x") for text in namespaces], dtype=bool)
    starts = np.zeros(len(brokers) + 1, dtype=np.int64)
    np.cumsum(np.bincount(owner, minlength=len(brokers)), out=starts[1:])
    return BundleTable(
        names=tuple(names),
        starts=_frozen(starts),
        owner=_frozen(owner),
        namespaces=namespaces,
        namespace=_frozen(namespace),
        latest=_frozen(table.floats[:, 0:4]),
        short=_frozen(table.floats[:, 4:8]),
        long=_frozen(table.floats[:, 8:12]),
        samples=_frozen(table.whole[:, 0:2]),
        counts=_frozen(table.whole[:, 2:5]),
        system=_frozen(system[namespace] if count else np.zeros(0, dtype=bool)),
    )


def _objects(texts: Iterable[str]) -> Texts:
    listed = list(texts)
    array = np.empty(len(listed), dtype=object)
    array[:] = listed
    return array


def _flags(column: Ints) -> tuple[bool, ...]:
    values = column.tolist()
    return () if _UNSAID in values else tuple(map(bool, values))


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    copy = np.ascontiguousarray(array)
    copy.setflags(write=False)
    return copy


def outcome_of(result: PlanResult, report: Document, *, acted: bool, software: str) -> CycleOutcome:
    """Return the outcome of a plan in recorded form.

    `report`: the cycle's journal line. `acted`: whether the plan was executed. `software`: versions of the software.
    """
    plan = result.plan
    refused: dict[str, int] = {}
    for refusal in plan.refusals:
        refused[refusal.code.value] = refused.get(refusal.code.value, 0) + 1
    return CycleOutcome(
        plan_hash=plan.hash,
        code=plan.verdict.code.value,
        planned=len(plan.moves),
        acted=acted,
        details={
            "verdict": plan.verdict.sentence,
            "moves": plain(plan.moves),
            "splits": plain(plan.splits),
            "refused": refused,
            "report": plain(report),
        },
        software=software,
    )


# --- plain values ---


def plain(value: Any) -> Any:
    """Convert a value to JSON values. Sets are sorted. A map whose keys are not strings becomes a list of pairs."""
    if isinstance(value, np.generic):
        return value.item()
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value) and value:
            return {key: plain(item) for key, item in value.items()}
        return [[plain(key), plain(item)] for key, item in value.items()]
    if isinstance(value, Set):
        return [plain(item) for item in sorted(value)]
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    return value


def restored(kind: Any, value: Any) -> Any:
    """Convert JSON values from `plain` back to the type `kind`.

    Raises HistoryError if the value does not fit the type or has fields that this release does not know.
    """
    if isinstance(kind, type) and is_dataclass(kind):
        return _dataclass(kind, value)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        kinds = [item for item in inner if item is not type(None)]
        return None if value is None else restored(kinds[0], value)
    if origin is tuple:
        repeated = len(inner) == 2 and inner[1] is Ellipsis
        parts = [inner[0]] * len(value) if repeated else inner
        _require(len(parts) == len(value), f"{len(value)} values for {kind}")
        return tuple(restored(part, item) for part, item in zip(parts, value, strict=True))
    if origin is frozenset:
        return frozenset(restored(inner[0], item) for item in value)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        pairs = value.items() if isinstance(value, dict) else value
        return {restored(inner[0], key): restored(inner[1], item) for key, item in pairs}
    return value


def _dataclass(kind: type, value: Any) -> Any:
    _require(isinstance(value, dict), f"{kind.__name__} is not a map")
    hints = _hints(kind)
    unknown = sorted(set(value) - set(hints))
    _require(not unknown, f"{kind.__name__} has {', '.join(unknown)}, which this release does not know")
    needed = [f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]
    missing = [name for name in needed if name not in value]
    _require(not missing, f"{kind.__name__} lacks {', '.join(missing)}")
    return kind(**{name: restored(hints[name], item) for name, item in value.items()})


@lru_cache(maxsize=64)
def _hints(kind: type) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {item.name: hints[item.name] for item in fields(kind)}


def _require(holds: bool, why: str) -> None:
    if not holds:
        raise HistoryError(f"a recorded value cannot be read: {why}")
