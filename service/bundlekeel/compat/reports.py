"""Convert `LocalBrokerData` and `BundleData` to a `CompatPicture`, as Pulsar's own mapper (Jackson) reads them.

An absent number is Java's default, null is 0, "NaN" and "Infinity" are strings, and a negative number stays negative. A
record that Jackson rejects, or that makes the classes fail (`"cpu":null`), is skipped and named in `excluded`. Only
fields that a strategy reads are checked: a wrong type in another field has no effect.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain, repeat
from operator import attrgetter
from typing import Annotated, Any, Final, TypeVar

import msgspec
import numpy as np

from bundlekeel.compat.javamaps import concurrent_order, spread_hashes
from bundlekeel.compat.picture import BundleColumns, CompatPicture, percent, suspects
from bundlekeel.model.load import Floats, Ints

_Record = TypeVar("_Record")


class _Usage(msgspec.Struct, gc=False, frozen=True):
    usage: float = 0.0
    limit: float = 0.0


class _Ignored(msgspec.Struct, gc=False):
    pass


_NO_USAGE: Final = _Usage()


class _Report(msgspec.Struct, gc=False, rename="camel"):
    cpu: _Usage = _NO_USAGE
    direct_memory: _Usage = _NO_USAGE
    bandwidth_in: _Usage = _NO_USAGE
    bandwidth_out: _Usage = _NO_USAGE
    msg_rate_in: float = 0.0
    msg_rate_out: float = 0.0
    msg_throughput_in: float = 0.0
    msg_throughput_out: float = 0.0
    bundles: set[str | None] = msgspec.field(default_factory=set)
    last_stats: dict[str, _Ignored | None] = msgspec.field(default_factory=dict)


_JavaInt = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class _Term(msgspec.Struct, gc=False, rename="camel"):
    max_samples: _JavaInt = 0
    num_samples: _JavaInt = 0
    msg_rate_in: float = 0.0
    msg_rate_out: float = 0.0
    msg_throughput_in: float = 0.0
    msg_throughput_out: float = 0.0


class _BundleData(msgspec.Struct, gc=False, rename="camel"):
    short_term_data: _Term
    long_term_data: _Term
    topics: _JavaInt = 0


_REPORT: Final = msgspec.json.Decoder(_Report)
_BUNDLE: Final = msgspec.json.Decoder(_BundleData)
_RESOURCES: Final = attrgetter("cpu", "direct_memory", "bandwidth_in", "bandwidth_out")
_PAIR: Final = attrgetter("usage", "limit")
_RATES: Final = attrgetter("msg_rate_in", "msg_rate_out", "msg_throughput_in", "msg_throughput_out")
_SAMPLES: Final = attrgetter("max_samples", "num_samples")
_Text = bytes | msgspec.Raw


class UnusableRecord(Exception):
    """Raised for a record that Pulsar could not use."""


def decode_columns(bundles: Mapping[str, _Text]) -> tuple[BundleColumns, tuple[tuple[str, str], ...]]:
    """Return the `BundleData` of every bundle, and (bundle, reason) for unusable ones."""
    names, rows, hashes, excluded = _decode_all(bundles, _BUNDLE, _tolerant_bundle)
    shorts, longs = [row.short_term_data for row in rows], [row.long_term_data for row in rows]
    columns = BundleColumns(
        names=names,
        index=dict(zip(names, range(len(names)), strict=True)),
        short=_matrix(map(_RATES, shorts), len(rows)),
        long=_matrix(map(_RATES, longs), len(rows)),
        samples=np.array(
            [(*_SAMPLES(short), *_SAMPLES(long)) for short, long in zip(shorts, longs, strict=True)], dtype=np.int64
        ).reshape(-1, 4),
        topics=np.array([row.topics for row in rows], dtype=np.int64),
        suspects=suspects(names),
        hashes=hashes,
    )
    return columns, excluded


def decode_reports(brokers: Mapping[str, _Text], columns: BundleColumns, recent: Iterable[str] = ()) -> CompatPicture:
    """Return the reports combined with bundle data that is in memory already, as in the sidecar."""
    names, reports, hashes, excluded = _decode_all(brokers, _REPORT, _tolerant_report)
    count, index = len(names), columns.index
    usages = _matrix(map(_PAIR, chain.from_iterable(map(_RESOURCES, reports))), 4 * count, 2)
    starts, rows = _rows([report.bundles for report in reports], index)
    return CompatPicture(
        brokers=tuple(names),
        percent=percent(usages[:, 0], usages[:, 1]).reshape(count, 4),
        traffic=_matrix(map(_RATES, reports), count),
        bundle_count=np.array([len(report.bundles) for report in reports], dtype=np.int64),
        starts=starts,
        held=rows,
        stats=tuple(report.last_stats for report in reports),
        bundles=columns,
        recent=tuple(index[name] for name in recent if name in index),
        excluded=excluded,
        hashes=hashes,
    )


def _decode_all(
    texts: Mapping[str, _Text], decoder: msgspec.json.Decoder[_Record], tolerant: Callable[[_Fields], _Record]
) -> tuple[list[str], list[_Record], Ints, tuple[tuple[str, str], ...]]:
    """Return names, records and hashes in the order of a ConcurrentHashMap, and the unusable records."""
    names: list[str] = []
    records: list[_Record] = []
    excluded: list[tuple[str, str]] = []
    for name, text in texts.items():
        try:
            record = decoder.decode(text)
        except (msgspec.DecodeError, ValueError, RecursionError):
            try:
                record = tolerant(_Fields(bytes(text)))
            except UnusableRecord as error:
                excluded.append((name, str(error)))
                continue
        names.append(name)
        records.append(record)
    hashes = spread_hashes(names)
    order = concurrent_order(hashes)
    places = order.tolist()
    return [names[place] for place in places], [records[place] for place in places], hashes[order], tuple(excluded)


def _matrix(rows: Iterable[tuple[float, ...]], count: int, columns: int = 4) -> Floats:
    flat: Floats = np.fromiter(chain.from_iterable(rows), dtype=np.float64, count=count * columns)
    return flat.reshape(count, columns)


def _rows(named: Sequence[Collection[str | None]], index: Mapping[str, int]) -> tuple[Ints, Ints]:
    """Return (starts, rows): for each broker the rows of the names in `index`."""
    counts = np.fromiter(map(len, named), dtype=np.int64, count=len(named))
    places = map(index.get, chain.from_iterable(named), repeat(-1))  # type: ignore[arg-type]
    rows: Ints = np.fromiter(places, dtype=np.int64, count=int(counts.sum()))
    starts = np.concatenate([[0], np.cumsum(counts)])
    if (rows < 0).any():
        in_index = rows >= 0
        starts = np.concatenate([[0], np.cumsum(in_index)])[starts]
        rows = rows[in_index]
    return starts.astype(np.int64), rows


# --- tolerant decoding -----------------------------------------------------------------------------------


class _Number(str):
    """A JSON number with its original spelling, which is needed where Pulsar uses the number as a bundle's name."""

    __slots__ = ()


