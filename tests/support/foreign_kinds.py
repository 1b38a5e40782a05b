"""All kinds of input that other processes write, and the functions that read them."""

from __future__ import annotations

import io
import json
from typing import Any, Final

import pyarrow as pa

from bundlekeel.api.audit import _object as decode_body
from bundlekeel.leader.execution.intents import decode_intent
from bundlekeel.leader.execution.split_intents import decode_split
from bundlekeel.leader.gate.outage import _decode as decode_notice
from bundlekeel.leader.state.documents import (
    AveragesPart,
    Desired,
    decode,
    decode_moves,
    decode_request,
    decode_state,
    encode,
    rewritten,
)
from bundlekeel.leader.state.takeover_record import decode_takeover
from bundlekeel.model.errors import AdminApiError
from bundlekeel.ports import BrokerEndpoint, Document
from bundlekeel.pulsar.admin.failures import RawAnswer, error_of
from bundlekeel.pulsar.admin.hosts import KnownHosts
from bundlekeel.pulsar.formats import policies, records, report
from bundlekeel.pulsar.formats.broker_metrics import (
    decode_counters,
    decode_lookup_failures,
    decode_scrapes,
    decode_signs,
)
from bundlekeel.pulsar.formats.channel import decode_service_unit
from bundlekeel.pulsar.formats.extensible import decode_broker_load, decode_top_bundles
from bundlekeel.pulsar.formats.jvm_beans import decode_cpu_load, decode_cpu_seconds
from bundlekeel.pulsar.formats.records import decode_settings
from bundlekeel.pulsar.formats.topics import decode_bundle_stats, decode_topic_rates, decode_topic_stats
from bundlekeel.pulsar.zookeeper.coordination import _decode as decode_member
from bundlekeel.quotas.published.protobuf_usage import decode_usage
from bundlekeel.quotas.rates_json import decode_namespace_rates, decode_rate, decode_resource_group
from bundlekeel.recalibration.parquet.rows import records_of
from bundlekeel.recalibration.parquet.wal import whole_payloads
from bundlekeel.recalibration.rules.thresholds_json import parsed
from tests.support.foreign_documents import DOCUMENTS
from tests.support.foreign_input import BUNDLE, Kind
from tests.support.foreign_uses import USES


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
_MOVE |= {"landed_ms": 1, "landed_on": "b", "seconds": 1.5, "epoch": 1}

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
        policies.decode_isolation_policies,
        _json(
            p={
                "namespaces": ["t/.*"],
                "primary": ["b"],
                "auto_failover_policy": {"policy_type": "min_available", "parameters": _LIMITS},
            }
        ),
    ),
    "domain": Kind(policies.decode_failure_domain, _json(brokers=["b:8080"])),
    "group": Kind(policies.decode_anti_affinity_group, _json(namespaceAntiAffinityGroup="g")),
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
    "settings": Kind(decode_settings, _json(a="1", b=2)),
    "refusal": Kind(_refusal, b'{"reason":"\\n --- An error ---\\n\\nMessage: no"}'),
    "redirect": Kind(_hop, b"http://b:1/admin"),
    "requests": Kind(lambda data: decode(data, Desired, exact=True), _json(mode="act", mode_ms=1), packed=True),
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
        _json(
            by="a",
            reason="b",
            wall_ms=1,
            overrides={"k": None},
            runtime={"b": {"k": "v"}},
            namespaces=["t/ns"],
            excluded_by_us=["t/ns"],
            active=True,
            ended=None,
        ),
    ),
    "outage": Kind(decode_notice, _json(by="m", why="w", since_ms=1, back_ms=2, expected=["b"])),
    "member": Kind(decode_member, _json(id="m", url="http://m", seat=1, epoch=2)),
    "thresholds": Kind(parsed, _json(format=1, parameters={})),
    "history": Kind(_history, b"\x10\0\0\0ARROW1"),
    "body": Kind(decode_body, _json(reason="r", by="b", seconds=5)),
    **USES,
    **DOCUMENTS,
}
