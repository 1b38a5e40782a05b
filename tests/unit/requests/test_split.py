"""A bundle is split by a chosen algorithm of Pulsar, the largest one is found, and its children may leave."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from bundlekeel.model.codes import Code
from bundlekeel.model.errors import ConfigError, Conflict, NotFound
from bundlekeel.model.load import TopicLoad
from bundlekeel.planning.splitting.algorithms import SplitAlgorithm, SplitOptions
from tests.support.builders import bundle_name, traffic
from tests.support.split_bench import EDGES, POSITION, Bench
from tests.support.world import EAGER, PIN, FakeCluster, FakeSidecar
from tests.unit.requests.sidecars import B1, B2, B3, BUNDLE, carried_out, seeing

WHO: dict[str, Any] = {"reason": "hot", "by": "ann"}
LOADS = {B1: [0.1, 0.02], B2: [0.12], B3: [0.12]}
STILL = replace(EAGER, split_enabled=False)
SUPPORTED = "supportedNamespaceBundleSplitAlgorithms"
MIDDLE = 0x8000
# Topics of 100 msg/s in and as many out, but one of them four times that: hash -> share of it.
TOPICS = {0x100: 4.0, 0x200: 1.0, 0x900: 1.0, 0xA00: 1.0}


def by(algorithm: SplitAlgorithm, *at: int, unload: bool = False) -> SplitOptions:
    """So a person wants it."""
    return SplitOptions(algorithm=algorithm, at=at, unload=unload)


async def with_topics(**static: str) -> FakeSidecar:
    """A leader that has seen the cluster; the first bundle has four topics. `static`: settings of its broker."""
    cluster = FakeCluster(LOADS)
    cluster.model.topics[BUNDLE] = []
    rates = traffic(0.1 / sum(TOPICS.values()))
    cluster.model.add_loads(
        BUNDLE,
        *(
            TopicLoad(
                topic=f"persistent://t/ns/{at}", hash=at, traffic=tuple(share * item for item in rates), sessions=1
            )
            for at, share in TOPICS.items()
        ),
    )
    cluster.model.static[B1] |= static
    cluster.publish()
    sidecar = await FakeSidecar(cluster, params=STILL).lead()
    await sidecar.cycle.turn()
    assert sidecar.cluster.model.unloads == []
    return sidecar


async def ask_split(sidecar: FakeSidecar, name: str, options: SplitOptions) -> dict[str, Any]:
    """The task after the leader has served it once."""
    answer = await sidecar.service.requests.split(name, options=options, execute=True, **WHO)
    await sidecar.executions.serve()
    return show_task(sidecar, answer.task)


def show_task(sidecar: FakeSidecar, task: str) -> dict[str, Any]:
    """The task as people see it now."""
    (tasks,) = [item for item in sidecar.shared_state.tasks if item["task"] == task]
    return tasks


def cut_at(answer: dict[str, Any]) -> list[int]:
    return [int(child.bundle.rpartition("_")[2], 16) for child in answer.children[:-1]]


@pytest.mark.parametrize(
    ("options", "positions", "sent"),
    [
        (by(SplitAlgorithm.RANGE), [MIDDLE], None),
        (by(SplitAlgorithm.TOPIC_COUNT), [0x200 + (0x900 - 0x200) // 2], (0x580,)),
        (by(SplitAlgorithm.POSITIONS, 0x900, 0x180), [0x180, 0x900], (0x180, 0x900)),
        (SplitOptions(at=(0x900, 0x180, 0x900)), [0x180, 0x900], (0x180, 0x900)),
        (by(SplitAlgorithm.FLOW), [0x100 + (0x200 - 0x100) // 2 + 1], (0x181,)),
        (SplitOptions(), [0x180], (0x180,)),
    ],
    ids=["range", "topic count", "positions", "positions alone", "flow", "by load"],
)
async def test_each_algorithm_cuts_where_its_dry_run_says(
    options: SplitOptions, positions: list[int], sent: tuple[int, ...] | None
) -> None:
    """The range's middle is asked for by name, since brokers take no positions for fewer than two topics."""
    rate = str(0.6 * sum(traffic(0.1)[:2]))
    supported = f"[{', '.join(SplitAlgorithm)}]"
    sidecar = await with_topics(**{"loadBalancerNamespaceBundleMaxMsgRate": rate, SUPPORTED: supported})
    answer = await sidecar.service.requests.split(BUNDLE, options=options, **WHO)
    assert (cut_at(answer), answer.refusals) == (positions, [])
    assert (answer.algorithm, answer.unload) == (options.algorithm, False)
    task = await ask_split(sidecar, BUNDLE, options)
    assert task["state"] == "done", task["detail"]
    assert [item.positions for item in sidecar.cluster.model.splits] == [sent]
    assert all(child.bundle in sidecar.cluster.owners() for child in answer.children)
    (record,) = sidecar.journal.tail(10, kind="split")
    assert record["positions"] == positions


