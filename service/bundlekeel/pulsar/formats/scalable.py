"""Scalable topics (Pulsar 5.0): their layouts in the store, and their statistics.

A layout is `/topics/{tenant}/{namespace}/{topic}` (`ScalableTopicMetadata`). Statistics come from
`/admin/v2/scalable/{tenant}/{namespace}/{topic}/stats` (`ScalableTopicStats`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from bundlekeel.model.names import TopicName, broker_id_of_url, is_topic
from bundlekeel.model.numbers import integer
from bundlekeel.model.scalable import Segment
from bundlekeel.pulsar.formats.external_input import load_object, read


class _Range(msgspec.Struct):
    start: int = 0
    end: int = 0


class _Segment(msgspec.Struct, rename="camel"):
    hash_range: _Range
    state: str = ""
    parent_ids: list[int] = []
    created_at_epoch: int = 0
    created_at_ms: int = 0
    sealed_at_ms: int = 0
    legacy_topic_name: str | None = None

    @property
    def changed_ms(self) -> int:
        """Time of the split or merge that sealed or created it; 0: none. Pulsar removes the numbers of old parents."""
        created_later = self.parent_ids or self.created_at_epoch > 0
        return max(self.sealed_at_ms, self.created_at_ms if created_later else 0, 0)


class _Layout(msgspec.Struct):
    segments: dict[str, _Segment] = {}
    deleted: bool = False


def decode_layout(data: bytes, topic: TopicName) -> list[Segment]:
    """Return the segments of a scalable topic, sealed ones included. Segments with an invalid name are omitted.

    Raises CodecError if the layout cannot be read.
    """
    layout = read(data, _Layout, what=f"the layout of {topic}")
    return [] if layout.deleted else list(_segments(layout, topic))


def _segments(layout: _Layout, topic: TopicName) -> Iterator[Segment]:
    for number, segment in layout.segments.items():
        descriptor = f"{segment.hash_range.start:04x}-{segment.hash_range.end:04x}-{number}"
        name = segment.legacy_topic_name or f"segment://{topic.namespace}/{topic.local}/{descriptor}"
        if number.isdecimal() and is_topic(name):
            active = segment.state != "SEALED"
            index = integer(number, field=f"segments of {topic}")
            yield Segment(topic=topic, number=index, name=name, active=active, changed_ms=segment.changed_ms)


class _Load(msgspec.Struct, rename="camel"):
    msg_rate_in: float = 0.0
    msg_rate_out: float = 0.0
    byte_rate_in: float = 0.0
    byte_rate_out: float = 0.0


def decode_segment_load(data: bytes) -> tuple[float, float, float, float]:
    """Return the traffic of a segment (columns of `model.load.TRAFFIC`), as its owner measured it for the controller.

    Raises CodecError if it cannot be read.
    """
    load = read(data, _Load, what="the load of a segment")
    return load.msg_rate_in, load.msg_rate_out, load.byte_rate_in, load.byte_rate_out


def decode_segment_owners(body: bytes) -> dict[str, str]:
    """Return the broker id of the owner of each segment, by the segment's full name; without unowned segments.

    Raises CodecError if the body is not a JSON object.
    """
    layout: Any = load_object(body, what="the scalable topic").get("layout")
    segments = layout.get("segments") if isinstance(layout, dict) else None
    rows = segments.values() if isinstance(segments, dict) else ()
    pairs = [(row.get("name"), row.get("ownerBroker")) for row in rows if isinstance(row, dict)]
    return {
        name: broker_id_of_url(owner)
        for name, owner in pairs
        if isinstance(name, str) and isinstance(owner, str) and owner
    }
