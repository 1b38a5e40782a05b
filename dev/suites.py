"""Runs the test suites one after the other and prints each one's time against its budget."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from dataclasses import dataclass
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

PLANS: dict[str, tuple[Suite, ...]] = {
    "check": (GATE, CHART_FILES, UNIT),
    "chaos": (CHAOS,),
    "all": (
        *(GATE, CHART_FILES, UNIT, PARITY, SIMULATION, MODULAR, EXTENSIBLE, SPARK),
        *(CHAOS, QUOTAS, DEMO, WATCH, CHART, UI),
    ),
    "extensible": (EXTENSIBLE,),
    "quotas": (QUOTAS,),
    "spark": (SPARK, HISTORY),
    "watch": (WATCH,),
    "chart": (CHART,),
    "ui": (UI_BUILD, UI, UI_CLUSTER),
    "nightly": (NIGHTLY,),
}


def run(suites: tuple[Suite, ...]) -> int:
    """Run all of them, stop at the first that fails; the exit code."""
    scale = float(os.environ.get("BUNDLEKEEL_BUDGET_SCALE", "1"))
    rows, left_out = [], []
    failed = ""
    for suite in suites:
        print(f"== {suite.name}", flush=True)
        missing = next((tool for tool in suite.tools if not _run(tool.command, again=False)[0]), None)
        if missing is not None:
            left_out.append(f"{suite.name:<21}  LEFT OUT: {missing.advice}")
            failed = f"{suite.name}: {_shown(missing.command)}" if os.environ.get("CI") else ""
            if failed:
                break
            continue
        started, unsteady = time.monotonic(), False
        for command in suite.commands:
            held, unsteady = _run(command, again=suite.real)
            if not held:
                failed = f"{suite.name}: {_shown(command)}"
                break
        rows.append((suite, (time.monotonic() - started) / 60, unsteady))
        if failed:
            break
    print(f"\n{'suite':<21}  minutes  budget")
    for suite, minutes, unsteady in rows:
        budget = suite.minutes * scale
        notes = ["over"] * (minutes > budget) + ["UNSTEADY: failed once, see above"] * unsteady
        print(f"{suite.name:<21}  {minutes:7.1f}  {budget:6.0f}  {', '.join(notes)}".rstrip())
        if minutes > 2 * budget:
            failed = failed or f"{suite.name}: it took more than twice its budget"
    print(f"{'all':<21}  {sum(minutes for _, minutes, _ in rows):7.1f}")
    print("\n".join([*left_out, f"FAILED in {failed}" if failed else "all suites passed"]))
    return 1 if failed else 0


def _shown(command: tuple[str, ...]) -> str:
    return " ".join(Path(part).name for part in command[:4])


def _run(command: tuple[str, ...], *, again: bool) -> tuple[bool, bool]:
    """Run one command: whether it held, and whether only at the second attempt of the tests that had failed."""
    if subprocess.run(command, cwd=ROOT, check=False).returncode == 0:
        return True, False
    if not again:
        return False, False
    print("== once more: the tests that failed", flush=True)
    second = (*command, "--last-failed", "--last-failed-no-failures", "none")
    held = subprocess.run(second, cwd=ROOT, check=False).returncode == 0
    return held, held


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in PLANS:
        sys.exit(f"usage: python -m dev.suites {'|'.join(PLANS)}")
    sys.exit(run(PLANS[sys.argv[1]]))
