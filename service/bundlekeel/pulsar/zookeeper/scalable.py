"""Scalable topics in the metadata store (Pulsar 5.0): their names, their segments, and recent changes of segments."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final
from urllib.parse import unquote_plus

import structlog

from bundlekeel.model.errors import CodecError
from bundlekeel.model.names import TopicName, is_segment, parse_topic
from bundlekeel.model.scalable import Segment, recently_removed
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
        # By path: the data of a layout, its segments, and segments that Pulsar has removed from it recently.
        self._layouts: dict[str, tuple[bytes, list[Segment], list[Segment]]] = {}

    async def names(self, namespace: str) -> list[TopicName]:
        """Return the scalable topics of a namespace and all their segments. Raises StoreError.

        Segments are those of at most `MOST_LAYOUTS` topics, from layouts under a watch.
        """
        paths = await self._paths(namespace) if await self._has_topics() else []
        segments = [segment for _, items, _ in await self._read(paths[:MOST_LAYOUTS]) for segment in items]
        if len(self._layouts) > 2 * MOST_LAYOUTS:
            self._keep_only(paths)
        return [*map(_topic_of, paths), *(parse_topic(segment.name) for segment in segments)]

    async def segments(self, topic: TopicName) -> list[TopicName]:
        """Return the segments of a scalable topic: those with ledgers, also sealed ones, and those of its layout.

        A segment of a migrated topic can have the topic's former name. Raises StoreError.
        """
        if not await self._has_topics():
            return []
        path = f"/managed-ledgers/{topic.namespace}/segment/{topic.encoded}"
        locals_ = (f"{topic.local}/{descriptor}" for descriptor in await self._client.children(path) or ())
        names = [
            TopicName(domain="segment", namespace=topic.namespace, local=local)
            for local in locals_
            if is_segment(local)
        ]
        layout = [path for path in await self._paths(topic.namespace) if _topic_of(path) == topic]
        names += [parse_topic(segment.name) for _, segments, _ in await self._read(layout) for segment in segments]
        return list(dict.fromkeys(names))

    async def layouts(self) -> list[Segment]:
        """Return the segments of all scalable topics, from layouts under a watch. Raises StoreError.

        Recently removed segments are included, as sealed ones. At most `MOST_LAYOUTS` topics are read. Layouts that
        cannot be decoded are skipped.
        """
        if not await self._has_topics():
            return []
        paths = []
        for tenant in await self._nodes.children(TOPICS):
            for namespace in await self._nodes.children(f"{TOPICS}/{tenant}"):
                paths += await self._paths(f"{tenant}/{namespace}")
        paths = paths[:MOST_LAYOUTS]
        layouts = await self._read(paths)
        self._keep_only(paths)
        return [segment for _, segments, removed in layouts for segment in (*segments, *removed)]

    async def _paths(self, namespace: str) -> list[str]:
        path = f"{TOPICS}/{namespace}"
        return [f"{path}/{name}" for name in await self._nodes.children(path)]

    def _keep_only(self, paths: Sequence[str]) -> None:
        self._layouts = {path: self._layouts[path] for path in paths if path in self._layouts}
        self._nodes.keep_only(set(self._layouts))

    async def _read(self, paths: Sequence[str]) -> list[tuple[bytes, list[Segment], list[Segment]]]:
        """Return the layouts at these paths. Only those that have changed are read and decoded."""
        nodes = await bounded([partial(self._nodes.data, path) for path in paths])
        for path, node in zip(paths, nodes, strict=True):
            data = node or b"{}"
            before, segments, removed = self._layouts.get(path, (None, [], []))
            if before is not data:
                now = _decoded(data, _topic_of(path))
                self._layouts[path] = data, now, recently_removed([*segments, *removed], now)
        return [self._layouts[path] for path in paths]

    async def load(self, segment: Segment) -> tuple[float, float, float, float]:
        """Return the traffic of a segment (columns of `model.load.TRAFFIC`); 0: unknown. Raises StoreError."""
        topic = segment.topic
        node = await self._client.get(f"{TOPICS}/{topic.namespace}/{topic.encoded}/segments/{segment.number}/load")
        try:
            return decode_segment_load(node[0]) if node is not None else _NO_LOAD
        except CodecError:
            return _NO_LOAD

    async def _has_topics(self) -> bool:
        return bool(await self._nodes.children(TOPICS))


def _topic_of(path: str) -> TopicName:
    namespace, _, encoded = path.removeprefix(f"{TOPICS}/").rpartition("/")
    return TopicName(domain="topic", namespace=namespace, local=unquote_plus(encoded))


def _decoded(data: bytes, topic: TopicName) -> list[Segment]:
    try:
        return decode_layout(data, topic)
    except CodecError as error:
        _log.warning("layout of a scalable topic could not be read", topic=str(topic), error=str(error))
        return []
