"""`ChannelKit` (see contracts/channel.py) with real brokers of the extensible load manager, for both channel
variants.
"""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import httpx

from bundlekeel.model.names import parse_topic
from bundlekeel.ports import Channel, ChannelVariant
from bundlekeel.pulsar.topics.process import TopicsOptions, TopicsProcess
from dev.cluster import BrokerInfo, Cluster
from tests.support.contracts.coordination import eventually
from tests.support.memory_source import RealClock

F = TypeVar("F")
# Bundles that belong to a broker by their name, without an entry in the channel.
BY_NAME = ("pulsar/127.", "sla-monitor/")
_SPACE = 2**32


class Followers:
    """Creates followers of the brokers' topics. Each has its own process, which a test kills to interrupt it."""

    def __init__(self) -> None:
        self._processes: dict[Any, TopicsProcess] = {}

    def follower(self, kind: Callable[..., F]) -> F:
        """Return a new follower that is not started."""
        process = TopicsProcess(TopicsOptions(), clock=RealClock())
        instance = kind(process, clock=RealClock())
        self._processes[instance] = process
        return instance

    async def interrupt(self, follower: Any) -> None:
        """Kill the follower's process (SIGKILL)."""
        kill(self._processes[follower])

    async def mend(self, follower: Any) -> None:
        """Do nothing: the process restarts automatically."""


def kill(process: TopicsProcess, number: signal.Signals = signal.SIGKILL) -> int:
    """Send a signal to the child process and return its id."""
    assert process.pid is not None
    os.kill(process.pid, number)
    return process.pid


class BrokerCluster:
    """Requests of a test to real brokers, over their admin API."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.urls = {broker.broker_id: broker.web_url for broker in cluster.brokers}
        self.service_urls = tuple(broker.service_url for broker in cluster.brokers)

    @property
    def alive(self) -> list[BrokerInfo]:
        """Return the brokers whose process runs."""
        return [broker for broker in self.cluster.brokers if self.cluster.alive(broker.name)]

    async def ask(self, method: str, path: str, *, at: str = "", **more: Any) -> httpx.Response:
        """Send one request and follow redirects. `at`: URL of the broker; by default any running broker."""
        base = self.urls[at] if at else self.alive[0].web_url
        async with httpx.AsyncClient(follow_redirects=True, timeout=60) as client:
            return await client.request(method, base + path, **more)

    async def do(self, method: str, path: str, *, at: str = "", **more: Any) -> Any:
        """Send a request that must succeed. Return its JSON, or None without a body."""
        answer = await self.ask(method, path, at=at, **more)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text[:500]}"
        return answer.json() if answer.content else None

    async def make_namespace(self, bundles: int = 4) -> str:
        """Create a namespace and return its name."""
        namespace = f"public/t-{uuid.uuid4().hex[:8]}"
        body = {"bundles": {"numBundles": bundles}, "replication_clusters": [self.cluster.spec.cluster_name]}
        await self.do("PUT", f"/admin/v2/namespaces/{namespace}", json=body)
        return namespace

    async def look_up(self, topic: str) -> str:
        """Look up a persistent topic and return the owner of its bundle; the lookup assigns an owner if there is none.
        Wait for brokers that are starting.
        """

        async def answered() -> str:
            answer = await self.ask("GET", f"/lookup/v2/topic/{topic.replace('://', '/')}")
            return str(answer.json()["httpUrl"]).removeprefix("http://") if answer.is_success else ""

        return await eventually(answered, within=60)

    async def transfer(self, bundle: str, destination: str) -> None:
        """Unload a bundle with a destination, and wait until that is complete."""
        await self.do("PUT", f"/admin/v2/namespaces/{bundle}/unload", params={"destinationBroker": destination})

    async def owned(self) -> dict[str, str]:
        """Return the owner of each bundle as the brokers report it, without the bundles that are named after a
        broker.
        """
        owners: dict[str, str] = {}
        for broker in self.alive:
            path = f"/admin/v2/brokers/{self.cluster.spec.cluster_name}/{broker.broker_id}/ownedNamespaces"
            names = await self.do("GET", path, at=broker.broker_id)
            owners |= {name: broker.broker_id for name in names if not name.startswith(BY_NAME)}
        return owners

    async def leader(self) -> str:
        """Return the broker id of the leader of Pulsar's load manager."""
        return str((await self.do("GET", "/admin/v2/brokers/leaderBroker"))["brokerId"])


class ClusterKit:
    """`ChannelKit` with its own namespace. Subclasses per variant implement `make`, `interrupt` and `mend`."""

    patience = 60.0

    def __init__(
        self,
        brokers: BrokerCluster,
        variant: ChannelVariant,
        make: Callable[[], Channel],
        interrupt: Callable[[Channel], Awaitable[None]],
        mend: Callable[[Channel], Awaitable[None]],
    ) -> None:
        self.brokers = brokers
        self.variant = variant
        self.service_urls = brokers.service_urls
        self.make = make
        self.interrupt = interrupt
        self.mend = mend
        self._namespace = ""
        self._owners: dict[str, str] = {}

    async def own(self, number: int) -> tuple[str, str]:
        if not self._namespace:
            self._namespace = await self.brokers.make_namespace()
        low, high = number * _SPACE // 4, (number + 1) * _SPACE // 4
        names = (f"persistent://{self._namespace}/t{i}" for i in range(1000))
        topic = next(name for name in names if low <= parse_topic(name).hash < high)
        bundle = f"{self._namespace}/0x{low:08x}_0x{min(high, _SPACE - 1):08x}"
        self._owners[bundle] = await self.brokers.look_up(topic)
        return bundle, self._owners[bundle]

    async def transfer(self, bundle: str) -> str:
        ids = sorted(broker.broker_id for broker in self.brokers.alive)
        destination = ids[(ids.index(self._owners[bundle]) + 1) % len(ids)]
        await self.brokers.transfer(bundle, destination)
        self._owners[bundle] = destination
        return destination

    async def unload(self, bundle: str) -> None:
        await self.brokers.do("PUT", f"/admin/v2/namespaces/{bundle}/unload")

    async def split(self, bundle: str) -> tuple[str, str]:
        await self.brokers.do("PUT", f"/admin/v2/namespaces/{bundle}/split")
        low, high = (int(edge, 16) for edge in bundle.rpartition("/")[2].split("_"))
        middle = low + (high - low) // 2
        return (f"{self._namespace}/0x{low:08x}_0x{middle:08x}", f"{self._namespace}/0x{middle:08x}_0x{high:08x}")

    async def owned(self) -> dict[str, str]:
        return await self.brokers.owned()
