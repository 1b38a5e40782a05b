"""CONTRIBUTING.md lists every place that catches all exceptions; there are no others."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SERVICE = ROOT / "service" / "bundlekeel"
BROAD = frozenset({"Exception", "BaseException"})


def broad_places(source: str) -> int:
    count = 0
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ExceptHandler):
            again = isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None
            count += not again and (node.type is None or _names(node.type))
        elif isinstance(node, ast.Call) and "suppress" in ast.unparse(node.func).split("."):
            count += any(_names(argument) for argument in node.args)
    return count


def _names(caught: ast.expr) -> bool:
    kinds = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(ast.unparse(kind).rpartition(".")[2] in BROAD for kind in kinds)


@pytest.mark.parametrize(
    ("body", "places"),
    [
        ("try: f()\nexcept Exception: pass", 1),
        ("try: f()\nexcept: pass", 1),
        ("try: f()\nexcept (OSError, builtins.BaseException) as error: g(error)", 1),
        ("with contextlib.suppress(Exception): f()", 1),
        ("try: f()\nexcept BaseException:\n    g()\n    raise", 0),
        ("try: f()\nexcept OSError: pass", 0),
    ],
)
def test_j12_a_broad_except_is_found(body: str, places: int) -> None:
    assert broad_places(body) == places


def test_j12_broad_excepts_are_where_contributing_says() -> None:
    """One mention of a file there for each place in it."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    match = re.search(r"Broad `except`.*?(?=\n- |\n\n)", text, re.DOTALL)
    assert match is not None
    result = [
        path.relative_to(SERVICE).as_posix()
        for path in SERVICE.rglob("*.py")
        for _ in range(broad_places(path.read_text(encoding="utf-8")))
    ]
    assert sorted(re.findall(r"`([\w/]+\.py)`", match.group())) == sorted(result)
