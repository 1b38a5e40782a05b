"""Decode `LocalBrokerData` to `BrokerReport`: a typed decoder reads normal records, a tolerant one all others.

The typed decoder rejects everything unusual: a string, null, NaN or negative value in place of a number, or a missing
number. The tolerant decoder then reads the same bytes, and records a fault for each field that it replaces by a
default.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from typing import Annotated, Any, Final

import msgspec
import numpy as np

from bundlekeel.model.codes import Code
from bundlekeel.model.errors import CodecError
from bundlekeel.model.load import BrokerReport, Floats, Ints
from bundlekeel.model.numbers import MAX_INTEGER, MAX_NUMBER
from bundlekeel.pulsar.formats.external_input import (
    MAX_FAULTS,
    REPORT,
    Faults,
    Fields,
    Limit,
    check_size,
    clean,
    load_object,
)

MAX_REPORT_BYTES: Final = REPORT.nbytes

# Stricter than `model.names.parse_bundle` in one point: a name must not contain characters that cannot be written
# unchanged (whitespace, control characters, lone surrogates), or their replacement U+FFFD.
_PART = r"[^/\s\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffd]+"
_BUNDLE = re.compile(rf"{_PART}/{_PART}(?:/{_PART})?/0x([0-9a-fA-F]{{8}})_0x([0-9a-fA-F]{{8}})")
# All names of a report together, one per line, in the usual spelling. Names that do not match are checked one by one.
_USUAL_BUNDLES = re.compile(r"(?:[!-.0-~]++/[!-.0-~]++/(?:[!-.0-~]++/)?+0x[0-9a-f]{8}_0x[0-9a-f]{8}\n)*+", re.ASCII)
_USAGES: Final = ("cpu", "directMemory", "bandwidthIn", "bandwidthOut")
RATES: Final = ("msgRateIn", "msgRateOut", "msgThroughputIn", "msgThroughputOut")
COUNTS: Final = ("topics", "consumerCount", "producerCount")
_READ: Final = frozenset((*_USAGES, *RATES, *COUNTS, "usage", "limit", "lastStats", "lastUpdate", "numTopics"))
_TELLING_FIELDS: Final = frozenset((*_USAGES, *RATES, "lastStats", "lastUpdate"))

_Amount = Annotated[float, msgspec.Meta(ge=0, le=MAX_NUMBER)]
_Limit = Annotated[float, msgspec.Meta(ge=-MAX_NUMBER, le=MAX_NUMBER)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_INTEGER)]


class _Usage(msgspec.Struct, gc=False):
    usage: _Amount
    limit: _Limit


class BundleStats(msgspec.Struct, gc=False, rename="camel"):
    msg_rate_in: _Amount
    msg_rate_out: _Amount
    msg_throughput_in: _Amount
    msg_throughput_out: _Amount
    topics: _Count = 0
    consumer_count: _Count = 0
    producer_count: _Count = 0


_FIGURES: Final = attrgetter(
    "msg_rate_in",
    "msg_rate_out",
    "msg_throughput_in",
    "msg_throughput_out",
    "topics",
    "consumer_count",
    "producer_count",
)


class _LocalBrokerData(msgspec.Struct, gc=False, rename="camel"):
    cpu: _Usage
    direct_memory: _Usage
    bandwidth_in: _Usage
    bandwidth_out: _Usage
    msg_rate_in: _Amount
    msg_rate_out: _Amount
    msg_throughput_in: _Amount
    msg_throughput_out: _Amount
    last_update: _Count
    last_stats: dict[str, BundleStats]
    bundles: list[str] = []
    num_topics: _Count = 0
    start_timestamp: _Count = 0
    persistent_topics_enabled: bool = True
    non_persistent_topics_enabled: bool = True
    load_manager_class_name: str = ""
    broker_version_string: str = ""
    web_service_url: str = ""
    web_service_url_tls: str = ""
    pulsar_service_url: str = ""
    load_report_type: str = ""


_DECODER: Final = msgspec.json.Decoder(_LocalBrokerData)
# `decode_endpoint` returns the addresses. An address of a wrong type is a fault of the report.
_ADDRESSES: Final = ("webServiceUrl", "webServiceUrlTls", "pulsarServiceUrl")


def decode_report(broker_id: str, data: bytes | msgspec.Raw, *, max_bytes: int = MAX_REPORT_BYTES) -> BrokerReport:
    """Decode one broker's load report.

    Unusable fields are listed in `faults`. Raises CodecError if the whole report is unusable.
    """
    if len(data) > max_bytes:
        raise CodecError(f"the report has {len(data)} bytes, more than {max_bytes}", code=Code.REPORT_TOO_LARGE)
    # An operator who allows larger reports also allows more values, in proportion.
    limit = Limit(nbytes=max_bytes, values=max(REPORT.values, REPORT.values * max_bytes // REPORT.nbytes))
    if len(data) > limit.values:
        check_size(bytes(data), "the report", limit)
    try:
        typed = _DECODER.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return _decode_tolerantly(broker_id, bytes(data), limit)
    if typed.load_report_type == "LoadReport":
        raise CodecError("a report of the simple load manager", code=Code.WRONG_TYPE, field="loadReportType")
    return _from_typed(broker_id, typed)


def _from_typed(broker_id: str, typed: _LocalBrokerData) -> BrokerReport:
    faults = Faults()
    stats = typed.last_stats
    for name in _bad_names(stats):
        del stats[name]
        faults.add(Code.WRONG_TYPE, f"lastStats.{name}")
    idle = [] if stats.keys() >= set(typed.bundles) else _unreported(typed.bundles, stats, faults)
    usages = (typed.cpu, typed.direct_memory, typed.bandwidth_in, typed.bandwidth_out)
    traffic, counts = _columns(stats, len(idle))
    return BrokerReport(
        broker_id=broker_id,
        usage=np.array([u.usage for u in usages]),
        limit=np.array([u.limit for u in usages]),
        traffic=np.array([typed.msg_rate_in, typed.msg_rate_out, typed.msg_throughput_in, typed.msg_throughput_out]),
        last_update=typed.last_update,
        start_timestamp=typed.start_timestamp,
        num_topics=typed.num_topics,
        bundle_names=(*stats, *idle),
        bundle_traffic=traffic,
        bundle_counts=counts,
        persistent_topics_enabled=typed.persistent_topics_enabled,
        non_persistent_topics_enabled=typed.non_persistent_topics_enabled,
        load_manager=clean(typed.load_manager_class_name),
        version=clean(typed.broker_version_string),
        faults=faults.as_tuple(),
    )


def _columns(stats: Mapping[str, BundleStats], idle: int) -> tuple[Floats, Ints]:
    """Return traffic and counts, one row per bundle; then `idle` rows of zeros. Counts fit into doubles exactly."""
    table = np.zeros((len(stats) + idle, 7))
    flat = chain.from_iterable(map(_FIGURES, stats.values()))
    table[: len(stats)] = np.fromiter(flat, dtype=np.float64, count=7 * len(stats)).reshape(-1, 7)
    return np.ascontiguousarray(table[:, :4]), table[:, 4:].astype(np.int64)


def _bad_names(names: Collection[str]) -> list[str]:
    """Return the names that are not bundles. If all names are bundles, one regular expression shows that."""
    lines = "\n".join((*names, ""))
    usual = lines.count("\n") == len(names) and _USUAL_BUNDLES.fullmatch(lines) is not None
    if usual:  # bounds have a fixed width and lower case, so they can be compared as strings
        return [name for name in names if name[-21:-11] >= name[-10:]]
    return [name for name in names if not is_bundle(name)]


def is_bundle(name: str) -> bool:
    """Return whether `name` is a bundle's full name, without whitespace, control or replacement characters."""
    match = _BUNDLE.fullmatch(name)
    return match is not None and int(match[1], 16) < int(match[2], 16)


