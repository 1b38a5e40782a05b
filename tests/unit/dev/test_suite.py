"""Run one suite: its budget, its second attempt and its programs; and the commands of all suites."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dev import suite

ROOT = Path(__file__).resolve().parents[3]
# Stands for pytest: fails unless it is to run only what failed last.
UNSTEADY = (sys.executable, "-c", "import sys; sys.exit('--last-failed' not in sys.argv)")
BROKEN = (sys.executable, "-c", "import sys; sys.exit(1)")
SOUND = (sys.executable, "-c", "")
CLUSTERS = ["modular", "extensible", "chaos", "quotas", "demo"]
SLOW = (sys.executable, "-c", "import time; time.sleep(60)")


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The closing table, in a directory that does not exist yet."""
    monkeypatch.setattr(suite, "TABLE", tmp_path / ".run/suites")
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("BUNDLEKEEL_BUDGET_SCALE", raising=False)
    monkeypatch.delenv("PULSAR", raising=False)
    return suite.TABLE


@pytest.mark.parametrize(
    ("options", "command", "code", "note"),
    [
        (["--again"], SOUND, 0, ""),
        (["--again"], UNSTEADY, 0, "UNSTEADY: tests failed once"),
        ([], UNSTEADY, 1, "FAILED"),
        (["--again"], BROKEN, 1, "FAILED"),
    ],
)
def test_only_suites_on_real_servers_get_a_second_attempt(
    options: list[str], command: tuple[str, ...], code: int, note: str, table: Path
) -> None:
    """The table names an unsteady suite (docs/adr/0005-unsteady-tests.md)."""
    assert suite.main([*options, "name", "1", *command]) == code
    assert table.read_text().rstrip().endswith(f"min  {note}".rstrip())


def test_a_suite_far_over_its_budget_fails(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is interrupted after four times its budget, and has no second attempt. A variable scales the budget."""
    assert suite.main(["--again", "name", "0.001", *SLOW]) == 124
    assert "FAILED: it took more than four times its budget" in table.read_text()
    monkeypatch.setenv("BUNDLEKEEL_BUDGET_SCALE", "1e9")
    assert suite.main(["name", "1e-9", *SOUND]) == 0


@pytest.mark.parametrize(("on_ci", "code"), [("", 0), ("true", 1)])
def test_a_suite_whose_program_is_missing_is_left_out_by_name(
    on_ci: str, code: int, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row says why. On CI no program may be missing."""
    monkeypatch.setenv("CI", on_ci)
    assert suite.main(["--needs", "this", "--needs", "dev.java nonsense", "name", "1", *BROKEN]) == code
    assert "LEFT OUT: usage: python -m dev.java" in table.read_text()


@pytest.mark.parametrize("on_ci", ["", "true"])
def test_an_optional_build_may_be_missing_on_ci(on_ci: str, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It excuses no other program. The suite is run where it is there."""
    monkeypatch.setenv("CI", on_ci)
    missing = ["--optional", "dev.java nonsense"]
    assert suite.main([*missing, "name", "1", *BROKEN]) == 0
    assert "LEFT OUT: usage: python -m dev.java" in table.read_text()
    assert suite.main(["--needs", "dev.java absent", *missing, "name", "1", *BROKEN]) == bool(on_ci)
    assert suite.main(["--optional", "this", "name", "1", *BROKEN]) == 1


def commands(*goals: str) -> list[str]:
    """Return the commands that Make would run."""
    make = ["make", "-n", "--no-print-directory", "-f", "dev/suites.mk", "SEED=5", *goals]
    return subprocess.run(make, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


def test_the_order_of_tests_can_be_repeated() -> None:
    """SEED orders the tests of every suite; at night it draws the examples, too."""
    suites = [line for line in commands("all") if "-m dev.suite" in line and "pytest" in line]
    assert len(suites) > 10 and all("--randomly-seed=5 " in line for line in suites)
    assert all("--hypothesis-seed=5 " in line for line in commands("nightly-long", "nightly-laws"))


def test_on_ci_only_the_build_of_kubernetes_may_be_missing() -> None:
    """Where it is there, the suite needs helm as others do."""
    output = "\n".join(commands("all"))
    assert re.findall(r'--optional (".*?"|\S+)', output) == ['"dev.kubernetes cached"']
    assert not re.search(r"\bCI=", output)
    (kubernetes,) = [line for line in commands("kubernetes") if "-m dev.suite" in line]
    assert '--needs "dev.gotools helm"' in kubernetes


def test_the_night_can_be_divided() -> None:
    """SHARD=2/4 runs the second of four parts."""
    assert all(" --shard 2/4 " in line for line in commands("SHARD=2/4", "nightly-long", "nightly-laws"))
    assert not any("--shard" in line for line in commands("nightly-long", "nightly-laws"))


def test_suites_on_clusters_run_on_each_release(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them at night, one by day; their rows name the release."""
    both = [line for line in commands("one-by-one", "nightly-5.0") if "-m dev.suite" in line]
    names = [re.search(r"dev.suite +(?:--\w+ +)*([\w-]+) ", line) for line in both]
    assert [name[1] for name in names if name] == [*CLUSTERS, "demo", *CLUSTERS, "long"]
    # The long forms of all these suites.
    folders = {folder for line in both[: len(CLUSTERS)] for folder in re.findall(r" tests/\w+", line)}
    assert " -m nightly " in both[-1] and folders == set(re.findall(r" tests/\w+", both[-1]))
    monkeypatch.setenv("PULSAR", "5.0")
    assert suite.main(["extensible", "1", *SOUND]) == 0
    assert table.read_text().startswith("extensible 5.0 ")


def test_every_folder_of_tests_is_in_a_suite() -> None:
    """A new folder below tests/ is not forgotten."""
    folders = {path.parent.name for path in ROOT.glob("tests/*/__init__.py")} - {"support"}
    assert folders == set(re.findall(r"tests/(\w+)(?![\w/])", "\n".join(commands("all"))))


@pytest.mark.parametrize(
    ("marks", "collected"),
    [((), "day"), (("-m", "nightly"), "night"), (("-m", "not cluster"), "day night"), (("-m", ""), "day night")],
)
def test_nightly_tests_are_run_only_where_marks_are_named(
    marks: tuple[str, ...], collected: str, tmp_path: Path
) -> None:
    """The project's own options exclude them; any other -m replaces this."""
    source = "import pytest\n\n\ndef test_day():\n    pass\n\n\n@pytest.mark.nightly\ndef test_night():\n    pass\n"
    (tmp_path / "test_both.py").write_text(source, encoding="utf-8")
    options = ("--collect-only", "-qp", "no:cacheprovider", "-p", "no:randomly", "-c", str(ROOT / "pyproject.toml"))
    command = (sys.executable, "-m", "pytest", *options, f"--rootdir={tmp_path}", *marks, str(tmp_path))
    output = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert re.findall(r"::test_(\w+)", output) == collected.split()


@pytest.mark.parametrize(("link", "passes"), [("index.md", True), ("missing.md", False)])
def test_the_gate_fails_on_a_broken_link_of_the_docs(link: str, passes: bool, tmp_path: Path) -> None:
    """The gate's own command, on a site of one page."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text(f"[a page]({link})\n", encoding="utf-8")
    (tmp_path / "mkdocs.yml").write_text("site_name: one page\ntheme: {name: mkdocs}\n", encoding="utf-8")
    build = next(command for command in commands("gate") if "mkdocs" in command)
    ended = subprocess.run(f"{ROOT}/{build}", shell=True, cwd=tmp_path, check=False)
    assert (ended.returncode == 0) is passes
