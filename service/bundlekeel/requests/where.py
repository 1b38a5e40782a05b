"""Finds the owner of a topic, bundle or namespace, without assigning a bundle.

A lookup over REST would assign an unowned bundle. So this module reads bundle boundaries and owners from the metadata
store or the ownership channel.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from bundlekeel.model.doc import Answer, Doc
from bundlekeel.model.errors import ConfigError, NotFound
from bundlekeel.model.names import BundleName, TopicName, bundle_for_hash, names_namespace, parse_topic
from bundlekeel.model.response_fields import Bundle
from bundlekeel.model.text_format import numbered
from bundlekeel.ports import Metadata, Owner, Ownership
from bundlekeel.pulsar.channel.responses import UnitView
from bundlekeel.pulsar.existing_names import boundaries_of, bundle_named, bundles_of, exists, topic_named

OwnershipState = Literal["owned", "unowned", "unloading"]

# Largest partition count of a topic in one request. The metadata store can contain any number.
MOST_PARTITIONS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Place(Answer):
    """The owner of a topic or bundle."""

    topic: Annotated[str | None, Doc("the topic or partition; null: the request named a bundle")] = None
    topic_exists: Annotated[
        bool | None,
        Doc("false: the topic is not stored, and a client creates it by using it; null: the request named a bundle"),
    ] = None
    hash: Annotated[str | None, Doc("hash of the topic: 0x and eight hex digits; null: the request named a bundle")] = (
        None
    )
    bundle: Bundle
    broker: Annotated[str | None, Doc("broker that owns the bundle; null: none")]
    state: Annotated[OwnershipState, Doc("whether a broker owns the bundle")]
    web_url: Annotated[str, Doc("admin address of the owner")]
    service_url: Annotated[str, Doc("client address of the owner, for the requested listener")]
    listener: Annotated[str | None, Doc("requested advertised listener; null: none")]
    preallocated_to: Annotated[str | None, Doc("broker that the bundle is in transit to; null: none")]
    channel: Annotated[UnitView | None, Doc("entry in the ownership channel")] = None


async def where(
    name: str,
    *,
    metadata: Metadata,
    ownership: Ownership,
    preallocated: Mapping[str, str] | None = None,
    entry: Callable[[str], UnitView | None] = lambda _: None,
    listener: str = "",
) -> list[Place]:
    """Return the owner of a topic, each of its partitions or segments, a bundle, or each bundle of a namespace.

    `preallocated`: target broker of each bundle that is in transit. `entry`: returns a bundle's row in the ownership
    channel, or None. `listener`: the advertised listener whose address is returned; "": the broker's own address.
    Raises NotFound if the namespace does not exist, and ConfigError if the name is not valid, the topic has too many
    partitions, or an owner does not have the listener.
    """
    going = preallocated or {}
    rows = await _rows(name, metadata, lambda bundle: _row(bundle, ownership, going, listener))
    return [replace(row, channel=entry(row.bundle)) for row in rows]


async def _rows(name: str, metadata: Metadata, row_of: Callable[[BundleName], Awaitable[Place]]) -> list[Place]:
    bundle = await bundle_named(name, metadata)
    if bundle is not None:
        return [await row_of(bundle)]
    if names_namespace(name):
        return [await row_of(item) for item in await bundles_of(name, metadata)]
    topics = await _topics(name, metadata)
    bounds = await boundaries_of(metadata, topics[0].namespace)
    # Read the owner of each bundle only once, because a bundle can contain many of the topics.
    hashes = {topic: topic.hash for topic in topics}
    bundles = {topic: bundle_for_hash(topic.namespace, bounds, hash_) for topic, hash_ in hashes.items()}
    rows = {bundle: await row_of(bundle) for bundle in dict.fromkeys(bundles.values())}
    topic_exists = len(topics) > 1 or await exists(topics[0], metadata)
    return [
        replace(rows[bundle], topic=str(topic), topic_exists=topic_exists, hash=f"0x{hashes[topic]:08x}")
        for topic, bundle in bundles.items()
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeBundle:
    """A bundle that moves as a whole if an operator moves some of its topics.

    `topics`: the requested topics. `others`: number of other known persistent topics that move with them.
    """

    bundle: str
    topics: tuple[str, ...] = ()
    others: int = 0

    @property
    def sentence(self) -> str:
        """Sentence for operators: which bundle moves, and which topics move with it."""
        return self.sentence_with("moves")

    def sentence_with(self, moves: str) -> str:
        """Return `sentence` with another verb (`moves`), for example `would move` for a refused bundle."""
        if not self.topics:
            return f"{self.bundle} {moves} with its {numbered(self.others, 'known topic')}"
        others = numbered(self.others, "other known topic")
        return f"{self.bundle} holds {', '.join(self.topics)}; it {moves} whole, with {others}"


async def whole_bundles(name: str, *, metadata: Metadata) -> list[WholeBundle]:
    """Return the bundles that move if an operator moves what `name` names, in hash order.

    `name`: a bundle, a topic, or a partitioned topic with all its partitions. Raises NotFound if there is no such
    namespace, bundle or topic, and StoreError if the store cannot be read."""
    bundle = await bundle_named(name, metadata)
    if bundle is not None:
        return [WholeBundle(bundle=str(bundle), others=len(await metadata.topics(str(bundle))))]
    topics_of: dict[BundleName, list[str]] = {}
    topics = await _topics(name, metadata)
    if not await exists(topics[0], metadata):  # else a mistyped topic would move its bundle
        raise NotFound(f"topic {topics[0]} does not exist")
    bounds = await boundaries_of(metadata, topics[0].namespace)
    for topic in topics:
        topics_of.setdefault(bundle_for_hash(topic.namespace, bounds, topic.hash), []).append(str(topic))
    wholes = []
    for one, requested in sorted(topics_of.items(), key=lambda item: item[0].lower):
        others = set(await metadata.topics(str(one))) - set(requested)
        wholes.append(WholeBundle(bundle=str(one), topics=tuple(requested), others=len(others)))
    return wholes


async def _topics(name: str, metadata: Metadata) -> list[TopicName]:
    topic = await topic_named(name, metadata)
    if topic.domain == "topic":
        return [topic, *map(parse_topic, await metadata.segments(str(topic)))]
    partitions = await metadata.partitions(str(topic)) if topic.partition < 0 else 0
    if partitions > MOST_PARTITIONS:
        raise ConfigError(
            f"{topic} has {partitions} partitions: name one of them",
            field="name",
            value=name,
            allowed=f"a partition, or a topic of at most {MOST_PARTITIONS} of them",
        )
    return [topic.with_partition(index) for index in range(partitions)] or [topic]


async def _row(bundle: BundleName, ownership: Ownership, going: Mapping[str, str], listener: str) -> Place:
    owner = await ownership.owner(str(bundle))
    return Place(
        bundle=str(bundle),
        broker=owner.broker_id if owner else None,
        state="unowned" if owner is None else "unloading" if owner.disabled else "owned",
        web_url=owner.web_url if owner else "",
        service_url=_service_url(owner, listener) if owner else "",
        listener=listener or None,
        preallocated_to=going.get(str(bundle)),
    )


def _service_url(owner: Owner, listener: str) -> str:
    """Return the owner's address for clients of this listener, as a lookup with `listenerName` does."""
    no_address = not (owner.web_url or owner.service_url)
    if not listener or no_address:
        return owner.service_url
    addresses = {item.name: item.service_url for item in owner.listeners}
    if listener not in addresses:
        names = ", ".join(addresses) or "none (advertisedListeners is not set)"
        text = f"broker {owner.broker_id} has no advertised listener {listener!r}; it has {names}"
        raise ConfigError(text, field="listener", value=listener, allowed=names)
    return addresses[listener]
