"""The table of the structure: lines, second headers, mirrors and parts of paths."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from dev.sizes import faults
from evidence.paths import PATHS, measure
from evidence.structure import is_feature, mirrors, participles, second_headers, words_of_docs

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("path", "feature"),
    [
        ("quotas/cycle.py", True),
        ("daemon/quotas/cycle.py", True),
        ("settings/quotas.py", True),
        ("cli/offline/decide.py", True),
        ("cli/offline/config.py", False),
        ("settings/model.py", False),
        ("api/routes/operations.py", False),
    ],
)
def test_features_are_told_from_the_sidecar_in_both_layouts(path: str, feature: bool) -> None:
    """Packages by layer, and packages by feature."""
    assert is_feature(path) is feature


def test_a_second_header_stands_alone_below_a_definition() -> None:
    """The comment at the top of a file, and one right above a definition, begin no second module."""
    source = "# Top.\n\nA = 1\n\n\ndef f(): ...\n\n\n{}\n\n\ndef g(): ...\n"
    assert second_headers(source.format("# Another\n# module.\n")) == 1
    assert second_headers(source.format("# About g.")) == 1
    assert second_headers(source.format("B = 2")) == 0
    assert second_headers(source.replace("{}\n\n\n", "# About g.\n")) == 0


def test_mirrors_share_fields_that_they_do_not_inherit() -> None:
    """At least 70 % of the smaller class's fields, which are five or more, without those of a class above both."""
    code = """
@dataclass
class A:
    a: int; b: int; c: int; d: int; e: int
    KIND: ClassVar[int] = 1
@dataclass(frozen=True)
class B:
    a: int; b: int; c: int; d: int; x: int; y: int
@dataclass
class C(A):
    f: int
@dataclass
class D(A):
    g: int
@dataclass
class E(C):
    h: int
@dataclass
class Small:
    a: int; b: int; c: int; d: int
class Plain:
    a: int; b: int; c: int; d: int; e: int
"""
    assert list(mirrors([ast.parse(code)])) == [("A", "B")]


def test_participles_are_counted_where_values_get_them() -> None:
    """Parameters and assignments, not attributes or uses."""
    assert participles(ast.parse("def f(given):\n    _found = given\n    self.made = _found\n    plan = 1\n")) == 2


def test_words_of_generated_pages_are_counted_apart(tmp_path: Path) -> None:
    """Such a page has a note in its head."""
    (tmp_path / "written.md").write_text("three short words")
    (tmp_path / "made.md").write_text("# A\n\n<!-- do not edit -->")
    assert words_of_docs(tmp_path) == (3, 7)


def test_files_above_the_limit_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """600 lines; above 400, and in a folder with more than 20 modules, a warning."""
    folder = tmp_path / "service/bundlekeel/planning"
    folder.mkdir(parents=True)
    for number in range(21):
        (folder / f"m{number}.py").write_text("\n" * (401 + 200 * (number == 0)))
    assert faults(tmp_path) == ["service/bundlekeel/planning/m0.py: 601 lines, at most 600"]
    warnings = capsys.readouterr().out
    assert "m1.py: 401 lines" in warnings and "planning: 21 modules" in warnings


def test_a_path_is_traced_across_tasks_and_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a product of two files; a path without its test is not measured."""
    package = tmp_path / "service/bundlekeel"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "a.py").write_text(
        "import asyncio\nfrom bundlekeel.b import send\n\n"
        "async def begin(end):\n    await asyncio.create_task(middle(end))\n\n"
        "async def middle(end):\n    await asyncio.to_thread(send, end)\n"
    )
    (package / "b.py").write_text("def send(end):\n    end()\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_it.py").write_text(
        "import asyncio\nfrom bundlekeel.a import begin\n\ndef unload(): ...\n\n"
        "def test_it():\n    asyncio.run(begin(unload))\n"
    )
    part = type(next(iter(PATHS.values()))[0])
    monkeypatch.setattr(
        "evidence.paths.PATHS",
        {"one": (part("test_it.py", "test_it", "unload"),), "none": (part("test_it.py", "test_other"),)},
    )
    assert measure(tmp_path) == {"one": (3, 2), "none": None}


def test_the_traced_tests_exist() -> None:
    """A test that was renamed would leave its path without figures."""
    for part in (part for parts in PATHS.values() for part in parts):
        texts = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob(part.file)]
        assert any(f"def {part.test.partition(' ')[0]}" in text for text in texts), part
