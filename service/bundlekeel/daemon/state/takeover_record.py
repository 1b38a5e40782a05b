"""The shared document `takeover`: what the brokers ran with before we took over, and how the takeover ended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import numpy as np

from bundlekeel.codec.external_input import check_ranges, load
from bundlekeel.core.guard.scope import matches
from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.errors import CodecError
from bundlekeel.core.model.numbers import MAX_TIME_MS, integer
from bundlekeel.core.model.parameters import Parameters
from bundlekeel.daemon.answers.picture import EndedView, TakeoverView
from bundlekeel.ports import Document

TAKEOVER: Final = "takeover"
# What ends it that quotas are put aside.
SETS_RATES_AGAIN: Final = '`bundlekeel mode act --reason "..."` or `bundlekeel takeover`'
# When the failsafe job looked last: {"wall_ms": ...}.
FAILSAFE: Final = "failsafe"
# 4.2 and later (PIP-380), dynamic, in both load managers: namespaces that the brokers' own shedding leaves alone.
EXCLUDED: Final = "loadBalancerSheddingExcludedNamespaces"
SPLITTING: Final = "loadBalancerAutoBundleSplitEnabled"


def name_set(value: str) -> frozenset[str]:
    """The names in a setting of Pulsar that is a set: `a,b` as written, `[a, b]` as a broker shows it."""
    return frozenset(part.strip() for part in value.strip().strip("[]").split(",") if part.strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeoverEnd:
    """Who returned the shedding to the brokers, why and when. `deadman`: the failsafe did, because the sidecars
    failed."""

    by: str
    reason: str
    wall_ms: int
    deadman: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeoverRecord:
    """The shared document. `by`, `reason`, `wall_ms`: of the latest takeover; `by` is "" without one, when a handback
    only put quotas aside. `overrides`: what each
    key's dynamic override was, None for none. `runtime`: what each broker ran with then, by broker id and key, with its
    start. `namespaces`: the only ones taken over, () for all. `excluded_by_us`: what a partial takeover added to the
    brokers' exclusions, also once the whole cluster is taken over. `active` is False once handed back, and `ended` says
    by whom: the port for what any replica may write has no delete.
    """

    by: str
    reason: str
    wall_ms: int
    overrides: Mapping[str, str | None]
    runtime: Mapping[str, Mapping[str, str]]
    namespaces: tuple[str, ...] = field(default=())
    excluded_by_us: tuple[str, ...] = field(default=())
    active: bool = True
    ended: TakeoverEnd | None = None

    def encode(self) -> bytes:
        """The document's JSON."""
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
        """For people: who took over, why, when, what, and how it ended."""
        return TakeoverView(
            active=self.active,
            by=self.by,
            reason=self.reason,
            wall_ms=self.wall_ms,
            namespaces=list(self.namespaces),
            ended=EndedView(**asdict(self.ended)) if self.ended is not None else None,
        )


def takeover_request(record: TakeoverRecord) -> dict[str, Any]:
    """The journal line of a takeover, or of its end."""
    ended = record.ended if not record.active else None
    who, why, at = (ended.by, ended.reason, ended.wall_ms) if ended else (record.by, record.reason, record.wall_ms)
    what = "takeover" if ended is None else "deadman" if ended.deadman else "handback"
    scope = f" for {', '.join(record.namespaces)}" if record.namespaces else ""
    said = {
        "takeover": f"{who} turned the brokers' own shedding off{scope}: {why}",
        "handback": f"{who} returned the shedding to the brokers: {why}",
        "deadman": f"{who} returned the shedding to the brokers, the sidecars act no more: {why}",
    }
    if ended is not None and not record.by:
        said["handback"] = f"{who} suspended quotas until the next {SETS_RATES_AGAIN} (there was no takeover): {why}"
    return {"kind": "request", "what": what, "wall_ms": at, "reason": why, "by": who, "sentence": said[what]}


def decode_takeover(data: bytes) -> TakeoverRecord:
    """Read the document. CodecError: it must not be overwritten then, because it alone knows what was there before."""
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
    """The failsafe's document."""
    return json.dumps({"wall_ms": wall_ms}).encode()


def decode_look(document: Document | None) -> int:
    """When the failsafe looked last (wall ms); 0 when it never did, or what it left cannot be read."""
    try:
        found = load(document.data, what=f"the document {FAILSAFE}", exact=True)["wall_ms"] if document else 0
        return integer(found, field="wall_ms", highest=MAX_TIME_MS)
    except (CodecError, TypeError, KeyError):
        return 0


def _ended(found: dict[str, Any] | None) -> TakeoverEnd | None:
    if not found:
        return None
    return TakeoverEnd(
        by=str(found["by"]),
        reason=str(found["reason"]),
        wall_ms=integer(found["wall_ms"], field="ended.wall_ms", highest=MAX_TIME_MS),
        deadman=bool(found["deadman"]),
    )


# A takeover of named namespaces only: what we plan, and which brokers' own shedding then is no obstacle.


# Matches no namespace: they have exactly one slash.
NOTHING = "-"


def namespaces_of(record: TakeoverRecord | None) -> tuple[str, ...]:
    """The namespaces a takeover in force is limited to, () when it is not limited or there is none."""
    return record.namespaces if record is not None and record.active else ()


def put_aside(record: TakeoverRecord | None) -> TakeoverEnd | None:
    """How the failsafe ended the last takeover; None when it did not."""
    ended = record.ended if record is not None and not record.active else None
    return ended if ended is not None and ended.deadman else None


def left_to_us(values: Mapping[str, str] | None, namespaces: tuple[str, ...]) -> bool:
    """Whether a broker that runs with these settings leaves all these namespaces alone (PIP-380)."""
    return bool(namespaces) and values is not None and name_set(values.get(EXCLUDED, "")) >= set(namespaces)


def adopted(values: Mapping[str, str], namespaces: tuple[str, ...]) -> Mapping[str, str]:
    """Broker settings to adopt: what the brokers leave to us is no exclusion of ours."""
    return {key: value for key, value in values.items() if key != EXCLUDED} if namespaces else values


def scoped(params: Parameters, namespaces: tuple[str, ...]) -> Parameters:
    """Only these namespaces, and of them only those that the settings include."""
    if not namespaces:
        return params
    wanted = np.zeros(len(namespaces), dtype=bool)
    for pattern in params.included_namespaces:
        wanted |= matches(pattern, namespaces)
    both = tuple(name for name, held in zip(namespaces, wanted.tolist(), strict=True) if held)
    return replace(params, included_namespaces=(both or (NOTHING,)) if params.included_namespaces else namespaces)
