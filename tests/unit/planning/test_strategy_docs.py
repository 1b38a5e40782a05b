"""Pages of the strategies: each has one that names what it reads, and each difference from Pulsar names its test."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from bundlekeel.model.parameter_table import PLACEMENTS, STRATEGIES
from bundlekeel.model.parameters import BY_NAME
from bundlekeel.planning.strategies import SHEDDERS
from dev.strategy_pages import example, parameters_of

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "docs/strategies"
HEADINGS = ("Idea", "Formula", "Example", "When it fails", "compat", "Parameters", "Next")
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


def parameters_in(module: Path) -> set[str]:
    tree = ast.parse(module.read_text(encoding="utf-8"))
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return attributes & set(BY_NAME)


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_has_its_page(name: str) -> None:
    """In the site's navigation, from the idea to the parameters."""
    page = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.+)$", page, re.MULTILINE) == list(HEADINGS)
    assert f"strategies/{name}.md" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert f"]({name}.md)" in (FOLDER / "index.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_page_names_every_parameter_the_strategy_reads(name: str) -> None:
    page = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    read = parameters_in(ROOT / f"service/bundlekeel/planning/strategies/{name}.py")
    budgets = {parameter for parameter in read if BY_NAME[parameter].used_by == "guard"}
    assert read - budgets
    assert sorted(read - budgets - set(parameters_of(name))) == []
    section = page.partition("\n## Parameters\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"`(\w+)`", section)) == set(parameters_of(name))
    named = set(re.findall(r"`([a-z]+_[a-z_]+)`", page))
    assert sorted(named - set(BY_NAME) - set(PLACEMENTS)) == []


def test_every_known_strategy_acts_on_the_example() -> None:
    """No strategy is left out, and each picture shows a plan that makes the fullest broker less full."""
    assert set(STRATEGIES) == set(SHEDDERS)
    for name in STRATEGIES:
        loads = example(name).plan.loads
        assert max(load.score_after for load in loads) < max(load.score_before for load in loads), name
