"""When a move's record says that it ended: cool-downs and the journal's order go by it."""

from __future__ import annotations

from bundlekeel.daemon.execution.intents import MoveOutcome
from bundlekeel.daemon.execution.leader_executor import move_record

BEGUN = 1_790_000_000_000


def ended(**more: object) -> int:
    """The record's time of a move that waited ten seconds for its turn and two for its owner."""
    moved = {"bundle": "t/n/0x0_0x1", "source": "a", "destination": "b", "started_wall_ms": BEGUN, "seconds": 12.0}
    found: int = move_record(MoveOutcome(**{"outcome": "unknown", **moved, **more}))["wall_ms"]  # type: ignore[arg-type]
    return found


def test_a_landing_is_when_the_owner_was_seen() -> None:
    """Not when that was written down."""
    assert ended(outcome="done", landed_on="b", landed_wall_ms=BEGUN + 11_000) == BEGUN + 11_000


def test_without_a_landing_it_is_when_the_wait_ended() -> None:
    """Not when it was admitted: the bundle would be free for another move that much earlier."""
    assert ended() == BEGUN + 12_000
    assert ended(outcome="refused") == BEGUN + 12_000
