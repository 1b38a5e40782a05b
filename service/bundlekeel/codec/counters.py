"""Counters of a broker's topics out of its Prometheus page (`/metrics/`, text format 0.0.4).

Written by `TopicStats.printTopicStats`: what comes in once a topic, what goes out once a subscription and, where
`exposeConsumerLevelMetricsInPrometheus` is set, once more a consumer. With
`exposeTopicLevelMetricsInPrometheus=false` the same names are there a namespace, without topics.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from typing import Final

import numpy as np

from bundlekeel.codec.external_input import clean, text_of
from bundlekeel.codec.tolerant import MAX_NUMBER
from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.counters import CounterReading
from bundlekeel.core.model.errors import CodecError

# In the order of `core.model.load.TRAFFIC`, then consumers and producers.
_FIGURES: Final = (
    b"pulsar_in_messages_total",
    b"pulsar_out_messages_total",
    b"pulsar_in_bytes_total",
    b"pulsar_out_bytes_total",
    b"pulsar_consumers_count",
    b"pulsar_producers_count",
)
_CPU: Final = b"process_cpu_seconds_total"
_DIRECT_MEMORY: Final = b"jvm_memory_direct_bytes_used"


def decode_counters(page: bytes, *, from_ms: int, to_ms: int) -> CounterReading:
    """Topics, counters and sessions of one page, read between two moments. A figure that is none counts as nothing.
    CodecError when the page tells of namespaces only, or of neither."""
    rows: dict[bytes, int] = {}
    found: list[tuple[int, int, float]] = []
    plain = False
    for column, name in enumerate(_FIGURES):
        for line in _lines(page, name):
            topic = _label(line, b"topic")
            if not topic:
                plain = True
            elif not _label(line, b"consumer_id"):
                found.append((rows.setdefault(topic, len(rows)), column, _value(line)))
    if not rows and (plain or _single(page, _CPU) is None):
        what = "no figures of topics (exposeTopicLevelMetricsInPrometheus=false)" if plain else "no figures of a broker"
        raise CodecError(f"the metrics hold {what}", code=Code.NO_LOAD_DATA)
    table = np.zeros((len(rows), len(_FIGURES)))
    if found:
        places = np.array([(row, column) for row, column, _ in found])
        np.add.at(table, (places[:, 0], places[:, 1]), [value for _, _, value in found])
    namespaces: dict[bytes, int] = {}
    places_in = [namespaces.setdefault(_namespace(topic), len(namespaces)) for topic in rows]
    return CounterReading(
        from_ms=from_ms,
        to_ms=to_ms,
        namespaces=tuple(clean(text_of(name)) for name in namespaces),
        namespace=np.array(places_in, dtype=np.int64),
        hashes=np.array([zlib.crc32(topic) for topic in rows], dtype=np.int64),
        counters=np.ascontiguousarray(table[:, :4]),
        sessions=table[:, 4:].astype(np.int64),
        cpu_seconds=_single(page, _CPU),
        direct_memory_bytes=_single(page, _DIRECT_MEMORY),
    )


def _lines(page: bytes, name: bytes) -> Iterator[bytes]:
    """The samples of one name. Most follow each other, so the rest of a page is searched, not split."""
    start = name + b"{"
    at = 0 if page.startswith(start) else page.find(b"\n" + start) + 1 or len(page)
    while at < len(page):
        end = page.find(b"\n", at)
        end = len(page) if end < 0 else end
        yield page[at:end]
        at = end + 1 if page.startswith(start, end + 1) else page.find(b"\n" + start, end) + 1 or len(page)


def _label(line: bytes, name: bytes) -> bytes:
    """A label's value as it is written, or nothing. Quotation marks in values are written with a backslash."""
    for mark in (b"{", b","):
        at = line.find(mark + name + b'="')
        if at >= 0:
            start = at + len(name) + 3
            return line[start : max(line.find(b'"', start), start)]
    return b""


def _namespace(topic: bytes) -> bytes:
    """`tenant/namespace` of a full topic name."""
    return b"/".join(topic.partition(b"://")[2].split(b"/", 2)[:2])


def _value(line: bytes) -> float:
    """The number behind the labels; a moment may follow it."""
    words = line[line.rfind(b"}") + 1 :].split()
    try:
        value = float(words[0]) if words else 0.0
    except ValueError:
        return 0.0
    return value if math.isfinite(value) and 0 < value <= MAX_NUMBER else 0.0


def _single(page: bytes, name: bytes) -> float | None:
    line = next(_lines(page, name), None)
    return None if line is None else _value(line)
