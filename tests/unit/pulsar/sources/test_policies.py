"""The sidecar and policies: read each cycle, asked once more before each move, answered for without a side effect."""

from __future__ import annotations

from typing import Any

import pytest

from bundlekeel.leader.cycle.plan_responses import PlanRequest
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import ConfigError, NotFound, SnapshotError
from bundlekeel.model.names import bundle_for_hash, parse_topic
from bundlekeel.model.policies import IsolationPolicy, Policies
from bundlekeel.requests.assignments import assignments
from tests.support.world import BROKERS, FakeCluster, FakeSidecar, with_params
from tests.unit.leader.cycle.test_plan_metrics import values as metric

PLACEMENT = "loadBalancerLoadPlacementStrategy"
QUARTERS = [0, 0x40000000, 0x80000000, 0xC0000000, 0xFFFFFFFF]
ONLY_FIRST = IsolationPolicy(name="gold", namespaces=("t/ns",), primary=("b1",), min_limit=1)


def isolated(cluster: FakeCluster, *policies: IsolationPolicy) -> None:
    """The cluster has these policies from now on."""
    cluster.metadata.isolation["local"] = policies


async def test_a_bundle_that_only_its_broker_may_hold_is_never_unloaded() -> None:
    """Scenario 12 through the whole sidecar; without the policy the same cluster is balanced."""
    cluster = FakeCluster()
    isolated(cluster, ONLY_FIRST)
    sidecar = await FakeSidecar(cluster).lead()
    report = await sidecar.cycle.turn()
    assert report.plan is not None
    assert {item.code for item in report.plan.refusals} == {Code.POLICY_FORBIDS}
    assert not report.outcomes and not cluster.model.unloads
    rows = sidecar.service.bundles()
    assert {(row.may_move, row.code) for row in rows} == {(False, "PolicyForbids")}
    answer = await sidecar.service.why(rows[0].bundle)
    assert answer.codes[0].code == "PolicyForbids" and "policy" in answer.what_would_change_it
    isolated(cluster)
    assert (await sidecar.cycle.turn()).outcomes


async def test_n_m_a_policy_that_matches_no_broker_is_named() -> None:
    cluster = FakeCluster()
    isolated(
        cluster,
        IsolationPolicy(name="gold", namespaces=("t/ns",), primary=("b1:8080",), secondary=("b9",), min_limit=1),
        IsolationPolicy(name="other", namespaces=("t/other",), primary=("b[12]",), secondary=("b.",), min_limit=1),
    )
    sidecar = await FakeSidecar(cluster).lead()
    report = await sidecar.cycle.turn()
    assert report.plan is not None and not report.plan.moves
    detail = "isolation policy gold matches no broker"
    for row in sidecar.service.bundles():
        assert (row.may_move, row.code) == (False, "PolicyWithoutBrokers")
        answer = await sidecar.service.why(row.bundle)
        assert (answer.codes[0].code, answer.codes[0].detail.partition(";")[0]) == ("PolicyWithoutBrokers", detail)
        assert "without ports" in answer.what_would_change_it
    assert metric(sidecar.telemetry, "isolation_policy_brokers") == {
        ("gold", "primary"): 0.0,
        ("gold", "secondary"): 0.0,
        ("other", "primary"): 2.0,
        ("other", "secondary"): 1.0,
    }
    refusal = await sidecar.policies.forbids("t/ns/0x00000000_0x00010000", BROKERS[1])
    assert refusal is not None and (refusal.code, refusal.detail) == (Code.POLICY_WITHOUT_BROKERS, detail)
    isolated(cluster)
    assert (await sidecar.cycle.turn()).outcomes
    assert metric(sidecar.telemetry, "isolation_policy_brokers") == {}


