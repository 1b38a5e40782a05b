"""Complete sidecars with in-memory brokers and an in-memory store, in virtual time, with faults and witnesses.

The witnesses do not depend on the sidecars: the store records the intents and leaders, the brokers record the calls
that they receive.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar
from urllib.parse import unquote

from bundlekeel.leader.execution.intents import INTENTS, decode_intent
from bundlekeel.leader.execution.move import ExecutorLimits
from bundlekeel.model.errors import AdminFault, AdminRefused, AdminTimeout, AdminUnreachable, StoreError
from bundlekeel.model.members import Member
from bundlekeel.ports import Document, DocumentChange
from bundlekeel.ports.commands import Permit, UnloadAnswer, by_person
from tests.support.chaos.history import Attempt, Intent, OperatorRequest, Stop, Term, Verb, Verdict
from tests.support.memory_admin import MemoryAdmin
from tests.support.memory_coordination import MemoryCoordination, MemoryStore, _Node
from tests.support.virtual_time import LoopClock, MachineClock
from tests.support.world import BROKERS, FakeCluster, FakeSidecar, TestClock, with_params

T = TypeVar("T")
SESSION_SECONDS = 6.0
CONNECT_SECONDS, READ_SECONDS, CONFIRM_SECONDS = 3.0, 3.0, 3.0
COOL_DOWN_SECONDS = 12.0
INTERVAL_SECONDS = 5.0
_LATENCY_SECONDS = 0.005
_AGAIN_SECONDS = 0.2
LOADS = {BROKERS[0]: [0.2, 0.15, 0.12, 0.1, 0.08, 0.06], BROKERS[1]: [0.05, 0.04, 0.03], BROKERS[2]: [0.04, 0.03, 0.02]}
EAGER = with_params(
    cool_down_seconds=COOL_DOWN_SECONDS,
    statistics_interval_seconds=2.0,
    host_usage_interval_seconds=2.0,
    max_moves_per_cycle=6,
    max_moves_per_source=6,
    max_moves_per_target=6,
    max_moves_per_namespace=6,
)


@dataclass
class Witness:
    """The events that the store and the brokers have seen."""

    clock: LoopClock
    attempts: list[Attempt] = field(default_factory=list)
    intents: list[Intent] = field(default_factory=list)
    terms: list[Term] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)
    requests: list[OperatorRequest] = field(default_factory=list)
    announced: asyncio.Event = field(default_factory=asyncio.Event)

    def seen(self, changes: Sequence[DocumentChange]) -> None:
        """Record a transaction of the store that took effect."""
        now = self.clock.boot()
        for change in changes:
            if change.path.rpartition("/")[0] != INTENTS:
                continue
            bundle = unquote(change.path.rpartition("/")[2])
            if change.data is not None:
                id_ = decode_intent(Document(path=change.path, data=change.data, version=0)).id
                self.intents.append(Intent(bundle=bundle, begun=now, id=id_))
                self.announced.set()
                continue
            place = next(n for n, item in enumerate(self.intents) if item.bundle == bundle and item.ended is None)
            self.intents[place] = Intent(**_fields(self.intents[place]) | {"ended": now})

    def led(self, member: str, epoch: int) -> None:
        """Record that a leader's node was created."""
        self.terms.append(Term(epoch=epoch, member=member, begun=self.clock.boot()))

    def led_no_more(self) -> None:
        """Record that the leader's node was deleted."""
        if self.terms and self.terms[-1].ended is None:
            self.terms[-1] = Term(**_fields(self.terms[-1]) | {"ended": self.clock.boot()})


def _fields(item: Any) -> dict[str, Any]:
    return {name: getattr(item, name) for name in item.__slots__}


class WitnessStore(MemoryStore):
    """A store that reports each new leader to the witness."""

    def __init__(self, witness: Witness) -> None:
        super().__init__()
        self.witness = witness

    def _put(self, path: str, node: _Node | None) -> None:
        super()._put(path, node)
        if path == "leader":
            self.witness.led_no_more()


@dataclass
class Life:
    """The state of one process: whether it runs, and the faults of its connections. `lost`: number of the store's next
    responses that do not arrive, although the requests take effect.
    """

    running: asyncio.Event = field(default_factory=asyncio.Event)
    lost: int = 0

    async def go(self) -> None:
        """Wait while the process is stopped."""
        await self.running.wait()


