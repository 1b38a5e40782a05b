"""Records about where bundles may live: isolation policies, failure domains, anti-affinity groups.

Used whole or not at all: half a policy would let bundles go where they must not.
"""

from __future__ import annotations

from bundlekeel.codec.tolerant import Faults, Fields, load_object
from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.errors import CodecError
from bundlekeel.core.model.policies import IsolationPolicy


def decode_isolation_policies(data: bytes) -> tuple[IsolationPolicy, ...]:
    """`/admin/clusters/{cluster}/namespaceIsolationPolicies`: policies in the order of the text. CodecError."""
    faults = Faults()
    fields = Fields(load_object(data, exact=True), faults)
    found = tuple(_policy(name, fields.child(name), faults) for name in fields.names())
    _refuse(faults)
    return found


def _policy(name: str, fields: Fields, faults: Faults) -> IsolationPolicy:
    failover = fields.child("auto_failover_policy")
    if failover.text("policy_type") != "min_available":
        faults.add(Code.WRONG_TYPE, f"{name}.auto_failover_policy.policy_type")
    return IsolationPolicy(
        name=name,
        namespaces=_texts(fields, "namespaces", f"{name}.namespaces", faults),
        primary=_texts(fields, "primary", f"{name}.primary", faults),
        secondary=_texts(fields, "secondary", f"{name}.secondary", faults),
        # A map of texts in Pulsar, so the number is spelled out.
        min_limit=failover.child("parameters").integer("min_limit", required=True),
    )


def decode_failure_domain(data: bytes) -> tuple[str, ...]:
    """`/admin/clusters/{cluster}/failureDomain/{domain}`: its broker ids. CodecError."""
    faults = Faults()
    brokers = _texts(Fields(load_object(data, exact=True), faults), "brokers", "brokers", faults)
    _refuse(faults)
    return brokers


def decode_anti_affinity_group(data: bytes) -> str:
    """`/admin/local-policies/{tenant}/{namespace}`: the group, "" when the namespace has none. CodecError."""
    faults = Faults()
    group = Fields(load_object(data, exact=True), faults).text("namespaceAntiAffinityGroup")
    _refuse(faults)
    return group


def _texts(fields: Fields, name: str, path: str, faults: Faults) -> tuple[str, ...]:
    """An array of texts; absent is empty, because brokers omit what is null."""
    items = fields.items(name)
    if not all(isinstance(item, str) for item in items):
        faults.add(Code.WRONG_TYPE, path)
    return tuple(str(item) for item in items)


def _refuse(faults: Faults) -> None:
    for code, field in faults.as_tuple():
        raise CodecError(f"{field} is unusable ({code})", code=code, field=field)
