"""Metrics of a broker: counters out of its Prometheus page, and the CPU load out of its list of beans."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bundlekeel.codec.broker_metrics import PageLines, decode_counters, decode_cpu_load
from bundlekeel.core.model.counters import CounterReading
from bundlekeel.core.model.errors import CodecError

ONE, TWO = "persistent://t/n/one", "non-persistent://t/m/two"
CPU = 'process_cpu_seconds_total{cluster="c"} 10.16\n'


def sample(name: str, topic: str, value: object, more: str = "") -> str:
    """One line of a page."""
    namespace = "/".join(topic.partition("://")[2].split("/")[:2])
    return f'pulsar_{name}{{cluster="c",namespace="{namespace}",topic="{topic}"{more}}} {value}\n'


def read(page: str) -> CounterReading:
    """What a page says, read between 1 and 2 ms."""
    return decode_counters(page.encode(), from_ms=1, to_ms=2)


def test_a_page() -> None:
    """What comes in is told once a topic; what goes out is the sum of its subscriptions, without their consumers."""
    page = "# TYPE pulsar_in_messages_total gauge\n" + sample("in_messages_total", ONE, 585) + CPU
    page += sample("in_messages_total", TWO, "3.5E2") + sample("in_bytes_total", ONE, 5850)
    page += sample("out_messages_total", ONE, 500, ',subscription="a"')
    page += sample("out_messages_total", ONE, 400, ',subscription="b"')
    page += sample("out_messages_total", ONE, 300, ',subscription="b",consumer_name="x",consumer_id="0"')
    page += sample("consumers_count", ONE, 2) + sample("producers_count", TWO, 1)
    page += 'jvm_memory_direct_bytes_used{cluster="c"} 8388608.0'
    found = read(page)
    assert (found.namespaces, found.namespace.tolist()) == (("t/n", "t/m"), [0, 1])
    assert found.hashes.tolist() == [zlib.crc32(ONE.encode()), zlib.crc32(TWO.encode())]
    assert found.counters.tolist() == [[585.0, 900.0, 5850.0, 0.0], [350.0, 0.0, 0.0, 0.0]]
    assert found.sessions.tolist() == [[2, 0], [0, 1]]
    assert (found.cpu_seconds, found.direct_memory_bytes) == (10.16, 8388608.0)
    assert (found.from_ms, found.to_ms) == (1, 2)


def test_samples_of_one_name_in_several_places() -> None:
    """Nothing promises that the samples of one name follow each other."""
    page = sample("in_bytes_total", ONE, 1) + CPU + sample("in_bytes_total", TWO, 2) + "pulsar_in_bytes_total_x 5\n"
    assert read(page).counters[:, 2].tolist() == [1.0, 2.0]


def test_a_moment_may_follow() -> None:
    """The text format allows a timestamp behind the value."""
    assert read(sample("in_bytes_total", ONE, "7 1795462453814")).counters[0, 2] == 7.0


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-5", "many", "", "1e999"])
def test_odd_values_count_as_nothing(value: str) -> None:
    """One figure that is none does not spoil the others."""
    assert read(sample("in_bytes_total", ONE, value) + sample("in_messages_total", ONE, 3)).counters.tolist() == [
        [3.0, 0.0, 0.0, 0.0]
    ]


def test_an_empty_broker() -> None:
    """A broker without topics carries nothing, which is a figure too."""
    found = read(CPU)
    assert (found.namespaces, len(found.hashes), found.cpu_seconds) == ((), 0, 10.16)
    assert found.counters.shape == (0, 4)


def test_namespaces_of_three_parts() -> None:
    """A topic of an old name is in the namespace that the page names; one that is no part of the name is not it."""
    page = 'pulsar_in_bytes_total{cluster="c",namespace="t/c/n",topic="persistent://t/c/n/x"} 1\n'
    assert read(page).namespaces == ("t/c/n",)
    assert read(page.replace('="t/c/n"', '="kubernetes"')).namespaces == ("t/c",)


def test_namespaces_only() -> None:
    """Without topics in its metrics a broker does not tell where its load is."""
    page = CPU + 'pulsar_in_messages_total{cluster="c",namespace="t/n"} 5\n'
    with pytest.raises(CodecError, match="exposeTopicLevelMetricsInPrometheus"):
        read(page)


@pytest.mark.parametrize("page", ["", "<html>", "up 1\n"])
def test_what_is_no_page_of_a_broker(page: str) -> None:
    """What else answers there is an error, never an idle broker."""
    with pytest.raises(CodecError, match="no figures of a broker"):
        read(page)


@pytest.mark.parametrize("size", [1, 7, 64, 100_000])
def test_a_page_in_pieces(size: int) -> None:
    """Only what is read is kept, wherever the pieces end; a line without an end is left out, and no more than that."""
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
    kept = b"".join(keep(page[at : at + size]) for at in range(0, len(page), size))
    assert (
        kept.decode()
        == sample("in_messages_total", ONE, 585) + sample("out_bytes_total", TWO, 12, ',subscription="s"') + CPU
    )


def beans(**metrics: Any) -> bytes:
    """A list like a broker's, with these figures of the operating system's bean."""
    other = {"metrics": {"CpuLoad": 0.99, "Name": "G1"}, "dimensions": {"MBean": "java.lang:type=Memory"}}
    wanted = {"metrics": {"Arch": "amd64", **metrics}, "dimensions": {"MBean": "java.lang:type=OperatingSystem"}}
    return json.dumps([other, wanted]).encode()


def test_the_larger_one_counts() -> None:
    """Rule: each is 0 when asked twice at once."""
    assert decode_cpu_load(beans(CpuLoad=0.89, ProcessCpuLoad=0.0)) == 0.89
    assert decode_cpu_load(beans(CpuLoad=0.0, ProcessCpuLoad=0.5)) == 0.5
    assert decode_cpu_load(beans(ProcessCpuLoad=0.25)) == 0.25


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"[]", b"[1]", beans(), beans(CpuLoad=-1.0), beans(CpuLoad=1.5), beans(CpuLoad="much"), b"\xff"],
)
def test_what_does_not_tell(body: bytes) -> None:
    """Rule: a typed error, and no broker taken for idle."""
    with pytest.raises(CodecError):
        decode_cpu_load(body)


@given(st.binary(max_size=200))
def test_any_bytes(body: bytes) -> None:
    """Rule: a load between 0 and 1 or a CodecError, whatever comes."""
    try:
        assert 0.0 <= decode_cpu_load(body) <= 1.0
    except CodecError as error:
        assert str(error)
