"""Rules of quota simulations: our share engine with topic policies, PIP-82 as proposed, Pulsar 4.2's ResourceGroups
with their defects, a fixed quota for each bundle, and no limit at all."""

from __future__ import annotations

import math
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from bundlekeel.core.load import Floats
from bundlekeel.core.quotas.exchange import Book, Manners, Said, merge, report
from bundlekeel.core.quotas.groups import KINDS, NO_RATES, PUBLISH_MESSAGES, Rates
from bundlekeel.core.quotas.lines import Lines
from bundlekeel.core.quotas.others import PROPORTIONAL, native, per_bundle, pip82
from bundlekeel.core.quotas.shares import Remembered, Tuning, claims_of, share_out
from bundlekeel.core.quotas.usage import Key, Line
from bundlekeel.sim.quotas import Part, Scene

_GROUP = "group"
_AT_LIMIT = 0.95


class Fair:
    """Ours: each broker's participant reports its topics, the leader shares out, topic policies enforce it."""

    def __init__(self, tuning: Tuning | None = None, manners: Manners | None = None) -> None:
        self.tuning, self.manners = tuning or Tuning(), manners or Manners()
        self.shares: dict[str, float] = {}
        self.book, self.memory = Book(), Remembered()
        self.said = Said()
        self.messages, self.wire_bytes = 0, 0

    def passes(self, scene: Scene, parts: Sequence[Part]) -> Floats:
        """Each partition up to its topic's share over its partitions; topics never seen are not limited yet."""
        return np.array([min(part.demand, self._rate(scene, part.topic)) for part in parts])

    def learn(self, scene: Scene, parts: Sequence[Part], passed: Floats) -> None:
        """Report, merge, share out."""
        lines = self._lines(scene, parts, passed)
        alive = [str(broker) for broker in scene.alive]
        now = Lines.of({str(broker): lines.get(broker, {}) for broker in scene.alive})
        message, self.said = report(now, self.said.only(alive), self.manners)
        self.messages += message.messages
        self.wire_bytes += message.wire_bytes()
        self.book = merge(self.book, message, alive, self.manners)
        limits = np.full((1, len(KINDS)), np.inf)
        limits[0, PUBLISH_MESSAGES] = scene.limit
        claims = claims_of(self.book, [_GROUP])
        shares, self.memory = share_out(limits, [_GROUP], claims, self.memory, self.tuning)
        column = shares.share[:, PUBLISH_MESSAGES].tolist()
        # A policy stays in force while its topic is away.
        self.shares |= {key[1]: share for key, share in zip(shares.keys, column, strict=True)}

    def _rate(self, scene: Scene, topic: int) -> float:
        return self.shares.get(scene.names[topic], math.inf) / scene.partitions[topic]

    def _lines(self, scene: Scene, parts: Sequence[Part], passed: Floats) -> dict[int, dict[Key, Line]]:
        found: dict[int, dict[Key, list[tuple[float, bool]]]] = defaultdict(lambda: defaultdict(list))
        for part, rate in zip(parts, passed.tolist(), strict=True):
            if part.broker >= 0:
                held = rate > 0 and rate >= _AT_LIMIT * self._rate(scene, part.topic)
                found[part.broker][_GROUP, scene.names[part.topic]].append((rate, held))
        count = dict(zip(scene.names, scene.partitions, strict=True))
        return {
            broker: {
                key: Line(
                    usage=_rates(math.fsum(rate for rate, _ in rows)),
                    peak=_rates(max(rate for rate, _ in rows)),
                    pinched=(any(held for _, held in rows), False, False, False),
                    partitions=count[key[1]],
                )
                for key, rows in lines.items()
            }
            for broker, lines in found.items()
        }


def _rates(rate: float) -> Rates:
    return (rate, *NO_RATES[1:])


