"""Scalable topics in the metadata store (Pulsar 5.0): their names, their segments, and recent changes of segments."""

from __future__ import annotations

from functools import partial
from typing import Final
from urllib.parse import unquote_plus

import structlog

from bundlekeel.model.errors import CodecError
from bundlekeel.model.names import TopicName, is_segment
from bundlekeel.model.scalable import Segment
from bundlekeel.pulsar.formats.scalable import decode_layout, decode_segment_load
from bundlekeel.pulsar.work import bounded
from bundlekeel.pulsar.zookeeper.client import ZkClient
from bundlekeel.pulsar.zookeeper.policies import WatchedNodes

_log = structlog.get_logger(__name__)

# Layouts by tenant, namespace and topic. The segments' ledgers are below `/managed-ledgers`.
TOPICS: Final = "/topics"
# Layouts that are watched, because each costs memory here and a watch in the store.
MOST_LAYOUTS: Final = 5_000
_NO_LOAD: Final = (0.0, 0.0, 0.0, 0.0)


class ZkScalableTopics:
    """Reads scalable topics. While there is none, as on Pulsar 4, it reads nothing: a watch waits for the first one."""

    def __init__(self, client: ZkClient) -> None:
        self._client = client
        self._nodes = WatchedNodes(client)
        # Decoded layouts with their data, by path.
        self._layouts: dict[str, tuple[bytes, list[Segment]]] = {}

    async def names(self, namespace: str) -> list[TopicName]:
        """Return the scalable topics of a namespace and all their segments. Raises StoreError."""
        if not await self._has_topics():
            return []
        listing = await self._client.children(f"{TOPICS}/{namespace}") or ()
        topics = [TopicName(domain="topic", namespace=namespace, local=unquote_plus(encoded)) for encoded in listing]
        segments = await bounded([partial(self._segments, topic) for topic in topics])
        return [*topics, *(segment for item in segments for segment in item)]

    async def segments(self, topic: TopicName) -> list[TopicName]:
        """Return the segments of a scalable topic that have ledgers, sealed ones included. Raises StoreError."""
        return await self._segments(topic) if await self._has_topics() else []

    async def layouts(self) -> list[Segment]:
        """Return the segments of all scalable topics, from layouts under a watch. Raises StoreError.

        At most `MOST_LAYOUTS` topics are read. Layouts that cannot be decoded are skipped.
        """
        if not await self._has_topics():
            return []
        paths = []
        for tenant in await self._nodes.children(TOPICS):
            for namespace in await self._nodes.children(f"{TOPICS}/{tenant}"):
                names = await self._nodes.children(f"{TOPICS}/{tenant}/{namespace}")
                paths += [f"{TOPICS}/{tenant}/{namespace}/{name}" for name in names]
        paths = paths[:MOST_LAYOUTS]
        segments: list[Segment] = []
        layouts = {}
        nodes = await bounded([partial(self._nodes.data, path) for path in paths])
        for path, node in zip(paths, nodes, strict=True):
            data = node or b"{}"
            cached = self._layouts.get(path)
            if cached is None or cached[0] is not data:
                namespace, _, encoded = path.removeprefix(f"{TOPICS}/").rpartition("/")
                topic = TopicName(domain="topic", namespace=namespace, local=unquote_plus(encoded))
                cached = data, _decoded(data, topic)
            layouts[path] = cached
            segments += cached[1]
        self._layouts = layouts
        self._nodes.keep_only(set(layouts))
        return segments

    async def load(self, segment: Segment) -> tuple[float, float, float, float]:
        """Return the traffic of a segment (columns of `model.load.TRAFFIC`); 0: unknown. Raises StoreError."""
        topic = segment.topic
        node = await self._client.get(f"{TOPICS}/{topic.namespace}/{topic.encoded}/segments/{segment.number}/load")
        try:
            return decode_segment_load(node[0]) if node is not None else _NO_LOAD
        except CodecError:
            return _NO_LOAD

    async def _segments(self, topic: TopicName) -> list[TopicName]:
        path = f"/managed-ledgers/{topic.namespace}/segment/{topic.encoded}"
        locals_ = (f"{topic.local}/{descriptor}" for descriptor in await self._client.children(path) or ())
        return [
            TopicName(domain="segment", namespace=topic.namespace, local=local)
            for local in locals_
            if is_segment(local)
        ]

    async def _has_topics(self) -> bool:
        return bool(await self._nodes.children(TOPICS))


def _decoded(data: bytes, topic: TopicName) -> list[Segment]:
    try:
        return decode_layout(data, topic)
    except CodecError as error:
        _log.warning("layout of a scalable topic could not be read", topic=str(topic), error=str(error))
        return []
