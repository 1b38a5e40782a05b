"""The periods of recorded traffic, one snapshot each, which all candidates plan on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from bundlekeel.model.load import RESOURCES, ExcludedBroker, Floats, Ints
from bundlekeel.model.names import is_system_bundle, namespace_of, parse_bundle
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.policies import Policies
from bundlekeel.model.snapshot import Bools
from bundlekeel.planning.guard.state import GuardState
from bundlekeel.planning.ledger import Ledger
from bundlekeel.planning.memory import StrategyMemory
from bundlekeel.recalibration.backtest.frames import CIRCUMSTANCES
from bundlekeel.recalibration.backtest.traffic import NO_BROKER, Averaging, RecordedTraffic, part_of
from bundlekeel.recalibration.history.frames import restored

_DECIMALS: Final = 3
# If the next snapshot is later than this (seconds), the time between is a gap, and the usual duration is used.
_LONGEST_S: Final = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedConditions:
    """Inputs of a plan other than traffic. `guard` contains only operators' requests, no effects of recorded moves."""

    mode: str = "modular"
    registered: int = 0
    excluded: tuple[ExcludedBroker, ...] = ()
    seed: int = 0
    brokers_split: bool = False
    policies: Policies = field(default_factory=Policies)
    guard: GuardState = field(default_factory=GuardState)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartState:
    """The leader's recorded state at the first period, with which the run of every candidate starts."""

    params: Parameters
    memory: StrategyMemory
    ledger: Ledger
    guard: GuardState


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticTraits:
    """Values that are the same in all periods, in the order of `RecordedTraffic.brokers` and `.bundles`."""

    from_traffic: Bools
    overridden: tuple[tuple[str, ...], ...]
    load_managers: tuple[str, ...]
    versions: tuple[str, ...]
    persistent: tuple[int, ...]
    non_persistent: tuple[int, ...]
    namespaces: tuple[str, ...]
    namespace: Ints
    system: Bools


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficPeriod:
    """One snapshot: period `number` of `traffic`, with arrays as in `RecordedTraffic`, but of this period only.

    Averages of bundles are rounded as in a snapshot. `shape`: number that changes if recorded owners, present brokers
    or conditions differ from the period before. `arrived`: bundles that are reported for the first time, each with the
    bundle that it was split from (-1: none). `seconds`: duration of the period.
    """

    traffic: RecordedTraffic
    number: int
    wall_ms: int
    seconds: float
    shape: int
    rates: Floats
    short: Floats
    long: Floats
    samples: Ints
    counts: Ints
    owner: Ints
    limit: Floats
    intervals: Ints
    arrived: tuple[tuple[int, int], ...]
    conditions: RecordedConditions


def parse_start(traffic: RecordedTraffic) -> StartState:
    """Parse the leader's recorded state in `traffic.start`. Raises HistoryError if it does not fit this release."""
    document = json.loads(traffic.start)
    kinds = {"params": Parameters, "memory": StrategyMemory, "ledger": Ledger, "guard": GuardState}
    return StartState(**{part: restored(kind, part_of(document, part)) for part, kind in kinds.items()})


def traits(traffic: RecordedTraffic) -> StaticTraits:
    """Return the values that never change: those of brokers from `traffic.traits`, those of bundles from their
    names."""
    recorded = json.loads(traffic.traits)
    rows = [recorded[broker] for broker in traffic.brokers]
    place: dict[str, int] = {}
    namespace = [place.setdefault(namespace_of(name), len(place)) for name in traffic.bundles]
    system = np.array([is_system_bundle(f"{text}/x") for text in place], dtype=bool)
    codes = np.array(namespace, dtype=np.int64)
    bits = np.array([row[0] for row in rows], dtype=np.int64)
    return StaticTraits(
        from_traffic=(bits[:, None] >> np.arange(len(RESOURCES), dtype=np.int64) & 1).astype(bool),
        overridden=tuple(tuple(row[3].split(",")) if row[3] else () for row in rows),
        load_managers=tuple(row[4] for row in rows),
        versions=tuple(row[5] for row in rows),
        persistent=tuple(row[1] for row in rows),
        non_persistent=tuple(row[2] for row in rows),
        namespaces=tuple(place),
        namespace=codes,
        system=system[codes] if len(codes) else np.zeros(0, dtype=bool),
    )


