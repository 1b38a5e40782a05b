"""Metrics of a broker: counters of its topics, latency and errors of its clients.

Counters come from the Prometheus page of the broker (`/metrics/`, text format 0.0.4; `TopicStats.printTopicStats`) or
from a Prometheus server. The page has one series of incoming traffic per topic, and one of outgoing traffic per
subscription and, with `exposeConsumerLevelMetricsInPrometheus`, also per consumer. These do not contain the traffic of
replicators, which has its own series per topic and remote cluster. With `exposeTopicLevelMetricsInPrometheus=false`
there is only one series per namespace, under the same names.

Latency and errors come from `/admin/v2/broker-stats/metrics` (`MetricsGenerator`): a list of `{"dimensions": {..},
"metrics": {..}}`. Failed lookups come from the Prometheus page only.
"""

from __future__ import annotations

import contextlib
import re
import sys
import zlib
from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass
from hashlib import blake2b
from typing import Annotated, Any, Final

import msgspec
import numpy as np

from bundlekeel.model.codes import Code
from bundlekeel.model.counters import CounterReading
from bundlekeel.model.errors import CodecError
from bundlekeel.model.names import is_namespace
from bundlekeel.model.numbers import MAX_NUMBER, number
from bundlekeel.planning.guard.rate import ClientSigns
from bundlekeel.pulsar.formats.external_input import LARGE, clean, read, text_of

# In the order of `model.load.TRAFFIC`, then consumers and producers.
_FIGURES: Final = (
    b"pulsar_in_messages_total",
    b"pulsar_out_messages_total",
    b"pulsar_in_bytes_total",
    b"pulsar_out_bytes_total",
    b"pulsar_consumers_count",
    b"pulsar_producers_count",
)
_OUT: Final = (1, 3)
# Rates of replicators, as means of the last statistics interval: added to the columns `_OUT`, over all remote clusters.
_REPLICATED: Final = (b"pulsar_replication_rate_out", b"pulsar_replication_throughput_out")
_CONSUMERS: Final = 4
# The labels that distinguish rows, in the order of `_Table.row`.
_LABELS: Final = (b"topic", b"partition", b"namespace", b"subscription", b"consumer_id")
_NOT_OF_TARGET: Final = {"__name__", *(label.decode() for label in _LABELS)}
_COLUMNS: Final = {name: column for column, name in enumerate((*_FIGURES, *_REPLICATED))}
PROCESS_CPU: Final = "process_cpu_seconds_total"
_CPU: Final = PROCESS_CPU.encode()
_DIRECT_MEMORY: Final = b"jvm_memory_direct_bytes_used"
_LONGEST_LINE: Final = 64 * 1024
_PULSARS: Final = "pulsar_"
# The series that are read from a metrics page.
NAMES: Final = tuple(name.decode() for name in (*_COLUMNS, _CPU, _DIRECT_MEMORY))
# The series that Prometheus is queried for. Only brokers export the last one, also brokers without topics.
SCRAPED_NAMES: Final = (*NAMES, "pulsar_broker_topics_count")
# Name, labels and value of a sample; a timestamp may follow.
_SAMPLE: Final = re.compile(rb"\n(%s)(?:[ \t]*\{([^\n]*)\}[ \t]*|[ \t]+)(\S*)" % "|".join(NAMES).encode())
# A label as the text format defines it. Its name may be any word: Pulsar does not check custom ones (PIP-447).
_LABEL: Final = re.compile(rb'([^\s"=,{}]+)[ \t]*=[ \t]*"([^"\\]*(?:\\.[^"\\]*)*)"[ \t]*(?:,|\Z)')
_ALL_LABELS: Final = re.compile(rb"(?:[ \t]*%s)*[ \t]*" % _LABEL.pattern)
# The labels of most series (Pulsar's own, without escapes). This pattern takes a fifth of the time of `_LABEL`.
_USUAL: Final = rb'cluster="[^"\\]*",namespace="([^"\\]*)",topic="([^"\\]*)"(?:,subscription="([^"\\]*)")?'
_USUAL_LABELS: Final = re.compile(_USUAL)
# All escapes of the text format; Prometheus keeps the backslash of any other sequence.
_ESCAPE: Final = re.compile(rb'\\([\\"n])')
# Instead of a row: samples that are not of a topic or subscription, and samples that cannot be read.
_NO_ROW: Final = -1
_UNREADABLE: Final = -2


