"""The snapshot: duplicates, overrides, digest, immutability, and edges."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bundlekeel.model.capacity import CapacityOverride
from bundlekeel.model.load import BrokerReport, ExcludedBroker
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.snapshot import Snapshot
from bundlekeel.planning.draft import Draft
from bundlekeel.planning.ledger import Ledger
from tests.support.builders import BLIND_NIC, averages_of, bundle_name, cluster, report, snapshot

A, B, C = (bundle_name(number) for number in range(3))


def score(current: Snapshot, row: int = 0) -> float:
    """The predicted score of one broker, with default weights."""
    return float(Draft(current, Ledger(), Parameters()).score[row])


def blind(cpu: float = 0.5) -> BrokerReport:
    """A broker whose CPU is known and whose NIC is not; 80 MB/s and 80,000 msg/s, half each way."""
    return report("vm:1", {A: 0.5, B: 0.3}, cpu=cpu)


def test_brokers_are_sorted_and_bundles_grouped_by_owner() -> None:
    """Rule: rows follow broker ids, whatever the order of the reports."""
    current = snapshot([report("b:1", {A: 0.1}), report("a:1", {B: 0.2, C: 0.3})])
    assert current.brokers.ids == ("a:1", "b:1")
    assert current.bundles.names == (B, C, A)
    assert current.bundles.starts.tolist() == [0, 2, 3]
    assert current.bundles.owner.tolist() == [0, 0, 1]


def test_bundle_reported_twice_belongs_to_the_newer_report() -> None:
    """Rule: in transit two brokers name a bundle; the newer one owns it, and the other's sum is without it."""
    current = snapshot([report("a:1", {A: 0.1, B: 0.2}, last_update=1), report("b:1", {A: 0.1}, last_update=2)])
    assert current.bundles.names == (B, A)
    assert current.bundles.owner.tolist() == [0, 1]
    assert current.brokers.traffic[:, 2].tolist() == pytest.approx([10e6, 5e6])


def test_equally_new_reports_give_it_to_the_first_broker() -> None:
    """Rule: a tie is decided by broker id, so that the same input gives the same snapshot."""
    one = snapshot([report("b:1", {A: 0.1}), report("a:1", {A: 0.1})])
    other = snapshot([report("a:1", {A: 0.1}), report("b:1", {A: 0.1})])
    assert one.bundles.owner.tolist() == [0]
    assert one.digest == other.digest


def test_empty_cluster_and_brokers_without_bundles() -> None:
    """Rule: no report, no bundle, no namespace is a picture like any other."""
    nothing = snapshot([])
    assert (len(nothing.brokers), len(nothing.bundles), nothing.registered) == (0, 0, 0)
    idle = snapshot([report("a:1", {}), report("b:1", {})])
    assert idle.bundles.starts.tolist() == [0, 0, 0]


def test_excluded_brokers_count_as_registered() -> None:
    """Rule: a broker whose record is unusable is alive."""
    current = snapshot([report("a:1", {})], excluded=[ExcludedBroker(broker_id="z:1", code="NotJson")])
    assert current.registered == 2
    assert current.broker_row("z:1") == -1


def test_system_bundles_are_marked() -> None:
    """Rule: heartbeat, SLA and pulsar/system bundles are known by their namespace."""
    names = [
        "pulsar/host:8080/0x00000000_0xffffffff",
        "pulsar/c/host:8080/0x00000000_0xffffffff",
        "sla-monitor/c/host:8080/0x00000000_0xffffffff",
        "pulsar/system/0x00000000_0xffffffff",
        A,
    ]
    current = snapshot([report("a:1", dict.fromkeys(names, 0.1))])
    assert current.bundles.system.tolist() == [True, True, True, True, False]


def test_arrays_are_read_only_and_not_shared() -> None:
    """Rule: a snapshot is frozen; neither a strategy nor the owner of a report can change it."""
    source = report("a:1", {A: 0.1})
    current = snapshot([source])
    with pytest.raises(ValueError, match="read-only"):
        current.brokers.usage[0, 0] = 1.0
    with pytest.raises(ValueError, match="read-only"):
        current.bundles.short[0, 0] = 1.0
    source.bundle_traffic[0, 0] = 7.0
    assert current.bundles.latest[0, 0] != 7.0


@pytest.mark.parametrize("change", ["usage", "limit", "traffic", "last_update", "start_timestamp", "bundle_traffic"])
def test_digest_tells_apart_what_a_plan_reads(change: str) -> None:
    """Rule: equal digests mean equal input, so every figure that a plan reads changes it."""
    base = report("a:1", {A: 0.1})
    value = getattr(base, change)
    other = replace(base, **{change: value + 1})
    averages = averages_of([base])
    assert snapshot([base], averages=averages).digest == snapshot([base], averages=averages).digest
    assert snapshot([base], averages=averages).digest != snapshot([other], averages=averages).digest


