"""What a broker's JVM says of its CPU (`/admin/v2/broker-stats/mbeans`), for brokers whose own score was not heard."""

from __future__ import annotations

from typing import Final

import msgspec

from bundlekeel.core.codes import Code
from bundlekeel.core.errors import CodecError

_BEAN: Final = "java.lang:type=OperatingSystem"


class _Metrics(msgspec.Struct):
    cpu: float | None = msgspec.field(name="CpuLoad", default=None)
    process: float | None = msgspec.field(name="ProcessCpuLoad", default=None)


class _Dimensions(msgspec.Struct):
    bean: str = msgspec.field(name="MBean", default="")


class _Bean(msgspec.Struct):
    dimensions: _Dimensions = msgspec.field(default_factory=_Dimensions)
    metrics: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"{}"))


_BEANS = msgspec.json.Decoder(list[_Bean])
_METRICS = msgspec.json.Decoder(_Metrics)


def decode_cpu_load(body: bytes) -> float:
    """Used share of the CPU that the JVM may use, 0..1: that of its container, or of its host where it has none.

    CodecError when the answer does not tell: no such bean, or no load between 0 and 1 (a JVM says -1 or NaN while it
    does not know). The larger one of `CpuLoad` and `ProcessCpuLoad` counts, since each is 0 when asked twice at once.
    """
    try:
        found = [bean.metrics for bean in _BEANS.decode(body) if bean.dimensions.bean == _BEAN]
        told = [_METRICS.decode(metrics) for metrics in found]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CodecError(f"no list of beans: {error}", code=Code.NOT_JSON) from error
    loads = [load for item in told for load in (item.cpu, item.process) if load is not None and 0.0 <= load <= 1.0]
    if not loads:
        raise CodecError(f"{_BEAN} tells no CPU load", code=Code.NO_LOAD_DATA)
    return max(loads)
