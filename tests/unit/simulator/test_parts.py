"""Parts of the simulator: traffic, bundles, reports, measures, lookups, and what drives them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from bundlekeel.model.errors import ConfigError
from bundlekeel.model.load import CPU, THROUGHPUT_OUT
from bundlekeel.simulator.bundles import GONE, TrafficModel, build, factor_of, zipf
from bundlekeel.simulator.cluster import ANYWHERE, SimulatedMove, VirtualCluster
from bundlekeel.simulator.expectations import ExpectationResult
from bundlekeel.simulator.measures import Curves, balanced_since, imbalance, measure, moved_twice, thrash
from bundlekeel.simulator.native import BrokerSplits
from bundlekeel.simulator.pairs import ALL_PAIRS, native, pair, pairs
from bundlekeel.simulator.run import DEFAULT, STILL, Simulation, simulate, virtual
from bundlekeel.simulator.scenario import (
    BrokerGroup,
    Event,
    Expect,
    Filled,
    Isolation,
    Pin,
    Ramp,
    Recorded,
    Scenario,
    ScenarioSettings,
    Season,
    Tenant,
    Wave,
)

QUIET = ScenarioSettings(cpu_noise=0.0, cpu_base=0.0)


def scenario(**changes: object) -> Scenario:
    """Three brokers, nine equal bundles of 0.1 each, balanced."""
    options = {
        "name": "x",
        "title": "x",
        "minutes": 5.0,
        "brokers": (BrokerGroup(count=3),),
        "tenants": (Tenant(bundles=9, sizes=(0.1,) * 9),),
        "settings": QUIET,
    }
    return Scenario(**{**options, **changes})  # type: ignore[arg-type]


def started(case: Scenario) -> VirtualCluster:
    """A cluster that has just begun."""
    cluster, _ = virtual(case, 1)
    cluster.begin()
    return cluster


# --- traffic ---


def test_zipf_sums_to_one_and_is_capped() -> None:
    assert zipf(10, 1.0).sum() == pytest.approx(1.0)
    assert zipf(10, 0.0).tolist() == pytest.approx([0.1] * 10)
    capped = zipf(10, 2.0, largest=0.2)
    assert capped.max() <= 0.2 + 1e-9 and capped.sum() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("tenant", "minute", "factor"),
    [
        (Tenant(wave=Wave(period=10, high=5, factor=3)), 4.9, 3.0),
        (Tenant(wave=Wave(period=10, high=5, factor=3)), 5.0, 1.0),
        (Tenant(wave=Wave(period=10, high=5, factor=3, start=20)), 12.0, 1.0),
        (Tenant(ramp=Ramp(start=10, end=20, factor=3)), 15.0, 2.0),
        (Tenant(ramp=Ramp(start=10, end=20, factor=3)), 99.0, 3.0),
        (Tenant(season=Season(daily=0.4, peak_hour=14)), 14 * 60.0, 1.4),
        (Tenant(season=Season(daily=0.4, peak_hour=14)), 2 * 60.0, 0.6),
        (Tenant(season=Season(weekend=0.5)), 5 * 1440.0, 0.5),
        (Tenant(season=Season(weekend=0.5)), 7 * 1440.0, 1.0),
        (Tenant(growth_percent_per_day=10), 2 * 1440.0, 1.21),
        (Tenant(recorded=Recorded(step=5, factors=(1.0, 2.0, 4.0))), 7.5, 3.0),
        (Tenant(recorded=Recorded(step=5, factors=(1.0, 2.0, 4.0))), 99.0, 4.0),
    ],
)
def test_factors(tenant: Tenant, minute: float, factor: float) -> None:
    """Each shape at a telling minute."""
    assert factor_of(tenant, minute) == pytest.approx(factor)


def test_correlated_tenants_walk_together() -> None:
    """With full correlation two tenants have the same jitter, with none they do not."""
    for correlation, together in ((1.0, True), (0.0, False)):
        tenants = [Tenant(name=name, jitter=0.2, correlation=correlation) for name in ("t/a", "t/b")]
        traffic = TrafficModel(np.ones(2), np.array([0, 1]), tenants, np.random.SeedSequence(3))
        series = np.array([traffic.topic_loads(60.0 * minute) for minute in range(200)])
        agreement = float(np.corrcoef(series.T)[0, 1])
        assert (agreement > 0.999) is together
        assert 0.1 < series[:, 0].std() < 0.4


# --- bundles ---


def test_bundles_tile_the_hash_range_and_hold_their_topics() -> None:
    """Ranges follow each other, topics hash into their bundle, sizes add up to the usage asked for."""
    tenant = Tenant(name="t/a", namespaces=2, bundles=10, topics=3, usage=0.5, zipf=1.0, topic_zipf=1.0)
    bundles, traffic = build([tenant], np.ones(4), 100e6, np.random.SeedSequence(1))
    assert bundles.names[0].startswith("t/a-0/0x00000000_") and bundles.names[-1].endswith("_0xffffffff")
    assert bundles.lower[1:5].tolist() == bundles.upper[:4].tolist()
    low, high = bundles.lower[bundles.topic_bundle], bundles.upper[bundles.topic_bundle]
    assert ((low <= bundles.topic_hash) & (bundles.topic_hash < high)).all()
    assert traffic.topic_loads(0.0).sum() == pytest.approx(0.5 * 4)


def test_balanced_start_heeds_capacity() -> None:
    """Twice the capacity, twice the load."""
    tenant = Tenant(bundles=300, usage=0.5, zipf=0.5, start="balanced")
    bundles, traffic = build([tenant], np.array([1.0, 2.0]), 100e6, np.random.SeedSequence(1))
    loads = np.bincount(bundles.owner, weights=bundles.loads(traffic.topic_loads(0.0)))
    assert loads[1] / loads[0] == pytest.approx(2.0, rel=0.02)


def test_a_split_divides_topics_and_keeps_their_traffic() -> None:
    """The parent is gone, each topic is in the child that its hash names, and a cut outside is refused."""
    case = scenario(tenants=(Tenant(bundles=1, topics=6, sizes=(0.6,)),))
    cluster = started(case)
    (parent,) = cluster.bundles.names
    children = cluster.split(parent, [1 << 31], by="bundlekeel")
    rows = [cluster.bundles.index[child] for child in children]
    assert cluster.bundles.owner.tolist() == [GONE, 0, 0]
    assert cluster.bundle_loads()[rows].sum() == pytest.approx(0.6)
    for row in rows:
        hashes = cluster.bundles.topic_hash[cluster.bundles.topic_rows(row)]
        assert (hashes >= cluster.bundles.lower[row]).all() and (hashes < cluster.bundles.upper[row]).all()
    with pytest.raises(ValueError, match="cannot be split"):
        cluster.split(children[0], [1 << 31], by="bundlekeel")


# --- reports ---


def test_quiet_brokers_report_every_quarter_of_an_hour() -> None:
    cluster = started(scenario())
    before = [report.last_update for report in cluster.reports()]
    while cluster.now < 14 * 60:
        cluster.advance()
    assert [report.last_update for report in cluster.reports()] == before
    while cluster.now < 17 * 60:
        cluster.advance()
    assert all(report.last_update > old for report, old in zip(cluster.reports(), before, strict=True))


@pytest.mark.parametrize(("growth", "written"), [(1.08, False), (1.5, True)])
def test_reports_follow_changes_above_ten_percent(growth: float, written: bool) -> None:
    """8 % more traffic on a broker of 30 % is neither 10 % nor 10 points; half as much again is, give or take 10 %."""
    case = scenario()
    cluster, traffic = virtual(case, 1)
    cluster.begin()
    traffic.scale = np.array([growth])
    before = cluster.reports()[0].last_update
    while cluster.now < 150:
        cluster.advance()
    after = cluster.reports()[0]
    assert (after.last_update > before) is written
    if written:
        assert after.usage[CPU] == pytest.approx(45.0, abs=0.5)
        assert after.traffic[THROUGHPUT_OUT] == pytest.approx(0.45 * QUIET.broker_bytes, rel=0.1)


def test_late_lost_and_skewed_reports() -> None:
    """A delayed report shows later, a lost one not at all, a fast clock shows in lastUpdate."""
    cluster = started(scenario(brokers=(BrokerGroup(count=2), BrokerGroup(skew_seconds=120))))
    stamps = [report.last_update for report in cluster.reports()]
    assert stamps[2] - stamps[0] == 120_000
    cluster.reporter.delay[0], cluster.reporter.loss[1] = 60.0, 1.0
    version = cluster.reporter.version
    for broker in (0, 1):
        cluster.reporter.write(broker, cluster.now, 0.0, cluster.bundles)
    assert cluster.reporter.version == version
    while cluster.now < 90:
        cluster.advance()
    assert cluster.reporter.version == version + 1


# --- moves, brokers, lookups ---


def test_a_move_takes_time_and_costs_a_gap() -> None:
    """The bundle carries nothing on its way, and its clients wait for as long."""
    cluster = started(scenario(settings=replace(QUIET, land_seconds=12.0)))
    name = cluster.bundles.names[0]
    assert cluster.move(name, 1, by="balancer") and not cluster.move(name, 2, by="balancer")
    landed = cluster.advance()
    assert landed == [] and (cluster._rates()[2] / cluster.capacity).sum() == pytest.approx(0.8)
    assert cluster.settled_load()[1] == pytest.approx(0.4)
    landed += cluster.advance() + cluster.advance()
    assert landed == [(name, "b0001:8080")]
    (moved,) = cluster.moved
    assert (moved.gap, moved.clients, moved.load) == (12.0, 2, pytest.approx(0.1))


def test_bundles_of_a_dead_broker_are_looked_up_elsewhere() -> None:
    result = simulate(scenario(events=(Event(at=1, do="kill", brokers=(0,)),)), STILL, 1)
    assert 0 not in result.cluster.bundles.owner.tolist()
    assert result.cluster.reporter.visible[0] is None
    assert result.measures.client_seconds == pytest.approx(3 * 2 * 32.0)


def test_lookups_prefer_brokers_with_few_bundles_of_the_namespace() -> None:
    """`loadBalancerDistributeBundlesEvenlyEnabled`: the broker with none of them gets it."""
    cluster = started(scenario(tenants=(Tenant(bundles=6, sizes=(0.1,) * 6, owners=(0, 1)),)))
    cluster.move(cluster.bundles.names[0], ANYWHERE, by="person")
    cluster.advance()
    assert cluster.bundles.owner[0] == 2


def test_brokers_split_in_the_middle_of_the_range() -> None:
    cluster = started(scenario(tenants=(Tenant(bundles=1, topics=8, sizes=(0.4,)),)))
    BrokerSplits().turn(cluster)
    (divided,) = cluster.divided
    assert divided.children[0].endswith("0x00000000_0x7fffffff") and divided.by == "brokers"
    assert [move.by for move in cluster.moved] == ["split", "split"]


# --- measures ---


def curves(*rows: tuple[float, ...]) -> Curves:
    """Loads every ten seconds, all brokers there."""
    result = Curves()
    for place, row in enumerate(rows):
        result.add(10.0 * place, np.array(row), np.zeros(len(row)), np.ones(len(row), dtype=bool))
    return result


def test_measures_of_a_small_run() -> None:
    measured_run = measure(curves((0.9, 0.1), (0.9, 0.1), (0.5, 0.5)), [], [])
    assert measured_run.max_over_mean == pytest.approx(1.0)
    assert measured_run.over_minutes == pytest.approx(20 / 60)
    assert measured_run.balanced_minute == pytest.approx(20 / 60)
    assert measured_run.std == pytest.approx(100 * (0.4 + 0.4 + 0.0) / 3)
    assert measure(curves((0.5, 0.5), (0.9, 0.1)), [], []).balanced_minute is None


def test_a_cluster_with_an_empty_broker_is_not_balanced() -> None:
    """Although the fullest of ten is near the mean: 0.5 over 0.45 is below the limit."""
    full = (0.5,) * 9
    measured_run = measure(curves((*full, 0.0), (*full, 0.01), (0.45,) * 10), [], [])
    assert measured_run.max_over_mean == 1.0 and measured_run.balanced_minute == pytest.approx(20 / 60)
    assert measure(curves((*full, 0.0), (*full, 0.0)), [], []).balanced_minute is None


def test_thrash_forgives_a_trend() -> None:
    takes = np.ones((3, 1), dtype=bool)
    assert thrash(np.array([[0.2], [0.4], [0.6]]), takes) == pytest.approx(0.0)
    assert thrash(np.array([[0.4], [0.8], [0.4]]), takes) == pytest.approx(100 * 0.8 / (1.6 / 3))


def test_moved_twice_within_an_hour() -> None:
    """An hour later it is a new decision."""
    moves = [
        SimulatedMove(at=at, bundle=name, source=0, target=1, load=0.1, clients=2, gap=3.0, by="balancer")
        for at, name in ((0, "a"), (3599, "a"), (0, "b"), (3601, "b"))
    ]
    assert moved_twice(moves) == 1


def test_brokers_that_do_not_take_part_do_not_count() -> None:
    """A drained broker is not a badly balanced one."""
    used, takes = np.array([[0.5, 0.5, 0.0]]), np.array([[True, True, False]])
    assert imbalance(used, takes).tolist() == [1.0]
    assert balanced_since(np.array([0.0, 10.0]), np.array([2.0, 1.1]), 1.15) == 10.0


# --- expectations ---


@pytest.mark.parametrize(
    ("expect", "holds"),
    [
        (Expect(balanced=1.01), False),
        (Expect(balanced=3.0), True),
        (Expect(balanced=1.01, balanced_by=1), False),
        (Expect(spread=200.0), True),
        (Expect(spread=1.0), False),
        (Expect(most_moves=0), True),
        (Expect(fewest_moves=1), False),
        (Expect(fewest_splits=1), False),
        (Expect(never_over=50.0), False),
        (Expect(never_over=95.0), True),
        (Expect(most_over_minutes=0.0), False),
        (Expect(most_empty_minutes=1.0), False),
        (Expect(verdicts=("Balanced",)), False),
        (Expect(verdicts_any=("Balanced", "Overloaded")), False),
        (Expect(refusals=("Idle",)), False),
        (Expect(filled=(Filled(broker=2, share=0.5, by=1),)), False),
        (Expect(filled=(Filled(broker=0, share=0.5, by=1),)), True),
        (Expect(no_worse_than_still=True), True),
        (Expect(within_direct=0), True),
        (Expect(steady_after=1, quiet=((0, 5),), untouched=(0,), unmoved=("t/ns",), gain=True, moved_twice=0), True),
    ],
)
def test_expectations_can_hold_and_fail(expect: Expect, holds: bool) -> None:
    case = scenario(tenants=(Tenant(bundles=9, sizes=(0.1,) * 9, owners=(0,)),), expect=expect)
    result = simulate(case, STILL, 1)
    assert (result.failed == ()) is holds
    assert all(isinstance(item, ExpectationResult) and item.detail for item in result.findings)


def test_fewest_and_most_moves_by_the_balancer() -> None:
    case = scenario(
        tenants=(Tenant(bundles=9, sizes=(0.1,) * 9, owners=(0,)),),
        minutes=20.0,
        expect=Expect(fewest_moves=1, most_moves=0, quiet=((0, 20),), untouched=(1, 2), unmoved=("t/ns",)),
    )
    failed = {item.name for item in simulate(case, DEFAULT, 1).failed}
    assert failed == {"most_moves", "quiet", "untouched", "unmoved"}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"minutes": 0.0}, "minutes"),
        ({"brokers": ()}, "brokers"),
        ({"brokers": (BrokerGroup(capacity=-1.0),)}, "brokers.0.capacity"),
        ({"tenants": (Tenant(bundles=2, sizes=(0.1,)),)}, "tenants.0.sizes"),
        ({"tenants": (Tenant(bundles=2),)}, "tenants.0.usage"),
        ({"tenants": (Tenant(name="ns", usage=0.1),)}, "tenants.0.name"),
        ({"tenants": (Tenant(usage=0.1, owners=(3,)),)}, "tenants.0.owners"),
        ({"settings": ScenarioSettings(statistics_interval=7.0)}, "settings.statistics_interval"),
        ({"events": (Event(at=1, do="kill"),)}, "events.0.brokers"),
        ({"events": (Event(at=9, do="add"),)}, "events.0.at"),
        ({"events": (Event(at=1, do="scale", tenant="t/other"),)}, "events.0.tenant"),
        ({"events": (Event(at=1, do="bad", brokers=(0,)),)}, "events.0.kind"),
        ({"pins": (Pin(tenant="t/ns", bundle=9, until=1),)}, "pins.0.bundle"),
        ({"isolation": (Isolation(tenant="t/x", brokers=(0,)),)}, "isolation.0.tenant"),
        ({"parameters": {"move_price": -1}}, "move_price"),
        ({"expect": Expect(verdicts=("Blanced",))}, "expect.verdicts"),
        ({"expect": Expect(balanced_by=3.0)}, "expect.balanced_by"),
    ],
)
def test_senseless_scenarios_are_refused_by_field(changes: dict[str, object], field: str) -> None:
    """The error names the field and repeats the value."""
    with pytest.raises(ConfigError) as caught:
        simulate(scenario(**changes), STILL, 1)
    assert caught.value.field == field
    assert field in str(caught.value)


def test_all_events_run() -> None:
    case = scenario(
        minutes=30.0,
        brokers=(BrokerGroup(count=6),),
        events=(
            Event(at=1, do="add", count=2, capacity=2.0),
            Event(at=2, do="kill", brokers=(0,)),
            Event(at=4, do="drain", brokers=(1,)),
            Event(at=5, do="restart", brokers=(2, 3), minutes=1),
            Event(at=9, do="scale", tenant="t/ns", factor=1.5),
            Event(at=10, do="foreign", brokers=(4,), factor=0.5),
            Event(at=11, do="skew", brokers=(4,), seconds=30),
            Event(at=12, do="lose", brokers=(5,), factor=1.0, minutes=2),
            Event(at=13, do="delay", brokers=(5, 7), seconds=30, minutes=2),
            Event(at=14, do="bad", brokers=(6,), kind="nan", minutes=2),
            Event(at=16, do="unload", tenant="t/ns", bundle=3),
            Event(at=17, do="shedding", minutes=2),
        ),
    )
    result = simulate(case, replace(DEFAULT, source="reports"), 1)
    assert result.failed == ()
    assert result.cluster.takes.tolist() == [False, False, *[True] * 6]
    assert result.books.verdicts["BrokersShedThemselves"] == 12
    assert result.books.refusals["NotANumber"] > 0
    assert result.cluster.bundle_loads().sum() == pytest.approx(1.35)
    assert result.cluster.reporter.loss.max() == 0.0 and result.cluster.reporter.delay.max() == 0.0


def test_pairs_are_checked_and_complete() -> None:
    """Six pairs of PIP-364, avg and transfer; unknown names are refused."""
    assert len(pairs("all")) == len(ALL_PAIRS) == 8
    assert pair("threshold").parameters["placement"] == "least_resource_usage"
    assert pair("deviation").kind == "bundlekeel" and pair("avg").kind == "native"
    for text in ("avgg", "avg+nowhere", "transfer+round_robin"):
        with pytest.raises(ConfigError, match="is not one of"):
            pair(text)


@pytest.mark.parametrize(("release", "ratio", "evenly"), [("4.2", 0.2, True), ("5.0", 0.5, False)])
def test_natives_have_the_defaults_of_their_release(release: str, ratio: float, evenly: bool) -> None:
    """maxUnloadPercentage and loadBalancerDistributeBundlesEvenlyEnabled."""
    running = Simulation(scenario(minutes=1.0), native("avg", release), 1)
    assert (running.params.compat, running.params.max_unload_ratio) == (release, ratio)
    assert running.cluster.settings.evenly is evenly


def test_native_draws_are_seeded() -> None:
    """Random placement is the same for the same seed."""
    case = scenario(minutes=30.0, tenants=(Tenant(bundles=30, usage=0.3, owners=(0,)),))
    first, again, other = (simulate(case, pair("uniform"), seed) for seed in (1, 1, 2))
    assert first.digest == again.digest != other.digest
    assert math.isfinite(first.measures.max_over_mean) and first.measures.moves > 0
