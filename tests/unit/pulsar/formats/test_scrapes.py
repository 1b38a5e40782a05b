"""Readings of one broker in an answer of Prometheus: which series are its own, and which labels are Pulsar's."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from bundlekeel.model.counters import CounterReading
from bundlekeel.model.errors import CodecError
from bundlekeel.pulsar.formats.broker_metrics import decode_scrapes

TOPIC = "persistent://public/default/orders"
TARGET = {"job": "pulsar", "instance": "10.0.0.5:8080", "container": "broker", "pod": "broker-0", "cluster": "c"}
TIMES = (0, 15, 30, 45)


def series(name: str, values: Sequence[float], *, at: Sequence[float] = TIMES, **labels: str) -> dict[str, Any]:
    """One series of a range vector."""
    samples = [[moment, str(value)] for moment, value in zip(at, values, strict=True)]
    return {"metric": {"__name__": name, **labels}, "values": samples}


def process(target: Mapping[str, str], *, step: float = 1.5, at: Sequence[float] = TIMES) -> dict[str, Any]:
    """CPU seconds of one process."""
    return series("process_cpu_seconds_total", [step * number for number in range(len(at))], at=at, **target)


def topic(target: Mapping[str, str], *, rate: float = 1000.0, at: Sequence[float] = TIMES, **labels: str) -> list[Any]:
    """Series of one target for a topic without subscriptions."""
    own = {"topic": TOPIC, "namespace": "public/default", **target, **labels}
    counts = [rate * (moment - at[0]) for moment in at]
    names = ("in_messages_total", "in_bytes_total", "consumers_count", "producers_count")
    return [series(f"pulsar_{name}", counts if "total" in name else [0] * len(at), at=at, **own) for name in names]


def idle(target: Mapping[str, str]) -> dict[str, Any]:
    """A series that a broker exports without topics, too."""
    return series("pulsar_broker_topics_count", [0] * len(TIMES), **target)


def read(*answer: Any, clusters: Sequence[str] = ()) -> list[CounterReading]:
    """The readings in an answer with these series."""
    return decode_scrapes(json.dumps({"data": {"result": list(answer)}}).encode(), clusters)


def rates(readings: Sequence[CounterReading]) -> list[float]:
    """Messages per second between each two readings."""
    totals = [float(item.counters[:, 0].sum()) for item in readings]
    pairs = zip(readings, readings[1:], totals, totals[1:], strict=False)
    return [1000 * (after - before) / (new.to_ms - old.to_ms) for old, new, before, after in pairs]


OTHERS = {
    "another job": {**TARGET, "job": "node"},
    "another port": {**TARGET, "instance": "10.0.0.5:15090"},
    "another container": {**TARGET, "container": "sidecar"},
    "a port label": {**TARGET, "port": "metrics"},
    "without Pulsar's cluster": {name: value for name, value in TARGET.items() if name != "cluster"},
    "another process of the job": {**TARGET, "process": "agent"},
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("first", [True, False])
def test_n_a_another_process_of_the_pod_is_not_the_broker(other: dict[str, str], first: bool) -> None:
    """Samples of the sidecar have other times and values: neither makes a reading."""
    at = [moment + 0.016 for moment in TIMES]
    stranger, own = process(other, step=900.0, at=at), [process(TARGET), *topic(TARGET)]
    readings = read(*([stranger, *own] if first else [*own, stranger]))
    assert rates(readings) == [1000.0, 1000.0]
    assert [item.cpu_seconds for item in readings] == [1.5, 3.0, 4.5]


def test_n_a_honored_labels_of_a_topic_do_not_hide_its_target() -> None:
    """With honor_labels the process has the namespace of its pod, and a topic its own."""
    readings = read(process({**TARGET, "namespace": "pulsar-eu"}), *topic(TARGET))
    assert rates(readings) == [1000.0, 1000.0]


def test_n_a_a_process_without_pulsars_series_is_not_an_idle_broker() -> None:
    """A pod whose broker is not scraped still has other processes."""
    with pytest.raises(CodecError, match=r"no scrape target exports .* and Pulsar's series") as caught:
        read(process({**TARGET, "container": "sidecar"}))
    assert caught.value.code == "NoLoadData"
    assert read() == []


def test_n_a_an_idle_broker_is_one() -> None:
    """A broker exports its number of topics; releases before 2.11 count sessions of no namespace."""
    other = process({**TARGET, "container": "sidecar"}, step=9.0)
    for own in (idle(TARGET), series("pulsar_consumers_count", [0] * len(TIMES), **TARGET)):
        readings = read(other, process(TARGET), own)
        assert [(len(item.keys), item.cpu_seconds) for item in readings] == [(0, 1.5), (0, 3.0), (0, 4.5)]


def test_n_a_several_targets_are_not_added_up() -> None:
    """Two jobs scrape the same broker, or two brokers have the same label: the load report is used, with a code."""
    other = {**TARGET, "job": "federation"}
    with pytest.raises(CodecError, match=r"prometheus\.labels \(job='federation'; job='pulsar'\)") as caught:
        read(process(TARGET), process(other), *topic(TARGET), *topic(other))
    assert caught.value.code == "SeveralTargets"


def test_n_a_targets_that_only_a_topics_label_tells_apart() -> None:
    """Pods of one name in two namespaces of Kubernetes, with the same other labels."""
    pair = [{**TARGET, "namespace": name} for name in ("eu", "us")]
    exported = [
        part for target in pair for part in (process(target), *topic(target, exported_namespace="public/default"))
    ]
    with pytest.raises(CodecError) as caught:
        read(*exported)
    assert caught.value.code == "SeveralTargets"


def test_n_a_a_pod_that_restarted_is_not_two_targets() -> None:
    """The address changes, and the scrapes of the process before end where those of the new one start."""
    before, after = {**TARGET, "instance": "10.0.0.4:8080"}, TARGET
    late = (30, 45)
    exported = [
        process(before, at=(0, 15)),
        *topic(before, at=(0, 15)),
        process(after, at=late),
        *topic(after, at=late),
    ]
    assert [item.to_ms for item in read(*exported)] == [30_000, 45_000]


@pytest.mark.parametrize("label", ["cluster", "exported_cluster"])
def test_n_a_two_pulsar_clusters_of_one_instance(label: str) -> None:
    """Only the series of the cluster that is balanced count, whichever is exported first."""
    place = {"job": "pulsar", "instance": "broker-0"} | ({"cluster": "k8s"} if label != "cluster" else {})
    ours, theirs = {**place, label: "c"}, {**place, label: "d"}
    exported = [process(theirs, step=9.0), *topic(theirs, rate=12_850.0), process(ours), *topic(ours, rate=100.0)]
    assert rates(read(*exported, clusters=["c"])) == [100.0, 100.0]
    with pytest.raises(CodecError, match="Pulsar's series with cluster=e"):
        read(*exported, clusters=["e"])
    with pytest.raises(CodecError) as caught:
        read(*exported)
    assert caught.value.code == "SeveralTargets"


@pytest.mark.parametrize("prefix", ["", "exported_"])
def test_n_b_labels_of_the_target_that_are_named_as_pulsars(prefix: str) -> None:
    """Without honor_labels Prometheus renames Pulsar's to `exported_…`; with it they replace those of the target."""
    target = TARGET | dict.fromkeys(("namespace", "topic", "subscription", "consumer_id"), "x") | {"partition": "2"}
    own = {f"{prefix}namespace": "public/default", f"{prefix}topic": TOPIC}
    of_subscription = target | own | {f"{prefix}subscription": "s"}
    outs = [series(f"pulsar_out_{unit}_total", TIMES, **of_subscription) for unit in ("messages", "bytes")]
    readings = read(process(target), *topic({}, **(target | own)), *outs)
    assert readings[-1].namespaces == ("public/default",)
    assert set(readings[-1].hashes.tolist()) == {zlib.crc32(TOPIC.encode())}
    assert readings[-1].topic.tolist() == [True, False]
    assert readings[-1].counters[:, :2].tolist() == [[45_000.0, 0.0], [0.0, 45.0]]


