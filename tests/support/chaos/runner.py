"""Run a fault schedule on a real cluster with sidecars, and return the history of the run.

Each sidecar connects to ZooKeeper through its own proxy. All sidecars connect to the brokers through the recorder.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import httpx
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from dev.cluster import Cluster
from dev.sidecar import Sidecar, leader_of
from tests.support.chaos.history import Disturbance, History, OperatorRequest, Record, Rules, Stop
from tests.support.chaos.operator_requests import Ask, OperatorRequests
from tests.support.chaos.proxy import TcpProxy
from tests.support.chaos.recording import UNLOADS, AdminFaults, attempts
from tests.support.chaos.schedule import Fault, Schedule, What
from tests.support.chaos.witness import StoreWitness, end_session
from tests.support.recorder import Recorder

_AIM_SECONDS: Final = 3.0
_END_SECONDS: Final = 15.0
# Seconds until every sidecar must show a move that has ended.
_RECORDED_SECONDS: Final = 2.0
# Faults that real processes cannot have, or not within a short schedule.
NOT_HERE: Final = frozenset({What.ADMIN_FAILS_AFTER})
SLOW: Final = frozenset({What.KILL_BROKER, What.KILL_STORE, What.KILL_BOOKIE})


def boot() -> float:
    """Return seconds of the boot clock, which all times in histories use."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(kw_only=True)
