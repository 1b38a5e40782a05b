"""The adaptive rate: halved when the clients of a broker that gave or took fare worse, one more a look otherwise."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bundlekeel.planning.guard.rate import ClientSigns, RateMemory, UsualSigns, advance, without

STEP = 30_000
CALM = ClientSigns(latency_ms=5.0, lookups_failed=0)
BOTH = frozenset({"a", "b"})


def looks(
    *current: ClientSigns, memory: RateMemory | None = None, concerned: Iterable[str] = BOTH, start: int = 0
) -> RateMemory:
    """Looks at brokers a and b, half a minute apart; b is calm always."""
    memory = memory or RateMemory()
    for index, signs in enumerate(current):
        now = (start + index) * STEP
        memory = advance(memory, {"a": signs, "b": CALM}, frozenset(concerned), ceiling=10, now_ms=now)
    return memory


def test_nothing_is_limited_at_first() -> None:
    """Rule: until something is worse than usual there is no limit, whatever the figures are."""
    assert (
        looks(*[ClientSigns(latency_ms=900.0, failures=n * 100, connections=n * 9000) for n in range(5)]).moves is None
    )
    assert RateMemory().moves is None


@pytest.mark.parametrize(
    ("worse", "word"),
    [
        (ClientSigns(latency_ms=40.0), "latency"),
        (ClientSigns(latency_ms=5.0, failures=30), "failed"),
        (ClientSigns(latency_ms=5.0, connections=600), "connections"),
        (ClientSigns(latency_ms=5.0, lookups_failed=30), "lookups"),
    ],
)
def test_each_sign_halves(worse: ClientSigns, word: str) -> None:
    """Rule: latency, failures or new connections above normal halve the moves per cycle; the reason names them."""
    memory = looks(CALM, CALM, CALM, worse)
    assert memory.moves == 5
    assert word in memory.reason and memory.reason.startswith("a: ")


@pytest.mark.parametrize(
    "within",
    [
        ClientSigns(latency_ms=24.0),  # a multiple, but within what noise does
        ClientSigns(latency_ms=5.0, failures=5),
        ClientSigns(latency_ms=5.0, connections=149),
        ClientSigns(latency_ms=5.0, lookups_failed=5),
        ClientSigns(latency_ms=None),
    ],
)
def test_noise_does_nothing(within: ClientSigns) -> None:
    """Rule: values that are not clearly above normal are not a reason."""
    assert looks(CALM, CALM, CALM, within).moves is None


@pytest.mark.parametrize(
    ("usual", "now", "worse"),
    [
        (
            ClientSigns(latency_ms=20.0),
            ClientSigns(latency_ms=60.0),
            False,
        ),  # three times as much is not more than that
        (ClientSigns(latency_ms=20.0), ClientSigns(latency_ms=61.0), True),
        (ClientSigns(latency_ms=5.0), ClientSigns(latency_ms=25.0), False),
        (ClientSigns(latency_ms=5.0), ClientSigns(latency_ms=25.5), True),
        (ClientSigns(), ClientSigns(failures=6), False),  # 0.2 a second
        (ClientSigns(), ClientSigns(failures=7), True),
        (ClientSigns(), ClientSigns(connections=150), False),  # five a second
        (ClientSigns(), ClientSigns(connections=165), True),
        (ClientSigns(lookups_failed=0), ClientSigns(lookups_failed=6), False),
        (ClientSigns(lookups_failed=0), ClientSigns(lookups_failed=7), True),
    ],
)
def test_what_is_clearly_above(usual: ClientSigns, now: ClientSigns, worse: bool) -> None:
    """Rule: more than three times the usual, and beyond it by more than the slack of that sign."""
    assert (looks(usual, usual, now).moves is not None) is worse


def test_the_newest_look_is_a_fifth_of_what_is_usual() -> None:
    """Rule: the normal value follows slowly; the first value of a sign is used unchanged."""
    memory = looks(
        ClientSigns(latency_ms=10.0), ClientSigns(latency_ms=10.0), ClientSigns(latency_ms=20.0, connections=30)
    ).usual["a"]
    assert memory.latency_ms == pytest.approx(12.0)
    assert memory.connections == pytest.approx(0.2)
    assert looks(ClientSigns(), ClientSigns(), ClientSigns(latency_ms=20.0)).usual["a"].latency_ms == 20.0


@pytest.mark.parametrize(("after_ms", "reported"), [(0, False), (1, True), (600_000, True), (600_001, False)])
def test_how_far_apart_two_looks_may_be(after_ms: int, reported: bool) -> None:
    """Rule: counters ten minutes apart still describe the present; later ones and simultaneous ones do not."""
    first = advance(RateMemory(), {"a": CALM}, BOTH, ceiling=10, now_ms=STEP)
    assert bool(advance(first, {"a": CALM}, BOTH, ceiling=10, now_ms=STEP + after_ms).usual) is reported


def test_it_halves_down_to_one_and_grows_by_one() -> None:
    """Rule: 10, 5, 2, 1, and never none; then one more a calm look until no limit is left."""
    memory, bad = looks(CALM, CALM, CALM), ClientSigns(latency_ms=500.0)
    rates = []
    for index in range(6):
        memory = looks(bad, memory=memory, start=3 + index)
        rates.append(memory.moves)
    assert rates == [5, 2, 1, 1, 1, 1]
    grown = []
    for index in range(10):
        memory = looks(CALM, memory=memory, start=9 + index)
        grown.append(memory.moves)
    assert grown == [2, 3, 4, 5, 6, 7, 8, 9, None, None]
    assert memory.reason == ""


def test_brokers_that_did_not_move_anything_are_no_reason() -> None:
    """Rule: a broker that neither shed nor took shows nothing about the moves; its values become normal."""
    memory = looks(CALM, CALM, *[ClientSigns(latency_ms=500.0)] * 30, concerned={"b"})
    assert memory.moves is None
    assert memory.usual["a"].latency_ms == pytest.approx(500.0, rel=0.01)


def test_a_lasting_change_of_a_broker_at_rest_becomes_usual_only_there() -> None:
    """Rule: worse values are not learned while moves may be their cause."""
    memory = looks(CALM, CALM, *[ClientSigns(latency_ms=500.0)] * 5)
    assert memory.usual["a"].latency_ms == pytest.approx(5.0)


def test_counters_that_restart_tell_nothing() -> None:
    """Rule: after a restart of the broker, or a long silence, there are no rates, and so no reason."""
    memory = looks(ClientSigns(connections=9000), ClientSigns(connections=9000))
    restarted = looks(ClientSigns(connections=50), memory=memory, start=2)
    assert restarted.moves is None
    assert restarted.usual["a"] == memory.usual["a"], "nor is anything learnt"
    failed = looks(ClientSigns(failures=900), ClientSigns(failures=900))
    assert looks(ClientSigns(failures=5), memory=failed, start=2).usual["a"] == failed.usual["a"]
    assert looks(ClientSigns(connections=99_000), memory=memory, start=99).moves is None


def test_brokers_that_are_gone_are_forgotten() -> None:
    """Rule: memory holds those that are there."""
    memory = without(looks(CALM, CALM), {"a"})
    assert (set(memory.last), set(memory.usual)) == ({"b"}, {"b"})
    assert memory.usual["b"] == UsualSigns(latency_ms=5.0, lookups_failed=0.0)


figures = st.builds(
    ClientSigns,
    latency_ms=st.one_of(st.none(), st.floats(0, 1e6)),
    failures=st.integers(0, 10**6),
    connections=st.integers(0, 10**9),
)


@given(st.lists(st.tuples(figures, st.booleans()), max_size=12), st.integers(1, 100))
def test_never_none_and_never_above_the_ceiling(seen: list[tuple[ClientSigns, bool]], ceiling: int) -> None:
    """Law: for any broker values, at least one move per cycle stays possible, and never more than the budget."""
    memory = RateMemory()
    for index, (signs, concerned) in enumerate(seen):
        at = index * STEP
        memory = advance(memory, {"a": signs}, {"a"} if concerned else set(), ceiling=ceiling, now_ms=at)
        assert memory.moves is None or 1 <= memory.moves <= max(ceiling, 1)