@pytest.mark.parametrize("label", ["namespace", "exported_namespace"])
def test_n_b_namespaces_of_three_parts(label: str) -> None:
    """Pulsar's own label decides whether a name's third part belongs to the namespace."""
    target = {**TARGET, "namespace": "t"}
    labels = {"topic": "persistent://t/c/n/x", label: "t/c/n"}
    assert read(process(target), *topic(target, **labels))[0].namespaces == ("t/c/n",)


@pytest.mark.parametrize("at", [1e300, -1.0])
def test_n_b_a_time_that_is_not_unix_time(at: float) -> None:
    """A proxy between Prometheus and the sidecar can change the response: it is an error of the usual type."""
    with pytest.raises(CodecError):
        read(process(TARGET, at=[at]), idle(TARGET))


def test_n_b_the_namespace_of_kubernetes_is_a_tenant() -> None:
    """The topic's name has the namespace."""
    readings = read(process(TARGET), *topic(TARGET, namespace="public"))
    assert [item.namespaces for item in readings] == [("public/default",)] * 3


@pytest.mark.parametrize("bad", ["orders", "persistent://", "persistent://public/orders", "persistent://../x/y"])
def test_n_b_one_unreadable_series_leaves_the_others(bad: str) -> None:
    """Only the topic of this series is skipped."""
    readings = read(process(TARGET), *topic(TARGET, topic=bad), *topic(TARGET))
    assert rates(readings) == [1000.0, 1000.0]
    assert readings[0].namespaces == ("public/default",)


def test_s03_samples_out_of_order_are_read_in_order_of_time() -> None:
    """Prometheus sorts them; what answers in its place may not, and the newest one was taken for the first."""
    answer = [*topic(TARGET), idle(TARGET), process(TARGET)]
    for item in answer:
        item["values"].reverse()
    assert [reading.from_ms for reading in read(*answer)] == [15_000, 30_000, 45_000]
