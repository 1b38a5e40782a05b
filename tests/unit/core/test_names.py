"""Topics and their bundles by name alone, as brokers compute them."""

from __future__ import annotations

import pytest

from bundlekeel.core.model.names import bundle_for_hash, parse_topic

# The four bundles that a namespace gets by default.
QUARTERS = [0x00000000, 0x40000000, 0x80000000, 0xC0000000, 0xFFFFFFFF]


def crc32(data: bytes) -> int:
    """CRC-32 (IEEE 802.3), bit by bit."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = (value >> 1) ^ (0xEDB88320 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def test_jtable_127_the_hash_is_that_of_the_full_name() -> None:
    """CRC-32 of domain, namespace and local name; a partition's own name counts, in UTF-8."""
    for text in ("persistent://apache/pulsar/test-topic-partition-1", "non-persistent://t/n/ä b"):
        assert parse_topic(text).hash == crc32(text.encode())
    assert parse_topic("my-topic").hash == crc32(b"persistent://public/default/my-topic")


@pytest.mark.parametrize(
    ("topic_hash", "name"),
    [
        (0x00000000, "0x00000000_0x40000000"),
        (0x3FFFFFFF, "0x00000000_0x40000000"),
        (0x40000000, "0x40000000_0x80000000"),
        (0xC0000000, "0xc0000000_0xffffffff"),
        (0xFFFFFFFF, "0xc0000000_0xffffffff"),
    ],
)
def test_jtable_127_a_topic_is_in_the_bundle_of_its_hash(topic_hash: int, name: str) -> None:
    """The lower end belongs to a bundle and the upper one to the next; the last bundle is closed at both ends."""
    assert str(bundle_for_hash("apache/pulsar", QUARTERS, topic_hash)) == f"apache/pulsar/{name}"
