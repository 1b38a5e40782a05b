"""Entries of the ownership channel (PIP-192): `ServiceUnitStateData` as JSON, in the system topic or metadata store.

An unusable field makes the whole entry unusable, because an owner derived from half an entry may be wrong. Unknown
fields of other releases are ignored. Jackson omits nulls, but writes them inside the map of children.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from bundlekeel.model.channel_states import MAX_VERSION, MIN_VERSION, ServiceUnit, UnitState
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import CodecError
from bundlekeel.pulsar.formats.external_input import clean, load_object
from bundlekeel.pulsar.formats.report import is_bundle

MAX_ENTRY_BYTES: Final = 1_048_576
_STATES: Final = {state.value: state for state in UnitState}
_CHILDREN: Final = "splitServiceUnitToDestBroker"
_KINDS: Final = {str: "text", int: "whole number", bool: "boolean", dict: "object"}


class _Data(msgspec.Struct, gc=False, rename="camel"):
    state: str
    dst_broker: str | None = None
    source_broker: str | None = None
    children: dict[str, str | None] | None = msgspec.field(name=_CHILDREN, default=None)
    force: bool = False
    timestamp: int = 0
    version_id: int = 0


_DATA: Final = msgspec.json.Decoder(_Data)


def decode_service_unit(data: bytes | msgspec.Raw) -> ServiceUnit:
    """Decode one entry. Raises CodecError with the unusable field. An empty payload (tombstone) is not an entry."""
    if len(data) > MAX_ENTRY_BYTES:
        raise CodecError(f"the entry has {len(data)} bytes, more than {MAX_ENTRY_BYTES}", code=Code.REPORT_TOO_LARGE)
    try:
        raw = _DATA.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError):
        raw = _odd(bytes(data))
    return _checked(raw)


def check_bundle(name: str) -> str:
    """Return `name`, the key of an entry. Raises CodecError if it is not a bundle's full name."""
    if not is_bundle(name):
        raise CodecError(f"{name[:200]!a} is not a bundle name", code=Code.WRONG_TYPE, field="key")
    return name


def _odd(data: bytes) -> _Data:
    """Decode an entry that the strict decoder rejected. Raises CodecError with the unusable field."""
    raw = load_object(data, exact=True)
    children = _field(raw, _CHILDREN, dict, {})
    for child, broker in children.items():
        if broker is not None and not isinstance(broker, str):
            raise _wrong(_CHILDREN, f"{child!a} is a {type(broker).__name__}")
    return _Data(
        state=_field(raw, "state", str, ""),
        dst_broker=_field(raw, "dstBroker", str, None),
        source_broker=_field(raw, "sourceBroker", str, None),
        children=children,
        force=_field(raw, "force", bool, False),
        timestamp=_field(raw, "timestamp", int, 0),
        version_id=_field(raw, "versionId", int, 0),
    )


def _field(raw: dict[str, Any], name: str, kind: type, default: Any) -> Any:
    value = raw.get(name)
    if value is None:
        return default
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise _wrong(name, f"{type(value).__name__} where {_KINDS[kind]} belongs")
    return value


def _checked(raw: _Data) -> ServiceUnit:
    state = _STATES.get(raw.state)
    if state is None:
        raise _wrong("state", f"unknown state {raw.state[:50]!a}")
    destination = _broker("dstBroker", raw.dst_broker)
    source = _broker("sourceBroker", raw.source_broker)
    if state is not UnitState.FREE and not destination.strip() and not source.strip():
        raise _wrong("dstBroker", f"{state} names no broker")
    # After the largest version, Java continues with the smallest (negative) number. Brokers write no other negative
    # one.
    if not 0 <= raw.version_id <= MAX_VERSION and raw.version_id != MIN_VERSION:
        raise _wrong("versionId", f"{_short(raw.version_id)} is not a version")
    if not 0 <= raw.timestamp <= MAX_VERSION:
        raise _wrong("timestamp", f"{_short(raw.timestamp)} is not a time")
    children = raw.children or {}
    for child in children:
        if "/" in child or not is_bundle(f"tenant/namespace/{child}"):
            raise _wrong(_CHILDREN, f"{child[:50]!a} is not a range")
    return ServiceUnit(
        state=state,
        destination=destination,
        source=source,
        children={child: _broker(_CHILDREN, broker) for child, broker in children.items()},
        force=raw.force,
        timestamp_ms=raw.timestamp,
        version=raw.version_id,
    )


def _broker(name: str, broker: str | None) -> str:
    """Return a broker id; "" for null.

    Raises CodecError if it contains a control character or is otherwise unusable.
    """
    text = broker or ""
    if "\ufffd" in text or clean(text) != text:
        raise _wrong(name, f"{text[:50]!a} is not a broker id")
    return text


def _short(number: int) -> str:
    # Python cannot print integers of more than 4,300 digits.
    return str(number) if abs(number) < 2**70 else "a number of more than 64 bits"


def _wrong(field: str, detail: str) -> CodecError:
    return CodecError(f"{field}: {detail}", code=Code.WRONG_TYPE, field=field)
