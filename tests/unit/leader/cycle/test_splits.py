"""Splits in the sidecar's cycle: carried out, booked, and their children in the very next plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bundlekeel.leader.cycle.plan_responses import PlanRequest
from bundlekeel.leader.execution.split_intents import SplitIntent
from bundlekeel.leader.state.documents import Desired
from bundlekeel.model.errors import AdminTimeout
from bundlekeel.model.parameters import Parameters
from bundlekeel.ports import DocumentChange
from tests.support.builders import bundle_name
from tests.support.memory_admin import Fault
from tests.support.world import BROKERS, FakeCluster, FakeSidecar, with_params

PARENT = bundle_name(0)
CHILDREN = ("t/ns/0x00000000_0x00004001", "t/ns/0x00004001_0x00010000")
SPLITTING = "loadBalancerAutoBundleSplitEnabled"
EAGER = with_params(split_hit_count=0)


def hot_cluster(*topics: float) -> FakeCluster:
    """The first broker carries one bundle of these topics, the third nothing."""
    shares = topics or (0.3, 0.28)
    cluster = FakeCluster({BROKERS[0]: [sum(shares)], BROKERS[1]: [0.25], BROKERS[2]: []})
    cluster.put_topics(PARENT, *shares)
    cluster.publish()
    return cluster


async def leader(cluster: FakeCluster, *, params: Parameters = EAGER, mode: str = "act") -> FakeSidecar:
    """A sidecar that leads."""
    return await FakeSidecar(cluster, params=params, mode=mode).lead()


async def test_a_hot_bundle_is_split_and_one_child_moves_in_the_next_cycle() -> None:
    """Scenario 11. The brokers' reports still name the parent: the children are planned all the same, at once."""
    cluster = hot_cluster()
    sidecar = await leader(cluster)
    first = await sidecar.cycle.turn()
    assert [(o.outcome, o.rule, o.children) for o in first.splits] == [("done", "hot", CHILDREN)]
    assert first.outcomes == []
    assert "1 of 1 bundles split" in first.sentence
    second = await sidecar.cycle.turn()
    assert [(o.outcome, o.source) for o in second.outcomes] == [("done", BROKERS[0])]
    (moved,) = second.outcomes
    assert moved.bundle in CHILDREN
    assert second.splits == []
    assert cluster.owners()[moved.bundle] == moved.destination != BROKERS[0]
    assert PARENT not in cluster.owners()


@pytest.mark.parametrize(("unloaded", "outcome"), [(125, "done"), (126, "")])
async def test_n_l_bundles_that_no_broker_loaded_count_towards_the_maximum(unloaded: int, outcome: str) -> None:
    """The brokers report two bundles of the namespace; its boundaries in the store define up to 128."""
    cluster = hot_cluster()
    edges = cluster.metadata.bundle_boundaries["t/ns"]
    edges[-1:-1] = [0xF0000000 + row for row in range(unloaded - (len(edges) - 3))]
    sidecar = await leader(cluster)
    report = await sidecar.cycle.turn()
    assert [item.outcome for item in report.splits] == ([outcome] if outcome else [])
    assert report.plan is not None
    codes = [(item.code.value, item.detail) for item in report.plan.split_refusals]
    assert codes == ([] if outcome else [("NamespaceMaximum", "128 bundles, maximum 128")])
    answer = await sidecar.planner.make(PlanRequest(ignore_hit_counts=True))
    assert outcome or [item.code for item in answer.split_refusals] == ["NamespaceMaximum"]


async def test_n_l_a_count_that_cannot_be_read_leaves_the_split_to_the_executor() -> None:
    """The boundaries are read again right before the call."""
    cluster = hot_cluster()
    del cluster.metadata.bundle_boundaries["t/ns"]
    report = await (await leader(cluster)).cycle.turn()
    assert [(item.outcome, item.code) for item in report.splits] == [("refused", "NoSuchBundle")]


async def test_children_start_from_the_parents_averages() -> None:
    """In proportion to their topics; no child begins at Pulsar's 50 msg/s."""
    cluster = hot_cluster(0.4, 0.2)
    sidecar = await leader(cluster)
    await sidecar.cycle.turn()
    averages = sidecar.observer.averages
    parent, low, high = (averages.of(name) for name in (PARENT, *CHILDREN))
    assert parent is not None and low is not None and high is not None
    assert low.short == pytest.approx([value * 2 / 3 for value in parent.short])
    assert high.long == pytest.approx([value / 3 for value in parent.long])
    snapshot = sidecar.cycle.plan_input((await sidecar.observer.snapshot())[0]).snapshot
    assert {*CHILDREN} <= set(snapshot.bundles.names)
    assert PARENT not in snapshot.bundles.names


