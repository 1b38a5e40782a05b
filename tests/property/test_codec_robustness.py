"""Any bytes in the metadata store are decoded or raise CodecError; decoded values can be used."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bundlekeel.model.names import parse_bundle
from bundlekeel.pulsar.formats import records
from bundlekeel.pulsar.formats.report import decode_report
from tests.support.odd_values import attempt, encoded, scalars, values

DECODERS: list[Callable[[bytes], object]] = [
    records.classify,
    records.decode_boundaries,
    records.decode_ephemeral,
    records.decode_leader_broker,
    lambda data: decode_report("b", data),
    lambda data: records.decode_bundle_data("a/b/0x00000000_0xffffffff", data),
    lambda data: records.decode_resource_quota("a/b/0x00000000_0xffffffff", data),
    lambda data: records.decode_endpoint("b", data),
]

FIELDS = [
    *("webServiceUrl", "cpu", "directMemory", "bandwidthIn", "bandwidthOut", "usage", "limit", "lastStats"),
    *("msgRateIn", "msgRateOut", "msgThroughputIn", "msgThroughputOut", "lastUpdate", "bundles", "topics"),
    *("loadReportType", "underLoaded", "boundaries", "shortTermData", "longTermData", "numSamples"),
    *("httpUrl", "disabled", "brokerId", "serviceUrl", "bandwidth", "startTimestamp", "numTopics"),
    *("a/b/0x00000000_0xffffffff", "a/b/0x00000000_0x10000000", "a/b/c/0x00000001_0xFFFFFFFF"),
]
SCALARS = scalars(["0x00000000", "0xffffffff", "LoadReport", *FIELDS])
NAMES = st.sampled_from(FIELDS) | st.text(max_size=5)
VALUES = values(SCALARS, NAMES, max_leaves=40)
RECORDS = st.dictionaries(NAMES, VALUES, max_size=16)


@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    """The bytes are not JSON."""
    for decoder in DECODERS:
        attempt(decoder, data)


@given(VALUES | RECORDS, st.booleans())
def test_any_json(value: Any, ascii_only: bool) -> None:
    """JSON of any shape, with the fields that matter in likely and unlikely places."""
    for decoder in DECODERS:
        attempt(decoder, encoded(value, ascii_only=ascii_only))


@given(RECORDS, st.dictionaries(NAMES, st.dictionaries(NAMES, SCALARS, max_size=8) | SCALARS, max_size=5))
def test_a_report_is_always_finite_and_aligned(record: dict[str, Any], stats: dict[str, Any]) -> None:
    """Figures are finite and not negative (limits apart), columns have one row per bundle, names parse."""
    data = json.dumps({"lastUpdate": 1, **record, "lastStats": stats}).encode()
    got = attempt(lambda d: decode_report("b", d), data)
    if got is None:
        assert record.get("loadReportType") == "LoadReport"
        return
    report: Any = got
    rows = len(report.bundle_names)
    assert report.bundle_traffic.shape == (rows, 4)
    assert report.bundle_counts.shape == (rows, 3)
    for column in (report.usage, report.traffic, report.bundle_traffic, report.bundle_counts):
        assert np.isfinite(column).all()
        assert (column >= 0).all()
    assert np.isfinite(report.limit).all()
    for name in report.bundle_names:
        parse_bundle(name)
    json.dumps([report.faults, report.version], ensure_ascii=False).encode()


@given(st.lists(st.tuples(*[st.floats(0, 1e17)] * 4, *[st.integers(0, 2**53)] * 3), min_size=0, max_size=8))
def test_typed_and_tolerant_agree(rows: list[tuple[float, ...]]) -> None:
    """A null where brokers write none sends the record the tolerant way; the values stay the same."""
    names = (
        "msgRateIn",
        "msgRateOut",
        "msgThroughputIn",
        "msgThroughputOut",
        "topics",
        "consumerCount",
        "producerCount",
    )
    stats = {f"a/b/0x{i:08x}_0x{i + 1:08x}": dict(zip(names, row, strict=True)) for i, row in enumerate(rows)}
    usage = {"usage": 1.0, "limit": 2.0}
    record: dict[str, Any] = dict.fromkeys(("cpu", "directMemory", "bandwidthIn", "bandwidthOut"), usage)
    record |= dict.fromkeys(names[:4], 1.0) | {"lastUpdate": 5, "lastStats": stats}
    typed = decode_report("b", json.dumps(record).encode())
    tolerant = decode_report("b", json.dumps({**record, "webServiceUrl": None}).encode())
    assert typed.bundle_names == tolerant.bundle_names
    assert np.array_equal(typed.bundle_traffic, tolerant.bundle_traffic)
    assert np.array_equal(typed.bundle_counts, tolerant.bundle_counts)
    assert typed.faults == tolerant.faults == ()
