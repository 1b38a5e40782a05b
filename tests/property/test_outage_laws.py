"""Laws of settling after an outage, for any sequence of looks: judged by an oracle that only counts seconds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bundlekeel.planning.guard.outage import SettleRules, StoreSight, advance, begin, waiting

SESSION, SETTLE = 10, SettleRules(seconds=20.0, step=5.0)
# Number of seconds with the same response: these brokers, or none.
LOOKS = st.lists(
    st.tuples(st.integers(1, 40), st.one_of(st.none(), st.frozensets(st.sampled_from("abcd"), max_size=4))),
    min_size=1,
    max_size=12,
)


@given(LOOKS)
def test_nothing_may_move_before_it_was_quiet_long_enough(looks: list[tuple[int, frozenset[str] | None]]) -> None:
    """After a whole session without an answer, at least `seconds` of answers with one and the same registry."""
    boot, state = 0.0, begin(0.0)
    silent = quiet = 0
    outage, registry = False, None
    for seconds, brokers in looks:
        for _ in range(seconds):
            boot += 1.0
            counts = None if brokers is None else frozenset((broker, 1) for broker in brokers)
            sight = StoreSight(boot=boot, answered=counts is not None, session_seconds=SESSION, brokers=counts)
            state = advance(state, sight, SETTLE)
            silent = silent + 1 if counts is None else 0
            if silent >= SESSION:
                outage, quiet = True, -1
            elif counts is not None:
                quiet = 0 if counts != registry or quiet < 0 else quiet + 1
                registry = counts
            if outage and quiet >= SETTLE.seconds and waiting(state, SETTLE) is None:
                outage = False
            assert not outage or waiting(state, SETTLE) is not None


@given(LOOKS, st.frozensets(st.sampled_from("abcd"), min_size=1, max_size=4))
def test_it_always_ends(looks: list[tuple[int, frozenset[str] | None]], last: frozenset[str]) -> None:
    """Whatever happened: with a store that answers and a registry that does not change, things move again."""
    boot, state = 0.0, begin(0.0)
    counts = frozenset((broker, 1) for broker in last)
    for seconds, brokers in [*looks, (int(SETTLE.patience + SETTLE.seconds) + 2, last)]:
        for _ in range(seconds):
            boot += 1.0
            now = None if brokers is None else frozenset((broker, 1) for broker in brokers)
            sight = StoreSight(boot=boot, answered=now is not None, session_seconds=SESSION, brokers=now)
            state = advance(state, sight, SETTLE)
    assert state.registered == counts
    assert waiting(state, SETTLE) is None