class PageLines:
    """Selects the samples of the metrics `names` from a page that arrives in pieces; at most the first `most` samples.

    A page has about 13 KB per topic, of which counters and sessions are 1 KB.
    """

    def __init__(self, names: Sequence[str] = NAMES, *, most: int = sys.maxsize) -> None:
        self._most = most
        # Nearly each line of a page starts with this prefix. One comparison for all names halves the time.
        ours = [name.removeprefix(_PULSARS) for name in names if name.startswith(_PULSARS)]
        others = [name for name in names if not name.startswith(_PULSARS)]
        either = "|".join([f"{_PULSARS}(?:{'|'.join(ours)})", *others])
        self._samples = re.compile(rb"\n((?:%s)[{ \t][^\n]*)" % either.encode())
        self._begun = b"\n"

    def __call__(self, piece: bytes) -> bytes:
        """Return the samples that this piece completes. A page ends with a line end; lines above 64 KiB are skipped."""
        text = self._begun + piece
        end = text.rfind(b"\n")
        self._begun = text[end:] if len(text) - end <= _LONGEST_LINE else b""
        lines = self._samples.findall(text, 0, end)[: self._most]
        self._most -= len(lines)
        return b"".join(line + b"\n" for line in lines)


def decode_counters(page: bytes, *, from_ms: int, to_ms: int) -> CounterReading:
    """Decode topics, counters and sessions of one page, read between two times (Unix ms).

    An invalid value counts as 0. A series with invalid labels or topic name is skipped. Raises CodecError if the page
    is not from a broker, has series of namespaces instead of topics, has no readable topic, or lacks a required metric.
    """
    table = _Table()
    # Samples of one topic have the same labels, or also a subscription: labels are parsed twice per topic, not six
    # times.
    rows: dict[bytes, int] = {}
    process: dict[bytes, float] = {}
    for match in _SAMPLE.finditer(b"\n" + page):
        name, labels, value = match.groups()
        column = _COLUMNS.get(name)
        if column is None:
            process.setdefault(name, _sample(value))
            continue
        row = rows.get(labels)
        if row is None:
            values = _label_values(labels or b"")
            row = rows[labels] = table.skip(labels) if values is None else table.row(*values)
        table.add(row, column, _sample(value))
    return table.reading((process.get(_CPU), process.get(_DIRECT_MEMORY)), (from_ms, to_ms))


def _label_values(labels: bytes) -> list[bytes] | None:
    """Return the values of `_LABELS`, empty for a missing label; None if `labels` is not a list of labels."""
    if usual := _USUAL_LABELS.fullmatch(labels):
        namespace, topic, subscription = usual.groups(b"")
        return [topic, b"", namespace, subscription, b""]
    if not _ALL_LABELS.fullmatch(labels):
        return None
    # Pulsar writes custom labels after its own, so the first of two equal names is Pulsar's.
    pairs = dict(reversed(_LABEL.findall(labels)))
    values = [pairs.get(name, b"") for name in _LABELS]
    return [_ESCAPE.sub(_unescape, value) for value in values] if b"\\" in labels else values


def _unescape(escape: re.Match[bytes]) -> bytes:
    return b"\n" if escape[1] == b"n" else escape[1]


