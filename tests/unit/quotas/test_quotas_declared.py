"""Quota groups set and removed at run time, in a whole sidecar over fakes."""

from __future__ import annotations

from typing import Any

import pytest

from bundlekeel.model.errors import ConfigError, NotFound
from bundlekeel.quotas.requests import requests_of
from bundlekeel.quotas.rules.groups import KINDS, QuotaGroup, QuotaLimits
from tests.support.quota_world import QuotaCluster, leading

WHO = {"reason": "r", "by": "ann"}


async def test_set_over_the_settings() -> None:
    """Everywhere at once; removing it removes the one of the settings too."""
    sidecar = await leading()
    group = QuotaGroup(name="acme", limits=QuotaLimits(publish_messages=400), members=("t:acme",))
    view = await sidecar.quotas.put(group, **WHO)
    assert view.origin == "api" and view.limits.publish_messages == 400
    await sidecar.turn(4)
    assert 0.9 * 400 <= sidecar.quota_cluster.total() <= 1.1 * 400
    (row,) = (await sidecar.quotas.view()).groups
    assert (row.origin, row.by, row.reason) == ("api", "ann", "r")
    assert (await sidecar.quotas.remove("acme", **WHO)).origin == "api"
    assert (await sidecar.quotas.view()).groups == []
    with pytest.raises(NotFound, match="removed by ann"):
        await sidecar.quotas.remove("acme", **WHO)


@pytest.mark.parametrize(
    ("name", "limits", "members", "words"),
    [
        ("other", {"publish_messages": 1}, ("n:acme/orders",), "belongs to group acme already"),
        ("other", {"publish_messages": 1}, ("t:acme",), "belongs to group acme already"),
        ("other", {"publish_messages": 1}, ("t:nobody",), "unknown tenant"),
        ("other", {"publish_bytes": 1}, ("t:t",), "below the least rate"),
        ("other", {"publish_messages": -1}, ("t:t",), "negative"),
        ("other", {}, ("t:t",), "limits nothing"),
        ("other", {"publish_messages": 1}, (), "has no members"),
        ("a b", {"publish_messages": 1}, ("t:t",), "not a name"),
    ],
)
async def test_refused(name: str, limits: dict[str, Any], members: tuple[str, ...], words: str) -> None:
    """With field, value and what is allowed; nothing is stored."""
    sidecar = await leading()
    with pytest.raises(ConfigError, match=words) as caught:
        await sidecar.quotas.put(QuotaGroup(name=name, limits=QuotaLimits(**limits), members=members), **WHO)
    assert caught.value.field.startswith(f"quotas.groups.{name}") and not requests_of(sidecar.shared_state.desired)


async def test_settings_that_changed_since() -> None:
    cluster = QuotaCluster()
    first = await leading(cluster, t={"members": ("t:t",), "publish_messages": 9})
    await first.quotas.put(QuotaGroup(name="mine", limits=QuotaLimits(publish_messages=5), members=("t:acme",)), **WHO)
    await first.leadership.stop()
    second = await leading(cluster, name="b")
    await second.turn()
    view = await second.quotas.view()
    assert [row.name for row in view.groups] == ["acme"]
    assert "belongs to group acme already" in view.problems[0]


async def test_unknown_tenant_of_the_settings() -> None:
    sidecar = await leading(ghost={"members": ("t:ghost",), "publish_messages": 9})
    await sidecar.turn()
    assert "unknown tenant" in (await sidecar.quotas.view()).problems[0]


class TestTheWayBack:
    """Changes at run time can be undone to return to the settings file."""

    async def test_a_removal_is_seen(self) -> None:
        sidecar = await leading()
        await sidecar.quotas.remove("acme", **WHO)
        await sidecar.turn()
        (problem,) = (await sidecar.quotas.view()).problems
        assert "declared in the settings, removed by ann on " in problem and "quota reset acme" in problem
        for name in (sidecar.quotas.group("acme"), sidecar.quotas.remove("acme", **WHO)):
            with pytest.raises(NotFound, match=r"removed by ann on .*quota reset acme"):
                await name

    @pytest.mark.parametrize("removed", [True, False])
    async def test_reset(self, removed: bool) -> None:
        """The override is dropped, whether it removed the group or set another one."""
        sidecar = await leading()
        if removed:
            await sidecar.quotas.remove("acme", **WHO)
        else:
            await sidecar.quotas.put(
                QuotaGroup(name="acme", limits=QuotaLimits(publish_messages=9), members=("t:t",)), **WHO
            )
        result = await sidecar.quotas.reset("acme", **WHO)
        assert (result.name, result.origin, result.limits.publish_messages) == ("acme", "settings", 200)
        view = await sidecar.quotas.view()
        assert [(row.name, row.origin) for row in view.groups] == [("acme", "settings")]
        assert not view.problems and not requests_of(sidecar.shared_state.desired)
        with pytest.raises(NotFound, match="no command has set or removed"):
            await sidecar.quotas.reset("acme", **WHO)

    async def test_nothing_to_go_back_to(self) -> None:
        """A group that only people declared is removed, not reset; a removal without settings is dropped."""
        cluster = QuotaCluster()
        first = await leading(cluster)
        await first.quotas.put(QuotaGroup(name="mine", limits=QuotaLimits(publish_messages=5), members=("t:t",)), **WHO)
        with pytest.raises(NotFound, match="quota rm mine"):
            await first.quotas.reset("mine", **WHO)
        await first.quotas.remove("acme", **WHO)
        await first.leadership.stop()
        second = await leading(cluster, name="b", other={"members": ("n:t/other",), "publish_messages": 9})
        await second.turn()
        assert "acme" not in str((await second.quotas.view()).problems)
        assert (await second.quotas.reset("acme", **WHO)).limits is None
        assert set(requests_of(second.shared_state.desired)) == {"mine"}

    async def test_what_does_not_fit_any_more(self) -> None:
        sidecar = await leading()
        await sidecar.quotas.remove("acme", **WHO)
        await sidecar.quotas.put(
            QuotaGroup(name="new", limits=QuotaLimits(publish_messages=5), members=("t:acme",)), **WHO
        )
        with pytest.raises(ConfigError, match="belongs to group acme already"):
            await sidecar.quotas.reset("acme", **WHO)
        assert set(requests_of(sidecar.shared_state.desired)) == {"acme", "new"}


async def test_the_journal_tells_before_and_after() -> None:
    sidecar = await leading()
    group = QuotaGroup(name="acme", limits=QuotaLimits(publish_messages=400), members=("t:acme",))
    await sidecar.quotas.put(group, **WHO)
    await sidecar.quotas.remove("acme", **WHO)
    await sidecar.quotas.reset("acme", **WHO)
    output = [(item["before"], item["after"]) for item in sidecar.journal.tail(10, kind="request")]
    limits = dict.fromkeys(KINDS, None)
    file = {"origin": "settings", "members": ["t:acme"], "limits": limits | {"publish_messages": 200}}
    api = {"origin": "api", "members": ["t:acme"], "limits": limits | {"publish_messages": 400}}
    assert output == [(file, api), (api, None), (None, file)]
