"""Load data of the extensible load manager (PIP-192): `BrokerLoadData` and `TopBundlesLoadData`.

A typed decoder reads normal records and rejects unusual ones. A tolerant decoder then reads the same bytes, replaces
each unusable field by a default, and records a fault. A broker whose load is unknown because of faults
(`model.extensible.load_unknown`) is excluded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Annotated, Any, Final

import msgspec
import numpy as np

from bundlekeel.model.codes import Code
from bundlekeel.model.errors import CodecError
from bundlekeel.model.extensible import BrokerLoadData, BundleLoads
from bundlekeel.model.numbers import MAX_INTEGER, MAX_NUMBER
from bundlekeel.pulsar.formats.external_input import Faults, Fields, load_object
from bundlekeel.pulsar.formats.report import COUNTS, MAX_REPORT_BYTES, RATES, BundleStats, is_bundle

_Amount = Annotated[float, msgspec.Meta(ge=0, le=MAX_NUMBER)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_INTEGER)]
_LOADS: Final = ("weightedMaxEMA", "msgThroughputEMA", "maxResourceUsage")


class _Usage(msgspec.Struct, gc=False):
    usage: float = 0.0
    limit: float = 0.0


class _Load(msgspec.Struct, gc=False, rename="camel"):
    msg_throughput_in: _Amount
    msg_throughput_out: _Amount
    updated_at: _Count
    weighted_max_ema: _Amount = msgspec.field(name="weightedMaxEMA")
    msg_throughput_ema: _Amount = msgspec.field(name="msgThroughputEMA", default=0.0)
    msg_rate_in: _Amount = 0.0
    msg_rate_out: _Amount = 0.0
    max_resource_usage: _Amount = 0.0
    bundle_count: _Count = 0
    topics: _Count = 0
    cpu: _Usage = msgspec.field(default_factory=_Usage)
    direct_memory: _Usage = msgspec.field(default_factory=_Usage)
    bandwidth_in: _Usage = msgspec.field(default_factory=_Usage)
    bandwidth_out: _Usage = msgspec.field(default_factory=_Usage)


class _Top(msgspec.Struct, gc=False, rename="camel"):
    bundle_name: str
    stats: BundleStats


class _Tops(msgspec.Struct, gc=False, rename="camel"):
    top_bundles_load_data: list[_Top]


_LOAD: Final = msgspec.json.Decoder(_Load)
_TOPS: Final = msgspec.json.Decoder(_Tops | list[_Top])


def decode_broker_load(
    broker_id: str, data: bytes | msgspec.Raw, *, max_bytes: int = MAX_REPORT_BYTES
) -> BrokerLoadData:
    """Decode one `BrokerLoadData`.

    Unusable fields are listed in `faults`. Raises CodecError if the whole record is unusable.
    """
    _check_size(data, max_bytes)
    try:
        typed = _LOAD.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return _load_tolerantly(broker_id, bytes(data))
    rates = (typed.msg_rate_in, typed.msg_rate_out, typed.msg_throughput_in, typed.msg_throughput_out)
    return BrokerLoadData(
        broker_id=broker_id,
        weighted_max_ema=typed.weighted_max_ema,
        throughput_ema=typed.msg_throughput_ema,
        max_resource_usage=typed.max_resource_usage,
        traffic=np.array(rates),
        bundle_count=typed.bundle_count,
        topics=typed.topics,
        updated_at=typed.updated_at,
        cores=_bounded(typed.cpu.limit) / 100,
        used_cores=_bounded(typed.cpu.usage) / 100,
        least_usage=max(map(_share, (typed.direct_memory, typed.bandwidth_in, typed.bandwidth_out))),
    )


def _share(item: _Usage) -> float:
    """Return the used share of a resource, 0 to 1; 0 if it has no limit, because the broker does not measure it
    then."""
    return min(_bounded(item.usage) / item.limit, 1.0) if item.limit > 0 else 0.0


def _bounded(value: float) -> float:
    """Clip a number to the range from 0 to `MAX_NUMBER`."""
    return min(max(value, 0.0), MAX_NUMBER)


def decode_top_bundles(data: bytes | msgspec.Raw, *, max_bytes: int = MAX_REPORT_BYTES) -> BundleLoads:
    """Decode one `TopBundlesLoadData`, or only its list of bundles. Faults and errors: see `decode_broker_load`."""
    _check_size(data, max_bytes)
    try:
        typed = _TOPS.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return _tops_tolerantly(bytes(data))
    items = typed if isinstance(typed, list) else typed.top_bundles_load_data
    faults, stats_by_bundle = Faults(), dict[str, BundleStats]()
    for item in items:
        if is_bundle(item.bundle_name):
            stats_by_bundle[item.bundle_name] = item.stats
        else:
            faults.add(Code.WRONG_TYPE, f"topBundlesLoadData.{item.bundle_name}")
    return bundle_loads({name: msgspec.structs.astuple(stats) for name, stats in stats_by_bundle.items()}, faults)


def bundle_loads(rows: Mapping[str, Sequence[float]], faults: Faults) -> BundleLoads:
    """Build bundle loads from four rates (`RATES`) and three counts (`COUNTS`) by bundle."""
    flat = chain.from_iterable(rows.values())
    table = np.fromiter(flat, dtype=np.float64, count=7 * len(rows)).reshape(-1, 7)
    return BundleLoads(
        names=tuple(rows),
        traffic=np.ascontiguousarray(table[:, :4]),
        counts=table[:, 4:].astype(np.int64),
        faults=faults.as_tuple(),
    )


# --- tolerant decoding -----------------------------------------------------------------------------------


def _check_size(data: bytes | msgspec.Raw, max_bytes: int) -> None:
    if len(data) > max_bytes:
        raise CodecError(f"the record has {len(data)} bytes, more than {max_bytes}", code=Code.REPORT_TOO_LARGE)


def _load_tolerantly(broker_id: str, data: bytes) -> BrokerLoadData:
    raw = load_object(data)
    if not {*_LOADS, *RATES, "updatedAt"} & raw.keys():
        raise CodecError("the record holds no load of a broker", code=Code.WRONG_TYPE)
    faults = Faults()
    fields = Fields(raw, faults)
    weighted, throughput, most = (fields.number(name, required=name == _LOADS[0]) for name in _LOADS)
    return BrokerLoadData(
        broker_id=broker_id,
        weighted_max_ema=weighted,
        throughput_ema=throughput,
        max_resource_usage=most,
        traffic=np.array([fields.number(name, required="Throughput" in name) for name in RATES]),
        bundle_count=fields.integer("bundleCount"),
        topics=fields.integer("topics"),
        updated_at=fields.integer("updatedAt", required=True),
        faults=faults.as_tuple(),
    )


def _tops_tolerantly(data: bytes) -> BundleLoads:
    wrapped = data if data.lstrip()[:1] == b"{" else b'{"topBundlesLoadData":' + data + b"}"
    raw = load_object(wrapped)
    if "topBundlesLoadData" not in raw:
        raise CodecError("the record holds no top bundles", code=Code.WRONG_TYPE)
    faults = Faults()
    rows: dict[str, list[Any]] = {}
    for item in Fields(raw, faults).items("topBundlesLoadData"):
        fields = Fields(item if isinstance(item, dict) else {}, faults, "topBundlesLoadData.")
        name = fields.text("bundleName")
        if not is_bundle(name):
            faults.add(Code.WRONG_TYPE, f"topBundlesLoadData.{name}")
            continue
        stats = fields.child("stats")
        rows[name] = [*(stats.number(rate) for rate in RATES), *(stats.integer(count) for count in COUNTS)]
    return bundle_loads(rows, faults)