_JAVA_DOUBLE: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[dDfF]?", re.ASCII)
_SPECIAL: Final = {
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "INF": float("inf"),
    "-Infinity": float("-inf"),
    "-INF": float("-inf"),
}


class _Fields:
    """An object's fields with Jackson's conversions. Raises UnusableRecord where Jackson fails."""

    def __init__(self, text: bytes) -> None:
        try:
            read = json.loads(text, parse_int=_Number, parse_float=_Number, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise UnusableRecord(f"no JSON: {error}") from None
        self._values = _object(read, "the record")

    def figure(self, name: str, fields: Mapping[str, Any] | None = None) -> float:
        """Return a field as a Java double: null and blank strings are 0, numbers may be strings."""
        value = (self._values if fields is None else fields).get(name)
        if value is None:
            return 0.0
        if not isinstance(value, str):
            raise UnusableRecord(f"{name} is not a number")
        text = value.strip()
        if not isinstance(value, _Number):
            if text in ("", "null"):
                return 0.0
            if text in _SPECIAL:
                return _SPECIAL[text]
        if not _JAVA_DOUBLE.fullmatch(text):
            raise UnusableRecord(f"{name} is not a number")
        return float(text.rstrip("dDfF"))

    def integer(self, name: str, fields: Mapping[str, Any] | None = None) -> int:
        """Return a field as a Java int: fractions are cut off."""
        value = self.figure(name, fields)
        if not -(2**31) <= value < 2**31:
            raise UnusableRecord(f"{name} is no int")
        return int(value)

    def usage(self, name: str) -> _Usage:
        """Return a `ResourceUsage` field. Null is an error, because Pulsar's classes fail."""
        if name not in self._values:
            return _NO_USAGE
        fields = _object(self._values[name], name)
        return _Usage(usage=self.figure("usage", fields), limit=self.figure("limit", fields))

    def term(self, name: str) -> _Term:
        """Return a `TimeAverageMessageData` field. An absent one is an error, because Pulsar's classes fail."""
        fields = _object(self._values.get(name), name)
        rates = (self.figure(f"msg{rate}", fields) for rate in ("RateIn", "RateOut", "ThroughputIn", "ThroughputOut"))
        return _Term(self.integer("maxSamples", fields), self.integer("numSamples", fields), *rates)

    def names(self, name: str) -> set[str | None]:
        """Return a field's set of strings; numbers and booleans become strings as they are written."""
        values = self._values.get(name, [])
        if not isinstance(values, list) or any(isinstance(value, dict | list) for value in values):
            raise UnusableRecord(f"{name} is not a list of names")
        return {_spelled(value) for value in values}

    def keys(self, name: str) -> dict[str, _Ignored | None]:
        """Return the keys of an object of objects, in their order."""
        values = _object(self._values.get(name, {}), name)
        if any(value is not None and not isinstance(value, dict) for value in values.values()):
            raise UnusableRecord(f"{name} holds something else than statistics")
        return dict.fromkeys(values)


def _spelled(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return None if value is None else str(value)


def _object(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UnusableRecord(f"{name} is not an object")
    return value


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is no JSON number")


def _tolerant_report(fields: _Fields) -> _Report:
    return _Report(
        cpu=fields.usage("cpu"),
        direct_memory=fields.usage("directMemory"),
        bandwidth_in=fields.usage("bandwidthIn"),
        bandwidth_out=fields.usage("bandwidthOut"),
        msg_rate_in=fields.figure("msgRateIn"),
        msg_rate_out=fields.figure("msgRateOut"),
        msg_throughput_in=fields.figure("msgThroughputIn"),
        msg_throughput_out=fields.figure("msgThroughputOut"),
        bundles=fields.names("bundles"),
        last_stats=fields.keys("lastStats"),
    )


def _tolerant_bundle(fields: _Fields) -> _BundleData:
    return _BundleData(
        short_term_data=fields.term("shortTermData"),
        long_term_data=fields.term("longTermData"),
        topics=fields.integer("topics"),
    )
