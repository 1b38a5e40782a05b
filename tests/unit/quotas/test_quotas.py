"""Quota groups in a whole sidecar over fakes: seen, shared out, enforced by topic policies, given back."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

import msgspec
import pytest

from bundlekeel.leader.state.documents import Pause
from bundlekeel.model.codes import EXPLANATIONS, Code
from bundlekeel.model.errors import AdminTimeout, AdminUnauthorized, StoreError
from bundlekeel.quotas.rules.rate_plan import DISPATCH, PUBLISH, PolicyKey
from tests.support.contracts.coordination import eventually
from tests.support.quota_world import QuotaCluster, leading
from tests.support.world import BROKERS

LIMIT = 200.0
HOT, COLD = "persistent://acme/orders/t0", "persistent://acme/orders/t7"
PARTITIONED = "persistent://acme/events/t0"
WHO = {"reason": "r", "by": "ann"}


def fair(demands: list[float], limit: float) -> float:
    """Return the max-min level: no topic that demands more gets less."""
    left, rest = limit, sorted(demands)
    while rest and rest[0] <= left / len(rest):
        left -= rest.pop(0)
    return left / len(rest) if rest else math.inf


def least(cluster: QuotaCluster) -> float:
    """The worst topic's part of its fair share."""
    passed, expected = dict[str, float](), dict[str, float]()
    for name, rate in cluster.flow().items():
        base = name.partition("-partition-")[0]
        passed[base] = passed.get(base, 0.0) + rate
        expected[base] = expected.get(base, 0.0) + cluster.demand[name]
    level = fair(list(expected.values()), LIMIT)
    return min(passed[name] / min(expected[name], level) for name in expected)


async def test_recommended_is_only_shown() -> None:
    """Usage, shares and what would be written; nothing changes, and no topic's policy is even read."""
    sidecar = await leading(mode="recommend")
    await sidecar.turn(3)
    view = await sidecar.quotas.view()
    (group,) = view.groups
    assert (view.acting, view.obstacle) == (False, "RecommendOnly")
    assert group.usage.publish_messages == pytest.approx(sidecar.quota_cluster.total(), rel=1e-3)
    assert group.shares.publish_messages <= LIMIT + 1 and group.topics == 16
    assert view.writes.planned == 16 and view.writes.written == 0
    assert "nothing is written (RecommendOnly: mode is `recommend`" in view.sentence
    assert "16 changes would be" in view.sentence
    assert not sidecar.quota_cluster.model.quotas.rates
    assert {call[0] for call in sidecar.quota_admin.calls} <= {"topic_rates", "namespace_rates"}
    detail = await sidecar.quotas.group("acme")
    row = next(row for row in detail.rows if row.topic == PARTITIONED)
    assert row.partitions == 4 and row.change["publish"].messages * 4 <= row.share.publish_messages


async def test_the_limit_holds_and_everybody_has_a_part() -> None:
    """Rule: from the third cycle on within 10 %, and each topic has at least 80 % of its fair share."""
    sidecar = await leading()
    assert sidecar.quota_cluster.total() > 3 * LIMIT
    await sidecar.turn(3)
    for _ in range(5):
        assert 0.9 * LIMIT <= sidecar.quota_cluster.total() <= 1.1 * LIMIT
        assert least(sidecar.quota_cluster) >= 0.8
        await sidecar.turn()
    text = sidecar.metric("quota_used_ratio")
    assert 'group="acme",kind="publish_messages"' in text and 0.9 <= float(text.split()[-1]) <= 1.1
    assert sidecar.told()[0]["code"] == "RatesWritten" and len(sidecar.told()[0]["changes"]) == 16


async def test_quiet_when_nothing_changes() -> None:
    """After it has settled nothing is written any more."""
    sidecar = await leading()
    await sidecar.turn(8)
    before = len(sidecar.told())
    await sidecar.turn(5)
    assert len(sidecar.told()) == before


async def test_only_brokers_with_limited_bundles_are_asked() -> None:
    cluster = QuotaCluster()
    for number in range(8):
        cluster.move(number, BROKERS[0])
        cluster.move(number, BROKERS[1], "acme/events")
    sidecar = await leading(cluster)
    await sidecar.turn(5)
    calls = [call[1] for call in sidecar.quota_admin.calls if call[0] == "topic_rates"]
    assert [calls.count(broker) for broker in BROKERS] == [5, 5, 1]


async def test_a_transfer_starves_nobody() -> None:
    """A topic keeps its rate wherever it is served."""
    sidecar = await leading()
    await sidecar.turn(5)
    before = sidecar.quota_cluster.flow()[HOT]
    sidecar.quota_cluster.move(0, BROKERS[2])
    for _ in range(3):
        await sidecar.turn()
        assert sidecar.quota_cluster.flow()[HOT] >= 0.5 * before


