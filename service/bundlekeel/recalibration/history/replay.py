"""Rebuild recorded cycles from their changes, and plan them again. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import bundlekeel.compat.in_plan  # noqa: F401 - plans with `compat` need its shedders
from bundlekeel.model.errors import HistoryError
from bundlekeel.model.parameters import Parameters, choices
from bundlekeel.planning.engine import PlanResult, plan
from bundlekeel.recalibration.history.frames import input_of
from bundlekeel.recalibration.history.record import (
    OTHER_SCHEMA,
    SCHEMA,
    Frame,
    HistoryRecord,
    changed,
    changed_document,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuiltCycle:
    """One record and its frame (the recorded input of its plan). `why`: why the frame could not be rebuilt."""

    record: HistoryRecord
    frame: Frame | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedCycle:
    """One cycle planned again. `recorded`, `hash`: hash of the recorded and of the new plan. `same`: both are equal."""

    epoch: int
    cycle: int
    wall_ms: int
    recorded: str
    hash: str
    moves: int
    same: bool
    why: str = ""


def rebuilt(records: Iterable[HistoryRecord]) -> Iterator[RebuiltCycle]:
    """Yield every record with its frame (input of its plan). The records must be in the order of epochs and cycles.

    If the record that the changes apply to is missing, or a checksum is wrong, there is no frame. The same is true for
    the following records, up to the next one that contains all values.
    """
    last: tuple[int, int, Frame] | None = None
    for record in records:
        try:
            frame = _next(last, record)
        except HistoryError as error:
            last = None
            yield RebuiltCycle(record=record, why=str(error))
            continue
        last = (record.epoch, record.cycle, frame)
        yield RebuiltCycle(record=record, frame=frame)


def _next(last: tuple[int, int, Frame] | None, record: HistoryRecord) -> Frame:
    if record.schema != SCHEMA:
        raise HistoryError(f"it is of {OTHER_SCHEMA.format(record.schema)}")
    before: Frame | None = None
    if not record.full:
        if last is None or last[:2] != (record.epoch, record.base):
            raise HistoryError(f"it continues cycle {record.base} of epoch {record.epoch}, which is missing")
        before = last[2]
    try:
        change = json.loads(record.document)
        orders = {name: tuple((int(at), int(size)) for at, size in runs) for name, runs in change["order"].items()}
        frame = Frame(
            changed_document(before.document if before else {}, change),
            changed(before.brokers if before else None, replace(record.brokers, order=orders.get("brokers"))),
            changed(before.bundles if before else None, replace(record.bundles, order=orders.get("bundles"))),
        )
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError) as error:
        raise HistoryError(f"its changes cannot be applied: {error!r}") from None
    if frame.seal() != record.seal:
        raise HistoryError("its checksum does not hold")
    return frame


def replay(item: RebuiltCycle) -> ReplayedCycle:
    """Plan a rebuilt cycle again with this release."""
    record = item.record
    result: PlanResult | None = None
    why = item.why
    if item.frame is not None:
        try:
            plan_input = input_of(item.frame)
            check_installed(plan_input.params)
            result = plan(plan_input)
        except HistoryError as error:
            why = str(error)
    return ReplayedCycle(
        epoch=record.epoch,
        cycle=record.cycle,
        wall_ms=record.wall_ms,
        recorded=record.outcome.plan_hash,
        hash=result.plan.hash if result is not None else "",
        moves=len(result.plan.moves) if result is not None else 0,
        same=result is not None and result.plan.hash == record.outcome.plan_hash,
        why=why,
    )


def check_installed(params: Parameters) -> None:
    """Raise HistoryError if the recorded strategy or placement is from a plugin that is not installed here."""
    for name, value in (("strategy", params.strategy), ("placement", params.placement)):
        if value not in choices(name):
            raise HistoryError(f"the {name} {value!r} is not known here; a plugin was in force")
