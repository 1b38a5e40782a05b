"""Turns of the extensible load manager in `bundlekeel decide`: converted to a snapshot, or as input of TransferShedder.

A turn is a line with `brokers` (BrokerLoadData), `top_bundles` and `missing` (registered brokers without load data).
`recent` are bundles that have just moved. `recent_brokers` are times at which a broker's last bundle left it.

* A broker whose load data cannot be read is omitted and listed under `excluded`. For TransferShedder, which would not
  find such data in the store, it is one more registered broker without load data.
* In the snapshot, `recent` bundles stay, and the load of a broker outside its top bundles never moves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec import UNSET

from bundlekeel.compat.decide_lines import InputLine, LineFault, parse_policies
from bundlekeel.compat.transfer import Load, TopBundle, TransferPicture
from bundlekeel.compat.transfer_reports import decode_load, decode_top
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import CodecError
from bundlekeel.model.extensible import BrokerLoadData, BundleLoads, extensible_snapshot
from bundlekeel.model.load import ExcludedBroker
from bundlekeel.model.policies import Policies
from bundlekeel.model.snapshot import Snapshot
from bundlekeel.planning.guard.state import GuardState, RecentMove
from bundlekeel.pulsar.formats.extensible import decode_broker_load, decode_top_bundles

# The sidecar's own limit is that of ZooKeeper; a caller's records may be larger.
MAX_RECORD_BYTES: Final = 256 * 1024 * 1024


class _OwnFields(msgspec.Struct, gc=False):
    """Fields that only BrokerLoadData has, and not the modular load report."""

    weighted_max_ema: Any = msgspec.field(name="weightedMaxEMA", default=UNSET)
    max_resource_usage: Any = msgspec.field(name="maxResourceUsage", default=UNSET)
    updated_at: Any = msgspec.field(name="updatedAt", default=UNSET)


_OWN_FIELDS: Final = msgspec.json.Decoder(_OwnFields)


def is_extensible(line: InputLine) -> bool:
    """Return whether a line has data of the extensible load manager, by its fields or by the fields of its brokers."""
    return _has_own_fields(line) or (line.brokers is not UNSET and any(map(_is_load_data, line.brokers.values())))


def refuse_extensible(line: InputLine) -> None:
    """Raise LineFault if a line has fields of the extensible load manager."""
    if _has_own_fields(line):
        raise LineFault("only strategy transfer reads the load data of the extensible load manager", "brokers")


def _has_own_fields(line: InputLine) -> bool:
    return any(field is not UNSET for field in (line.top_bundles, line.missing, line.recent_brokers))


def _is_load_data(record: msgspec.Raw) -> bool:
    try:
        fields = _OWN_FIELDS.decode(record)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return False
    return any(value is not UNSET for value in msgspec.structs.astuple(fields))


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferTurn:
    """One line of input for the extensible load manager: the records as text, and the caller's other values."""

    brokers: dict[str, msgspec.Raw]
    top: dict[str, msgspec.Raw]
    missing: tuple[str, ...]
    recent: frozenset[str]
    recent_brokers: dict[str, int]
    now: int | None
    policies: Policies

    @classmethod
    def of(cls, line: InputLine) -> TransferTurn:
        """Return the data of an input line. Raises LineFault if it has fields of the modular load manager."""
        for name in ("bundles", "capacity"):
            if getattr(line, name):
                raise LineFault("belongs to a turn of the modular load manager", name)
        return cls(
            brokers={} if line.brokers is UNSET else line.brokers,
            top={} if line.top_bundles is UNSET else line.top_bundles,
            missing=() if line.missing is UNSET else tuple(line.missing),
            recent=frozenset(line.recent or ()),
            recent_brokers={} if line.recent_brokers is UNSET else line.recent_brokers,
            now=line.now,
            policies=parse_policies(line.policies),
        )

    def guard_at(self, now: int) -> GuardState:
        """Return the recent moves, dated 1 ms after now, so that they are recent even with a cool-down of 0 s."""
        recent = {name: RecentMove(at_ms=now + 1, source="") for name in sorted(self.recent)}
        return GuardState(recent=recent, recent_brokers=self.recent_brokers)

    def snapshot(self) -> tuple[Snapshot, list[dict[str, str]]]:
        """Return the snapshot of the load data, and one fault per record that cannot be read."""
        loads: list[BrokerLoadData] = []
        missing = [name for name in dict.fromkeys(self.missing) if name not in self.brokers]
        excluded = [ExcludedBroker(broker_id=name, code=str(Code.NO_LOAD_DATA)) for name in missing]
        tops: dict[str, BundleLoads] = {}
        torn: list[dict[str, str]] = []
        for broker, raw in self.brokers.items():
            try:
                loads.append(decode_broker_load(broker, raw, max_bytes=MAX_RECORD_BYTES))
            except CodecError as error:
                excluded.append(ExcludedBroker(broker_id=broker, code=str(error.code), detail=str(error)))
        for broker, raw in self.top.items():
            try:
                tops[broker] = decode_top_bundles(raw, max_bytes=MAX_RECORD_BYTES)
            except CodecError as error:
                torn.append({"record": f"top_bundles.{broker}", "code": str(error.code), "detail": str(error)})
        now = self.now if self.now is not None else max((load.updated_at for load in loads), default=0)
        snapshot = extensible_snapshot(loads, tops, wall_ms=now, excluded=excluded)
        unread = [
            {"broker": item.broker_id, "code": item.code, "detail": item.detail}
            for item in snapshot.excluded
            if item.broker_id in self.brokers
        ]
        return snapshot, [*unread, *torn]

    def picture(self) -> tuple[TransferPicture, list[dict[str, str]]]:
        """Return the input of Pulsar's TransferShedder, and one fault per record that cannot be read."""
        loads: dict[str, Load] = {}
        top: dict[str, list[TopBundle]] = {}
        unread: list[dict[str, str]] = []
        for broker, raw in self.brokers.items():
            try:
                loads[broker] = decode_load(raw)
            except CodecError as error:
                unread.append({"broker": broker, "code": str(error.code), "detail": str(error)})
        for broker, raw in self.top.items():
            try:
                top[broker] = decode_top(raw)
            except CodecError as error:
                unread.append({"record": f"top_bundles.{broker}", "code": str(error.code), "detail": str(error)})
        picture = TransferPicture(
            now_ms=self.now if self.now is not None else max((load.updated_at for load in loads.values()), default=0),
            brokers=loads,
            top=top,
            missing=[*self.missing, *(name for name in self.brokers if name not in loads)],
            recent=self.recent,
            recent_brokers=self.recent_brokers,
        )
        return picture, unread
