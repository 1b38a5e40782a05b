"""Counters of a broker, read from its Prometheus page."""

from __future__ import annotations

import zlib

import pytest

from bundlekeel.model.counters import CounterReading
from bundlekeel.model.errors import CodecError
from bundlekeel.pulsar.formats.broker_metrics import NAMES, PageLines, decode_counters

ONE, TWO = "persistent://t/n/one", "non-persistent://t/m/two"
CPU = 'process_cpu_seconds_total{cluster="c"} 10.16\n'


def sample(name: str, topic: str, value: object, more: str = "") -> str:
    """One line of a page."""
    namespace = "/".join(topic.partition("://")[2].split("/")[:2])
    return f'pulsar_{name}{{cluster="c",namespace="{namespace}",topic="{topic}"{more}}} {value}\n'


def topic(name: str, **figures: object) -> str:
    names = ("in_messages_total", "in_bytes_total", "consumers_count", "producers_count")
    return "".join(sample(item, name, figures.get(item, 0)) for item in names)


def read(page: str) -> CounterReading:
    return decode_counters(page.encode(), from_ms=1, to_ms=2)


def test_a_page() -> None:
    page = "# TYPE pulsar_in_messages_total gauge\n" + sample("in_messages_total", ONE, 585) + CPU
    page += sample("in_messages_total", TWO, "3.5E2") + sample("in_bytes_total", ONE, 5850)
    page += sample("in_bytes_total", TWO, 0) + sample("out_bytes_total", ONE, 9, ',subscription="a"')
    page += sample("out_messages_total", ONE, 500, ',subscription="a"')
    page += sample("out_messages_total", ONE, 400, ',subscription="b"')
    page += sample("out_messages_total", ONE, 300, ',subscription="b",consumer_name="x",consumer_id="0"')
    page += sample("consumers_count", ONE, 2) + sample("producers_count", TWO, 1)
    page += 'jvm_memory_direct_bytes_used{cluster="c"} 8388608.0'
    reading = read(page)
    assert (reading.namespaces, reading.namespace.tolist()) == (("t/n", "t/m"), [0, 1, 0, 0])
    assert reading.hashes.tolist() == [zlib.crc32(name.encode()) for name in (ONE, TWO, ONE, ONE)]
    assert reading.topic.tolist() == [True, True, False, False]
    assert reading.counters.tolist() == [[585, 0, 5850, 0], [350, 0, 0, 0], [0, 500, 0, 9], [0, 400, 0, 0]]
    assert reading.sessions.tolist() == [[2, 0], [0, 1], [0, 0], [0, 0]]
    assert len(set(reading.keys.tolist())) == 4
    assert (reading.cpu_seconds, reading.direct_memory_bytes) == (10.16, 8388608.0)
    assert (reading.from_ms, reading.to_ms) == (1, 2)


def replicator(name: str, cluster: str, messages: object, nbytes: object) -> str:
    """Return the lines of a topic's replicator to another cluster."""
    label = f',remote_cluster="{cluster}"'
    page = sample("replication_rate_out", name, messages, label) + sample("replication_backlog", name, 9e9, label)
    return page + sample("replication_throughput_out", name, nbytes, label)


def test_n_d_the_rates_of_replicators_are_read() -> None:
    """Rates to two clusters add up. A partition in a separate label is part of the topic's name."""
    page = CPU + topic(ONE) + topic(TWO) + replicator(ONE, "east", 5.0, 500.0) + replicator(ONE, "west", "NaN", 70.0)
    split = f'topic="{ONE}",partition="3"'
    page += (topic(ONE) + replicator(ONE, "east", 1.0, 20.0)).replace(f'topic="{ONE}"', split)
    keep = PageLines()
    reading = decode_counters(keep(page.encode()), from_ms=1, to_ms=2)
    assert reading.replicated is not None
    assert reading.replicated.tolist() == [[0, 5, 0, 570], [0, 0, 0, 0], [0, 1, 0, 20]]
    assert not reading.counters.any()


def test_n_d_replicators_of_namespaces_are_no_topics() -> None:
    """With exposeTopicLevelMetricsInPrometheus=false the series have the same names, and no topic."""
    with pytest.raises(CodecError, match="exposeTopicLevelMetricsInPrometheus"):
        read(CPU + replicator(ONE, "east", 5.0, 500.0).replace(f',topic="{ONE}"', ""))


def test_samples_of_one_name_in_several_places() -> None:
    """Nothing promises that the samples of one name follow each other."""
    page = topic(ONE, in_bytes_total=1) + CPU + topic(TWO, in_bytes_total=2) + "pulsar_in_bytes_total_x 5\n"
    assert read(page).counters[:, 2].tolist() == [1.0, 2.0]


