"""Load data of the extensible load manager (PIP-192): `BrokerLoadData`, `TopBundlesLoadData`, and a snapshot of them.

As with reports, the typed decoder refuses anything odd; only then the tolerant one reads the same bytes again and
notes a fault for each field it filled in. A broker whose load is not known by that (`load_unknown`) takes no part.

**How a given score gets into a snapshot.** An extensible broker tells its score itself (`weightedMaxEMA`: weighted,
smoothed, over heap too), and its capacity in absolute terms cannot be told from it. So the score is entered as CPU, in
percent of a limit of 100 on every broker, the other resources are blind, and a snapshot of mode `extensible` is scored
without weights (core/draft.py). A bundle then takes its share of the giver's score with it, which is the class's own
assumption, and draft, ledger and guard work as they are. An override of `throughput` would follow the traffic, so an
idle broker's score would be 0 and its limit unknown; a table of given scores would have to be carried through all of
these.

**What top bundles leave out.** A broker names only its largest bundles. What it carries besides is one row under the
name of its SLA monitor's namespace, so that shares are of the whole, the named bundles are not taken for all it owns,
and the row never moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Any, Final

import msgspec
import numpy as np

from bundlekeel.codec.report import MAX_REPORT_BYTES, is_bundle
from bundlekeel.codec.tolerant import MAX_INTEGER, MAX_NUMBER, Faults, Fields, load_object
from bundlekeel.core.averages import Averages
from bundlekeel.core.codes import Code
from bundlekeel.core.errors import CodecError
from bundlekeel.core.load import (
    CPU,
    REPORTED_RESOURCES,
    BrokerReport,
    BundleAverages,
    ExcludedBroker,
    Floats,
    Ints,
)
from bundlekeel.core.snapshot import Snapshot, build_snapshot

LOAD_MANAGER: Final = "org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl"
_REST: Final = "sla-monitor/{broker}/0x00000000_0xffffffff"
# A broker's sum and its bundles' figures are taken at different moments; less than this share is no rest.
_REST_SHARE: Final = 0.01

_Amount = Annotated[float, msgspec.Meta(ge=0, le=MAX_NUMBER)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_INTEGER)]
_LOADS: Final = ("weightedMaxEMA", "msgThroughputEMA", "maxResourceUsage")
_RATES: Final = ("msgRateIn", "msgRateOut", "msgThroughputIn", "msgThroughputOut")
_COUNTS: Final = ("topics", "consumerCount", "producerCount")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLoad:
    """One broker's load data. Scores are ratios; `traffic`: shape (4,), columns of `core.load.TRAFFIC`; times in ms.

    `faults` names what had to be imputed: (code, field) pairs.
    """

    broker_id: str
    weighted_max_ema: float
    throughput_ema: float
    max_resource_usage: float
    traffic: Floats
    bundle_count: int
    topics: int
    updated_at: int
    faults: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopBundles:
    """One broker's largest bundles, in the order given (lowest first). `traffic`: shape (n, 4), `counts`: (n, 3)
    topics, consumers, producers."""

    names: tuple[str, ...] = ()
    traffic: Floats
    counts: Ints
    faults: tuple[tuple[str, str], ...] = ()


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


class _Stats(msgspec.Struct, gc=False, rename="camel"):
    msg_rate_in: _Amount
    msg_rate_out: _Amount
    msg_throughput_in: _Amount
    msg_throughput_out: _Amount
    topics: _Count = 0
    consumer_count: _Count = 0
    producer_count: _Count = 0


class _Top(msgspec.Struct, gc=False, rename="camel"):
    bundle_name: str
    stats: _Stats


class _Tops(msgspec.Struct, gc=False, rename="camel"):
    top_bundles_load_data: list[_Top]


_LOAD: Final = msgspec.json.Decoder(_Load)
_TOPS: Final = msgspec.json.Decoder(_Tops | list[_Top])


def decode_broker_load(broker_id: str, data: bytes | msgspec.Raw, *, max_bytes: int = MAX_REPORT_BYTES) -> BrokerLoad:
    """Decode one `BrokerLoadData`. Raises CodecError only; single bad fields end up in `faults` instead."""
    _check_size(data, max_bytes)
    try:
        typed = _LOAD.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return _load_tolerantly(broker_id, bytes(data))
    rates = (typed.msg_rate_in, typed.msg_rate_out, typed.msg_throughput_in, typed.msg_throughput_out)
    return BrokerLoad(
        broker_id=broker_id,
        weighted_max_ema=typed.weighted_max_ema,
        throughput_ema=typed.msg_throughput_ema,
        max_resource_usage=typed.max_resource_usage,
        traffic=np.array(rates),
        bundle_count=typed.bundle_count,
        topics=typed.topics,
        updated_at=typed.updated_at,
    )


def decode_top_bundles(data: bytes | msgspec.Raw, *, max_bytes: int = MAX_REPORT_BYTES) -> TopBundles:
    """Decode one `TopBundlesLoadData`, or the bare list in it. Raises CodecError only; see `decode_broker_load`."""
    _check_size(data, max_bytes)
    try:
        typed = _TOPS.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return _tops_tolerantly(bytes(data))
    items = typed if isinstance(typed, list) else typed.top_bundles_load_data
    faults, kept = Faults(), dict[str, _Stats]()
    for item in items:
        if is_bundle(item.bundle_name):
            kept[item.bundle_name] = item.stats
        else:
            faults.add(Code.WRONG_TYPE, f"topBundlesLoadData.{item.bundle_name}")
    flat = chain.from_iterable(msgspec.structs.astuple(stats) for stats in kept.values())
    table = np.fromiter(flat, dtype=np.float64, count=7 * len(kept)).reshape(-1, 7)
    return TopBundles(
        names=tuple(kept),
        traffic=np.ascontiguousarray(table[:, :4]),
        counts=table[:, 4:].astype(np.int64),
        faults=faults.as_tuple(),
    )


def load_unknown(load: BrokerLoad) -> tuple[str, str] | None:
    """The first (code, field) fault that makes the broker's load unknown, or None when it can be trusted."""
    needed = ("weightedMaxEMA", "updatedAt", *_RATES[2:])
    return next((fault for fault in load.faults if fault[1] in needed), None)


