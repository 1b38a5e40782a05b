"""Whatever others write, of whatever kind: a value, or `CodecError`; within bounded memory and time.

The long form, 100,000 examples over all kinds, runs at night and measures CPU time; the short one bounds memory only.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import time
import tracemalloc
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from bundlekeel.adapters.admin.hosts import KnownHosts
from bundlekeel.adapters.admin.transport import RawAnswer, error_of, json_object, text_map
from bundlekeel.adapters.history.rows import records_of
from bundlekeel.adapters.history.wal import whole_payloads
from bundlekeel.adapters.zookeeper.coordination import _decode as decode_member
from bundlekeel.api.audit import _object as decode_body
from bundlekeel.codec import records, report
from bundlekeel.codec.broker_metrics import decode_counters, decode_lookup_failures, decode_scrapes, decode_signs
from bundlekeel.codec.channel import decode_service_unit
from bundlekeel.codec.extensible import decode_broker_load, decode_top_bundles
from bundlekeel.codec.external_input import GROWTH_BYTES
from bundlekeel.codec.jvm_beans import decode_cpu_load, decode_cpu_seconds
from bundlekeel.codec.quotas import decode_namespace_rates, decode_rate, decode_resource_group, decode_usage
from bundlekeel.codec.topics import decode_bundle_stats, decode_topic_rates, decode_topic_stats
from bundlekeel.core.calibration.thresholds_json import parsed
from bundlekeel.core.model.errors import AdminApiError, CodecError, HistoryError, ThresholdsError
from bundlekeel.daemon.execution.intents import decode_intent
from bundlekeel.daemon.execution.split_intents import decode_split
from bundlekeel.daemon.gate.outage import _decode as decode_notice
from bundlekeel.daemon.state.documents import (
    AveragesPart,
    Desired,
    decode,
    decode_moves,
    decode_request,
    decode_state,
    encode,
    rewritten,
)
from bundlekeel.daemon.state.takeover_record import decode_takeover
from bundlekeel.ports import BrokerEndpoint, Document

BUNDLE: Final = "t/n/0x00000000_0xffffffff"
# Per kind; the loop turns no slower. CPU seconds of one example.
STEP_SECONDS: Final = 0.05
NIGHTLY: Final = 100_000


@dataclass(frozen=True)
class Kind:
    """How bytes of this kind are read, what they usually are, and whether they are stored compressed."""

    read: Callable[[bytes], object]
    usual: bytes
    packed: bool = False


def _json(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def _document(data: bytes) -> Document:
    return Document(path="intents/x", data=data, version=0)


def _refusal(data: bytes) -> str:
    try:
        raise error_of(RawAnswer(status=500, url="http://b", content=data), "PUT")
    except AdminApiError as error:
        return json.dumps(str(error), ensure_ascii=False)


def _hop(data: bytes) -> str:
    hosts = KnownHosts({"b:1": BrokerEndpoint(broker_id="b:1", web_url="http://b:1")}, use_tls=False)
    return hosts.next_hop("http://b:1/admin", data.decode("latin-1"))


def _history(data: bytes) -> object:
    payloads, _ = whole_payloads(data)
    try:
        with pa.ipc.open_stream(io.BytesIO(data)) as stream:
            tables = [pa.Table.from_batches(stream)]
    except (pa.ArrowException, OSError, ValueError):
        return payloads
    return records_of(tables)


_STATS = {"msgRateIn": 1.5, "msgRateOut": 2, "msgThroughputIn": 3, "msgThroughputOut": 4, "topics": 5}
_USAGE = {"usage": 10.0, "limit": 100.0}
_REPORT = _json(
    cpu=_USAGE,
    directMemory=_USAGE,
    bandwidthIn=_USAGE,
    bandwidthOut=_USAGE,
    **_STATS,
    lastUpdate=1,
    lastStats={BUNDLE: _STATS},
    bundles=[BUNDLE],
    loadReportType="LocalBrokerData",
)
_TOPICS = json.dumps({"t/n": {BUNDLE[4:]: {"persistent": {"persistent://t/n/x": {**_STATS, "producerCount": 3}}}}})
_LIMITS = {"min_limit": "1", "usage_threshold": "80"}
_INTENT = {"id": "1.1", "bundle": BUNDLE, "epoch": 1, "member": "m", "wall_ms": 1, "deadline_ms": 2, "cycle_id": "1"}
_MOVE = {"bundle": BUNDLE, "source": "a", "destination": "b", "outcome": "done", "wall_ms": 1, "started_ms": 1}
_MOVE |= {"landed_ms": 1, "landed_on": "b", "seconds": 1.5}

KINDS: Final[dict[str, Kind]] = {
    "report": Kind(lambda data: report.decode_report("b", data), _REPORT),
    "kind of report": Kind(records.classify, _REPORT),
    "endpoint": Kind(lambda data: records.decode_endpoint("b", data), _REPORT),
    "bundle data": Kind(
        lambda data: records.decode_bundle_data(BUNDLE, data), _json(shortTermData=_STATS, longTermData=_STATS)
    ),
    "quota": Kind(lambda data: records.decode_resource_quota(BUNDLE, data), _json(**_STATS, bandwidthIn=1)),
    "owner": Kind(
        records.decode_ephemeral, _json(nativeUrl="pulsar://b:6650", httpUrl="http://b:8080", disabled=False)
    ),
    "boundaries": Kind(records.decode_boundaries, _json(bundles={"boundaries": ["0x00000000", "0xffffffff"]})),
    "leader": Kind(records.decode_leader_broker, _json(brokerId="b:8080", serviceUrl="http://b:8080")),
    "isolation": Kind(
        records.decode_isolation_policies,
        _json(
            p={
                "namespaces": ["t/.*"],
                "primary": ["b"],
                "auto_failover_policy": {"policy_type": "min_available", "parameters": _LIMITS},
            }
        ),
    ),
    "domain": Kind(records.decode_failure_domain, _json(brokers=["b:8080"])),
    "group": Kind(records.decode_anti_affinity_group, _json(namespaceAntiAffinityGroup="g")),
    "channel": Kind(decode_service_unit, _json(state="Owned", dstBroker="b:8080", versionId=3, timestamp=1)),
    "broker load": Kind(lambda data: decode_broker_load("b", data), _json(**_STATS, weightedMaxEMA=0.5, updatedAt=1)),
    "top bundles": Kind(decode_top_bundles, _json(topBundlesLoadData=[{"bundleName": BUNDLE, "stats": _STATS}])),
    "usage": Kind(decode_usage, b"\x0a\x01b\x12\x09\x0a\x01g\x12\x04\x08\x01\x10\x02"),
    "topic stats": Kind(lambda data: decode_topic_stats(data, BUNDLE), _TOPICS.encode()),
    "topic rates": Kind(lambda data: decode_topic_rates(data, ["t/n"]), _TOPICS.encode()),
    "bundle stats": Kind(decode_bundle_stats, _TOPICS.encode()),
    "beans": Kind(
        decode_cpu_load,
        json.dumps([{"dimensions": {"MBean": "java.lang:type=OperatingSystem"}, "metrics": {"CpuLoad": 0.5}}]).encode(),
    ),
    "CPU time": Kind(decode_cpu_seconds, json.dumps([{"metrics": {"ProcessCpuTime": 1_500_000_000}}]).encode()),
    "metrics": Kind(decode_signs, json.dumps([{"metrics": {"brk_connection_created_total_count": 3}}]).encode()),
    "page": Kind(decode_lookup_failures, b'pulsar_broker_lookup_failures_total{cluster="c"} 3.0\n'),
    "counters": Kind(
        lambda data: decode_counters(data, from_ms=1, to_ms=2),
        b'process_cpu_seconds_total{cluster="c"} 3.0\n'
        + b"".join(
            b'pulsar_%s{topic="persistent://t/n/x"} 5\n' % name
            for name in (b"in_messages_total", b"in_bytes_total", b"consumers_count", b"producers_count")
        )
        + b'pulsar_out_messages_total{topic="persistent://t/n/x",subscription="s"} 5\n'
        + b'pulsar_out_bytes_total{topic="persistent://t/n/x",subscription="s"} 5\n',
    ),
    "scrapes": Kind(
        decode_scrapes,
        _json(
            data={
                "result": [
                    {"metric": {"__name__": name}, "values": [[1.5, "3"], [16, "4"]]}
                    for name in ("process_cpu_seconds_total", "pulsar_broker_topics_count")
                ]
            }
        ),
    ),
    "rate": Kind(lambda data: decode_rate(data, "publish"), _json(publishThrottlingRateInMsg=5)),
    "namespace": Kind(
        lambda data: decode_namespace_rates(data, "c"),
        _json(publishMaxMessageRate={"c": {"publishThrottlingRateInMsg": 5}}, resource_group_name="g"),
    ),
    "resource group": Kind(decode_resource_group, _json(publishRateInMsgs=5)),
    "settings": Kind(
        lambda data: text_map(json_object(RawAnswer(status=200, url="u", content=data), "settings")), _json(a="1", b=2)
    ),
    "refusal": Kind(_refusal, b'{"reason":"\\n --- An error ---\\n\\nMessage: no"}'),
    "redirect": Kind(_hop, b"http://b:1/admin"),
    "requests": Kind(
        lambda data: decode(data, Desired, exact=True), _json(mode="act", pinned={BUNDLE: 1}), packed=True
    ),
    "desired written anew": Kind(lambda data: rewritten(data, Desired(mode="observe")), _json(a=[1]), packed=True),
    "state": Kind(
        lambda data: encode(decode_state([Document(path="0000", data=b"\0\0\0\1" + data, version=0)], what="state")),
        _json(epoch=1, cycle=2, report={"operations": {}}, tasks=[{"task": "1", "state": "done"}]),
        packed=True,
    ),
    "moves": Kind(lambda data: encode(decode_moves(data, what="m")), json.dumps([_MOVE]).encode(), packed=True),
    "averages": Kind(lambda data: decode(data, AveragesPart), _json(wall_ms=1, bundles=[]), packed=True),
    "request": Kind(
        lambda data: encode(decode_request(data, what="r")),
        _json(kind="plan", hash="a", moves=[[BUNDLE, "a", "b"]], request={}),
    ),
    "intent": Kind(
        lambda data: decode_intent(_document(data)).encode(), _json(**_INTENT, topic="", **{"from": "a", "to": "b"})
    ),
    "split": Kind(
        lambda data: decode_split(_document(data), BUNDLE).encode(),
        _json(**_INTENT, broker="b", rule="hot", positions=[5]),
    ),
    "takeover": Kind(
        lambda data: decode_takeover(data).encode(),
        _json(by="a", reason="b", wall_ms=1, overrides={"k": None}, runtime={"b": {"k": "v"}}, active=True),
    ),
    "outage": Kind(decode_notice, _json(by="m", why="w", since_ms=1, back_ms=2, expected=["b"])),
    "member": Kind(decode_member, _json(id="m", url="http://m", seat=1, epoch=2)),
    "thresholds": Kind(parsed, _json(format=1, parameters={})),
    "history": Kind(_history, b"\x10\0\0\0ARROW1"),
    "body": Kind(decode_body, _json(reason="r", by="b", seconds=5)),
}

_MIB = 1024 * 1024
# Each is larger than the limits, deeper, or longer than a number may be; or small, and large once it is unpacked.
_HOSTILE: Final[list[bytes]] = [
    b"[" * 200_000,
    b'{"a":' * 100_000,
    b'{"report":' + b"[" * 900 + b"]" * 900 + b"}",
    b'{"report":' + b'["]",' * 900 + b"1" + b"]" * 900 + b"}",
    b"[" + b"1," * 400_000 + b"1]",
    b'{"wall_ms":' + b"9" * 400 + b"}",
    b'{"epoch":' + b"9" * 100_000 + b"}",
    b'{"reason":"\\ud800\\u001b[2J"}',
    b'{"reason":"' + b"\\u001b" * 100_000 + b'"}',
    b'"' * _MIB,
    b"\\" * _MIB,
    b"\xff" * _MIB,
    b"<title>" + b" " * _MIB,
    b"{" + b" " * 8 * _MIB,
    b"pulsar_broker_lookup_failures_total{" + b"} " * 100_000,
    zlib.compress(b" " * 80 * _MIB),
    zlib.compress(b"[" * 20 * _MIB),
    zlib.compress(b'{"mode":"' + b" " * 7 * _MIB + b'"}'),
    gzip.compress(b" " * 20 * _MIB),
]
_TEXTS = st.text(max_size=8) | st.sampled_from(["\ud800", "\x1b[2J", "\x9b", "NaN", "1e999", "../..", BUNDLE])
_SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.integers(-(10**60), 10**60), st.floats(), _TEXTS)
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3), max_leaves=10
)


@st.composite
def foreign_bytes(draw: st.DrawFn, kind: Kind) -> bytes:
    """Any bytes, the usual ones damaged, the usual fields with any values in them, or something hostile."""
    way = draw(st.integers(0, 19))
    if way == 0:
        return draw(st.sampled_from(_HOSTILE))
    if way < 4:
        data = draw(st.binary(max_size=100))
    elif way < 12 or kind.usual[:1] != b"{":
        data = kind.usual
        for _ in range(draw(st.integers(1, 3))):
            at = draw(st.integers(0, len(data)))
            put = draw(
                st.binary(max_size=4) | st.sampled_from([b"\\ud800", b"\x1b", b"9" * 30, b"[", b"]", b'"', b"-"])
            )
            data = data[:at] + put + data[at + draw(st.integers(0, 4)) :]
    else:
        fields = json.loads(kind.usual)
        for name in draw(st.lists(st.sampled_from(sorted(fields)), max_size=3)):
            fields[name] = draw(_VALUES)
        data = json.dumps(fields, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    return zlib.compress(data) if kind.packed and draw(st.booleans() | st.just(True)) else data


def _read(kind: Kind, data: bytes) -> None:
    """A value, or the one error (a caller of its own may have made another of ours of it)."""
    try:
        kind.read(data)
    except (CodecError, AdminApiError, HistoryError, ThresholdsError) as error:
        str(error).encode()


@pytest.mark.parametrize("name", KINDS)
def test_the_usual_bytes_are_read(name: str) -> None:
    """Or nothing below would be damaged that was whole before."""
    kind = KINDS[name]
    if name not in ("redirect", "thresholds", "history", "refusal"):
        kind.read(zlib.compress(kind.usual) if kind.packed else kind.usual)


@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=50)
@given(draw=st.data())
def test_any_bytes_are_a_value_or_the_one_error(name: str, draw: st.DataObject) -> None:
    """Nothing else is ever raised, and no error says what cannot be written out."""
    _read(KINDS[name], draw.draw(foreign_bytes(KINDS[name])))


@pytest.mark.parametrize("name", KINDS)
def test_memory_is_bounded(name: str) -> None:
    """Whatever it unpacks to. Beside it: the bytes themselves, which the reader had before."""
    for data in _HOSTILE:
        tracemalloc.start()
        _read(KINDS[name], data)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak <= GROWTH_BYTES


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=NIGHTLY // len(KINDS) + 1, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(draw=st.data())
def test_no_step_takes_long(name: str, draw: st.DataObject) -> None:
    """Of 100,000 examples none holds the event loop for longer than the limit, by the CPU time of this process."""
    data = draw.draw(foreign_bytes(KINDS[name]))
    assert _least_seconds(KINDS[name], data) <= STEP_SECONDS, data[:60]


def _least_seconds(kind: Kind, data: bytes) -> float:
    """CPU seconds; a busy machine spoils caches, so what takes too long is tried again."""
    least = math.inf
    for _ in range(3):
        began = time.process_time()
        _read(kind, data)
        least = min(least, time.process_time() - began)
        if least <= STEP_SECONDS:
            break
    return least