async def test_a_dead_broker_leaves_its_part_to_the_others() -> None:
    sidecar = await leading()
    await sidecar.turn(5)
    sidecar.quota_cluster.die(BROKERS[1], BROKERS[2])
    await sidecar.turn(2)
    assert sidecar.quota_cluster.total() >= 0.9 * LIMIT and least(sidecar.quota_cluster) >= 0.5


async def test_an_unresponsive_broker_changes_nothing() -> None:
    sidecar = await leading()
    await sidecar.turn(4)
    owned = dict(sidecar.quota_cluster.model.quotas.rates)
    sidecar.quota_admin.fail("topic_rates", *[AdminTimeout("no answer")] * 3)
    await sidecar.turn()
    assert sidecar.quota_cluster.model.quotas.rates == owned
    view = await sidecar.quotas.view()
    assert [text for text in view.problems if "did not report its usage" in text]
    assert "did not report" in sidecar.told("problems")[-1]["sentence"]


async def test_dispatch_and_bytes() -> None:
    sidecar = await leading(acme={"members": ("t:acme",), "dispatch_bytes": "200kB"})
    await sidecar.turn(4)
    out = sum(load.traffic[3] for load in sidecar.quota_cluster.model.loads.values())
    assert 0.9 * 200_000 <= out <= 1.1 * 200_000
    assert {place.side for place in sidecar.quota_cluster.model.quotas.rates} == {DISPATCH}


async def soon(holds: Callable[[], bool]) -> None:
    """Within some seconds."""

    async def condition() -> bool:
        return holds()

    await eventually(condition)


async def test_cycles_run_by_themselves() -> None:
    sidecar = await leading()
    assert sidecar.quotas.quotas.cycle_seconds == 120.0
    task = asyncio.create_task(sidecar.quotas.quotas.run())
    await asyncio.sleep(0.1)
    await sidecar.cycle.turn()
    sidecar.quota_cluster.flow()
    rates = sidecar.quota_cluster.model.quotas.rates
    await soon(lambda: len(rates) == 16)
    assert sidecar.quotas.quotas.cycle_seconds == 10.0
    await sidecar.quotas.remove("acme", **WHO)
    await soon(lambda: not rates)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_who_leads_no_more_tells_no_figures() -> None:
    cluster = QuotaCluster()
    first = await leading(cluster)
    await first.turn(2)
    assert 'group="acme"' in first.metric("quota_usage")
    await first.leadership.stop()
    await first.quotas.quotas.step()
    assert 'group="acme"' not in first.metric("quota_usage")


async def test_how_long_topics_are_held_back() -> None:
    cluster = QuotaCluster()
    first, since = await leading(cluster), cluster.clock.boot()
    await first.turn(3)
    (groups,) = (await first.quotas.view()).groups
    cluster.clock.offset += 5.0
    await first.turn()
    (now,) = (await first.quotas.view()).groups
    added = now.held_back_seconds - groups.held_back_seconds
    assert 5.0 * now.held_back - 0.1 <= added <= (cluster.clock.boot() - since) * now.held_back + 0.1 and added > 0
    await first.leadership.stop()
    second = await leading(cluster, name="b")
    await second.turn()
    (after,) = (await second.quotas.view()).groups
    assert second.shared_state.leading and after.held_back_seconds >= now.held_back_seconds


async def test_rates_that_may_not_be_read() -> None:
    sidecar = await leading()
    sidecar.quota_admin.fail("topic_rate", *[AdminUnauthorized("403 no permission", status=403)] * 16)
    await sidecar.turn()
    view = await sidecar.quotas.view()
    assert view.left == {Code.RATE_NOT_READ.value: 16} and not sidecar.quota_cluster.model.quotas.rates
    assert view.problems == ["rates in force could not be read: 403 no permission"]
    await sidecar.turn()
    assert len(sidecar.quota_cluster.model.quotas.rates) == 16


async def test_nothing_is_written_before_it_is_stored() -> None:
    sidecar = await leading()
    await sidecar.cycle.turn()
    sidecar.deaf = True
    with pytest.raises(StoreError):
        await sidecar.quotas.quotas.step()
    assert not sidecar.quota_cluster.model.quotas.rates
    sidecar.deaf = False
    await sidecar.turn(3)
    assert 0.9 * LIMIT <= sidecar.quota_cluster.total() <= 1.1 * LIMIT


async def test_topic_policies_off() -> None:
    """Refused with the code, by the brokers' settings as by their answers."""
    for by_setting in (True, False):
        cluster = QuotaCluster()
        cluster.model.quotas.on = False
        if by_setting:
            for broker in BROKERS:
                cluster.model.static[broker]["topicLevelPoliciesEnabled"] = "false"
        sidecar = await leading(cluster)
        await sidecar.turn(2)
        view = await sidecar.quotas.view()
        assert view.left == {Code.TOPIC_POLICIES_OFF.value: 16} and not view.writes.held
        why = await sidecar.quotas.why(HOT)
        assert [item.code for item in why.codes] == ["TopicPoliciesOff"]
        assert 'quota_rates_left{code="TopicPoliciesOff"} 16.0' in sidecar.metric("quota_rates_left")