async def test_reports_of_the_children_take_over() -> None:
    """Once the brokers report the children, what they say counts, and the parent is forgotten."""
    cluster = hot_cluster()
    sidecar = await leader(cluster)
    await sidecar.cycle.turn()
    cluster.publish()
    snapshot, picture = await sidecar.observer.snapshot()
    assert {*CHILDREN} <= {name for report in picture.reports for name in report.bundle_names}
    assert len([name for name in snapshot.bundles.names if name in CHILDREN]) == 2
    cluster.clock.offset += 4000
    await sidecar.observer.snapshot()
    assert sidecar.observer.averages.of(PARENT) is None


async def test_the_next_leader_knows_the_children_too() -> None:
    """The reports still name the parent: a successor moves a child all the same, and asks for no second split."""
    cluster = hot_cluster()
    first = await leader(cluster)
    await first.cycle.turn()
    await first.leadership.stop()
    second = FakeSidecar(cluster, "b", params=EAGER)
    await second.observer.snapshot()
    await second.lead()
    second.cycle.adopt(second.shared_state.taken_over(), second.leadership.epoch)
    report = await second.cycle.turn()
    assert [(o.outcome, o.bundle in CHILDREN) for o in report.outcomes] == [("done", True)]
    assert report.splits == []
    parent, low = (second.observer.averages.of(name) for name in (PARENT, CHILDREN[0]))
    assert parent is not None and low is not None
    assert low.short == pytest.approx([value * 30 / 58 for value in parent.short])


async def test_j12_a_finished_split_is_stored_before_the_next_begins() -> None:
    cluster = FakeCluster({BROKERS[0]: [0.4, 0.4], BROKERS[1]: [0.1], BROKERS[2]: []})
    for bundle in (PARENT, bundle_name(1)):
        cluster.put_topics(bundle, 0.2, 0.2)
    cluster.publish()
    sidecar = await leader(cluster)
    stored, divided = list[int](), cluster.model.after_split

    def look(bundle: str, children: tuple[str, ...]) -> None:
        stored.append(len(sidecar.shared_state.shared.cycle_state.recent_splits))
        divided(bundle, children)

    cluster.model.after_split = look
    report = await sidecar.cycle.turn()
    assert [outcome.outcome for outcome in report.splits] == ["done", "done"] and stored == [0, 1]


async def test_the_guards_budgets_hold_for_children() -> None:
    """Outside the parent's cool-down, inside the guard: without a budget no child moves."""
    cluster = hot_cluster()
    sidecar = await leader(cluster, params=with_params(split_hit_count=0, max_moves_per_cycle=0))
    await sidecar.cycle.turn()
    report = await sidecar.cycle.turn()
    assert report.plan is not None
    assert {item.code.value for item in report.plan.refusals if item.bundle in CHILDREN} >= {"BudgetPerCycle"}
    assert set(cluster.owners().values()) == set(BROKERS[:2])
    assert {cluster.owners()[child] for child in CHILDREN} == {BROKERS[0]}


async def test_journal_metric_and_cycle_record() -> None:
    sidecar = await leader(hot_cluster())
    await sidecar.cycle.turn()
    (line,) = sidecar.journal.tail(10, kind="split")
    assert (line["bundle"], line["outcome"], line["children"]) == (PARENT, "done", list(CHILDREN))
    (cycle,) = sidecar.journal.tail(10, kind="cycle")
    assert (cycle["planned_splits"], cycle["splits"]) == (1, {"done": 1})
    assert 'splits_total{outcome="done",rule="hot"} 1.0' in sidecar.metric("splits_total")
    assert "planned_splits 1.0" in sidecar.metric("planned_splits")


async def test_one_giant_topic_is_left_alone() -> None:
    cluster = hot_cluster(0.58)
    sidecar = await leader(cluster)
    report = await sidecar.cycle.turn()
    assert report.plan is not None
    assert [(item.bundle, item.code.value) for item in report.plan.split_refusals] == [(PARENT, "SingleTopic")]
    assert (report.splits, report.outcomes) == ([], [])


