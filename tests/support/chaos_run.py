"""Run a fault schedule on sidecars with in-memory brokers and store, in virtual time, and return the history."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable

import msgspec

from bundlekeel.leader.state import documents
from bundlekeel.leader.state.documents import Desired, Pause
from bundlekeel.model.errors import StoreError
from bundlekeel.simulator.virtual_time import run_virtually
from tests.support.chaos.history import History, OperatorRequest, Record, Rules, Stop, Violation
from tests.support.chaos.judging import judge
from tests.support.chaos.schedule import Fault, Schedule, What, draw
from tests.support.chaos_world import COOL_DOWN_SECONDS, SESSION_SECONDS, ChaosSidecar, ChaosWorld
from tests.support.virtual_time import CLOCK_RATES, MachineClock
from tests.support.world import BROKERS

Change = Callable[[Desired], Desired]
NAMES = ("A", "B")
TARGETS = {
    "sidecar": NAMES,
    "store": ("zookeeper",),
    "admin": ("brokers",),
    "reads": ("brokers",),
    "request": ("people",),
    "takeover": ("sidecars",),
}
ADMIN = {
    What.ADMIN_FAILS: "fails before",
    What.ADMIN_FAILS_AFTER: "fails after",
    What.ADMIN_HANGS: "hangs",
    What.ADMIN_LATE: "late",
    What.ADMIN_REFUSES: "refused",
    What.ADMIN_LOOPS: "fails before",
    What.ADMIN_UNREACHABLE: "unreachable",
}
SECONDS = 28.0
# Seconds until every open intent must be settled: its duration, the margin for clocks, and a few cycles.
QUIET_SECONDS = 40.0
_AIM_SECONDS = 10.0
_TRIES = 60
_SLOW_FOR_SECONDS = 10.0
# More than the largest difference between two clocks.
_LONG_MS = 5 * 3_600_000
# Longest age of an intent within one term: its duration, the margin for clocks, and the longest outage of the store.
OPEN_SECONDS = 45.0
RESTS = COOL_DOWN_SECONDS / CLOCK_RATES[1]
RULES = Rules(cool_down_seconds=RESTS, stayed_seconds=RESTS, open_seconds=OPEN_SECONDS)


def schedule_of(seed: int) -> Schedule:
    """Draw a schedule with faults of two sidecars, the store and the admin API, and with operators' requests."""
    return draw(seed, SECONDS, TARGETS, faults=(1, 8))


def check(schedule: Schedule, kind: type[ChaosSidecar] = ChaosSidecar) -> list[Violation]:
    """Run a schedule and return the violations in its history."""
    return judge(history_of(schedule, kind))


def _with(desired: Desired, field: str, value: object) -> Desired:
    """Return the desired state with one field replaced."""
    changed: Desired = msgspec.structs.replace(desired, **{field: value})
    return changed


def history_of(schedule: Schedule, kind: type[ChaosSidecar] = ChaosSidecar) -> History:
    """Run a schedule and return the history that the witnesses recorded."""
    return run_virtually(_Run(schedule, kind).run())


