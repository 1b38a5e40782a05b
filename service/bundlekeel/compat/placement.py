"""Exact copies of Pulsar's placements.

Three of them draw a broker at random. Here they draw with a seed, and also return the set from which Pulsar draws.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bundlekeel.compat.avg import data_keys, default_key
from bundlekeel.compat.picture import CompatPicture, running_sum, total
from bundlekeel.model.load import RATE_IN, RATE_OUT, Floats, Ints
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.snapshot import Bools
from bundlekeel.planning.memory import CompatMemory


class Placer:
    """Selects targets for one bundle at a time, as the broker does for the bundles of one cycle."""

    def __init__(
        self, picture: CompatPicture, params: Parameters, memory: CompatMemory, placement: str, seed: int = 0
    ) -> None:
        self.picture, self.params = picture, params
        planned = placement == "avg" and params.compat not in ("4.0", "4.2")
        self._memory, self._rule = memory, (_PlannedAvg if planned else _RULES[placement])(picture, params, memory)
        self._random = np.random.default_rng(abs(seed))

    def select(self, row: int, candidates: Ints) -> tuple[Ints, int]:
        """Return the brokers (rows) from which Pulsar draws, and the drawn one (-1: none). `candidates`: in Java's
        order."""
        allowed = self._rule.allowed(row, candidates) if len(candidates) else candidates
        if len(allowed) == 0:
            return allowed, -1
        broker = int(allowed[self._random.integers(len(allowed))]) if len(allowed) > 1 else int(allowed[0])
        self.record(row, broker)
        return allowed, broker

    def record(self, row: int, broker: int) -> None:
        """Record in the placement's state that this bundle goes to this broker."""
        self._rule.drawn(row, broker)

    def memory(self) -> CompatMemory:
        """Return the placement's state after all selections so far."""
        return self._rule.memory(self._memory)


class _Rule:
    """One of Pulsar's placement classes, with the state that it keeps between selections."""

    def __init__(self, picture: CompatPicture, params: Parameters, memory: CompatMemory) -> None:
        self.picture, self.params = picture, params
        self.start(memory)

    def start(self, memory: CompatMemory) -> None:
        """Load the state of the class from `memory`."""

    def allowed(self, row: int, candidates: Ints) -> Ints:
        """Return the candidates from which the class draws. `candidates`: at least one."""
        raise NotImplementedError

    def drawn(self, row: int, broker: int) -> None:
        """Record that the bundle goes to the drawn broker."""

    def memory(self, before: CompatMemory) -> CompatMemory:
        """Return the new state of the class."""
        return before


class _LeastLongTermMessageRate(_Rule):
    """`LeastLongTermMessageRate`: the broker with the lowest long-term rate, of those not above the overload threshold.

    The rate is the sum of the long-term averages of the bundles in `lastStats`, with defaults for unknown bundles.
    """

    def start(self, memory: CompatMemory) -> None:
        picture = self.picture
        owner, rows = picture.stat_rows()
        has_data, which = rows >= 0, np.maximum(rows, 0)
        both = []
        for column in (RATE_IN, RATE_OUT):
            long = picture.bundles.long[:, column] if len(picture.bundles.names) else np.zeros(1)
            # `bincount` adds one value at a time, as Java does.
            values = np.where(has_data, long[which], 50.0)
            both.append(np.bincount(owner, weights=values, minlength=len(picture.brokers)))
        over = picture.usage(self.params) > self.params.overloaded_threshold_percent / 100.0
        self._score: Floats = np.where(over, np.inf, total(np.column_stack(both), 0, 1))

    def allowed(self, row: int, candidates: Ints) -> Ints:
        score = self._score[candidates]
        lowest = np.fmin.reduce(score)
        best = candidates[score == lowest]
        return best if len(best) else candidates