def test_a_moment_may_follow() -> None:
    """The text format allows a timestamp behind the value."""
    assert read(topic(ONE, in_bytes_total="7 1795462453814")).counters[0, 2] == 7.0


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-5", "many", "", "1e999"])
def test_odd_values_count_as_nothing(value: str) -> None:
    """One figure that is none does not spoil the others."""
    page = topic(ONE, in_bytes_total=value, in_messages_total=3)
    assert read(page).counters.tolist() == [[3.0, 0.0, 0.0, 0.0]]


def test_an_empty_broker() -> None:
    """A broker without topics carries nothing, which is a figure too."""
    reading = read(CPU)
    assert (reading.namespaces, len(reading.hashes), reading.cpu_seconds) == ((), 0, 10.16)
    assert reading.counters.shape == (0, 4)


def test_namespaces_of_three_parts() -> None:
    page = topic("persistent://t/c/n/x").replace('namespace="t/c"', 'namespace="t/c/n"')
    assert read(page).namespaces == ("t/c/n",)
    for other in ("kubernetes", "t", "t/c/n/x", ""):
        assert read(page.replace('="t/c/n"', f'="{other}"')).namespaces == ("t/c",)


def test_partitions_in_a_label_of_their_own() -> None:
    """splitTopicAndPartitionLabelInPrometheus: the partition is part of the topic's name all the same."""
    page = topic(ONE).replace(f'topic="{ONE}"', f'topic="{ONE}",partition="3"')
    page += topic(ONE).replace(f'topic="{ONE}"', f'topic="{ONE}",partition="-1"')
    assert read(page).hashes.tolist() == [zlib.crc32(name.encode()) for name in (f"{ONE}-partition-3", ONE)]


def test_topics_of_one_hash() -> None:
    first, second = "persistent://t/n/topic-29685295", "persistent://t/n/topic-32060020"
    reading = read(topic(first, in_bytes_total=1) + topic(second, in_bytes_total=2))
    assert reading.hashes[0] == reading.hashes[1]
    assert (len(set(reading.keys.tolist())), reading.counters[:, 2].tolist()) == (2, [1.0, 2.0])


@pytest.mark.parametrize(
    "dropped",
    ["in_messages_total", "in_bytes_total", "consumers_count", "producers_count", "out_messages_total", "out_bytes"],
)
def test_figures_that_whoever_collects_them_drops(dropped: str) -> None:
    page = topic(ONE, consumers_count=1) + sample("out_messages_total", ONE, 5, ',subscription="a"')
    page += sample("out_bytes_total", ONE, 50, ',subscription="a"') + CPU
    assert len(read(page).keys) == 2
    with pytest.raises(CodecError, match=f"hold no pulsar_{dropped}"):
        read("".join(line for line in page.splitlines(keepends=True) if not line.startswith(f"pulsar_{dropped}")))


def test_sessions_without_a_namespace() -> None:
    assert len(read(CPU + 'pulsar_producers_count{cluster="c"} 0\npulsar_consumers_count{cluster="c"} 0\n').keys) == 0


def test_namespaces_only() -> None:
    """Without topics in its metrics a broker does not tell where its load is."""
    page = CPU + 'pulsar_in_messages_total{cluster="c",namespace="t/n"} 5\n'
    with pytest.raises(CodecError, match="exposeTopicLevelMetricsInPrometheus"):
        read(page)


@pytest.mark.parametrize("page", ["", "<html>", "up 1\n"])
def test_what_is_no_page_of_a_broker(page: str) -> None:
    with pytest.raises(CodecError, match="no figures of a broker"):
        read(page)


@pytest.mark.parametrize("size", [1, 7, 64, 100_000])
def test_a_page_in_pieces(size: int) -> None:
    page = (
        "# TYPE pulsar_in_messages_total gauge\n"
        + sample("in_messages_total", ONE, 585)
        + sample("rate_in", ONE, 1)
        + sample("my_pulsar_in_messages_total", ONE, 1)
        + "x" * 70_000
        + "\n"
        + sample("out_bytes_total", TWO, 12, ',subscription="s"')
        + CPU
    ).encode()
    keep = PageLines()
    remaining = b"".join(keep(page[at : at + size]) for at in range(0, len(page), size))
    assert (
        remaining.decode()
        == sample("in_messages_total", ONE, 585) + sample("out_bytes_total", TWO, 12, ',subscription="s"') + CPU
    )


