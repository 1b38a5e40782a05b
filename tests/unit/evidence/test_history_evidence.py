"""The commands that measure history and back-test: what they hold against what they measured."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from evidence.bench_spark import CANDIDATES, Large, Results, Timed, lines_of, size
from evidence.calibrated import PAGE, Pair, Row, Size, calibrated, faults, page, renewed, rows_of, said_by, world_of
from evidence.fidelity import Outcome, others, replayed

SMALL = Size(days=3, period_seconds=3600, points=2, rounds=0, keep=1, nights=1, stock_seconds=1800)
PAIR = Pair(imbalance=0.2, calibrated_imbalance=0.2, moves=10.0, calibrated_moves=8.0)
ROW = Row(
    seed=1,
    about="4 x 100",
    candidates=9,
    held_out=4,
    blocks=PAIR,
    unbroken=replace(PAIR, calibrated_imbalance=0.244),
    stock=replace(PAIR, calibrated_imbalance=0.21, calibrated_moves=5.0),
    changes={"split_hit_count": 12},
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
    """`evidence.calibrated`."""

    def test_worlds_are_of_their_seeds(self) -> None:
        assert world_of(3, SMALL) == world_of(3, SMALL)
        assert len({world_of(seed, SMALL).bundles for seed in range(1, 11)}) > 5

    def test_what_is_held_against_it(self) -> None:
        """More than one percent of balance lost in any world, or too few moves saved in the middle one."""
        assert faults([ROW, ROW]) == []
        less, lost = (replace(PAIR, calibrated_imbalance=imbalance) for imbalance in (0.2019, 0.2021))
        assert faults([ROW, replace(ROW, seed=2, blocks=less)]) == []
        assert faults([ROW, replace(ROW, seed=2, blocks=lost)]) == ["world 2: imbalance is 1.0% worse"]
        few = replace(ROW, blocks=replace(PAIR, calibrated_moves=8.6))
        assert "saves 14% of the moves" in faults([few, few, ROW])[0]
        assert replace(PAIR, moves=0.0, calibrated_moves=0.0).fewer == 0.0

    def test_a_world_is_kept_and_not_worked_out_again(self, tmp_path: Path) -> None:
        row = calibrated(2, SMALL)
        assert row.blocks.calibrated_moves <= row.blocks.moves
        assert row.blocks.worse <= 0.01
        rows = rows_of([2], SMALL, tmp_path, 1)
        assert replace(rows[0], cpu_seconds=0) == replace(row, cpu_seconds=0)
        entry = next(tmp_path.iterdir())
        entry.write_text(entry.read_text().replace('"seed": 2', '"seed": 7'))
        assert rows_of([2], SMALL, tmp_path, 1)[0].seed == 7

    def test_j13_what_was_found_is_judged_without_a_search(self) -> None:
        """In blocks, unbroken and with pictures each minute, which come to different figures."""
        row = calibrated(2, SMALL, {"avg_low_threshold_percent": 30.0, "move_price": 20.0})
        assert row.candidates == 0
        assert row.blocks.calibrated_moves != row.blocks.moves
        assert row.unbroken is not None and row.stock is not None
        runs = (row.blocks, row.unbroken, row.stock)
        assert len({run.calibrated_imbalance for run in runs}) >= 2
        same = calibrated(2, SMALL, {})
        assert (same.blocks.worse, same.unbroken, same.stock) == (0.0, None, None)
        assert same.blocks.imbalance == row.blocks.imbalance

    def test_j13_the_page_says_what_is_lost_unbroken(self) -> None:
        same = replace(ROW, seed=2, changes={}, unbroken=None, stock=None)
        text = page([ROW, same, replace(ROW, seed=3, unbroken=PAIR)], SMALL)
        blocks, unbroken, stock = text.split("\n## ")[1:]
        for part in (blocks, unbroken, stock):
            _, about, table = part.split("\n\n")[:3]
            assert about.endswith((".", "(`WorseUnbroken`).")) and table.startswith("| seed |"), "each says what it is"
        assert not any(f"{number} table" in text for number in ("first", "second", "third"))
        assert "| 1 | 0.2000 | 0.2440 | +22.0% |" in unbroken and "\n| 2 |" not in unbroken
        assert "1 of 2: 1 (+22.0%)." in unbroken
        assert "Not run so: 1." in page([replace(ROW, stock=None), replace(ROW, seed=3)], SMALL)
        assert "2 of 2: 1 (+5.0%), 3 (+5.0%)." in stock and "| 50% |" in stock
        assert "`WorseUnbroken`" in text and "2 times as many" in " ".join(text.split())

    def test_j13_the_page_gives_its_worlds_back(self, tmp_path: Path) -> None:
        rows = [ROW, replace(ROW, seed=2, changes={}), replace(ROW, seed=3, changes={"move_price": 62.5}, stock=None)]
        assert said_by(page(rows, SMALL)) == {
            row.seed: replace(row, candidates=0, held_out=0, reason="as the page says", cpu_seconds=0.0) for row in rows
        }
        assert rows_of([], SMALL, tmp_path, 1, {1: ROW}) == [ROW]
        committed = said_by(PAGE.read_text(encoding="utf-8"))
        assert len(committed) == 10 and any(row.changes for row in committed.values())

    def test_a_run_at_the_stock_interval_renews_its_section_alone(self) -> None:
        """And the other runs leave it; what a proposal brings unbroken, and which the job refuses."""
        at_stock = replace(SMALL, stock_seconds=SMALL.period_seconds)
        first = page([ROW], SMALL)
        own = [replace(ROW, seed=11), replace(ROW, seed=12, unbroken=PAIR)]
        text = renewed(first, own, at_stock)
        assert text.startswith(first) and said_by(text) == said_by(first)
        section = " ".join(text[len(first) :].split())
        assert "(seeds 11, 12)" in section and "1 of 2: 11 (+22.0%)." in section
        assert (
            "2 worlds 2 get a proposal; the job refuses 1 of these. Fewer moves in the others, unbroken: 20%" in section
        )
        assert renewed(text, own, at_stock) == text
        other = renewed(text, [replace(ROW, seed=4)], SMALL)
        assert other.endswith(text[len(first) :]) and other.startswith(page([replace(ROW, seed=4)], SMALL))

    def test_the_page_has_a_line_a_world(self) -> None:
        """With both settings, and what changes."""
        text = page([ROW, replace(ROW, seed=2, changes={})], SMALL)
        assert text.count("\n| 1 | 4 x 100 |") == text.count("\n| 2 | 4 x 100 |") == 1
        assert "`split_hit_count` 12" in text
        assert "Median: 20% fewer moves" in text


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
