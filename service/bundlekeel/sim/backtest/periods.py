"""One period of recorded traffic as all candidates see it: worked out once, for all plans made on it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from bundlekeel.core.guard.state import GuardState
from bundlekeel.core.history.frames import restored
from bundlekeel.core.model.load import RESOURCES, ExcludedBroker, Floats, Ints
from bundlekeel.core.model.names import is_system_bundle, namespace_of, parse_bundle
from bundlekeel.core.model.parameters import Parameters
from bundlekeel.core.model.policies import Policies
from bundlekeel.core.model.snapshot import Bools
from bundlekeel.core.planning.ledger import Ledger
from bundlekeel.core.planning.memory import StrategyMemory
from bundlekeel.sim.backtest.frames import CIRCUMSTANCES
from bundlekeel.sim.backtest.traffic import NO_BROKER, Averaging, RecordedTraffic, part_of

_DECIMALS: Final = 3
# A picture that is not followed by another one within this long says nothing of the time until then.
_LONGEST_S: Final = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedConditions:
    """What is given from outside, beside the traffic; `guard` holds operators' requests only."""

    mode: str = "modular"
    registered: int = 0
    excluded: tuple[ExcludedBroker, ...] = ()
    seed: int = 0
    brokers_split: bool = False
    policies: Policies = field(default_factory=Policies)
    guard: GuardState = field(default_factory=GuardState)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartState:
    """Where every candidate starts from: what the leader remembered at the first period."""

    params: Parameters
    memory: StrategyMemory
    ledger: Ledger
    guard: GuardState


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticTraits:
    """What hardly changes: of brokers (rows as `RecordedTraffic.brokers`), and of bundles (rows as
    `RecordedTraffic.bundles`).
    """

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
    """One picture. Arrays as in `RecordedTraffic`, without their first dimension; bundles' figures are rounded as in a
    snapshot. `shape` is another number whenever recorded ownership, presence or exclusion differ from the period
    before. `arrived`: bundles not reported before, each with the bundle it was split from (-1: none). `seconds`: how
    long it stood."""

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
    usage: Floats
    limit: Floats
    carried: Floats
    topics: Ints
    present: Bools
    reported: Ints
    started: Ints
    intervals: Ints
    arrived: tuple[tuple[int, int], ...]
    given: RecordedConditions


def beginning(traffic: RecordedTraffic) -> StartState:
    """What `traffic.start` says. HistoryError when it does not fit this release."""
    document = json.loads(traffic.start)
    kinds = {"params": Parameters, "memory": StrategyMemory, "ledger": Ledger, "guard": GuardState}
    return StartState(**{part: restored(kind, part_of(document, part)) for part, kind in kinds.items()})


def traits(traffic: RecordedTraffic) -> StaticTraits:
    """What `traffic.traits` says of brokers, and names say of bundles."""
    told = json.loads(traffic.traits)
    rows = [told[broker] for broker in traffic.brokers]
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
    """Every period in turn."""
    averages, told = Averaging(traffic), _Told(traffic)
    seconds = _seconds(traffic.wall_ms)
    seen, shape = np.zeros(len(traffic.bundles), dtype=bool), 0
    before: RecordedConditions | None = None
    for number in range(traffic.periods):
        averages.advance(traffic, number)
        owner, present = traffic.owner[number], traffic.present[number]
        given = told.at(number)
        arrived = _arrived(traffic, number, seen) if number else ()
        seen |= owner >= 0
        if given is not before or not _alike(traffic, number, number - 1):
            shape += 1
        before = given
        yield TrafficPeriod(
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
            usage=traffic.usage[number],
            limit=_row(traffic.limit, number),
            carried=traffic.carried[number],
            topics=traffic.topics[number],
            present=present,
            reported=traffic.reported[number],
            started=traffic.started[number],
            intervals=_row(traffic.intervals, number),
            arrived=arrived,
            given=given,
        )


def _row(values: Any, number: int) -> Any:
    return values[number] if len(values) > 1 else values[0]


def _alike(traffic: RecordedTraffic, number: int, last: int) -> bool:
    same_owners = bool((traffic.owner[number] == traffic.owner[last]).all())
    return same_owners and bool((traffic.present[number] == traffic.present[last]).all())


def _seconds(wall_ms: Ints) -> Floats:
    """How long each picture stood: until the next one, the last one as long as pictures usually do."""
    if len(wall_ms) < 2:
        return np.full(len(wall_ms), 60.0)
    steps = np.diff(wall_ms) / 1000
    usual = min(float(np.median(steps)), _LONGEST_S)
    found: Floats = np.append(np.where(steps > _LONGEST_S, usual, steps), usual)
    return found


class _Told:
    """Circumstances by period; the same texts are read once."""

    def __init__(self, traffic: RecordedTraffic) -> None:
        self._traffic = traffic
        self._known: tuple[bytes, RecordedConditions] | None = None

    def at(self, period: int) -> RecordedConditions:
        """What held then."""
        row = self._traffic.members[period]
        key = row.tobytes()
        if self._known is None or self._known[0] != key:
            self._known = key, self._read(row.tolist())
        return self._known[1]

    def _read(self, row: list[int]) -> RecordedConditions:
        texts = self._traffic.texts
        found = {path: json.loads(texts[at]) for path, at in zip(CIRCUMSTANCES, row, strict=True) if at != NO_BROKER}
        guard = restored(GuardState, part_of(found, "guard"))
        own = {path: value for path, value in found.items() if not path.startswith("guard.")}
        own["policies"] = part_of(own.get("policies", {}), "policies")
        made: RecordedConditions = restored(RecordedConditions, own)
        return replace(made, guard=guard)


def _arrived(traffic: RecordedTraffic, number: int, seen: Bools) -> tuple[tuple[int, int], ...]:
    """Bundles that are reported for the first time, and which bundle gave way to each."""
    new = np.flatnonzero((traffic.owner[number] >= 0) & ~seen).tolist()
    if not new:
        return ()
    gone = np.flatnonzero((traffic.owner[number] < 0) & seen).tolist()
    parents: dict[str, list[tuple[int, int, int]]] = {}
    for place in gone:
        _note(parents, traffic.bundles[place], place)
    found = []
    for place in new:
        try:
            name = parse_bundle(traffic.bundles[place])
        except ValueError:
            found.append((place, NO_BROKER))
            continue
        wider = (at for low, high, at in parents.get(name.namespace, ()) if low <= name.lower and name.upper <= high)
        found.append((place, next(wider, NO_BROKER)))
    return tuple(found)


def _note(parents: dict[str, list[tuple[int, int, int]]], text: str, place: int) -> None:
    """Bundles of a name that says no range have no children."""
    try:
        name = parse_bundle(text)
    except ValueError:
        return
    parents.setdefault(name.namespace, []).append((name.lower, name.upper, place))
