"""Runs the test suites and prints each one's time against its budget."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from dev import gotools, java, tools_chromium, tools_prometheus, ui

ROOT = Path(__file__).resolve().parent.parent
_BIN = Path(sys.executable).parent
# What the minutes of budgets are measured by: a computation, and its seconds on each of two cores at once that had
# nothing else to do when the budgets were set.
_COMPUTATION = "sum(i * i for i in range(5_000_000))"
_ITS_SECONDS = 0.7
# Draws the order of tests; in the output, so that an order in which a test failed can be run again.
SEED = os.environ.get("SEED", "") or str(random.randrange(2**31))


@dataclass(frozen=True, slots=True)
class Tool:
    """A command that sees to a program of others, and what a person does where it cannot."""

    command: tuple[str, ...]
    advice: str


@dataclass(frozen=True, slots=True)
class Suite:
    """One suite: its commands in order, and its budget: how many minutes it may take on two cores. One that takes more
    than twice its budget fails. On another machine, or beside a load, budgets grow or shrink by the measured pace;
    BUNDLEKEEL_BUDGET_SCALE=1.5 gives half as much again (for slow disks, say).

    `tools`: what it needs of others, seen to outside the budget. Where one cannot be had the suite is left out, and the
    closing table says so and what adds it; on CI (the variable CI is set) that is a failure.

    `real`: it runs on real servers or processes that share this machine with everything else. Tests of it that fail run
    once more by themselves, and the table counts those that passed only then: an unsteady test is to be mended, but
    must not hide what all the others say. (Examples of hypothesis are the same both times.) Its time-out and its second
    run are no reason to fail a suite for its budget.

    `computes`: it mostly computes, so it runs beside the suites on clusters, which mostly wait. (Not at a lower
    priority: beside a load of somebody else's it would not end.)
    """

    name: str
    minutes: float
    commands: tuple[tuple[str, ...], ...]
    real: bool = False
    computes: bool = False
    tools: tuple[Tool, ...] = ()


def _pytest(*arguments: str) -> tuple[str, ...]:
    """pytest, which names the slowest tests of a suite at its end."""
    cache = f"cache_dir=.pytest_cache/{'-'.join(Path(part).name for part in arguments[-2:])}"
    shown = ("-q", "--durations=8", "--durations-min=5")
    return (sys.executable, "-m", "pytest", *shown, f"--randomly-seed={SEED}", "-o", cache, *arguments)


# What computes beside others may take several times as long.
_PATIENT = ("--timeout", "900")
GATE = Suite(
    "gate",
    3,
    (
        (str(_BIN / "ruff"), "format", "--check", "-q", "service/bundlekeel", "dev", "evidence", "tests"),
        (str(_BIN / "ruff"), "check", "-q", "service/bundlekeel", "dev", "evidence", "tests"),
        (str(_BIN / "lint-imports"),),
        (str(_BIN / "mypy"), "--no-error-summary"),
        (sys.executable, "-m", "dev.sizes"),
        (sys.executable, "-m", "dev.docs", "check"),
        (str(_BIN / "deptry"), "service/bundlekeel"),
        _pytest("tests/watch/test_names.py"),
        # Not quietly: --quiet hides warnings from --strict, which then passes over a broken link.
        (str(_BIN / "mkdocs"), "build", "--strict"),
    ),
)
# Apart from the gate: what is made of the chart is rendered by helm, which a fresh machine builds first (four minutes).
CHART_FILES = Suite(
    "chart's made files",
    4,
    ((sys.executable, "-m", "dev.chart", "check"),),
    computes=True,
    tools=(Tool((sys.executable, "-m", "dev.gotools", "helm"), gotools.ADVICE),),
)
_SHARED = ("-n", "2", "--dist", "worksteal")
# Among them are tests of our own child processes, by the real clock.
UNIT = Suite("unit", 19, (_pytest(*_SHARED, *_PATIENT, "-m", "not nightly", "tests/unit"),), real=True, computes=True)
LAWS = Suite("laws", 8, (_pytest(*_PATIENT, "-m", "not nightly", "tests/property"),), computes=True)
# Pulsar's own classes are run beside ours by a Java program that is compiled here.
PARITY = Suite(
    "parity",
    8,
    (_pytest(*_PATIENT, "-m", "not nightly", "tests/parity"),),
    computes=True,
    tools=(Tool((sys.executable, "-m", "dev.java", "compiler"), java.NO_COMPILER),),
)
SIMULATION = Suite(
    "simulation", 11, (_pytest(*_PATIENT, "-m", "not nightly", "tests/simulation", "tests/field"),), computes=True
)
MODULAR = Suite("modular cluster", 15, (_pytest("-m", "not nightly", "tests/integration"),), real=True)
CHAOS = Suite("chaos", 10, (_pytest("-m", "not nightly", "tests/chaos"),), real=True)
EXTENSIBLE = Suite("extensible cluster", 5, (_pytest("-m", "not nightly", "tests/extensible"),), real=True)
QUOTAS = Suite("quotas", 5, (_pytest("-m", "not nightly", "-s", "tests/quotas"),), real=True)
# The newcomer, who types every command of README and getting-started in a fresh copy, installs anew: nightly.
DEMO = Suite("demo", 3, (_pytest("-m", "not nightly", "tests/e2e"),), real=True)
SPARK = Suite("spark", 12, (_pytest(*_PATIENT, "-m", "not nightly", "tests/spark"),), real=True, computes=True)
# A real cluster's history, refused and adopted: three minutes of it are recorded.
HISTORY = Suite("history, whole way", 7, (_pytest("-m", "cluster", "tests/spark"),), real=True)
WATCH = Suite(
    "dashboards and alerts",
    6,
    (_pytest(*_PATIENT, "-m", "not nightly", "tests/watch"),),
    real=True,
    computes=True,
    tools=(Tool((sys.executable, "-m", "dev.tools_prometheus"), tools_prometheus.ADVICE),),
)
CHART = Suite(
    "chart and image",
    8,
    (_pytest(*_PATIENT, "-m", "not nightly", "tests/chart"),),
    computes=True,
    tools=(Tool((sys.executable, "-m", "dev.gotools"), gotools.ADVICE),),
)
UI = Suite(
    "web page",
    13,
    (_pytest(*_PATIENT, "-m", "not nightly and not cluster", "tests/ui"),),
    real=True,
    computes=True,
    tools=(
        Tool((sys.executable, "-m", "dev.tools_chromium"), tools_chromium.ADVICE),
        Tool((sys.executable, "-m", "dev.ui", "install"), ui.ADVICE),
    ),
)
UI_BUILD = Suite("web page, built anew", 2, ((sys.executable, "-m", "dev.ui", "check"),))
# The same page over a real cluster.
UI_CLUSTER = Suite("web page, cluster", 4, (_pytest("-m", "cluster", "tests/ui"),), real=True)


def nightly(shard: str) -> Suite:
    """The long forms, and the laws on examples that were not drawn before: `make test` draws the same ones every time.

    `shard` is "1/4" for the first of four parts, "" for all. The seed draws the examples too.
    """
    chosen = ("--hypothesis-profile", "random", f"--hypothesis-seed={SEED}")
    part = (*chosen, *(("--shard", shard) if shard else ()))
    laws = _pytest(*_SHARED, *part, "-m", "not nightly", "tests/property", "tests/unit")
    long = _pytest(*part, "-m", "nightly", "tests")
    return Suite(f"nightly {shard or 'whole'}", 270, (long, laws))


NIGHTLY = nightly(os.environ.get("SHARD", ""))

PLANS: dict[str, tuple[Suite, ...]] = {
    "check": (GATE, UNIT, LAWS, CHART_FILES),
    "chaos": (CHAOS,),
    "all": (
        *(GATE, MODULAR, EXTENSIBLE, CHAOS, QUOTAS, DEMO),
        # Short ones last, so that two end at nearly the same time.
        *(UNIT, LAWS, UI, SPARK, PARITY, SIMULATION, WATCH, CHART_FILES, CHART),
    ),
    "extensible": (EXTENSIBLE,),
    "quotas": (QUOTAS,),
    "spark": (SPARK, HISTORY),
    "watch": (WATCH,),
    "chart": (CHART,),
    "ui": (UI_BUILD, UI, UI_CLUSTER),
    "nightly": (NIGHTLY,),
}


@dataclass(slots=True)
class Row:
    """How a suite went: why it was left out and where it failed, both empty for one that held."""

    suite: Suite
    minutes: float = 0.0
    unsteady: bool = False
    left_out: str = ""
    failed: str = ""


def _slower() -> float:
    """How many times as long as the budgets' machine this one takes now: two cores compute at once. At least half, as
    suites also wait."""
    started = time.monotonic()
    for each in [subprocess.Popen((sys.executable, "-c", _COMPUTATION)) for _ in range(2)]:
        each.wait()
    return max(0.5, (time.monotonic() - started) / _ITS_SECONDS)


def run(suites: tuple[Suite, ...], pace: Callable[[], float] = _slower) -> int:
    """Run all of them, two at a time but one on clusters at a time; after a failure none begins. The exit code."""
    rows: list[Row] = []
    started = time.monotonic()
    print(f"order of tests: SEED={SEED}", flush=True)
    slower = pace()
    # A suite that computes is taken from the one iterator by whichever of the two is free.
    waits, computes = (iter([suite for suite in suites if suite.computes is kind]) for kind in (False, True))
    with ThreadPoolExecutor() as pool:
        for lane in [pool.submit(_in_order, lane, rows) for lane in (chain(waits, computes), computes)]:
            lane.result()
    slower = max(slower, pace())
    scale = slower * float(os.environ.get("BUNDLEKEEL_BUDGET_SCALE", "1"))
    print(f"\nthis machine took {slower:.1f} times as long as the budgets are made for")
    print(f"{'suite':<21}  minutes  budget")
    for row in (row for row in rows if not row.left_out):
        budget = row.suite.minutes * scale
        notes = ["over"] * (row.minutes > budget) + ["UNSTEADY: failed once, see above"] * row.unsteady
        notes += ["beside the others"] * row.suite.computes
        print(f"{row.suite.name:<21}  {row.minutes:7.1f}  {budget:6.0f}  {', '.join(notes)}".rstrip())
        if row.minutes > 2 * budget and not row.unsteady:
            row.failed = row.failed or "it took more than twice its budget"
    print(f"{'from start to end':<21}  {(time.monotonic() - started) / 60:7.1f}")
    print("".join(f"{row.suite.name:<21}  LEFT OUT: {row.left_out}\n" for row in rows if row.left_out), end="")
    failed = [f"{row.suite.name}: {row.failed}" for row in rows if row.failed]
    print(f"FAILED in {'; '.join(failed)}" if failed else "all suites passed")
    return 1 if failed else 0


def _in_order(suites: Iterator[Suite], rows: list[Row]) -> None:
    for suite in suites:
        if not any(row.failed for row in rows):
            rows.append(_row(suite))


def _row(suite: Suite) -> Row:
    print(f"== {suite.name}", flush=True)
    missing = next((tool for tool in suite.tools if not _run(suite, tool.command)), None)
    if missing is not None:
        return Row(suite, left_out=missing.advice, failed=_shown(missing.command) if os.environ.get("CI") else "")
    row, started = Row(suite), time.monotonic()
    for command in suite.commands:
        if _run(suite, command):
            continue
        again = (*command, "--last-failed", "--last-failed-no-failures", "none")
        print(f"== {suite.name}: once more the tests that failed" if suite.real else "", flush=True)
        row.unsteady = suite.real and _run(suite, again)
        if not row.unsteady:
            row.failed = _shown(command)
            break
    row.minutes = (time.monotonic() - started) / 60
    return row


def _shown(command: tuple[str, ...]) -> str:
    return " ".join(Path(part).name for part in command[:4])


def _run(suite: Suite, command: tuple[str, ...]) -> bool:
    """Whether a command held. What it prints beside another suite is shown when it has ended."""
    if not suite.computes:
        return subprocess.run(command, cwd=ROOT, check=False).returncode == 0
    ended = subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(f"== {suite.name}: {_shown(command)}\n{ended.stdout}", flush=True)
    return ended.returncode == 0


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in PLANS:
        sys.exit(f"usage: python -m dev.suites {'|'.join(PLANS)}")
    sys.exit(run(PLANS[sys.argv[1]]))
