"""The brokers' admin API in memory: a model of pulsar.md 7.2, and a fake `BrokerAdmin` that talks to it directly.

The model is also an `Ownership`. It can be served over real HTTP (tests/support/http_brokers.py), so that the fake and
the real adapter pass the same contract tests over the same brokers.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from bundlekeel.model.counters import CounterReading
from bundlekeel.model.errors import (
    AdminApiError,
    AdminFault,
    AdminRefused,
    AdminUnauthorized,
    AdminUnreachable,
    RedirectLoop,
)
from bundlekeel.model.extensible import BundleLoads
from bundlekeel.model.names import namespace_of, parse_bundle, parse_topic
from bundlekeel.planning.guard.rate import ClientSigns
from bundlekeel.planning.splitting.children import children_of
from bundlekeel.ports import BrokerEndpoint, Owner, TopicLoad
from bundlekeel.ports.commands import LookAgain, Permit, UnloadAnswer, no_look

if TYPE_CHECKING:
    from tests.support.quota_model import MemoryQuotaAdmin, QuotaModel

K = TypeVar("K")
SHEDDING = "loadBalancerSheddingEnabled"
EXCLUDED = "loadBalancerSheddingExcludedNamespaces"
DYNAMIC_KEYS = frozenset({SHEDDING, EXCLUDED, "loadBalancerAutoBundleSplitEnabled"})
STATIC = {
    "clusterName": "local",
    "loadBalancerEnabled": "true",
    SHEDDING: "true",
    "loadBalancerAutoBundleSplitEnabled": "true",
    "loadBalancerLoadPlacementStrategy": "org.apache.pulsar.broker.loadbalance.impl.LeastLongTermMessageRate",
}
HTTP_ERRORS: dict[int, type[AdminApiError]] = {4: AdminRefused, 5: AdminFault}


@dataclass(frozen=True, kw_only=True)
class ModelReply:
    """Response of a broker: a status, then a redirect (broker and query) or a reason."""

    status: int
    to: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class SplitSeen:
    """One request for a split, as it reached a broker."""

    at: str
    bundle: str
    positions: tuple[int, ...] | None


@dataclass(frozen=True, kw_only=True)
class UnloadSeen:
    """One request for an unload, as it reached a broker."""

    at: str
    bundle: str
    destination: str | None


class BrokerModel:
    """Brokers of the modular load manager: ownership, affinity in the leader's memory, dynamic configuration."""

    # A bundle with fewer topics is never split.
    fewest_topics = 2

    def __init__(self, brokers: Sequence[str], *, leader: str = "") -> None:
        self.brokers = list(brokers)
        self.leader = leader or self.brokers[0]
        self.owners: dict[str, Owner] = {}
        self.topics: dict[str, list[str]] = defaultdict(list)
        self.affinity: dict[str, str] = {}
        self.dynamic: dict[str, str] = {}
        self.static: dict[str, dict[str, str]] = {broker: dict(STATIC) for broker in self.brokers}
        self.stubborn: set[str] = set()
        self.unloads: list[UnloadSeen] = []
        self.loads: dict[str, TopicLoad] = {}
        self.splits: list[SplitSeen] = []
        # CPU load (0..1) of the brokers that report it, and CPU seconds of their processes.
        self.cpu: dict[str, float] = {}
        # Counters by topic, for brokers that report them: columns of `model.load.TRAFFIC`, then sessions.
        self.counted: dict[str, dict[str, tuple[float, ...]]] = {}
        # Errors of clients, for brokers that report them.
        self.signs: dict[str, ClientSigns] = {}
        self.splits_nothing = False
        self.after_split: Callable[[str, tuple[str, ...]], None] = lambda _bundle, _children: None
        self.after_unload: Callable[[str], None] = lambda _bundle: None
        # Errors of the next reads of an owner.
        self.owner_errors: list[Exception] = []

    @cached_property
    def quotas(self) -> QuotaModel:
        """The rates of topics. Their module is imported only if quotas are installed."""
        from tests.support.quota_model import QuotaModel  # noqa: PLC0415

        return QuotaModel(lambda: [topic for topics in self.topics.values() for topic in topics])

    def add(self, bundle: str, owner: str | None, *topics: str) -> None:
        """Add a bundle with its owner (None: unowned) and topics."""
        self.topics[bundle].extend(topics)
        if owner is not None:
            self.own(bundle, owner)

    def add_loads(self, bundle: str, *loads: TopicLoad) -> None:
        """Add topics of a bundle with their loads. Topics without a load have a hash and no traffic."""
        self.topics[bundle].extend(load.topic for load in loads)
        self.loads.update({load.topic: load for load in loads})

    def loads_of(self, bundle: str) -> list[TopicLoad]:
        """Return the topics of a bundle, sorted by name."""
        return [self.loads.get(t) or TopicLoad(topic=t, hash=parse_topic(t).hash) for t in sorted(self.topics[bundle])]

    def bundle_loads(self, broker: str) -> BundleLoads:
        """Return the loads of a broker's bundles that have a loaded topic. All sessions of the model are producers."""
        rows: dict[str, list[float]] = {}
        for bundle, owner in self.owners.items():
            loads = [self.loads[topic] for topic in self.topics[bundle] if topic in self.loads]
            if loads and owner.broker_id == broker:
                traffic = [sum(column) for column in zip(*(load.traffic for load in loads), strict=True)]
                rows[bundle] = [*traffic, len(loads), 0, sum(load.sessions for load in loads)]
        table = np.array(list(rows.values()), dtype=np.float64).reshape(-1, 7)
        return BundleLoads(names=tuple(rows), traffic=table[:, :4], counts=table[:, 4:].astype(np.int64))

    def owned_by(self, broker: str) -> list[str]:
        """Return the bundles of a broker, with and without topics."""
        return sorted(bundle for bundle, owner in self.owners.items() if owner.broker_id == broker)

    def own(self, bundle: str, owner: str) -> None:
        """Give a bundle to a broker, as if a client's lookup had put it there."""
        self.owners[bundle] = Owner(broker_id=owner, web_url=f"http://{owner}")

    async def owner(self, bundle: str) -> Owner | None:
        """`ports.Ownership`."""
        if self.owner_errors:
            raise self.owner_errors.pop(0)
        return self.owners.get(bundle)

    def endpoints(self) -> dict[str, BrokerEndpoint]:
        """Return the addresses of all brokers by their id."""
        return {b: BrokerEndpoint(broker_id=b, web_url=f"http://{b}") for b in self.brokers}

    def runtime(self, broker: str) -> dict[str, str]:
        """Return the effective settings of a broker. A stubborn broker ignores dynamic settings."""
        return self.static[broker] | ({} if broker in self.stubborn else self.dynamic)

    def set_dynamic(self, key: str, value: str) -> ModelReply:
        """Store an override of a dynamic key."""
        if key not in DYNAMIC_KEYS:
            return ModelReply(status=412, reason="Can't update non-dynamic configuration")
        self.dynamic[key] = value
        return ModelReply(status=200)

    def unload(self, bundle: str, *, at: str, destination: str | None) -> ModelReply:
        """Respond to one request of an unload at broker `at`, with the checks in the order of pulsar.md 7.2."""
        self.unloads.append(UnloadSeen(at=at, bundle=bundle, destination=destination))
        if bundle not in self.topics:
            return ModelReply(status=412, reason=f"Invalid upper boundary for bundle {bundle}")
        if destination is not None:
            if destination not in self.brokers:
                return ModelReply(status=409, reason="Not allowed unload namespace bundle to inactive destination")
            if at != self.leader:
                query = {"destinationBroker": destination, "authoritative": "false"}
                return ModelReply(status=307, to=self.leader, query=query)
            self.affinity[bundle] = destination
        owner = self.owners.get(bundle)
        if owner is None:
            return ModelReply(status=204)
        if owner.broker_id != at:
            return ModelReply(status=307, to=owner.broker_id, query={"authoritative": "true"})
        del self.owners[bundle]
        self.after_unload(bundle)
        return ModelReply(status=204)

    def split(self, bundle: str, *, at: str, positions: Sequence[int] | None) -> ModelReply:
        """One hop of a split by `specified_positions_divide`, or `range_equally_divide` (None), as pulsar.md 2.11 and
        7.1 have it."""
        self.splits.append(SplitSeen(at=at, bundle=bundle, positions=None if positions is None else tuple(positions)))
        if bundle not in self.topics:
            return ModelReply(status=412, reason=f"Invalid upper boundary for bundle {bundle}")
        owner = self.owners.get(bundle)
        if owner is None:
            return ModelReply(status=412, reason="Failed to find ownership for ServiceUnit")
        if owner.broker_id != at:
            return ModelReply(status=307, to=owner.broker_id, query={"authoritative": "true"})
        name = parse_bundle(bundle)
        if positions is None:
            self._divide(bundle, [name.lower + (name.upper - name.lower) // 2])
            return ModelReply(status=204)
        if not positions:
            return ModelReply(status=412, reason="splitBoundaries is empty")
        inside = [position for position in sorted(positions) if name.lower < position < name.upper]
        if len(self.topics[bundle]) >= self.fewest_topics and inside and not self.splits_nothing:
            self._divide(bundle, inside)
        return ModelReply(status=204)

    def _divide(self, bundle: str, positions: list[int]) -> None:
        loads, children = self.loads_of(bundle), children_of(bundle, positions)
        for child in children:
            name = parse_bundle(child)
            self.topics[child] = [load.topic for load in loads if name.covers(load.hash)]
            self.owners[child] = self.owners[bundle]
        del self.topics[bundle], self.owners[bundle]
        self.after_split(bundle, children)

    def bundle_of(self, topic: str) -> str | None:
        """Return the bundle to which a topic was added. The model does not compute hashes."""
        namespace = parse_topic(topic).namespace
        return next((b for b, t in self.topics.items() if topic in t and namespace_of(b) == namespace), None)

    def lookup(self, topic: str, *, at: str, authoritative: bool) -> ModelReply:
        """Respond to one lookup at broker `at`. A 200 contains the owner in `to`."""
        bundle = self.bundle_of(topic)
        if bundle is None:
            return ModelReply(status=404, reason="Topic not found")
        owner = self.owners.get(bundle)
        if owner is None:
            if not authoritative and at != self.leader:
                return ModelReply(status=307, to=self.leader, query={"authoritative": "false"})
            broker = at if authoritative else self.affinity.pop(bundle, at)
            if broker != at:
                return ModelReply(status=307, to=broker, query={"authoritative": "true"})
            self.own(bundle, at)
        return ModelReply(status=200, to=self.owners[bundle].broker_id)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A scripted error of a call: before its effect, or after it (then the caller does not know the result)."""

    error: Exception
    after: bool = False


class MemoryAdmin:
    """`ports.BrokerAdmin` and `ports.commands.BrokerCommands` without a network.

    `fail("unload", Fault(...))` scripts the next calls of a method; `unauthorized`: brokers that take no token."""

    def __init__(self, model: BrokerModel) -> None:
        self.model = model
        self.calls: list[tuple[str, ...]] = []
        self.unauthorized: frozenset[str] = frozenset()
        self._endpoints: Mapping[str, BrokerEndpoint] = {}
        self._faults: dict[str, deque[Fault | None]] = defaultdict(deque)

    @cached_property
    def quotas(self) -> MemoryQuotaAdmin:
        """Return the client for rates."""
        from tests.support.quota_model import MemoryQuotaAdmin  # noqa: PLC0415

        return MemoryQuotaAdmin(self.model)

    def fail(self, method: str, *faults: Fault | None) -> None:
        """Let the next calls of `method` fail. None: this call succeeds."""
        self._faults[method].extend(faults)

    def set_endpoints(self, endpoints: Mapping[str, BrokerEndpoint]) -> None:
        self._endpoints = endpoints

    async def runtime_configuration(self, broker_id: str) -> dict[str, str]:
        with self._call("runtime_configuration", broker_id, broker=broker_id):
            return self.model.runtime(broker_id)

    async def dynamic_configuration(self) -> dict[str, str]:
        with self._call("dynamic_configuration"):
            return dict(self.model.dynamic)

    async def set_dynamic(self, key: str, value: str, *, permit: Permit, look_again: LookAgain = no_look) -> None:
        await look_again()
        permit()
        with self._call("set_dynamic", key, value):
            _raise_for(self.model.set_dynamic(key, value))

    async def delete_dynamic(self, key: str, *, permit: Permit, look_again: LookAgain = no_look) -> None:
        await look_again()
        permit()
        with self._call("delete_dynamic", key):
            self.model.dynamic.pop(key, None)

    async def topics_of_bundle(self, bundle: str, owner: str) -> list[str]:
        with self._call("topics_of_bundle", bundle, owner, broker=owner):
            self._check_owned(bundle)
            return sorted(self.model.topics[bundle])

    async def topic_loads(self, bundle: str, owner: str) -> list[TopicLoad]:
        with self._call("topic_loads", bundle, owner, broker=owner):
            self._check_owned(bundle)
            return self.model.loads_of(bundle)

    async def bundle_loads(self, broker_id: str) -> BundleLoads:
        with self._call("bundle_loads", broker_id, broker=broker_id):
            return self.model.bundle_loads(broker_id)

    async def cpu_load(self, broker_id: str) -> float:
        with self._call("cpu_load", broker_id, broker=broker_id):
            return _look_up(self.model.cpu, broker_id, f"beans of {broker_id}: no CPU load")

    async def cpu_seconds(self, broker_id: str) -> float:
        with self._call("cpu_seconds", broker_id, broker=broker_id):
            return _look_up(self.model.cpu, broker_id, f"beans of {broker_id}: no CPU seconds")

    async def counters(self, broker: BrokerEndpoint) -> list[CounterReading]:
        broker_id = broker.broker_id
        began = time.time_ns() // 1_000_000
        with self._call("counters", broker_id, broker=broker_id):
            counted = _look_up(self.model.counted, broker_id, f"counters of {broker_id}: no figures of a broker")
        names = [parse_topic(topic) for topic in counted]
        namespaces = list(dict.fromkeys(name.namespace for name in names))
        table = np.array(list(counted.values())).reshape(-1, 6)
        return [
            CounterReading(
                from_ms=began,
                to_ms=time.time_ns() // 1_000_000,
                namespaces=tuple(namespaces),
                namespace=np.array([namespaces.index(name.namespace) for name in names], dtype=np.int64),
                keys=np.array([name.hash for name in names], dtype=np.uint64),
                topic=np.ones(len(names), dtype=bool),
                hashes=np.array([name.hash for name in names], dtype=np.int64),
                counters=table[:, :4],
                sessions=table[:, 4:].astype(np.int64),
                cpu_seconds=self.model.cpu.get(broker_id),
            )
        ]

    async def client_signs(self, broker_id: str) -> ClientSigns:
        if "Extensible" in (self._endpoints[broker_id].load_manager if broker_id in self._endpoints else ""):
            raise AdminRefused(
                f"{broker_id}: reading its metrics would change its load averages", reason="extensible load manager"
            )
        with self._call("client_signs", broker_id, broker=broker_id):
            return _look_up(self.model.signs, broker_id, f"metrics of {broker_id}: no connections")

    async def owned_bundles(self, broker_id: str, cluster: str) -> list[str]:
        with self._call("owned_bundles", broker_id, cluster, broker=broker_id):
            if cluster != self.model.static[broker_id]["clusterName"]:
                raise AdminRefused("Cluster does not exist", status=404, reason="Cluster does not exist")
            return self.model.owned_by(broker_id)

    async def split(self, bundle: str, *, positions: Sequence[int] | None, at: str, permit: Permit) -> UnloadAnswer:
        self._check_registered(at)
        permit()
        with self._call("split", bundle, str(positions and list(positions)), at):
            return _followed(at, {}, lambda broker, _: self.model.split(bundle, at=broker, positions=positions))

    async def unload(self, bundle: str, *, destination: str | None, at: str, permit: Permit) -> UnloadAnswer:
        self._check_registered(at)
        permit()
        query = {} if destination is None else {"destinationBroker": destination}
        with self._call("unload", bundle, destination or "", at):
            return _followed(
                at,
                query,
                lambda broker, q: self.model.unload(bundle, at=broker, destination=q.get("destinationBroker")),
            )

    async def claim(self, topic: str, *, broker_id: str, permit: Permit) -> str:
        self._check_registered(broker_id)
        permit()
        with self._call("claim", topic, broker_id):
            reply = self.model.lookup(topic, at=broker_id, authoritative=True)
            _raise_for(reply)
            return reply.to

    async def close(self) -> None:
        """See `ports.BrokerAdmin`."""

    def _check_registered(self, broker_id: str) -> None:
        if broker_id not in self._endpoints:
            raise AdminUnreachable(f"{broker_id} is not registered")

    def _check_owned(self, bundle: str) -> None:
        if bundle not in self.model.owners:
            raise AdminRefused("Failed to find ownership", status=412, reason="Failed to find ownership")

    @contextmanager
    def _call(self, method: str, *arguments: str, broker: str | None = None) -> Iterator[None]:
        """Run the effect of a call at a broker as the block. A scripted error is raised before or after it."""
        self.calls.append((method, *arguments))
        fault = self._faults[method].popleft() if self._faults[method] else None
        if fault is not None and not fault.after:
            raise fault.error
        if broker is not None:
            self._check_registered(broker)
        if broker in self.unauthorized:
            raise AdminUnauthorized(f"{broker} answers 401")
        yield
        if fault is not None:
            raise fault.error


def _look_up(table: Mapping[str, K], broker_id: str, otherwise: str) -> K:
    if broker_id not in table:
        raise AdminFault(otherwise, status=200)
    return table[broker_id]


def _followed(at: str, query: Mapping[str, str], hop: Callable[[str, Mapping[str, str]], ModelReply]) -> UnloadAnswer:
    """Follow redirects from broker to broker, each with the query of the redirect."""
    hops = [at]
    while len(hops) < 7:
        reply = hop(hops[-1], query)
        _raise_for(reply)
        if reply.status != 307:
            return UnloadAnswer(status=reply.status, hops=tuple(hops), seconds=0.0)
        hops.append(reply.to)
        query = reply.query
    raise RedirectLoop("redirected in circles")


def _raise_for(reply: ModelReply) -> None:
    if reply.status >= 400:
        # Extensible brokers refuse one thing with a 500 (pulsar/admin/transport.py).
        refused = "cannot be transfer to same broker" in reply.reason
        kind = AdminRefused if refused else HTTP_ERRORS[reply.status // 100]
        raise kind(reply.reason, status=reply.status, reason=reply.reason)
