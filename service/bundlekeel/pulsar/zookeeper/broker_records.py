"""Decodes the children of `/loadbalance/brokers` into one view of the cluster. Pure; `source.py` reads and watches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from bundlekeel.model.errors import CodecError
from bundlekeel.model.load import BrokerEndpoint, BrokerReport, ExcludedBroker, dated
from bundlekeel.ports import RawClusterView
from bundlekeel.pulsar.formats.records import classify, decode_endpoint
from bundlekeel.pulsar.formats.report import decode_report, load_fault

NOOP_LOAD_MANAGER = "NoopLoadManager"
DETAIL_CHARACTERS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRecord:
    """One registered broker as its znode was after transaction `mzxid`.

    `kind`: load manager: `modular`, `extensible`, `other` (Simple or Noop), or "" if unknown. For a modular broker,
    either `report` or `excluded` is set. Of brokers with another load manager only the endpoint is known.

    `mtime_ms`: time of writing by the store's clock. `lag_ms`: time of arrival by this process's clock, minus
    `mtime_ms`. `written_ms`: time of writing by this process's clock; 0 until `date_records` sets it. `before_ms`:
    `written_ms` of the broker's previous record; 0: none.
    """

    mzxid: int
    kind: str
    endpoint: BrokerEndpoint
    report: BrokerReport | None = None
    excluded: ExcludedBroker | None = None
    mtime_ms: int = 0
    lag_ms: int = 0
    written_ms: int = 0
    before_ms: int = 0


def date_records(records: Mapping[str, BrokerRecord]) -> dict[str, BrokerRecord]:
    """Return the records. Each new record gets `written_ms`, its time of writing by the clock of this process.

    The times come from the store's clock, because brokers' own clocks may be wrong. The smallest `lag_ms` of all
    records is the best estimate of the difference between the store's clock and the clock of this process. A record
    keeps its time, and that time is later than the time of the broker's previous record, even if another ZooKeeper
    server with another clock leads now.
    """
    least = min((record.lag_ms for record in records.values()), default=0)
    by_broker = dict(records)
    for broker, record in records.items():
        if not record.written_ms:
            at = max(record.mtime_ms + least, record.before_ms + 1)
            report = None if record.report is None else dated(record.report, at)
            by_broker[broker] = replace(record, written_ms=at, report=report)
    return by_broker


def read_record(broker_id: str, data: bytes, mzxid: int, *, max_bytes: int, last: BrokerRecord | None) -> BrokerRecord:
    """Decode the registry node of one broker. An unusable record does not raise, but becomes an ExcludedBroker.

    If the record cannot be decoded, the endpoint of `last` is kept, because a broker's address does not change. Without
    `last` its addresses are empty: the broker is registered but is not called.
    """
    last_endpoint = last.endpoint if last is not None else BrokerEndpoint(broker_id=broker_id, web_url="")
    if len(data) > max_bytes:
        # Do not even parse it to find its load manager: the limit exists to save that cost.
        return _excluded(mzxid, "", last_endpoint, _report_fault(broker_id, data, max_bytes))
    try:
        kind: str = classify(data)
        endpoint = decode_endpoint(broker_id, data)
    except CodecError as error:
        return _excluded(mzxid, "", last_endpoint, error)
    if kind == "simple" or endpoint.load_manager.endswith(NOOP_LOAD_MANAGER):
        return BrokerRecord(mzxid=mzxid, kind="other", endpoint=endpoint)
    if kind != "modular":
        # Extensible brokers register here, but report their load through topics.
        return BrokerRecord(mzxid=mzxid, kind=kind, endpoint=endpoint)
    try:
        report = decode_report(broker_id, data, max_bytes=max_bytes)
    except CodecError as error:
        return _excluded(mzxid, kind, endpoint, error)
    fault = load_fault(report)
    if fault is not None:
        return _excluded(mzxid, kind, endpoint, CodecError(f"{fault[1]} cannot be used", code=fault[0], field=fault[1]))
    return BrokerRecord(mzxid=mzxid, kind=kind, endpoint=endpoint, report=report)


def _report_fault(broker_id: str, data: bytes, max_bytes: int) -> CodecError:
    try:
        decode_report(broker_id, data, max_bytes=max_bytes)
    except CodecError as error:
        return error
    raise AssertionError("a report above the limit was decoded")


def _excluded(mzxid: int, kind: str, endpoint: BrokerEndpoint, error: CodecError) -> BrokerRecord:
    broker_id = endpoint.broker_id
    excluded = ExcludedBroker(broker_id=broker_id, code=error.code, detail=str(error)[:DETAIL_CHARACTERS])
    return BrokerRecord(mzxid=mzxid, kind=kind, endpoint=endpoint, excluded=excluded)


def mode_of(records: Mapping[str, BrokerRecord]) -> str:
    """Return the `kind` of all brokers, or `mixed`. Unknown kinds do not count. Without any broker: `modular`."""
    kinds = {record.kind for record in records.values() if record.kind}
    if len(kinds) > 1:
        return "mixed"
    return kinds.pop() if kinds else "modular"


def make_picture(records: Mapping[str, BrokerRecord], *, generation: int) -> RawClusterView:
    """Return the view of all registered brokers, sorted by id, without a time (see `stamped`)."""
    ordered = [records[broker_id] for broker_id in sorted(records)]
    return RawClusterView(
        wall_ms=0,
        boot=0.0,
        generation=generation,
        mode=mode_of(records),
        reports=tuple(record.report for record in ordered if record.report is not None),
        excluded=tuple(record.excluded for record in ordered if record.excluded is not None),
        endpoints={record.endpoint.broker_id: record.endpoint for record in ordered},
    )


def stamped(picture: RawClusterView, *, wall_ms: int, boot: float) -> RawClusterView:
    """Return the view with the current time."""
    return replace(picture, wall_ms=wall_ms, boot=boot)
