"""`bundlekeel deadman` and the namespaces of `takeover`: sentences, JSON and exit codes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from bundlekeel.model.errors import CodecError, StoreError
from tests.support.apps import make_app
from tests.support.fake_wiring import FakeWiring

ROW = {"broker": "b1:8080", "before": "false", "after": "true", "ok": True, "detail": ""}


def answer(state: str, **more: Any) -> dict[str, Any]:
    return {"state": state, "sentence": "because", "brokers": [], "warnings": [], "split": "", "done": True, **more}


def run(wiring: FakeWiring, tmp_path: Path, *arguments: str) -> Result:
    """One command with a settings file of its own."""
    file = tmp_path / "c.yaml"
    file.write_text("cycle: {interval: 5s}\n")
    return CliRunner().invoke(make_app(lambda: wiring), [*arguments, "-c", str(file)], env={"COLUMNS": "120"})


@pytest.mark.parametrize(
    ("state", "code"), [("alive", 0), ("not_taken_over", 0), ("restored", 1), ("incomplete", 1), ("dead", 1)]
)
def test_exit_codes(tmp_path: Path, state: str, code: int) -> None:
    """Dead sidecars are bad news, also when everything could be restored."""
    wiring = FakeWiring()
    wiring.deaths = [answer(state, brokers=[ROW] if state == "restored" else [])]
    result = run(wiring, tmp_path, "deadman", "--by", "cron")
    assert result.exit_code == code, result.output
    assert state.replace("_", " ") in result.stdout and "because" in result.stdout
    assert ("b1:8080" in result.stdout) is (state == "restored")
    assert wiring.calls == [("deadman", (600.0, 60.0, "cron", False))]


@pytest.mark.parametrize("error", [StoreError("no store"), CodecError("odd", code="WrongType")])
def test_what_cannot_be_read_is_no_death(tmp_path: Path, error: Exception) -> None:
    """Exit code 3, and the reason on stderr."""
    wiring = FakeWiring()
    wiring.deaths = [error]
    result = run(wiring, tmp_path, "deadman")
    assert (result.exit_code, result.stdout) == (3, "") and str(error) in result.stderr


def test_json_and_dry_run(tmp_path: Path) -> None:
    """The whole answer."""
    wiring = FakeWiring()
    wiring.deaths = [answer("dead", age_seconds=700.0)]
    result = run(wiring, tmp_path, "deadman", "--dry-run", "--after", "1h", "--confirm", "5s", "-o", "json")
    assert json.loads(result.stdout)["age_seconds"] == 700.0
    assert wiring.calls[0][1][0] == 3600.0 and wiring.calls[0][1][3] is True


def test_it_goes_on_where_it_is_told_so(tmp_path: Path) -> None:
    wiring = FakeWiring()
    wiring.deaths = [StoreError("no store"), answer("alive"), KeyboardInterrupt()]
    result = run(wiring, tmp_path, "deadman", "--every", "1s")
    assert len(wiring.calls) == 3
    assert "no store" in result.stderr and result.stdout.count("alive") == 1
    assert run(FakeWiring(), tmp_path, "deadman", "--every", "0s").exit_code == 2


@pytest.mark.parametrize("during", ["look", "rest"])
def test_sigterm_ends_it_after_the_look(during: str) -> None:
    """It is how the program is stopped, and no failure. A look may be writing."""
    code = (
        "import signal, sys, time; from tests.support.apps import make_app\n"
        "from tests.support.fake_wiring import FakeWiring\n"
        "class Slow(FakeWiring):\n"
        "    def deadman(self, *args, **more):\n"
        "        print('looks'); time.sleep(1); return super().deadman(*args, **more)\n"
        "signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))\n"
        f"wiring = Slow(); wiring.deaths = [{answer('alive')}]\n"
        "make_app(lambda: wiring)(['deadman', '--every', '1h'])"
    )
    with subprocess.Popen([sys.executable, "-uc", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "looks\n"
        time.sleep(0.3 if during == "look" else 1.3)
        process.terminate()
        assert (process.wait(10), process.stdout.read()) == (0, "alive: because\n")


def test_sigterm_ends_every_command() -> None:
    """The first process of a container gets no signal that it does not handle, and would run until killed."""
    code = (
        "import os, signal; from bundlekeel.cli import app; from bundlekeel import wiring\n"
        "wiring.make_app = lambda *_: lambda **_: os.kill(os.getpid(), signal.SIGTERM)\nwiring.main()"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 128 + signal.SIGTERM


@pytest.mark.parametrize(("after", "says"), [("10s", "3 times `cycle.interval`"), ("soon", "expected a duration")])
def test_a_limit_that_makes_no_sense(tmp_path: Path, after: str, says: str) -> None:
    """Shorter than a few cycles, every leader would be dead."""
    wiring = FakeWiring()
    result = run(wiring, tmp_path, "deadman", "--after", after)
    assert result.exit_code == 2 and says in result.stderr and not wiring.calls


def test_a_takeover_as_the_last_one(tmp_path: Path) -> None:
    wiring = FakeWiring()
    result = run(wiring, tmp_path, "takeover", "--again", "--yes", "--reason", "r", "--by", "ann")
    assert result.exit_code == 0, result.output
    assert (wiring.namespaces, wiring.calls) == (("shop/orders",), [("takeover", ("off", "r", "ann", False))])
    for more in (("--namespace", "a/b"), ("--split", "off")):
        both = run(wiring, tmp_path, "takeover", "--again", "--dry-run", *more)
        assert both.exit_code == 2 and "omit these two options" in both.stderr
    assert len(wiring.calls) == 1


def test_takeover_of_named_namespaces(tmp_path: Path) -> None:
    wiring = FakeWiring()
    result = run(wiring, tmp_path, "takeover", "--yes", "--reason", "r", "--namespace", "b/c", "--namespace", "a/b")
    assert result.exit_code == 0, result.output
    assert wiring.namespaces == ("a/b", "b/c")
    for wrong in ("tenant", "a/b/c", "a/*", ""):
        assert run(wiring, tmp_path, "takeover", "--yes", "--reason", "r", "--namespace", wrong).exit_code == 2
