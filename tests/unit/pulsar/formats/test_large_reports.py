"""Reports up to `jute.maxbuffer` of Pulsar's processes, 10 MiB, are read on default settings and in bounded memory."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from bundlekeel.model.codes import Code
from bundlekeel.model.errors import CodecError
from bundlekeel.pulsar.formats.external_input import GROWTH_BYTES, REPORT
from bundlekeel.pulsar.formats.report import decode_report
from bundlekeel.pulsar.zookeeper.broker_records import BrokerRecord, read_record
from bundlekeel.settings.model import StoreSettings

STEP = 0x10000
RATE = 10.123456789012345
STATS = {
    "msgRateIn": RATE,
    "msgThroughputIn": 1000 * RATE,
    "msgRateOut": RATE,
    "msgThroughputOut": 1000 * RATE,
    "consumerCount": 1,
    "producerCount": 1,
    "topics": 3,
    "cacheSize": 0,
}


def name(number: int, namespace: str = "tenant-with-a-long-name/namespace-with-a-long-name") -> str:
    """The bundle of this number."""
    return f"{namespace}/0x{number * STEP:08x}_0x{(number + 1) * STEP - 1:08x}"


def encode(count: int, **changes: Any) -> bytes:
    """A report of this many bundles, as Jackson writes it: without spaces."""
    usage = {"usage": 40.0, "limit": 400.0}
    names = [name(number) for number in range(count)]
    fields: dict[str, Any] = {
        "webServiceUrl": "http://b1:8080",
        "pulsarServiceUrl": "pulsar://b1:6650",
        **dict.fromkeys(("cpu", "memory", "directMemory", "bandwidthIn", "bandwidthOut"), usage),
        **{key: value * count for key, value in STATS.items() if key.startswith("msg")},
        "lastUpdate": 1,
        "lastStats": dict.fromkeys(names, STATS),
        "bundles": names,
        "numTopics": 3 * count,
        "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl",
        "loadReportType": "LocalBrokerData",
    }
    return json.dumps(fields | changes, separators=(",", ":")).encode()


def read(data: bytes) -> BrokerRecord:
    """The record as the source reads it on default settings."""
    return read_record("b1:8080", data, 1, max_bytes=StoreSettings().max_report_bytes, last=None)


def peak_of(action: Callable[[], object]) -> int:
    """The bytes that an action holds at most in addition to what there is."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("bundles", [4_000, 10_000, 27_000])
def test_n_k_large_reports_are_read_on_default_settings(bundles: int) -> None:
    """4,000 bundles have 1.5 MB; 27,000 have nearly 10 MiB."""
    record = read(encode(bundles))
    assert record.kind == "modular" and record.excluded is None
    assert record.report is not None and not record.report.faults
    assert len(record.report.bundle_names) == bundles
    assert record.endpoint.web_url == "http://b1:8080"


@pytest.mark.parametrize("changes", [{"msgRateIn": "NaN"}, {"brokerVersionString": "\u0001"}])
def test_n_k_odd_fields_of_a_large_report_cost_only_themselves(changes: dict[str, Any]) -> None:
    """The tolerant decoder has the same limit as the typed one."""
    report = read(encode(20_000, **changes)).report
    assert report is not None and len(report.bundle_names) == 20_000


def test_n_k_the_largest_number_of_bundles_is_read() -> None:
    """The shortest names and values that a broker writes: 10 MiB hold most bundles."""
    stats = {key: 0.0 if key.startswith("msg") else 0 for key in STATS}
    names = [name(number, "a/b") for number in range(50_000)]
    data = encode(0, lastStats=dict.fromkeys(names, stats), bundles=names)
    assert 0.9 * REPORT.nbytes < len(data) <= REPORT.nbytes
    report = read(data).report
    assert report is not None and len(report.bundle_names) == 50_000


def test_n_k_the_limit_is_the_one_of_pulsar() -> None:
    """10 MiB are read, one byte more is not."""
    data = encode(4_000)
    padding = REPORT.nbytes - len(data)
    assert read(data + b" " * padding).report is not None
    larger = read(data + b" " * (padding + 1))
    assert larger.excluded is not None and larger.excluded.code == Code.REPORT_TOO_LARGE


def test_n_k_a_large_report_takes_bounded_memory() -> None:
    """In addition to the bytes themselves; the tolerant decoder takes more than the typed one."""
    data = encode(20_000, msgRateIn="NaN")
    assert peak_of(lambda: read(data)) < 2 * GROWTH_BYTES


@pytest.mark.parametrize(
    "data",
    [
        b'{"x":[' + b"{}," * 3_000_000 + b"{}]}",
        b'{"x":[' + b"[]," * 3_000_000 + b"[]]}",
        b'{"bundles":[' + b'"a",' * 2_000_000 + b'"b"]}',
        encode(1)[:-1] + b',"bundles":[' + b'"a",' * 2_000_000 + b'"b"]}',
    ],
    ids=["objects", "lists", "no report", "report"],
)
def test_n_k_too_many_values_are_refused_before_they_are_read(data: bytes) -> None:
    """10 MiB of brackets would be a gigabyte of objects."""
    assert len(data) <= REPORT.nbytes

    def decode() -> None:
        with pytest.raises(CodecError) as caught:
            decode_report("b1:8080", data)
        assert caught.value.code == Code.REPORT_TOO_LARGE

    assert peak_of(decode) < GROWTH_BYTES
    assert read(data).excluded is not None


def test_n_k_the_most_values_of_a_report_take_bounded_memory() -> None:
    """The values are as many as the limit allows, next to text of four bytes per character."""
    text = "\U0001f600".encode() * 2_100_000
    data = b'{"t":"' + text + b'","x":[' + b"{}," * (REPORT.values - 10) + b"{}]}"
    assert 0.9 * REPORT.nbytes < len(data) <= REPORT.nbytes
    assert peak_of(lambda: read(data)) < 2 * GROWTH_BYTES
