"""Quota groups set and removed at run time, in a whole sidecar over fakes."""

from __future__ import annotations

from typing import Any

import pytest

from bundlekeel.core.errors import ConfigError, NotFound
from bundlekeel.core.quotas.groups import Group, Limits
from tests.support.quota_world import QuotaCluster, leading

WHO = {"reason": "r", "by": "ann"}


async def test_set_over_the_settings() -> None:
    """Everywhere at once; removing it removes the one of the settings too."""
    sidecar = await leading()
    group = Group(name="acme", limits=Limits(publish_messages=400), members=("t:acme",))
    made = await sidecar.service.put(group, **WHO)
    assert made["origin"] == "api" and made["limits"]["publish_messages"] == 400
    await sidecar.turn(4)
    assert 0.9 * 400 <= sidecar.quota_cluster.total() <= 1.1 * 400
    (row,) = (await sidecar.service.view())["groups"]
    assert (row["origin"], row["by"], row["reason"]) == ("api", "ann", "r")
    assert (await sidecar.service.remove("acme", **WHO))["origin"] == "api"
    assert (await sidecar.service.view())["groups"] == []
    with pytest.raises(NotFound, match="there are no groups"):
        await sidecar.service.remove("acme", **WHO)


@pytest.mark.parametrize(
    ("name", "limits", "members", "words"),
    [
        ("other", {"publish_messages": 1}, ("n:acme/orders",), "belongs to group acme already"),
        ("other", {"publish_messages": 1}, ("t:acme",), "belongs to group acme already"),
        ("other", {"publish_messages": 1}, ("t:nobody",), "unknown tenant"),
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
        await sidecar.service.put(Group(name=name, limits=Limits(**limits), members=members), **WHO)
    assert caught.value.field.startswith(f"quotas.groups.{name}") and not sidecar.sharing.desired.quotas


async def test_settings_that_changed_since() -> None:
    """A wish that does not fit any more is left out and told."""
    cluster = QuotaCluster()
    first = await leading(cluster, t={"members": ("t:t",), "publish_messages": 9})
    await first.service.put(Group(name="mine", limits=Limits(publish_messages=5), members=("t:acme",)), **WHO)
    await first.leadership.stop()
    second = await leading(cluster, name="b")
    await second.turn()
    view = await second.service.view()
    assert [row["name"] for row in view["groups"]] == ["acme"]
    assert "belongs to group acme already" in view["problems"][0]


async def test_unknown_tenant_of_the_settings() -> None:
    """Told; the others are kept."""
    sidecar = await leading(ghost={"members": ("t:ghost",), "publish_messages": 9})
    await sidecar.turn()
    assert "unknown tenant" in (await sidecar.service.view())["problems"][0]
