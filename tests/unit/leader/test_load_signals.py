"""Signals of changed traffic reach the leader over its API, and it reads the brokers' counters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx

from bundlekeel.model.load import BrokerEndpoint
from bundlekeel.ports import CounterReading
from bundlekeel.pulsar.counters.counters import LiveLoads
from bundlekeel.pulsar.counters.demand import CounterOptions
from bundlekeel.settings.load import LoadedSettings
from bundlekeel.wiring.outside import Outside
from bundlekeel.wiring.peers import HttpPeers
from tests.support.world import FakeCluster, FakeSidecar


class _Sidecar(FakeSidecar):
    """A sidecar whose brokers have counters, and that sends requests to the other sidecars."""

    def reached(self, loaded: LoadedSettings) -> Outside:
        result = replace(super().reached(loaded), peers=HttpPeers)
        result.source.live = LiveLoads(self, result.metadata, result.clock, CounterOptions())
        return result

    async def counters(self, broker: BrokerEndpoint) -> list[CounterReading]:
        """See `ports.TopicCounters`: nothing was counted."""
        return []

    def signals(self) -> dict[str, float]:
        """Return the counted signals by result, without zeros."""
        lines = [line.rpartition(" ") for line in self.metric("load_signals_total").splitlines()]
        return {head.split('"')[1]: float(value) for head, _, value in lines if float(value)}


@asynccontextmanager
async def leader_and_follower() -> AsyncIterator[tuple[_Sidecar, _Sidecar, str]]:
    """Yield a leader whose API listens, a follower that knows its address, and the address."""
    cluster = FakeCluster()
    leader, follower = _Sidecar(cluster), _Sidecar(cluster, "b")
    server = leader.server(asyncio.get_running_loop())
    url = await server.start()
    try:
        leader.leadership.announce(url=url)
        await leader.lead()
        await leader.cycle.turn()
        await follower.lead()
        yield leader, follower, url
    finally:
        await follower.peers.close()
        await leader.peers.close()
        leader.publishing.cancel()
        await server.stop()


async def test_the_leader_follows_one_signal_and_ignores_the_next() -> None:
    async with leader_and_follower() as (leader, follower, _):
        await follower.load_signals.send()
        await follower.load_signals.send()
        assert follower.signals() == {"sent": 2.0}
        assert leader.signals() == {"followed": 1.0, "ignored": 1.0}


async def test_the_leader_follows_its_own_signal() -> None:
    async with leader_and_follower() as (leader, _, _):
        await leader.load_signals.send()
        assert leader.signals() == {"followed": 1.0}


async def test_a_follower_ignores_signals() -> None:
    async with leader_and_follower() as (_, follower, _):
        assert not follower.load_signals.receive().reads
        assert follower.signals() == {"ignored": 1.0}


async def test_a_signal_without_a_leader_is_counted() -> None:
    """Also with a leader that does not respond, or has no such route because it is of an earlier release."""
    async with leader_and_follower() as (leader, follower, url):
        for address in (None, "http://127.0.0.1:1", f"{url}/earlier"):
            follower.leadership.leader = replace(leader.leadership.member, url=address) if address else None
            await follower.load_signals.send()
        assert follower.signals() == {"failed": 3.0}


async def test_the_response_tells_whether_counters_are_read() -> None:
    async with leader_and_follower() as (_, _, url), httpx.AsyncClient(base_url=url) as http:
        responses: list[dict[str, Any]] = [(await http.post("/api/v1/load-signals")).json() for _ in range(2)]
    assert responses == [{"reads": True}, {"reads": False}]
