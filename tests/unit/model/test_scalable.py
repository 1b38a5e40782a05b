"""Bundles whose segments Pulsar split or merged, from layouts of scalable topics."""

from __future__ import annotations

import pytest

from bundlekeel.model.errors import CodecError
from bundlekeel.model.names import parse_topic
from bundlekeel.model.scalable import Segment, changed_bundles
from bundlekeel.pulsar.formats.scalable import decode_layout, decode_segment_load

TOPIC = parse_topic("topic://t1/seg/hot")
# As 5.0.1 writes it after a split of segment 0: the parent is sealed, its children have parents.
SPLIT = b"""{"epoch":1,"nextSegmentId":4,"segments":{
 "0":{"segmentId":0,"hashRange":{"start":0,"end":32767},"state":"SEALED","parentIds":[],"childIds":[2,3],
  "createdAtEpoch":0,"sealedAtEpoch":1,"createdAtMs":1000,"sealedAtMs":9000,"entryBucketSplits":[]},
 "1":{"segmentId":1,"hashRange":{"start":32768,"end":65535},"state":"ACTIVE","parentIds":[],"childIds":[],
  "createdAtMs":1000,"sealedAtMs":0},
 "2":{"segmentId":2,"hashRange":{"start":0,"end":16383},"state":"ACTIVE","parentIds":[0],"createdAtMs":9001},
 "3":{"segmentId":3,"hashRange":{"start":16384,"end":32767},"state":"ACTIVE","parentIds":[0],"createdAtMs":9001}},
 "properties":{},"future":5}"""


def test_the_segments_of_a_split() -> None:
    """The time of a segment is that of the split or merge that created or sealed it."""
    rows = [(item.number, item.name, item.active, item.changed_ms) for item in decode_layout(SPLIT, TOPIC)]
    assert rows == [
        (0, "segment://t1/seg/hot/0000-7fff-0", False, 9000),
        (1, "segment://t1/seg/hot/8000-ffff-1", True, 0),
        (2, "segment://t1/seg/hot/0000-3fff-2", True, 9001),
        (3, "segment://t1/seg/hot/4000-7fff-3", True, 9001),
    ]


def test_children_whose_parent_was_removed_are_still_changed() -> None:
    """5.0.1 removes a sealed segment without messages within a minute, and its number from its children."""
    data = b"""{"epoch":2,"segments":{
     "1":{"hashRange":{"start":32768,"end":65535},"state":"ACTIVE","parentIds":[],"createdAtEpoch":0,"createdAtMs":1000},
     "2":{"hashRange":{"start":0,"end":16383},"state":"ACTIVE","parentIds":[],"createdAtEpoch":1,"createdAtMs":9001}}}"""
    assert [(item.number, item.changed_ms) for item in decode_layout(data, TOPIC)] == [(1, 0), (2, 9001)]


def test_a_migrated_topic_keeps_its_name() -> None:
    """Its first segment is the topic of before."""
    data = b'{"segments":{"0":{"hashRange":{"start":0,"end":65535},"legacyTopicName":"persistent://t1/seg/hot"}}}'
    assert decode_layout(data, TOPIC) == [Segment(topic=TOPIC, number=0, name="persistent://t1/seg/hot")]


def test_a_number_of_thousands_of_digits_is_refused() -> None:
    segment = b'{"hashRange":{"start":0,"end":1},"legacyTopicName":"persistent://t/n/x"}'
    with pytest.raises(CodecError):
        decode_layout(b'{"segments":{"%s":%s}}' % (b"9" * 5000, segment), TOPIC)


@pytest.mark.parametrize(
    "data",
    [
        b"{}",
        b'{"segments":{}}',
        SPLIT.replace(b'"epoch":1,', b'"deleted":true,'),
        b'{"segments":{"x":{"hashRange":{"start":0,"end":1},"legacyTopicName":"persistent://t/n/x"}}}',
        b'{"segments":{"x":{"hashRange":{"start":0,"end":1}}}}',
        b'{"segments":{"0":{"hashRange":{"start":9,"end":1}}}}',
    ],
)
def test_layouts_without_usable_segments(data: bytes) -> None:
    assert decode_layout(data, TOPIC) == []


@pytest.mark.parametrize(
    "data", [b"", b"[]", b'{"segments":5}', b'{"segments":{"0":{}}}', b'{"segments":{"0":{"hashRange":{"start":"x"}}}}']
)
def test_layouts_that_cannot_be_read(data: bytes) -> None:
    with pytest.raises(CodecError, match="layout of topic://t1/seg/hot"):
        decode_layout(data, TOPIC)


def test_bundles_of_changed_segments() -> None:
    """Parents and children of a split are in different bundles; the last change counts."""
    halves = ("t1/seg/0x00000000_0x80000000", "t1/seg/0x80000000_0xffffffff")
    others = ("t1/other/0x00000000_0xffffffff", "t2/seg/0x00000000_0xffffffff")
    segments = decode_layout(SPLIT, TOPIC)
    by_half = [{item.changed_ms for item in segments if parse_topic(item.name).hash >> 31 == half} for half in (0, 1)]
    changed = changed_bundles(segments, (*halves, *others), 8_999)
    assert changed == {name: max(times) for name, times in zip(halves, by_half, strict=True) if max(times, default=0)}
    assert changed_bundles(segments, halves, 9_001) == {}
    assert changed_bundles((), halves, 0) == {}


def test_the_load_of_a_segment() -> None:
    """In the order of the columns of traffic; fields that are missing are 0."""
    assert decode_segment_load(b'{"msgRateIn":1,"byteRateIn":3.5,"msgRateOut":2,"byteRateOut":4}') == (1, 2, 3.5, 4)
    assert decode_segment_load(b"{}") == (0, 0, 0, 0)
    with pytest.raises(CodecError, match="load of a segment"):
        decode_segment_load(b"[")
