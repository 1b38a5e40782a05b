"""CPU load of a broker's JVM (`/admin/v2/broker-stats/mbeans`), for brokers whose own score was not received."""

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
    """Return the used share (0 to 1) of the CPU of the JVM's container, or of its host if it has no container.

    Raises CodecError if the response has no such bean, or no load between 0 and 1 (a JVM reports -1 or NaN at first).
    The larger one of `CpuLoad` and `ProcessCpuLoad` counts, because each is 0 if two requests come at the same time.
    """
    beans = read(body, list[_Bean], what="the list of beans")
    values = [bean.metrics.get(name) for bean in beans if bean.dimensions.bean == _BEAN for name in _LOADS]
    loads = [float(load) for load in values if isinstance(load, int | float) and 0.0 <= load <= 1.0]
    if not loads:
        raise CodecError(f"{_BEAN} reports no CPU load", code=Code.NO_LOAD_DATA)
    return max(loads)
