"""Random fault schedules on whole sidecars over fakes in virtual time: nothing is done that must not be done.

The checker that says so is itself tried here: sidecars without one of their safeguards are caught.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from tests.support import chaos_variants as variants
from tests.support.chaos.history import Kind
from tests.support.chaos.judging import judge
from tests.support.chaos.schedule import Fault, Schedule, What, draw, shrink
from tests.support.chaos_run import SECONDS, check, history_of, schedule_of
from tests.support.chaos_world import ChaosSidecar

PER_TEST = 10
DEFAULT = 30
NIGHTLY = 2_000
# Once each: schedules that showed a violation of ours.
MENDED = (10_022,)
FRESH = 10_000


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Hundreds of thousands of log lines cost more than everything else."""
    with capture_logs():
        yield


def explained(seed: int) -> str:
    """Nothing when a schedule was carried out without violation, else the schedule and what is wrong."""
    schedule = schedule_of(seed)
    result = check(schedule)
    return "\n".join([str(schedule), *map(str, result)]) if result else ""


@pytest.mark.parametrize("first", range(0, DEFAULT, PER_TEST))
def test_random_schedules(first: int) -> None:
    """A failure prints its schedule; `schedule_of(seed)` is that schedule again."""
    assert not "\n\n".join(filter(None, map(explained, range(first, first + PER_TEST))))


@pytest.mark.parametrize("seed", MENDED)
def test_mended_schedules(seed: int) -> None:
    """10,022: a drain ended while its move waited; the bundle left its broker within its cool-down all the same."""
    assert not explained(seed)


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", [*range(DEFAULT, NIGHTLY, 100), FRESH])
def test_many_random_schedules(first: int) -> None:
    assert not "\n\n".join(filter(None, map(explained, range(first, first + 100))))


def only(*faults: Fault, seed: int = 1) -> Schedule:
    """A schedule of exactly these faults."""
    return Schedule(seed=seed, seconds=SECONDS, faults=faults)


def test_a_calm_run_moves_bundles_and_is_allowed() -> None:
    """The world is worth judging: bundles move, one leader all the time, every call has its intent and its record."""
    history = history_of(only())
    assert judge(history) == []
    assert len([item for item in history.attempts if item.verb == "unload"]) >= 8
    assert len(history.terms) == 1
    assert len(history.records) >= 8
    assert all(intent.ended is not None for intent in history.intents)


def test_the_same_seed_gives_the_same_run() -> None:
    schedule = schedule_of(7)
    assert str(schedule) == str(schedule_of(7))
    assert history_of(schedule) == history_of(schedule)


ADMIN_FAILS = tuple(
    Fault(at=at, what=What.ADMIN_FAILS_AFTER, target="brokers", seconds=0.0) for at in (0.0, 1.0, 2.0, 8.0)
)
PAUSES = tuple(Fault(at=at, what=What.PAUSE, target="people", seconds=8.0) for at in (3.0, 14.0))


def requests(what: What) -> tuple[Fault, ...]:
    return tuple(Fault(at=at, what=what, target="people", seconds=12.0) for at in (0.5, 1.5, 7.0, 8.5, 14.0, 15.5))


@pytest.mark.parametrize(
    ("kind", "faults", "crime"),
    [
        (variants.WithoutIntents, (), Kind.NO_INTENT),
        (variants.BlindRetry, ADMIN_FAILS, Kind.TWO_CALLS),
        (variants.WithoutRequests, PAUSES, Kind.AGAINST_PAUSE),
        (variants.WithoutRequests, requests(What.PAUSE_SCOPE), Kind.AGAINST_PAUSE),
        (variants.WithoutRequests, requests(What.PIN), Kind.AGAINST_PIN),
        (variants.WithoutRequests, requests(What.EXCLUDE), Kind.AGAINST_EXCLUSION),
        (variants.WithoutRequests, requests(What.DRAIN), Kind.AGAINST_DRAIN),
        (variants.WithoutCordons, requests(What.CORDON), Kind.AGAINST_CORDON),
        (variants.Forgetful, (), Kind.NOT_RECORDED),
    ],
)
def test_a_missing_safeguard_is_caught(kind: type[ChaosSidecar], faults: tuple[Fault, ...], crime: Kind) -> None:
    """The sidecar as it is passes the same schedule."""
    assert crime in {violation.kind for violation in check(only(*faults, seed=2), kind)}
    assert check(only(*faults)) == []


def leader_stops() -> Schedule:
    """Whoever leads is stopped between an intent and its call, for longer than its session lasts."""
    times = (1.0, 14.0, 25.0)
    return only(*(Fault(at=at, what=What.STOP_SIDECAR, target="A", seconds=9.0, aimed=True) for at in times))


def test_without_the_leader_check_calls_are_sent_outside_leadership() -> None:
    """Connecting takes long, and the term ends meanwhile; the sidecar that asks for its permit passes the same."""
    result = check(leader_stops(), variants.WithoutPermit)
    assert Kind.OUTSIDE_LEADERSHIP in {violation.kind for violation in result}
    assert check(leader_stops(), variants.FarAway) == []


def test_a_suspension_taken_for_the_end_of_a_term() -> None:
    """A store that is away for a moment between intent and call must not leave a bundle frozen and the hand idle."""
    times = (1.0, 14.0)
    cuts = only(*(Fault(at=at, what=What.CUT_SIDECAR, target="A", seconds=3.5, aimed=True) for at in times))
    assert Kind.LEFT_OPEN in {violation.kind for violation in check(cuts, variants.GivesUpEarly)}
    assert check(cuts, variants.FarAway) == []


def test_without_any_fence_two_leaders_act() -> None:
    """The store takes the writes of an epoch that is over as well: moves are made twice, or not recorded."""
    result = {violation.kind for violation in check(leader_stops(), variants.WithoutFence)}
    assert result & {Kind.OUTSIDE_LEADERSHIP, Kind.MOVED_TWICE, Kind.NOT_RECORDED}


def test_a_schedule_shrinks_to_what_matters() -> None:
    """Faults that are not needed are left out, and the others last no longer than needed."""
    whole = schedule_of(3)
    needed = Fault(at=5.0, what=What.STOP_STORE, target="zookeeper", seconds=8.0)
    schedule = Schedule(seed=3, seconds=SECONDS, faults=(*whole.faults, needed))

    def fails(candidate: Schedule) -> bool:
        return any(fault.what is What.STOP_STORE and fault.seconds >= 2.0 for fault in candidate.faults)

    result = shrink(schedule, fails)
    assert fails(result)
    assert len(result.faults) == 1
    assert result.faults[0].seconds < 4.0


def test_schedules_are_drawn_for_what_there_is() -> None:
    """Nothing breaks that is not named; everything that is breaks some time."""
    targets = {"sidecar": ("A", "B"), "store": ("zookeeper",)}
    faults = [fault for seed in range(200) for fault in draw(seed, 30.0, targets).faults]
    assert {fault.what.target for fault in faults} == {"sidecar", "store"}
    assert {fault.target for fault in faults} == {"A", "B", "zookeeper"}
    assert {fault.what for fault in faults} == {what for what in What if what.target in targets}
    assert all(0.0 <= fault.at <= 27.0 for fault in faults)