async def test_a_topic_that_carries_nearly_all_is_found_out_once() -> None:
    """The topics are read at the split; afterwards the plan knows the reason and asks no more for half an hour."""
    cluster = hot_cluster(0.56, 0.02)
    sidecar = await leader(cluster)
    first = await sidecar.cycle.turn()
    assert [(o.outcome, o.code) for o in first.splits] == [("refused", "DominantTopic")]
    second = await sidecar.cycle.turn()
    assert second.plan is not None
    assert (second.splits, [item.code.value for item in second.plan.split_refusals]) == ([], ["DominantTopic"])
    cluster.clock.offset += 1801
    await sidecar.leadership.turn()
    assert [o.code for o in (await sidecar.cycle.turn()).splits] == ["DominantTopic"]


async def test_an_unknown_outcome_is_not_repeated() -> None:
    cluster = hot_cluster()
    sidecar = await leader(cluster)
    sidecar.admin.fail("split", Fault(error=AdminTimeout("late")))
    assert [o.outcome for o in (await sidecar.cycle.turn()).splits] == ["unknown"]
    assert (await sidecar.cycle.turn()).splits == []
    await sidecar.leadership.stop()
    other = await FakeSidecar(cluster, "b", params=EAGER).lead()
    other.cycle.adopt(other.shared_state.cycle_state(), other.cycle.epoch)
    report = await other.cycle.turn()
    assert report.plan is not None
    assert [(item.code.value, item.detail) for item in report.plan.split_refusals] == [("SplitFailed", "NoAnswer")]
    assert sum(call[0] == "split" for call in (*sidecar.admin.calls, *other.admin.calls)) == 1


async def test_the_brokers_limits_are_theirs_while_they_split() -> None:
    """With their automatic split on, only `hot` acts; turned off, the four limits are ours. Unknown counts as on."""
    cluster = hot_cluster(0.2, 0.1)
    params = with_params(split_hit_count=0, split_max_topics=1, split_hot_share=0.0)
    sidecar = await leader(cluster, params=params)
    report = await sidecar.cycle.turn()
    assert report.plan is not None
    assert [item.code.value for item in report.plan.split_refusals] == ["BrokersSplitThemselves"]
    cluster.model.dynamic[SPLITTING] = "false"
    assert [o.rule for o in (await sidecar.cycle.turn()).splits] == ["topics"]


async def test_a_broker_that_cannot_be_asked_may_split() -> None:
    """Only the brokers' leader splits, and any of them may be that: all must be known not to."""
    cluster = hot_cluster()
    sidecar = await leader(cluster)
    endpoints = cluster.model.endpoints()
    sidecar.admin.set_endpoints(endpoints)
    cluster.model.dynamic[SPLITTING] = "false"
    await sidecar.config.refresh(endpoints)
    assert not sidecar.config.brokers_split(endpoints)
    cluster.model.static[BROKERS[1]][SPLITTING] = "true"
    cluster.model.stubborn.add(BROKERS[1])
    await sidecar.config.refresh(endpoints, force=True)
    assert sidecar.config.brokers_split(endpoints)
    assert not sidecar.config.brokers_split([BROKERS[0]])
    assert sidecar.config.brokers_split([BROKERS[0], "unknown:8080"])


async def test_recommend_plans_and_splits_nothing() -> None:
    """In recommend the split is shown, no mutating call leaves; the same while paused half-way."""
    sidecar = await leader(hot_cluster(), mode="recommend")
    report = await sidecar.cycle.turn()
    assert report.plan is not None
    assert [split.rule for split in report.plan.splits] == ["hot"]
    assert (report.splits, sidecar.cluster.model.splits) == ([], [])
    assert "not carried out" in report.sentence
    acting = await leader(hot_cluster())
    await acting.shared_state.change_desired(lambda _: Desired(mode="recommend"))
    assert (await acting.cycle.turn()).splits == []


