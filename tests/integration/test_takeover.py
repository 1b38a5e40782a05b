"""Takeover and handback on real brokers."""

from __future__ import annotations

import pytest

from bundlekeel.leader.state.partial_takeover import left_to_us
from bundlekeel.leader.state.takeover_record import EXCLUDED, SPLITTING, name_set
from bundlekeel.model.errors import AdminRefused
from bundlekeel.ports.commands import by_person
from bundlekeel.requests.takeover import SHEDDING, handback, read_record, takeover
from tests.integration.conftest import RealWorld
from tests.support.shedding import sheds_itself

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


@pytest.mark.parametrize("before", [None, "true"], ids=["absent", "true"])
async def test_round_trip(real_world: RealWorld, before: str | None) -> None:
    """Every broker stops shedding and splitting, and afterwards runs and is configured as before."""
    admin, endpoints = real_world.admin, real_world.endpoints
    # Another test may have left an override; this one starts from what it says.
    for key in (SHEDDING, SPLITTING):
        await admin.delete_dynamic(key, permit=by_person)
    if before is not None:
        await admin.set_dynamic(SHEDDING, before, permit=by_person)
    original = await admin.dynamic_configuration()
    assert original == ({} if before is None else {SHEDDING: before})
    context = real_world.takeover()

    result = await takeover(context, split=True, reason="test", by="test")
    assert result.complete, result
    assert result.splits_by == "none"
    assert result.overrides == {SHEDDING: before, SPLITTING: None}
    assert await admin.dynamic_configuration() == {SHEDDING: "false", SPLITTING: "false"}
    assert await sheds_itself(admin, endpoints) == dict.fromkeys(endpoints, False)

    assert (await takeover(context, split=False, reason="again", by="test")).overrides == result.overrides

    back = await handback(context)
    assert back is not None
    assert back.complete, back
    assert await admin.dynamic_configuration() == original
    assert await sheds_itself(admin, endpoints) == dict.fromkeys(endpoints, True)
    assert await read_record(real_world.coordination) is None
    await admin.delete_dynamic(SHEDDING, permit=by_person)


async def test_only_dynamic_keys_are_taken(real_world: RealWorld) -> None:
    """The load balancer itself cannot be switched at run time: a broker reports that, and the error has its own
    type.
    """
    with pytest.raises(AdminRefused, match="non-dynamic"):
        await real_world.admin.set_dynamic("loadBalancerEnabled", "false", permit=real_world.permit)


async def test_partial_takeover(real_world: RealWorld) -> None:
    """Every broker (4.2 and later) reports the namespaces that it leaves to us, and continues to shed the others. A
    whole takeover ends that.
    """
    admin, endpoints = real_world.admin, real_world.endpoints
    for key in (SHEDDING, SPLITTING, EXCLUDED):
        await admin.delete_dynamic(key, permit=by_person)
    context = real_world.takeover()
    names = ("public/default", "public/other")
    result = await takeover(context, split=False, reason="test", by="test", namespaces=names)
    assert result.complete, result
    for broker in endpoints:
        values = await admin.runtime_configuration(broker)
        assert name_set(values[EXCLUDED]) == set(names)
        assert left_to_us(values, names)
    assert await sheds_itself(admin, endpoints) == dict.fromkeys(endpoints, True)
    whole = await takeover(context, split=False, reason="all", by="test")
    assert whole.complete, whole
    assert await admin.dynamic_configuration() == {SHEDDING: "false"}
    for broker in endpoints:
        assert name_set((await admin.runtime_configuration(broker))[EXCLUDED]) == set()
    back = await handback(context, reason="done", by="test")
    assert back is not None and back.complete, back
    assert await admin.dynamic_configuration() == {}
    assert await sheds_itself(admin, endpoints) == dict.fromkeys(endpoints, True)
