"""Rebuilds recorded cycles from their changes, and plans them again. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from bundlekeel.core.history.frames import input_of
from bundlekeel.core.history.record import OTHER_SCHEMA, SCHEMA, CycleRecord, Frame, changed, changed_document
from bundlekeel.core.model.errors import HistoryError
from bundlekeel.core.model.parameters import Parameters, choices
from bundlekeel.core.planning.engine import PlanResult, plan


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuiltCycle:
    """One record and its frame; without a frame, `why` it could not be rebuilt."""

    record: CycleRecord
    frame: Frame | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedCycle:
    """One cycle planned again. `recorded`, `hash`: of the recorded plan, and of the new one. `same`: the new plan has
    the recorded hash."""

    epoch: int
    cycle: int
    wall_ms: int
    recorded: str
    hash: str
    moves: int
    same: bool
    why: str = ""


def rebuilt(records: Iterable[CycleRecord]) -> Iterator[RebuiltCycle]:
    """Every record with its frame, in the order given: that of epochs and cycles. A record whose base is missing, or
    whose checksum does not hold, has none, and neither have those after it up to the next whole picture."""
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


def _next(last: tuple[int, int, Frame] | None, record: CycleRecord) -> Frame:
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
    made: PlanResult | None = None
    why = item.why
    if item.frame is not None:
        try:
            given = input_of(item.frame)
            _known(given.params)
            made = plan(given)
        except HistoryError as error:
            why = str(error)
    return ReplayedCycle(
        epoch=record.epoch,
        cycle=record.cycle,
        wall_ms=record.wall_ms,
        recorded=record.outcome.plan_hash,
        hash=made.plan.hash if made is not None else "",
        moves=len(made.plan.moves) if made is not None else 0,
        same=made is not None and made.plan.hash == record.outcome.plan_hash,
        why=why,
    )


def _known(params: Parameters) -> None:
    """HistoryError when what was in force is not installed here: a plugin's."""
    for name, value in (("strategy", params.strategy), ("placement", params.placement)):
        if value not in choices(name):
            raise HistoryError(f"the {name} {value!r} is not known here; a plugin was in force")
