"""Counters of a broker's topics out of its Prometheus page (`/metrics/`, text format 0.0.4), or out of Prometheus.

Written by `TopicStats.printTopicStats`: what comes in once a topic, what goes out once a subscription and, where
`exposeConsumerLevelMetricsInPrometheus` is set, once more a consumer. With
`exposeTopicLevelMetricsInPrometheus=false` the same names are there a namespace, without topics.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from bundlekeel.codec.external_input import LARGE, clean, read, text_of
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
# What is asked of Prometheus.
NAMES: Final = tuple(name.decode() for name in (*_FIGURES, _CPU, _DIRECT_MEMORY))


def decode_counters(page: bytes, *, from_ms: int, to_ms: int) -> CounterReading:
    """Topics, counters and sessions of one page, read between two moments. A figure that is none counts as nothing.
    CodecError when the page tells of namespaces only, or of neither."""
    samples = [
        _Sample(
            column, _label(line, b"topic"), _label(line, b"namespace"), bool(_label(line, b"consumer_id")), _value(line)
        )
        for column, name in enumerate(_FIGURES)
        for line in _lines(page, name)
    ]
    return _reading(samples, (_single(page, _CPU), _single(page, _DIRECT_MEMORY)), (from_ms, to_ms))


class _Sample(NamedTuple):
    """One value of a topic, or of a namespace (then `topic` is empty)."""

    column: int
    topic: bytes
    namespace: bytes
    of_consumer: bool
    value: float


class _Series(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, str]]


class _Matrix(msgspec.Struct):
    result: list[_Series]


class _Answer(msgspec.Struct):
    data: _Matrix


def decode_scrapes(body: bytes) -> list[CounterReading]:
    """The last two scrapes of one broker in an answer of Prometheus (`/api/v1/query` of a range vector), older first.

    All samples of a scrape have its moment, so what the broker no longer told by then is not in it. CodecError as
    above, or when the answer is none."""
    series = read(body, _Answer, what="the answer of Prometheus", limit=LARGE).data.result
    moments = sorted({at for item in series if item.metric.get("__name__") == _CPU.decode() for at, _ in item.values})
    columns = {name.decode(): column for column, name in enumerate(_FIGURES)}
    readings = []
    for moment in moments[-2:]:
        samples: list[_Sample] = []
        single: dict[str, float] = {}
        for item in series:
            name = item.metric.get("__name__", "")
            value = next((_number(text) for at, text in item.values if at == moment), None)
            if value is None:
                continue
            if name in columns:
                topic, namespace = (item.metric.get(label, "").encode() for label in ("topic", "namespace"))
                samples.append(_Sample(columns[name], topic, namespace, "consumer_id" in item.metric, value))
            else:
                single[name] = value
        process = single.get(_CPU.decode()), single.get(_DIRECT_MEMORY.decode())
        readings.append(_reading(samples, process, (int(1000 * moment), int(1000 * moment))))
    return readings


def _reading(
    samples: Sequence[_Sample],
    process: tuple[float | None, float | None],
    moments: tuple[int, int],
) -> CounterReading:
    rows: dict[bytes, int] = {}
    places_in: list[int] = []
    namespaces: dict[bytes, int] = {}
    found = []
    for sample in samples:
        if sample.topic and not sample.of_consumer:
            if sample.topic not in rows:
                rows[sample.topic] = len(rows)
                places_in.append(namespaces.setdefault(_namespace(sample), len(namespaces)))
            found.append((rows[sample.topic], sample.column, sample.value))
    if not rows and (samples or process[0] is None):
        what = "topics (exposeTopicLevelMetricsInPrometheus=false)" if samples else "a broker"
        raise CodecError(f"the metrics hold no figures of {what}", code=Code.NO_LOAD_DATA)
    table = np.zeros((len(rows), len(_FIGURES)))
    if found:
        places = np.array([(row, column) for row, column, _ in found])
        np.add.at(table, (places[:, 0], places[:, 1]), [value for _, _, value in found])
    return CounterReading(
        from_ms=moments[0],
        to_ms=moments[1],
        namespaces=tuple(clean(text_of(name)) for name in namespaces),
        namespace=np.array(places_in, dtype=np.int64),
        hashes=np.array([zlib.crc32(topic) for topic in rows], dtype=np.int64),
        counters=np.ascontiguousarray(table[:, :4]),
        sessions=table[:, 4:].astype(np.int64),
        cpu_seconds=process[0],
        direct_memory_bytes=process[1],
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


def _namespace(sample: _Sample) -> bytes:
    """`tenant/namespace`, or `tenant/cluster/namespace` where the sample says so. In Prometheus the label may be that
    of a Kubernetes namespace."""
    _, _, name = sample.topic.partition(b"://")
    return sample.namespace if name.startswith(sample.namespace + b"/") else b"/".join(name.split(b"/", 2)[:2])


def _value(line: bytes) -> float:
    """The number behind the labels; a moment may follow it."""
    words = line[line.rfind(b"}") + 1 :].split()
    return _number(words[0]) if words else 0.0


def _number(text: str | bytes) -> float:
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if math.isfinite(value) and 0 < value <= MAX_NUMBER else 0.0


def _single(page: bytes, name: bytes) -> float | None:
    line = next(_lines(page, name), None)
    return None if line is None else _value(line)