class _LeastResourceUsage(_Rule):
    """`LeastResourceUsageWithWeight`: any broker well below the average usage, which each selection smooths again."""

    def start(self, memory: CompatMemory) -> None:
        picture = self.picture
        self._usage = picture.usage(self.params)
        before = memory.placement_usage
        self._known: Bools = np.array([broker in before for broker in picture.brokers], dtype=bool)
        self._history: Floats = np.array([before.get(broker, 0.0) for broker in picture.brokers], dtype=np.float64)
        idle = (picture.traffic[:, RATE_IN] == 0) & (picture.traffic[:, RATE_OUT] == 0)
        self._fresh: Bools = idle | (picture.bundle_count == 0)

    def allowed(self, row: int, candidates: Ints) -> Ints:
        weight, usage = self.params.history_weight, self._usage[candidates]
        with np.errstate(invalid="ignore", over="ignore"):
            mixed = self._history[candidates] * weight + (1 - weight) * usage
            new = np.where(self._known[candidates] & ~self._fresh[candidates], mixed, usage)
            self._history[candidates] = new
            self._known[candidates] = True
            average = running_sum(new) / len(candidates)
            best = candidates[new + self.params.average_usage_difference_percent / 100.0 <= average]
        return best if len(best) else candidates

    def memory(self, before: CompatMemory) -> CompatMemory:
        named = zip(self.picture.brokers, self._history.tolist(), self._known.tolist(), strict=True)
        return replace(before, placement_usage={broker: value for broker, value, has_history in named if has_history})


class _RoundRobin(_Rule):
    """`RoundRobinBrokerSelector`: a counter over a list of candidates, which is renewed when the candidates differ."""

    def start(self, memory: CompatMemory) -> None:
        self._turn, self._listed = memory.turn, memory.listed

    def allowed(self, row: int, candidates: Ints) -> Ints:
        brokers = self.picture.brokers
        index = self._turn % len(candidates)
        self._turn = 0 if self._turn == 2**31 - 1 else self._turn + 1
        now = {brokers[candidate]: candidate for candidate in candidates.tolist()}
        # The index is below the number of candidates, so it is valid if the lengths are equal.
        if len(self._listed) != len(now) or self._listed[index] not in now:
            self._listed = tuple(now)
        return np.array([now[self._listed[index]]], dtype=np.int64)

    def memory(self, before: CompatMemory) -> CompatMemory:
        return replace(before, turn=self._turn, listed=self._listed)


class _Avg(_Rule):
    """`AvgShedder.selectBroker` before 5.0: the last target of a bundle with equal data; without one, any broker."""

    def start(self, memory: CompatMemory) -> None:
        self._chosen = dict(memory.chosen)

    def _key(self, row: int) -> str:
        return data_keys(self.picture.bundles, [row])[0] if row >= 0 else default_key()

    def allowed(self, row: int, candidates: Ints) -> Ints:
        sent = self._chosen.get(self._key(row))
        same = [candidate for candidate in candidates.tolist() if self.picture.brokers[candidate] == sent]
        return np.array(same, dtype=np.int64) if same else candidates

    def drawn(self, row: int, broker: int) -> None:
        self._chosen[self._key(row)] = self.picture.brokers[broker]

    def memory(self, before: CompatMemory) -> CompatMemory:
        return replace(before, chosen=self._chosen.copy())


class _PlannedAvg(_Rule):
    """`AvgShedder.selectBrokerForBundle` of 5.0: the planned target of this attempt; without one, any broker.

    If the target is overloaded, another broker that is not replaces it. If it is not a candidate, any does, except the
    source.
    """

    def start(self, memory: CompatMemory) -> None:
        self._planned, self._rows = memory.planned, {broker: row for row, broker in enumerate(self.picture.brokers)}
        scores = self.picture.usage(self.params) * 100
        self._overloaded: Bools = scores > self.params.overloaded_threshold_percent

    def allowed(self, row: int, candidates: Ints) -> Ints:
        plan = self._planned.get(self.picture.bundles.names[row]) if row >= 0 else None
        if plan is None:
            return candidates
        source, target = (self._rows[broker] for broker in plan)
        others: Ints = candidates[candidates != source]
        if target not in candidates:
            return others
        healthy: Ints = others[(others != target) & ~self._overloaded[others]]
        return healthy if self._overloaded[target] and len(healthy) else np.array([target])

    def memory(self, before: CompatMemory) -> CompatMemory:
        return replace(before, planned={})


_RULES: dict[str, type[_Rule]] = {
    "least_long_term_message_rate": _LeastLongTermMessageRate,
    "least_resource_usage": _LeastResourceUsage,
    "round_robin": _RoundRobin,
    "avg": _Avg,
}