async def test_the_budget_of_writes() -> None:
    sidecar = await leading(writes_per_minute=24)
    written, view = [], {}
    for _ in range(4):
        await sidecar.turn()
        view = view or await sidecar.quotas.view()
        written.append(len(sidecar.quota_cluster.model.quotas.rates))
    assert written == [4, 8, 12, 16]
    assert view.left == {Code.BUDGET_OF_RATES.value: 12}
    assert view.explanations == {Code.BUDGET_OF_RATES.value: EXPLANATIONS[Code.BUDGET_OF_RATES]}


async def test_paused() -> None:
    sidecar = await leading()
    await sidecar.turn(3)
    owned = dict(sidecar.quota_cluster.model.quotas.rates)
    pause = Pause(reason="r", by="ann", since_ms=0)
    await sidecar.shared_state.change_desired(lambda desired: msgspec.structs.replace(desired, pause=pause))
    sidecar.quota_cluster.demand[COLD] = 300.0
    await sidecar.turn(3)
    assert sidecar.quota_cluster.model.quotas.rates == owned
    assert (await sidecar.quotas.view()).obstacle == "Paused"


async def test_a_namespace_joins_by_itself() -> None:
    sidecar = await leading()
    await sidecar.turn(3)
    topic = sidecar.quota_cluster.put("acme/new", 3, BROKERS[0], 100.0)
    sidecar.quota_cluster.publish()
    await sidecar.turn(5)
    assert PolicyKey(topic=topic, side=PUBLISH) in sidecar.quota_cluster.model.quotas.rates
    assert 0.9 * LIMIT <= sidecar.quota_cluster.total() <= 1.1 * LIMIT


async def test_moves_of_limited_bundles_are_rarer() -> None:
    """At every replica a bundle that moved is limited while its namespace is in a group that is enforced."""
    spaces = frozenset({"acme/orders", "other/space", "pulsar/system"})
    leader = await leading()
    follower = await leading(leader.quota_cluster, name="b")
    for sidecar in (leader, follower):
        assert sidecar.quotas.quotas.limited(spaces) == {"acme/orders"}
    assert (await leading(enforcer="off")).quotas.quotas.limited(spaces) == frozenset()
    await leader.quotas.remove("acme", **WHO)
    assert leader.quotas.quotas.limited(spaces) == frozenset()


async def test_the_target_has_its_share_before_the_transfer() -> None:
    """The rate of a topic is in force at the target from its first message on: nothing is written for a move."""
    sidecar = await leading()
    await sidecar.turn(6)
    written = [call for call in sidecar.quota_admin.calls if call[0] == "set_topic_rate"]
    before = sidecar.quota_cluster.flow()[HOT]
    sidecar.quota_cluster.move(0, BROKERS[2])
    assert sidecar.quota_cluster.flow()[HOT] == before
    await sidecar.turn()
    assert [call for call in sidecar.quota_admin.calls if call[0] == "set_topic_rate" and call[1] == HOT] == [
        call for call in written if call[1] == HOT
    ]


async def test_a_follower_shows_the_same() -> None:
    cluster = QuotaCluster()
    leader = await leading(cluster)
    await leader.turn(2)
    follower = await leading(cluster, name="b")
    await follower.turn(2)
    assert not follower.shared_state.leading and not follower.quota_admin.calls
    assert (await follower.quotas.view()).groups == (await leader.quotas.view()).groups
    assert (await follower.quotas.why("acme")).sentences == (await leader.quotas.why("acme")).sentences


async def test_rates_that_a_broker_refuses_are_left_until_they_are_written() -> None:
    """Counted by code in `quota ls`, the metric and at the topics; gone once they are taken."""
    sidecar = await leading()
    sidecar.quota_admin.fail("set_topic_rate", *[AdminTimeout("no answer")] * 2)
    await sidecar.turn()
    view = await sidecar.quotas.view()
    assert (view.left, view.writes.failed) == ({"RateNotWritten": 2}, 2)
    assert 'code="RateNotWritten"} 2.0' in sidecar.metric("quota_rates_left")
    rows = (await sidecar.quotas.group("acme")).rows
    assert sum(row.codes == ["RateNotWritten"] for row in rows) == 2
    await sidecar.turn(2)
    assert (await sidecar.quotas.view()).left == {}


async def test_n_p_no_rate_is_written_during_a_migration() -> None:
    """Topic policies are metadata too."""
    sidecar = await leading()
    await sidecar.turn(3)
    rates = dict(sidecar.quota_cluster.model.quotas.rates)
    sidecar.cluster.metadata.migrate("PREPARATION")
    sidecar.quota_cluster.demand[COLD] = 300.0
    await sidecar.turn(3)
    assert sidecar.quota_cluster.model.quotas.rates == rates
    assert (await sidecar.quotas.view()).obstacle == "StoreMigrating"