def extensible_snapshot(
    loads: Iterable[BrokerLoad],
    tops: Mapping[str, TopBundles],
    *,
    wall_ms: int,
    excluded: Iterable[ExcludedBroker] = (),
    averages: Averages | None = None,
) -> Snapshot:
    """One frozen picture of an extensible cluster. `excluded`: registered brokers without usable load data.

    Brokers whose load is unknown are excluded too. Without `averages`, bundles count as sampled once, now.
    """
    reports, left_out = [], list(excluded)
    for load in loads:
        fault = load_unknown(load)
        if fault is None:
            reports.append(_report(load, tops.get(load.broker_id, _NO_BUNDLES)))
        else:
            left_out.append(ExcludedBroker(broker_id=load.broker_id, code=fault[0], detail=fault[1]))
    return build_snapshot(
        reports=reports,
        averages=_sampled_once(reports) if averages is None else averages,
        wall_ms=wall_ms,
        mode="extensible",
        excluded=left_out,
    )


def is_rest(bundle: str) -> bool:
    """Whether this is the row of a snapshot for what a broker carries besides its top bundles."""
    return bundle.startswith(_REST.partition("{")[0]) and bundle.endswith(_REST.rpartition("}")[2])


_NO_BUNDLES: Final = TopBundles(traffic=np.zeros((0, 4)), counts=np.zeros((0, 3), dtype=np.int64))


def _report(load: BrokerLoad, top: TopBundles) -> BrokerReport:
    usage, limit = np.zeros(REPORTED_RESOURCES), np.zeros(REPORTED_RESOURCES)
    usage[CPU], limit[CPU] = 100 * load.weighted_max_ema, 100.0
    names, traffic, counts = top.names, top.traffic, top.counts
    rest = np.maximum(load.traffic - traffic.sum(axis=0), 0.0)
    if load.bundle_count > len(names) or (rest > _REST_SHARE * load.traffic).any():
        names = (*names, _REST.format(broker=load.broker_id))
        traffic, counts = np.vstack([traffic, rest]), np.vstack([counts, np.zeros((1, 3), dtype=np.int64)])
    return BrokerReport(
        broker_id=load.broker_id,
        usage=usage,
        limit=limit,
        traffic=np.maximum(load.traffic, traffic.sum(axis=0)),
        last_update=load.updated_at,
        num_topics=load.topics,
        bundle_names=names,
        bundle_traffic=traffic,
        bundle_counts=counts,
        load_manager=LOAD_MANAGER,
        faults=load.faults,
    )


def _sampled_once(reports: Sequence[BrokerReport]) -> Averages:
    averages = Averages()
    for report in sorted(reports, key=lambda item: item.last_update):
        averages.seed(
            BundleAverages(
                bundle=name,
                short=(rates[0], rates[1], rates[2], rates[3]),
                long=(rates[0], rates[1], rates[2], rates[3]),
                short_samples=1,
                long_samples=1,
                topics=topics,
            )
            for name, rates, topics in zip(
                report.bundle_names, report.bundle_traffic.tolist(), report.bundle_counts[:, 0].tolist(), strict=True
            )
        )
    return averages


# --- the tolerant way ------------------------------------------------------------------------------------


def _check_size(data: bytes | msgspec.Raw, max_bytes: int) -> None:
    if len(data) > max_bytes:
        raise CodecError(f"the record has {len(data)} bytes, more than {max_bytes}", code=Code.REPORT_TOO_LARGE)


def _load_tolerantly(broker_id: str, data: bytes) -> BrokerLoad:
    raw = load_object(data)
    if not {*_LOADS, *_RATES, "updatedAt"} & raw.keys():
        raise CodecError("the record holds no load of a broker", code=Code.WRONG_TYPE)
    faults = Faults()
    fields = Fields(raw, faults)
    weighted, throughput, most = (fields.number(name, required=name == _LOADS[0]) for name in _LOADS)
    return BrokerLoad(
        broker_id=broker_id,
        weighted_max_ema=weighted,
        throughput_ema=throughput,
        max_resource_usage=most,
        traffic=np.array([fields.number(name, required="Throughput" in name) for name in _RATES]),
        bundle_count=fields.integer("bundleCount"),
        topics=fields.integer("topics"),
        updated_at=fields.integer("updatedAt", required=True),
        faults=faults.as_tuple(),
    )


def _tops_tolerantly(data: bytes) -> TopBundles:
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
        rows[name] = [*(stats.number(rate) for rate in _RATES), *(stats.integer(count) for count in _COUNTS)]
    table = np.array(list(rows.values()), dtype=np.float64).reshape(-1, 7)
    return TopBundles(
        names=tuple(rows),
        traffic=np.ascontiguousarray(table[:, :4]),
        counts=table[:, 4:].astype(np.int64),
        faults=faults.as_tuple(),
    )
