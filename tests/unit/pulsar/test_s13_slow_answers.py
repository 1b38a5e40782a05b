"""S.13: an answer that comes piece by piece for ever ends with the timeout of the whole request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bundlekeel.model.errors import AdminTimeout, StoreError
from bundlekeel.model.load import BrokerEndpoint
from bundlekeel.pulsar.counters.prometheus_reader import PrometheusCounters, PrometheusOptions
from bundlekeel.wiring.peers import HttpPeers
from tests.support.memory_source import RealClock


@asynccontextmanager
async def dripping() -> AsyncIterator[str]:
    """A server that sends a byte every 50 ms."""

    answered: list[asyncio.Task[None] | None] = []

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answered.append(asyncio.current_task())
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        try:
            while not writer.is_closing():
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.05)
        except ConnectionError:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await asyncio.gather(*filter(None, answered))


@pytest.mark.timeout(20)
@pytest.mark.parametrize("who", ["prometheus", "peer"])
async def test_s13_a_slow_answer_ends(who: str) -> None:
    """Each piece was in time, so the request held its slot for ever."""
    async with dripping() as url:
        began = time.monotonic()
        if who == "peer":
            peers = HttpPeers(timeout_seconds=0.5)
            with pytest.raises(StoreError, match=r"did not answer within 0\.5 s"):
                await peers.make_plan(url, {})
            await peers.close()
        else:
            counters = PrometheusCounters(PrometheusOptions(url=url, timeout=0.5), RealClock())
            with pytest.raises(AdminTimeout, match="did not answer"):
                await counters.counters(BrokerEndpoint(broker_id="b:8080", web_url="http://b:8080"))
            await counters.close()
        assert time.monotonic() - began < 10