async def test_a_bundle_is_not_moved_while_it_is_being_split_by_an_earlier_leader() -> None:
    """An open split intent of another epoch freezes the bundle; its boundaries settle it, and that is journalled."""
    cluster = hot_cluster()
    first = await leader(cluster)
    intent = SplitIntent(
        id="1.s1", bundle=PARENT, broker=BROKERS[0], rule="hot", positions=(0x4001,), epoch=1, member="a",
        wall_ms=cluster.clock.wall_ms(), deadline_ms=cluster.clock.wall_ms() + 5000,
        cycle_id="",
    )  # fmt: skip
    path = "splits/" + PARENT.replace("/", "%2F")
    await first.coordination.write_fenced(intent.epoch, [DocumentChange(path=path, data=intent.encode(), create=True)])
    await first.leadership.stop()
    second = await FakeSidecar(cluster, "b", params=EAGER).lead()
    assert second.shared_state.frozen == {PARENT}
    report = await second.cycle.turn()
    assert (report.splits, report.outcomes) == ([], [])
    cluster.model.split(PARENT, at=BROKERS[0], positions=[0x4001])
    await second.executor.settle()
    for outcome in second.executor.settled_splits():
        second.cycle.book_split(outcome)
    assert second.shared_state.frozen == frozenset()
    assert [(line["outcome"], line["children"]) for line in second.journal.tail(9, kind="split")] == [
        ("done", list(CHILDREN))
    ]


async def test_an_owner_without_statistics_is_asked_again_after_a_minute() -> None:
    """Not in every cycle; meanwhile the bundle is free to move."""
    cluster = hot_cluster()
    figures = dict(cluster.model.loads)
    cluster.model.loads = {name: replace(load, traffic=(0.0, 0.0, 0.0, 0.0)) for name, load in figures.items()}
    sidecar = await leader(cluster)
    assert [o.code for o in (await sidecar.cycle.turn()).splits] == ["NoLoadData"]
    assert (await sidecar.cycle.turn()).splits == []
    cluster.model.loads = figures
    cluster.clock.offset += 61
    await sidecar.leadership.turn()
    assert [o.outcome for o in (await sidecar.cycle.turn()).splits] == ["done"]


async def test_after_an_unknown_outcome_the_others_wait() -> None:
    """A broker that does not answer holds up one split, not ten."""
    cluster = hot_cluster()
    cluster.put_topics(bundle_name(1), 0.13, 0.12)
    cluster.publish()
    cluster.model.dynamic[SPLITTING] = "false"
    sidecar = await leader(cluster, params=with_params(split_hit_count=0, split_max_topics=1))
    sidecar.admin.fail("split", Fault(error=AdminTimeout("late")))
    first = await sidecar.cycle.turn()
    assert [(o.bundle, o.outcome) for o in first.splits] == [(PARENT, "unknown")]
    assert [(o.bundle, o.outcome) for o in (await sidecar.cycle.turn()).splits] == [(bundle_name(1), "done")]


async def test_why_tells_of_splits() -> None:
    sidecar = await leader(hot_cluster(), mode="recommend")
    await sidecar.cycle.turn()
    answer = await sidecar.service.why(PARENT)
    assert answer.sentence.startswith("it is to be split: ")
    context = await leader(hot_cluster(), mode="recommend", params=with_params(split_hit_count=3))
    await context.cycle.turn()
    answer = await context.service.why(PARENT)
    assert "SplitHitCount" in [code.code for code in answer.codes]


async def test_splits_are_in_the_plan_people_see() -> None:
    """`POST /plans`: splits and their refusals with explanations; hit counts may be left out of account."""
    sidecar = await leader(hot_cluster(), params=with_params(split_hit_count=3), mode="recommend")
    await sidecar.cycle.turn()
    answer = await sidecar.planner.make(PlanRequest())
    assert [(item.code, item.detail) for item in answer.split_refusals] == [("SplitHitCount", "1 of 2")]
    assert "not often enough" in answer.split_refusals[0].explanation
    eager = await sidecar.planner.make(PlanRequest(ignore_hit_counts=True))
    assert [(item.rule, item.broker) for item in eager.splits] == [("hot", BROKERS[0])]
    assert "which no placement can balance" in eager.splits[0].sentence


async def test_splits_are_not_begun_when_the_term_ended_with_the_moves() -> None:
    sidecar = await leader(hot_cluster(), mode="recommend")
    report = await sidecar.cycle.turn()
    assert report.plan is not None and report.plan.splits and sidecar.cycle.snapshot is not None
    sidecar.clock.offset += 60.0
    ended = await sidecar.cycle._execute(report, (), report.plan.splits, sidecar.cycle.snapshot)
    assert not sidecar.cycle.leads
    assert (ended.splits, sidecar.cluster.model.splits) == ([], [])