async def test_only_halving_the_range_splits_what_has_no_topics() -> None:
    sidecar = await with_topics()
    sidecar.cluster.model.topics[BUNDLE] = []
    for algorithm in (SplitAlgorithm.TOPIC_COUNT, SplitAlgorithm.FLOW):
        answer = await sidecar.service.requests.split(BUNDLE, options=by(algorithm), **WHO)
        assert [item.code for item in answer.refusals] == [Code.SINGLE_TOPIC]
    assert (await ask_split(sidecar, BUNDLE, by(SplitAlgorithm.RANGE)))["state"] == "done"


async def test_flow_below_the_brokers_limits_finds_no_boundary() -> None:
    sidecar = await with_topics(loadBalancerNamespaceBundleMaxBandwidthMbytes="77")
    sidecar.cluster.model.loads = {
        name: replace(load, traffic=(1.0, 1.0, 1.0, 1.0)) for name, load in sidecar.cluster.model.loads.items()
    }
    answer = await sidecar.service.requests.split(BUNDLE, options=by(SplitAlgorithm.FLOW), **WHO)
    (refusal,) = answer.refusals
    assert refusal.code == Code.NO_BOUNDARY
    assert "8 msg/s" in refusal.detail and "only 10 % above 30,000 msg/s or 77 MiB/s" in refusal.detail


async def test_what_a_release_or_its_settings_lack_is_said() -> None:
    """Pulsar 2.11 has no split by rates; a cluster may allow less still. Both before anything is sent."""
    older = "[range_equally_divide, topic_count_equally_divide, specified_positions_divide]"
    sidecar = await with_topics(**{SUPPORTED: older})
    answer = await sidecar.service.requests.split(BUNDLE, options=by(SplitAlgorithm.FLOW), **WHO)
    (refusal,) = answer.refusals
    assert refusal.code == Code.NOT_SUPPORTED and older.strip("[]") in refusal.detail
    assert refusal.detail.endswith("not flow_or_qps_equally_divide")
    fewer = await with_topics(**{SUPPORTED: "[range_equally_divide]"})
    answer = await fewer.service.requests.split(BUNDLE, **WHO)
    assert answer.refusals[0].detail.endswith("not specified_positions_divide")
    with pytest.raises(Conflict, match="NotSupported"):
        await fewer.service.requests.split(BUNDLE, execute=True, **WHO)
    assert (await ask_split(fewer, BUNDLE, by(SplitAlgorithm.RANGE)))["state"] == "done"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (by(SplitAlgorithm.POSITIONS), "specified_positions_divide needs positions"),
        (by(SplitAlgorithm.RANGE, 0x900), "range_equally_divide takes no positions"),
    ],
)
async def test_positions_go_with_one_algorithm(options: SplitOptions, message: str) -> None:
    """Nothing is guessed."""
    sidecar = await with_topics()
    with pytest.raises(ConfigError, match=message):
        await sidecar.service.requests.split(BUNDLE, options=options, **WHO)