class _Limited:
    """Limits of brokers: all topics behind a limiter are cut in proportion."""

    def __init__(self) -> None:
        self.limits: dict[int, float] = {}

    def place(self, scene: Scene, part: Part) -> int:
        """The limiter of a part."""
        return part.broker

    def limit(self, scene: Scene, place: int) -> float:
        """What a limiter lets pass."""
        return self.limits.get(place, scene.limit)

    def passes(self, scene: Scene, parts: Sequence[Part]) -> Floats:
        """What passes of each part."""
        wanted = _by(parts, [part.demand for part in parts], lambda part: self.place(scene, part))
        cut = {place: min(1.0, self.limit(scene, place) / want) if want > 0 else 1.0 for place, want in wanted.items()}
        return np.array([part.demand * cut.get(self.place(scene, part), 0.0) for part in parts])


class Proposed(_Limited):
    """PIP-82 as proposed. A broker nobody has heard of starts as the lowest user: half-way to the most dominant."""

    def __init__(self, rest: str = PROPORTIONAL) -> None:
        super().__init__()
        self.rest = rest

    def learn(self, scene: Scene, parts: Sequence[Part], passed: Floats) -> None:
        """Usage by broker, then every broker's own limit."""
        used = _by(parts, passed.tolist(), lambda part: part.broker)
        usage = {str(broker): used.get(broker, 0.0) for broker in scene.alive}
        limits = pip82(scene.limit, usage, self.rest)
        start = max(usage.values(), default=0.0) / 2 or scene.limit
        self.limits = {broker: limits.get(str(broker), start) for broker in scene.alive}


class Native(_Limited):
    """Pulsar 4.2's ResourceGroup (publish; dispatch is measured but not enforced: `enforced=False`).

    Kept with its defects: what was not reported is lost from the count, a change of 5 % or 5 rounds lets a report
    out, dead brokers stay in the sum, and a broker without usage of its own gets 1.
    """

    def __init__(self, *, enforced: bool = True, tolerance: float = 0.05, rounds: int = 5) -> None:
        super().__init__()
        self.enforced, self.tolerance, self.rounds = enforced, tolerance, rounds
        self.usage: dict[str, float] = {}
        self.silent: dict[int, int] = {}

    def limit(self, scene: Scene, place: int) -> float:
        """The quota last computed there."""
        return super().limit(scene, place) if self.enforced else math.inf

    def learn(self, scene: Scene, parts: Sequence[Part], passed: Floats) -> None:
        """Reports of the living, then every broker's quota out of all it ever heard."""
        used = _by(parts, passed.tolist(), lambda part: part.broker)
        for broker in scene.alive:
            now, last = used.get(broker, 0.0), self.usage.get(str(broker), 0.0)
            silent = self.silent.get(broker, 0) + 1
            told = silent >= self.rounds or (abs(now - last) > self.tolerance * last and now != last)
            self.silent[broker] = 0 if told else silent
            if told:
                self.usage[str(broker)] = now
        self.limits = {broker: native(scene.limit, self.usage, str(broker)) for broker in scene.alive}


class Bundled(_Limited):
    """The reply in the thread: the quota divided by the number of bundles, no exchange."""

    def __init__(self, bundles: int) -> None:
        super().__init__()
        self.bundles = bundles

    def place(self, scene: Scene, part: Part) -> int:
        """The bundle of a part, by the hash of its name, wherever it is owned."""
        name = scene.names[part.topic]
        name = f"{name}-partition-{part.index}" if scene.partitions[part.topic] > 1 else name
        return zlib.crc32(name.encode()) * self.bundles >> 32

    def limit(self, scene: Scene, place: int) -> float:
        """The same for each."""
        return per_bundle(scene.limit, self.bundles)

    def learn(self, scene: Scene, parts: Sequence[Part], passed: Floats) -> None:
        """Nothing to learn."""


class Unlimited:
    """Nobody limits anything."""

    def passes(self, scene: Scene, parts: Sequence[Part]) -> Floats:
        """Everything."""
        return np.array([part.demand for part in parts])

    def learn(self, scene: Scene, parts: Sequence[Part], passed: Floats) -> None:
        """Nothing to learn."""


def _by(parts: Sequence[Part], rates: Sequence[float], key: Callable[[Part], int]) -> Mapping[int, float]:
    """Rates summed by a key, of parts that have a broker."""
    found: dict[int, list[float]] = defaultdict(list)
    for part, rate in zip(parts, rates, strict=True):
        if part.broker >= 0:
            found[key(part)].append(rate)
    return {name: math.fsum(values) for name, values in found.items()}