async def test_n_m_repairs_are_off_by_default_and_shown_by_dry_runs() -> None:
    """All bundles are on the first broker, and the policy is created later, for the other two."""
    cluster = FakeCluster()
    isolated(cluster, IsolationPolicy(name="gold", namespaces=("t/ns",), primary=("b[23]",), min_limit=1))
    calm = {"strategy": "threshold", "threshold_percent": 100.0}
    sidecar = await FakeSidecar(cluster, params=with_params(**calm)).lead()
    report = await sidecar.cycle.turn()
    assert report.plan is not None and not report.plan.moves
    dry_run = await sidecar.service.make_plan(PlanRequest())
    assert dry_run.moves and {move.rule for move in dry_run.moves} == {"repair"}
    assert dry_run.verdict.code == "Repair" and "placement.repair is off" in dry_run.verdict.sentence
    without = await sidecar.service.make_plan(PlanRequest(parameters={"placement_repair": False}))
    assert not without.moves
    on = await FakeSidecar(FakeCluster(), params=with_params(**calm, placement_repair=True)).lead()
    isolated(on.cluster, IsolationPolicy(name="gold", namespaces=("t/ns",), primary=("b[23]",), min_limit=1))
    report = await on.cycle.turn()
    assert report.plan is not None and report.code is Code.REPAIR
    assert {item.outcome for item in report.outcomes} == {"done"} and len(report.outcomes) == len(dry_run.moves)
    rules = metric(on.telemetry, "moves_by_rule_total")
    assert sum(count for labels, count in rules.items() if "repair" in labels) == len(report.outcomes)


@pytest.mark.parametrize("fault", ["record", "namespace", "cluster"])
async def test_what_cannot_be_read_stops_moves_and_says_so(fault: str) -> None:
    """Never taken for "no policy": a record is broken, or no broker names its cluster."""
    cluster = FakeCluster()
    if fault == "record":
        cluster.metadata.isolation["local"] = "policy gold is broken"
    elif fault == "namespace":
        cluster.metadata.unreadable.add("t/ns")
    else:
        for values in cluster.model.static.values():
            del values["clusterName"]
    sidecar = await FakeSidecar(cluster).lead()
    report = await sidecar.cycle.turn()
    assert report.plan is not None and not report.plan.moves
    assert {item.code for item in report.plan.refusals} == {Code.POLICY_UNREADABLE}
    assert not cluster.model.unloads
    cluster.metadata.unreadable.clear()
    cluster.metadata.isolation.clear()
    for values in cluster.model.static.values():
        values["clusterName"] = "local"
    assert (await sidecar.cycle.turn()).outcomes


async def test_switches_come_from_the_brokers() -> None:
    cluster = FakeCluster()
    sidecar = await FakeSidecar(cluster, mode="recommend").lead()
    await sidecar.cycle.turn()
    assert sidecar.policies.current == Policies()
    for values in cluster.model.static.values():
        values |= {
            "failureDomainsEnabled": "true",
            "loadBalancerDistributeBundlesEvenlyEnabled": "false",
            "preferLaterVersions": "TRUE",
            "loadManagerClassName": "m.Modular",
        }
    cluster.metadata.domains["local"] = {"east": (BROKERS[0],)}
    cluster.metadata.groups["t/ns"] = "g"
    await sidecar.cycle.turn()
    assert sidecar.policies.current == Policies(
        failure_domains_enabled=True,
        distribute_evenly=False,
        prefer_later_versions=True,
        load_manager="m.Modular",
        failure_domains={"east": (BROKERS[0],)},
        anti_affinity={"t/ns": "g"},
    )


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda cluster: isolated(cluster, ONLY_FIRST), "PolicyForbids"),
        (lambda cluster: cluster.metadata.unreadable.add("t/ns"), "PolicyUnreadable"),
        (lambda cluster: setattr(cluster.metadata, "suspended", True), "StoreUnavailable"),
    ],
)
async def test_policies_are_asked_once_more_before_each_move(change: Any, code: str) -> None:
    """A policy made after the plan stops its moves; nothing was unloaded."""
    cluster = FakeCluster()
    sidecar = await FakeSidecar(cluster).lead()
    sidecar.cycle.adopt(sidecar.cycle.cycle_state, sidecar.leadership.epoch)
    observing = FakeSidecar(cluster, "b", mode="recommend")
    plan = (await observing.cycle.turn()).plan
    assert plan is not None and plan.moves
    snapshot, picture = await sidecar.observer.snapshot()
    sidecar.admin.set_endpoints(picture.endpoints)
    await sidecar.config.refresh(picture.endpoints)
    await sidecar.policies.refresh(snapshot)
    change(cluster)
    epoch = sidecar.leadership.epoch
    assert epoch is not None
    outcomes = await sidecar.executor.carry_out(plan.moves, epoch=epoch, cycle=1, on_outcome=lambda _: None)
    assert {(item.outcome, item.code) for item in outcomes} == {("refused", code)}
    assert not cluster.model.unloads