def _unreported(listed: list[Any], stats: Mapping[str, object], faults: Faults) -> list[str]:
    """Return the bundles that the broker lists without load data. Invalid names are skipped."""
    unreported: dict[str, None] = {}
    for name in listed:
        if not isinstance(name, str):
            faults.add(Code.WRONG_TYPE, "bundles")
        elif not is_bundle(name):
            faults.add(Code.WRONG_TYPE, f"bundles.{name}")
        elif name not in stats:
            unreported[name] = None
    return list(unreported)


# --- tolerant decoding -----------------------------------------------------------------------------------


def _decode_tolerantly(broker_id: str, data: bytes, limit: Limit) -> BrokerReport:
    raw = load_object(data, limit=limit)
    if raw.get("loadReportType") == "LoadReport" or _TELLING_FIELDS.isdisjoint(raw):
        raise CodecError("the record holds no load of a broker", code=Code.WRONG_TYPE)
    faults = Faults()
    fields = Fields(raw, faults)
    usages = [_usage(fields, name) for name in _USAGES]
    names, traffic, counts = _bundles(fields, faults)
    report = BrokerReport(
        broker_id=broker_id,
        usage=np.array([usage for usage, _ in usages]),
        limit=np.array([limit for _, limit in usages]),
        traffic=_traffic(fields, traffic),
        last_update=fields.integer("lastUpdate", required=True),
        start_timestamp=fields.integer("startTimestamp"),
        num_topics=fields.integer("numTopics"),
        bundle_names=names,
        bundle_traffic=traffic,
        bundle_counts=counts,
        persistent_topics_enabled=fields.flag("persistentTopicsEnabled", default=True),
        non_persistent_topics_enabled=fields.flag("nonPersistentTopicsEnabled", default=True),
        load_manager=fields.text("loadManagerClassName"),
        version=fields.text("brokerVersionString"),
    )
    for name in _ADDRESSES:
        fields.text(name)
    return replace(report, faults=faults.as_tuple())


