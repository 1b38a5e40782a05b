"""Contract of `Metadata.policies`, for the fake and for ZooKeeper. A World writes the records, as Pulsar would."""

from __future__ import annotations

from typing import Any, Protocol

import pytest

from bundlekeel.model.errors import CodecError, StoreError
from bundlekeel.model.policies import IsolationPolicy
from bundlekeel.ports import Metadata, PolicyRecords
from tests.support.contracts.coordination import eventually

CLUSTER = "here"
SPACES = ("t/a", "t/b", "t/c")
GOLD: dict[str, Any] = {
    "namespaces": ["t/gold.*", "t/x"],
    "primary": ["b1"],
    "secondary": ["b2", "b3"],
    "auto_failover_policy": {"policy_type": "min_available", "parameters": {"min_limit": "2", "usage_threshold": "80"}},
    "unload_scope": "all_matching",
}
DECODED = IsolationPolicy(
    name="gold", namespaces=("t/gold.*", "t/x"), primary=("b1",), secondary=("b2", "b3"), min_limit=2
)


class PolicyWorld(Protocol):
    """Writes what brokers write."""

    metadata: Metadata

    async def put_isolation(self, policies: dict[str, Any] | None) -> None:
        """The cluster's policies as JSON; None deletes them; a policy that is None makes the record unreadable."""

    async def put_domain(self, name: str, brokers: list[str] | None) -> None:
        """A failure domain; None deletes it."""

    async def put_group(self, namespace: str, group: str | None) -> None:
        """A namespace's local policies, with this group ("" without one); None makes the record unreadable."""

    async def suspend(self) -> None:
        """The store does not answer any more."""


async def settle(world: PolicyWorld, expected: PolicyRecords) -> None:
    """Changes are noticed within a moment, without a call that asks for them."""

    async def is_current() -> bool:
        try:
            return await world.metadata.policies(CLUSTER, SPACES) == expected
        except CodecError:
            return False

    await eventually(is_current)


async def check_nothing_there(world: PolicyWorld) -> None:
    """A cluster without records has no policies; that is an answer, not an error."""
    assert await world.metadata.policies(CLUSTER, SPACES) == PolicyRecords()
    assert await world.metadata.policies(CLUSTER, ()) == PolicyRecords()


async def check_everything_there(world: PolicyWorld) -> None:
    """All three kinds, only for the namespaces asked about."""
    await world.put_isolation({"gold": GOLD, "silver": {**GOLD, "secondary": []}})
    await world.put_domain("east", ["b1:8080", "b2:8080"])
    await world.put_domain("west", ["b3:8080"])
    await world.put_group("t/a", "g")
    await world.put_group("t/b", "")
    await world.put_group("t/z", "g")
    records = await world.metadata.policies(CLUSTER, SPACES)
    assert records.isolation[0] == DECODED
    assert [policy.name for policy in records.isolation] == ["gold", "silver"]
    assert records.failure_domains == {"east": ("b1:8080", "b2:8080"), "west": ("b3:8080",)}
    assert records.anti_affinity == {"t/a": "g"}
    with pytest.raises(StoreError, match="there is no /admin/clusters/elsewhere in the configuration store"):
        await world.metadata.policies("elsewhere", SPACES)


async def check_changes_are_seen(world: PolicyWorld) -> None:
    """Records that appear, change and go, after they were read (absent) once."""
    await check_nothing_there(world)
    await world.put_isolation({"gold": GOLD})
    await settle(world, PolicyRecords(isolation=(DECODED,)))
    await world.put_domain("east", ["b1:8080"])
    await world.put_group("t/a", "g")
    await settle(
        world, PolicyRecords(isolation=(DECODED,), failure_domains={"east": ("b1:8080",)}, anti_affinity={"t/a": "g"})
    )
    await world.put_domain("east", None)
    await world.put_group("t/a", "h")
    await world.put_isolation(None)
    await settle(world, PolicyRecords(anti_affinity={"t/a": "h"}))
    await world.put_group("t/a", "")
    await settle(world, PolicyRecords())


async def check_broken_records(world: PolicyWorld) -> None:
    """A namespace's own record costs that namespace; a record for all is an error; both heal."""
    await world.put_group("t/a", None)
    await world.put_group("t/b", "g")
    await settle(world, PolicyRecords(anti_affinity={"t/b": "g"}, unreadable=frozenset({"t/a"})))
    await world.put_isolation({"gold": None})

    async def refused() -> bool:
        try:
            await world.metadata.policies(CLUSTER, SPACES)
        except CodecError:
            return True
        return False

    await eventually(refused)
    await world.put_isolation({"gold": GOLD})
    await world.put_group("t/a", "g")
    await settle(world, PolicyRecords(isolation=(DECODED,), anti_affinity={"t/a": "g", "t/b": "g"}))


async def check_a_store_that_is_away(world: PolicyWorld) -> None:
    """Earlier results are not returned as if they were current."""
    await world.put_isolation({"gold": GOLD})
    await settle(world, PolicyRecords(isolation=(DECODED,)))
    await world.suspend()
    with pytest.raises(StoreError):
        await world.metadata.policies(CLUSTER, SPACES)


CHECKS = (
    check_nothing_there,
    check_everything_there,
    check_changes_are_seen,
    check_broken_records,
    check_a_store_that_is_away,
)
