"""Working copy of the cluster for a plan: predicted load of every broker, updated by each move.

The expected traffic of a bundle is its share, by short-term averages, of its broker's reported traffic. So the parts
add up to the whole even while averages lag behind a change. Its pressure on a resource (the usage that it causes) is
the broker's usage times the bundle's share of the traffic: bandwidth in by bytes in, bandwidth out by bytes out, direct
memory by bytes. Its CPU is the learned cost of its messages and bytes (planning/costs.py); the rest of the CPU is the
broker's base and stays. On the target, the pressure is the same absolute amount, compared with the target's own limit,
so brokers may differ in size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bundlekeel.model.load import (
    CPU,
    RATE_IN,
    RATE_OUT,
    REPORTED_RESOURCES,
    THROUGHPUT_IN,
    THROUGHPUT_OUT,
    Floats,
    Ints,
)
from bundlekeel.model.names import find_alike
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import BrokerLoad, Move, Traffic4
from bundlekeel.model.snapshot import Bools, Snapshot, fill_from_traffic
from bundlekeel.planning.costs import NO_COSTS, CostEstimate, CpuCosts, estimate, learn
from bundlekeel.planning.ledger import Ledger, LedgerEntry
from bundlekeel.planning.pressure import shares_of
from bundlekeel.planning.scores import ScoredColumn, score_of, scored_columns, weights_of
from bundlekeel.planning.target_bans import TargetBans
from bundlekeel.planning.targets import Coldest


@dataclass(frozen=True, slots=True)
class _State:
    usage: Floats
    traffic: Floats
    bundles: Ints
    score: Floats


@dataclass(frozen=True, slots=True)
class Offer:
    """Predicted scores of a source and a target broker, for each of several bundles if only this bundle moved.

    `target_after`: infinite if the bundle may not move to the target.
    """

    source_after: Floats
    target_after: Floats


_HUNDRED = np.float32(100)
# A rest below this share of the usage is a rounding error.
EXACT = 1e-6


class Draft:
    """Predicted load of all brokers while one plan is made; each planned move changes it."""

    def __init__(
        self,
        snapshot: Snapshot,
        ledger: Ledger,
        params: Parameters,
        turn: int = 0,
        costs: CpuCosts = NO_COSTS,
        scale: Floats | float = 1.0,
        *,
        learned: tuple[CpuCosts, CostEstimate] | None = None,
    ) -> None:
        """Prepare the draft without moves.

        `turn`: broker row at which `round_robin` continues. `costs`: CPU costs before this snapshot
        (`StrategyMemory.costs`), to which the draft adds the snapshot. `learned`: costs that already include the
        snapshot, with their estimate, instead of `costs`. `scale`: each broker's mean load since its load last changed,
        divided by its last reading, shape (n, 1). It is not applied to traffic from counters, which is exact.
        """
        brokers = snapshot.brokers
        self.costs, known = learned or (learn(costs, snapshot, params, ledger.unsettled()), None)
        self.estimate = known or estimate(self.costs, brokers.ids, brokers.limit[:, CPU])
        self.snapshot, self.params, self.weights = snapshot, params, weights_of(params, snapshot.mode)
        # Pulsar's own classes use wrong limits as reported.
        self.wrong: Bools = brokers.wrong() & (params.compat == "none")
        self.limit: Floats = np.where(self.wrong, 0.0, brokers.limit)
        self._scored = scored_columns(self.limit, self.weights)
        self.reported = score_of(brokers.usage, self.limit, self.weights)
        self.usage = brokers.usage * scale
        self.traffic = brokers.traffic * np.where(snapshot.counted[:, np.newaxis], 1.0, scale)
        self.bundle_count, self.topics = np.diff(snapshot.bundles.starts).astype(np.int64), brokers.topics.copy()
        self.moved, self.in_books, self._leaving = (np.zeros(len(snapshot.bundles), dtype=bool) for _ in range(3))
        self._incoming: Floats = np.zeros_like(brokers.traffic)
        # Namespaces (rows) by brokers (columns) that policies allow, now and before any move; None: no restriction.
        self.allowed: Bools | None = None
        self.permitted: Bools | None = None
        # The brokers that exchange bundles now: all, or one of the groups between which policies forbid moves.
        self.members: Bools = np.ones(len(brokers), dtype=bool)
        # Anti-affinity group of each namespace, and a mask of the namespaces whose group has a move in this draft.
        self._group: Ints | None = None
        self.held: Bools = np.zeros(len(snapshot.bundles.namespaces), dtype=bool)
        self.alike = find_alike(brokers.ids) if snapshot.mode == "extensible" else {}
        # Targets that the guard forbids in addition, and brokers that therefore accept no bundle.
        self.bans: TargetBans | None = None
        # With a wrong CPU limit, the load of a broker is unknown. `uniform` uses traffic instead of the load.
        self.closes_wrong_cpu = params.strategy != "uniform"
        self.closed: Bools = self.wrong[:, CPU] & self.closes_wrong_cpu
        # Brokers to which `max_topics_per_broker` does not apply (`_waive_topic_limit`).
        self._waived: Bools = np.zeros(len(brokers), dtype=bool)
        self.moves: list[Move] = []
        # The broker row with which `round_robin` continues: the one after the last target.
        self.turn = turn
        self._expected, self._pressure = dict[int, Floats](), dict[int, Floats]()
        self._long_rate: Floats | None = None
        self._coldest: Coldest | None = None
        self._apply_ledger(ledger)
        self.score = score_of(self.usage, self.limit, self.weights)
        self._waive_topic_limit()
        self._before = _State(self.usage.copy(), self.traffic.copy(), self.bundle_count.copy(), self.score.copy())

    # --- moves that the snapshot does not show yet ---

    def _apply_ledger(self, ledger: Ledger) -> None:
        if not ledger.entries:
            return
        snapshot, index = self.snapshot, self.snapshot.brokers.rows
        for baseline in ledger.baselines:
            row = index.get(baseline.broker)
            if row is not None:
                host = ~snapshot.brokers.from_traffic[row, :REPORTED_RESOURCES]
                self.usage[row, :REPORTED_RESOURCES][host] = np.array(baseline.usage)[host]
        rows = {snapshot.bundles.names[row]: row for row in snapshot.bundles.rows_named(ledger.bundles())}
        for entry in ledger.entries:
            self._apply_entry(entry, index, rows.get(entry.bundle, -1))
        np.maximum(self.usage, 0.0, out=self.usage)
        np.maximum(self.traffic, 0.0, out=self.traffic)
        fill_from_traffic(self.usage, self.traffic, snapshot.brokers.from_traffic)

    def _apply_entry(self, entry: LedgerEntry, index: Mapping[str, int], bundle_row: int) -> None:
        bundles = self.snapshot.bundles
        owner = int(bundles.owner[bundle_row]) if bundle_row >= 0 else -1
        if bundle_row >= 0:
            self.in_books[bundle_row] = True
        expected = np.array(entry.traffic)
        pressure = np.array(entry.pressure)
        pressure[REPORTED_RESOURCES:] = 0.0
        source, target = index.get(entry.source, -1), index.get(entry.target, -1)
        if source >= 0 and not entry.source_settled:
            self.usage[source] -= pressure
            if owner == source and source != target:
                self._leaving[bundle_row] = True
                self.traffic[source] -= bundles.latest[bundle_row]
                self.bundle_count[source] -= 1
        if target >= 0 and not entry.target_settled:
            self.usage[target] += pressure
            here = owner == target
            self.traffic[target] += expected - (bundles.latest[bundle_row] if here else 0.0)
            self.bundle_count[target] += 0 if here else 1
            if not here:
                self._incoming[target] += expected

    @property
    def usage_before(self) -> Floats:
        """Return each broker's usage before the plan, including earlier moves that reports do not show yet."""
        return self._before.usage

    @property
    def score_before(self) -> Floats:
        """Return each broker's score before the plan, including earlier moves that reports do not show yet."""
        return self._before.score

    @property
    def highest_before(self) -> float:
        """Return the highest of `score_before`."""
        return float(self._before.score.max(initial=0.0))

    def carried(self) -> dict[str, Traffic4]:
        """Return the traffic by broker before the plan, including earlier moves that reports do not show yet.

        Returns {} if no budget limits the traffic that may move.
        """
        if self.params.max_traffic_share_per_cycle >= 1:
            return {}
        return {broker: four(row) for broker, row in zip(self.snapshot.brokers.ids, self._before.traffic, strict=True)}

    # --- pressures and offers ---

    def expected(self, broker: int) -> Floats:
        """Return the expected traffic of each of the broker's reported bundles; shape (n, 4), columns of `TRAFFIC`."""
        expected = self._expected.get(broker)
        if expected is None:
            rows = self.snapshot.bundles.rows_of(broker)
            here = np.where(self._leaving[rows][:, None], 0.0, self.snapshot.bundles.short[rows])
            own = np.maximum(self.traffic[broker] - self._incoming[broker], 0.0)
            totals = here.sum(axis=0)
            expected = here * np.divide(own, totals, out=np.zeros(4), where=totals > 0)
            self._expected[broker] = expected
        return expected

    def pressure(self, broker: int) -> Floats:
        """Return the usage that each reported bundle of the broker causes; shape (n, 6), units of `RESOURCES`."""
        pressure = self._pressure.get(broker)
        if pressure is None:
            pressure = self._pressure[broker] = self._compute_pressure(broker)
        return pressure

    def _compute_pressure(self, broker: int) -> Floats:
        expected, usage = self.expected(broker), self.usage[broker]
        computed: Floats = shares_of(expected, self.traffic[broker]) * usage
        caused = self.estimate.caused(expected, float(self.estimate.factor[broker]))
        whole = float(caused.sum())
        if whole > 0:
            # A very small rest is rounding and counts as 0.
            used = float(usage[CPU])
            computed[:, CPU] = caused / whole * (whole if whole < used * (1 - EXACT) else used)
        return computed

    def base_cpu(self) -> Floats:
        """Return the CPU that no bundle causes, percent of one core; one value per broker, 0 to the broker's usage."""
        caused, used = self.estimate.caused(self.traffic, self.estimate.factor), self.usage[:, CPU]
        base: Floats = np.where((caused > 0) | (self.estimate.cost > 0).any(), used - caused, 0.0)
        return np.where(base > EXACT * used, base, 0.0)

    def base_score(self) -> Floats:
        """Return the score that each broker would keep without any bundle; one value per broker."""
        usage = np.zeros_like(self.usage)
        usage[:, CPU] = self.base_cpu()
        return score_of(usage, self.limit, self.weights)

    def scores(self, usage: Floats, broker: int | Ints) -> Floats:
        """Return the score for each row of `usage`. `broker`: the broker whose limits apply, or one broker per row."""
        scored: Floats | None = None
        for column in self._scored:
            weighted = self._by_column(usage, broker, column)
            scored = weighted if scored is None else np.maximum(scored, weighted)
        return np.zeros(len(usage)) if scored is None else scored / 100

    def _by_column(self, usage: Floats, broker: int | Ints | slice, column: ScoredColumn) -> Floats:
        """Return each usage of one resource in percent of its limit, times the weight of the resource."""
        place, limit32, weight = column
        percent = usage[:, place].astype(np.float32)
        percent /= limit32[broker]
        percent *= _HUNDRED
        weighted: Floats = percent * weight
        return weighted

    def movable(self, broker: int, eligible: Bools) -> Ints:
        """Return the rows of the broker's bundles that may move.

        They are in the mask `eligible`, not moved yet in this plan, and not in the ledger of preallocated bundles
        (moves that load reports do not show yet).
        """
        rows = self.snapshot.bundles.rows_of(broker)
        free = eligible[rows] & ~self.moved[rows] & ~self.in_books[rows]
        movable: Ints = free.nonzero()[0] + rows.start
        return movable

    def offer(self, rows: Ints, source: int, target: int) -> Offer:
        """Return the scores of `source` and `target` if one bundle moved, for each of these bundles (rows)."""
        start = int(self.snapshot.bundles.starts[source])
        pressure = self.pressure(source)[rows - start]
        target_score = self.scores(self.usage[target] + pressure, target)
        if self.allowed is not None:
            # An infinite score excludes a forbidden target from every choice.
            target_score[~self.allowed[self.snapshot.bundles.namespace[rows], target]] = np.inf
        if target in self.alike.get(source, ()):
            target_score[:] = np.inf
        if self.bans is not None:
            target_score[self.bans.forbidden(rows, source, target)] = np.inf
        return Offer(self.without(rows, source), target_score)

    def without(self, rows: Ints, source: int) -> Floats:
        """Return the score that `source` would have without one bundle, for each of these bundles (rows)."""
        pressure = self.pressure(source)[rows - int(self.snapshot.bundles.starts[source])]
        return self.scores(np.maximum(self.usage[source] - pressure, 0.0), source)

    def coldest(self, row: int, source: int) -> tuple[Ints, float]:
        """Return the least loaded brokers that may take this bundle of `source`, and a lower bound for all others.

        The brokers are row numbers, ascending. With the bundle, the score of each other broker would be at least the
        bound.
        """
        cold, columns = self._coldest, self._scored
        if cold is None or len(self.moves) >= cold.until:
            parts = [self._by_column(self.usage, slice(None), column) for column in columns]
            cold = self._coldest = Coldest.select(self.score, self._legal, np.array(parts), columns, len(self.moves))
        pressure = self.pressure(source)[row - int(self.snapshot.bundles.starts[source])]
        coldest: Ints = cold.rows[self._legal[cold.rows] & (cold.rows != source)]
        return coldest, cold.least(pressure[[column for column, _, _ in columns]])

    def with_bundle(self, row: int, source: int, targets: Ints) -> Floats:
        """Return the score that each target would have with the bundle `row` of `source`; infinite if forbidden."""
        pressure = self.pressure(source)[row - int(self.snapshot.bundles.starts[source])]
        scored = self.scores(self.usage[targets] + pressure, targets)
        if self.allowed is not None:
            scored[~self.allowed[self.snapshot.bundles.namespace[row], targets]] = np.inf
        if source in self.alike:
            scored[np.isin(targets, self.alike[source])] = np.inf
        if self.bans is not None:
            scored[self.bans.forbidden_targets(row, source, targets)] = np.inf
        return scored

    def ban(self, bans: TargetBans) -> None:
        """Apply the guard's bans of targets: closed brokers, and brokers to which some bundles may not return yet."""
        self.bans = bans
        self.close(bans.closed)

    def close(self, brokers: Iterable[int]) -> None:
        """Close these brokers (rows), so that they accept no bundle."""
        if rows := list(brokers):
            self.closed[rows] = True
            self._waive_topic_limit()

    def counted(self) -> Bools:
        """Return a mask of the brokers over which the mean is computed.

        These are the members (brokers of the current group) that are not closed, or all members if all are closed.
        """
        mask: Bools = self.members & ~self.closed
        return mask if mask.any() else self.members

    def mean(self) -> float:
        """Return the mean score of the `counted` brokers. `fsum` gives the same bits on any CPU."""
        shared = self.score[self.counted()]
        return math.fsum(shared.tolist()) / len(shared)

    def narrow(self, members: Bools) -> None:
        """Restrict the exchange of bundles to the brokers in this mask (one group of brokers)."""
        self.members, self._coldest = members, None
        self._legal = self._may_take(slice(None))

    def restrict(self, allowed: Bools, group: Ints) -> None:
        """Restrict targets to `allowed`, a mask of namespaces (rows) by brokers (columns).

        `group`: anti-affinity group by namespace, -1: none. After a bundle of a group moves, all other bundles of this
        group stay in this plan, because only the next snapshot shows which targets are allowed for them.
        """
        self.allowed, self._group = allowed, group
        self.permitted = allowed
        self._waive_topic_limit()

    def group_of(self, namespace: int) -> int:
        """Return the number of the anti-affinity group of a namespace (row); -1: none."""
        return -1 if self._group is None else int(self._group[namespace])

    def _hold_group(self, namespace: int) -> None:
        if self.allowed is None or self._group is None or self._group[namespace] < 0:
            return
        if not self.held.any():
            self.allowed = self.allowed.copy()  # The caller's matrix must not change.
        members = self._group == self._group[namespace]
        self.held |= members
        self.allowed[members] = False

    def reachable(self, rows: Ints) -> Bools:
        """Return a mask of the brokers that policies allow for at least one of these bundles."""
        if self.allowed is None or len(rows) == 0:
            return np.ones(len(self.score), dtype=bool)
        mask: Bools = np.any(self.allowed[np.unique(self.snapshot.bundles.namespace[rows])], axis=0)
        return mask

    def legal_targets(self) -> Bools:
        """Return a mask of the members (brokers of the current group) that may take a bundle.

        They are not overloaded (predicted or reported), not closed, and below the topic limit if that applies.
        """
        return self._legal.copy()

    def _may_take(self, rows: Ints | slice | int) -> Bools:
        limit = self.params.overloaded_threshold_percent / 100
        unloaded = (self.score[rows] <= limit) & (self.reported[rows] <= limit)
        legal: Bools = unloaded & (self.has_room(rows) | self._waived[rows]) & ~self.closed[rows] & self.members[rows]
        return legal

    def _waive_topic_limit(self) -> None:
        """Ignore `max_topics_per_broker` if no open broker that policies allow may take more topics.

        Modular brokers do so (`LoadManagerShared.filterBrokersWithLargeTopicCount`). They apply it before
        anti-affinity, so that every broker counts for a namespace of a group. Extensible brokers do not ignore it.
        """
        room = self.has_room() & ~self.closed
        if self.snapshot.mode == "extensible":
            self._waived[:] = False
        elif self.permitted is None or self._group is None:
            self._waived[:] = not room.any()
        else:
            reachable = self.permitted | (self._group >= 0)[:, None]
            self._waived[:] = self.permitted[~(reachable & room).any(axis=1)].any(axis=0)
        self._legal = self._may_take(slice(None))

    def has_room(self, rows: Ints | slice | int = slice(None)) -> Bools:
        """Return a mask of the brokers that may take more topics.

        Modular brokers may have at most `max_topics_per_broker` (`LoadManagerShared.filterBrokersWithLargeTopicCount`),
        extensible ones must have fewer (`BrokerMaxTopicCountFilter`).
        """
        topics, limit = self.topics[rows], self.params.max_topics_per_broker
        room: Bools = topics < limit if self.snapshot.mode == "extensible" else topics <= limit
        return room

    def long_rate(self) -> Floats:
        """Return long-term msg/s in and out per broker (`TimeAverageBrokerData`), including moves of this draft."""
        if self._long_rate is None:
            bundles = self.snapshot.bundles
            per_bundle = bundles.long[:, RATE_IN] + bundles.long[:, RATE_OUT]
            summed = np.bincount(bundles.owner, weights=per_bundle, minlength=len(self.score))
            self._long_rate = summed.astype(np.float64)
        return self._long_rate

    # --- moving ---

    def take(self, row: int, source: int, target: int, *, rule: str, threshold: float, runner_up: int = -1) -> Move:
        """Plan the move of one bundle (row) and update both brokers' predicted load; return the move.

        `rule`, `threshold`: recorded with the move. `runner_up`: second-best target (row); -1: none.
        """
        bundles, ids = self.snapshot.bundles, self.snapshot.brokers.ids
        pressure = self.pressure(source)[row - int(bundles.starts[source])]
        traffic = self.expected(source)[row - int(bundles.starts[source])]
        before = float(self.score[source]), float(self.score[target])
        self._add(source, row, pressure, traffic, -1)
        self._add(target, row, pressure, traffic, 1)
        self._incoming[target] += traffic
        self.moved[row] = True
        self._hold_group(int(bundles.namespace[row]))
        self.turn = (target + 1) % len(ids)
        move = Move(
            bundle=bundles.names[row],
            source=ids[source],
            target=ids[target],
            rule=rule,
            threshold=threshold,
            source_before=before[0],
            source_after=float(self.score[source]),
            target_before=before[1],
            target_after=float(self.score[target]),
            runner_up=ids[runner_up] if runner_up >= 0 else "",
            traffic=four(traffic),
            pressure=tuple(pressure.tolist()),
        )
        self.moves.append(move)
        return move

    def _add(self, broker: int, row: int, pressure: Floats, traffic: Floats, sign: int) -> None:
        """Add a bundle to a broker (`sign` 1), or remove it (-1)."""
        bundles, usage = self.snapshot.bundles, self.usage[broker]
        for total, part in ((usage, pressure), (self.traffic[broker], traffic)):
            (np.add if sign > 0 else np.subtract)(total, part, out=total)
            np.maximum(total, 0.0, out=total)
        # Python floats, because numpy arrays of one value take several times longer.
        percents = (float(np.float32(usage[at]) / limit[broker] * _HUNDRED) * by for at, limit, by in self._scored)
        self.score[broker] = score = max(percents, default=0.0) / 100
        self.bundle_count[broker] += sign
        self.topics[broker] += sign * bundles.counts[row, 0]
        self._legal[broker] = self._may_take(broker)
        if self._coldest is not None:
            self._coldest.changed(broker, score)
        if self._long_rate is not None:
            self._long_rate[broker] += sign * (bundles.long[row, RATE_IN] + bundles.long[row, RATE_OUT])

    def loads(self, admitted: Sequence[Move]) -> tuple[BrokerLoad, ...]:
        """Return each broker's load before and after `admitted` (some or all moves of the draft), in id order."""
        before, after = self._before, _State(self.usage, self.traffic, self.bundle_count, self.score)
        if not len(admitted) == len(self.moves) == np.count_nonzero(self.moved):
            after = self._after(admitted)
        ids = self.snapshot.brokers.ids
        columns = (
            *(state.score for state in (before, after)),
            *(state.traffic[:, RATE_IN] + state.traffic[:, RATE_OUT] for state in (before, after)),
            *(state.traffic[:, THROUGHPUT_IN] + state.traffic[:, THROUGHPUT_OUT] for state in (before, after)),
            *(state.bundles for state in (before, after)),
        )
        return tuple(BrokerLoad(*row) for row in zip(ids, *(column.tolist() for column in columns), strict=True))

    def _after(self, admitted: Sequence[Move]) -> _State:
        """Return the state of the brokers if only these moves of the draft were executed."""
        index, before = self.snapshot.brokers.rows, self._before
        usage, traffic, bundles = before.usage.copy(), before.traffic.copy(), before.bundles.copy()
        for move in admitted:
            for broker, sign in ((index[move.source], -1), (index[move.target], 1)):
                usage[broker] = np.maximum(usage[broker] + sign * np.array(move.pressure), 0.0)
                traffic[broker] = np.maximum(traffic[broker] + sign * np.array(move.traffic), 0.0)
                bundles[broker] += sign
        return _State(usage, traffic, bundles, score_of(usage, self.limit, self.weights))


def four(row: Floats) -> Traffic4:
    """Convert a row of traffic to a tuple."""
    a, b, c, d = row.tolist()
    return a, b, c, d
