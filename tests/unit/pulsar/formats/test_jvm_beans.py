"""CPU load of a broker's JVM, read from its list of beans."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bundlekeel.model.errors import CodecError
from bundlekeel.pulsar.formats.jvm_beans import decode_cpu_load, decode_cpu_seconds


def beans(**metrics: Any) -> bytes:
    """A list like a broker's, with these figures of the operating system's bean."""
    other = {"metrics": {"CpuLoad": 0.99, "Name": "G1"}, "dimensions": {"MBean": "java.lang:type=Memory"}}
    expected = {"metrics": {"Arch": "amd64", **metrics}, "dimensions": {"MBean": "java.lang:type=OperatingSystem"}}
    return json.dumps([other, expected]).encode()


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


def test_cpu_time_is_in_seconds() -> None:
    """The JVM reports nanoseconds."""
    assert decode_cpu_seconds(beans(ProcessCpuTime=1_500_000_000)) == 1.5


@pytest.mark.parametrize("body", [b"[]", beans(), beans(ProcessCpuTime=-1), beans(ProcessCpuTime="1"), b"\xff"])
def test_no_cpu_time(body: bytes) -> None:
    with pytest.raises(CodecError):
        decode_cpu_seconds(body)


@given(st.binary(max_size=200))
def test_any_bytes(body: bytes) -> None:
    """Rule: a load between 0 and 1 or a CodecError, whatever comes."""
    try:
        assert 0.0 <= decode_cpu_load(body) <= 1.0
    except CodecError as error:
        assert str(error)
