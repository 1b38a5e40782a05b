"""Where is it? Topic, partitioned topic, bundle or namespace: hash, bundle, owner, URLs. Never assigns anything.

A lookup over REST would assign an unowned bundle; this reads boundaries and ownership from the stores instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from bundlekeel.core.errors import NotFound
from bundlekeel.core.names import BundleName, TopicName, bundle_for_hash, parse_bundle, parse_topic
from bundlekeel.ports import Metadata, Owner, Ownership

Row = dict[str, Any]


async def where(
    name: str, *, metadata: Metadata, ownership: Ownership, preallocated: Mapping[str, str] | None = None
) -> list[Row]:
    """One row a bundle (namespace), a topic, or a partition. NotFound when the namespace does not exist."""
    going = preallocated or {}
    bundle = _as_bundle(name)
    if bundle is not None:
        bounds = await _boundaries(metadata, bundle.namespace)
        if bundle.lower not in bounds or bundle.upper not in bounds:
            raise NotFound(f"{bundle} is not a bundle of {bundle.namespace} now; it may have been split")
        return [await _row(bundle, ownership, going)]
    if "://" not in name and name.count("/") == 1:
        bounds = await _boundaries(metadata, name)
        return [await _row(item, ownership, going) for item in _bundles(name, bounds)]
    try:
        topic = parse_topic(name)
    except ValueError as error:
        raise NotFound(str(error)) from None
    bounds = await _boundaries(metadata, topic.namespace)
    partitions = await metadata.partitions(str(topic)) if topic.partition < 0 else 0
    topics = [topic.with_partition(index) for index in range(partitions)] or [topic]
    return [await _topic_row(item, bounds, ownership, going) for item in topics]


def _as_bundle(name: str) -> BundleName | None:
    try:
        return parse_bundle(name)
    except ValueError:
        return None


def _bundles(namespace: str, bounds: list[int]) -> list[BundleName]:
    return [BundleName(namespace=namespace, lower=low, upper=high) for low, high in pairwise(bounds)]


async def _boundaries(metadata: Metadata, namespace: str) -> list[int]:
    bounds = await metadata.boundaries(namespace)
    if not bounds:
        raise NotFound(f"namespace {namespace} does not exist, or has no bundles yet")
    return bounds


async def _topic_row(topic: TopicName, bounds: list[int], ownership: Ownership, going: Mapping[str, str]) -> Row:
    bundle = bundle_for_hash(topic.namespace, bounds, topic.hash)
    row = await _row(bundle, ownership, going)
    return {**row, "topic": str(topic), "hash": f"0x{topic.hash:08x}"}


async def _row(bundle: BundleName, ownership: Ownership, going: Mapping[str, str]) -> Row:
    owner = await ownership.owner(str(bundle))
    return {
        "topic": None,
        "hash": None,
        "bundle": str(bundle),
        "broker": owner.broker_id if owner else None,
        "state": _state(owner),
        "web_url": owner.web_url if owner else "",
        "service_url": owner.service_url if owner else "",
        "preallocated_to": going.get(str(bundle)),
    }


def _state(owner: Owner | None) -> str:
    if owner is None:
        return "unowned"
    return "unloading" if owner.disabled else "owned"
