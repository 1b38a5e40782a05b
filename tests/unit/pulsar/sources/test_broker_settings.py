"""How often and how exactly brokers report is read from each of them, not assumed to be stock."""

from __future__ import annotations

from typing import Any

import pytest

from bundlekeel.leader.state.effective_parameters import merging
from bundlekeel.model.errors import AdminTimeout
from bundlekeel.model.parameters import Parameters
from bundlekeel.requests.doctor import examine
from bundlekeel.settings.load import LoadedSettings
from tests.support.builders import bundle_name
from tests.support.memory_admin import Fault
from tests.support.transfer import moves, now
from tests.support.world import BROKERS, FakeCluster, FakeSidecar
from tests.unit.requests.test_doctor import named

CHANGE, SHORTEST, LONGEST = (
    f"loadBalancerReportUpdate{name}" for name in ("ThresholdPercentage", "MinIntervalMillis", "MaxIntervalMinutes")
)
TOP = "loadBalancerMaxNumberOfBundlesInBundleLoadReport"


async def asked(cluster: FakeCluster) -> FakeSidecar:
    """A sidecar that has asked every broker for its configuration."""
    sidecar = await FakeSidecar(cluster).lead()
    endpoints = (await cluster.source.picture()).endpoints
    sidecar.admin.set_endpoints(endpoints)
    await sidecar.config.refresh(endpoints, force=True)
    return sidecar


async def test_a_plan_reckons_with_the_slowest_broker() -> None:
    """Also without `adopt_broker_settings`: facts about the brokers are no preference. Who shows none is stock."""
    cluster = FakeCluster()
    first, second, _ = (cluster.model.static[broker] for broker in BROKERS)
    first |= {CHANGE: "5", SHORTEST: "20000", LONGEST: "30", TOP: "25", "statsUpdateFrequencyInSecs": "30"}
    second |= {CHANGE: "25", SHORTEST: "1000", LONGEST: "soon", TOP: "25", "statsUpdateFrequencyInSecs": "90"}
    sidecar = await asked(cluster)
    parameters = merging(LoadedSettings.defaults())
    got = parameters(sidecar.config.adoptable()).values
    assert (got.report_change_percent, got.report_min_interval_seconds) == (25.0, 20.0)
    assert (got.report_max_interval_seconds, got.report_max_bundles) == (1800.0, 10), "the third broker's bundles"
    assert got.statistics_interval_seconds == 90.0
    first |= {CHANGE: "1", LONGEST: "1"}
    second |= {CHANGE: "1", LONGEST: "1"}
    got = parameters((await asked(cluster)).config.adoptable()).values
    assert (got.report_change_percent, got.report_max_interval_seconds) == (10.0, 900.0), "the third broker's"


async def test_doctor_shows_what_is_used_for_each_broker_and_from_where() -> None:
    """Read from the broker, or the default of its release because it shows none or did not answer."""
    cluster = FakeCluster()
    for broker in BROKERS[:2]:
        cluster.model.static[broker] |= {CHANGE: "5", SHORTEST: "1000", LONGEST: "2", TOP: "3"}
    cluster.model.static[BROKERS[1]][LONGEST] = "4"
    sidecar = await FakeSidecar(cluster).lead()
    fault = Fault(error=AdminTimeout("no answer"))
    sidecar.admin.fail("runtime_configuration", None, None, fault)
    checks = [item for item in await examine(sidecar.doctor_context()) if item.name == "load reports of brokers"]
    assert len(checks) == 3 and all(item.ok for item in checks)
    texts = {broker: next(item.detail for item in checks if item.detail.startswith(broker)) for broker in BROKERS}
    assert f"{LONGEST} 2 (broker)" in texts[BROKERS[0]] and f"{LONGEST} 4 (broker)" in texts[BROKERS[1]]
    assert f"{CHANGE} 5 (broker)" in texts[BROKERS[0]] and f"{TOP} 3 (broker)" in texts[BROKERS[0]]
    assert f"{LONGEST} 15 (default of its release)" in texts[BROKERS[2]]


async def test_doctor_names_brokers_that_report_alike_in_one_line() -> None:
    """A hundred brokers are no hundred lines."""
    sidecar = await FakeSidecar(FakeCluster()).lead()
    found = named(await examine(sidecar.doctor_context()), "load reports of brokers")
    assert found.detail.startswith(f"all {len(BROKERS)} brokers: ")


@pytest.mark.parametrize(("shown", "smallest"), [(10, 21), (20, 11), (0, 1)])
def test_pulsars_class_sees_as_many_bundles_as_the_brokers_publish(shown: int, smallest: int) -> None:
    """Simulated on a modular picture it begins with the smallest that is published; 0: all are."""
    loads = [[0.001 * n for n in range(1, 31)], [0.01]]
    plan = now(loads, compat="4.2", transfer_target_std=0.05, report_max_bundles=shown)
    assert moves(plan)[0][0] == bundle_name(smallest - 1)


def test_stock_values_are_those_of_service_configuration() -> None:
    """10 %, 5 s, 15 min, 10 bundles; tests/parity/test_defaults.py reads them from each release's class."""
    stock = Parameters()
    assert (stock.report_change_percent, stock.report_min_interval_seconds) == (10.0, 5.0)
    assert (stock.report_max_interval_seconds, stock.report_max_bundles) == (900.0, 10)


@pytest.mark.parametrize(("shown", "most"), [(("-1", "10", "20"), 10), (("20", "-1", "0"), 20), (("-1", "-1", "0"), 0)])
async def test_a_plan_expects_the_bundles_of_the_broker_that_reports_fewest(shown: tuple[str, ...], most: int) -> None:
    """0 or less: it reports all of them."""
    cluster = FakeCluster()
    for broker, value in zip(BROKERS, shown, strict=True):
        cluster.model.static[broker][TOP] = value
    assert (await asked(cluster)).config.adoptable()[TOP] == str(most)


async def test_s02_the_settings_of_one_broker_are_not_compared_with_all() -> None:
    """A key that fewer than half of the brokers show has no value that most show: it costs one step, not one each."""
    looked = 0

    class Values(dict[str, str]):
        def get(self, key: str, default: Any = None) -> Any:
            nonlocal looked
            looked += key.startswith("invented")
            return super().get(key, default)

    cluster = FakeCluster()
    config = FakeSidecar(cluster).config
    shown = [Values(a="1", b="1"), Values(a="2", b="1"), Values(a="1", **{f"invented{n}": "" for n in range(1000)})]
    config._entries = {broker: (1, values, 0.0) for broker, values in zip(BROKERS, shown, strict=True)}
    assert config._most_common() == {"a": "1", "b": "1"} and looked == 0
    config._entries = {"b2": (1, shown[1], 0.0), "b1": (1, shown[0], 0.0), "b3": (1, Values(c="1"), 0.0)}
    assert config._most_common() == {"a": "1", "b": "1"}, "of equally many, that of the first ID"
    config._entries = {"b1": (1, Values(a="1"), 0.0), "b0": (1, Values(b="1"), 0.0)}
    assert config._most_common() == {"b": "1"}
