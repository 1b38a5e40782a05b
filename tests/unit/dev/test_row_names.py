"""The rows of the fault checklist: each has exactly one test named by it, and the page of failures names that one."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
ROWS = {f"A{number}" for number in range(1, 21)}
_NAMED = re.compile(r"test_(a\d+)_")
_PAGE_ROW = re.compile(r"^\| (A\d+) \|[^|]*\| `([^`]+)`", re.MULTILINE)


def named_tests() -> Iterator[tuple[str, str]]:
    """Every test by file and name, wherever it is in a file."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                yield str(path.relative_to(ROOT)), node.name


def test_each_row_has_one_test_of_its_name() -> None:
    """No row without, none with two, and no name of a row that does not exist; the page names each first."""
    named: dict[str, list[str]] = defaultdict(list)
    for file, name in named_tests():
        if (row := _NAMED.match(name)) is not None:
            named[row[1].upper()].append(f"{file}::{name}")
    assert {row: value for row, value in named.items() if len(value) != 1} == {}
    assert set(named) == ROWS
    page = (ROOT / "docs/reference/failure-tests.md").read_text(encoding="utf-8")
    assert dict(_PAGE_ROW.findall(page)) == {row: value[0] for row, value in named.items()}


def test_the_page_names_only_tests_that_exist() -> None:
    """A file, or a test in it."""
    expected_names = {f"{file}::{name}" for file, name in named_tests()}
    expected_names |= {str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("*.py")}
    page = (ROOT / "docs/reference/failure-tests.md").read_text(encoding="utf-8")
    matches = re.findall(r"`(tests/[^`]+?\.py(?:::\w+)?)`", page)
    assert matches
    assert [item for item in matches if item not in expected_names] == []