async def test_a_destination_nobody_knows_is_forbidden() -> None:
    cluster = FakeCluster()
    sidecar = await FakeSidecar(cluster, mode="recommend").lead()
    early = await sidecar.policies.forbids("t/ns/0x00000000_0x00010000", BROKERS[1])
    assert early is not None and early.code is Code.POLICY_UNREADABLE
    await sidecar.cycle.turn()
    assert await sidecar.policies.forbids("t/ns/0x00000000_0x00010000", BROKERS[1]) is None
    isolated(cluster, IsolationPolicy(name="p", namespaces=("t/other",), primary=("b3",)))
    for bundle, broker, code in (
        ("t/ns/0x00000000_0x00010000", BROKERS[1], None),
        ("t/ns/0x00000000_0x00010000", BROKERS[2], Code.POLICY_FORBIDS),
        ("t/ns/0x00000000_0x00010000", "gone:8080", Code.POLICY_FORBIDS),
        ("t/new/0x00000000_0x00010000", BROKERS[1], None),
        ("t/other/0x00000000_0x00010000", BROKERS[1], Code.POLICY_FORBIDS),
    ):
        refusal = await sidecar.policies.forbids(bundle, broker)
        assert (refusal.code if refusal else None) == code


async def ask_assignments(sidecar: FakeSidecar, *names: str) -> list[dict[str, Any]]:
    """The answers of `/assignments`."""
    cluster = sidecar.cluster
    return await assignments(
        names, cycle=sidecar.cycle, policies=sidecar.policies, metadata=cluster.metadata, ownership=cluster.model
    )


async def test_assignments_answer_without_touching_anything() -> None:
    cluster = FakeCluster()
    cluster.metadata.bundle_boundaries |= {"t/new": QUARTERS, "t/ns": QUARTERS}
    cluster.metadata.partition_counts["persistent://t/new/parts"] = 2
    cluster.metadata.add_topics(["persistent://t/ns/one"])
    isolated(cluster, IsolationPolicy(name="gold", namespaces=("t/new",), primary=("b2",), min_limit=1))
    sidecar = await FakeSidecar(cluster, mode="recommend").lead()
    await sidecar.cycle.turn()
    before = len(sidecar.admin.calls), dict(cluster.model.owners)
    (row,) = await ask_assignments(sidecar, "t/new/0x00000000_0x40000000")
    assert (row.chosen, row.candidates, row.state, row.owner) == (BROKERS[1], (BROKERS[1],), "unowned", None)
    dropped = next(step for step in row.steps if step.name == "policies").dropped
    assert {(item.broker, item.code) for item in dropped} == {(b, "NotInPolicy") for b in (BROKERS[0], BROKERS[2])}
    assert len(await ask_assignments(sidecar, "t/new")) == 4
    parts = await ask_assignments(sidecar, "persistent://t/new/parts", "persistent://t/ns/one")
    assert [item.chosen for item in parts[:2]] == [BROKERS[1]] * 2
    expected = bundle_for_hash("t/ns", QUARTERS, parse_topic("persistent://t/ns/one").hash)
    assert (parts[2].bundle, parts[2].chosen) == (str(expected), BROKERS[2])
    assert (len(sidecar.admin.calls), dict(cluster.model.owners)) == before
    assert sidecar.policies.current.anti_affinity == {}


async def test_assignments_follow_the_brokers_load_manager() -> None:
    cluster = FakeCluster()
    cluster.metadata.bundle_boundaries["t/new"] = QUARTERS
    for values in cluster.model.static.values():
        values[PLACEMENT] = "org.apache.pulsar.broker.loadbalance.impl.RoundRobinBrokerSelector"
    sidecar = await FakeSidecar(cluster, mode="recommend").lead()
    results = []
    for mode in ("modular", "extensible"):
        cluster.source.mode = mode
        await sidecar.cycle.turn()
        (row,) = await ask_assignments(sidecar, "t/new/0x00000000_0x40000000")
        results.append((row.placement, row.steps[1].name, row.sentence.rpartition(", ")[2]))
    assert results == [
        ("round_robin", "policies", "by round_robin among 3"),
        ("least_resource_usage", "load manager class", "by least_resource_usage among 3"),
    ]


