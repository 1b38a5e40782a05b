"""Whatever is published as brokers' usage: the decoder agrees with protobuf itself, or raises CodecError."""

from __future__ import annotations

import contextlib
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from bundlekeel.model.errors import CodecError
from bundlekeel.quotas.published.protobuf_usage import decode_usage
from bundlekeel.quotas.published.usage_messages import PassedUsage, ResourceGroupUsage, UsageMessage
from tests.support.memory_usage import encode_usage, field, number_field

COUNTS = st.integers(0, 2**63 - 1)
PASSED = st.builds(PassedUsage, COUNTS, COUNTS)
TEXTS = st.text(min_size=1, max_size=20).filter(lambda text: text.isprintable())
TOLD = st.builds(ResourceGroupUsage, group=TEXTS, publish=st.none() | PASSED, dispatch=st.none() | PASSED)
MESSAGES = st.builds(UsageMessage, broker=TEXTS, groups=st.lists(TOLD, max_size=4).map(tuple))
UNKNOWN = st.builds(field, st.integers(8, 2**29 - 1), st.binary(max_size=9)) | st.builds(
    number_field, st.integers(8, 2**29 - 1), st.integers(0, 2**64 - 1)
)
_SHAPES: Final[dict[str, list[tuple[str, int, str]]]] = {
    "Network": [("bytesPerPeriod", 1, "uint64"), ("messagesPerPeriod", 2, "uint64")],
    "Usage": [("owner", 1, "string"), ("publish", 2, "Network"), ("dispatch", 3, "Network")],
    "Info": [("broker", 1, "string"), ("usageMap", 2, "Usage")],
}


def _protobufs() -> Any:
    """The message as the protobuf package knows it, of the same numbers and types."""
    file = descriptor_pb2.FileDescriptorProto(name="usage.proto", package="usage", syntax="proto2")
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in _SHAPES.items():
        message = file.message_type.add(name=name)
        for called, number, kind in fields:
            label = kinds.LABEL_REPEATED if kind == "Usage" else kinds.LABEL_OPTIONAL
            if kind in _SHAPES:
                message.field.add(
                    name=called, number=number, label=label, type=kinds.TYPE_MESSAGE, type_name=f".usage.{kind}"
                )
            else:
                message.field.add(name=called, number=number, label=label, type=getattr(kinds, f"TYPE_{kind.upper()}"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("usage.Info"))


INFO: Final = _protobufs()


def convert(usage: Any) -> ResourceGroupUsage:
    """Convert protobuf's result to our class."""
    sides = {
        name: PassedUsage(getattr(usage, name).messagesPerPeriod, getattr(usage, name).bytesPerPeriod)
        for name in ("publish", "dispatch")
        if usage.HasField(name)
    }
    return ResourceGroupUsage(group=usage.owner, publish=sides.get("publish"), dispatch=sides.get("dispatch"))


def read(data: bytes) -> UsageMessage:
    """Read the message with protobuf. Raises DecodeError if it is malformed."""
    info = INFO.FromString(data)
    return UsageMessage(broker=info.broker, groups=tuple(convert(usage) for usage in info.usageMap))


@given(MESSAGES, UNKNOWN, UNKNOWN)
def test_the_same_is_read_as_by_protobuf(message: UsageMessage, before: bytes, after: bytes) -> None:
    """Well-formed messages, surrounded by unknown fields."""
    data = before + encode_usage(message) + after
    assert decode_usage(data) == read(data) == message


@given(MESSAGES, st.data())
def test_damage_is_an_error_or_what_protobuf_reads(message: UsageMessage, draw: st.DataObject) -> None:
    """Cut off, bytes changed or put in: never another answer than protobuf's, never another error."""
    data = bytearray(encode_usage(message))
    at = draw.draw(st.integers(0, len(data)))
    cut = draw.draw(st.integers(0, 3))
    data[at : at + cut] = draw.draw(st.binary(max_size=3))
    damaged = bytes(data[: draw.draw(st.integers(0, len(data)))]) if draw.draw(st.booleans()) else bytes(data)
    try:
        usage = decode_usage(damaged)
    except CodecError:
        return
    assert usage == read(damaged)


@given(st.binary(max_size=200))
def test_noise(data: bytes) -> None:
    """Any bytes: an answer or a CodecError."""
    with contextlib.suppress(CodecError):
        assert decode_usage(data).broker
