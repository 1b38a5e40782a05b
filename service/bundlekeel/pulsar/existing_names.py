"""Finds topics, bundles and namespaces by name in the metadata store, for operators' requests."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

from bundlekeel.model.errors import NotFound
from bundlekeel.model.names import (
    FOR_A_TOPIC,
    BundleName,
    TopicName,
    bundle_for_hash,
    is_namespace,
    is_topic,
    names_bundle,
    no_name,
    parse_bundle,
    parse_topic,
    refuse_namespace,
)
from bundlekeel.model.text_format import suggest
from bundlekeel.planning.splitting.children import holds
from bundlekeel.ports import Metadata

# `host:port`, or an address.
_BROKER = re.compile(r".*:\d+|\d+(\.\d+){3}|\[[0-9a-f:.]+\]", re.IGNORECASE)
_LOWER = re.compile(r"0x([0-9a-f]{1,8})", re.IGNORECASE)


async def topic_named(name: str, metadata: Metadata) -> TopicName:
    """Return the topic of this name. It need not exist yet, because clients create topics by using them.

    Raises NotFound if the name is not valid, or if it is one word (`orders`) that looks like a broker or is not an
    existing topic of public/default.
    """
    refuse_namespace(name)
    try:
        topic = parse_topic(name)
    except ValueError as error:
        raise NotFound(str(error)) from None
    if "/" not in name and _BROKER.fullmatch(name):
        raise NotFound(f"{name!r} is taken for a broker, not for a topic; {FOR_A_TOPIC}")
    if not is_topic(name):
        raise no_name(name)
    if "/" not in name:
        topic_exists = False
        with suppress(NotFound):  # public/default is not part of the name, and need not exist
            topic_exists = await exists(topic, metadata)
        if not topic_exists:
            raise NotFound(f"{name!r} is taken for the topic {topic}, which does not exist; {FOR_A_TOPIC}")
    return topic


async def exists(topic: TopicName, metadata: Metadata) -> bool:
    """Return whether a topic is partitioned, a partition of such a topic, or stored.

    Returns True for non-persistent topics, which are not stored. Raises NotFound if its namespace does not exist.
    """
    if topic.domain == "non-persistent":
        return True
    whole = replace(topic, local=topic.local.removesuffix(f"-partition-{topic.partition}"))
    if await metadata.partitions(str(whole)) > max(topic.partition, 0):
        return True
    bounds = await boundaries_of(metadata, topic.namespace)
    return str(topic) in await metadata.topics(str(bundle_for_hash(topic.namespace, bounds, topic.hash)))


async def bundle_named(name: str, metadata: Metadata) -> BundleName | None:
    """Return the bundle of this name; None for the name of a namespace or topic. Raises ConfigError if it is not
    valid.

    A name counts as a bundle if its last part contains `0x` and it does not begin with `persistent://`. If the cluster
    has no such bundle, raises NotFound with the nearest bundle.
    """
    if not names_bundle(name):
        return None
    namespace, slash, tail = name.rpartition("/")
    if not slash:
        raise NotFound(f"{name!r} is not a bundle: write tenant/namespace/ before it; {FOR_A_TOPIC}")
    bounds = await boundaries_of(metadata, namespace)
    with suppress(ValueError):
        bundle = parse_bundle(name)
        if holds(bounds, str(bundle)):
            return bundle
    lower = _LOWER.search(tail)
    nearest = f"; nearest: {bundle_for_hash(namespace, bounds, int(lower[1], 16))}" if lower else ""
    raise NotFound(f"{name!r} is not a bundle of the cluster now{nearest}; {FOR_A_TOPIC}")


async def bundles_of(namespace: str, metadata: Metadata) -> list[BundleName]:
    """Return the bundles of a namespace, by their ranges.

    Raises ConfigError if the name is not valid, and NotFound if there is no such namespace.
    """
    bounds = await boundaries_of(metadata, namespace)
    return [BundleName(namespace=namespace, lower=low, upper=high) for low, high in pairwise(bounds)]


async def boundaries_of(metadata: Metadata, namespace: str) -> list[int]:
    """Return the hash boundaries of a namespace's bundles, in ascending order.

    Raises ConfigError if the name is not valid, and NotFound with the nearest namespaces if it does not exist.
    """
    if not is_namespace(namespace):
        raise no_name(namespace)
    bounds = await metadata.boundaries(namespace)
    if not bounds:
        near = suggest(namespace, set(await metadata.namespaces()) - {namespace})
        raise NotFound(f"namespace {namespace} does not exist, or has no bundles yet{near}")
    return bounds
