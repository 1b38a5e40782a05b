"""How a broker's clients fare, out of its monitoring metrics (`/admin/v2/broker-stats/metrics`, Pulsar's
`MetricsGenerator`): a list of `{"dimensions": {..}, "metrics": {..}}`, one a namespace or topic of interest. Failed
lookups are told by its Prometheus page (`/metrics/`) only."""

from __future__ import annotations

import math
import re
from typing import Any, Final

import msgspec

from bundlekeel.codec.external_input import LARGE, read
from bundlekeel.codec.tolerant import MAX_NUMBER
from bundlekeel.core.guard.rate import ClientSigns
from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.errors import CodecError

# Messages stored since the last statistics run, by how long that took: lower and upper bound in ms, the last one
# without an upper bound. The broker's `brk_ml_` ones say the same of the last minute.
_BUCKET: Final = re.compile(r"brk_AddEntryLatencyBuckets_([0-9.]+)_([0-9.]+|OVERFLOW)")
_OPENED: Final = "brk_connection_created_total_count"
# In Prometheus' text format, with whatever labels.
LOOKUP_FAILURES: Final = "pulsar_broker_lookup_failures_total"
_LOOKUPS: Final = re.compile(rb"^%s(?:\{[^\n]*\})?[ \t]+([0-9.eE+]{1,40})" % LOOKUP_FAILURES.encode(), re.MULTILINE)
_FAILED: Final = ("brk_connection_create_fail_count", "brk_topic_load_failed_count")


class _Group(msgspec.Struct):
    metrics: dict[str, Any] = {}


def decode_signs(body: bytes) -> ClientSigns:
    """Publish latency, failures and opened connections of the asked broker.

    Unknown groups and figures are passed over. CodecError when it is no such list, or tells of no connections.
    """
    groups = read(body, list[_Group], what="the list of metrics", limit=LARGE)
    stored, waited, opened, failed = 0.0, 0.0, None, 0.0
    for group in groups:
        for name, raw in group.metrics.items():
            value = _number(raw)
            bucket = _BUCKET.fullmatch(name)
            if bucket is not None:
                low, high = float(bucket[1]), bucket[2]
                stored += value
                waited += value * (low if high == "OVERFLOW" else (low + float(high)) / 2)
            elif name == _OPENED:
                opened = (opened or 0.0) + value
            elif name in _FAILED:
                failed += value
    if opened is None:
        raise CodecError(f"the metrics hold no {_OPENED}", code=Code.NO_LOAD_DATA)
    return ClientSigns(
        latency_ms=waited / stored if stored > 0 else None,
        failures=int(failed),
        connections=int(opened),
    )


def decode_lookup_failures(page: bytes) -> int | None:
    """Lookups that failed since the broker's start, None when the page does not tell."""
    found = _LOOKUPS.search(page)
    if found is None:
        return None
    try:
        value = float(found[1])
    except ValueError:
        return None
    return int(value) if math.isfinite(value) else None


def _number(raw: object) -> float:
    """A figure; what is none, negative or not finite counts as nothing."""
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        return 0.0
    return float(raw) if 0 < raw <= MAX_NUMBER else 0.0


# What a broker's JVM says of its CPU (`/admin/v2/broker-stats/mbeans`), for brokers whose own score was not heard.


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