def test_digest_covers_names_owners_averages_and_overrides() -> None:
    """Rule: the same figures with another owner, history or source of a resource are another picture."""
    base = [report("a:1", {A: 0.1, B: 0.1}), report("b:1", {})]
    ours = snapshot(base)
    assert ours.digest != snapshot([report("a:1", {A: 0.1, C: 0.1}), report("b:1", {})]).digest
    assert ours.digest != snapshot(base, averages=averages_of([report("a:1", {A: 0.9, B: 0.1})])).digest
    assert ours.digest != snapshot(base, excluded=[ExcludedBroker(broker_id="z", code="NotJson")]).digest


def test_values_are_quantised_before_planning() -> None:
    """Rule: the recorded values (three decimals) are those of the plan."""
    current = snapshot([report("a:1", {A: 0.1}, cpu=0.123456789)])
    assert current.brokers.usage[0, 0] == 12.346


# --- capacity overrides ------------------------------------------------------------------------------------


def test_blind_nic_counts_as_nothing() -> None:
    """Rule: a limit of -1000 (a VM's NIC) or 0 is blind: 0 %, whatever the usage."""
    for limit in (BLIND_NIC, 0.0):
        source = report("vm:1", {A: 0.5}, cpu=0.1, usage=np.array([10.0, 0.0, 5e5, 5e5]))
        current = snapshot([replace(source, limit=np.array([100.0, 0.0, limit, limit]))])
        assert current.brokers.percent()[0].tolist() == pytest.approx([10.0, 0, 0, 0, 0, 0])
        assert score(current) == pytest.approx(0.1)


def test_nic_override_takes_the_traffic_where_the_nic_is_blind() -> None:
    """Rule: with `nic_gbps` a blind NIC's usage is the bundles' traffic: 40 MB/s in are 320 Mbit/s of 1 Gbit/s."""
    current = snapshot([blind()], capacity=[CapacityOverride(pattern="vm:1", nic_gbps=1.0)])
    assert current.brokers.percent()[0, 2:4].tolist() == pytest.approx([32.0, 32.0])
    assert current.brokers.from_traffic[0].tolist() == [False, False, True, True, False, False]
    assert current.brokers.overridden == (("bandwidth_in", "bandwidth_out"),)


def test_nic_override_keeps_the_usage_of_a_nic_that_sees() -> None:
    """Rule: where the NIC reports, only the limit is replaced."""
    usage, limit = np.array([50.0, 0.0, 2e5, 4e5]), np.array([100.0, 1024.0, 1e7, 1e7])
    current = snapshot(
        [replace(blind(), usage=usage, limit=limit)], capacity=[CapacityOverride(pattern="*", nic_gbps=1)]
    )
    assert current.brokers.percent()[0, 2:4].tolist() == pytest.approx([20.0, 40.0])


def test_ignore_cpu_leaves_it_out() -> None:
    """Rule: `ignore: cpu` where brokers share a CPU: it counts 0 %, and no bundle presses on it."""
    override = CapacityOverride(pattern="*", throughput=100e6, ignore=("cpu",))
    current = snapshot([blind(cpu=0.99)], capacity=[override])
    assert current.brokers.percent()[0, 0] == 0.0
    assert score(current) == pytest.approx(0.8)


def test_cores_replace_the_cpu_limit() -> None:
    """Rule: `cores: 4` makes half a core one eighth of the CPU."""
    current = snapshot([blind()], capacity=[CapacityOverride(pattern="*", cores=4)])
    assert current.brokers.percent()[0, 0] == pytest.approx(12.5)


@pytest.mark.parametrize(("limit", "expected"), [({"msg_rate": 160e3}, 0.5), ({"throughput": 320e6}, 0.25)])
def test_message_rate_and_throughput_limits(limit: dict[str, float], expected: float) -> None:
    """Rule: these limits exist through overrides only, and follow the traffic in and out together."""
    current = snapshot([blind(cpu=0.0)], capacity=[CapacityOverride(pattern="*", **limit)])
    assert score(current) == pytest.approx(expected)


def test_exact_pattern_beats_glob_beats_regex() -> None:
    """Rule: the most specific override of a broker wins, in whatever order they are given."""
    overrides = [
        CapacityOverride(pattern="/vm.*/", cores=1),
        CapacityOverride(pattern="vm*", cores=2),
        CapacityOverride(pattern="vm:1", cores=4),
    ]
    other = replace(blind(), broker_id="vm:2", bundle_names=(), bundle_traffic=np.zeros((0, 4)))
    other = replace(other, bundle_counts=np.zeros((0, 3), dtype=np.int64))
    assert snapshot([blind(), other], capacity=overrides).brokers.limit[:, 0].tolist() == [400.0, 200.0]


def test_expected_traffic_adds_up_to_the_report() -> None:
    """Rule: averages lag behind a change, but what the bundles are expected to carry is what the broker reports."""
    before = cluster([[0.2, 0.1]])
    after = cluster([[0.4, 0.2]], last_update=5)
    draft = Draft(snapshot(after, averages=averages_of(before)), Ledger(), Parameters())
    assert draft.expected(0).sum(axis=0).tolist() == pytest.approx(after[0].traffic.tolist())
    assert draft.expected(0)[0, 0] == pytest.approx(2 * draft.expected(0)[1, 0])
    assert draft.pressure(0)[:, 0].tolist() == pytest.approx([40.0, 20.0])
