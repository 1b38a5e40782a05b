"""`make quick` finds the changed files and their nearest tests, and stops in time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dev.quick import changed_files, commands, imports_of, nearest_tests, run

IMPORTS = {
    "service/bundlekeel/planning/draft.py": {"bundlekeel.model.names"},
    "service/bundlekeel/planning/engine.py": {"bundlekeel.planning", "bundlekeel.planning.draft"},
    "tests/unit/planning/test_engine.py": {"bundlekeel.planning.engine"},
    "tests/unit/model/test_names.py": {"pytest"},
    "tests/unit/cli/test_all.py": {"bundlekeel.model.names", "tests.support.world"},
    "tests/integration/test_names.py": {"bundlekeel.model.names"},
}


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        (["service/bundlekeel/model/names.py"], ["tests/unit/model/test_names.py", "tests/unit/cli/test_all.py"]),
        (["service/bundlekeel/planning/draft.py"], ["tests/unit/planning/test_engine.py"]),
        (["tests/support/world.py"], ["tests/unit/cli/test_all.py"]),
        (["tests/unit/planning/test_engine.py"], ["tests/unit/planning/test_engine.py"]),
        (["service/bundlekeel/alone.py"], []),
    ],
)
def test_the_nearest_tests_are_chosen(changed: list[str], tests: list[str]) -> None:
    """Tests of the same name first, then those that import the module, else those one step away; no real cluster."""
    assert nearest_tests(changed, IMPORTS) == tests


def test_imports_of_modules_and_members() -> None:
    """A member may be a module."""
    assert imports_of("import a.b\nfrom c import d\n") == {"a.b", "c", "c.d"}


def test_changed_files_are_committed_or_not(tmp_path: Path) -> None:
    """Since the branch left main; files that are gone are not checked."""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    (tmp_path / "dev").mkdir()
    for name in ("kept", "gone", "edited"):
        (tmp_path / f"dev/{name}.py").touch()
    for command in (["init", "-qb", "main"], ["add", "."], ["commit", "-qm", "one"], ["checkout", "-qb", "branch"]):
        subprocess.run([*git, *command], check=True)
    (tmp_path / "dev/gone.py").unlink()
    (tmp_path / "dev/edited.py").write_text("a = 1\n")
    (tmp_path / "dev/page.md").touch()
    subprocess.run([*git, "commit", "-qam", "two"], check=True)
    (tmp_path / "dev/new.py").touch()
    assert changed_files(tmp_path) == ["dev/edited.py", "dev/new.py"]


def test_a_failure_is_told_from_a_check_that_is_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    """A check that takes too long does not fail."""
    slow = [sys.executable, "-c", "import time; time.sleep(60)"]
    assert run([slow], 0.2) == 0
    assert "stopped" in capsys.readouterr().out
    assert run([[sys.executable, "-c", ""], [sys.executable, "-c", "raise SystemExit(3)"]]) == 1
    assert capsys.readouterr().out.count("FAILED") == 1


def test_types_are_checked_where_the_gate_checks_them() -> None:
    """Not in tests."""
    assert len(list(commands(["tests/unit/planning/test_engine.py"], []))) == 2
    assert len(list(commands(["dev/quick.py"], ["tests/unit/dev/test_quick.py"]))) == 4