class FarStore(MemoryCoordination):
    """A connection to the store with a short delay. The process can be stopped before and after each request."""

    def __init__(self, store: WitnessStore, life: Life) -> None:
        super().__init__(store, session_seconds=SESSION_SECONDS)
        self._life, self._witness = life, store.witness

    async def _enter(self) -> None:
        await self._life.go()
        await asyncio.sleep(_LATENCY_SECONDS if self.connected else _AGAIN_SECONDS)
        await super()._enter()

    async def _answer(self) -> None:
        await asyncio.sleep(_LATENCY_SECONDS)
        await self._life.go()
        if self._life.lost:
            self._life.lost -= 1
            raise StoreError("the answer is lost")

    async def write_fenced(self, epoch: int, changes: Sequence[DocumentChange]) -> None:
        await super().write_fenced(epoch, changes)
        self._witness.seen(changes)
        await self._answer()

    async def campaign(self, member: Member) -> int | None:
        epoch = await super().campaign(member)
        if epoch is not None:
            self._witness.led(member.id, epoch)
        await self._answer()
        return epoch

    async def still_leading(self, epoch: int) -> bool:
        leads = await super().still_leading(epoch)
        await self._answer()
        return leads

    async def read(self, path: str) -> Document | None:
        node = await super().read(path)
        await self._answer()
        return node


class FarBrokers(MemoryAdmin):
    """A slow connection to the brokers. A call that has arrived there continues even if its caller ends."""

    def __init__(self, sidecar: ChaosSidecar) -> None:
        super().__init__(sidecar.world.model)
        self._sidecar = sidecar
        self._there = MemoryAdmin(sidecar.world.model)

    async def runtime_configuration(self, broker_id: str) -> dict[str, str]:
        await self._sidecar.life.go()
        return await super().runtime_configuration(broker_id)

    async def topics_of_bundle(self, bundle: str, owner: str) -> list[str]:
        await asyncio.sleep(self._sidecar.world.read_seconds)
        await self._sidecar.life.go()
        return await super().topics_of_bundle(bundle, owner)

    async def unload(self, bundle: str, *, destination: str | None, at: str, permit: Permit) -> UnloadAnswer:
        return await self._ask(
            "unload",
            bundle,
            lambda: self._there.unload(bundle, destination=destination, at=at, permit=by_person),
            permit,
            faulty=True,
            destination=destination or "",
        )

    async def claim(self, topic: str, *, broker_id: str, permit: Permit) -> str:
        bundle = self._sidecar.world.model.bundle_of(topic) or ""
        return await self._ask(
            "claim", bundle, lambda: self._there.claim(topic, broker_id=broker_id, permit=by_person), permit
        )

    async def _ask(
        self,
        verb: Verb,
        bundle: str,
        work: Callable[[], Awaitable[T]],
        permit: Permit,
        *,
        faulty: bool = False,
        destination: str = "",
    ) -> T:
        world, life = self._sidecar.world, self._sidecar.life
        await self._connect()
        fault = world.admin_faults.popleft() if faulty and world.admin_faults else "none"
        if fault == "unreachable":
            raise AdminUnreachable("connection refused")
        permit()
        number = len(world.witness.attempts)
        sent = Attempt(
            verb=verb,
            bundle=bundle,
            member=self._sidecar.name,
            sent=world.clock.boot(),
            verdict="unknown",
            destination=destination,
        )
        world.witness.attempts.append(sent)
        call = world.spawn(self._at_broker(fault, work))
        try:
            async with asyncio.timeout(READ_SECONDS):
                reply = await asyncio.shield(call)
        except TimeoutError:
            await life.go()
            raise AdminTimeout("no answer") from None
        except AdminRefused:
            self._settle(number, "failed")
            await life.go()
            raise
        self._settle(number, "ok")
        await life.go()
        return reply

    async def _connect(self) -> None:
        """Wait as long as a connection takes, which is sometimes long. Then check the permit, as the real client
        does.
        """
        self._there.set_endpoints(self._endpoints)
        world = self._sidecar.world
        slow = world.random.random() < self._sidecar.slow_connects
        connecting = world.random.uniform(0.5, CONNECT_SECONDS) if slow else 2 * _LATENCY_SECONDS
        for _ in range(2):
            await asyncio.sleep(connecting / 2)
            await self._sidecar.life.go()

    def _settle(self, number: int, verdict: Verdict) -> None:
        attempts = self._sidecar.world.witness.attempts
        attempts[number] = Attempt(**_fields(attempts[number]) | {"verdict": verdict})

    async def _at_broker(self, fault: str, work: Callable[[], Awaitable[T]]) -> T:
        """Execute a request that has arrived at the broker."""
        if fault == "refused":
            raise AdminRefused("412", status=412, reason="chaos")
        if fault == "fails before":
            raise AdminFault("500", status=500, reason="chaos")
        if fault == "hangs":
            await asyncio.sleep(3 * READ_SECONDS)
            raise AdminFault("500", status=500, reason="chaos")
        # The response comes after the caller's time limit but before the deadline of the intent. After the deadline the
        # effect of the call is not defined.
        await asyncio.sleep(READ_SECONDS + 1.0 if fault == "late" else self._sidecar.world.random.uniform(0.02, 0.4))
        reply = await work()
        if fault == "fails after":
            raise AdminFault("500", status=500, reason="chaos")
        return reply


