"""Runs the test suites in lanes beside each other, each lane one after the other, and prints each one's time against
its budget.

A suite on a cluster mostly waits, so others compute meanwhile. No test may need a machine of its own, and each
`make test` shows that none does."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from dev import gotools, java, tools_chromium, tools_prometheus, ui

ROOT = Path(__file__).resolve().parent.parent
_BIN = Path(sys.executable).parent


@dataclass(frozen=True, slots=True)
class Tool:
    """A command that sees to a program of others, and what a person does where it cannot."""

    command: tuple[str, ...]
    advice: str


@dataclass(frozen=True, slots=True)
class Suite:
    """One suite: its commands in order, and its budget: how many minutes it may take on two cores. One that takes more
    than twice its budget fails; BUNDLEKEEL_BUDGET_SCALE=1.5 gives a slower machine half as much again.

    `tools`: what it needs of others, seen to outside the budget. Where one cannot be had the suite is left out, and the
    closing table says so and what adds it; on CI (the variable CI is set) that is a failure.

    `real`: it runs on real servers or processes that share this machine with everything else. Tests of it that fail run
    once more by themselves, and the table counts those that passed only then: an unsteady test is to be mended, but
    must not hide what all the others say. (Examples of hypothesis are the same both times.)
    """

    name: str
    minutes: float
    commands: tuple[tuple[str, ...], ...]
    real: bool = False
    tools: tuple[Tool, ...] = ()


def _pytest(*arguments: str) -> tuple[str, ...]:
    """pytest, which names the slowest tests of a suite at its end."""
    return (sys.executable, "-m", "pytest", "-q", "--durations=8", "--durations-min=5", *arguments)


GATE = Suite(
    "gate",
    2,
    (
        (str(_BIN / "ruff"), "format", "--check", "-q", "service/bundlekeel", "dev", "tests"),
        (str(_BIN / "ruff"), "check", "-q", "service/bundlekeel", "dev", "tests"),
        (str(_BIN / "lint-imports"),),
        (str(_BIN / "mypy"), "--no-error-summary"),
        (sys.executable, "-m", "dev.sizes"),
        (sys.executable, "-m", "dev.docs", "check"),
        (str(_BIN / "deptry"), "service/bundlekeel"),
        _pytest("tests/watch/test_names.py"),
        (str(_BIN / "mkdocs"), "build", "--strict", "--quiet"),
    ),
)
# Apart from the gate: what is made of the chart is rendered by helm, which a fresh machine builds first (four minutes).
CHART_FILES = Suite(
    "chart's made files",
    1,
    ((sys.executable, "-m", "dev.chart", "check"),),
    tools=(Tool((sys.executable, "-m", "dev.gotools", "helm"), gotools.ADVICE),),
)
# Pure and quick, so they share the cores; what runs real servers has them for itself.
_SHARED = ("-n", "3", "--dist", "worksteal")
# Among them are tests of our own child processes, by the real clock.
UNIT = Suite(
    "unit and property", 10, (_pytest(*_SHARED, "-m", "not nightly", "tests/unit", "tests/property"),), real=True
)
# Pulsar's own classes are run beside ours by a Java program that is compiled here.
PARITY = Suite(
    "parity",
    4,
    (_pytest("-m", "not nightly", "tests/parity"),),
    tools=(Tool((sys.executable, "-m", "dev.java", "compiler"), java.NO_COMPILER),),
)
SIMULATION = Suite("simulation", 2, (_pytest("-m", "not nightly", "tests/simulation"),))
MODULAR = Suite("modular cluster", 8, (_pytest("-m", "not nightly", "tests/integration"),), real=True)
CHAOS = Suite("chaos", 12, (_pytest("-m", "not nightly", "tests/chaos"),), real=True)
EXTENSIBLE = Suite("extensible cluster", 5, (_pytest("-m", "not nightly", "tests/extensible"),), real=True)
QUOTAS = Suite("quotas", 6, (_pytest("-m", "not nightly", "-s", "tests/quotas"),), real=True)
# The newcomer, who types every command of README and getting-started in a fresh copy, installs anew: nightly.
DEMO = Suite("demo", 3, (_pytest("-m", "not nightly", "tests/e2e"),), real=True)
SPARK = Suite("spark", 4, (_pytest("-m", "not nightly", "tests/spark"),), real=True)
# A real cluster's history, refused and adopted: three minutes of it are recorded.
HISTORY = Suite("history, whole way", 7, (_pytest("-m", "cluster", "tests/spark"),), real=True)
WATCH = Suite(
    "dashboards and alerts",
    2,
    (_pytest("-m", "not nightly", "tests/watch"),),
    real=True,
    tools=(Tool((sys.executable, "-m", "dev.tools_prometheus"), tools_prometheus.ADVICE),),
)
CHART = Suite(
    "chart and image",
    3,
    (_pytest("-m", "not nightly", "tests/chart"),),
    tools=(Tool((sys.executable, "-m", "dev.gotools"), gotools.ADVICE),),
)
UI = Suite(
    "web page",
    4,
    (_pytest("-m", "not nightly and not cluster", "tests/ui"),),
    real=True,
    tools=(
        Tool((sys.executable, "-m", "dev.tools_chromium"), tools_chromium.ADVICE),
        Tool((sys.executable, "-m", "dev.ui", "install"), ui.ADVICE),
    ),
)
UI_BUILD = Suite("web page, built anew", 2, ((sys.executable, "-m", "dev.ui", "check"),))
# The same page over a real cluster.
UI_CLUSTER = Suite("web page, cluster", 4, (_pytest("-m", "cluster", "tests/ui"),), real=True)


def nightly(shard: str, seed: str) -> Suite:
    """The long forms, and the laws on examples that were not drawn before: `make test` draws the same ones every time.

    `shard` is "1/4" for the first of four parts, "" for all; `seed` draws the examples and the order of tests.
    """
    chosen = ("--hypothesis-profile", "random", f"--hypothesis-seed={seed}", f"--randomly-seed={seed}")
    part = (*chosen, *(("--shard", shard) if shard else ()))
    laws = _pytest(*_SHARED, *part, "-m", "not nightly", "tests/property", "tests/unit")
    long = _pytest(*part, "-m", "nightly", "tests")
    return Suite(f"nightly {shard or 'whole'}, seed {seed}", 270, (long, laws))


NIGHTLY = nightly(os.environ.get("SHARD", ""), os.environ.get("SEED", "") or str(random.randrange(2**31)))

Lane = tuple[Suite, ...]
# A cluster in each of two, and what computes; alike in length.
FAULTS: Lane = (CHAOS, QUOTAS)
CLUSTERS: Lane = (MODULAR, EXTENSIBLE, DEMO, SPARK)
COMPUTING: Lane = (GATE, CHART_FILES, UNIT, PARITY, SIMULATION, WATCH, CHART, UI)
PLANS: dict[str, tuple[Lane, ...]] = {
    "check": ((GATE, CHART_FILES, UNIT),),
    "chaos": ((CHAOS,),),
    "all": (COMPUTING, CLUSTERS, FAULTS),
    "extensible": ((EXTENSIBLE,),),
    "quotas": ((QUOTAS,),),
    "spark": ((SPARK, HISTORY),),
    "watch": ((WATCH,),),
    "chart": ((CHART,),),
    "ui": ((UI_BUILD, UI, UI_CLUSTER),),
    "nightly": ((NIGHTLY,),),
}


@dataclass(slots=True)
class Runner:
    """One run of some lanes. `failed` says what failed first; from then on no suite begins."""

    beside: bool
    rows: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    failed: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def lane(self, suites: Lane) -> None:
        """Run all of them, until one of this or another lane fails."""
        for suite in suites:
            if not self.failed:
                self._suite(suite)

    def _suite(self, suite: Suite) -> None:
        self._say(f"== {suite.name}\n")
        missing = next((tool for tool in suite.tools if not self._run(suite, tool.command)), None)
        if missing is not None:
            self.left_out.append(f"{suite.name:<21}  LEFT OUT: {missing.advice}")
            if os.environ.get("CI"):
                self.failed = self.failed or f"{suite.name}: {_shown(missing.command)}"
            return
        started, notes, failed = time.monotonic(), list[str](), ""
        for command in suite.commands:
            if self._run(suite, command):
                continue
            # Tests on real servers that failed run once more by themselves.
            self._say(f"== {suite.name}: once more the tests that failed\n" if suite.real else "")
            if not suite.real or not self._run(suite, (*command, "--last-failed", "--last-failed-no-failures", "none")):
                failed = _shown(command)
                break
            notes.append("UNSTEADY: failed once, see above")
        minutes = (time.monotonic() - started) / 60
        budget = suite.minutes * float(os.environ.get("BUNDLEKEEL_BUDGET_SCALE", "1"))
        if minutes > 2 * budget:
            failed = failed or "it took more than twice its budget"
        notes = ["over"] * (minutes > budget) + notes + ["FAILED"] * bool(failed)
        row = f"{suite.name:<21}  {minutes:7.1f}  {budget:6.0f}  {', '.join(notes)}".rstrip()
        self._say(f"== {row}\n")
        self.rows.append(row)
        if failed:
            self.failed = self.failed or f"{suite.name}: {failed}"

    def _run(self, suite: Suite, command: tuple[str, ...]) -> bool:
        """Whether it held. Beside other lanes each line says whose it is."""
        # Lanes share the tree: each suite keeps for itself which of its tests failed last.
        cache = f".pytest_cache/{suite.name.split(',')[0].replace(' ', '-')}"
        env = {**os.environ, "PYTEST_ADDOPTS": f"{os.environ.get('PYTEST_ADDOPTS', '')} -o cache_dir={cache}"}
        if not self.beside:
            return subprocess.run(command, cwd=ROOT, env=env, check=False).returncode == 0
        both = partial(subprocess.Popen[str], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace")
        with both(command, cwd=ROOT, env=env) as process:
            for line in process.stdout or ():
                self._say(f"{suite.name}| {line}")
        return process.returncode == 0

    def _say(self, line: str) -> None:
        with self._lock:
            sys.stdout.write(line)
            sys.stdout.flush()


def run(*lanes: Lane) -> int:
    """Run all lanes beside each other; the exit code."""
    started, runner = time.monotonic(), Runner(beside=len(lanes) > 1)
    with ThreadPoolExecutor(len(lanes)) as pool:
        for done in [pool.submit(runner.lane, lane) for lane in lanes]:
            done.result()
    print(f"\n{'suite':<21}  minutes  budget")
    print("\n".join([*runner.rows, f"{'all':<21}  {(time.monotonic() - started) / 60:7.1f}", *runner.left_out]))
    print(f"FAILED in {runner.failed}" if runner.failed else "all suites passed")
    return 1 if runner.failed else 0


def _shown(command: tuple[str, ...]) -> str:
    return " ".join(Path(part).name for part in command[:4])


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in PLANS:
        sys.exit(f"usage: python -m dev.suites {'|'.join(PLANS)}")
    sys.exit(run(*PLANS[sys.argv[1]]))
