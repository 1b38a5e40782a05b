"""The groups of the mutation sample name files that are there; a mutant changes behaviour, not words."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from dev.mutants import mutants_of
from dev.mutation import CODE, GROUPS, ROOT, Group, Limits, Verdict, judged, matched

SOURCE = '''
"""Text 1."""
@dataclass(slots=True, kw_only=True)
class Limit:
    """Text 2."""
    most: Annotated[int, 3]
    def over(self, used: int) -> bool:
        """Text 4."""
        _log.info("used", used=used + 5)
        return used > self.most
'''


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.name)
def test_every_glob_matches(group: Group) -> None:
    """Rule: a module or test file that was renamed does not leave its group unnoticed."""
    assert matched(ROOT / CODE, group.modules)
    assert matched(ROOT / "tests", group.tests)


def test_a_glob_without_a_file_is_an_error(tmp_path: Path) -> None:
    """Rule: the error names the glob; files that several globs match are there once."""
    (tmp_path / "there.py").touch()
    assert matched(tmp_path, ("*.py", "there.py")) == [tmp_path / "there.py"]
    with pytest.raises(FileNotFoundError, match="gone"):
        matched(tmp_path, ("there.py", "gone*.py"))


def test_words_types_and_decorators_are_no_mutants(tmp_path: Path) -> None:
    """Rule: nothing is changed that no test could notice."""
    path = tmp_path / "limit.py"
    path.write_text(SOURCE)
    assert [(item.old, item.new) for item in mutants_of(path)] == [
        ("return used > self.most", "return None"),
        ("used > self.most", "(used <= self.most)"),
        ("used > self.most", "(used >= self.most)"),
    ]


@pytest.mark.parametrize(
    ("tests", "limits", "verdict"),
    [
        ("pass", Limits(5, 110), Verdict.SURVIVED),
        ("raise SystemExit(1)", Limits(5, 110), Verdict.KILLED),
        ("while True: pass", Limits(1, 110), Verdict.CPU_LIMIT),
        ("import os; os.kill(os.getpid(), 9)", Limits(5, 110), Verdict.KILLED),
        ("while True: pass", Limits(1, 110, idle_s=5), Verdict.CPU_LIMIT),
        ("import time; time.sleep(120)", Limits(5, 110, idle_s=2), Verdict.IDLE),
        ("import subprocess; subprocess.run(['sleep', '120'])", Limits(5, 110, idle_s=2), Verdict.IDLE),
        ("import time; time.sleep(120)", Limits(5, 1), Verdict.NOT_JUDGED),
    ],
)
def test_limits_do_not_depend_on_how_busy_the_machine_is(
    tmp_path: Path, tests: str, limits: Limits, verdict: Verdict
) -> None:
    """Rule: too much CPU time and endless waiting show that a mutant was noticed; a wall-clock limit shows nothing."""
    assert judged((sys.executable, "-c", tests), tmp_path, dict(os.environ), limits)[0] is verdict


def test_no_process_of_a_mutant_outlives_its_tests(tmp_path: Path) -> None:
    """Rule: what tests started and left behind is ended with them; it does not delay the verdict."""
    os.mkfifo(tmp_path / "alive")
    reader = os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK)
    left = """
import subprocess
alive = open("alive", "wb", 0)
alive.write(b"1")
subprocess.Popen(["sleep", "120"], stderr=alive)
"""
    assert judged((sys.executable, "-c", left), tmp_path, dict(os.environ), Limits(5, 110))[0] is Verdict.SURVIVED
    os.set_blocking(reader, True)
    assert (os.read(reader, 1), os.read(reader, 1)) == (b"1", b"")
    os.close(reader)


def _runs_tests(child: psutil.Process) -> bool:
    """One that has just ended, and is not waited for yet, has no command line."""
    try:
        return "pytest" in child.cmdline()
    except psutil.NoSuchProcess:
        return False


def test_a_run_that_is_ended_ends_its_tests(tmp_path: Path) -> None:
    """Rule: a signal leaves neither a process nor the copy of the tree behind."""
    command = (sys.executable, "-m", "dev.mutation", "--group", "auth")
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ, "TMPDIR": str(tmp_path)}) as run:
        children: list[psutil.Process] = []
        try:
            while not any(_runs_tests(child) for child in children):
                time.sleep(0.05)
                assert run.poll() is None
                children = psutil.Process(run.pid).children()
            run.terminate()
            assert run.wait() == 128 + signal.SIGTERM
            assert not any(child.is_running() for child in children) and not list(tmp_path.iterdir())
        finally:
            run.kill()
            for child in children:
                with suppress(psutil.NoSuchProcess):
                    child.kill()
