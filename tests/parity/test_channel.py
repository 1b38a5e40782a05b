"""Compare `should_keep_left` with the real ServiceUnitStateDataConflictResolver of Pulsar, pair by pair.

For an entry without destination that was forced to Owned, the class throws. A table view then drops the message as if
it had lost, so ours keeps the left one.
"""

from __future__ import annotations

import json
from collections import Counter
from random import Random

import pytest

from bundlekeel.model.channel_states import (
    OVER_METADATA_STORE,
    OVER_SYSTEM_TOPIC,
    ServiceUnit,
    UnitState,
    should_keep_left,
)
from dev.oracle import Oracle
from tests.parity.channel_states import Pair, draw
from tests.support.service_units import encode_service_unit

PAIRS_A_LINE = 5_000
# Seconds on an idle machine; the JVM shares it with whatever else runs.
pytestmark = pytest.mark.timeout(600)


def line_of(pairs: list[Pair]) -> bytes:
    """A turn of the oracle, its entries as `pulsar.formats` writes them."""
    entries = [b"null" if unit is None else encode_service_unit(unit) for pair in pairs for unit in pair]
    indexes = json.dumps([[2 * index, 2 * index + 1] for index in range(len(pairs))]).encode()
    return b'{"entries":[' + b",".join(entries) + b'],"pairs":' + indexes + b"}"


def compare(oracle: Oracle, seed: int, count: int, *, store: bool) -> tuple[Counter[tuple[str, ...]], list[str]]:
    """Return the number of draws by outcome, and a description of every difference."""
    rng, counts, differences = Random(seed), Counter[tuple[str, ...]](), list[str]()
    oracle.ask({"reset": {"kind": "channel", "store": store}})
    drawn = [draw(rng) for _ in range(count)]
    chunks = [drawn[at : at + PAIRS_A_LINE] for at in range(0, count, PAIRS_A_LINE)]
    answers = oracle.ask_all([line_of([pair for _, pair in chunk]) for chunk in chunks])
    for chunk, answer in zip(chunks, answers, strict=True):
        assert "error" not in answer, answer
        for (step, (current, new)), java in zip(chunk, answer["keep"], strict=True):
            keeps = should_keep_left(current, new, store=store)
            if keeps is not (java in "1e"):
                differences.append(f"{step} of seed {seed}: ours {keeps}, Java {java}: {current} {new}")
            forced = "force" if new is not None and new.force else "plain"
            counts[(*step, forced, java)] += 1
    return counts, differences


def total(counts: Counter[tuple[str, ...]], *part: str) -> int:
    """Return how many draws match these parts; "" matches any."""
    return sum(
        count for key, count in counts.items() if all(want in ("", have) for want, have in zip(part, key, strict=True))
    )


@pytest.mark.parametrize("store", [False, True])
def test_a_hundred_thousand_pairs(each_oracle: Oracle, store: bool) -> None:
    """Equal without one difference, each branch taken often, on both sides of its condition."""
    counts, differences = compare(each_oracle, 7, 100_000, store=store)
    assert not differences, differences[:3]
    assert counts.total() == 100_000
    allowed = OVER_METADATA_STORE if store else OVER_SYSTEM_TOPIC
    for before in UnitState:
        for after in UnitState:
            both = (before, after, "next", "plain")
            if after not in allowed[before]:
                assert total(counts, *both, "1") >= 30 and not total(counts, *both, "0"), both
            elif UnitState.INIT in (before, after):  # nothing is asked about the brokers
                assert total(counts, *both, "0") >= 30, both
            else:
                assert min(total(counts, *both, "0"), total(counts, *both, "1")) >= 50, both
            assert total(counts, before, after, "next", "force", "0") >= 3
        assert total(counts, before, "None", "", "", "0") >= 50
    assert not total(counts, "", "None", "", "", "1")
    for relation in ("same", "older"):
        assert total(counts, "Owned", "", relation, "", "1") >= 50
    for before in set(UnitState) - {UnitState.INIT}:
        gaps = [total(counts, before, after, "gap", "", "01"[not store]) for after in UnitState]
        assert not any(gaps) and total(counts, before, "", "gap", "", "01"[store]) >= 300
    assert min(total(counts, "", "", "overflow", "", java) for java in "01") >= 500
    assert total(counts, "None", "", "first", "", "0") >= 500
    assert total(counts, "None", "", "later", "", "01"[store]) >= 500


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("store", [False, True])
def test_more_pairs(oracle: Oracle, store: bool, seed: int) -> None:
    """Other seeds."""
    counts, differences = compare(oracle, 100 + seed, 100_000, store=store)
    assert not differences, differences[:3]
    assert counts.total() == 100_000


def test_what_java_cannot_compare_is_dropped(each_oracle: Oracle) -> None:
    """An owner without destination makes the class throw; a first entry with such brokers is taken."""
    current = ServiceUnit(state=UnitState.OWNED, source="b1:8080", version=1)
    new = ServiceUnit(state=UnitState.RELEASING, source="b1:8080", version=2)
    for store in (False, True):
        each_oracle.ask({"reset": {"kind": "channel", "store": store}})
        answer = each_oracle.ask(line_of([(current, new), (None, current)]))
        assert answer["keep"] == "e0"
        assert should_keep_left(current, new, store=store) and not should_keep_left(None, current, store=store)
