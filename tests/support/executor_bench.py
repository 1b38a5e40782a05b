"""An executor over brokers, store and clock in memory, for tests of moves."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Self

from bundlekeel.leader.execution.executor import ExecutorHooks, TermExecutor
from bundlekeel.leader.execution.intents import MoveOutcome, MoveRequest
from bundlekeel.leader.execution.move import ExecutorLimits, LeaderTerm, MovePorts
from bundlekeel.model.errors import StoreError
from bundlekeel.model.members import Member
from bundlekeel.ports import DocumentChange, commands
from bundlekeel.ports.commands import UnloadAnswer
from tests.support.contracts.admin import Permit
from tests.support.extensible_brokers import ExtensibleModel
from tests.support.memory_admin import BrokerModel, MemoryAdmin
from tests.support.memory_coordination import MemoryCoordination, MemoryStore
from tests.support.memory_source import MemoryMetadata

A, B, C = "b1:8080", "b2:8080", "b3:8080"
BUNDLE = "t/n/0x00000000_0x40000000"
TOPIC = "persistent://t/n/orders"


class VirtualClock:
    """A virtual clock. When no task can run, the time advances to the end of the next sleep."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._wakes: list[float] = []

    def boot(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return int(self.now * 1000)

    async def sleep(self, seconds: float) -> None:
        wake = self.now + max(0.0, seconds)
        self._wakes.append(wake)
        try:
            while True:
                for _ in range(20):
                    await asyncio.sleep(0)
                if self.now >= wake:
                    return
                if min(self._wakes) == wake:
                    self.now = wake
        finally:
            self._wakes.remove(wake)


class World:
    """Three brokers, a store and a clock in memory, and the sidecar that leads epoch 1."""

    def __init__(
        self,
        mode: str,
        model: type[ExtensibleModel] = ExtensibleModel,
        coordination: type[MemoryCoordination] = MemoryCoordination,
    ) -> None:
        self.mode = mode
        self.model = (model if mode == "extensible" else BrokerModel)([A, B, C])
        self.permit = Permit()
        self.admin = MemoryAdmin(self.model)
        self.admin.set_endpoints(self.model.endpoints())
        self.store = MemoryStore()
        self.coordination = coordination(self.store)
        self.metadata = MemoryMetadata()
        self.clock = VirtualClock()

    @property
    def term(self) -> LeaderTerm:
        """Epoch 1, with the permit as it is now."""
        return LeaderTerm(epoch=1, member="m1", permit=self.permit)

    def ports(self) -> MovePorts:
        """Return the ports of a move or a split."""
        return MovePorts(
            admin=self.admin,
            commands=self.admin,
            coordination=self.coordination,
            ownership=self.model,
            metadata=self.metadata,
            clock=self.clock,
            load_manager=lambda: self.mode,
        )

    async def lead(self) -> Self:
        """Connect and win epoch 1."""
        await self.coordination.start()
        assert await self.coordination.campaign(Member(id="m1")) == 1
        return self

    async def depose(self) -> MemoryCoordination:
        """Make another sidecar the leader, with epoch 2, and return its connection to the store."""
        other = MemoryCoordination(self.store)
        await other.start()
        self.store.expire(self.coordination)
        assert await other.campaign(Member(id="m2")) == 2
        return other


class LosesAnAnswer(MemoryCoordination):
    """A store whose first fenced write takes effect, but whose response is lost."""

    broken = False

    async def write_fenced(self, epoch: int, changes: Sequence[DocumentChange]) -> None:
        await super().write_fenced(epoch, changes)
        if not self.broken:
            self.broken = True
            raise StoreError("connection lost")


class Bench(World):
    """An executor of the leader of epoch 1, and three brokers: A leads Pulsar's load manager, B owns the bundle."""

    def __init__(self, limits: ExecutorLimits | None = None, mode: str = "modular") -> None:
        super().__init__(mode)
        self.limits = limits or ExecutorLimits()
        self.model.add(BUNDLE, B, TOPIC, "non-persistent://t/n/a", "persistent://t/n/__change_events")
        self.metadata.leader = A
        self.heard: list[MoveOutcome] = []
        self.executor = self.build()

    def build(self, **hooks: object) -> TermExecutor:
        """Return another executor with the same brokers, store and clock."""
        given_hooks = ExecutorHooks(on_outcome=self.heard.append, **hooks)  # type: ignore[arg-type]
        return TermExecutor(self.ports(), self.term, limits=self.limits, hooks=given_hooks)

    async def move(self, source: str = B, destination: str = C) -> MoveOutcome:
        """Move the bundle."""
        return await self.executor.move(
            MoveRequest(bundle=BUNDLE, source=source, destination=destination, cycle_id="9")
        )

    async def execute(self, requests: Sequence[MoveRequest]) -> list[MoveOutcome]:
        """Execute these moves in parallel."""
        return await asyncio.gather(*map(self.executor.move, requests))

    def unloads(self) -> int:
        """Return the number of unloads. A redirected unload counts once."""
        return sum(call[0] == "unload" for call in self.admin.calls)

    async def intents(self) -> list[str]:
        """Return the paths of the stored intents."""
        return [document.path for document in await self.coordination.read_tree("intents")]


class SlowAdmin(MemoryAdmin):
    """Brokers whose unloads take a second. It records the largest number of parallel unloads."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench.model)
        self.set_endpoints(bench.model.endpoints())
        self._clock = bench.clock
        self.running: set[str] = set()
        self.together: list[frozenset[str]] = []

    async def unload(self, bundle: str, *, destination: str | None, at: str, permit: commands.Permit) -> UnloadAnswer:
        self.running.add(bundle)
        self.together.append(frozenset(self.running))
        await self._clock.sleep(1.0)
        self.running.discard(bundle)
        return await super().unload(bundle, destination=destination, at=at, permit=permit)


def fleet(bench: Bench) -> list[MoveRequest]:
    """Return moves of twelve bundles of three namespaces, from all brokers to all brokers."""
    requests = []
    brokers = [A, B, C]
    for number, namespace in enumerate(["t/n1", "t/n2", "t/n3"]):
        for low in range(4):
            upper = "0xffffffff" if low == 3 else f"0x{low + 1:x}0000000"
            bundle = f"{namespace}/0x{low:x}0000000_{upper}"
            source, destination = brokers[low % 3], brokers[(low + 1 + number) % 3]
            if source == destination:
                destination = brokers[(low + 1) % 3]
            bench.model.add(bundle, source, f"persistent://{namespace}/t{low}")
            requests.append(MoveRequest(bundle=bundle, source=source, destination=destination))
    return requests
