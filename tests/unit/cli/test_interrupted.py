"""Output of commands that are interrupted, or whose output cannot be written."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from tests.support.shop import BROKERS, BUNDLE
from tests.unit.cli.test_commands import Sidecar, served, sidecar  # fixtures

__all__ = ["served", "sidecar"]

WHO = ["--reason", "r", "--by", "ann"]


@pytest.fixture
def ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the command waits. No signal: a shell that starts the tests in the background has them ignore it."""
    monkeypatch.setattr(time, "sleep", lambda _: signal.default_int_handler(signal.SIGINT, None))


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["drain", BROKERS[1], "--yes"], f"bundlekeel uncordon {BROKERS[1]}"),
        (["warm", BROKERS[2], "--yes"], f"bundlekeel uncordon {BROKERS[2]}"),
        (["transfer", BUNDLE, "--to", BROKERS[2], "--yes"], "bundlekeel stop req-0000000000"),
        (["plan", "execute"], "bundlekeel stop "),
    ],
    ids=lambda item: item[0] if isinstance(item, list) else "",
)
def test_who_interrupts_a_wait_is_told_that_it_goes_on_and_what_ends_it(
    sidecar: Sidecar, command: list[str], message: str
) -> None:
    command = [*command, sidecar.plan().hash] if command[0] == "plan" else command
    result = sidecar.run(*command, "--wait", *WHO)
    assert result.exit_code == 130, result.output
    last = result.stderr.splitlines()[-1]
    assert last.startswith("error: ") and "it goes on, see `bundlekeel " in last
    assert f"; `{message}" in last and last.endswith('--reason "…"` ends it')


@pytest.mark.parametrize("command", ["config parameters", "config parameters -o json", "version", "--help"])
def test_output_that_cannot_be_written_is_one_line(command: str) -> None:
    """A full disk gave a traceback and exit code 1, which means bad news."""
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        request = [sys.executable, "-m", "bundlekeel", *command.split()]
        ran = subprocess.run(request, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ran.stderr == "error: standard output cannot be written: No space left on device\n"
    assert ran.returncode == 3


def test_an_interrupt_while_modules_are_imported_is_no_traceback(tmp_path: Path) -> None:
    """On a busy host that takes a second, and typer, which ends a command quietly, is one of them."""
    # A shell that starts the tests in the background has them ignore the signal.
    heeded = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    (tmp_path / "typer.py").write_text(f"{heeded}; signal.raise_signal(signal.SIGINT)\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from bundlekeel.__main__ import main; main()"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "")


def test_the_installed_command_begins_where_an_interrupt_is_caught(pytestconfig: pytest.Config) -> None:
    """Not in the package whose import takes long."""
    scripts = tomllib.loads((pytestconfig.rootpath / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["bundlekeel"] == "bundlekeel.__main__:main"
