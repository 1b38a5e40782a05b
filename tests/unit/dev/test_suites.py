"""What the suites' runner makes of a suite that fails, and of one that fails once."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest

from dev.suites import GATE, PLANS, ROOT, SEED, Suite, Tool, nightly, run

# Stands for pytest: fails unless it is told to run only what failed last.
UNSTEADY = (sys.executable, "-c", "import sys; sys.exit('--last-failed' not in sys.argv)")
BROKEN = (sys.executable, "-c", "import sys; sys.exit(1)")
SOUND = (sys.executable, "-c", "")


@pytest.mark.parametrize(
    ("suite", "code", "said"),
    [
        (Suite("sound", 1, (SOUND,), real=True), 0, "all suites passed"),
        (Suite("unsteady", 1, (UNSTEADY,), real=True), 0, "UNSTEADY"),
        (Suite("no excuse", 1, (UNSTEADY,)), 1, "FAILED in no excuse"),
        (Suite("broken", 1, (BROKEN,), real=True), 1, "FAILED in broken"),
    ],
)
def test_only_suites_on_real_servers_get_a_second_attempt(
    suite: Suite, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the table says so."""
    assert run((suite,)) == code
    out = capsys.readouterr().out
    assert said in out and ("UNSTEADY" in out) == (suite.name == "unsteady")


@pytest.mark.parametrize("kinds", [(False, True), (True, True)])
def test_what_computes_runs_beside_another(
    kinds: tuple[bool, bool], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Beside a suite on clusters, and beside a second that computes where no such suite is left: each of the two ends
    only when it has seen the other begin."""

    def meets(mine: str, other: str) -> tuple[str, ...]:
        code = f"""
import os, pathlib, time
os.chdir({str(tmp_path)!r})
pathlib.Path({mine!r}).touch()
while not pathlib.Path({other!r}).exists():
    time.sleep(0.01)
print("seen:", {other!r})
"""
        return (sys.executable, "-c", code)

    one = Suite("one", 1, (meets("one", "two"),), computes=kinds[0])
    two = Suite("two", 1, (meets("two", "one"),), computes=kinds[1])
    assert run((one, two)) == 0
    assert "seen: one" in capsys.readouterr().out


def test_suites_on_clusters_never_run_side_by_side(tmp_path: Path) -> None:
    """The second would find the first one's mark."""
    mark = tmp_path / "mark"
    code = f"""
import pathlib, time
mark = pathlib.Path({str(mark)!r})
mark.touch(exist_ok=False)
time.sleep(0.2)
mark.unlink()
"""
    alone = (sys.executable, "-c", code)
    assert run((Suite("one", 1, (alone,)), Suite("two", 1, (alone,)))) == 0


def test_after_a_failure_no_suite_begins(capsys: pytest.CaptureFixture[str]) -> None:
    """Those that run already end."""
    assert run((Suite("broken", 1, (BROKEN,)), Suite("late", 1, (SOUND,)))) == 1
    assert "late" not in capsys.readouterr().out


def test_a_suite_far_over_its_budget_fails(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """More than twice. Budgets grow with the slowness measured before the suites or after them, and by a variable."""
    slow = Suite("slow", 1e-6, (SOUND,))
    assert run((slow,)) == 1
    assert "FAILED in slow: it took more than twice its budget" in capsys.readouterr().out
    # The failed attempt and its second run are no slowness.
    assert run((Suite("unsteady", 1e-6, (UNSTEADY,), real=True),)) == 0
    for paces in ([1.0, 1e9], [1e9, 1.0]):
        assert run((slow,), pace=iter(paces).__next__) == 0
    monkeypatch.setenv("BUNDLEKEEL_BUDGET_SCALE", "1e9")
    assert run((slow,)) == 0


@pytest.mark.parametrize(("on_ci", "code"), [("", 0), ("true", 1)])
def test_a_suite_whose_program_is_missing_is_left_out_by_name(
    on_ci: str, code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the command that adds it; those after it run. On CI nothing may be missing."""
    monkeypatch.setenv("CI", on_ci)
    needy = Suite("needy", 1, (BROKEN,), tools=(Tool(SOUND, "nothing"), Tool(BROKEN, "apt-get install it")))
    assert run((needy, Suite("sound", 1, (SOUND,)))) == code
    out = capsys.readouterr().out
    assert ["needy", "LEFT OUT: apt-get install it"] in [line.split(maxsplit=1) for line in out.splitlines()]
    assert ("all suites passed" in out) == (code == 0)


def test_the_order_of_tests_can_be_run_again(capsys: pytest.CaptureFixture[str]) -> None:
    """The seed is in the output, and in the order of every suite of pytest; the night draws its examples by it too."""
    assert run((Suite("sound", 1, (SOUND,)),)) == 0
    assert f"SEED={SEED}\n" in capsys.readouterr().out
    commands = [command for suite in chain(*PLANS.values()) for command in suite.commands if "pytest" in command]
    assert commands and all(f"--randomly-seed={SEED}" in command for command in commands)
    assert all(f"--hypothesis-seed={SEED}" in command for command in nightly("").commands)


def test_the_night_takes_a_part() -> None:
    """Of four, say."""
    whole, part = nightly(""), nightly("2/4")
    assert "2/4" in part.name
    assert all(command[command.index("--shard") :][:2] == ("--shard", "2/4") for command in part.commands)
    assert not any("--shard" in command for command in whole.commands)


@pytest.mark.parametrize(
    ("marks", "collected"),
    [((), "day"), (("-m", "nightly"), "night"), (("-m", "not cluster"), "day night"), (("-m", ""), "day night")],
)
def test_nightly_tests_are_run_only_where_marks_are_named(
    marks: tuple[str, ...], collected: str, tmp_path: Path
) -> None:
    """By the project's own options; -m of a suite or of a person decides alone."""
    made = "import pytest\n\n\ndef test_day():\n    pass\n\n\n@pytest.mark.nightly\ndef test_night():\n    pass\n"
    (tmp_path / "test_both.py").write_text(made, encoding="utf-8")
    options = ("--collect-only", "-qp", "no:cacheprovider", "-p", "no:randomly", "-c", str(ROOT / "pyproject.toml"))
    command = (sys.executable, "-m", "pytest", *options, f"--rootdir={tmp_path}", *marks, str(tmp_path))
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert re.findall(r"::test_(\w+)", found) == collected.split()


@pytest.mark.parametrize(("link", "passes"), [("index.md", True), ("missing.md", False)])
def test_the_gate_fails_on_a_broken_link_of_the_docs(link: str, passes: bool, tmp_path: Path) -> None:
    """The gate's own command, on a site of one page."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text(f"[a page]({link})\n", encoding="utf-8")
    (tmp_path / "mkdocs.yml").write_text("site_name: one page\ntheme: {name: mkdocs}\n", encoding="utf-8")
    build = next(command for command in GATE.commands if Path(command[0]).name == "mkdocs")
    assert (subprocess.run(build, cwd=tmp_path, check=False).returncode == 0) is passes
