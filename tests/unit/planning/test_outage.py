"""Start and end of an outage, with one poll per second on a clock of the test."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from bundlekeel.planning.guard.outage import (
    Outage,
    OutageMemory,
    SettleRules,
    StoreSight,
    advance,
    begin,
    join,
    leave,
    noticed,
    remember,
    waiting,
)

SETTLE = SettleRules(seconds=180.0, step=5.0)
ALL = ("b1", "b2", "b3")


def registered(brokers: Iterable[str], start: int = 1) -> frozenset[tuple[str, int]]:
    """Registrations of brokers that started at the same moment."""
    return frozenset((broker, start) for broker in brokers)


class Eyes:
    """Looks once a second."""

    def __init__(self) -> None:
        self.boot = 1000.0
        self.state: OutageMemory = begin(self.boot)

    def look(
        self, seconds: int, brokers: Iterable[str] | None = ALL, *, answered: bool = True, start: int = 1
    ) -> OutageMemory:
        for _ in range(seconds):
            self.boot += 1.0
            sight = StoreSight(
                boot=self.boot,
                answered=answered,
                session_seconds=10.0,
                brokers=None if brokers is None or not answered else registered(brokers, start),
            )
            self.state = advance(self.state, sight, SETTLE)
        return self.state

    @property
    def left(self) -> float | None:
        """Seconds that are waited for at least, None when nothing is."""
        wait = waiting(self.state, SETTLE)
        return None if wait is None else wait.seconds


def test_a_fresh_start_waits_for_nothing() -> None:
    """A store that answers at once, brokers or none: as before."""
    eyes = Eyes()
    eyes.look(1, None)
    assert eyes.left is None
    eyes.look(1, ())
    eyes.look(1, ("b1",))
    eyes.look(1)
    assert eyes.left is None, "a registry that grows is no outage"


@pytest.mark.parametrize(("seconds", "outage"), [(9, False), (10, True)])
def test_only_a_whole_session_without_an_answer_counts(seconds: int, outage: bool) -> None:
    eyes = Eyes()
    eyes.look(5)
    eyes.look(seconds, answered=False)
    eyes.look(1)
    assert (eyes.left is not None) is outage


@pytest.mark.parametrize(("looks", "outage"), [(19, False), (20, True)])
def test_seconds_count_and_not_looks(looks: int, outage: bool) -> None:
    """Half a second apart it takes twice as many."""
    eyes = Eyes()
    eyes.look(5)
    for _ in range(looks):
        eyes.boot -= 0.5
        eyes.look(1, answered=False)
    assert (eyes.left is not None) is outage


def test_suspensions_do_not_add_up() -> None:
    """Each answer proves that the session lives."""
    eyes = Eyes()
    eyes.look(5)
    for _ in range(5):
        eyes.look(6, answered=False)
        eyes.look(1)
    assert eyes.left is None


def test_a_stopped_process_knows_nothing_of_the_store() -> None:
    eyes = Eyes()
    eyes.look(5)
    eyes.boot += 60.0
    eyes.look(1, answered=False)
    eyes.look(1)
    assert eyes.left is None


def test_a_start_without_a_store_is_an_outage() -> None:
    eyes = Eyes()
    eyes.look(11, answered=False)
    eyes.look(1)
    assert eyes.left == pytest.approx(180.0)
    eyes.look(179)
    assert eyes.left is not None
    eyes.look(1)
    assert eyes.left is None


def test_a_store_that_answers_without_the_registry_settles_nothing() -> None:
    """However long it is quiet: which brokers are there is not known."""
    eyes = Eyes()
    eyes.look(11, answered=False)
    eyes.look(200, None)
    assert eyes.left == 0.0
    eyes.look(180)
    assert eyes.left is not None
    eyes.look(1)
    assert eyes.left is None


def test_quiet_begins_anew_with_each_change_and_only_when_all_are_back() -> None:
    """Brokers come back one by one; the clock starts with the last of them."""
    eyes = Eyes()
    eyes.look(5)
    eyes.look(20, answered=False)
    wait = waiting(eyes.state, SETTLE)
    assert wait is not None and wait.away and eyes.state.outage is not None
    assert eyes.state.outage.expected == frozenset(ALL)
    eyes.look(100, ("b1",))
    wait = waiting(eyes.state, SETTLE)
    assert wait is not None and wait.missing == ("b2", "b3") and not wait.away
    eyes.look(170, ("b1", "b2"))
    eyes.look(1)
    assert eyes.left == pytest.approx(180.0)
    eyes.look(100)
    eyes.look(1, start=2)
    assert eyes.left == pytest.approx(180.0), "a broker that restarts is a change as well"
    eyes.look(180, start=2)
    assert eyes.left is None


def test_a_broker_that_never_comes_back_is_given_up() -> None:
    """After four times as long the others may be balanced without it."""
    eyes = Eyes()
    eyes.look(5)
    eyes.look(20, answered=False)
    eyes.look(700, ("b1", "b2"))
    assert eyes.left is not None
    eyes.look(30, ("b1", "b2"))
    assert eyes.left is None


@pytest.mark.parametrize(
    ("before", "after", "outage"),
    [(ALL, ("b1",), True), (ALL, ("b1", "b2"), False), (("b1", "b2"), ("b1",), False), (("b1", "b2"), (), True)],
)
def test_less_than_half_at_once(before: tuple[str, ...], after: tuple[str, ...], outage: bool) -> None:
    """Many sessions ended at once, though we saw the store answer all the while."""
    eyes = Eyes()
    eyes.look(100, before)
    eyes.look(1, after)
    assert (eyes.left is not None) is outage


def test_one_after_the_other_is_no_outage() -> None:
    eyes = Eyes()
    eyes.look(100, ("b1", "b2", "b3", "b4"))
    for left in (3, 2, 1):
        eyes.look(31, tuple(f"b{number}" for number in range(1, left + 1)))
        eyes.look(31, tuple(f"b{number}" for number in range(1, left + 1)))
    assert eyes.left is None


@pytest.mark.parametrize(("seconds", "outage"), [(5, True), (30, True), (31, False)])
def test_two_within_the_window_count_as_one(seconds: int, outage: bool) -> None:
    """Sessions of brokers end within moments of each other, half a minute at most."""
    eyes = Eyes()
    eyes.look(100)
    eyes.look(seconds, ("b1", "b2"))
    eyes.look(1, ("b1",))
    assert (eyes.left is not None) is outage


def test_what_the_last_leader_saw_counts() -> None:
    """A new leader with one of three brokers in its first picture does not act on that."""
    eyes = Eyes()
    eyes.state = remember(eyes.state, ALL, eyes.boot)
    eyes.look(1, ("b1",))
    assert eyes.left is not None
    away = Eyes()
    away.look(11, answered=False)
    away.state = remember(away.state, ALL, away.boot)
    away.look(1, ("b1",))
    assert away.state.missing == {"b2", "b3"}, "a start without a store knows of them only from there"
    other = Eyes()
    other.state = remember(other.state, ALL, other.boot)
    other.look(1)
    assert other.left is None


def test_a_picture_between_two_looks_is_noticed_but_proves_no_answer() -> None:
    eyes = Eyes()
    eyes.look(5)
    state = noticed(eyes.state, registered(("b1",)), eyes.boot + 0.5, SETTLE)
    assert state.outage is not None
    for _ in range(10):
        eyes.look(1, answered=False)
        eyes.state = noticed(eyes.state, registered(ALL), eyes.boot, SETTLE)
    assert eyes.state.outage is not None and eyes.state.outage.back is None


def test_joined_and_left() -> None:
    eyes = Eyes()
    eyes.look(1)
    eyes.state = join(eyes.state, Outage(why="seen by b", since=eyes.boot, expected=frozenset(ALL), back=eyes.boot))
    eyes.state = join(eyes.state, Outage(why="seen by c", since=eyes.boot, expected=frozenset(("b4",)), back=eyes.boot))
    assert eyes.state.missing == {"b4"}
    assert leave(eyes.state, eyes.boot).outage is None


def test_a_short_silence_while_it_settles_does_not_count_as_quiet() -> None:
    """Five seconds without an answer: nothing is known of them, so they are waited for on top."""
    eyes = Eyes()
    eyes.look(1)
    eyes.look(10, answered=False)
    eyes.look(101)
    assert eyes.left == 80.0
    eyes.look(5, answered=False)
    eyes.look(1)
    assert eyes.left == 79.0
    eyes.look(79)
    assert eyes.left is None


def test_an_outage_began_with_the_silence() -> None:
    """The store answered last at 1005: since then it is away, however late that is known."""
    eyes = Eyes()
    eyes.look(5)
    state = eyes.look(12, answered=False)
    assert state.outage is not None and state.outage.since == 1005.0