def escaped(text: str) -> str:
    """A label value as the text format writes it."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@pytest.mark.parametrize(
    "local",
    [
        *(
            '"eu"',
            "a\\b",
            "a\\nb",
            "a\nb",
            "ends\\",
            'ends"',
            "café {1},2",
            '",topic="persistent://t/n/x',
            '\\"',
            "} 5",
        ),
        *("a=b", "# x"),
    ],
)
def test_n_b_escaped_label_values(local: str) -> None:
    """A topic is in the bundle of its own name, and a subscription is one of its rows."""
    name = f"persistent://t/n/{local}"
    page = topic(escaped(name), in_bytes_total=7) + topic(ONE, in_bytes_total=1) + CPU
    page += sample("out_bytes_total", ONE, 5, f',subscription="{escaped(local)}"')
    page += sample("out_messages_total", ONE, 5, f',subscription="{escaped(local)}"')
    reading = read(PageLines()(page.encode()).decode())
    assert reading.hashes.tolist() == [zlib.crc32(item.encode()) for item in (name, ONE, ONE)]
    assert reading.counters[:, 2:].tolist() == [[7, 0], [1, 0], [0, 5]]
    assert reading.namespaces == ("t/n",)


def test_n_b_escapes_that_the_format_does_not_have() -> None:
    """Prometheus keeps both characters; Pulsar 4.2 writes backslashes as they are."""
    assert read(topic("persistent://t/n/a\\b")).hashes.tolist() == [zlib.crc32(b"persistent://t/n/a\\b")]


@pytest.mark.parametrize(
    "labels",
    [
        'cluster="c",namespace="t/n",topic="{}",owner="me, \\"topic=\\"x\\"} 5",tier="gold"',
        'owner="topic=\\"persistent://t/n/x\\",",cluster="c",namespace="t/n",topic="{}"',
        'cluster="c", namespace="t/n" , topic = "{}",',
        'cluster="c",my_topic="x",topic="{}",topic="persistent://t/n/x",cost-center="1"',
    ],
)
def test_n_b_custom_labels(labels: str) -> None:
    """Custom labels (PIP-447), whitespace and a last comma change nothing. The first of two equal names counts."""
    page = "".join(f"{name}{{{labels.replace('{}', ONE)}}} 3\n" for name in NAMES[:6])
    reading = read(PageLines()(page.encode()).decode())
    assert reading.hashes.tolist() == [zlib.crc32(ONE.encode())]
    assert (reading.counters.tolist(), reading.sessions.tolist()) == ([[3, 3, 3, 3]], [[3, 3]])


@pytest.mark.parametrize(
    "labels",
    [
        'topic="persistent://t/n/"eu""',
        'topic="persistent://t/n/x",owner="a\\"',
        'topic="persistent://t/n/x" owner="a"',
        'topic="persistent://t/n/x",owner',
        "topic=persistent://t/n/x",
        'topic="t"',
        'topic="persistent://t/../x"',
        'topic="persistent://t/n/"',
    ],
)
def test_n_b_an_unreadable_series(labels: str) -> None:
    """Only this series is skipped. A page without any other is not that of an idle broker."""
    bad = "".join(f"{name}{{{labels}}} 3\n" for name in NAMES[:6])
    reading = read(bad + topic(ONE, in_messages_total=2, consumers_count=1) + CPU)
    assert (reading.namespaces, reading.counters.tolist()) == (("t/n",), [[2, 0, 0, 0]])
    with pytest.raises(CodecError, match="readable"):
        read(bad + CPU)


def test_n_b_the_namespace_label_is_not_needed() -> None:
    """The label may be a tenant, another namespace, or empty."""
    for other in ("t", "kubernetes", "t/other", ""):
        page = topic(ONE).replace('namespace="t/n"', f'namespace="{other}"')
        assert read(page).namespaces == ("t/n",)


def test_n_b_a_sample_without_labels() -> None:
    """The format does not demand any."""
    page = "process_cpu_seconds_total 10.5\njvm_memory_direct_bytes_used\t7 1795462453814\n"
    reading = read(PageLines()(page.encode()).decode())
    assert (reading.cpu_seconds, reading.direct_memory_bytes) == (10.5, 7.0)


def test_n_b_partitions_are_split_at_the_first_mark() -> None:
    """Rule: `TopicStats.writeTopicMetric`; what follows need not be a number."""
    name = "persistent://t/n/a-partition-x-partition-3"
    page = topic(name).replace(f'topic="{name}"', 'topic="persistent://t/n/a",partition="x-partition-3"')
    assert read(page).hashes.tolist() == [zlib.crc32(name.encode())]
