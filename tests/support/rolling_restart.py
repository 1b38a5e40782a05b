"""A rolling restart of equal brokers on the virtual cluster: each broker is drained, stops, and starts again.

The order is that of a StatefulSet: from the highest ordinal to 0. The guard's memory and the warm-ups are those of the
sidecar. Each broker's restart makes another sidecar the leader, one that has just started.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from bundlekeel.leader.gate.guard_state import GuardMemory
from bundlekeel.leader.state.cycle_state import BrokerChanges
from bundlekeel.planning.engine import PlanInput, PlanResult
from bundlekeel.planning.guard.state import GuardState
from bundlekeel.requests.warm import WARM_PLANS
from bundlekeel.simulator.balancers import Bundlekeel, RunBooks, reported
from bundlekeel.simulator.reports import broker_id
from bundlekeel.simulator.run import DEFAULT, Simulation
from bundlekeel.simulator.scenario import BrokerGroup, Scenario, Tenant
from bundlekeel.simulator.virtual_time import run_virtually

# A drain that takes longer than this has failed.
_LONGEST_DRAIN = 3600.0
_AFTERWARDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Result of a rolling restart, relative to the optimum.

    `moves`: moves per bundle divided by 1 + 2/n. `peak`: highest load of a broker divided by n/(n-1) of the mean.
    `imbalance`: highest load divided by the mean, at the end.
    """

    moves: float
    peak: float
    imbalance: float


class _Books(RunBooks):
    """The books of a run, with the brokers under warm-up that the last plans found warm."""

    def __init__(self) -> None:
        super().__init__()
        self.ready: Counter[str] = Counter()

    def plan(self, inputs: PlanInput) -> PlanResult:
        result = super().plan(inputs)
        self.ready = Counter({broker: self.ready[broker] + 1 for broker, done in result.ready.items() if done})
        return result


class RollingRestart:
    """`away`: seconds from the stop to the start of a broker; `pause`: from its start to the next drain.

    As the hook of the broker's container does, a warm-up is requested after each start.
    """

    def __init__(self, brokers: int, *, away: float, pause: float) -> None:
        tenant = Tenant(name="t/a", bundles=30 * brokers, usage=0.45, zipf=0.4, largest=0.05, start="balanced")
        scenario = Scenario(name="r", title="r", minutes=1, brokers=(BrokerGroup(count=brokers),), tenants=(tenant,))
        self.simulation = Simulation(scenario, DEFAULT, seed=1)
        assert isinstance(self.simulation.balancer, Bundlekeel)
        self.balancer, self.cluster, self.books = self.simulation.balancer, self.simulation.cluster, _Books()
        self.balancer.books = self.books
        self.memory, self.known = GuardMemory(deque[dict[str, Any]]), BrokerChanges()
        self.away, self.pause = away, pause
        self.warming: frozenset[str] = frozenset()
        self.peak = 0.0

    def measure(self) -> Measured:
        """Run the rolling restart and the time after it."""
        run_virtually(self._run())
        count, load = len(self.cluster.capacity), self.cluster.settled_load()
        moves = len(self.cluster.moved) / len(self.cluster.bundles.names)
        return Measured(
            moves=moves / (1 + 2 / count),
            peak=self.peak / (load.mean() * count / (count - 1)),
            imbalance=float(load.max() / load.mean()),
        )

    async def _run(self) -> None:
        assert self.balancer.live is not None
        reading = asyncio.create_task(self.balancer.live.run())
        await self._pass(120)
        for broker in reversed(range(len(self.cluster.capacity))):
            await self._restart(broker)
        await self._pass(_AFTERWARDS)
        reading.cancel()

    async def _restart(self, broker: int) -> None:
        name, cluster = broker_id(broker), self.cluster
        self.warming -= {name}
        until = cluster.now + _LONGEST_DRAIN
        while len(cluster.rows_of(broker)) or cluster.under_way():
            assert cluster.now < until, "the drain does not end"
            await self._step({name})
        cluster.drain(broker)
        # A new sidecar leads. It knows of earlier restarts only what the last leader stored.
        self.known, self.memory = self.memory.changes, GuardMemory(deque[dict[str, Any]])
        await self._pass(self.away, {name})
        cluster.start(broker)
        self.warming |= {name}
        await self._pass(self.pause)

    async def _pass(self, seconds: float, draining: Collection[str] = ()) -> None:
        until = self.cluster.now + seconds
        while self.cluster.now < until - 1e-6:
            await self._step(draining)

    async def _step(self, draining: Collection[str]) -> None:
        now, shut = self.cluster.wall_ms, frozenset(draining)
        quiet = self.balancer.params.rollout_quiet_seconds
        self.memory.see(reported(self.cluster), now, shut, quiet, known=self.known)
        self.warming |= self.memory.rolled_out(now, quiet) - shut
        self.warming -= {broker for broker, plans in self.books.ready.items() if plans >= WARM_PLANS}
        guard = GuardState(cordoned=shut, draining=shut, warming=self.warming)
        self.balancer.guard = self.memory.state(guard, self.balancer.ledger, now)
        await self.simulation.step()
        self.peak = max(self.peak, float(self.cluster.settled_load().max()))
