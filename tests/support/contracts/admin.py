"""Tests that every `BrokerAdmin` must pass. A test class inherits them and creates its client over a `BrokerModel`.

`harness` yields (admin, model, forbid): `forbid(error)` makes the permit raise from then on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import pytest

from bundlekeel.model.errors import (
    AdminApiError,
    AdminFault,
    AdminRefused,
    AdminUnauthorized,
    AdminUnreachable,
    BundlekeelError,
    LeadershipLost,
)
from bundlekeel.model.load import Floats
from bundlekeel.model.names import parse_topic
from bundlekeel.planning.guard.rate import ClientSigns
from bundlekeel.ports import BrokerAdmin, TopicCounters, TopicLoad
from bundlekeel.ports.commands import BrokerCommands
from tests.support.memory_admin import SHEDDING, BrokerModel, UnloadSeen

BUNDLE = "public/default/0x00000000_0x40000000"
OTHER = "public/default/0x40000000_0x80000000"
TOPIC = "persistent://public/default/a b+ä"
HOT = TopicLoad(
    topic="persistent://public/default/hot", hash=0x10000000, traffic=(5.0, 10.0, 500.0, 1000.5), sessions=3
)
COLD = TopicLoad(topic="persistent://public/default/cold", hash=0x30000000)
UNKNOWN_BUNDLE = "public/default/0x00000000_0x30000000"


class Recorder:
    """`ports.Telemetry` that stores counters by name and labels."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, tuple[tuple[str, str], ...]]] = Counter()
        self.timed: list[tuple[str, float]] = []

    def count(self, name: str, amount: float = 1.0, **labels: str) -> None:
        self.counts[name, tuple(sorted(labels.items()))] += int(amount)

    def gauge(self, name: str, value: float, **labels: str) -> None:
        """Not used here."""

    def time(self, name: str, seconds: float, **_labels: str) -> None:
        self.timed.append((name, seconds))

    def table(self, name: str, rows: Sequence[str], values: Floats, columns: Sequence[str] = ()) -> None:
        """Not used here."""

    def retain(self, name: str, label: str, values: set[str]) -> None:
        """Not used here."""

    def content_type(self, accept: str) -> str:
        """Return nothing."""
        return ""

    def render(self, accept: str) -> tuple[bytes, str]:
        return b"", accept

    def total(self, name: str, **labels: str) -> int:
        """Return the sum of a counter over all series with these labels."""
        pairs = set(labels.items())
        return sum(n for (key, have), n in self.counts.items() if key == name and pairs <= set(have))


class Permit:
    """A permit that can be withdrawn."""

    def __init__(self) -> None:
        self.error: BundlekeelError | None = None
        self.asked = 0

    def __call__(self) -> None:
        self.asked += 1
        if self.error is not None:
            raise self.error


class Admin(BrokerAdmin, BrokerCommands, TopicCounters, Protocol):
    """Reads and commands."""


@dataclass(frozen=True, kw_only=True)
class Harness:
    """A client of a model of three brokers. The first broker leads, the second owns `BUNDLE`."""

    admin: Admin
    model: BrokerModel
    permit: Permit


def fill(model: BrokerModel) -> None:
    """Bring the model into the state in which every test starts."""
    model.add(BUNDLE, model.brokers[1], TOPIC)
    model.add(OTHER, None, "persistent://public/default/unowned")


