"""The simulator's virtual cluster with loads given in bytes/s and without scenario: for tests of planning in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from bundlekeel.model.capacity import CapacityOverride
from bundlekeel.model.load import Floats
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import Move, Plan
from bundlekeel.simulator.balancers import CYCLE, Bundlekeel, direct_moves
from bundlekeel.simulator.bundles import build, zipf
from bundlekeel.simulator.cluster import VirtualCluster
from bundlekeel.simulator.scenario import ScenarioSettings, Tenant

BROKER_BYTES = ScenarioSettings().broker_bytes
Load = Callable[[float], Floats]

__all__ = ["Driver", "Load", "ScenarioSettings", "imbalance", "perfect_moves", "restart", "virtual_cluster", "zipf"]


def virtual_cluster(
    traffic: Floats | Load, owner: Sequence[int], brokers: int, seed: int, settings: ScenarioSettings
) -> VirtualCluster:
    """Bundles of one topic each. `traffic`: bytes/s each way of every bundle, or a function of the time in seconds."""
    for_bundles, for_cluster = np.random.SeedSequence(seed).spawn(2)
    count = len(owner)
    tenant = Tenant(bundles=count, sizes=(0.0,) * count)
    bundles, _ = build([tenant], np.ones(brokers), settings.broker_bytes, for_bundles)
    bundles.owner = np.array(owner, dtype=np.int64)
    loads: Load = traffic if callable(traffic) else lambda _: traffic
    cluster = VirtualCluster(bundles, lambda at: loads(at) / BROKER_BYTES, np.ones(brokers), settings, for_cluster)
    cluster.begin()
    return cluster


def imbalance(cluster: VirtualCluster) -> float:
    """Return the highest load divided by the mean. Bundles in transit count at their destination."""
    carried = cluster.settled_load()
    return float(carried.max() / carried.mean())


def restart(cluster: VirtualCluster, broker: int) -> None:
    """Restart a broker: it is empty, and the other brokers have got its bundles in turn."""
    others = [number for number in range(len(cluster.capacity)) if number != broker]
    cluster.drain(broker)
    cluster.start(broker)
    for place, (_, _, row, _) in enumerate(sorted(cluster._landing, key=lambda item: item[1])):
        cluster.bundles.owner[row] = others[place % len(others)]
    cluster._landing = []
    cluster._owners += 1


@dataclass(kw_only=True)
class Driver:
    """Runs cycles on a virtual cluster, with the same averages and ledger as in the sidecar."""

    cluster: VirtualCluster
    params: Parameters
    capacity: tuple[CapacityOverride, ...] = ()
    moves: list[tuple[float, Move]] = field(default_factory=list)
    plans: list[tuple[float, Plan]] = field(default_factory=list)
    curve: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """The simulator's balancer, with every plan kept."""
        self.balancer = Bundlekeel(params=self.params, capacity=self.capacity)
        self.balancer.books.keep = lambda at, plan: self.plans.append((at, plan))
        self.moves = self.balancer.books.moves

    def run(self, seconds: float) -> None:
        """Let time pass, with a cycle every ten seconds."""
        until = self.cluster.now + seconds
        while self.cluster.now < until - 1e-6:
            self.balancer.turn(self.cluster, self.cluster.advance())
            if self.cluster.now % CYCLE < 1e-6:
                self.curve.append((self.cluster.now, imbalance(self.cluster)))

    def balanced_at(self, limit: float) -> float:
        """Return the time from which max/mean stays at or below `limit`; infinity if it does not."""
        later = [at for at, value in self.curve if value > limit]
        return 0.0 if not later else (later[-1] + CYCLE if later[-1] < self.curve[-1][0] else float("inf"))


def perfect_moves(cluster: VirtualCluster, capacity: tuple[CapacityOverride, ...]) -> int:
    """Return how many moves the plan needs when reports are current and budgets are unlimited. Moves nothing."""
    return direct_moves(cluster, Parameters(), capacity)