class _Table:
    """Values by topic and by subscription, collected sample by sample."""

    def __init__(self) -> None:
        # By topic and subscription; empty for the topic itself.
        self._rows: dict[tuple[bytes, bytes], int] = {}
        self._namespaces: dict[bytes, int] = {}
        self._namespace: list[int] = []
        self._samples: list[tuple[int, int, float]] = []
        self._any = False
        # The first series that cannot be read, and the columns of all unreadable series.
        self._skipped = b""
        self._skipped_columns: set[int] = set()

    def row(self, topic: bytes, partition: bytes, namespace: bytes, subscription: bytes, consumer: bytes) -> int:
        """Return the row number of a topic or its subscription.

        Returns `_NO_ROW` for a sample of a namespace (`topic` is empty) or of a consumer, because the sample of its
        subscription includes it. Returns `_UNREADABLE` if the topic is not a full topic name. `partition`: with
        splitTopicAndPartitionLabelInPrometheus, the part of the name after its first `-partition-`; -1: none
        (`TopicStats.writeTopicMetric`).
        """
        self._any |= bool(topic or namespace)
        if not topic or consumer:
            return _NO_ROW
        if partition not in (b"", b"-1"):
            topic += b"-partition-" + partition
        name = _namespace(topic, namespace)
        if name not in self._namespaces:
            if not is_namespace(text_of(name)):
                return self.skip(topic)
            self._namespaces[name] = len(self._namespaces)
        for key in dict.fromkeys(((topic, b""), (topic, subscription))):
            if key not in self._rows:
                self._rows[key] = len(self._rows)
                self._namespace.append(self._namespaces[name])
        return self._rows[topic, subscription]

    def skip(self, series: bytes) -> int:
        """Record that a series cannot be read. Returns `_UNREADABLE`."""
        self._skipped = self._skipped or series
        return _UNREADABLE

    def add(self, row: int, column: int, value: float) -> None:
        """Add one sample to its row and column."""
        if row >= 0:
            self._samples.append((row, column, value))
        elif row == _UNREADABLE:
            self._skipped_columns.add(column)

    def reading(self, process: tuple[float | None, float | None], moments: tuple[int, int]) -> CounterReading:
        """Return the samples as a reading. Raises CodecError as `decode_counters` does.

        `process`: CPU seconds and bytes of direct memory of the broker. `moments`: start and end, Unix ms.
        """
        if not self._rows and self._skipped:
            text = f"the metrics hold no readable topic; first: {clean(text_of(self._skipped))[:200]!r}"
            raise CodecError(text, code=Code.NO_LOAD_DATA)
        if not self._rows and (self._any or process[0] is None):
            what = "topics (exposeTopicLevelMetricsInPrometheus=false)" if self._any else "a broker"
            raise CodecError(f"the metrics hold no figures of {what}", code=Code.NO_LOAD_DATA)
        table = np.zeros((len(self._rows), len(_COLUMNS)))
        if self._samples:
            rows, columns, values = zip(*self._samples, strict=True)
            np.add.at(table, (np.array(rows), np.array(columns)), values)
        if self._rows:
            present = {column for _, column, _ in self._samples} | self._skipped_columns
            self._check_names(present, consumers=bool(table[:, _CONSUMERS].any()))
        replicated = np.zeros((len(self._rows), 4))
        replicated[:, _OUT] = table[:, len(_FIGURES) :]
        return CounterReading(
            from_ms=moments[0],
            to_ms=moments[1],
            namespaces=tuple(name.decode() for name in self._namespaces),
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
    def _check_names(columns: set[int], *, consumers: bool) -> None:
        """Raise CodecError if metrics of topics are missing, for example because a collector drops some names.

        Outgoing traffic may be missing if there are no subscriptions, but not if there are `consumers`.
        """
        needed = [column for column in range(len(_FIGURES)) if consumers or column not in _OUT]
        if missing := [NAMES[column] for column in needed if column not in columns]:
            raise CodecError(f"the metrics of topics hold no {', '.join(missing)}", code=Code.NO_LOAD_DATA)


def _key(topic: bytes, subscription: bytes) -> int:
    return int.from_bytes(blake2b(topic + b"\n" + subscription, digest_size=8).digest(), "big")


class _Series(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[Annotated[float, msgspec.Meta(ge=0, le=MAX_NUMBER / 1000)], str]]

    @property
    def name(self) -> str:
        return self.metric.get("__name__", "")

    def label(self, name: str, process: _Series | None = None) -> str:
        """Return the value of the label that Pulsar itself set; empty: none.

        Without honor_labels Prometheus renames Pulsar's label to `exported_…` if the scrape target has a label of the
        same name. `process`: a series with only the target's labels. A label with the same value in `process` is not
        Pulsar's.
        """
        value = self.metric.get(name, "")
        if process is not None and value == process.metric.get(name):
            value = ""
        return self.metric.get(f"exported_{name}", value)


@dataclass(frozen=True, slots=True)
class _Target:
    """A scraped process: its `process_cpu_seconds_total`, its labels, and all series with these labels."""

    process: _Series
    labels: Set[tuple[str, str]]
    series: list[_Series]


class _Matrix(msgspec.Struct):
    result: list[_Series]


class _Answer(msgspec.Struct):
    data: _Matrix


def decode_scrapes(body: bytes, clusters: Collection[str] = ()) -> list[CounterReading]:
    """Decode the last three scrapes of one broker in a response of Prometheus (`/api/v1/query`), in order of time.

    All samples of a scrape have the same time, so a reading omits topics that were unloaded before that scrape.
    `clusters`: accepted values of Pulsar's own label `cluster`; empty: any. Raises CodecError as `decode_counters`
    does, and if not exactly one scrape target is a broker.
    """
    series = read(body, _Answer, what="the answer of Prometheus", limit=LARGE).data.result
    if not series:
        return []
    series = [item for item in series if not clusters or item.label("cluster") in ("", *clusters)]
    target = _only_target(series, clusters)
    columns = {name.decode(): column for name, column in _COLUMNS.items()}
    names = [label.decode() for label in _LABELS]
    samples = [
        (columns[item.name], [item.label(name, target.process).encode() for name in names], dict(item.values))
        for item in target.series
        if item.name in columns
    ]
    memory = [dict(item.values) for item in target.series if item.name == _DIRECT_MEMORY.decode()]
    readings = []
    for at, cpu in sorted(target.process.values)[-3:]:
        table = _Table()
        for column, labels, values in samples:
            if at in values:
                table.add(table.row(*labels), column, _sample(values[at]))
        direct = next((_sample(values[at]) for values in memory if at in values), None)
        readings.append(table.reading((_sample(cpu), direct), (int(1000 * at), int(1000 * at))))
    return readings


class _Values(msgspec.Struct):
    data: list[str]


def decode_label_values(body: bytes) -> list[str]:
    """Decode the values of a label in a response of Prometheus (`/api/v1/label/…/values`). Raises CodecError."""
    return read(body, _Values, what="the labels in Prometheus").data


def _only_target(series: list[_Series], clusters: Collection[str]) -> _Target:
    """Return the scrape target that exports Pulsar's series. Raises CodecError if there is not exactly one.

    Other processes in the broker's pod also export `process_cpu_seconds_total`. If the scrapes of one target ended
    before those of another started, both are the same broker, before and after a restart.
    """
    targets = [_target(item, series) for item in series if item.name == PROCESS_CPU and item.values]
    targets = [target for target in targets if any(item.name.startswith(_PULSARS) for item in target.series)]
    # A process whose labels are a part of the broker's labels would match the broker's series, too.
    targets = [item for item in targets if not any(item.labels < other.labels for other in targets)]
    if not targets:
        label = f" with cluster={' or '.join(sorted(clusters))}" if clusters else ""
        text = f"no scrape target exports {PROCESS_CPU} and Pulsar's series{label}: check prometheus.labels"
        raise CodecError(text, code=Code.NO_LOAD_DATA)
    newest = max(min(target.process.values) for target in targets)
    targets = [target for target in targets if max(target.process.values)[0] >= newest[0]]
    if len(targets) > 1:
        labels = [set(target.process.metric.items()) for target in targets]
        own = (sorted(item - labels[0].intersection(*labels)) for item in labels)
        texts = sorted(", ".join(f"{name}={value!r}" for name, value in item) for item in own)
        text = f"{len(targets)} scrape targets export Pulsar's series: add the labels of one to prometheus.labels"
        raise CodecError(f"{text} ({clean('; '.join(texts))})", code=Code.SEVERAL_TARGETS)
    return targets[0]


def _target(process: _Series, series: Sequence[_Series]) -> _Target:
    """Return the scrape target of a process, with all series that have its labels. Pulsar's own labels do not count."""
    labels = {name: value for name, value in process.metric.items() if name not in _NOT_OF_TARGET}.items()
    return _Target(process, labels, [item for item in series if labels <= item.metric.items()])


def _namespace(topic: bytes, label: bytes) -> bytes:
    """Return `tenant/namespace` of a full topic name; empty: `topic` is not a full name.

    `label`: the label `namespace`, which may also be the Kubernetes namespace. It serves only to distinguish
    `tenant/cluster/namespace` from a topic whose local name contains a slash.
    """
    _, _, name = topic.partition(b"://")
    parts = name.split(b"/", 2)
    if len(parts) < 3 or not parts[2]:
        return b""
    return label if label.count(b"/") == 2 and name.startswith(label + b"/") else b"/".join(parts[:2])


def _sample(text: str | bytes) -> float:
    # The decoder of strings is not used: a page has 100,000 samples, as bytes. `float` has no limit of digits.
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if 0 < value <= MAX_NUMBER else 0.0


# Number of messages stored since the last statistics run, by duration: lower and upper bound in ms. The last bucket has
# no upper bound.
_BUCKET: Final = re.compile(r"brk_AddEntryLatencyBuckets_([0-9.]+)_([0-9.]+|OVERFLOW)")
_OPENED: Final = "brk_connection_created_total_count"
# In Prometheus' text format, with any labels.
LOOKUP_FAILURES: Final = "pulsar_broker_lookup_failures_total"
_LOOKUPS: Final = re.compile(rb"^%s(?:\{[^\n]*\})?[ \t]+([0-9.eE+]{1,40})" % LOOKUP_FAILURES.encode(), re.MULTILINE)
_FAILED: Final = ("brk_connection_create_fail_count", "brk_topic_load_failed_count")


class _Group(msgspec.Struct):
    metrics: dict[str, Any] = {}


def decode_signs(body: bytes) -> ClientSigns:
    """Return publish latency, failures and opened connections of the broker.

    Unknown groups and metrics are ignored. Raises CodecError if the body is not a list of metrics, or has no count of
    connections.
    """
    groups = read(body, list[_Group], what="the list of metrics", limit=LARGE)
    stored, waited, opened, failed = 0.0, 0.0, None, 0.0
    for group in groups:
        for name, raw in group.metrics.items():
            value = _number(raw)
            bucket = _BUCKET.fullmatch(name)
            if bucket is not None and (middle := _middle(*bucket.groups())) is not None:
                stored += value
                waited += value * middle
            elif name == _OPENED:
                opened = (opened or 0.0) + value
            elif name in _FAILED:
                failed += value
    if opened is None:
        raise CodecError(f"the metrics hold no {_OPENED}", code=Code.NO_LOAD_DATA)
    return ClientSigns(
        latency_ms=waited / stored if stored > 0 else None, failures=int(failed), connections=int(opened)
    )


def _middle(low: str, high: str) -> float | None:
    """Return the middle of a latency bucket in ms; None: its limits are not numbers."""
    with contextlib.suppress(CodecError):
        lower = number(low, field="bucket")
        return lower if high == "OVERFLOW" else (lower + number(high, field="bucket")) / 2
    return None


def decode_lookup_failures(page: bytes) -> int | None:
    """Return the lookups that failed since the broker's start; None: the page does not contain that metric."""
    match = _LOOKUPS.search(page)
    if match is None:
        return None
    try:
        return int(number(match[1].decode(), field=LOOKUP_FAILURES))
    except CodecError:
        return None


def _number(raw: object) -> float:
    """Return a number. Values that are not numbers, negative or not finite count as 0."""
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        return 0.0
    return float(raw) if 0 < raw <= MAX_NUMBER else 0.0
