"""Reading how clients fare: the answer of a broker, whom it asks, and what the guard makes of it."""

from __future__ import annotations

import json
from collections import deque
from typing import Any

import pytest

from bundlekeel.leader.gate.guard_state import GuardMemory, list_moved_brokers
from bundlekeel.model.errors import AdminFault, CodecError
from bundlekeel.model.load import BrokerEndpoint
from bundlekeel.planning.guard.rate import ClientSigns
from bundlekeel.planning.guard.state import GuardState
from bundlekeel.planning.ledger import Ledger
from bundlekeel.ports import RawClusterView
from bundlekeel.pulsar.formats.broker_metrics import decode_lookup_failures, decode_signs
from bundlekeel.pulsar.sources.rate_signals import MOST, RateSignals
from tests.support.builders import NOW_MS
from tests.support.memory_admin import BrokerModel, Fault, MemoryAdmin
from tests.support.memory_source import RealClock


def body(*groups: dict[str, Any]) -> bytes:
    """An answer with these groups of figures."""
    return json.dumps([{"metrics": group, "dimensions": {"cluster": "c"}} for group in groups]).encode()


OPENED = {"brk_connection_created_total_count": 40, "brk_connection_create_fail_count": 2}


def test_an_answer() -> None:
    """Latency is the mean over all namespaces, by the middles of its buckets; failures and connections are summed."""
    first = {"brk_AddEntryLatencyBuckets_0.0_0.5": 3.0, "brk_AddEntryLatencyBuckets_5.0_10.0": 1.0}
    second = {"brk_AddEntryLatencyBuckets_1000.0_OVERFLOW": 1.0, "brk_ml_EntrySizeBuckets_0.0_128.0": 9.0}
    signs = decode_signs(body(first, second, OPENED, {"brk_topic_load_failed_count": 5.0}))
    assert signs.latency_ms == pytest.approx((3 * 0.25 + 7.5 + 1000) / 5)
    assert (signs.failures, signs.connections) == (7, 40)


def test_an_idle_broker_has_no_latency() -> None:
    """Buckets without anything in them tell none."""
    assert decode_signs(body({"brk_AddEntryLatencyBuckets_0.0_0.5": 0.0}, OPENED)).latency_ms is None


@pytest.mark.parametrize("bad", [b"", b"{}", b"[1]", b"\xff", b"[" * 5000, body({"other": 1})])
def test_what_is_no_answer(bad: bytes) -> None:
    with pytest.raises(CodecError):
        decode_signs(bad)


def test_odd_figures_count_as_nothing() -> None:
    """Text, negative and absurd figures of one group do not spoil the others."""
    odd = {"brk_topic_load_failed_count": "many", "brk_connection_create_fail_count": -5}
    assert decode_signs(body(odd, OPENED)) == ClientSigns(failures=2, connections=40)


@pytest.mark.parametrize(
    ("page", "failed"),
    [
        (b'# TYPE x counter\npulsar_broker_lookup_failures_total{cluster="a\\"b"} 1.2E3\nother 1\n', 1200),
        (b"pulsar_broker_lookup_failures_total 4.0\n", 4),
        (b"pulsar_broker_lookup_failures_created 1.79E9\n", None),
        (b"my_pulsar_broker_lookup_failures_total 4.0\n", None),
        (b"pulsar_broker_lookup_failures_total eee\n", None),
        (b"pulsar_broker_lookup_failures_total 1e999\n", None),
        (b"", None),
    ],
)
def test_failed_lookups_on_the_page_of_prometheus(page: bytes, failed: int | None) -> None:
    assert decode_lookup_failures(page) == failed


class Looking:
    """Signals over fake brokers."""

    def __init__(self, count: int = 2, mode: str = "modular") -> None:
        self.model = BrokerModel([f"b{index:03d}:8080" for index in range(count)])
        self.model.signs = {broker: ClientSigns(latency_ms=5.0) for broker in self.model.brokers}
        self.admin = MemoryAdmin(self.model)
        self.admin.set_endpoints(self.model.endpoints())
        self.mode = mode
        self.clock = _Clock()
        self.concerned = set(self.model.brokers[:1])
        self.signals = RateSignals(
            self.admin,
            self.clock,
            picture=self.picture,
            concerned=lambda: self.concerned,
            ceiling=lambda: 10,
            every_seconds=30.0,
        )

    def picture(self) -> RawClusterView:
        endpoints: dict[str, BrokerEndpoint] = dict(self.model.endpoints())
        return RawClusterView(wall_ms=NOW_MS, boot=0.0, generation=1, mode=self.mode, reports=(), endpoints=endpoints)

    async def look(self, times: int = 1) -> None:
        """Looks, half a minute apart."""
        for _ in range(times):
            await self.signals.look()
            self.clock.now += 30.0


class _Clock(RealClock):
    now = 0.0

    def boot(self) -> float:
        return self.now