@pytest.mark.parametrize("at", [0, 0x10000, 0xFFFFFFFF])
async def test_a_boundary_outside_of_the_bundle_is_wrong_usage(at: int) -> None:
    sidecar = await with_topics()
    with pytest.raises(ConfigError, match=f"{BUNDLE} has no boundary at 0x{at:08x}") as caught:
        await sidecar.service.requests.split(BUNDLE, options=SplitOptions(at=(at,)), **WHO)
    assert caught.value.allowed == f"above 0x00000000 and below {BUNDLE[-10:]}"


async def test_a_request_with_an_algorithm_of_another_release_is_refused_with_those_there_are() -> None:
    """The leader may be older than the sidecar that was asked."""
    sidecar = await with_topics()
    _, operator_request = await sidecar.operator_requests.plan_split(BUNDLE, by(SplitAlgorithm.RANGE))
    task = await sidecar.shared_state.leave_request({**operator_request, "algorithm": "thirds", **WHO})
    await sidecar.executions.serve()
    view = show_task(sidecar, task)
    assert view["state"] == "failed" and sidecar.cluster.model.splits == []
    assert "'thirds'" in view["detail"] and ", ".join(SplitAlgorithm) in view["detail"]


async def test_largest_is_the_bundle_with_most_load() -> None:
    sidecar = await with_topics()
    busy = bundle_name(2)
    sidecar.cluster.put_topics(busy, 0.06, 0.06)
    answer = await sidecar.service.requests.split("t/ns/LARGEST", **WHO)
    assert (answer.bundle, answer.source) == (busy, B2)
    assert f"{busy}, the largest by load (33% of the messages and bytes of t/ns)" in answer.sentence
    idle = FakeCluster({B1: [0.0, 0.0], B2: [0.0], B3: []})
    idle.put_topics(bundle_name(1), 0.0, 0.0, 0.0)
    idle.publish()
    quiet = await FakeSidecar(idle, params=STILL).lead()
    await quiet.cycle.turn()
    answer = await quiet.service.requests.split("t/ns/LARGEST", options=by(SplitAlgorithm.TOPIC_COUNT), **WHO)
    assert answer.bundle == bundle_name(1) and "3 topics, nothing of t/ns has traffic" in answer.sentence


async def test_largest_of_nothing_and_hot_are_refused() -> None:
    """No topic of that name is split instead."""
    sidecar = await with_topics()
    service = sidecar.service.requests
    with pytest.raises(ConfigError, match="LARGEST"):
        await service.split("t/ns/HOT", **WHO)
    with pytest.raises(NotFound):
        await service.split("t/none/LARGEST", **WHO)
    sidecar.cluster.metadata.bundle_boundaries["t/new"] = [0, 0xFFFFFFFF]
    with pytest.raises(Conflict, match="no broker reports a bundle of t/new"):
        await service.split("t/new/LARGEST", **WHO)


async def test_children_leave_after_the_split_within_the_budgets() -> None:
    """After the next picture, each to the broker with most room; the task runs until then and may be stopped."""
    sidecar = await with_topics()
    task = await ask_split(sidecar, BUNDLE, by(SplitAlgorithm.TOPIC_COUNT, unload=True))
    await sidecar.executions.serve()
    assert (task["state"], sidecar.moves()) == ("running", [])
    assert task["detail"].endswith("; 0 of 2 left their brokers")
    children = [name for name in sidecar.cluster.owners() if name in task["detail"]]
    await sidecar.cycle.turn()
    await sidecar.executions.serve()
    view = show_task(sidecar, task["task"])
    assert view["state"] == "done" and view["detail"].endswith("; 2 of 2 left their brokers")
    assert {sidecar.cluster.owners()[child] for child in children} <= {B2, B3}
    stopped = await ask_split(sidecar, bundle_name(1), by(SplitAlgorithm.RANGE, unload=True))
    await sidecar.service.requests.stop(stopped["task"], **WHO)
    await sidecar.cycle.turn()
    await sidecar.executions.serve()
    view = show_task(sidecar, stopped["task"])
    assert (view["state"], len(sidecar.moves())) == ("stopped", 2)
    assert {row["code"] for row in view["moves"]} == {Code.STOPPED}


