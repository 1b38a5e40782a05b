"""The commands that measure history and back-test: what they hold against what they measured."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from evidence.bench_spark import CANDIDATES, Timed, growth, lines_of, size
from evidence.fidelity import Outcome, others, replayed

DAY = Timed(
    brokers=3,
    bundles=48,
    days=1,
    cycles=17_280,
    wall=120.0,
    cpu=240.0,
    driver=10**9,
    executor=3 * 10**8,
    history_bytes=10**7,
)
LARGE = replace(DAY, brokers=100, bundles=2000, cpu=2000.0)


class TestBenchSpark:
    """`evidence.bench_spark`."""

    def test_growth_compares_a_day_of_the_same_cluster(self) -> None:
        assert growth([DAY, replace(DAY, days=4, cpu=1056.0), LARGE]) == pytest.approx(1.1)

    def test_the_page_extrapolates_to_two_weeks(self) -> None:
        """288 plans per CPU second, and 14 days of 17,280 cycles are 0.23 core-hours."""
        lines = lines_of([DAY, LARGE])
        assert "| 3 x 48 | 1 | 17,280 | 10 | 120 | 240 | 288 | 1,000 | 300 | 0.23 |" in lines

    def test_every_candidate_differs(self) -> None:
        assert len({item.key for item in CANDIDATES}) == len(CANDIDATES)
        assert size("3x48x14") == (3, 48, 14)


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
