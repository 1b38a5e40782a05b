"""Quotas at the brokers: stricter rates stay, and all original rates come back, whichever process was killed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bundlekeel.leader.state.responses import EndedView
from bundlekeel.leader.state.takeover_record import TakeoverRecord, decode_takeover
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import AdminTimeout, Conflict, LeadershipLost
from bundlekeel.quotas.enforcing.owned_limits import HELD
from bundlekeel.quotas.enforcing.restore import give_quotas_back, put_quotas_aside, quotas_owned
from bundlekeel.quotas.feature import FEATURE
from bundlekeel.quotas.ports import NamespaceRates
from bundlekeel.quotas.rules.rate_plan import DISPATCH, PUBLISH, PolicyKey, Rate
from tests.support.quota_model import MemoryQuotaAdmin
from tests.support.quota_world import QuotaCluster, leading

LIMIT = 200.0
HOT, COLD = "persistent://acme/orders/t0", "persistent://acme/orders/t7"
WHO = {"reason": "r", "by": "ann"}


class TestWhatWasThere:
    """Rates that others set."""

    async def test_stricter_ones_stay(self) -> None:
        cluster = QuotaCluster()
        mine = PolicyKey(topic=HOT, side=PUBLISH)
        cluster.model.quotas.rates[mine] = Rate(3, 3000)
        cluster.model.quotas.namespaces["acme/events"] = NamespaceRates(publish=Rate(-1, 9_000))
        sidecar = await leading(cluster)
        await sidecar.turn(4)
        rates = cluster.model.quotas.rates
        assert rates[mine] == Rate(3, 3000)
        events = [rate for place, rate in rates.items() if "acme/events" in place.topic]
        assert events and all(rate.size == 9_000 for rate in events)
        view = await sidecar.quotas.view()
        assert view.left[Code.STRICTER_RATE_IN_FORCE.value] >= 1

    async def test_given_back_with_the_group(self) -> None:
        """Every policy is as it was before, and nothing is held any more."""
        cluster = QuotaCluster()
        before = {
            PolicyKey(topic=COLD, side=PUBLISH): Rate(900, -1),
            PolicyKey(topic=HOT, side=DISPATCH): Rate(50, 7, period=9),
        }
        cluster.model.quotas.rates |= before
        sidecar = await leading(cluster)
        await sidecar.turn(4)
        assert cluster.model.quotas.rates != before
        await sidecar.quotas.remove("acme", **WHO)
        await sidecar.turn()
        assert cluster.model.quotas.rates == before
        assert not sidecar.quotas.quotas.rates.owned and not await sidecar.coordination.read_tree(HELD)
        assert (await sidecar.quotas.view()).sentence == "there are no quota groups"

    async def test_given_back_when_the_enforcer_is_off(self) -> None:
        cluster = QuotaCluster()
        first = await leading(cluster)
        await first.turn(3)
        await first.leadership.stop()
        second = await leading(cluster, name="b", enforcer="off")
        await second.turn()
        assert not cluster.model.quotas.rates
        assert (await second.quotas.view()).obstacle == "QuotasOff"

    async def test_given_back_after_a_handback(self) -> None:
        sidecar = await leading()
        await sidecar.turn(3)
        ended = EndedView(by="ann", reason="r", wall_ms=1, deadman=False)
        record = TakeoverRecord(by="ann", reason="r", wall_ms=1, overrides={}, runtime={}, active=False, ended=ended)
        await sidecar.coordination.write_shared("takeover", record.encode(), version=None)
        await sidecar.turn(2)
        assert not sidecar.quota_cluster.model.quotas.rates
        again = replace(record, active=True, ended=None).encode()
        await sidecar.coordination.write_shared("takeover", again, version=0)
        await sidecar.turn(2)
        assert sidecar.quota_cluster.model.quotas.rates

    async def test_given_back_at_a_persons_word(self) -> None:
        cluster = QuotaCluster()
        before = {PolicyKey(topic=COLD, side=PUBLISH): Rate(900, -1)}
        cluster.model.quotas.rates |= before
        sidecar = await leading(cluster)
        await sidecar.turn(3)
        person = MemoryQuotaAdmin(cluster.model)
        person.fail("set_topic_rate", AdminTimeout("no answer"))
        lines = await give_quotas_back(person, person, sidecar.config, sidecar.coordination, sidecar.clock)
        assert lines[0].startswith("15 rates") and "could not be given back: no answer" in lines[1]
        lines = await give_quotas_back(person, person, sidecar.config, sidecar.coordination, sidecar.clock)
        assert lines == ["1 rates and resource groups of quotas given back"]
        assert cluster.model.quotas.rates == before
        await sidecar.leadership.stop()
        second = await leading(cluster, name="b", enforcer="off")
        await second.turn()
        assert cluster.model.quotas.rates == before and not second.quotas.quotas.rates.owned
        assert await give_quotas_back(person, person, sidecar.config, second.coordination, sidecar.clock) == []

    async def test_what_could_not_be_read_is_named(self) -> None:
        cluster = QuotaCluster()
        sidecar = await leading(cluster)
        await sidecar.turn(3)
        owned = sidecar.quotas.quotas.rates.owned
        person = MemoryQuotaAdmin(cluster.model)
        person.fail("topic_rate", *[AdminTimeout("no answer")] * len(owned))
        lines = await give_quotas_back(person, person, sidecar.config, sidecar.coordination, sidecar.clock)
        unread = {f"the {place.side} rate of {place.topic} could not be read: not given back" for place in owned}
        assert lines[0].startswith("0 rates") and unread == set(lines[1:-1]) and "no answer" in lines[-1]
        lines = await give_quotas_back(person, person, sidecar.config, sidecar.coordination, sidecar.clock)
        assert lines == [f"{len(owned)} rates and resource groups of quotas given back"]
        assert not cluster.model.quotas.rates

    async def test_resource_groups_that_could_not_be_read_are_named(self) -> None:
        sidecar = await leading(enforcer="native")
        await sidecar.turn(3)
        person = MemoryQuotaAdmin(sidecar.quota_cluster.model)
        person.fail("resource_group", AdminTimeout("no answer"))
        lines = await give_quotas_back(person, person, sidecar.config, sidecar.coordination, sidecar.clock)
        # Its namespaces are given back all the same.
        assert lines[0].startswith("2 rates") and set(sidecar.quota_cluster.model.quotas.groups) == {"acme"}
        assert lines[-1] == "resource group acme, or a namespace of it, could not be read: not given back"
        (said_again,) = await give_quotas_back(person, person, sidecar.config, sidecar.coordination, sidecar.clock)
        assert not said_again.startswith("0 rates") and not sidecar.quota_cluster.model.quotas.groups

    async def test_no_uninstall_before_the_rates_are_given_back(self) -> None:
        sidecar = await leading()
        await FEATURE.forbid_uninstall(sidecar.coordination)
        await sidecar.turn(3)
        count = len(sidecar.quotas.quotas.rates.owned)
        with pytest.raises(Conflict, match=rf"^{count} rates of quota groups would stay: run `bundlekeel handback` f"):
            await FEATURE.forbid_uninstall(sidecar.coordination)

    async def test_what_is_as_before_is_not_named(self) -> None:
        cluster = QuotaCluster()
        sidecar = await leading(cluster)
        await sidecar.turn(3)
        cluster.model.quotas.rates.pop(PolicyKey(topic=HOT, side=PUBLISH))
        person = MemoryQuotaAdmin(cluster.model)
        (lines,) = await give_quotas_back(person, person, sidecar.config, sidecar.coordination, sidecar.clock)
        assert lines.startswith(f"{len(sidecar.quotas.quotas.rates.owned) - 1} rates")

    @pytest.mark.parametrize("text", [None, "ended", "active"])
    async def test_put_aside_without_a_takeover(self, text: str | None) -> None:
        """The running leader then gives back and writes nothing again; what a takeover left stays as it is."""
        sidecar = await leading()
        await sidecar.turn(3)
        ended = EndedView(by="bob", reason="x", wall_ms=1, deadman=False)
        record = TakeoverRecord(
            by="bob", reason="x", wall_ms=1, overrides={"a": "b"}, runtime={}, active=text == "active"
        )
        before = replace(record, ended=None if record.active else ended)
        if text is not None:
            await sidecar.coordination.write_shared("takeover", before.encode(), version=None)
        await put_quotas_aside(sidecar.coordination, sidecar.clock, **WHO)
        document = await sidecar.coordination.read("takeover")
        assert document is not None
        if text is not None:
            assert decode_takeover(document.data) == before
            return
        await sidecar.turn(3)
        assert not sidecar.quota_cluster.model.quotas.rates
        view = await sidecar.quotas.view()
        assert view.obstacle == Code.PUT_ASIDE.value
        expected = "handed back by ann; no rate is set before the next "
        expected += '`bundlekeel mode act --reason "..."` or `bundlekeel takeover`'
        assert (
            view.explanations == {"PutAside": expected}
            and f"nothing is written (PutAside: {expected})" in view.sentence
        )
        (entries,) = sidecar.journal.tail(10, kind="request")
        assert entries["by"] == "ann" and "quotas" in entries["sentence"] and "takeover" in entries["sentence"]

    async def test_the_mode_act_that_is_asked_for_after_a_handback_sets_rates_again(self) -> None:
        """Without a takeover, and another mode does not; one that was asked for before the handback does not either."""
        sidecar = await leading()
        await sidecar.service.set_mode("act", **WHO)
        await sidecar.turn(3)
        before = dict(sidecar.quota_cluster.model.quotas.rates)
        sidecar.clock.offset += 1
        await put_quotas_aside(sidecar.coordination, sidecar.clock, **WHO)
        await sidecar.turn(3)
        assert before and not sidecar.quota_cluster.model.quotas.rates
        sidecar.clock.offset += 1
        await sidecar.service.set_mode("recommend", **WHO)
        await sidecar.turn(3)
        assert not sidecar.quota_cluster.model.quotas.rates
        await sidecar.service.set_mode("act", **WHO)
        await sidecar.turn(3)
        assert sidecar.quota_cluster.model.quotas.rates.keys() == before.keys()
        assert (await sidecar.quotas.view()).acting
        document = await sidecar.coordination.read("takeover")
        assert document is not None and not decode_takeover(document.data).active

    async def test_how_much_would_be_given_back(self) -> None:
        sidecar = await leading()
        assert await quotas_owned(sidecar.coordination) == []
        await sidecar.turn(3)
        (lines,) = await quotas_owned(sidecar.coordination)
        assert (
            lines == f"{len(sidecar.quotas.quotas.rates.owned)} rates and resource groups of quotas would be given back"
        )

    async def test_somebody_elses_value_is_theirs(self) -> None:
        """Found before the next write, never restored away."""
        sidecar = await leading()
        await sidecar.turn(4)
        place = PolicyKey(topic=HOT, side=PUBLISH)
        sidecar.quota_cluster.model.quotas.rates[place] = Rate(2)
        await sidecar.turn(40)
        await sidecar.quotas.remove("acme", **WHO)
        await sidecar.turn()
        assert sidecar.quota_cluster.model.quotas.rates == {place: Rate(2)}

    async def test_a_vanished_topic_is_forgotten(self) -> None:
        sidecar = await leading()
        await sidecar.turn(3)
        model = sidecar.quota_cluster.model
        for topics in model.topics.values():
            if HOT in topics:
                topics.remove(HOT)
        model.quotas.rates.pop(PolicyKey(topic=HOT, side=PUBLISH))
        await sidecar.quotas.remove("acme", **WHO)
        await sidecar.turn()
        assert not model.quotas.rates and not sidecar.quotas.quotas.rates.owned


@pytest.mark.parametrize("written", range(0, 17, 4))
@pytest.mark.parametrize("removed", [False, True])
async def test_killed_between_two_writes(written: int, removed: bool) -> None:
    cluster = QuotaCluster()
    before = {PolicyKey(topic=COLD, side=PUBLISH): Rate(900, -1)}
    cluster.model.quotas.rates |= before
    first = await leading(cluster)
    first.quota_admin.fail("set_topic_rate", *[None] * written, *[LeadershipLost("killed")] * (16 - written))
    await first.turn()
    changed = [place for place, rate in cluster.model.quotas.rates.items() if before.get(place) != rate]
    assert len(changed) == written
    await first.leadership.stop()
    second = await leading(cluster, name="b")
    if removed:
        await second.quotas.remove("acme", **WHO)
        await second.turn()
        assert cluster.model.quotas.rates == before
    else:
        await second.turn(4)
        assert 0.9 * LIMIT <= cluster.total() <= 1.1 * LIMIT
        await second.quotas.remove("acme", **WHO)
        await second.turn()
        assert cluster.model.quotas.rates == before
