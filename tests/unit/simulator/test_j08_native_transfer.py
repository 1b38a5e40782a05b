"""The brokers' own TransferShedder in the simulator: its loop, its tables, and its splits."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from bundlekeel.compat.in_plan import largest
from bundlekeel.model.errors import ConfigError
from bundlekeel.simulator.native import BrokerSplits
from bundlekeel.simulator.native_transfer import NativeTransfer
from bundlekeel.simulator.pairs import native, pair, pairs
from bundlekeel.simulator.run import Simulation, simulate, virtual
from bundlekeel.simulator.scenario import BrokerGroup, Expect, Isolation, Scenario, ScenarioSettings, Tenant
from bundlekeel.simulator.virtual_time import run_virtually

MINUTE = 60.0


def scenario(**changes: object) -> Scenario:
    """Two of three brokers have nothing; the other one has 30 bundles."""
    result = Scenario(
        name="made",
        title="made",
        minutes=30.0,
        brokers=(BrokerGroup(count=3),),
        tenants=(Tenant(bundles=30, usage=0.25, owners=(0,)),),
        expect=Expect(),
    )
    return replace(result, **changes)  # type: ignore[arg-type]


def ran(minutes: float, case: Scenario) -> tuple[Simulation, NativeTransfer]:
    """The class on a scenario for a while."""
    running = Simulation(replace(case, minutes=minutes), native("transfer"), 1)
    run_virtually(running.run())
    assert isinstance(running.balancer, NativeTransfer)
    return running, running.balancer


def test_j08_transfer_is_native() -> None:
    """`--against native` and `--pair transfer` run the class; it places in one way only."""
    assert native("transfer").kind == pair("transfer").kind == "native"
    assert [item.label for item in pairs("transfer")] == ["native transfer"]
    with pytest.raises(ConfigError, match="is not one of least_resource_usage"):
        pair("transfer+round_robin")


def test_j08_it_acts_in_the_fourth_minute_and_then_cools_down() -> None:
    """Three hits are not enough; afterwards nothing moves until every broker's data is three minutes past the last."""
    running, balancer = ran(30, scenario())
    moved = [item for item in running.cluster.moved if item.by == "balancer"]
    assert moved[0].at == 4 * MINUTE and moved[0].source == 0 and moved[0].target in (1, 2)
    assert balancer.books.verdicts["CoolDown"] > 0 and balancer.books.verdicts["HitCount"] >= 3
    times = sorted({item.at for item in moved})
    assert all(later - earlier >= 180 for earlier, later in pairwise(times))
    assert len({item.bundle for item in moved}) == len(moved), "bundles are left alone for 30 minutes"


def test_j08_who_gave_or_took_vanishes_until_it_publishes_again() -> None:
    """Both brokers' load is gone at once and back at the next look of the broker at itself; bundles come later."""
    running, balancer = ran(4, scenario())
    assert running.cluster.reporter.visible[0] is None
    assert balancer._picture(running.cluster, [0, 1, 2]).missing == ["b0000:8080"]
    while running.cluster.reporter.visible[0] is None:
        run_virtually(running.step())
    assert running.cluster.now - 4 * MINUTE <= running.scenario.settings.report_interval
    view = balancer._picture(running.cluster, [0, 1, 2])
    assert "b0000:8080" in view.brokers and "b0000:8080" not in view.top


def test_j08_its_score_is_smoothed() -> None:
    """A broker that was busy a minute ago still counts as busy: nine tenths of every look are history."""
    _, balancer = ran(3, scenario())
    score, _ = balancer._smoothed[0]
    assert 0.0 < score <= 1.0 and balancer._smoothed[1][0] < 0.2


def test_j08_bundles_of_namespaces_with_policies_are_not_named() -> None:
    """`loadBalancerSheddingBundlesWithPoliciesEnabled` is off; and nothing goes where a policy forbids it."""
    tenants = (Tenant(name="gold/one", bundles=20, usage=0.2, owners=(0,)), Tenant(bundles=20, usage=0.1, owners=(0,)))
    isolation = (Isolation(tenant="gold/one", brokers=(0,)),)
    case = scenario(brokers=(BrokerGroup(count=2),), tenants=tenants, isolation=isolation)
    running, _ = ran(30, case)
    moved = [item for item in running.cluster.moved if item.by == "balancer"]
    assert moved and not any(item.bundle.startswith("gold/") for item in moved)
    assert {item.target for item in moved} == {1}


def test_j08_its_largest_bundles_come_lowest_first() -> None:
    traffic = np.array([[0, 0, 3e6, 0], [0, 0, 1e6, 5e6], [0, 0, 1e6, 2e6], [0, 0, 2e6, 0]], dtype=float)
    assert largest(traffic, 10).tolist() == [2, 1, 3, 0]
    assert largest(traffic, 2).tolist() == [3, 0] and largest(traffic, 0).tolist() == [2, 1, 3, 0]


def test_j08_extensible_brokers_split_after_four_looks_and_keep_the_halves() -> None:
    """`SplitScheduler` asks for more than three hits in a row, and unloads nothing."""
    case = scenario(
        tenants=(Tenant(bundles=2, topics=40, usage=0.9, owners=(0,)),), settings=ScenarioSettings(broker_bytes=400e6)
    )
    cluster, _ = virtual(case, 1)
    cluster.begin()
    splits = BrokerSplits(extensible=True)
    divided = []
    for _ in range(5):
        while True:
            cluster.advance()
            splits.turn(cluster)
            if cluster.now % MINUTE < 1e-6:
                break
        divided.append(len(cluster.divided))
    assert divided[:3] == [0, 0, 0] and divided[3] > 0
    assert not cluster.moved


def test_j08_same_seed_same_run() -> None:
    """Byte for byte."""
    first, again = (simulate(scenario(), native("transfer"), 3) for _ in range(2))
    assert first.digest == again.digest and first.measures.moves > 0