class ChaosSidecar(FakeSidecar):
    """A sidecar whose process can be stopped and killed at any moment."""

    # Classes of the connections to the store and to the brokers.
    store_kind: type[FarStore] = FarStore
    brokers_kind: type[FarBrokers] = FarBrokers
    # Share of slow connections to brokers.
    slow_connects = 0.1
    settings: ClassVar = {
        "cycle.interval": INTERVAL_SECONDS,
        "leadership.heartbeat": 1.0,
        "store.settle_after_outage": 4.0,
    }
    limits = ExecutorLimits(
        confirm_seconds=CONFIRM_SECONDS,
        poll_first_seconds=0.05,
        intent_seconds=CONNECT_SECONDS + READ_SECONDS + CONFIRM_SECONDS + 1.0,
    )

    def __init__(self, world: ChaosWorld, name: str) -> None:
        self.world, self.name, self.life = world, name, Life()
        self.life.running.set()
        super().__init__(world, name, params=EAGER)
        self._begin_term, self.leadership.on_won = self.leadership.on_won, self._on_won
        self.tasks: list[asyncio.Task[None]] = []

    def connect(self) -> FarStore:
        """Return the connection to the store."""
        return self.store_kind(self.world.witness_store, self.life)

    def reach(self) -> MemoryAdmin:
        """Return the connection to the brokers."""
        return self.brokers_kind(self)

    def clock_of(self, cluster: FakeCluster) -> TestClock:
        """Return the clocks of this process, which differ from those of other processes."""
        self.world.started += 1
        return MachineClock.drawn(random.Random(f"{self.world.seed} {self.world.started}"))

    async def _on_won(self, epoch: int) -> None:
        """Start a term; sometimes it takes long to settle the intents of earlier leaders."""
        self.world.clock_of[epoch] = self.clock
        assert self._begin_term is not None
        await self._begin_term(epoch)
        await asyncio.sleep(self.world.takeover_seconds)

    async def begin(self) -> None:
        """Start all tasks of `Runtime.run`, without the handling of signals."""
        await self.coordination.start()
        bodies = {"leadership": self.leadership.run, "outage": self.outage.run, **self.runtime.bodies()}
        self.tasks = [asyncio.create_task(self.runtime.root(name, body)) for name, body in bodies.items()]

    async def end(self) -> None:
        """Kill the process (SIGKILL). It sends no message, and its session continues until it expires."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.outside.source.close()
        self.tasks = []


class ChaosWorld(FakeCluster):
    """Brokers with clients and changing loads, a store, and sidecars of one kind by name."""

    def __init__(self, seed: int, kind: type[ChaosSidecar] = ChaosSidecar) -> None:
        self.seed, self.random = seed, random.Random(seed)
        # Number of processes so far, and the clock of each epoch's leader.
        self.started, self.takeover_seconds = 0, 0.0
        self.clock_of: dict[int, TestClock] = {}
        self.witness = Witness(LoopClock())
        self.witness_store = WitnessStore(self.witness)
        super().__init__(LOADS, clock=self.witness.clock, store=self.witness_store)
        self._kind = kind
        self.sidecars: dict[str, ChaosSidecar] = {}
        self.admin_faults: deque[str] = deque()
        self.read_seconds = 0.01
        self.restless = True
        self._work: set[asyncio.Future[Any]] = set()
        self.model.after_unload = self._spawn_lookup
        self.first = self.owners()

    def spawn(self, work: Awaitable[T]) -> asyncio.Future[T]:
        """Start work at the brokers that continues even if its caller is gone."""
        task = asyncio.ensure_future(work)
        self._work.add(task)
        task.add_done_callback(self._over)
        return task

    def _over(self, task: asyncio.Future[Any]) -> None:
        self._work.discard(task)
        if not task.cancelled():
            task.exception()

    def _spawn_lookup(self, bundle: str) -> None:
        """Let a client look up the bundle soon. The lookup assigns the broker of its affinity, or else any broker."""

        async def look_up() -> None:
            await asyncio.sleep(self.random.uniform(0.01, 1.5))
            at, answered = self.random.choice(BROKERS), False
            for topic in self.model.topics[bundle][:1]:
                for _ in range(5):
                    reply = self.model.lookup(topic, at=at, authoritative=answered)
                    if reply.status != 307:
                        return
                    at, answered = reply.to, reply.query.get("authoritative") == "true"

        self.spawn(look_up())

    async def breathe(self) -> None:
        """Until cancelled: let brokers report every second, and give another broker more load every few seconds."""
        while True:
            hot, owners = self.random.choice(BROKERS), self.owners()
            self.shares = {
                bundle: self.random.uniform(0.05, 0.2) if owners.get(bundle) == hot else 0.01 for bundle in self.shares
            }
            for _ in range(3):
                self.publish()
                await asyncio.sleep(2.0 if self.restless else 10.0)

    async def start(self, name: str) -> None:
        """Start a process with this name."""
        self.sidecars[name] = self._kind(self, name)
        await self.sidecars[name].begin()

    async def close(self) -> None:
        """End all processes and tasks."""
        for sidecar in self.sidecars.values():
            await sidecar.end()
        for work in list(self._work):
            work.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