async def test_the_guard_hears_of_it() -> None:
    """A broker that took bundles answers more slowly: the next plans make half the moves."""
    looking = Looking()
    await looking.look(3)
    guard_memory = GuardMemory(deque[dict[str, Any]], None, lambda: looking.signals.moves)
    assert guard_memory.state(GuardState(), Ledger(), NOW_MS).rate is None
    looking.model.signs["b000:8080"] = ClientSigns(latency_ms=300.0)
    await looking.look()
    assert guard_memory.state(GuardState(), Ledger(), NOW_MS).rate == 5


async def test_failed_lookups_are_a_sign() -> None:
    looking = Looking()
    for failed in (0, 3, None, 900, 4):
        looking.model.signs["b000:8080"] = ClientSigns(latency_ms=5.0, lookups_failed=failed)
        await looking.look()
        assert looking.signals.moves is None
    looking.model.signs["b000:8080"] = ClientSigns(latency_ms=5.0, lookups_failed=94)
    await looking.look()
    assert looking.signals.moves == 5
    assert "3.0 failed lookups a second" in looking.signals.memory.reason


async def test_a_broker_that_does_not_answer_is_no_sign() -> None:
    """Whoever says nothing is neither better nor worse."""
    looking = Looking()
    await looking.look(3)
    looking.admin.fail("client_signs", *[Fault(error=AdminFault("500"))] * 2)
    await looking.look()
    assert looking.signals.moves is None


async def test_extensible_brokers_are_never_asked() -> None:
    looking = Looking(mode="extensible")
    looking.admin.fail("client_signs", Fault(error=AssertionError("asked")))
    await looking.look(3)
    assert looking.signals.memory.last == {}
    assert looking.signals.moves is None


async def test_of_many_brokers_those_concerned_are_asked_each_time() -> None:
    looking = Looking(count=2 * MOST + 10)
    looking.concerned = {"b109:8080"}
    sizes, all_asked = [], set[str]()
    for _ in range(3):
        before = dict(looking.signals.memory.last)
        await looking.look()
        request = {broker for broker, item in looking.signals.memory.last.items() if before.get(broker) != item}
        assert "b109:8080" in request
        sizes.append(len(request))
        all_asked |= request
    assert sizes == [MOST] * 3
    assert all_asked == set(looking.model.brokers)


def test_concerned_are_those_of_late() -> None:
    records = deque(
        [
            {"source": "a", "landed_on": "b", "landed_ms": NOW_MS - 100, "outcome": "done"},
            {"source": "c", "destination": "d", "landed_ms": 0, "started_ms": NOW_MS, "outcome": "refused"},
            {"source": "e", "destination": "f", "landed_ms": 0, "started_ms": NOW_MS, "outcome": "unknown"},
        ]
    )
    assert list_moved_brokers(records, NOW_MS - 99) == {"e", "f"}
    assert list_moved_brokers(records, NOW_MS - 100) == {"a", "b", "e", "f"}


@pytest.mark.parametrize("limits", ["1.2.3_5", "..._5", "0.5_1.2.3", f"{'9' * 400}_5", f"0.5_{'9' * 5000}"])
def test_s07_a_bucket_with_an_unusual_name_is_skipped(limits: str) -> None:
    signs = decode_signs(
        body({f"brk_AddEntryLatencyBuckets_{limits}": 5.0, "brk_AddEntryLatencyBuckets_5.0_10.0": 1.0}, OPENED)
    )
    assert signs.latency_ms == pytest.approx(7.5)


class _Breaking(MemoryAdmin):
    """Raises CodecError for some brokers."""

    broken: frozenset[str] = frozenset()

    async def client_signs(self, broker_id: str) -> ClientSigns:
        if broker_id in self.broken:
            raise CodecError("the name of a metric cannot be read", code="WrongType")
        return await super().client_signs(broker_id)


async def test_s07_a_broker_that_cannot_be_read_does_not_hide_the_others() -> None:
    looking = Looking(3)
    admin = _Breaking(looking.model)
    admin.set_endpoints(looking.model.endpoints())
    admin.broken = frozenset({"b002:8080"})
    looking.signals = RateSignals(
        admin,
        looking.clock,
        picture=looking.picture,
        concerned=lambda: looking.concerned,
        ceiling=lambda: 10,
        every_seconds=30.0,
    )
    await looking.look(3)
    assert looking.signals.moves is None and looking.signals.memory.usual.keys() == {"b000:8080", "b001:8080"}
    looking.concerned = {"b002:8080"}
    await looking.look()
    assert looking.signals.moves == 5, "nothing is known of the broker that took bundles"


async def test_s07_without_a_completed_look_one_move_a_cycle_is_left() -> None:
    looking = Looking()
    await looking.look()
    assert looking.signals.moves is None
    looking.clock.now += 60.0
    assert looking.signals.moves is None
    looking.clock.now += 60.0
    assert looking.signals.moves == 1
    await looking.look()
    assert looking.signals.moves is None
