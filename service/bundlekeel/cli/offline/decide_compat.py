"""`bundlekeel decide` beyond the corrected strategies on modular pictures.

With `compat`: what Pulsar's own class of that release answers, bare. No guard, no pipeline, no averages of ours: the
records are read as Pulsar's mapper reads them, and a bundle that `bundles` does not name is no candidate. `to` holds
the destinations that the class couples; a `placement` named in the reset adds its choice among all brokers for the
others (the owner is left out, as the broker skips it).

On pictures of the extensible load manager, for `transfer`, corrected and compat: a turn gives `brokers`
(BrokerLoadData), `top_bundles`, `missing` (registered brokers without load data), `recent` (bundles) and
`recent_brokers` (when a broker gave last). `to` holds every destination; what compat unloads without transfer
(`loadBalancerTransferEnabled: false`) is in `unload` only.

* A broker whose load data cannot be read is left out and listed under `excluded`; for the class, which would find none
  in its store, it is one more registered broker without load data.
* Corrected, `recent` bundles are cooling down, and what a broker carries besides its top bundles never moves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET

from bundlekeel.cli.offline.decide_lines import InputLine, LineFault, parse_policies, unload_hash
from bundlekeel.codec.compat import decode_columns, decode_load, decode_reports, decode_top
from bundlekeel.codec.extensible import decode_broker_load, decode_top_bundles
from bundlekeel.core.compat import BundleColumns, CompatPicture, CompatResult, Placer, shed
from bundlekeel.core.compat.transfer import Load, TopBundle, TransferOutcome, TransferPicture, find_bundles
from bundlekeel.core.guard.state import GuardState, RecentMove
from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.errors import CodecError
from bundlekeel.core.model.extensible import BrokerLoadData, BundleLoads, extensible_snapshot
from bundlekeel.core.model.load import ExcludedBroker
from bundlekeel.core.model.parameters import Parameters
from bundlekeel.core.model.policies import Policies
from bundlekeel.core.model.snapshot import Snapshot
from bundlekeel.core.planning.memory import CompatMemory

# Only what one would never write by hand; the daemon's own limit is that of ZooKeeper.
MAX_RECORD_BYTES = 256 * 1024 * 1024
_OWN_FIELDS = ("top_bundles", "missing", "recent_brokers")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompatTurn:
    """The input of a turn, kept for `bench`: the text of the reports, and bundle data that are in memory already."""

    brokers: dict[str, msgspec.Raw]
    bundles: BundleColumns
    torn: tuple[tuple[str, str], ...]
    recent: tuple[str, ...]

    def decode(self) -> CompatPicture:
        """The reports, read anew."""
        return decode_reports(self.brokers, self.bundles, self.recent)


def compat_turn(brokers: dict[str, msgspec.Raw], bundles: dict[str, msgspec.Raw], recent: list[str]) -> CompatTurn:
    """Read what stays in memory between turns of a bench."""
    columns, torn = decode_columns(bundles)
    return CompatTurn(brokers=brokers, bundles=columns, torn=torn, recent=tuple(recent))


@dataclass(slots=True)
class CompatDecider:
    """One reset's parameters with what the classes remember since. `places`: the reset named a placement."""

    params: Parameters
    seed: int
    places: bool
    memory: CompatMemory

    def decide(self, picture: CompatPicture) -> CompatResult:
        """One call of the class."""
        result = shed(picture, self.params, self.memory, self.params.strategy, self.params.compat)
        self.memory = result.memory
        return result

    def answer(self, turn: CompatTurn) -> dict[str, Any]:
        """One turn's answer."""
        picture = turn.decode()
        result = self.decide(picture)
        brokers, names = picture.brokers, picture.bundles.names
        unload: dict[str, list[str]] = {}
        for bundle, source in result.unload:
            unload.setdefault(brokers[source], []).append(names[bundle])
        to = {names[bundle]: brokers[target] for bundle, target in self._destinations(picture, result).items()}
        answer: dict[str, Any] = {
            "unload": unload,
            "to": to,
            "verdict": {
                "code": result.verdict.code,
                "sentence": result.verdict.sentence,
                "brokers": [
                    {"code": item.code, "sentence": item.sentence, "broker": item.broker} for item in result.brokers
                ],
            },
            "refused": [],
            "plan_hash": unload_hash(unload, to),
        }
        excluded = [*picture.excluded, *turn.torn]
        if excluded:
            answer["excluded"] = [{"record": name, "detail": why} for name, why in excluded]
        return answer

    def _destinations(self, picture: CompatPicture, result: CompatResult) -> dict[int, int]:
        found = dict(result.to)
        if not self.places or len(picture.brokers) < 2:
            return found
        placer = Placer(picture, self.params, self.memory, self.params.placement, self.seed)
        everybody = np.arange(len(picture.brokers), dtype=np.int64)
        for bundle, source in result.unload:
            if bundle not in found:
                _, chosen = placer.select(bundle, everybody)
                if chosen not in (-1, source):
                    found[bundle] = chosen
        self.memory = placer.memory()
        return found