def _usage(fields: Fields, name: str) -> tuple[float, float]:
    """Return usage and limit of a resource.

    A limit <= 0 means that the broker does not measure the resource, so its usage is not valid either. Brokers on other
    systems than Linux report -1 as usage and limit of bandwidth.
    """
    child = fields.child(name)
    limit = child.number("limit", signed=True)
    usage = child.number("usage", signed=limit < 0)
    return max(usage, 0.0), limit


def _traffic(fields: Fields, bundle_traffic: Floats) -> Floats:
    """Return the broker's traffic, shape (4,). A missing value is computed as the sum over its bundles."""
    sums = bundle_traffic.sum(axis=0)
    figures = [fields.number(rate) for rate in RATES]
    return np.array([figures[i] if fields.has(rate) else sums[i] for i, rate in enumerate(RATES)])


def _bundles(fields: Fields, faults: Faults) -> tuple[tuple[str, ...], Floats, Ints]:
    rows = fields.child("lastStats")
    names = []
    for name in rows.names():
        if is_bundle(name):
            names.append(name)
        else:
            faults.add(Code.WRONG_TYPE, f"lastStats.{name}")
    children = [rows.child(name) for name in names]
    idle = _unreported(fields.items("bundles"), dict.fromkeys(names), faults)
    rates = [[child.number(rate) for rate in RATES] for child in children] + [[0.0] * 4] * len(idle)
    counts = [[child.integer(count) for count in COUNTS] for child in children] + [[0] * 3] * len(idle)
    return (
        (*names, *idle),
        np.array(rates, dtype=np.float64).reshape(-1, 4),
        np.array(counts, dtype=np.int64).reshape(-1, 3),
    )


# Without these fields a broker's load is unknown. If it counted as idle, it would receive bundles.
_LOAD_FIELDS = ("cpu", "directMemory", "bandwidthIn", "bandwidthOut", "lastUpdate")


def load_fault(report: BrokerReport) -> tuple[str, str] | None:
    """Return the first fault (code, field) that makes the broker's load unknown; None: the load is known."""
    return next((fault for fault in report.faults if fault[1].split(".")[0] in _LOAD_FIELDS), None)


def unreadable_figure(report: BrokerReport) -> tuple[str, str] | None:
    """Return the first fault (code, field) of a load value that exists but is not a number; None: no such fault.

    Missing or negative numbers, and invalid names of bundles, do not count.
    """
    wrong = (fault for fault in report.faults if fault[0] in (Code.WRONG_TYPE, Code.NOT_A_NUMBER))
    # If the list of faults is cut off, it may hide such a fault.
    hidden = report.faults[-1] if len(report.faults) > MAX_FAULTS else None
    return next((fault for fault in wrong if _holds_figures(fault[1])), hidden)


def _holds_figures(field: str) -> bool:
    return field.rpartition(".")[2] in _READ or is_bundle(field.removeprefix("lastStats."))
