"""Decodes isolation policies, failure domains and anti-affinity groups.

A record is used whole or not at all: half a policy would let bundles move where they must not.
"""

from __future__ import annotations

from bundlekeel.model.codes import Code
from bundlekeel.model.policies import IsolationPolicy
from bundlekeel.pulsar.formats.external_input import Faults, Fields, load_object
from bundlekeel.pulsar.formats.records import refuse_faults


def decode_isolation_policies(data: bytes) -> tuple[IsolationPolicy, ...]:
    """Return policies of `/admin/clusters/{cluster}/namespaceIsolationPolicies` in order. Raises CodecError."""
    faults = Faults()
    fields = Fields(load_object(data, exact=True), faults)
    policies = tuple(_policy(name, fields.child(name), faults) for name in fields.names())
    refuse_faults(faults)
    return policies


def _policy(name: str, fields: Fields, faults: Faults) -> IsolationPolicy:
    failover = fields.child("auto_failover_policy")
    if failover.text("policy_type") != "min_available":
        faults.add(Code.WRONG_TYPE, f"{name}.auto_failover_policy.policy_type")
    return IsolationPolicy(
        name=name,
        namespaces=_texts(fields, "namespaces", f"{name}.namespaces", faults),
        primary=_texts(fields, "primary", f"{name}.primary", faults),
        secondary=_texts(fields, "secondary", f"{name}.secondary", faults),
        # In Pulsar this is a map of strings, so the number is a string.
        min_limit=failover.child("parameters").integer("min_limit", required=True),
    )


def decode_failure_domain(data: bytes) -> tuple[str, ...]:
    """Return the broker ids of `/admin/clusters/{cluster}/failureDomain/{domain}`. Raises CodecError."""
    faults = Faults()
    brokers = _texts(Fields(load_object(data, exact=True), faults), "brokers", "brokers", faults)
    refuse_faults(faults)
    return brokers


def decode_anti_affinity_group(data: bytes) -> str:
    """Return the group in `/admin/local-policies/{tenant}/{namespace}`; "": none. Raises CodecError."""
    faults = Faults()
    group = Fields(load_object(data, exact=True), faults).text("namespaceAntiAffinityGroup")
    refuse_faults(faults)
    return group


def _texts(fields: Fields, name: str, path: str, faults: Faults) -> tuple[str, ...]:
    """Return an array of strings. A missing array counts as empty, because brokers omit nulls."""
    items = fields.items(name)
    if not all(isinstance(item, str) for item in items):
        faults.add(Code.WRONG_TYPE, path)
    return tuple(str(item) for item in items)
