"""Fault schedules: drawn from a seed, printed, replayed, and shrunk until no fault can be removed.

A schedule contains each fault, its time and its duration. It can run on a real cluster (`tests.support.chaos.runner`)
and on sidecars over fakes in virtual time (tests/support/chaos_run.py).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

Targets = Mapping[str, Sequence[str]]


class What(StrEnum):
    """Kinds of faults. `sidecar`, `broker`, ... before the dash is the kind of its target."""

    STOP_SIDECAR = "sidecar-stop"
    KILL_SIDECAR = "sidecar-kill"
    EXPIRE_SIDECAR = "sidecar-expire"
    CUT_SIDECAR = "sidecar-cut"
    BLOCKED_SIDECAR = "sidecar-blocked"
    SILENT_SIDECAR = "sidecar-silent"
    SLOW_SIDECAR = "sidecar-slow"
    STOP_STORE = "store-stop"
    KILL_STORE = "store-kill"
    STOP_BROKER = "broker-stop"
    KILL_BROKER = "broker-kill"
    STOP_BOOKIE = "bookie-stop"
    KILL_BOOKIE = "bookie-kill"
    ADMIN_FAILS = "admin-fails"
    ADMIN_FAILS_AFTER = "admin-fails-after"
    ADMIN_HANGS = "admin-hangs"
    ADMIN_LATE = "admin-late"
    ADMIN_REFUSES = "admin-refuses"
    ADMIN_LOOPS = "admin-loops"
    ADMIN_UNREACHABLE = "admin-unreachable"
    SLOW_READS = "reads-slow"
    SLOW_TAKEOVER = "takeover-slow"
    PAUSE = "request-pause"
    PIN = "request-pin"
    CORDON = "request-cordon"
    DRAIN = "request-drain"
    EXCLUDE = "request-exclude"
    PAUSE_SCOPE = "request-pause-scope"

    @property
    def target(self) -> str:
        """Return the kind of its target, such as `sidecar` or `broker`."""
        return self.value.partition("-")[0]


# By kind of fault: relative weight, and its shortest and longest duration in seconds.
_DRAW: Final[dict[What, tuple[int, float, float]]] = {
    What.STOP_SIDECAR: (5, 0.2, 12.0),
    What.KILL_SIDECAR: (4, 1.0, 8.0),
    What.EXPIRE_SIDECAR: (2, 0.0, 0.0),
    What.CUT_SIDECAR: (5, 0.2, 10.0),
    What.BLOCKED_SIDECAR: (2, 0.2, 10.0),
    What.SILENT_SIDECAR: (2, 0.2, 10.0),
    What.SLOW_SIDECAR: (1, 1.0, 5.0),
    What.STOP_STORE: (2, 0.5, 9.0),
    What.KILL_STORE: (1, 0.5, 8.0),
    What.STOP_BROKER: (1, 0.5, 3.0),
    What.KILL_BROKER: (1, 3.0, 3.0),
    What.STOP_BOOKIE: (1, 1.0, 3.0),
    What.KILL_BOOKIE: (1, 1.0, 3.0),
    What.ADMIN_FAILS: (2, 0.0, 0.0),
    What.ADMIN_FAILS_AFTER: (2, 0.0, 0.0),
    What.ADMIN_HANGS: (2, 0.0, 0.0),
    What.ADMIN_LATE: (2, 0.0, 0.0),
    What.ADMIN_REFUSES: (1, 0.0, 0.0),
    What.ADMIN_LOOPS: (1, 0.0, 0.0),
    What.ADMIN_UNREACHABLE: (1, 0.0, 0.0),
    What.SLOW_READS: (2, 1.0, 8.0),
    What.SLOW_TAKEOVER: (2, 1.0, 9.0),
    What.PAUSE: (2, 2.0, 10.0),
    What.PIN: (2, 2.0, 10.0),
    What.CORDON: (2, 2.0, 10.0),
    What.DRAIN: (1, 2.0, 10.0),
    What.EXCLUDE: (2, 2.0, 10.0),
    What.PAUSE_SCOPE: (1, 2.0, 10.0),
}
_AIMED: Final = frozenset({"sidecar", "store", "request"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault: its start in seconds from the beginning, and its duration.

    `aimed`: the fault waits for the next intent after its start, and occurs between the intent and its call. An aimed
    fault of a sidecar hits the leader, whatever `target` is.
    """

    at: float
    what: What
    target: str
    seconds: float
    aimed: bool = False

    def __str__(self) -> str:
        """Return the fault as one line of a printed schedule."""
        lasts = f" for {self.seconds:.2f} s" if self.seconds else ""
        return f"{self.at:6.2f} s  {self.what} {self.target}{lasts}{', aimed' if self.aimed else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The faults of a run that lasts `seconds`, oldest first. The seed also decides all other random choices of the
    run.
    """

    seed: int
    seconds: float
    faults: tuple[Fault, ...]

    def __str__(self) -> str:
        """Return the schedule with one line per fault."""
        return "\n".join([f"schedule {self.seed}, {self.seconds:.0f} s:", *(f"  {fault}" for fault in self.faults)])


def draw(
    seed: int,
    seconds: float,
    targets: Targets,
    *,
    faults: tuple[int, int] = (1, 7),
    scale: float = 1.0,
    without: Collection[What] = (),
) -> Schedule:
    """Draw a random schedule for these targets (kind -> names); the same seed gives the same schedule.

    `faults`: smallest and largest number of faults. `scale`: factor on their usual durations. `without`: kinds of
    faults that do not occur.
    """
    dice = random.Random(seed)
    kinds = [what for what in What if targets.get(what.target) and what not in without]
    weights = [_DRAW[what][0] for what in kinds]
    events = []
    for _ in range(dice.randint(*faults)):
        what = dice.choices(kinds, weights)[0]
        _, least, most = _DRAW[what]
        # Durations are log-uniform: short faults are as likely as long ones, and both sides of time limits are tested.
        lasts = scale * least * (most / least) ** dice.random() if least else 0.0
        target, at = dice.choice(targets[what.target]), round(dice.uniform(0.0, seconds * 0.9), 2)
        aimed = what.target in _AIMED and dice.random() < 0.5
        events.append(Fault(at=at, what=what, target=target, seconds=round(lasts, 2), aimed=aimed))
    return Schedule(seed=seed, seconds=seconds, faults=tuple(sorted(events, key=lambda fault: fault.at)))


def shrink(schedule: Schedule, fails: Callable[[Schedule], bool]) -> Schedule:
    """Return the smallest schedule that still fails: without unnecessary faults, and with shorter ones. `fails` runs a
    schedule and returns whether the problem appears. The schedule passed must fail.
    """
    smaller = True
    while smaller:
        smaller = False
        for candidate in _smaller(schedule):
            if fails(candidate):
                schedule, smaller = candidate, True
                break
    return schedule


def _smaller(schedule: Schedule) -> Sequence[Schedule]:
    faults = schedule.faults
    fewer = [replace(schedule, faults=faults[:n] + faults[n + 1 :]) for n in range(len(faults))]
    halves = [
        replace(schedule, faults=(*faults[:n], replace(fault, seconds=round(fault.seconds / 2, 2)), *faults[n + 1 :]))
        for n, fault in enumerate(faults)
        if fault.seconds > 0.5
    ]
    return [*fewer, *halves]
