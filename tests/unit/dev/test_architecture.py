"""The drawing of the packages in docs/concepts/architecture.md has exactly the arrows that the imports need."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SERVICE = ROOT / "service/bundlekeel"
PAGE = ROOT / "docs/concepts/architecture.md"

Graph = Mapping[str, set[str]]


def drawn(page: str) -> dict[str, set[str]]:
    """Return the arrows of the Mermaid drawing, by the package at their start: `a --> b & c`."""
    (block,) = re.findall(r"```mermaid\n(.*?)```", page, re.DOTALL)
    arrows: dict[str, set[str]] = {}
    for start, ends in re.findall(r"^ *(\w+) --> (.+)$", block, re.MULTILINE):
        arrows.setdefault(start, set()).update(ends.split(" & "))
    return arrows


@cache
def imported(service: Path) -> dict[str, set[str]]:
    """Return the packages that each package imports. Modules next to the packages are not drawn."""
    packages = {path.parent.name for path in service.glob("*/__init__.py")}
    graph: dict[str, set[str]] = {package: set() for package in packages}
    for package in packages:
        for file in (service / package).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
                if isinstance(node, ast.ImportFrom):
                    names = [f"{node.module}.{name}" for name in names]
                parts = [name.split(".") for name in names if name.startswith("bundlekeel.")]
                graph[package] |= {part[1] for part in parts} & packages - {package}
    return graph


def reachable(graph: Graph, start: str) -> set[str]:
    """Return all packages that follow from `start`. Raises AssertionError if `start` is one of them."""
    packages: set[str] = set()
    open_ends = {start}
    while open_ends:
        ends = graph.get(open_ends.pop(), set()) - packages
        packages |= ends
        open_ends |= ends
    assert start not in packages, f"{start} imports itself in a circle"
    return packages


def needed(graph: Graph) -> dict[str, set[str]]:
    """Return the arrows without those that follow from other arrows."""
    arrows = {start: ends - set().union(*(reachable(graph, end) for end in ends)) for start, ends in graph.items()}
    return {start: ends for start, ends in arrows.items() if ends}


def test_the_drawing_has_the_arrows_that_the_imports_need() -> None:
    """After a change of the imports, draw the arrows of the right-hand side."""
    assert drawn(PAGE.read_text(encoding="utf-8")) == needed(imported(SERVICE))


def test_every_package_is_in_the_table_of_the_page() -> None:
    """The table names the packages in its first column."""
    cells = re.findall(r"^\| (`[a-z`, ]+`) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert {name for cell in cells for name in re.findall(r"\w+", cell)} == set(imported(SERVICE))


@pytest.mark.parametrize(
    ("line", "package"),
    [("import bundlekeel.b.module", "b"), ("from bundlekeel import b", "b"), ("from bundlekeel.c.d import e", "c")],
)
def test_every_form_of_an_import_is_read(tmp_path: Path, line: str, package: str) -> None:
    """Also inside functions and for the type checker."""
    for name in "abc":
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("", encoding="utf-8")
    (tmp_path / "a/module.py").write_text(f"def lazy():\n    {line}\n", encoding="utf-8")
    assert imported(tmp_path) == {"a": {package}, "b": set(), "c": set()}


@pytest.mark.parametrize(("start", "end"), [("model", "ports"), ("api", "simulator")])
def test_an_import_against_the_arrows_is_noticed(start: str, end: str) -> None:
    """A new direction makes a circle, or an arrow that the page lacks."""
    graph = imported(SERVICE)
    with pytest.raises(AssertionError):
        assert needed(graph | {start: graph[start] | {end}}) == drawn(PAGE.read_text(encoding="utf-8"))


def test_an_arrow_without_imports_is_noticed() -> None:
    """An arrow that another one implies, or that no import uses, is too many."""
    assert needed({"a": {"b", "c"}, "b": {"c"}}) == {"a": {"b"}, "b": {"c"}}
