"""A span of time in figures: what moved and what it did, what did not move, overloads, people."""

from __future__ import annotations

from typing import Any

from bundlekeel.model.response_fields import Json
from bundlekeel.views.summary import summary
from bundlekeel.views.summary_fields import Period


def cycle(wall_ms: int, code: str = "Balanced", **more: Any) -> Json:
    """A cycle's line in the journal."""
    return {"kind": "cycle", "wall_ms": wall_ms, "code": code, "sentence": f"at {wall_ms}", **more}


def test_a_day_in_figures() -> None:
    """Each figure is of that time only, and counts what a person would."""
    records: list[Json] = [
        cycle(1, "Overloaded"),
        cycle(10, "Overloaded", planned=2, acted=True, refused={"CoolDown": 3}),
        cycle(20, "Overloaded", planned=3, obstacle="RecommendOnly", refused={"CoolDown": 5, "Pinned": 1}),
        cycle(30),
        cycle(40, "Overloaded", planned=1, obstacle="RecommendOnly"),
        {"kind": "request", "wall_ms": 15, "by": "ann", "what": "pause", "reason": "disks"},
        {"kind": "audit", "wall_ms": 16, "status": 403, "attempts": 2},
        {"kind": "audit", "wall_ms": 17, "status": 200},
    ]
    moves = [{"wall_ms": at, "outcome": outcome} for at, outcome in ((2, "done"), (11, "done"), (12, "failed"))]
    effects = [{"wall_ms": 25, "outcome": "helped", "bundles": ["a", "b"], "realised": 0.2}]
    view = summary(Period(since_ms=5), 50, records, moves, effects)
    assert (view.since_ms, view.until_ms, view.known_since_ms, view.cycles) == (5, 50, 10, 4)
    assert (view.moves, view.effects, view.gain) == ({"done": 1, "failed": 1}, {"helped": 2}, 0.2)
    assert (view.recommended, view.recommended_moves) == (2, 3)
    assert [(item.code, item.cycles, item.most) for item in view.refusals] == [("CoolDown", 2, 5), ("Pinned", 1, 1)]
    assert [(item.code, item.cycles) for item in view.obstacles] == [("RecommendOnly", 2)]
    assert [(item.since_ms, item.until_ms, item.cycles) for item in view.overloads] == [(10, 20, 2), (40, 40, 1)]
    assert [(item.by, item.what) for item in view.people] == [("ann", "pause")]
    assert view.refused_requests == 2
    assert view.sentence == (
        "2 moves, 2 of 2 judged helped, 2 cycles recommended moves that were not carried out, "
        "a broker was overloaded 2 times"
    )


def test_what_the_leader_carries_out_is_not_told_as_left_undone() -> None:
    records = [
        cycle(10, planned=2, obstacle="RecommendOnly"),
        cycle(20, planned=4, obstacle="NotLeader"),
        cycle(30, obstacle="NotLeader"),
    ]
    view = summary(Period(since_ms=5), 50, records, [], [])
    assert (view.cycles, view.followed, view.recommended, view.recommended_moves) == (3, 2, 1, 2)
    assert [(item.code, item.cycles) for item in view.obstacles] == [("RecommendOnly", 1)]
    assert "1 cycle recommended moves that were not carried out" in view.sentence


def test_of_nothing_nothing_is_claimed() -> None:
    """A sidecar that has just started says that it knows nothing of yesterday."""
    view = summary(Period(since_ms=5, until_ms=6), 50, [cycle(10)], [], [])
    assert (view.known_since_ms, view.cycles, view.gain) == (None, 0, None)
    assert view.sentence == "nothing moved, no broker was overloaded"
