"""Carries a fault schedule out on sidecars over fakes, in virtual time, and gives the history of what happened."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from bundlekeel.core.errors import StoreError
from bundlekeel.daemon.documents import Desired, Pause
from dev.chaos.history import History, Record, Rules, Stop, Violation, Wish, judge
from dev.chaos.schedule import Fault, Schedule, What, draw
from tests.support.chaos_world import COOL_DOWN_SECONDS, SESSION_SECONDS, ChaosSidecar, ChaosWorld
from tests.support.virtual_time import boot_of, run_virtually

Change = Callable[[Desired], Desired]
NAMES = ("A", "B")
TARGETS = {
    "sidecar": NAMES,
    "store": ("zookeeper",),
    "admin": ("brokers",),
    "reads": ("brokers",),
    "wish": ("people",),
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
# Until every intent left open must be settled: its length, the margin for clocks, and a few cycles.
QUIET_SECONDS = 30.0
_AIM_SECONDS = 10.0
_TRIES = 60
# Its deadline, the margin for clocks, and as long as a leader may be missing or the store be away.
RULES = Rules(cool_down_seconds=COOL_DOWN_SECONDS, stayed_seconds=COOL_DOWN_SECONDS, open_seconds=45.0)


def schedule_of(seed: int) -> Schedule:
    """A schedule for two sidecars, the store, the admin ports and people."""
    return draw(seed, SECONDS, TARGETS, faults=(1, 8))


def check(schedule: Schedule, kind: type[ChaosSidecar] = ChaosSidecar) -> list[Violation]:
    """Carry a schedule out and judge what happened."""
    return judge(history_of(schedule, kind))


def history_of(schedule: Schedule, kind: type[ChaosSidecar] = ChaosSidecar) -> History:
    """Carry a schedule out; the history as the witnesses have it."""
    return run_virtually(_Run(schedule, kind).run())


class _Run:
    def __init__(self, schedule: Schedule, kind: type[ChaosSidecar]) -> None:
        self._schedule = schedule
        self._kind = kind
        self._pausing = asyncio.Lock()
        self._pins: set[str] = set()

    async def run(self) -> History:
        world = self._world = ChaosWorld(self._schedule.seed, self._kind)
        breath = asyncio.create_task(world.breathe())
        for name in NAMES:
            await world.start(name)
        await asyncio.sleep(2.0)
        faults = [asyncio.create_task(self._later(fault)) for fault in self._schedule.faults]
        await asyncio.sleep(self._schedule.seconds)
        await asyncio.gather(*faults)
        # From here on nothing moves any more; what is open is settled.
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
            wishes=witness.wishes,
            records=records,
            first=world.first,
            final={bundle: world.owners().get(bundle, "") for bundle in world.first},
            rules=RULES,
            end=world.clock.boot(),
        )

    async def _records(self) -> list[Record]:
        """The shared records, as a sidecar that reads them afresh has them."""
        await self._world.start("reader")
        reader = self._world.sidecars["reader"]
        await reader.sharing._read_moves()
        return [
            Record(
                bundle=item["bundle"],
                source=item["source"],
                landed_on=item["landed_on"],
                outcome=item["outcome"],
                started=boot_of(item["started_ms"]),
                at=boot_of(item["wall_ms"]),
                intent=item["intent"],
            )
            for item in reader.sharing.moves
        ]

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
        elif what is What.STOP_STORE:
            await self._stop_store(fault.seconds)
        elif what is What.PAUSE:
            await self._pause(fault.seconds)
        elif what is What.PIN:
            await self._pin(fault.seconds)
        else:
            await self._break(what, world.sidecars[target], fault.seconds)

    async def _aim(self) -> str:
        """Wait for the next intent, within reason; who leads then, the moment after it was written."""
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
        """SIGSTOP and SIGCONT. The session expires at the server meanwhile when that takes too long; the process does
        not know: what it believes of its connection is what it believed before."""
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
        """SIGKILL; the session expires later, and a process of the same name begins after a while."""
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
        """Its connection to the store is suspended; too long, and its session is over."""
        store, line = self._world.store, sidecar.coordination
        store.suspend(line)
        await asyncio.sleep(min(seconds, SESSION_SECONDS))
        if seconds > SESSION_SECONDS:
            store.expire(line)
            await asyncio.sleep(seconds - SESSION_SECONDS)
        if sidecar.tasks:
            store.resume(line)

    async def _stop_store(self, seconds: float) -> None:
        """SIGSTOP of ZooKeeper; when it continues after long, it may find any session expired."""
        self._world.store.freeze()
        await asyncio.sleep(seconds)
        self._world.store.thaw()
        if seconds > SESSION_SECONDS:
            for sidecar in self._world.sidecars.values():
                if sidecar.tasks and self._world.random.random() < 0.5:
                    self._world.store.expire(sidecar.coordination)

    # --- wishes --------------------------------------------------------------------------------------------

    async def _pause(self, seconds: float, *, lift: bool = True) -> None:
        if self._pausing.locked() and lift:
            return
        pause = Pause(reason="chaos", by="people", since_ms=self._world.clock.wall_ms())
        async with self._pausing:
            await self._wish(
                Wish(kind="pause", since=0.0),
                lambda desired: msgspec.structs.replace(desired, pause=pause),
                (lambda desired: msgspec.structs.replace(desired, pause=None)) if lift else None,
                seconds,
            )

    async def _pin(self, seconds: float) -> None:
        bundle = self._world.random.choice(sorted(self._world.first))
        if bundle in self._pins:
            return
        self._pins.add(bundle)
        until = self._world.clock.wall_ms() + 3_600_000

        def without(desired: Desired) -> Desired:
            return msgspec.structs.replace(
                desired, pinned={name: end for name, end in desired.pinned.items() if name != bundle}
            )

        await self._wish(
            Wish(kind="pin", since=0.0, bundle=bundle),
            lambda desired: msgspec.structs.replace(desired, pinned={**desired.pinned, bundle: until}),
            without,
            seconds,
        )
        self._pins.discard(bundle)

    async def _wish(self, wish: Wish, asked: Change, over: Change | None, seconds: float) -> None:
        """Ask any sidecar that hears, and take it back after a while."""
        if not await self._ask(asked):
            return
        wishes = self._world.witness.wishes
        wishes.append(Wish(kind=wish.kind, since=self._world.clock.boot(), bundle=wish.bundle))
        place = len(wishes) - 1
        await asyncio.sleep(seconds)
        if over is not None:
            wishes[place] = Wish(
                kind=wish.kind, since=wishes[place].since, until=self._world.clock.boot(), bundle=wish.bundle
            )
            for _ in range(_TRIES):
                if await self._ask(over):
                    return
                await asyncio.sleep(1.0)

    async def _ask(self, change: Change) -> bool:
        for sidecar in self._world.sidecars.values():
            if sidecar.tasks and sidecar.life.running.is_set():
                try:
                    async with asyncio.timeout(2.0):
                        await sidecar.sharing.change_desired(change)
                except (StoreError, TimeoutError):
                    continue
                return True
        return False
