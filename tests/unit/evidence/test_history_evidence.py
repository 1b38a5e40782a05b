"""The commands that measure history and back-test: what they hold against what they measured."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from evidence.bench_spark import CANDIDATES, Large, Results, Timed, lines_of, size
from evidence.fidelity import Outcome, others, replayed

ONE = Timed(what="20x2000x4", days=1, workers=2, rebuild=10, plan=20, cpu=55, history_bytes=1000)
GOOD = Results(
    day=replace(ONE, what="100x10000x1", rebuild=60, plan=120),
    growth=(ONE, replace(ONE, days=4, rebuild=35, plan=80)),
    alone=replace(ONE, workers=1, plan=36),
    plain=(30.0, 16.0),
    large=Large(brokers=1000, bundles=100_000, periods=10, seconds_a_period=1.5, bytes_a_period=2e6),
    busy=0.5,
)


class TestBenchSpark:
    """`evidence.bench_spark`."""

    def test_what_is_held_against_it(self) -> None:
        """Five minutes, linear growth, and a speed-up like that of plain processes."""
        assert GOOD.faults() == []
        assert GOOD.speed_up == pytest.approx(1.8)
        assert GOOD.plain_speed_up == pytest.approx(1.875)
        assert "a day took 310 s" in replace(GOOD, day=replace(GOOD.day, plan=250)).faults()[0]
        assert "1.04 times" in replace(GOOD, growth=(ONE, replace(ONE, days=4, plan=115))).faults()[0]
        assert "speed-up 1.40" in replace(GOOD, alone=replace(GOOD.alone, plan=28)).faults()[0]

    def test_extrapolation(self) -> None:
        """Planning by what a minute took, rebuilding and bytes by size."""
        text = " ".join(lines_of(GOOD))
        assert "21 of planning" in text
        assert "30 days of 1,000 brokers x 100,000 bundles" in text
        assert f"{30 * 10 * 1000 / 1e9:,.0f} GB of history" in text

    def test_every_strategy_is_its_own_candidate(self) -> None:
        assert len({item.key for item in CANDIDATES}) == 5
        assert size("100x10000") == (100, 10_000)


class TestFidelity:
    """`evidence.fidelity`."""

    def test_others_are_other_minor_versions(self, tmp_path: Path) -> None:
        own, same, newer, old, broken = (tmp_path / name for name in ("own", "same", "newer", "old", "broken"))
        here = " ".join(map(str, sys.version_info[:2]))
        for place, version in ((own, here), (same, "3 99"), (newer, "3 99"), (old, "3 9")):
            place.write_text(f"#!/bin/sh\necho {version}\n")
            place.chmod(0o755)
        broken.write_text("")
        assert others([str(item) for item in (own, same, newer, old, broken)]) == {(3, 99): same}

    def test_what_holds(self) -> None:
        """All plans the same, and enough cycles that move something."""
        assert Outcome(where="here", cycles=90, same=90, moved=30).held
        assert not Outcome(where="here", cycles=90, same=89, moved=30).held
        assert not Outcome(where="here", cycles=90, same=90, moved=29).held

    def test_a_python_without_dependencies_is_said(self, tmp_path: Path) -> None:
        place = tmp_path / "python"
        place.write_text("#!/bin/sh\necho no module named numpy >&2\nexit 1\n")
        place.chmod(0o755)
        replay_result = replayed(place, str(tmp_path), "there")
        assert (replay_result.held, replay_result.wrong) == (False, "no module named numpy")