class _Telling(msgspec.Struct, gc=False):
    weighted_max_ema: Any = msgspec.field(name="weightedMaxEMA", default=UNSET)
    max_resource_usage: Any = msgspec.field(name="maxResourceUsage", default=UNSET)
    updated_at: Any = msgspec.field(name="updatedAt", default=UNSET)


_TELLING = msgspec.json.Decoder(_Telling)


def is_extensible(line: InputLine, *, own_fields_only: bool = False) -> bool:
    """Whether a turn is one of the extensible load manager: by its own fields, or by what a broker says."""
    if own_fields_only or any(getattr(line, name) is not UNSET for name in _OWN_FIELDS):
        return any(getattr(line, name) is not UNSET for name in _OWN_FIELDS)
    return line.brokers is not UNSET and any(map(_tells, line.brokers.values()))


def _tells(record: msgspec.Raw) -> bool:
    try:
        told = _TELLING.decode(record)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return False
    return any(value is not UNSET for value in msgspec.structs.astuple(told))


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferTurn:
    """The input of a turn, kept for `bench`: the texts, and when the caller says it is."""

    brokers: dict[str, msgspec.Raw]
    top: dict[str, msgspec.Raw]
    missing: tuple[str, ...]
    recent: frozenset[str]
    recent_brokers: dict[str, int]
    now: int | None
    policies: Policies

    @classmethod
    def of(cls, line: InputLine) -> TransferTurn:
        """Out of a line of the extensible shape. Fault when it has what only modular turns have."""
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
        """What the caller says of recent moves. One ms ahead of now: however short the cool-down, these are recent."""
        recent = {name: RecentMove(at_ms=now + 1, source="") for name in sorted(self.recent)}
        return GuardState(recent=recent, recent_brokers=self.recent_brokers)

    def snapshot(self) -> tuple[Snapshot, list[dict[str, str]]]:
        """For the corrected form; and what could not be read."""
        loads: list[BrokerLoadData] = []
        left_out = [ExcludedBroker(broker_id=name, code=str(Code.NO_LOAD_DATA)) for name in self._without_data()]
        tops: dict[str, BundleLoads] = {}
        torn: list[dict[str, str]] = []
        for broker, raw in self.brokers.items():
            try:
                loads.append(decode_broker_load(broker, raw, max_bytes=MAX_RECORD_BYTES))
            except CodecError as error:
                left_out.append(ExcludedBroker(broker_id=broker, code=str(error.code), detail=str(error)))
        for broker, raw in self.top.items():
            try:
                tops[broker] = decode_top_bundles(raw, max_bytes=MAX_RECORD_BYTES)
            except CodecError as error:
                torn.append({"record": f"top_bundles.{broker}", "code": str(error.code), "detail": str(error)})
        now = self.now if self.now is not None else max((load.updated_at for load in loads), default=0)
        seen = extensible_snapshot(loads, tops, wall_ms=now, excluded=left_out)
        unread = [
            {"broker": item.broker_id, "code": item.code, "detail": item.detail}
            for item in seen.excluded
            if item.broker_id in self.brokers
        ]
        return seen, [*unread, *torn]

    def picture(self) -> tuple[TransferPicture, list[dict[str, str]]]:
        """For the compat form; and what could not be read."""
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
        seen = TransferPicture(
            now_ms=self.now if self.now is not None else max((load.updated_at for load in loads.values()), default=0),
            brokers=loads,
            top=top,
            missing=[*self.missing, *(name for name in self.brokers if name not in loads)],
            recent=self.recent,
            recent_brokers=self.recent_brokers,
        )
        return seen, unread

    def _without_data(self) -> list[str]:
        return [name for name in dict.fromkeys(self.missing) if name not in self.brokers]


@dataclass(slots=True)
class CompatTransfer:
    """One reset's parameters, and the hit count that the class remembers since."""

    params: Parameters
    hits: int = 0

    def decide(self, picture: TransferPicture) -> TransferOutcome:
        """One call of the class."""
        outcome = find_bundles(picture, self.params, self.hits)
        self.hits = outcome.hits
        return outcome

    def answer(self, turn: TransferTurn) -> dict[str, Any]:
        """One turn's answer."""
        picture, unread = turn.picture()
        outcome = self.decide(picture)
        unload: dict[str, list[str]] = {}
        for item in outcome.unloads:
            unload.setdefault(item.source, []).append(item.bundle)
        to = {item.bundle: item.target for item in outcome.unloads if item.target}
        answer: dict[str, Any] = {
            "unload": unload,
            "to": to,
            "verdict": {
                "code": outcome.reason,
                "label": outcome.label,
                "sentence": _sentence(outcome, self.params),
                "hits": outcome.hits,
                "brokers": [],
            },
            "refused": [],
            "plan_hash": unload_hash(unload, to),
        }
        if unread:
            answer["excluded"] = unread
        return answer


def _sentence(outcome: TransferOutcome, params: Parameters) -> str:
    if outcome.unloads:
        return f"{len(outcome.unloads)} bundles to {'transfer' if params.transfer_enabled else 'unload'}"
    return f"nothing to unload; condition met {outcome.hits} times, more than {params.transfer_hit_count} needed"
