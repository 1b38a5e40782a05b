"""The shared document `takeover`: the brokers' settings before the takeover, and how the takeover ended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from bundlekeel.leader.state.responses import EndedView, TakeoverView
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import CodecError
from bundlekeel.model.numbers import MAX_TIME_MS, integer
from bundlekeel.ports import Document
from bundlekeel.pulsar.formats.external_input import check_ranges, load

TAKEOVER: Final = "takeover"
# Command that ends the suspension of quotas.
SETS_RATES_AGAIN: Final = '`bundlekeel mode act --reason "..."` or `bundlekeel takeover`'
# Time of the failsafe job's last check: {"wall_ms": ...}.
FAILSAFE: Final = "failsafe"
# Namespaces that the brokers' own shedding skips: dynamic, in both load managers since 4.2 (PIP-380).
EXCLUDED: Final = "loadBalancerSheddingExcludedNamespaces"
SPLITTING: Final = "loadBalancerAutoBundleSplitEnabled"


def name_set(value: str) -> frozenset[str]:
    """Return the names in a Pulsar setting that is a set: `a,b` in files, `[a, b]` in broker responses."""
    return frozenset(part.strip() for part in value.strip().strip("[]").split(",") if part.strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeoverRecord(TakeoverView):
    """The shared document: the takeover of the brokers' load shedding, and its end (handback).

    `by`, `reason`, `wall_ms` describe the last takeover. `by` is "" if there was no takeover and a handback only
    suspended quotas. `overrides`: dynamic override of each key before the takeover; None: none. `runtime`: each
    broker's settings before the takeover by broker id and key, with its start time. `namespaces`: namespaces of a
    partial takeover; (): all. `excluded_by_us`: namespaces that a partial takeover added to the brokers' exclusions,
    also after a later full takeover. `active`: False after the end, which `ended` describes; shared documents cannot be
    deleted."""

    overrides: Mapping[str, str | None]
    runtime: Mapping[str, Mapping[str, str]]
    namespaces: tuple[str, ...] = ()
    excluded_by_us: tuple[str, ...] = ()
    active: bool = True
    ended: EndedView | None = None

    def encode(self) -> bytes:
        """Return the document as JSON."""
        record = {
            "by": self.by,
            "reason": self.reason,
            "wall_ms": self.wall_ms,
            "overrides": dict(self.overrides),
            "runtime": {broker: dict(values) for broker, values in self.runtime.items()},
            "namespaces": list(self.namespaces),
            "excluded_by_us": list(self.excluded_by_us),
            "active": self.active,
            "ended": asdict(self.ended) if self.ended is not None else None,
        }
        return json.dumps(record, ensure_ascii=False, sort_keys=True).encode()

    def view(self) -> TakeoverView:
        """Return the takeover in the form of the API."""
        return TakeoverView(**TakeoverView.part_of(self))


def takeover_request(record: TakeoverRecord) -> dict[str, Any]:
    """Return the journal record of a takeover, or of its end."""
    ended = record.ended if not record.active else None
    who, why, at = (ended.by, ended.reason, ended.wall_ms) if ended else (record.by, record.reason, record.wall_ms)
    what = "takeover" if ended is None else "deadman" if ended.deadman else "handback"
    scope = f" for {', '.join(record.namespaces)}" if record.namespaces else ""
    sentences = {
        "takeover": f"{who} turned the brokers' own shedding off{scope}: {why}",
        "handback": f"{who} returned the shedding to the brokers: {why}",
        "deadman": f"{who} returned the shedding to the brokers, and the sidecars stopped acting: {why}",
    }
    if ended is not None and not record.by:
        sentences["handback"] = (
            f"{who} suspended quotas until the next {SETS_RATES_AGAIN} (there was no takeover): {why}"
        )
    return {"kind": "request", "what": what, "wall_ms": at, "reason": why, "by": who, "sentence": sentences[what]}


def decode_takeover(data: bytes) -> TakeoverRecord:
    """Read the document. Raises CodecError if it is unreadable.

    Never overwrite an unreadable document: no other one contains the brokers' settings from before the takeover."""
    try:
        record: dict[str, Any] = load(data, what=f"the document {TAKEOVER}", exact=True)
        check_ranges(record, what=f"the document {TAKEOVER}")
        return TakeoverRecord(
            by=str(record["by"]),
            reason=str(record["reason"]),
            wall_ms=integer(record["wall_ms"], field="wall_ms", highest=MAX_TIME_MS),
            overrides={str(k): None if v is None else str(v) for k, v in record["overrides"].items()},
            runtime={str(b): {str(k): str(v) for k, v in values.items()} for b, values in record["runtime"].items()},
            namespaces=tuple(map(str, record["namespaces"])),
            excluded_by_us=tuple(map(str, record["excluded_by_us"])),
            active=bool(record["active"]),
            ended=_ended(record["ended"]),
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CodecError(f"the document {TAKEOVER} cannot be read: {error}", code=Code.WRONG_TYPE) from error


def encode_look(wall_ms: int) -> bytes:
    """Return the document in which the failsafe job stores the time of its last check (Unix ms)."""
    return json.dumps({"wall_ms": wall_ms}).encode()


def decode_look(document: Document | None) -> int:
    """Return the time of the failsafe job's last check (Unix ms); 0: never, or the document is unreadable."""
    try:
        wall_ms = load(document.data, what=f"the document {FAILSAFE}", exact=True)["wall_ms"] if document else 0
        return integer(wall_ms, field="wall_ms", highest=MAX_TIME_MS)
    except (CodecError, TypeError, KeyError):
        return 0


def _ended(end: dict[str, Any] | None) -> EndedView | None:
    if not end:
        return None
    return EndedView(
        by=str(end["by"]),
        reason=str(end["reason"]),
        wall_ms=integer(end["wall_ms"], field="ended.wall_ms", highest=MAX_TIME_MS),
        deadman=bool(end["deadman"]),
    )
