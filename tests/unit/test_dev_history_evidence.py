"""The commands that measure history and back-test: what they hold against what they measured."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dev.bench_spark import CANDIDATES, Large, Results, Timed, lines_of, size
from dev.calibrated import Row, Size, calibrated, faults, page, rows_of, world_of
from dev.fidelity import Outcome, others, replayed

SMALL = Size(days=3, period_seconds=3600, points=2, rounds=0, keep=1, nights=1)
ROW = Row(
    seed=1,
    about="4 x 100",
    candidates=9,
    held_out=4,
    imbalance=0.2,
    calibrated_imbalance=0.2,
    moves=10.0,
    calibrated_moves=8.0,
    changes={"avg_hit_count_low": 12},
    reason="fewer",
    cpu_seconds=60.0,
)
ONE = Timed(what="20x2000x4", days=1, workers=2, rebuild=10, plan=20, cpu=55, history_bytes=1000, array_bytes=2000)
GOOD = Results(
    day=replace(ONE, what="100x10000x1", rebuild=60, plan=120),
    growth=(ONE, replace(ONE, days=4, rebuild=35, plan=80)),
    alone=replace(ONE, workers=1, plan=36),
    plain=(30.0, 16.0),
    large=Large(brokers=1000, bundles=100_000, periods=10, seconds_a_period=1.5, bytes_a_period=2e6),
    busy=0.5,
)


class TestCalibrated:
    """`dev.calibrated`."""

    def test_worlds_are_of_their_seeds(self) -> None:
        """The same seed, the same world; another one, another."""
        assert world_of(3, SMALL) == world_of(3, SMALL)
        assert len({world_of(seed, SMALL).bundles for seed in range(1, 11)}) > 5

    def test_what_is_held_against_it(self) -> None:
        """More than one percent of balance lost in any world, or too few moves saved in the middle one."""
        assert faults([ROW, ROW]) == []
        assert faults([ROW, replace(ROW, seed=2, calibrated_imbalance=0.2019)]) == []
        assert faults([ROW, replace(ROW, seed=2, calibrated_imbalance=0.2021)]) == ["world 2: imbalance is 1.0% worse"]
        few = replace(ROW, calibrated_moves=8.6)
        assert "saves 14% of the moves" in faults([few, few, ROW])[0]
        assert replace(ROW, moves=0.0, calibrated_moves=0.0).fewer == 0.0

    def test_a_world_is_kept_and_not_worked_out_again(self, tmp_path: Path) -> None:
        """What a broken-off run has is read; the same settings on both sides are neither better nor worse."""
        row = calibrated(2, SMALL)
        assert row.calibrated_moves <= row.moves
        assert row.worse <= 0.01
        made = rows_of([2], SMALL, tmp_path, 1)
        assert replace(made[0], cpu_seconds=0) == replace(row, cpu_seconds=0)
        kept = next(tmp_path.iterdir())
        kept.write_text(kept.read_text().replace('"seed": 2', '"seed": 7'))
        assert rows_of([2], SMALL, tmp_path, 1)[0].seed == 7

    def test_the_page_has_a_line_a_world(self) -> None:
        """With both settings, and what changes."""
        text = page([ROW, replace(ROW, seed=2, changes={})], SMALL)
        assert text.count("\n| 1 | 4 x 100 |") == text.count("\n| 2 | 4 x 100 |") == 1
        assert "`avg_hit_count_low` 12" in text
        assert "Median: 20% fewer moves" in text


class TestBenchSpark:
    """`dev.bench_spark`."""

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
        """Five keys; sizes are told by brokers and bundles."""
        assert len({item.key for item in CANDIDATES}) == 5
        assert size("100x10000") == (100, 10_000)


class TestFidelity:
    """`dev.fidelity`."""

    def test_others_are_other_minor_versions(self, tmp_path: Path) -> None:
        """Not this one, none that is too old, nothing that is no Python; two of one version count once."""
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
        """What it says, instead of an exception."""
        place = tmp_path / "python"
        place.write_text("#!/bin/sh\necho no module named numpy >&2\nexit 1\n")
        place.chmod(0o755)
        found = replayed(place, str(tmp_path), "there")
        assert (found.held, found.wrong) == (False, "no module named numpy")
