"""The recorded cycles of a back-test, in order, with the same numbers of brokers and bundles for all candidates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from itertools import chain, pairwise
from typing import Final

import numpy as np

from bundlekeel.model.errors import HistoryError
from bundlekeel.model.load import (
    BANDWIDTH_IN,
    BANDWIDTH_OUT,
    CPU,
    KILOBIT_PER_BYTE,
    RATE_IN,
    RATE_OUT,
    THROUGHPUT_IN,
    THROUGHPUT_OUT,
    Floats,
    Ints,
)
from bundlekeel.model.names import parse_bundle
from bundlekeel.model.snapshot import Bools, BrokerTable
from bundlekeel.planning.costs import CpuCosts, estimate
from bundlekeel.planning.engine import PlanInput

NONE: Final = -1
# If the next cycle is later than this (seconds), the time between is a gap, and the duration before it is used. Without
# an earlier duration, this one is.
LONGEST_SECONDS: Final = 900.0


class HeldInput(PlanInput):
    """A recorded input of a cycle in which the leader's gate allowed no moves, for example outside of a window."""

    @classmethod
    def of(cls, recorded: PlanInput) -> HeldInput:
        """Return the same input as a `HeldInput`."""
        return cls(**{row.name: getattr(recorded, row.name) for row in fields(recorded)})


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleEvent:
    """One recorded cycle.

    `inputs`: the recorded input of its plan. Each broker and bundle has a number, in the order of first appearance.
    `seconds`: time until the next cycle. `broker_names`, `bundle_names`: names by number. `brokers`, `bundles`: number
    of each row of the snapshot. `row`, `owner`: row and owner of each bundle, by number; -1: not in the snapshot.
    `arrived`: bundles that are reported for the first time, each with the bundle that it was split from (-1: none).
    `shape`: changes if owners, brokers or excluded brokers differ from the event before.
    """

    inputs: PlanInput
    seconds: float
    broker_names: list[str]
    bundle_names: list[str]
    brokers: Ints
    bundles: Ints
    row: Ints
    owner: Ints
    arrived: tuple[tuple[int, int], ...]
    shape: int


def events_of(inputs: Iterable[PlanInput]) -> Iterator[CycleEvent]:
    """Yield the event of each recorded input. Raises HistoryError if there is none, or if they are not in order."""
    numbers, seconds, empty = _Numbers(), 0.0, True
    for recorded, following in pairwise(chain(inputs, (None,))):
        assert recorded is not None
        empty = False
        if following is not None:
            step = (following.snapshot.wall_ms - recorded.snapshot.wall_ms) / 1000
            if step <= 0:
                raise HistoryError("recorded cycles are not in order of time")
            seconds = step if step <= LONGEST_SECONDS else seconds or LONGEST_SECONDS
        yield numbers.event(recorded, seconds)
    if empty:
        raise HistoryError("there is no recorded cycle to back-test")


class _Numbers:
    """Assigns a number to each broker and bundle, and caches what depends on names and owners only."""

    def __init__(self) -> None:
        self.brokers: dict[str, int] = {}
        self.bundles: dict[str, int] = {}
        self.broker_names: list[str] = []
        self.bundle_names: list[str] = []
        self.shape = 0
        self._last: tuple[object, ...] = ()
        self._event: CycleEvent | None = None
        self._reported: Bools = np.zeros(0, dtype=bool)

    def event(self, inputs: PlanInput, seconds: float) -> CycleEvent:
        snapshot = inputs.snapshot
        bundles, last = snapshot.bundles, self._event
        key = (snapshot.brokers.ids, bundles.names, bundles.owner.tobytes(), snapshot.excluded)
        if last is None or key != self._last:
            self.shape += 1
            self._last = key
            here = _indices(self.brokers, self.broker_names, snapshot.brokers.ids)
            columns = _indices(self.bundles, self.bundle_names, bundles.names)
            row = np.full(len(self.bundle_names), NONE, dtype=np.int64)
            row[columns] = np.arange(len(columns))
            owner = np.full(len(row), NONE, dtype=np.int64)
            owner[columns] = here[bundles.owner]
            arrived = self._arrived(row)
        else:
            here, columns, row, owner, arrived = last.brokers, last.bundles, last.row, last.owner, ()
        self._event = CycleEvent(
            inputs=inputs,
            seconds=seconds,
            broker_names=self.broker_names,
            bundle_names=self.bundle_names,
            brokers=here,
            bundles=columns,
            row=row,
            owner=owner,
            arrived=arrived,
            shape=self.shape,
        )
        return self._event

    def _arrived(self, row: Ints) -> tuple[tuple[int, int], ...]:
        before = np.zeros(len(row), dtype=bool)
        before[: len(self._reported)] = self._reported
        self._reported = before | (row >= 0)
        new = np.flatnonzero((row >= 0) & ~before).tolist()
        if not new or not before.any():
            return tuple((number, NONE) for number in new)
        parents: dict[str, list[tuple[int, int, int]]] = {}
        for number in np.flatnonzero((row < 0) & before).tolist():
            if (place := _range_of(self.bundle_names[number])) is not None:
                parents.setdefault(place[0], []).append((place[1], place[2], number))
        return tuple((number, _parent(self.bundle_names[number], parents)) for number in new)


def _indices(index: dict[str, int], names: list[str], present: tuple[str, ...]) -> Ints:
    """Return the number of each name; add new names to `index` and `names`."""
    for name in present:
        if name not in index:
            index[name] = len(names)
            names.append(name)
    return np.fromiter(map(index.__getitem__, present), dtype=np.int64, count=len(present))


def _range_of(text: str) -> tuple[str, int, int] | None:
    try:
        name = parse_bundle(text)
    except ValueError:
        return None
    return name.namespace, name.lower, name.upper


def _parent(text: str, parents: dict[str, list[tuple[int, int, int]]]) -> int:
    """Return the number of the vanished bundle whose hash range contains that of this bundle; -1: none."""
    place = _range_of(text)
    if place is None:
        return NONE
    wider = (number for low, high, number in parents.get(place[0], ()) if low <= place[1] and place[2] <= high)
    return next(wider, NONE)


def usage_per_unit(costs: CpuCosts, brokers: BrokerTable) -> Floats:
    """Return each broker's usage of each resource per message or byte per second; shape (B, 6, 4).

    CPU: the learned costs (planning/costs.py). Network: eight bits per byte. Direct memory does not depend on traffic.
    Message rate and throughput follow from the traffic itself (`fill_from_traffic`).
    """
    learned = estimate(costs, brokers.ids, brokers.limit[:, CPU])
    units = np.zeros((*brokers.usage.shape, 4))
    each = learned.cost * learned.factor[:, None]
    units[:, CPU, RATE_IN] = units[:, CPU, RATE_OUT] = each[:, 0]
    units[:, CPU, THROUGHPUT_IN] = units[:, CPU, THROUGHPUT_OUT] = each[:, 1]
    units[:, BANDWIDTH_IN, THROUGHPUT_IN] = units[:, BANDWIDTH_OUT, THROUGHPUT_OUT] = KILOBIT_PER_BYTE
    return units