@pytest.mark.parametrize(
    ("mode", "most", "code", "message"),
    [
        (
            "extensible",
            128,
            Code.NOT_SUPPORTED,
            "2 boundaries; brokers with the extensible load manager accept one position per split",
        ),
        ("modular", len(EDGES), Code.NAMESPACE_MAXIMUM, f"{len(EDGES) - 1} bundles"),
    ],
)
async def test_several_positions_need_room_and_the_modular_load_manager(
    mode: str, most: int, code: Code, message: str
) -> None:
    """One more bundle would do in the namespace, two do not; the broker is not asked."""
    bench = await Bench(mode=mode).lead()
    outcome = await bench.split("by hand", max_bundles=most, at=(0x08000000, POSITION))
    assert (outcome.outcome, outcome.code, outcome.error, bench.model.splits) == ("refused", code, message, [])
    one = await bench.split("by hand", max_bundles=most, at=(POSITION,))
    assert (one.outcome, one.positions) == ("done", (POSITION,))


async def test_a_split_shows_its_children_and_makes_them() -> None:
    sidecar = await seeing()
    sidecar.cluster.put_topics(BUNDLE, 0.1, 0.1)
    answer, operator_request = await sidecar.operator_requests.plan_split(BUNDLE)
    assert [child.topics_ratio for child in answer.children] == [0.5, 0.5]
    task = await carried_out(sidecar, operator_request)
    assert (task["state"], task["kind"]) == ("done", "split")
    assert {bundle: owner for bundle, owner in sidecar.cluster.owners().items() if bundle in task["detail"]} == {
        child.bundle: B1 for child in answer.children
    }


async def test_a_split_at_a_position() -> None:
    """Strictly inside, and only where there are two topics."""
    sidecar = await seeing()
    sidecar.cluster.put_topics(BUNDLE, 0.15, 0.03, 0.02)
    answer, operator_request = await sidecar.operator_requests.plan_split(BUNDLE, SplitOptions(at=(0x100,)))
    assert answer.children[0].bundle == "t/ns/0x00000000_0x00000100"
    assert (await carried_out(sidecar, operator_request))["state"] == "done"
    assert "t/ns/0x00000000_0x00000100" in sidecar.cluster.owners()
    for at in (0x20000, 0x10000):
        with pytest.raises(ConfigError, match=f"no boundary at 0x{at:08x}"):
            await sidecar.operator_requests.plan_split(bundle_name(1), SplitOptions(at=(at,)))
    answer, operator_request = await sidecar.operator_requests.plan_split(bundle_name(1), SplitOptions(at=(0x18000,)))
    assert ([item.code for item in answer.refusals], operator_request) == (["SingleTopic"], {})


async def test_a_pinned_bundle_is_not_split_manually() -> None:
    sidecar = await seeing()
    sidecar.cluster.put_topics(BUNDLE, 0.1, 0.1)
    _, operator_request = await sidecar.operator_requests.plan_split(BUNDLE)
    await sidecar.shared_state.change_desired(lambda desired: msgspec.structs.replace(desired, pinned={BUNDLE: PIN}))
    answer, none = await sidecar.operator_requests.plan_split(BUNDLE)
    assert ([item.code for item in answer.refusals], none) == (["Pinned"], {})
    assert "nothing moves" in answer.sentence
    assert (await carried_out(sidecar, operator_request))["state"] == "failed"
    assert sidecar.cluster.model.splits == []
