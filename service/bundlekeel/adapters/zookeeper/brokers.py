"""What the children of `/loadbalance/brokers` say, decoded one by one and put together into a picture.

Pure: bytes in, records out. Watching and reading is `source.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from bundlekeel.codec import classify, decode_endpoint, decode_report, load_fault
from bundlekeel.core.model.errors import CodecError
from bundlekeel.core.model.load import BrokerEndpoint, BrokerReport, ExcludedBroker
from bundlekeel.ports import Picture

NOOP_LOAD_MANAGER = "NoopLoadManager"
DETAIL_CHARACTERS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRecord:
    """One registered broker as its znode was at `mzxid`.

    `kind` is `modular`, `extensible`, `other` (Simple or Noop) or "" when it cannot be told. A modular broker
    has either a `report` or an `excluded`; of the others only the endpoint is known.
    """

    mzxid: int
    kind: str
    endpoint: BrokerEndpoint
    report: BrokerReport | None = None
    excluded: ExcludedBroker | None = None


def read_record(broker_id: str, data: bytes, mzxid: int, *, max_bytes: int, last: BrokerRecord | None) -> BrokerRecord:
    """Decode one child. Never raises for its contents: what cannot be used becomes an ExcludedBroker.

    An undecodable record keeps the endpoint of `last` (the broker's web address is in its id and does not
    change); without one its addresses stay empty: registered, but not to be called.
    """
    known = last.endpoint if last is not None else BrokerEndpoint(broker_id=broker_id, web_url="")
    if len(data) > max_bytes:
        # Not even parsed for its kind: that would cost what the limit is there to save.
        return _excluded(mzxid, "", known, _report_fault(broker_id, data, max_bytes))
    try:
        kind: str = classify(data)
        endpoint = decode_endpoint(broker_id, data)
    except CodecError as error:
        return _excluded(mzxid, "", known, error)
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
    """The cluster's mode. Brokers that cannot be classified do not count; a cluster without any is `modular`."""
    kinds = {record.kind for record in records.values() if record.kind}
    if len(kinds) > 1:
        return "mixed"
    return kinds.pop() if kinds else "modular"


def make_picture(records: Mapping[str, BrokerRecord], *, generation: int) -> Picture:
    """The picture of all registered brokers, sorted by id; the source stamps the time when it hands it out."""
    ordered = [records[broker_id] for broker_id in sorted(records)]
    return Picture(
        wall_ms=0,
        boot=0.0,
        generation=generation,
        mode=mode_of(records),
        reports=tuple(record.report for record in ordered if record.report is not None),
        excluded=tuple(record.excluded for record in ordered if record.excluded is not None),
        endpoints={record.endpoint.broker_id: record.endpoint for record in ordered},
    )


def stamped(picture: Picture, *, wall_ms: int, boot: float) -> Picture:
    """The same picture as of now."""
    return replace(picture, wall_ms=wall_ms, boot=boot)
