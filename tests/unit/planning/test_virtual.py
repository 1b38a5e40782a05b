"""Planning in a virtual cluster that reports as late and as rarely as Pulsar does, driven as the sidecar drives it.

Run with `-s` to see time to balance and number of moves of each case.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from bundlekeel.model.capacity import CapacityOverride
from bundlekeel.model.load import Floats
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import Move, Plan
from bundlekeel.simulator.balancers import CYCLE, Bundlekeel, direct_moves
from bundlekeel.simulator.bundles import build, zipf
from bundlekeel.simulator.cluster import VirtualCluster
from bundlekeel.simulator.scenario import ScenarioSettings, Tenant

BROKER_BYTES = 100e6
Load = Callable[[float], Floats]
# Both directions count towards a throughput limit. The brokers' CPU is then ignored.
BY_THROUGHPUT = (CapacityOverride(pattern="*", throughput=2 * BROKER_BYTES, ignore=("cpu",)),)
BY_CPU: tuple[CapacityOverride, ...] = ()
STOCK = Parameters()
FAST = Parameters(statistics_interval_seconds=1.0, host_usage_interval_seconds=1.0)
FAST_SETTINGS = ScenarioSettings(statistics_interval=1, host_interval=1, report_interval=1, tick=1, land_seconds=2)


def virtual_cluster(
    traffic: Floats | Callable[[float], Floats],
    owner: Sequence[int],
    brokers: int,
    seed: int,
    settings: ScenarioSettings,
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


def skewed(
    brokers: int, bundles: int, usage: float, exponent: float, on: int, seed: int, settings: ScenarioSettings
) -> VirtualCluster:
    """All bundles on the first `on` brokers; which bundle is how large depends on the seed.

    No bundle is larger than 0.7 of a broker's fair share: a larger one needs a split, not a move.
    """
    sizes = zipf(bundles, exponent, largest=0.7 / brokers) * usage * brokers * BROKER_BYTES
    np.random.default_rng(seed).shuffle(sizes)
    return virtual_cluster(sizes, [row % on for row in range(bundles)], brokers, seed, settings)


def tell(case: str, driver: Driver, need: int = -1) -> None:
    """Print the figures of one case."""
    last = max((at for at, _ in driver.moves), default=0.0)
    sys.stdout.write(
        f"\n{case}: {len(driver.moves)} moves (plan on perfect knowledge {need}), balanced (<= 1.25) after "
        f"{driver.balanced_at(1.25):.0f} s, last move at {last:.0f} s, max/mean {imbalance(driver.cluster):.3f}\n"
    )


def step_on_one_of_three(seed: int, capacity: tuple[CapacityOverride, ...], *, fast: bool) -> None:
    """24 Zipf-skewed bundles start on one broker of three."""
    cluster = skewed(3, 24, 0.25, 1.0, 1, seed, FAST_SETTINGS if fast else ScenarioSettings())
    need = direct_moves(cluster, Parameters(), capacity)
    driver = Driver(cluster=cluster, params=FAST if fast else STOCK, capacity=capacity)
    driver.run(1500 if fast else 3600)
    tell(f"step seed {seed} {'fast' if fast else 'stock'} {'throughput' if capacity else 'cpu'}", driver, need)
    assert need > 3
    assert len(driver.moves) <= need + 2
    assert imbalance(driver.cluster) <= 1.15
    assert driver.balanced_at(1.25) <= 240
    assert len({move.bundle for _, move in driver.moves}) == len(driver.moves), "no bundle moved twice"


@pytest.mark.parametrize("fast", [False, True], ids=["stock", "fast"])
@pytest.mark.parametrize("capacity", [BY_THROUGHPUT, BY_CPU], ids=["throughput", "cpu"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_step_is_solved_without_extra_moves(seed: int, capacity: tuple[CapacityOverride, ...], fast: bool) -> None:
    """Rule: nothing is moved because reports do not show the last move yet: at most 2 more than perfect knowledge."""
    step_on_one_of_three(seed, capacity, fast=fast)


@pytest.mark.nightly
@pytest.mark.parametrize("fast", [False, True], ids=["stock", "fast"])
@pytest.mark.parametrize("capacity", [BY_THROUGHPUT, BY_CPU], ids=["throughput", "cpu"])
@pytest.mark.parametrize("seed", range(4, 21))
def test_step_is_solved_for_every_seed(seed: int, capacity: tuple[CapacityOverride, ...], fast: bool) -> None:
    """Rule: the same for seeds 4 to 20."""
    step_on_one_of_three(seed, capacity, fast=fast)


def even(settings: ScenarioSettings, seed: int, load: Load | None = None) -> VirtualCluster:
    """Three brokers with the same 24 Zipf-skewed bundles each, 55 % busy."""
    sizes = np.tile(zipf(24, 1.0, largest=0.2), 3) * 0.55 * BROKER_BYTES
    return virtual_cluster(load or sizes, np.repeat([0, 1, 2], 24).tolist(), 3, seed, settings)


@pytest.mark.parametrize("capacity", [BY_THROUGHPUT, BY_CPU], ids=["throughput", "cpu"])
@pytest.mark.parametrize("params", [STOCK, FAST], ids=["stock", "fast"])
def test_noise_moves_nothing(capacity: tuple[CapacityOverride, ...], params: Parameters) -> None:
    """Rule: +-5 % noise in the rates of a balanced cluster causes no move in two hours."""
    fast = params is FAST
    settings = ScenarioSettings(rate_noise=0.05)
    if fast:
        settings = ScenarioSettings(rate_noise=0.05, statistics_interval=5, host_interval=5)
    driver = Driver(cluster=even(settings, 3), params=params, capacity=capacity)
    driver.run(7200)
    tell("noise", driver)
    assert not driver.moves


@pytest.mark.parametrize("capacity", [BY_THROUGHPUT, BY_CPU], ids=["throughput", "cpu"])
def test_square_wave_moves_nothing_after_its_first_period(capacity: tuple[CapacityOverride, ...]) -> None:
    """Rule: 5 minutes of 25 points more, then 5 minutes even, is taken for a step at first, and for jitter later."""
    sizes = np.tile(zipf(24, 1.0, largest=0.2), 3) * 0.4 * BROKER_BYTES
    hot = np.where(np.arange(72) < 24, sizes * (0.65 / 0.4), sizes)
    cluster = even(ScenarioSettings(), 1, lambda at: hot if at % 600 < 300 else sizes)
    driver = Driver(cluster=cluster, params=STOCK, capacity=capacity)
    driver.run(7200)
    tell("square wave", driver)
    assert all(at < 660 for at, _ in driver.moves)
    assert any(verdict.cost for _, plan in driver.plans for verdict in plan.brokers), "the wave was seen"


def test_lasting_step_of_the_same_height_is_balanced() -> None:
    """Rule: imbalance that the square wave test holds back is acted on when it stays."""
    sizes = np.tile(zipf(24, 1.0, largest=0.2), 3) * 0.4 * BROKER_BYTES
    hot = np.where(np.arange(72) < 24, sizes * (0.65 / 0.4), sizes)
    driver = Driver(cluster=even(ScenarioSettings(), 1, lambda _: hot), params=STOCK, capacity=BY_THROUGHPUT)
    driver.run(1200)
    tell("lasting step", driver)
    assert 0 < len(driver.moves) <= 4
    assert imbalance(driver.cluster) <= 1.15


@pytest.mark.parametrize("capacity", [BY_THROUGHPUT, BY_CPU], ids=["throughput", "cpu"])
def test_restarted_broker_gets_load_again(capacity: tuple[CapacityOverride, ...]) -> None:
    """Rule: a broker that comes back empty is filled within minutes."""
    driver = Driver(cluster=even(ScenarioSettings(), 2), params=STOCK, capacity=capacity)
    driver.run(600)
    assert not driver.moves
    restart(driver.cluster, 1)
    assert imbalance(driver.cluster) > 1.4
    driver.run(3000)
    tell("restart at 600 s", driver)
    assert imbalance(driver.cluster) <= 1.15
    assert driver.balanced_at(1.25) <= 900


def world(seed: int, capacity: tuple[CapacityOverride, ...]) -> None:
    """Seven brokers, 700 bundles, all on three."""
    cluster = skewed(7, 700, 0.55, 1.2, 3, seed, ScenarioSettings())
    need = direct_moves(cluster, Parameters(), capacity)
    driver = Driver(cluster=cluster, params=STOCK, capacity=capacity)
    driver.run(3600)
    tell(f"world seed {seed} {'throughput' if capacity else 'cpu'}", driver, need)
    assert imbalance(driver.cluster) <= 1.15
    if capacity:
        assert len(driver.moves) <= need + 2


@pytest.mark.parametrize("capacity", [BY_THROUGHPUT, BY_CPU], ids=["throughput", "cpu"])
@pytest.mark.parametrize("seed", [1, 2])
def test_world(seed: int, capacity: tuple[CapacityOverride, ...]) -> None:
    """Rule: 7 equal brokers, 55 % mean usage, 700 bundles, Zipf 1.2, all on 3: ends with max/mean <= 1.15."""
    world(seed, capacity)


@pytest.mark.nightly
@pytest.mark.parametrize("capacity", [BY_THROUGHPUT, BY_CPU], ids=["throughput", "cpu"])
@pytest.mark.parametrize("seed", range(3, 21))
def test_world_for_every_seed(seed: int, capacity: tuple[CapacityOverride, ...]) -> None:
    """Rule: the same for seeds 3 to 20."""
    world(seed, capacity)


def test_without_the_ledger_moves_repeat() -> None:
    """Rule: this cluster is late enough for the ledger to matter; without it the same step takes more moves."""
    cluster = skewed(3, 24, 0.25, 1.0, 1, 1, ScenarioSettings())
    need = direct_moves(cluster, Parameters(), BY_THROUGHPUT)
    forgetful = Parameters(
        report_max_interval_seconds=1.0, statistics_interval_seconds=0.1, host_usage_interval_seconds=0.1
    )
    driver = Driver(cluster=cluster, params=forgetful, capacity=BY_THROUGHPUT)
    driver.run(600)
    tell("no ledger", driver, need)
    assert len(driver.moves) > need + 2