class _Run:
    def __init__(self, schedule: Schedule, kind: type[ChaosSidecar]) -> None:
        self._schedule = schedule
        self._kind = kind
        self._pausing = asyncio.Lock()
        self._wanting: set[tuple[str, str]] = set()

    async def run(self) -> History:
        world = self._world = ChaosWorld(self._schedule.seed, self._kind)
        breath = asyncio.create_task(world.breathe())
        for name in NAMES:
            await world.start(name)
        await asyncio.sleep(2.0)
        faults = [asyncio.create_task(self._later(fault)) for fault in self._schedule.faults]
        await asyncio.sleep(self._schedule.seconds)
        await asyncio.gather(*faults)
        # From here on no new move starts. Open executions are settled.
        world.restless = False
        await self._pause(QUIET_SECONDS, lift=False)
        records = await self._records()
        assert not breath.done(), breath.exception()
        breath.cancel()
        await asyncio.gather(breath, return_exceptions=True)
        await world.close()
        witness = world.witness
        return History(
            attempts=witness.attempts,
            intents=witness.intents,
            terms=witness.terms,
            stops=witness.stops,
            requests=witness.requests,
            records=records,
            first=world.first,
            final={bundle: world.owners().get(bundle, "") for bundle in world.first},
            rules=RULES,
            end=world.clock.boot(),
        )

    async def _records(self) -> list[Record]:
        """Return the shared records of moves, as a new sidecar reads them."""
        await self._world.start("reader")
        reader = self._world.sidecars["reader"]
        await reader.shared_state._read_moves()
        return [
            Record(
                bundle=item["bundle"],
                source=item["source"],
                landed_on=item["landed_on"],
                outcome=item["outcome"],
                started=self._boot_of(int(item["intent"].partition(".")[0]), item["started_ms"]),
                at=self._boot_of(item["epoch"], item["wall_ms"]),
                intent=item["intent"],
            )
            for item in reader.shared_state.moves
        ]

    def _boot_of(self, epoch: int, wall_ms: int) -> float:
        """Convert a wall time that the leader of this epoch recorded to seconds of the simulated boot clock."""
        clock = self._world.clock_of[epoch]
        assert isinstance(clock, MachineClock)
        return clock.boot_of(wall_ms)

    # --- faults --------------------------------------------------------------------------------------------

    async def _later(self, fault: Fault) -> None:
        await asyncio.sleep(fault.at)
        what, world, target = fault.what, self._world, fault.target
        if fault.aimed:
            target = await self._aim() or target
        if what in ADMIN:
            world.admin_faults.append(ADMIN[what])
        elif what is What.SLOW_READS:
            world.read_seconds = 2.5
            await asyncio.sleep(fault.seconds)
            world.read_seconds = 0.01
        elif what is What.SLOW_TAKEOVER:
            world.takeover_seconds = fault.seconds
            await asyncio.sleep(_SLOW_FOR_SECONDS)
            world.takeover_seconds = 0.0
        elif what is What.STOP_STORE:
            await self._stop_store(fault.seconds)
        elif what is What.KILL_STORE:
            await self._kill_store(fault.seconds)
        elif what is What.PAUSE:
            await self._pause(fault.seconds)
        elif what.target == "request":
            await self._want(what, fault.seconds)
        else:
            await self._break(what, world.sidecars[target], fault.seconds)

    async def _aim(self) -> str:
        """Wait a limited time for the next intent. Return the name of the leader right after the intent was written."""
        witness = self._world.witness
        witness.announced.clear()
        try:
            async with asyncio.timeout(_AIM_SECONDS):
                await witness.announced.wait()
        except TimeoutError:
            return ""
        await asyncio.sleep(self._world.random.uniform(0.0, 0.03))
        leading = witness.terms[-1]
        return leading.member if leading.ended is None else ""

    async def _break(self, what: What, sidecar: ChaosSidecar, seconds: float) -> None:
        if not sidecar.tasks:
            return
        if what is What.STOP_SIDECAR:
            await self._stop(sidecar, seconds)
        elif what is What.KILL_SIDECAR:
            await self._kill(sidecar, seconds)
        elif what is What.EXPIRE_SIDECAR:
            now = self._world.clock.boot()
            self._world.witness.stops.append(Stop(member=sidecar.name, at=now, until=now))
            self._world.store.expire(sidecar.coordination)
        elif what in (What.CUT_SIDECAR, What.SILENT_SIDECAR):
            await self._cut(sidecar, seconds)
        else:
            sidecar.life.lost += 1 + int(seconds / 4)

    async def _stop(self, sidecar: ChaosSidecar, seconds: float) -> None:
        """Stop a sidecar's process and continue it after `seconds`. If that is too long, its session expires at the
        server, but the process does not notice and continues with its earlier state of the connection.
        """
        if not sidecar.life.running.is_set():
            return
        began = self._world.clock.boot()
        sidecar.life.running.clear()
        await asyncio.sleep(min(seconds, SESSION_SECONDS))
        if seconds > SESSION_SECONDS and sidecar.tasks:
            self._world.store.expire(sidecar.coordination)
            await asyncio.sleep(seconds - SESSION_SECONDS)
        self._world.witness.stops.append(Stop(member=sidecar.name, at=began, until=self._world.clock.boot()))
        sidecar.life.running.set()

    async def _kill(self, sidecar: ChaosSidecar, seconds: float) -> None:
        """Kill a sidecar. Its session expires later, and a new process with the same name starts after `seconds`."""
        await sidecar.end()
        self._world.store.suspend(sidecar.coordination)
        await asyncio.sleep(min(seconds, SESSION_SECONDS))
        if seconds > SESSION_SECONDS:
            await sidecar.coordination.close()
            await asyncio.sleep(seconds - SESSION_SECONDS)
            await self._world.start(sidecar.name)
            return
        await self._world.start(sidecar.name)
        await asyncio.sleep(SESSION_SECONDS - seconds)
        await sidecar.coordination.close()

    async def _cut(self, sidecar: ChaosSidecar, seconds: float) -> None:
        """Suspend the sidecar's connection to the store for `seconds`. If that is too long, its session ends."""
        store, line = self._world.store, sidecar.coordination
        store.suspend(line)
        await asyncio.sleep(min(seconds, SESSION_SECONDS))
        if seconds > SESSION_SECONDS:
            store.expire(line)
            await asyncio.sleep(seconds - SESSION_SECONDS)
        if sidecar.tasks:
            store.resume(line)

    async def _stop_store(self, seconds: float) -> None:
        """Stop ZooKeeper for `seconds`. After a long stop, random sessions are expired when it continues."""
        self._world.store.freeze()
        await asyncio.sleep(seconds)
        self._world.store.thaw()
        if seconds > SESSION_SECONDS:
            for sidecar in self._world.sidecars.values():
                if sidecar.tasks and self._world.random.random() < 0.5:
                    self._world.store.expire(sidecar.coordination)

    async def _kill_store(self, seconds: float) -> None:
        """Kill ZooKeeper and start it with the same data. Every connection breaks, and the time-outs of all sessions
        start again.
        """
        store = self._world.store
        store.freeze()
        broken = [sidecar for sidecar in self._world.sidecars.values() if sidecar.tasks]
        for sidecar in broken:
            store.suspend(sidecar.coordination)
        await asyncio.sleep(seconds)
        store.thaw()
        for sidecar in broken:
            if sidecar.tasks:
                store.resume(sidecar.coordination)

    # --- requests --------------------------------------------------------------------------------------------

    async def _pause(self, seconds: float, *, lift: bool = True) -> None:
        if self._pausing.locked() and lift:
            return
        pause = Pause(reason="chaos", by="people", since_ms=self._world.clock.wall_ms())
        async with self._pausing:
            await self._request(
                OperatorRequest(kind="pause", since=0.0),
                lambda desired: msgspec.structs.replace(desired, pause=pause),
                (lambda desired: msgspec.structs.replace(desired, pause=None)) if lift else None,
                seconds,
            )

    async def _want(self, what: What, seconds: float) -> None:
        """Send an operator request about one bundle, broker or namespace, unless the same request is active."""
        request, field, name, value = self._draw_request(what)
        if (field, name) in self._wanting:
            return
        self._wanting.add((field, name))
        await self._request(
            request,
            lambda desired: _with(desired, field, {**getattr(desired, field), name: value}),
            lambda desired: _with(desired, field, {k: v for k, v in getattr(desired, field).items() if k != name}),
            seconds,
        )
        self._wanting.discard((field, name))

    def _draw_request(self, what: What) -> tuple[OperatorRequest, str, str, object]:
        """Return the request of a fault, and how it is stored: the field of `Desired`, the name there, and the
        value.
        """
        dice, now = self._world.random, self._world.clock.wall_ms()
        bundle, broker = dice.choice(sorted(self._world.first)), dice.choice(BROKERS)
        request = documents.OperatorRequest(by="people", reason="chaos", since_ms=now)
        lasting = documents.LastingRequest(by="people", reason="chaos", since_ms=now, until_ms=now + _LONG_MS)
        if what is What.CORDON:
            return OperatorRequest(kind="cordon", since=0.0, broker=broker), "cordons", broker, request
        if what is What.DRAIN:
            return OperatorRequest(kind="drain", since=0.0, broker=broker), "drains", broker, request
        if what is What.EXCLUDE:
            return OperatorRequest(kind="exclusion", since=0.0, bundle=bundle), "excluded", f"b:{bundle}", lasting
        if what is What.PAUSE_SCOPE:
            namespace = bundle.rpartition("/")[0]
            pause = Pause(reason="chaos", by="people", since_ms=now)
            return OperatorRequest(kind="pause", since=0.0, bundle=namespace), "pauses", f"namespace:{namespace}", pause
        return OperatorRequest(kind="pin", since=0.0, bundle=bundle), "pinned", bundle, lasting

    async def _request(self, request: OperatorRequest, change: Change, over: Change | None, seconds: float) -> None:
        """Send a request to any sidecar that responds, and revert it after `seconds`."""
        if not await self._ask(change):
            return
        requests = self._world.witness.requests
        requests.append(dataclasses.replace(request, since=self._world.clock.boot()))
        place = len(requests) - 1
        await asyncio.sleep(seconds)
        if over is not None:
            requests[place] = dataclasses.replace(requests[place], until=self._world.clock.boot())
            for _ in range(_TRIES):
                if await self._ask(over):
                    return
                await asyncio.sleep(1.0)

    async def _ask(self, change: Change) -> bool:
        for sidecar in self._world.sidecars.values():
            if sidecar.tasks and sidecar.life.running.is_set():
                try:
                    async with asyncio.timeout(2.0):
                        await sidecar.shared_state.change_desired(change)
                except (StoreError, TimeoutError):
                    continue
                return True
        return False
