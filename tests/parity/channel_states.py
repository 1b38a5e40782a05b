"""Seeded random pairs of entries of the ownership channel.

A pair is drawn as a valid step of one flow. Then one or several of its values are changed, or all of it is random. This
covers each branch of the resolver often, on both sides of its condition.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from bundlekeel.model.channel_states import MAX_VERSION, MIN_VERSION, OVER_SYSTEM_TOPIC, ServiceUnit, UnitState

Pair = tuple[ServiceUnit | None, ServiceUnit | None]
# "" is null; a blank text that is not null is what brokers never write and Java's isBlank asks for.
BROKERS = ("b1:8080", "b2:8080", "b3:8080", "b1:8080", "b2:8080", "", "", " ", "\u3000\t", "\u00a0")
LIVE = BROKERS[:3]
RANGES = ("0x00000000_0x40000000", "0x40000000_0x80000000", "0x80000000_0xffffffff")
STATES = tuple(UnitState)


class Step(NamedTuple):
    """A transition and how the version went; what coverage is counted by."""

    before: str
    after: str
    version: str


def draw(rng: Random) -> tuple[Step, Pair]:
    """One pair that Java's constructor accepts, and what it is."""
    before = rng.choice([None, *STATES])
    lawful = sorted(OVER_SYSTEM_TOPIC[before or UnitState.INIT])
    after = rng.choice(lawful) if rng.random() < 0.7 else rng.choice([None, *STATES])
    versions = _versions(rng)
    relation = _relation(*versions)
    current = None if before is None else _valid(rng, before, _brokers(rng), versions[0])
    if after is None:
        return Step(str(before), "None", relation), (current, None)
    if current is None:
        # What counts for a first entry is whether its version is the first one.
        versions = rng.choice([(0, 1), versions])
        relation = "first" if versions[1] == 1 else "later"
    brokers = _lawful_brokers(rng, current, after) if rng.random() < 0.7 else _brokers(rng)
    if rng.random() < 0.3:
        brokers = (rng.choice(BROKERS), brokers[1]) if rng.random() < 0.5 else (brokers[0], rng.choice(BROKERS))
    return Step(str(before), str(after), relation), (current, _valid(rng, after, brokers, versions[1]))


def _versions(rng: Random) -> tuple[int, int]:
    base = rng.choice([1, 2, 5, rng.randrange(1, 10**12), MAX_VERSION - 1, MIN_VERSION, MIN_VERSION + 1, -1, 0])
    kind = rng.random()
    if kind < 0.72:
        return base, base + 1
    if kind < 0.78:
        return base, base
    if kind < 0.84:
        return base, max(MIN_VERSION, base - rng.choice([1, 2, 1000]))
    if kind < 0.92:
        return base, min(MAX_VERSION, base + rng.choice([2, 3, 10**6]))
    if kind < 0.96:
        return MAX_VERSION, MIN_VERSION
    return rng.choice([(MIN_VERSION, MAX_VERSION), (MAX_VERSION, MIN_VERSION + 1), (MAX_VERSION, MAX_VERSION)])


def _relation(before: int, after: int) -> str:
    if (before, after) == (MAX_VERSION, MIN_VERSION):
        return "overflow"
    if after <= before:
        return "older" if after < before else "same"
    return "next" if after == before + 1 else "gap"


def _brokers(rng: Random) -> tuple[str, str]:
    return rng.choice(BROKERS), rng.choice(BROKERS)


def _lawful_brokers(rng: Random, current: ServiceUnit | None, after: UnitState) -> tuple[str, str]:
    """(destination, source) as the flow that makes this step would write them."""
    if current is None:
        return rng.choice(LIVE), ""
    match after:
        case UnitState.SPLITTING:
            return "", current.destination
        case UnitState.RELEASING:
            return rng.choice([*LIVE, ""]), current.destination
        case UnitState.ASSIGNING if current.state is UnitState.FREE:
            return rng.choice(LIVE), ""
        case _:
            return current.destination, current.source


def _valid(rng: Random, state: UnitState, brokers: tuple[str, str], version: int) -> ServiceUnit:
    destination, source = brokers
    if state is not UnitState.FREE and destination in BROKERS[5:9] and source in BROKERS[5:9]:
        # Java builds no such entry.
        destination, source = rng.choice([(rng.choice(LIVE), source), (destination, rng.choice(LIVE))])
    children = {bounds: rng.choice(["", *LIVE]) for bounds in RANGES[: rng.randrange(4)]}
    return ServiceUnit(
        state=state,
        destination=destination,
        source=source,
        children=children if state is UnitState.SPLITTING else {},
        force=rng.random() < 0.1,
        timestamp_ms=rng.randrange(2**41),
        version=version,
    )
