"""docs/reference/fidelity-to-pulsar.md, made from dev/fidelity_items.yaml: what the five texts that Bundlekeel began
with say, where it is in the code, what tests it, and why where it differs.

`faults` compares the file with the code and the tests as they are, by reading them only (ast).
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, Literal

import msgspec
import yaml

ROOT: Final = Path(__file__).resolve().parent.parent
ITEMS: Final = ROOT / "dev/fidelity_items.yaml"
CODE: Final = ROOT / "service/bundlekeel"
TESTS: Final = ROOT / "tests"

TEXTS: Final = {
    "PIP-364": "PIP-364: AvgShedder, and what was there before it",
    "UniformLoadShedder": "An article on UniformLoadShedder",
    "PIP-82": "PIP-82: rate limits of tenants and namespaces",
    "PIP-192": "PIP-192: the extensible load manager",
    "Pulsar 2.9.2": "An article on load management and lookup in Pulsar 2.9.2",
}
Verdict = Literal["same", "corrected", "different", "missing"]
VERDICTS: Final[dict[Verdict, str]] = {
    "same": "as the text has it",
    "corrected": "the default form differs; with `compat` it is exactly what Pulsar's class does",
    "different": "it is done in another way, whatever `compat` says",
    "missing": "not there; the row says what is needed",
}
_NOT_RUN: Final = {"skip", "skipif", "xfail"}


class Item(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row. `where` and `tests`: `file.py::name` below `CODE` and `TESTS`; a member of a class is `Class.member`, a
    test in one `Class::test`. `because`: the reason where it is not the same; what is needed where it is missing."""

    number: int
    what: str
    verdict: Verdict
    where: list[str]
    tests: list[str]
    because: str = ""


Items = dict[str, list[Item]]


@cache
def items() -> Items:
    """The rows by text. msgspec.ValidationError names the field of a row that is none."""
    return msgspec.convert(yaml.safe_load(ITEMS.read_text(encoding="utf-8")), Items)


def faults(found: Items) -> list[str]:
    """What is wrong with the rows, one sentence each."""
    rows = [row for text in found.values() for row in text]
    said = [f"{text} is none of the texts" for text in found.keys() - TEXTS.keys()]
    said += [
        f"item {number} is there twice" for number, times in Counter(row.number for row in rows).items() if times > 1
    ]
    for row in rows:
        if (row.verdict == "same") is bool(row.because):
            said.append(f"item {row.number} is {row.verdict}: `because` is for what is not the same, and for all of it")
        if not row.where or not row.tests:
            said.append(f"item {row.number} names no place or no test")
        said += [f"item {row.number}: there is no {name} in the code" for name in row.where if not _is_there(name)]
        said += [f"item {row.number}: there is no test {name} that runs" for name in row.tests if not _is_tested(name)]
    return said


def _is_there(name: str) -> bool:
    file, _, symbol = name.partition("::")
    return symbol in _defined(CODE / file)


def _is_tested(name: str) -> bool:
    file, _, test = name.partition("::")
    return test.rpartition("::")[2].startswith("test_") and test in _run(TESTS / file)


def _body(path: Path) -> list[ast.stmt]:
    return ast.parse(path.read_text(encoding="utf-8")).body if path.is_file() else []


@cache
def _defined(path: Path) -> frozenset[str]:
    """Names of a module, and of the members of its classes."""
    body = _body(path)
    members = {f"{node.name}.{name}" for node in body if isinstance(node, ast.ClassDef) for name in _names(node.body)}
    return frozenset({*_names(body), *members})


def _names(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


@cache
def _run(path: Path) -> frozenset[str]:
    """Tests of a file that no mark keeps from running."""
    body = _body(path)
    marks = frozenset(
        name for node in body if isinstance(node, ast.Assign) and _is_marked([node.value]) for name in _names([node])
    )
    if "pytestmark" in marks:
        return frozenset()
    found = set(_tests(body, marks))
    for node in body:
        if isinstance(node, ast.ClassDef) and not _is_marked(node.decorator_list, marks):
            found |= {f"{node.name}::{test}" for test in _tests(node.body, marks)}
    return frozenset(found)


def _tests(body: list[ast.stmt], marks: frozenset[str]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not _is_marked(node.decorator_list, marks):
            yield node.name


def _is_marked(values: list[ast.expr], marks: frozenset[str] = frozenset()) -> bool:
    """Whether a mark that may keep a test from running is among these, by itself or by a name of the file."""
    nodes = [node for value in values for node in ast.walk(value)]
    return any(
        (isinstance(node, ast.Attribute) and node.attr in _NOT_RUN) or (isinstance(node, ast.Name) and node.id in marks)
        for node in nodes
    )
