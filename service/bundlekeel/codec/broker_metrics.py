"""Metrics of a broker: counters of its topics, latency and errors of its clients, the CPU load of its JVM.

Counters come from the Prometheus page of the broker (`/metrics/`, text format 0.0.4; `TopicStats.printTopicStats`) or
from Prometheus: what comes in once a topic, what goes out once a subscription and, with
`exposeConsumerLevelMetricsInPrometheus`, once more a consumer. Neither contains what replicators send:
brokers report those rates per topic and remote cluster. With `exposeTopicLevelMetricsInPrometheus=false` the
same names are there once a namespace. Latency and errors come from `/admin/v2/broker-stats/metrics`
(`MetricsGenerator`): a list of `{"dimensions": {..}, "metrics": {..}}`; failed lookups from the Prometheus page only.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final

import msgspec
import numpy as np

from bundlekeel.codec.external_input import LARGE, MAX_NUMBER, clean, read, text_of
from bundlekeel.core.guard.rate import ClientSigns
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
_OUT: Final = (1, 3)
# Means of the broker's last statistics interval, of the columns `_OUT`. Their label `remote_cluster` is not read.
_REPLICATED: Final = (b"pulsar_replication_rate_out", b"pulsar_replication_throughput_out")
_CONSUMERS: Final = 4
# What tells rows apart, in the order of `_Table.row`.
_LABELS: Final = (b"topic", b"partition", b"namespace", b"subscription", b"consumer_id")
_COLUMNS: Final = {name: column for column, name in enumerate((*_FIGURES, *_REPLICATED))}
_CPU: Final = b"process_cpu_seconds_total"
_DIRECT_MEMORY: Final = b"jvm_memory_direct_bytes_used"
_LONGEST_LINE: Final = 64 * 1024
_PULSARS: Final = "pulsar_"
# What is asked of Prometheus, and kept of a page.
NAMES: Final = tuple(name.decode() for name in (*_COLUMNS, _CPU, _DIRECT_MEMORY))
# Name, labels, and the number behind them; a moment may follow it.
_SAMPLE: Final = re.compile(rb"\n(%s)(\{[^\n]*)\}[ \t]*(\S*)" % "|".join(NAMES).encode())
# A value as it is written: quotation marks in it have a backslash.
_LABEL: Final = re.compile(rb'[{,](%s)="([^"]*)"' % b"|".join(_LABELS))


class PageLines:
    """Keeps the samples of some names of a page that arrives in pieces: of about 13 KB a topic, counters and sessions
    are 1 KB."""

    def __init__(self, names: Sequence[str] = NAMES) -> None:
        # Nearly each line of a page begins with it: it is compared once, not once a name, which halves the time.
        ours = [name.removeprefix(_PULSARS) for name in names if name.startswith(_PULSARS)]
        others = [name for name in names if not name.startswith(_PULSARS)]
        either = "|".join([f"{_PULSARS}(?:{'|'.join(ours)})", *others])
        self._samples = re.compile(rb"\n((?:%s)[{ ][^\n]*)" % either.encode())
        self._begun = b"\n"

    def __call__(self, piece: bytes) -> bytes:
        """The samples that this piece completes. A page ends with an end of line; a line above 64 KiB is left out."""
        text = self._begun + piece
        end = text.rfind(b"\n")
        self._begun = text[end:] if len(text) - end <= _LONGEST_LINE else b""
        return b"".join(line + b"\n" for line in self._samples.findall(text, 0, end))


def decode_counters(page: bytes, *, from_ms: int, to_ms: int) -> CounterReading:
    """Topics, counters and sessions of one page, read between two moments. A figure that is none counts as nothing.
    CodecError when the page tells of namespaces only, of topics without all of these figures, or of neither."""
    table = _Table()
    # Samples of one topic have the same labels, or with a subscription more: they are taken apart twice, not six times.
    rows: dict[bytes, int] = {}
    process: dict[bytes, float] = {}
    for found in _SAMPLE.finditer(b"\n" + page):
        name, labels, value = found.groups()
        column = _COLUMNS.get(name)
        if column is None:
            process.setdefault(name, _sample(value))
            continue
        row = rows.get(labels)
        if row is None:
            # Of a label that is there twice the first one counts.
            told = dict(reversed(_LABEL.findall(labels)))
            row = rows[labels] = table.row(*(told.get(label, b"") for label in _LABELS))
        table.add(row, column, _sample(value))
    return table.reading((process.get(_CPU), process.get(_DIRECT_MEMORY)), (from_ms, to_ms))


class _Table:
    """Figures by topic and by subscription, as they are found."""

    def __init__(self) -> None:
        # By topic and subscription; the topic itself has none.
        self._rows: dict[tuple[bytes, bytes], int] = {}
        self._namespaces: dict[bytes, int] = {}
        self._namespace: list[int] = []
        self._found: list[tuple[int, int, float]] = []
        self._any = False

    def row(self, topic: bytes, partition: bytes, namespace: bytes, subscription: bytes, consumer: bytes) -> int:
        """The row of a topic or its subscription; -1 for what counts a namespace (then `topic` is empty), or once more
        what a subscription counts. `partition`: told beside the topic's name where
        splitTopicAndPartitionLabelInPrometheus is set, -1 for none. Brokers before 2.11 without topics count 0 sessions
        of no namespace."""
        self._any |= bool(topic or namespace)
        if not topic or consumer:
            return -1
        if partition.isdigit():
            topic += b"-partition-" + partition
        for key in dict.fromkeys(((topic, b""), (topic, subscription))):
            if key not in self._rows:
                self._rows[key] = len(self._rows)
                name = _namespace(topic, namespace)
                self._namespace.append(self._namespaces.setdefault(name, len(self._namespaces)))
        return self._rows[topic, subscription]

    def add(self, row: int, column: int, value: float) -> None:
        """One sample."""
        if row >= 0:
            self._found.append((row, column, value))

    def reading(self, process: tuple[float | None, float | None], moments: tuple[int, int]) -> CounterReading:
        """What was found; CodecError as of `decode_counters`. `process`: CPU seconds, bytes of direct memory."""
        if not self._rows and (self._any or process[0] is None):
            what = "topics (exposeTopicLevelMetricsInPrometheus=false)" if self._any else "a broker"
            raise CodecError(f"the metrics hold no figures of {what}", code=Code.NO_LOAD_DATA)
        table = np.zeros((len(self._rows), len(_COLUMNS)))
        if self._found:
            rows, columns, values = zip(*self._found, strict=True)
            np.add.at(table, (np.array(rows), np.array(columns)), values)
        if self._rows:
            self._check_names({column for _, column, _ in self._found}, consumers=bool(table[:, _CONSUMERS].any()))
        replicated = np.zeros((len(self._rows), 4))
        replicated[:, _OUT] = table[:, len(_FIGURES) :]
        return CounterReading(
            from_ms=moments[0],
            to_ms=moments[1],
            namespaces=tuple(clean(text_of(name)) for name in self._namespaces),
            namespace=np.array(self._namespace, dtype=np.int64),
            keys=np.array([_key(topic, subscription) for topic, subscription in self._rows], dtype=np.uint64),
            topic=np.array([not subscription for _, subscription in self._rows], dtype=np.bool_),
            hashes=np.array([zlib.crc32(topic) for topic, _ in self._rows], dtype=np.int64),
            counters=np.ascontiguousarray(table[:, :4]),
            sessions=table[:, 4 : len(_FIGURES)].astype(np.int64),
            replicated=replicated,
            cpu_seconds=process[0],
            direct_memory_bytes=process[1],
        )

    @staticmethod
    def _check_names(found: set[int], *, consumers: bool) -> None:
        """A broker tells all of a topic; who collects its figures may drop some names. Without any subscription nothing
        goes out, but where there are consumers there are subscriptions."""
        needed = [column for column in range(len(_FIGURES)) if consumers or column not in _OUT]
        if missing := [NAMES[column] for column in needed if column not in found]:
            raise CodecError(f"the metrics of topics hold no {', '.join(missing)}", code=Code.NO_LOAD_DATA)


def _key(topic: bytes, subscription: bytes) -> int:
    return int.from_bytes(blake2b(topic + b"\n" + subscription, digest_size=8).digest(), "big")


class _Series(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, str]]


class _Matrix(msgspec.Struct):
    result: list[_Series]


class _Answer(msgspec.Struct):
    data: _Matrix


def decode_scrapes(body: bytes) -> list[CounterReading]:
    """The last three scrapes of one broker in an answer of Prometheus (`/api/v1/query` of a range vector), older first.

    All samples of a scrape have its moment, so what the broker no longer told by then is not in it. CodecError as
    above, or when the answer is none."""
    series = read(body, _Answer, what="the answer of Prometheus", limit=LARGE).data.result
    moments = sorted({at for item in series if item.metric.get("__name__") == _CPU.decode() for at, _ in item.values})
    columns = {name.decode(): column for name, column in _COLUMNS.items()}
    readings = []
    for moment in moments[-3:]:
        table = _Table()
        single: dict[str, float] = {}
        for item in series:
            name = item.metric.get("__name__", "")
            value = next((_sample(text) for at, text in item.values if at == moment), None)
            if value is None:
                continue
            if name in columns:
                labels = (item.metric.get(label.decode(), "").encode() for label in _LABELS)
                table.add(table.row(*labels), columns[name], value)
            else:
                single[name] = value
        process = single.get(_CPU.decode()), single.get(_DIRECT_MEMORY.decode())
        readings.append(table.reading(process, (int(1000 * moment), int(1000 * moment))))
    return readings


def _namespace(topic: bytes, told: bytes) -> bytes:
    """`tenant/namespace`, or `tenant/cluster/namespace` where the sample says so. In Prometheus the label may be that
    of a Kubernetes namespace."""
    _, _, name = topic.partition(b"://")
    return told if name.startswith(told + b"/") else b"/".join(name.split(b"/", 2)[:2])


def _sample(text: str | bytes) -> float:
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if math.isfinite(value) and 0 < value <= MAX_NUMBER else 0.0


# Messages stored since the last statistics run, by how long that took: lower and upper bound in ms, the last one
# without an upper bound. The broker's `brk_ml_` ones say the same of the last minute.
_BUCKET: Final = re.compile(r"brk_AddEntryLatencyBuckets_([0-9.]+)_([0-9.]+|OVERFLOW)")
_OPENED: Final = "brk_connection_created_total_count"
# In Prometheus' text format, with whatever labels.
LOOKUP_FAILURES: Final = "pulsar_broker_lookup_failures_total"
_LOOKUPS: Final = re.compile(rb"^%s(?:\{[^\n]*\})?[ \t]+([0-9.eE+]{1,40})" % LOOKUP_FAILURES.encode(), re.MULTILINE)
_FAILED: Final = ("brk_connection_create_fail_count", "brk_topic_load_failed_count")


class _Group(msgspec.Struct):
    metrics: dict[str, Any] = {}


def decode_signs(body: bytes) -> ClientSigns:
    """Publish latency, failures and opened connections of the asked broker.

    Unknown groups and figures are passed over. CodecError when it is no such list, or tells of no connections.
    """
    groups = read(body, list[_Group], what="the list of metrics", limit=LARGE)
    stored, waited, opened, failed = 0.0, 0.0, None, 0.0
    for group in groups:
        for name, raw in group.metrics.items():
            value = _number(raw)
            bucket = _BUCKET.fullmatch(name)
            if bucket is not None:
                low, high = float(bucket[1]), bucket[2]
                stored += value
                waited += value * (low if high == "OVERFLOW" else (low + float(high)) / 2)
            elif name == _OPENED:
                opened = (opened or 0.0) + value
            elif name in _FAILED:
                failed += value
    if opened is None:
        raise CodecError(f"the metrics hold no {_OPENED}", code=Code.NO_LOAD_DATA)
    return ClientSigns(
        latency_ms=waited / stored if stored > 0 else None, failures=int(failed), connections=int(opened)
    )


def decode_lookup_failures(page: bytes) -> int | None:
    """Lookups that failed since the broker's start, None when the page does not tell."""
    found = _LOOKUPS.search(page)
    if found is None:
        return None
    try:
        value = float(found[1])
    except ValueError:
        return None
    return int(value) if math.isfinite(value) else None


