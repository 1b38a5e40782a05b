"""Mutation: the files that are changed exist, and the page counts what the tests noticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from evidence.mutation import GROUPS, TESTS, group_of, page, prepare, share

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("group", GROUPS)
def test_each_group_has_a_file(group: str) -> None:
    """Neither a renamed package nor an earlier pattern leaves a row empty."""
    paths = [path.relative_to(ROOT / "service").with_suffix("") for path in (ROOT / "service").rglob("*.py")]
    assert any(group_of(f"{'.'.join(path.parts)}.x_function__mutmut_1") == group for path in paths)


def test_some_of_the_test_folders_exist() -> None:
    """The folders of the older layout may not exist."""
    assert sum((ROOT / name).is_dir() for name in TESTS) >= 3


def test_the_page_counts_what_tests_noticed() -> None:
    """A time limit is a noticed change; a function that no test reaches is not."""
    statuses = {
        "bundlekeel.planning.guard.budgets.x_spend__mutmut_1": "killed",
        "bundlekeel.planning.guard.budgets.xǁBudgetǁleft__mutmut_1": "timeout",
        "bundlekeel.planning.guard.rate.x_advance__mutmut_1": "no tests",
        "bundlekeel.leader.gate.gate.xǁGateǁask__mutmut_1": "survived",
    }
    assert share(statuses) == 0.5
    text = page(statuses, 1)
    assert "| guard | 3 | 2 | 1 | 1 | 67% |" in text and "| gate | 1 | 0 | 0 | 0 | 0% |" in text
    assert text.count("\n- `") == 2 and group_of("bundlekeel.leader.gate.gate.xǁGateǁask__mutmut_1") == "gate"


def test_the_copy_has_the_layout_of_mutmut(tmp_path: Path) -> None:
    """`src` is mutated; tests that read `service` read the same files."""
    prepare(ROOT, tmp_path, [GROUPS["guard"]], ["tests/unit/planning", "tests/unit/no_such"])
    assert (tmp_path / "src/bundlekeel/__init__.py").is_file() and not (tmp_path / "mutants/src").exists()
    assert (tmp_path / "mutants/tests").is_dir() and (tmp_path / "mutants/service").is_symlink()
    config = (tmp_path / "pyproject.toml").read_text(encoding="utf-8")
    assert 'only_mutate = ["src/bundlekeel/*/guard/*.py"]' in config and "no_such" not in config
