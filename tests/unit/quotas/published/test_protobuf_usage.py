"""`ResourceUsageInfo`: messages written by Pulsar are read, impossible values are refused by the field's name."""

from __future__ import annotations

import pytest

from bundlekeel.model.codes import Code
from bundlekeel.model.errors import CodecError
from bundlekeel.quotas.published.protobuf_usage import decode_usage
from bundlekeel.quotas.published.usage_messages import PassedUsage, ResourceGroupUsage, UsageMessage
from tests.support.memory_usage import encode_usage, field, number_field, usage_message, varint

# Written by Pulsar 4.2.4's own class: three groups, one with storage too, one without anything.
PULSARS = bytes.fromhex(
    "0a1070756c7361723a2f2f62313a3636353012160a0461636d6512070880c02510e0121a0508ac021002121b0a076772c3b6c39f65120408"
    "001000220a08ffffffffffffffff7f12070a057175696574"
)
SAID = UsageMessage(
    broker="pulsar://b1:6650",
    groups=(
        ResourceGroupUsage(group="acme", publish=PassedUsage(2400, 614_400), dispatch=PassedUsage(2, 300)),
        ResourceGroupUsage(group="größe", publish=PassedUsage(0, 0)),
        ResourceGroupUsage(group="quiet"),
    ),
)
BROKER, OWNER = field(1, b"b"), field(1, b"g")


def test_pulsars_own_bytes() -> None:
    """Every figure where it belongs; a side that is left out is not zero."""
    assert decode_usage(PULSARS) == SAID


def test_unknown_fields_are_passed_over() -> None:
    """Later releases say more: replication per group (6, 7), and whatever else in any wire type."""
    more = (
        number_field(9, 2**63) + field(2047, b"\xff") + varint(8 << 3 | 1) + b"12345678" + varint(10 << 3 | 5) + b"1234"
    )
    network = field(2, number_field(1, 7) + more + number_field(2, 8))
    usage = field(2, more + OWNER + network + field(6, b"\x08") + field(7, b""))
    expected = usage_message("b", g=(PassedUsage(8, 7), None))
    assert decode_usage(more + BROKER + usage + more) == expected


def test_the_last_one_counts() -> None:
    """A field may come twice; that is how protobuf reads it."""
    twice = field(2, OWNER + field(1, b"h") + field(2, number_field(1, 1) + number_field(2, 2) + number_field(2, 3)))
    assert decode_usage(BROKER + field(1, b"c") + twice) == usage_message("c", h=(PassedUsage(3, 1), None))


@pytest.mark.parametrize(
    ("data", "field", "what"),
    [
        (b"", "broker", "is missing"),
        (field(1, b""), "broker", "is missing"),
        (field(1, b"\xff"), "broker", "is not a text"),
        (number_field(1, 5), "broker", "is a number"),
        (varint(1 << 3 | 1) + b"12345678", "broker", "is of wire type 1"),
        (BROKER + field(2, b""), "usageMap[0].owner", "is missing"),
        (BROKER + number_field(2, 5), "usageMap", "is a number"),
        (BROKER + field(2, OWNER) + field(2, OWNER + number_field(2, 5)), "usageMap[1].publish", "is a number"),
        (BROKER + field(2, OWNER + field(3, b"")), "usageMap[0].dispatch.bytesPerPeriod", "is missing"),
        (
            BROKER + field(2, OWNER + field(2, number_field(1, 1))),
            "usageMap[0].publish.messagesPerPeriod",
            "is missing",
        ),
        (BROKER + field(2, OWNER + field(2, field(1, b"1"))), "usageMap[0].publish.bytesPerPeriod", "is no count"),
        (
            BROKER + field(2, OWNER + field(2, number_field(1, 2**63))),
            "usageMap[0].publish.bytesPerPeriod",
            "is no count",
        ),
        (BROKER + varint(2 << 3 | 2) + varint(9) + b"x", "usageMap", "is cut off"),
        (BROKER + varint(2 << 3 | 2), "usageMap", "is cut off"),
        (BROKER + b"\xff" * 10, "field", "is too large a number"),
        (BROKER + varint(3 << 3) + b"\xff" * 9 + b"\x02", "field 3", "is too large a number"),
        (BROKER + b"\xff", "field", "is cut off"),
        (BROKER + varint(3 << 3 | 3), "field 3", "is of wire type 3"),
        (BROKER + varint(2), "field 0", "has no number"),
        (BROKER + varint(2**32), "field 536870912", "has no number"),
    ],
)
def test_errors_name_the_field(data: bytes, field: str, what: str) -> None:
    """And what is wrong with it."""
    with pytest.raises(CodecError) as caught:
        decode_usage(data)
    assert (str(caught.value), caught.value.field, caught.value.code) == (f"{field} {what}", field, Code.WRONG_TYPE)


def test_too_large() -> None:
    """It is not even looked at."""
    data = encode_usage(SAID)
    assert decode_usage(data, max_bytes=len(data)) == SAID
    with pytest.raises(CodecError) as caught:
        decode_usage(data, max_bytes=len(data) - 1)
    assert caught.value.code == Code.REPORT_TOO_LARGE