@pytest.mark.parametrize("mode", ["modular", "extensible"])
async def test_assignments_of_a_partial_takeover(mode: str) -> None:
    """Brokers place the bundles of namespaces that they do not shed in turn: no broker can be named."""
    cluster = FakeCluster()
    cluster.source.mode = mode
    cluster.metadata.bundle_boundaries |= {"t/new": QUARTERS, "t/other": QUARTERS}
    for values in cluster.model.static.values():
        values["loadBalancerSheddingExcludedNamespaces"] = "[t/new, x/y]"
    sidecar = await FakeSidecar(cluster, mode="recommend").lead()
    await sidecar.cycle.turn()
    ours, other = await ask_assignments(sidecar, "t/new/0x00000000_0x40000000", "t/other/0x00000000_0x40000000")
    assert (ours.placement, ours.chosen, ours.code, ours.candidates) == ("round_robin", None, None, BROKERS)
    assert ours.sentence == "any of the candidates, by round_robin among 3"
    default = "least_resource_usage" if mode == "extensible" else "least_long_term_message_rate"
    assert (other.placement, other.chosen in BROKERS) == (default, True)


@pytest.mark.parametrize(
    ("class_name", "placement", "sentence"),
    [
        ("", "least_long_term_message_rate", f"one of these: {BROKERS[1]}, {BROKERS[2]}, by "),
        ("org.apache.pulsar.broker.loadbalance.impl.LeastLongTermMessageRate", "least_long_term_message_rate", ""),
        ("org.apache.pulsar.broker.loadbalance.impl.LeastResourceUsageWithWeight", "least_resource_usage", ""),
        ("org.apache.pulsar.broker.loadbalance.impl.AvgShedder", "avg", f"one of these: {', '.join(BROKERS)}, by "),
        ("com.example.Ours", "Ours", f"one of these: {', '.join(BROKERS)}, by "),
    ],
)
async def test_n_n_assignments_use_the_placement_of_the_brokers(class_name: str, placement: str, sentence: str) -> None:
    """Not the one that moves use; Pulsar's default is LeastLongTermMessageRate. Two of three brokers are idle."""
    cluster = FakeCluster()
    cluster.metadata.bundle_boundaries["t/new"] = QUARTERS
    for values in cluster.model.static.values():
        values[PLACEMENT] = class_name
    sidecar = await FakeSidecar(cluster, mode="recommend", params=with_params(placement="round_robin")).lead()
    await sidecar.cycle.turn()
    (row,) = await ask_assignments(sidecar, "t/new/0x00000000_0x40000000")
    assert row.placement == placement
    assert row.sentence.startswith(sentence or "one of these: ")
    assert row.sentence.endswith(f"by {placement} among 3")
    assert row.chosen in row.one_of and set(row.one_of) <= set(BROKERS)


async def test_assignments_of_a_group_nobody_has_loaded() -> None:
    """The group of the asked namespace counts, though no report names it."""
    cluster = FakeCluster()
    cluster.metadata.bundle_boundaries["t/new"] = QUARTERS
    cluster.metadata.groups |= {"t/new": "g", "t/ns": "g"}
    sidecar = await FakeSidecar(cluster, mode="recommend").lead()
    await sidecar.cycle.turn()
    (row,) = await ask_assignments(sidecar, "t/new/0x00000000_0x40000000")
    assert row.candidates == BROKERS[1:]


async def test_assignments_say_what_is_preallocated_and_what_is_wrong() -> None:
    cluster = FakeCluster()
    sidecar = FakeSidecar(cluster, mode="recommend")
    with pytest.raises(SnapshotError):
        await ask_assignments(sidecar, "t/ns")
    await sidecar.lead()
    await sidecar.cycle.turn()
    with pytest.raises(NotFound):
        await ask_assignments(sidecar, "t/nowhere")
    cluster.metadata.bundle_boundaries["t/ns"] = QUARTERS
    cluster.metadata.unreadable.add("t/ns")
    rows = await ask_assignments(sidecar, "t/ns")
    assert {(row.chosen, row.code) for row in rows} == {(None, "PolicyUnreadable")}
    assert rows[0].sentence.startswith("no broker: ")
    with pytest.raises(ConfigError) as caught:
        await ask_assignments(sidecar, *["t/ns"] * 51)
    assert caught.value.field == "names"


async def test_without_the_store_nothing_is_decided() -> None:
    """Rule: a store that does not answer is never taken for "no policy"; the next cycle decides again."""
    cluster = FakeCluster()
    sidecar = await FakeSidecar(cluster).lead()
    cluster.metadata.suspended = True
    report = await sidecar.cycle.turn()
    assert report.plan is None and report.code is Code.STORE_UNAVAILABLE
    cluster.metadata.suspended = False
    assert any([(await sidecar.cycle.turn()).outcomes for _ in range(2)])
