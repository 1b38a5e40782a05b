"""CPU load and CPU time of a broker's JVM (`/admin/v2/broker-stats/mbeans`)."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from bundlekeel.model.codes import Code
from bundlekeel.model.errors import CodecError
from bundlekeel.model.numbers import number
from bundlekeel.pulsar.formats.external_input import read

_BEAN: Final = "java.lang:type=OperatingSystem"
_LOADS: Final = ("CpuLoad", "ProcessCpuLoad")
# Nanoseconds. The quotes of a string inside a value are escaped, so a system property cannot match.
_CPU_TIME: Final = re.compile(rb'"ProcessCpuTime"\s*:\s*(\d{1,19})\b')


class _Dimensions(msgspec.Struct):
    bean: str = msgspec.field(name="MBean", default="")


class _Bean(msgspec.Struct):
    dimensions: _Dimensions = msgspec.field(default_factory=_Dimensions)
    metrics: dict[str, Any] = {}


def decode_cpu_load(body: bytes) -> float:
    """Return the used share (0 to 1) of the CPU of the JVM's container, or of its host if it has no container.

    Raises CodecError if the response has no load between 0 and 1 (a JVM reports -1 or NaN at first). Returns the larger
    of `CpuLoad` and `ProcessCpuLoad`, because one of them is 0 if two requests arrive simultaneously.
    """
    beans = read(body, list[_Bean], what="the list of beans")
    values = [bean.metrics.get(name) for bean in beans if bean.dimensions.bean == _BEAN for name in _LOADS]
    loads = [float(load) for load in values if isinstance(load, int | float) and 0.0 <= load <= 1.0]
    if not loads:
        raise CodecError(f"{_BEAN} reports no CPU load", code=Code.NO_LOAD_DATA)
    return max(loads)


def decode_cpu_seconds(body: bytes) -> float:
    """Return the CPU seconds that the JVM has used since its start. Raises CodecError if it does not report them.

    The response is searched and not parsed: parsing takes 3 ms, and the CPU time is read every few seconds.
    """
    match = _CPU_TIME.search(body)
    if match is None:
        raise CodecError(f"{_BEAN} reports no CPU time", code=Code.NO_LOAD_DATA)
    return number(match[1].decode(), field="ProcessCpuTime", highest=2.0**63) / 1e9