class Ground:
    """A running cluster behind the recorder, and its sidecars behind their proxies, by name."""

    cluster: Cluster
    recorder: Recorder
    witness: StoreWitness
    sidecars: Mapping[str, Sidecar]
    proxies: Mapping[str, TcpProxy]
    owners: Callable[[], dict[str, str]]
    stops: list[Stop] = field(default_factory=list)
    requests: list[OperatorRequest] = field(default_factory=list)
    disturbances: list[Disturbance] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._faults = AdminFaults(self.recorder)
        self._operator_requests = OperatorRequests([broker.broker_id for broker in self.cluster.brokers], self.owners)
        self._locks: dict[str, threading.Lock] = defaultdict(threading.Lock)
        self._failures: list[BaseException] = []
        # Names of stopped processes, which accept a request and never respond.
        self._stopped: set[str] = set()

    # --- a schedule ----------------------------------------------------------------------------------------

    def carry_out(self, schedule: Schedule, rules: Rules) -> History:
        """Inject the faults of a schedule and return the history of the run."""
        began, first = boot(), self.owners()
        self.break_all(schedule)
        return self.history(began, first, rules)

    def break_all(self, schedule: Schedule) -> None:
        """Inject the faults of a schedule, and wait until the last one has ended."""
        threads = [threading.Thread(target=self._guarded, args=(fault,)) for fault in schedule.faults]
        for thread in threads:
            thread.start()
        time.sleep(schedule.seconds)
        for thread in threads:
            thread.join()
        self.recorder.heal()
        failures, self._failures = self._failures, []
        if failures:
            raise failures[0]

    def history(self, since: float, first: Mapping[str, str], rules: Rules) -> History:
        """Return the history since `since`.

        A move that ended just before or during this call counts as open. Followers get its record a second after the
        leader, and its bundle has no final owner. Calls are read before their intents, and these before the records of
        their ends, because reading takes seconds on a busy machine.
        """
        looked = boot() - _RECORDED_SECONDS
        calls = [item for item in attempts(self.recorder) if item.sent >= since]
        moving = set(self.witness.open_intents())
        owners = self.owners()
        intents = [
            replace(item, ended=None) if item.ended is not None and item.ended >= looked else item
            for item in self.witness.intents()
            if item.ended is None or item.ended >= since
        ]
        records = [item for item in self._records() if item.at >= since]
        moving |= {item.bundle for item in intents if item.ended is None}
        moving |= {item.bundle for item in records if item.at >= looked}
        final = {bundle: owner for bundle, owner in owners.items() if bundle not in moving}
        return History(
            attempts=calls,
            intents=intents,
            terms=self.witness.terms(),
            stops=self.stops,
            requests=self.requests,
            records=records,
            disturbances=self.disturbances,
            first=first,
            final=final,
            rules=rules,
        )

    def _records(self) -> list[Record]:
        """Return the shared records of the sidecar with most of them. A sidecar that was cut off re-reads them only
        after it is connected, and followers get them a second after the leader.
        """
        rows = max((item.moves() for item in self.sidecars.values() if item.alive), key=len, default=[])
        return [
            Record(
                bundle=row["bundle"],
                source=row["source"],
                landed_on=row["landed_on"],
                outcome=row["outcome"],
                started=self.witness.boot_of(row["started_ms"]),
                at=self.witness.boot_of(row["wall_ms"]),
                intent=row["intent"],
            )
            for row in rows
        ]

    # --- one fault -----------------------------------------------------------------------------------------

    def _guarded(self, fault: Fault) -> None:
        try:
            time.sleep(fault.at)
            leader = self._aim() if fault.aimed else ""
            # An aimed fault of a sidecar hits the current leader. Other aimed faults only wait for the next intent.
            target = leader if leader and fault.what.target == "sidecar" else fault.target
            # Two faults of one target must not overlap, because the end of the first would end the second.
            with self._locks[f"{fault.what.target} {target}"]:
                self._break(fault.what, target, fault.seconds, int(100 * fault.at))
        except Exception as error:  # noqa: BLE001 - of a thread; raised by whoever waits for it
            self._failures.append(error)

    def _aim(self) -> str:
        """Wait a limited time for the next intent. Return the name of the leader then."""
        deadline = time.monotonic() + _AIM_SECONDS
        while not self.witness.open_intents() and time.monotonic() < deadline:
            time.sleep(0.005)
        terms = self.witness.terms()
        return terms[-1].member if terms and terms[-1].member in self.sidecars else ""

    def _break(self, what: What, target: str, seconds: float, moment: int) -> None:
        """Inject one fault and end it after `seconds`. `moment`: a number that selects the broker or bundle of a
        request, so that a repeated schedule selects the same.
        """
        kind = what.target
        if kind == "sidecar":
            self._sidecar(what, target, seconds)
        elif kind == "request":
            self._request(what, seconds, moment)
        elif kind in ("admin", "reads"):
            self._admin(what, seconds)
        elif what is What.KILL_BROKER:
            broker = next(item for item in self.cluster.brokers if item.name == target)
            self.disturbances.append(Disturbance(broker=broker.broker_id, at=boot()))
            self._kill(target, seconds)
        elif what in (What.KILL_STORE, What.KILL_BOOKIE):
            self._kill(target, seconds)
        else:
            self.cluster.pause(target)
            time.sleep(seconds)
            self.cluster.resume(target)

    def _kill(self, target: str, seconds: float) -> None:
        """Kill a process (SIGKILL), start it with the same data after `seconds`, and return when it serves again."""
        self.cluster.kill(target)
        time.sleep(seconds)
        self.cluster.restart(target)

    def _sidecar(self, what: What, name: str, seconds: float) -> None:
        sidecar, proxy = self.sidecars[name], self.proxies[name]
        if what is What.STOP_SIDECAR:
            began = boot()
            self._stopped.add(name)
            sidecar.pause()
            time.sleep(seconds)
            self.stops.append(Stop(member=name, at=began, until=boot()))
            sidecar.resume()
            self._stopped.discard(name)
        elif what is What.KILL_SIDECAR:
            sidecar.kill()
            time.sleep(seconds)
            sidecar.start(wait=False)
        elif what is What.EXPIRE_SIDECAR:
            greeting = self.witness.greeting_of(name, proxy.greetings)
            if greeting is not None:
                now = boot()
                with contextlib.suppress(KazooTimeoutError):
                    # Another fault blocks the store, so the session can have ended or not.
                    end_session(self.cluster.zk_hosts, greeting)
                self.stops.append(Stop(member=name, at=now, until=boot()))
        else:
            if what is What.CUT_SIDECAR:
                proxy.refuse()
            elif what is What.SLOW_SIDECAR:
                proxy.delay(0.3)
            else:
                proxy.black_hole("down")
                if what is What.SILENT_SIDECAR:
                    proxy.black_hole("up")
            time.sleep(seconds)
            proxy.heal()

    def _admin(self, what: What, seconds: float) -> None:
        if what is What.ADMIN_HANGS:
            self._faults.hang()
        elif what is What.ADMIN_LOOPS:
            self._faults.loop()
        elif what is What.ADMIN_REFUSES:
            self.recorder.answer("PUT", UNLOADS, 412, body=b'{"reason":"chaos"}')
        elif what is What.ADMIN_FAILS:
            self._faults.fail()
        elif what is What.ADMIN_UNREACHABLE:
            self.recorder.set_down(True, "http")
            time.sleep(0.3)
            self.recorder.set_down(False, "http")
        else:
            self._faults.late(0.7)
            time.sleep(seconds or 1.0)
            self._faults.late(0.0)

    def _request(self, what: What, seconds: float, moment: int) -> None:
        """Send a request to any sidecar that accepts it, and revert it after `seconds`."""
        try:
            change = self._operator_requests.asked(what, moment)
        except KazooException:
            return  # the request depends on the owners, which cannot be read while another fault blocks the store
        if not self._any_accepts(change.ask):
            return
        request = replace(change.request, since=boot())
        self.requests.append(request)
        time.sleep(seconds)
        self.requests[self.requests.index(request)] = replace(request, until=boot())
        # A sidecar that was disconnected can lack the request. `end_all` ends such requests before the next schedule.
        deadline = time.monotonic() + _END_SECONDS
        while not self._any_accepts(change.end) and time.monotonic() < deadline:
            time.sleep(0.5)

    def _any_accepts(self, ask: Ask) -> bool:
        for name, sidecar in self.sidecars.items():
            with contextlib.suppress(httpx.HTTPError):
                if sidecar.alive and name not in self._stopped and ask(sidecar).status_code == 200:
                    return True
        return False


def leads(ground: Ground) -> bool:
    """Whether a sidecar leads and every sidecar is ready again."""
    ready = all((item.get("/readyz", raw=True) or "").strip().endswith("ok") for item in ground.sidecars.values())
    return ready and leader_of(list(ground.sidecars.values())) is not None
