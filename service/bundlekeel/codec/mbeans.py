"""What a broker's JVM says of its CPU (`/admin/v2/broker-stats/mbeans`), for brokers whose own score was not heard."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from bundlekeel.codec.external_input import read
from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.errors import CodecError

_BEAN: Final = "java.lang:type=OperatingSystem"
_LOADS: Final = ("CpuLoad", "ProcessCpuLoad")


class _Dimensions(msgspec.Struct):
    bean: str = msgspec.field(name="MBean", default="")


class _Bean(msgspec.Struct):
    dimensions: _Dimensions = msgspec.field(default_factory=_Dimensions)
    metrics: dict[str, Any] = {}


def decode_cpu_load(body: bytes) -> float:
    """Used share of the CPU that the JVM may use, 0..1: that of its container, or of its host where it has none.

    CodecError when the answer does not tell: no such bean, or no load between 0 and 1 (a JVM says -1 or NaN while it
    does not know). The larger one of `CpuLoad` and `ProcessCpuLoad` counts, since each is 0 when asked twice at once.
    """
    beans = read(body, list[_Bean], what="the list of beans")
    told = [bean.metrics.get(name) for bean in beans if bean.dimensions.bean == _BEAN for name in _LOADS]
    loads = [float(load) for load in told if isinstance(load, int | float) and 0.0 <= load <= 1.0]
    if not loads:
        raise CodecError(f"{_BEAN} tells no CPU load", code=Code.NO_LOAD_DATA)
    return max(loads)