def periods(traffic: RecordedTraffic) -> Iterator[TrafficPeriod]:
    """Yield all periods in order of time."""
    averages, reader = Averaging(traffic), _ConditionsReader(traffic)
    seconds = _seconds(traffic.wall_ms)
    reported_before, shape = np.zeros(len(traffic.bundles), dtype=bool), 0
    before: RecordedConditions | None = None
    for number in range(traffic.periods):
        averages.advance(traffic, number)
        owner = traffic.owner[number]
        conditions = reader.at(number)
        arrived = _arrived(traffic, number, reported_before) if number else ()
        reported_before |= owner >= 0
        if conditions is not before or not _same_shape(traffic, number, number - 1):
            shape += 1
        before = conditions
        yield TrafficPeriod(
            traffic=traffic,
            number=number,
            wall_ms=int(traffic.wall_ms[number]),
            seconds=float(seconds[number]),
            shape=shape,
            rates=traffic.rates[number].astype(np.float64),
            short=np.round(averages.short, _DECIMALS),
            long=np.round(averages.long, _DECIMALS),
            samples=averages.samples.copy(),
            counts=_row(traffic.counts, number).astype(np.int64),
            owner=owner.astype(np.int64),
            limit=_row(traffic.limit, number),
            intervals=_row(traffic.intervals, number),
            arrived=arrived,
            conditions=conditions,
        )


def _row(values: Any, number: int) -> Any:
    return values[number] if len(values) > 1 else values[0]


def _same_shape(traffic: RecordedTraffic, number: int, last: int) -> bool:
    same_owners = bool((traffic.owner[number] == traffic.owner[last]).all())
    return same_owners and bool((traffic.present[number] == traffic.present[last]).all())


def _seconds(wall_ms: Ints) -> Floats:
    """Return the seconds from each snapshot to the next; the median for the last snapshot and before a gap."""
    if len(wall_ms) < 2:
        return np.full(len(wall_ms), 60.0)
    steps = np.diff(wall_ms) / 1000
    usual = min(float(np.median(steps)), _LONGEST_S)
    durations: Floats = np.append(np.where(steps > _LONGEST_S, usual, steps), usual)
    return durations


class _ConditionsReader:
    """Reads the conditions (inputs of a plan except traffic) of each period. Caches the last conditions, often equal to
    the next."""

    def __init__(self, traffic: RecordedTraffic) -> None:
        self._traffic = traffic
        self._last: tuple[bytes, RecordedConditions] | None = None

    def at(self, period: int) -> RecordedConditions:
        row = self._traffic.members[period]
        key = row.tobytes()
        if self._last is None or self._last[0] != key:
            self._last = key, self._read(row.tolist())
        return self._last[1]

    def _read(self, row: list[int]) -> RecordedConditions:
        texts = self._traffic.texts
        values = {path: json.loads(texts[at]) for path, at in zip(CIRCUMSTANCES, row, strict=True) if at != NO_BROKER}
        guard = restored(GuardState, part_of(values, "guard"))
        own = {path: value for path, value in values.items() if not path.startswith("guard.")}
        own["policies"] = part_of(own.get("policies", {}), "policies")
        conditions: RecordedConditions = restored(RecordedConditions, own)
        return replace(conditions, guard=guard)


def _arrived(traffic: RecordedTraffic, number: int, reported_before: Bools) -> tuple[tuple[int, int], ...]:
    """Return the bundles that are reported for the first time, each with the bundle that it was split from (-1:
    none)."""
    new = np.flatnonzero((traffic.owner[number] >= 0) & ~reported_before).tolist()
    if not new:
        return ()
    vanished = np.flatnonzero((traffic.owner[number] < 0) & reported_before).tolist()
    parents: dict[str, list[tuple[int, int, int]]] = {}
    for place in vanished:
        _add_parent(parents, traffic.bundles[place], place)
    arrived = []
    for place in new:
        try:
            name = parse_bundle(traffic.bundles[place])
        except ValueError:
            arrived.append((place, NO_BROKER))
            continue
        wider = (at for low, high, at in parents.get(name.namespace, ()) if low <= name.lower and name.upper <= high)
        arrived.append((place, next(wider, NO_BROKER)))
    return tuple(arrived)


def _add_parent(parents: dict[str, list[tuple[int, int, int]]], text: str, place: int) -> None:
    try:
        name = parse_bundle(text)
    except ValueError:
        return
    parents.setdefault(name.namespace, []).append((name.lower, name.upper, place))
