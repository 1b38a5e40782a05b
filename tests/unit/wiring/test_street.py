"""Steps from the command to the request that moves a bundle, on the real graph."""

from __future__ import annotations

from pathlib import Path

from evidence.structure import street


def test_the_way_to_a_move_does_not_grow() -> None:
    """A reader follows it from the entry point to the call of the admin port."""
    frames = street(Path(__file__).resolve().parents[3])
    assert frames[0] == "wiring/__init__.py main"
    assert frames[-1] == "leader/execution/move.py MoveState.unload"
    files = {frame.split()[0] for frame in frames}
    assert len(frames) <= 12 and len(files) <= 7
