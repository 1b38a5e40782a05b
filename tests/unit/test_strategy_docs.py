"""docs/reference/strategies.md names a test for each difference; these tests must exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from bundlekeel.core.params import PLACEMENTS, STRATEGIES

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/reference/strategies.md").read_text(encoding="utf-8")


def written_tests() -> set[str]:
    """The names of all test functions."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "tests").rglob("test_*.py"))
    return {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_named_test_exists() -> None:
    """A row without its test would be a claim."""
    named = re.findall(r"`(test_\w+)`", PAGE)
    assert len(named) > 60
    assert sorted(set(named) - written_tests()) == []


def test_every_difference_names_a_test() -> None:
    """Each row of a table with a column `test` ends with one."""
    tables = re.findall(r"^\|.*\| test \|\n\| ---.*\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    rows = [row for table in tables for row in table.splitlines()]
    assert len(tables) == 9
    assert [row for row in rows if not re.search(r"\| `test_\w+` \|$", row)] == []


def test_every_strategy_and_placement_is_described() -> None:
    """No name of the settings is missing."""
    assert [name for name in (*STRATEGIES, *PLACEMENTS) if f"`{name}`" not in PAGE] == []
