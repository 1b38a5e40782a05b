"""Decodes `ResourceUsageInfo` of Pulsar 4.2, the protobuf message of the brokers' usage of ResourceGroups.

It does not use the package `protobuf`, which is installed only with the optional traces. Otherwise every installation
would need the package and generated code of the same version, for a message of seven fields. Unknown fields are
skipped, as protobuf does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from bundlekeel.model.codes import Code
from bundlekeel.model.errors import CodecError
from bundlekeel.pulsar.formats.external_input import clean
from bundlekeel.quotas.published.usage_messages import PassedUsage, ResourceGroupUsage, UsageMessage

# Largest accepted message, in bytes: enough for about 5,000 ResourceGroups.
MAX_USAGE_BYTES: Final = 256 * 1024

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_SIZE: Final = {_FIXED64: 8, _FIXED32: 4}
_VARINT_BYTES: Final = 10
_NUMBERS: Final = 2**29
# Largest valid count, because brokers count in a Java long.
_MOST: Final = 2**63 - 1

_INFO: Final = {1: "broker", 2: "usageMap"}
_USAGE: Final = {1: "owner", 2: "publish", 3: "dispatch"}
_NETWORK: Final = {1: "bytesPerPeriod", 2: "messagesPerPeriod"}
_Fields = Iterator[tuple[str, int | memoryview]]


def decode_usage(data: bytes, *, max_bytes: int = MAX_USAGE_BYTES) -> UsageMessage:
    """Decode one message. If a field occurs several times, the last value counts.

    Raises CodecError with the name of a field that is unreadable or missing, or if the message is too large.
    """
    if len(data) > max_bytes:
        raise CodecError(f"the message has {len(data)} bytes, more than {max_bytes}", code=Code.REPORT_TOO_LARGE)
    broker, groups = "", list[ResourceGroupUsage]()
    for name, value in _fields(memoryview(data), _INFO, ""):
        if name == "broker":
            broker = _text(value, name)
        else:
            groups.append(_usage(_nested(value, name), f"{name}[{len(groups)}]."))
    if not broker:
        raise _wrong("broker", "is missing")
    return UsageMessage(broker=broker, groups=tuple(groups))


def _usage(data: memoryview, where: str) -> ResourceGroupUsage:
    owner, sides = "", dict[str, PassedUsage]()
    for name, value in _fields(data, _USAGE, where):
        if name == "owner":
            owner = _text(value, where + name)
        else:
            sides[name] = _passed(_nested(value, where + name), f"{where}{name}.")
    if not owner:
        raise _wrong(f"{where}owner", "is missing")
    return ResourceGroupUsage(group=owner, publish=sides.get("publish"), dispatch=sides.get("dispatch"))


def _passed(data: memoryview, where: str) -> PassedUsage:
    counts: dict[str, int] = {}
    for name, value in _fields(data, _NETWORK, where):
        if not isinstance(value, int) or value > _MOST:
            raise _wrong(where + name, "is no count")
        counts[name] = value
    for name in _NETWORK.values():
        if name not in counts:
            raise _wrong(where + name, "is missing")
    return PassedUsage(messages=counts["messagesPerPeriod"], size=counts["bytesPerPeriod"])


# --- the wire format -------------------------------------------------------------------------------------


def _fields(data: memoryview, names: Mapping[int, str], where: str) -> _Fields:
    """Yield the fields whose number is in `names`, in order. `where`: prefix of field names in errors."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at, f"{where}field")
        number, kind = key >> 3, key & 7
        name = names.get(number, "")
        path = where + (name or f"field {number}")
        value: int | memoryview
        if not 0 < number < _NUMBERS:
            raise _wrong(path, "has no number")
        if kind == _VARINT:
            value, at = _varint(data, at, path)
        else:
            size = None if name else _FIXED_SIZE.get(kind)
            if kind == _BYTES:
                size, at = _varint(data, at, path)
            if size is None:
                raise _wrong(path, f"is of wire type {kind}")
            if size > len(data) - at:
                raise _wrong(path, "is cut off")
            value, at = data[at : at + size], at + size
        if name:
            yield name, value


def _varint(data: memoryview, at: int, where: str) -> tuple[int, int]:
    """Return a number (seven bits per byte, the lowest first) and the position after it."""
    number = 0
    for index, byte in enumerate(data[at : at + _VARINT_BYTES]):
        number |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            if number >= 2**64:
                break
            return number, at + index + 1
    raise _wrong(where, "is too large a number" if len(data) - at >= _VARINT_BYTES else "is cut off")


def _text(value: int | memoryview, where: str) -> str:
    try:
        text = bytes(_nested(value, where)).decode()
    except UnicodeDecodeError:
        raise _wrong(where, "is not a text") from None
    if clean(text) != text:
        raise _wrong(where, "holds a control character")
    return text


def _nested(value: int | memoryview, where: str) -> memoryview:
    if isinstance(value, int):
        raise _wrong(where, "is a number")
    return value


def _wrong(field: str, what: str) -> CodecError:
    return CodecError(f"{field} {what}", code=Code.WRONG_TYPE, field=field)