class AdminContract:
    """The tests. A subclass provides the fixture `harness`."""

    async def test_unload_follows_leader_then_owner(self, harness: Harness) -> None:
        """An unload with a destination goes to the leader, then to the owner, without the destination."""
        leader, owner, third = harness.model.brokers
        answer = await harness.admin.unload(BUNDLE, destination=third, at=third, permit=harness.permit)
        assert (answer.status, answer.hops) == (204, (third, leader, owner))
        assert harness.model.unloads == [
            UnloadSeen(at=third, bundle=BUNDLE, destination=third),
            UnloadSeen(at=leader, bundle=BUNDLE, destination=third),
            UnloadSeen(at=owner, bundle=BUNDLE, destination=None),
        ]
        assert await harness.model.owner(BUNDLE) is None
        assert harness.model.affinity == {BUNDLE: third}

    async def test_claim_takes_an_unowned_bundle(self, harness: Harness) -> None:
        """An authoritative lookup makes the requested broker the owner of an unowned bundle."""
        third = harness.model.brokers[2]
        assert (
            await harness.admin.claim("persistent://public/default/unowned", broker_id=third, permit=harness.permit)
            == third
        )
        assert harness.model.owners[OTHER].broker_id == third

    async def test_claim_names_the_owner_it_found(self, harness: Harness) -> None:
        """A claim of an owned bundle changes nothing and names its owner."""
        _, owner, third = harness.model.brokers
        assert await harness.admin.claim(TOPIC, broker_id=third, permit=harness.permit) == owner
        assert harness.model.owners[BUNDLE].broker_id == owner

    async def test_topics(self, harness: Harness) -> None:
        """Topics come with full names, odd characters included; an unowned bundle is refused, not assigned."""
        owner = harness.model.brokers[1]
        assert await harness.admin.topics_of_bundle(BUNDLE, owner) == [TOPIC]
        with pytest.raises(AdminRefused):
            await harness.admin.topics_of_bundle(OTHER, owner)
        assert OTHER not in harness.model.owners

    async def test_topic_loads(self, harness: Harness) -> None:
        """Topics come with the broker's hashes and what its statistics say; without any they carry nothing."""
        owner = harness.model.brokers[1]
        harness.model.add_loads(BUNDLE, HOT)
        idle = TopicLoad(topic=TOPIC, hash=parse_topic(TOPIC).hash)
        assert await harness.admin.topic_loads(BUNDLE, owner) == sorted([HOT, idle], key=lambda load: load.topic)
        with pytest.raises(AdminRefused):
            await harness.admin.topic_loads(OTHER, owner)
        assert OTHER not in harness.model.owners

    async def test_bundle_loads(self, harness: Harness) -> None:
        """Every bundle the asked broker serves with what its topics carry together; another's are not in it."""
        first, owner, third = harness.model.brokers
        harness.model.add_loads(BUNDLE, HOT, COLD)
        harness.model.add_loads(OTHER, replace(HOT, topic="persistent://public/default/elsewhere"))
        harness.model.own(OTHER, third)
        loads = await harness.admin.bundle_loads(owner)
        assert loads.names == (BUNDLE,)
        assert loads.traffic.tolist() == [list(HOT.traffic)]
        assert (loads.counts.tolist(), loads.faults) == ([[2, 0, 3]], ())
        assert (await harness.admin.bundle_loads(third)).names == (OTHER,)
        assert (await harness.admin.bundle_loads(first)).names == ()
        with pytest.raises(AdminUnreachable):
            await harness.admin.bundle_loads("10.9.9.9:8080")

    async def test_cpu_load(self, harness: Harness) -> None:
        """A broker reports the CPU load of its JVM. Without a measurement it is a fault, and an unregistered broker
        gets no request.
        """
        first, owner, _ = harness.model.brokers
        harness.model.cpu[owner] = 0.75
        assert await harness.admin.cpu_load(owner) == 0.75
        with pytest.raises(AdminFault, match="CPU load"):
            await harness.admin.cpu_load(first)
        with pytest.raises(AdminUnreachable):
            await harness.admin.cpu_load("10.9.9.9:8080")

    async def test_cpu_seconds(self, harness: Harness) -> None:
        """A broker whose JVM does not report them is a fault, one that is not registered is unreachable."""
        first, owner, _ = harness.model.brokers
        harness.model.cpu[owner] = 0.75
        assert await harness.admin.cpu_seconds(owner) == 0.75
        with pytest.raises(AdminFault, match="CPU"):
            await harness.admin.cpu_seconds(first)
        with pytest.raises(AdminUnreachable):
            await harness.admin.cpu_seconds("10.9.9.9:8080")

    async def test_counters(self, harness: Harness) -> None:
        """A broker reports its process and the counters of its topics since they were loaded. A missing value is a
        fault.
        """
        first, owner, third = harness.model.brokers
        harness.model.counted = {owner: {TOPIC: (1.0, 2.0, 3.0, 4.5, 5.0, 6.0)}, third: {}}
        harness.model.cpu |= {owner: 0.75, third: 0.5}
        endpoints = harness.model.endpoints()
        (counters,) = await harness.admin.counters(endpoints[owner])
        assert (counters.namespaces, counters.namespace.tolist()) == (("public/default",), [0])
        assert counters.hashes.tolist() == [parse_topic(TOPIC).hash]
        assert (counters.counters.tolist(), counters.sessions.tolist()) == ([[1.0, 2.0, 3.0, 4.5]], [[5, 6]])
        assert counters.cpu_seconds == 0.75
        assert counters.from_ms <= counters.to_ms
        (empty,) = await harness.admin.counters(endpoints[third])
        assert (empty.namespaces, empty.counters.shape) == ((), (0, 4))
        with pytest.raises(AdminApiError):
            await harness.admin.counters(endpoints[first])
        # A broker that is not registered gets no token.
        with pytest.raises((AdminUnreachable, AdminUnauthorized)):
            await harness.admin.counters(replace(endpoints[first], broker_id="10.9.9.9:8080"))

    async def test_client_signs(self, harness: Harness) -> None:
        """A broker reports errors of its clients; a missing value is a fault. An extensible broker gets no request."""
        first, owner, third = harness.model.brokers
        harness.model.signs[owner] = ClientSigns(latency_ms=2.5, failures=3, connections=40, lookups_failed=7)
        harness.model.signs[third] = ClientSigns(connections=1)
        assert await harness.admin.client_signs(owner) == harness.model.signs[owner]
        assert await harness.admin.client_signs(third) == ClientSigns(
            latency_ms=None, failures=0, connections=1, lookups_failed=None
        )
        with pytest.raises(AdminFault, match="connection"):
            await harness.admin.client_signs(first)
        with pytest.raises(AdminUnreachable):
            await harness.admin.client_signs("10.9.9.9:8080")
        kind = "org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl"
        endpoints = harness.model.endpoints()
        harness.admin.set_endpoints({**endpoints, owner: replace(endpoints[owner], load_manager=kind)})
        with pytest.raises(AdminRefused, match="averages"):
            await harness.admin.client_signs(owner)

    async def test_owned_bundles(self, harness: Harness) -> None:
        """All bundles of a broker, those without topics included. Another cluster's name and unknown brokers are
        refused.
        """
        first, owner, _ = harness.model.brokers
        bare = "public/default/0xc0000000_0xffffffff"
        harness.model.add(bare, owner)
        assert await harness.admin.owned_bundles(owner, "local") == [BUNDLE, bare]
        assert await harness.admin.owned_bundles(first, "local") == []
        with pytest.raises(AdminRefused):
            await harness.admin.owned_bundles(owner, "elsewhere")
        with pytest.raises(AdminUnreachable):
            await harness.admin.owned_bundles("10.9.9.9:8080", "local")

    async def test_split_at_given_positions(self, harness: Harness) -> None:
        """A split follows to the owner with its positions; the children stay there."""
        _, owner, third = harness.model.brokers
        harness.model.add_loads(BUNDLE, HOT, COLD)
        answer = await harness.admin.split(BUNDLE, positions=[0x20000000], at=third, permit=harness.permit)
        assert (answer.status, answer.hops) == (204, (third, owner))
        assert [(split.at, split.positions) for split in harness.model.splits] == [
            (third, (0x20000000,)),
            (owner, (0x20000000,)),
        ]
        children = ("public/default/0x00000000_0x20000000", "public/default/0x20000000_0x40000000")
        assert {b: o.broker_id for b, o in harness.model.owners.items()} == dict.fromkeys(children, owner)

    async def test_j08_split_in_the_middle(self, harness: Harness) -> None:
        """Without positions the broker halves the range, also of a bundle without two topics."""
        _, owner, third = harness.model.brokers
        answer = await harness.admin.split(BUNDLE, positions=None, at=third, permit=harness.permit)
        assert (answer.status, answer.hops) == (204, (third, owner))
        children = ("public/default/0x00000000_0x20000000", "public/default/0x20000000_0x40000000")
        assert {b: o.broker_id for b, o in harness.model.owners.items()} == dict.fromkeys(children, owner)

    async def test_a_split_without_effect_is_a_success(self, harness: Harness) -> None:
        """One topic, or no position inside: the broker answers 204 and splits nothing."""
        owner = harness.model.brokers[1]
        assert (
            await harness.admin.split(BUNDLE, positions=[0x20000000], at=owner, permit=harness.permit)
        ).status == 204
        harness.model.add_loads(BUNDLE, HOT)
        assert (
            await harness.admin.split(BUNDLE, positions=[0x50000000], at=owner, permit=harness.permit)
        ).status == 204
        assert list(harness.model.owners) == [BUNDLE]
        with pytest.raises(AdminRefused):
            await harness.admin.split(BUNDLE, positions=[], at=owner, permit=harness.permit)

    async def test_dynamic_configuration_round_trip(self, harness: Harness) -> None:
        """An override is stored, seen at each broker, and gone after its removal."""
        admin, brokers = harness.admin, harness.model.brokers
        assert await admin.dynamic_configuration() == {}
        await admin.set_dynamic(SHEDDING, "false", permit=harness.permit)
        assert await admin.dynamic_configuration() == {SHEDDING: "false"}
        assert [(await admin.runtime_configuration(b))[SHEDDING] for b in brokers] == ["false"] * 3
        await admin.delete_dynamic(SHEDDING, permit=harness.permit)
        assert await admin.dynamic_configuration() == {}
        with pytest.raises(AdminRefused, match="non-dynamic"):
            await admin.set_dynamic("zookeeperServers", "x", permit=harness.permit)

    @pytest.mark.parametrize(
        "act",
        [
            lambda h: h.admin.unload(BUNDLE, destination=None, at=h.model.brokers[1], permit=h.permit),
            lambda h: h.admin.claim(
                "persistent://public/default/unowned", broker_id=h.model.brokers[0], permit=h.permit
            ),
            lambda h: h.admin.split(BUNDLE, positions=[0x20000000], at=h.model.brokers[1], permit=h.permit),
            lambda h: h.admin.set_dynamic(SHEDDING, "false", permit=h.permit),
            lambda h: h.admin.delete_dynamic(SHEDDING, permit=h.permit),
        ],
        ids=["unload", "claim", "split", "set_dynamic", "delete_dynamic"],
    )
    async def test_nothing_mutates_without_permit(
        self, harness: Harness, act: Callable[[Harness], Awaitable[object]]
    ) -> None:
        """When the permit raises, its error comes out and no mutation reaches a broker."""
        harness.permit.error = LeadershipLost("our epoch is over")
        owners = dict(harness.model.owners)
        with pytest.raises(LeadershipLost):
            await act(harness)
        assert (harness.model.unloads, harness.model.dynamic, harness.model.owners) == ([], {}, owners)
        assert harness.model.splits == []

    async def test_reads_need_no_permit(self, harness: Harness) -> None:
        """Reads on the allow-list never ask for a permit."""
        first, owner, _ = harness.model.brokers
        harness.permit.error = LeadershipLost("our epoch is over")
        await harness.admin.runtime_configuration(first)
        await harness.admin.dynamic_configuration()
        await harness.admin.topics_of_bundle(BUNDLE, owner)
        await harness.admin.topic_loads(BUNDLE, owner)
        await harness.admin.bundle_loads(owner)
        await harness.admin.owned_bundles(owner, "local")
        harness.model.cpu[owner] = 0.5
        await harness.admin.cpu_load(owner)
        await harness.admin.cpu_seconds(owner)
        harness.model.counted[owner] = {}
        await harness.admin.counters(harness.model.endpoints()[owner])
        assert harness.permit.asked == 0

    async def test_refusals_are_typed(self, harness: Harness) -> None:
        """A broker's no carries status and reason."""
        leader = harness.model.brokers[0]
        with pytest.raises(AdminRefused) as inactive:
            await harness.admin.unload(BUNDLE, destination="10.9.9.9:8080", at=leader, permit=harness.permit)
        assert inactive.value.status == 409
        with pytest.raises(AdminRefused) as unknown:
            await harness.admin.unload(UNKNOWN_BUNDLE, destination=None, at=leader, permit=harness.permit)
        assert unknown.value.status == 412
        assert "Invalid upper boundary" in unknown.value.reason

    async def test_only_registered_brokers_are_called(self, harness: Harness) -> None:
        """A broker that is not registered is unreachable: nothing leaves."""
        with pytest.raises(AdminUnreachable):
            await harness.admin.claim(TOPIC, broker_id="10.9.9.9:8080", permit=harness.permit)
        with pytest.raises(AdminUnreachable):
            await harness.admin.unload(BUNDLE, destination=None, at="10.9.9.9:8080", permit=harness.permit)
        harness.admin.set_endpoints({})
        with pytest.raises(AdminUnreachable):
            await harness.admin.runtime_configuration(harness.model.brokers[0])
        assert harness.model.unloads == []
