"""Long responses are decoded in another process, with limits."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from bundlekeel.model.codes import Code
from bundlekeel.model.errors import CodecError
from bundlekeel.pulsar import child_memory, decoding
from bundlekeel.pulsar.decoding import decoded
from bundlekeel.pulsar.formats.broker_metrics import decode_signs
from bundlekeel.pulsar.formats.topics import decode_bundle_stats, decode_topic_rates, decode_topic_stats

BUNDLE = "t/n/0x00000000_0xffffffff"


def statistics(topics: int) -> bytes:
    """Return topic statistics of one bundle."""
    rows = {f"persistent://t/n/{number}": {"msgRateIn": 1.0} for number in range(topics)}
    return json.dumps({"t/n": {"0x00000000_0xffffffff": {"persistent": rows}}}).encode()


async def test_s02_long_statistics_do_not_hold_the_interpreter() -> None:
    """17 MiB in one bundle: one call in C takes several times as long as any silence of the loop."""
    body, gaps, last = statistics(300_000), [], time.monotonic()
    decode_bundle_stats(body)
    whole, last = time.monotonic() - last, time.monotonic()
    task = asyncio.ensure_future(decoded(decode_bundle_stats, body))
    while not task.done():
        await asyncio.sleep(0.005)
        now = time.monotonic()
        gaps.append(now - last)
        last = now
    assert len(body) > decoding.IN_THREAD_BYTES and list(task.result().names) == [BUNDLE]
    assert max(gaps) < whole / 2


@pytest.mark.parametrize(
    "body",
    [
        json.dumps({"t/n": {"0x00000000_0xffffffff": {"persistent": {f"x{n}": {} for n in range(70_000)}}}}).encode(),
        json.dumps([{"subscriptions": {"s": {"consumers": [0] * 250_000}}}]).encode(),
    ],
)
async def test_s02_many_values_do_not_hold_the_interpreter(body: bytes, monkeypatch: Any) -> None:
    """Time and memory grow with the values: a body of 4 MiB may hold 2,000,000. A usual one has 50,000 per MiB."""
    monkeypatch.setattr(decoding, "_in_child", lambda decode, body, inputs: "in the child")
    usual = statistics(40_000)
    assert len(body) < len(usual) < decoding.IN_THREAD_BYTES
    assert await decoded(decode_bundle_stats, body) == "in the child"
    assert (await decoded(decode_bundle_stats, usual)).names == (BUNDLE,)


@pytest.mark.parametrize(
    ("decode", "options"),
    [
        (decode_bundle_stats, {}),
        (decode_topic_stats, {"bundle": BUNDLE}),
        (decode_topic_rates, {"namespaces": ("t/n",)}),
    ],
)
async def test_s02_the_other_process_decodes_the_same(decode: Any, options: Any, monkeypatch: Any) -> None:
    body = statistics(50)
    expected = decode(body, **options)
    monkeypatch.setattr(decoding, "IN_THREAD_BYTES", 10)
    assert repr(await decoded(decode, body, **options)) == repr(expected)


async def test_s02_errors_of_the_other_process_are_the_same(monkeypatch: Any) -> None:
    monkeypatch.setattr(decoding, "IN_THREAD_BYTES", 10)
    for decode, body in ((decode_bundle_stats, b"[" * 100), (decode_signs, b'[{"metrics": 5}]')):
        with pytest.raises(CodecError) as here:
            decode(body)
        with pytest.raises(CodecError) as there:
            await decoded(decode, body)
        assert (str(there.value), there.value.code) == (str(here.value), here.value.code)


async def test_s02_one_child_runs_at_a_time(monkeypatch: Any) -> None:
    """Two of them and the sidecar need more memory than the container has."""
    monkeypatch.setattr(decoding, "IN_THREAD_BYTES", 10)
    monkeypatch.setattr(decoding, "_TIMEOUT_SECONDS", 0.05)
    with child_memory.ONE_CHILD, pytest.raises(CodecError, match="compacted"):
        await decoded(decode_bundle_stats, statistics(50))


@pytest.mark.parametrize(("limit", "value"), [("_TIMEOUT_SECONDS", 0.001), ("memory_share", lambda parts: 1 << 20)])
async def test_s02_time_and_memory_of_the_other_process_are_limited(monkeypatch: Any, limit: str, value: Any) -> None:
    monkeypatch.setattr(decoding, "IN_THREAD_BYTES", 10)
    monkeypatch.setattr(decoding, limit, value)
    with pytest.raises(CodecError, match="decoded") as caught:
        await decoded(decode_bundle_stats, statistics(50_000))
    assert caught.value.code == Code.REPORT_TOO_LARGE
