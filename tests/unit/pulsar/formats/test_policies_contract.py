"""The fake `Metadata` keeps the promises about policies, and decoders read them whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from bundlekeel.model.errors import CodecError
from bundlekeel.model.policies import IsolationPolicy
from bundlekeel.ports import Metadata
from bundlekeel.pulsar.formats.policies import (
    decode_anti_affinity_group,
    decode_failure_domain,
    decode_isolation_policies,
)
from tests.support.contracts.policies import CHECKS, CLUSTER, DECODED, GOLD, PolicyWorld
from tests.support.memory_source import MemoryMetadata


class MemoryPolicies:
    """`PolicyWorld` over the fake."""

    def __init__(self) -> None:
        self._memory = MemoryMetadata()
        self._memory.clusters = {CLUSTER}
        self.metadata: Metadata = self._memory

    async def put_isolation(self, policies: dict[str, Any] | None) -> None:
        """Decoded here, as the fake holds values."""
        broken = policies is not None and None in policies.values()
        values: tuple[IsolationPolicy, ...] = ()
        if policies and not broken:
            values = decode_isolation_policies(json.dumps(policies).encode())
        self._memory.isolation[CLUSTER] = "broken" if broken else values

    async def put_domain(self, name: str, brokers: list[str] | None) -> None:
        """In or out."""
        domains = self._memory.domains.setdefault(CLUSTER, {})
        domains.pop(name, None)
        if brokers is not None:
            domains[name] = tuple(brokers)

    async def put_group(self, namespace: str, group: str | None) -> None:
        """Readable or not."""
        self._memory.unreadable.discard(namespace)
        self._memory.groups[namespace] = group or ""
        if group is None:
            self._memory.unreadable.add(namespace)

    async def suspend(self) -> None:
        """Every call raises."""
        self._memory.suspended = True


@pytest.mark.parametrize("check", CHECKS)
async def test_the_fake_keeps_the_contract(check: Callable[[PolicyWorld], Awaitable[None]]) -> None:
    await check(MemoryPolicies())


def test_isolation_policies_are_read_in_their_order() -> None:
    bare = {"auto_failover_policy": GOLD["auto_failover_policy"]}
    policies = decode_isolation_policies(json.dumps({"z": bare, "gold": GOLD}).encode())
    assert [policy.name for policy in policies] == ["z", "gold"]
    assert policies[1] == DECODED
    assert policies[0].namespaces == policies[0].primary == ()
    assert decode_isolation_policies(b"{}") == ()


BROKEN: list[tuple[Callable[[bytes], object], str]] = [
    (decode_isolation_policies, ""),
    (decode_isolation_policies, "[]"),
    (decode_isolation_policies, '{"p":5}'),
    (decode_isolation_policies, json.dumps({"p": {**GOLD, "primary": ["b", 5]}})),
    (decode_isolation_policies, json.dumps({"p": {**GOLD, "namespaces": "t/a"}})),
    (decode_isolation_policies, json.dumps({"p": {**GOLD, "auto_failover_policy": {"policy_type": "new_one"}}})),
    (
        decode_isolation_policies,
        json.dumps({"p": {**GOLD, "auto_failover_policy": {"policy_type": "min_available", "parameters": {}}}}),
    ),
    (decode_failure_domain, '{"brokers":"b1"}'),
    (decode_failure_domain, "nonsense"),
    (decode_anti_affinity_group, '{"namespaceAntiAffinityGroup":7}'),
    (decode_anti_affinity_group, ""),
]


@pytest.mark.parametrize(("decode", "text"), BROKEN)
def test_half_a_record_is_no_record(decode: Callable[[bytes], object], text: str) -> None:
    """A policy that is guessed at would let bundles go where they must not."""
    with pytest.raises(CodecError):
        decode(text.encode())


def test_the_small_records() -> None:
    """Brokers of a domain; the group of a namespace, among whatever else is in there."""
    assert decode_failure_domain(b'{"brokers":["b1:8080"]}') == ("b1:8080",)
    assert decode_failure_domain(b"{}") == ()
    assert decode_anti_affinity_group(b'{"bundles":{"numBundles":1},"namespaceAntiAffinityGroup":"g"}') == "g"
    assert decode_anti_affinity_group(b'{"bundles":{"numBundles":1}}') == ""
