"""The chaos tests' own count of repeated requests."""

from __future__ import annotations

import pytest

from tests.chaos.stage import Unload, asked_twice


@pytest.mark.parametrize(
    ("members", "intents", "messages"),
    [
        ("A", ["1.1"], []),
        ("AA", ["1.1", "1.2"], []),
        ("AA", ["1.1"], ["b was unloaded 2 times at t, for 1 intents"]),
        ("AB", ["1.1", "1.1"], ["intent 1.1 of b has 2 records", "b was unloaded 2 times at t, for 1 intents"]),
        ("A", [""], ["b was unloaded 1 times at t, for 0 intents"]),
    ],
)
def test_calls_are_counted_by_intent(members: str, intents: list[str], messages: list[str]) -> None:
    """Not by member and bundle: a second move of a bundle is none too many, a second call for one intent is."""
    unloads = [Unload("b", member, "t", 0.0) for member in members]
    assert asked_twice(unloads, [{"bundle": "b", "intent": intent} for intent in intents]) == messages
