"""Decode load data of the extensible load manager as Pulsar's mapper (Jackson) does, for the copy of TransferShedder.

An absent value is Java's default (1.0 for a score), a null value is 0, "NaN" and "Infinity" are strings. Records that
Jackson rejects raise CodecError. A top bundle without statistics raises it too, because TransferShedder would fail.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from bundlekeel.compat.transfer import Load, TopBundle
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import CodecError


class _Load(msgspec.Struct, gc=False, rename="camel"):
    weighted_max_ema: Any = msgspec.field(name="weightedMaxEMA", default=1.0)
    msg_throughput_ema: Any = msgspec.field(name="msgThroughputEMA", default=0.0)
    msg_throughput_in: Any = 0.0
    msg_throughput_out: Any = 0.0
    updated_at: Any = 0


class _Stats(msgspec.Struct, gc=False, rename="camel"):
    msg_throughput_in: Any = 0.0
    msg_throughput_out: Any = 0.0


class _Top(msgspec.Struct, gc=False, rename="camel"):
    bundle_name: str
    stats: _Stats


_LOAD: Final = msgspec.json.Decoder(_Load)
_TOPS: Final = msgspec.json.Decoder(list[_Top])
_NUMBER: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_NOT_FINITE: Final = {name: float(name) for name in ("NaN", "Infinity", "-Infinity")}


def decode_load(data: bytes | msgspec.Raw) -> Load:
    """Decode one `BrokerLoadData`. Raises CodecError if it is unusable."""
    read = _decode(_LOAD, data)
    return Load(
        ema=_double(read.weighted_max_ema, "weightedMaxEMA"),
        throughput_ema=_double(read.msg_throughput_ema, "msgThroughputEMA"),
        throughput_in=_double(read.msg_throughput_in, "msgThroughputIn"),
        throughput_out=_double(read.msg_throughput_out, "msgThroughputOut"),
        updated_at=_long(read.updated_at, "updatedAt"),
    )


def decode_top(data: bytes | msgspec.Raw) -> list[TopBundle]:
    """Decode the list in one `TopBundlesLoadData`. Raises CodecError if it is unusable."""
    return [
        TopBundle(
            item.bundle_name,
            _double(item.stats.msg_throughput_in, f"{item.bundle_name}.msgThroughputIn"),
            _double(item.stats.msg_throughput_out, f"{item.bundle_name}.msgThroughputOut"),
        )
        for item in _decode(_TOPS, data)
    ]


def _decode(decoder: msgspec.json.Decoder[Any], data: bytes | msgspec.Raw) -> Any:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise CodecError(f"unusable: {str(error)[:200]}", code=Code.WRONG_TYPE) from None


def _double(value: Any, field: str) -> float:
    """Convert to a Java double: null and blank strings are 0, numbers may be strings."""
    if isinstance(value, str):
        text = value.strip()
        if text in _NOT_FINITE:
            return _NOT_FINITE[text]
        if not text or text == "null":
            return 0.0
        if _NUMBER.fullmatch(text):
            return float(text)
    elif value is None:
        return 0.0
    elif isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            return float("inf") if value > 0 else float("-inf")
    raise CodecError(f"{field} is not a number", code=Code.WRONG_TYPE, field=field)


def _long(value: Any, field: str) -> int:
    """Convert to a Java long: fractions are cut off."""
    if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63:
        return value
    number = _double(value, field)
    if not -(2.0**63) <= number < 2.0**63:
        raise CodecError(f"{field} is no long", code=Code.WRONG_TYPE, field=field)
    return int(number)