def _number(raw: object) -> float:
    """A figure; what is none, negative or not finite counts as nothing."""
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        return 0.0
    return float(raw) if 0 < raw <= MAX_NUMBER else 0.0


# What a broker's JVM says of its CPU (`/admin/v2/broker-stats/mbeans`), for brokers whose own score was not received.


_BEAN: Final = "java.lang:type=OperatingSystem"
_LOADS: Final = ("CpuLoad", "ProcessCpuLoad")


class _Dimensions(msgspec.Struct):
    bean: str = msgspec.field(name="MBean", default="")


class _Bean(msgspec.Struct):
    dimensions: _Dimensions = msgspec.field(default_factory=_Dimensions)
    metrics: dict[str, Any] = {}


def decode_cpu_load(body: bytes) -> float:
    """Used share of the CPU that the JVM may use, 0..1: that of its container, or of its host where it has none.

    CodecError when the answer does not tell: no such bean, or no load between 0 and 1 (a JVM says -1 or NaN while it
    does not know). The larger one of `CpuLoad` and `ProcessCpuLoad` counts, since each is 0 when asked twice at once.
    """
    beans = read(body, list[_Bean], what="the list of beans")
    told = [bean.metrics.get(name) for bean in beans if bean.dimensions.bean == _BEAN for name in _LOADS]
    loads = [float(load) for load in told if isinstance(load, int | float) and 0.0 <= load <= 1.0]
    if not loads:
        raise CodecError(f"{_BEAN} reports no CPU load", code=Code.NO_LOAD_DATA)
    return max(loads)
