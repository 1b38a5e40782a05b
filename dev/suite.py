"""Run one test suite within its budget, and add a row to the closing table of `make test`.

A budget is in minutes on two fast cores. A suite fails only if it takes four times its budget, because machines differ.
BUNDLEKEEL_BUDGET_SCALE=2 doubles every budget. `dev/suites.mk` lists the suites, and which of them run in parallel.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from dev.pulsar_releases import VARIABLE

TABLE = Path(__file__).resolve().parent.parent / ".run" / "suites"
# A suite that is interrupted stops its clusters within this time.
STOP_SECONDS = 120


def run(command: list[str], seconds: float) -> int:
    """Run a command and return its exit code, or 124 if it was interrupted after `seconds`."""
    with subprocess.Popen(command) as process:
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
        except KeyboardInterrupt:
            # The terminal has interrupted the suite as well.
            pass
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
        return 124


def missing_program(module: str) -> str:
    """Run a module that installs a program. Return why it could not, "" if the program is installed."""
    ended = subprocess.run([sys.executable, "-m", *module.split()], capture_output=True, text=True, check=False)
    lines = (ended.stdout + ended.stderr).strip().splitlines()
    return (lines or ["no reason"])[-1] if ended.returncode else ""


def suite(options: argparse.Namespace) -> tuple[int, str]:
    """Run the suite. Return its exit code, and a note for the table."""
    for module in (*options.needs, *options.optional):
        if advice := missing_program(module):
            required = os.environ.get("CI") and module in options.needs
            return (1 if required else 0), f"LEFT OUT: {advice}"
    limit = 4 * options.minutes * 60 * float(os.environ.get("BUNDLEKEEL_BUDGET_SCALE") or 1)
    code = run(options.command, limit)
    if code == 124:
        return code, "FAILED: it took more than four times its budget"
    # pytest exits with 1 only if tests failed.
    if code == 1 and options.again:
        print(f"== {options.name}: the failed tests once more", flush=True)
        code = run([*options.command, "--last-failed", "--last-failed-no-failures", "none"], limit)
        return code, "FAILED" if code else "UNSTEADY: tests failed once"
    return code, "FAILED" if code else ""


def main(arguments: list[str]) -> int:
    """Run the suite that the arguments describe, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m dev.suite", description=__doc__)
    parser.add_argument("--again", action="store_true", help="run failed tests once more (docs/adr/0005)")
    parser.add_argument("--needs", action="append", default=[], help="module that installs a program, with arguments")
    parser.add_argument("--optional", action="append", default=[], help="as --needs, but may be missing on CI")
    parser.add_argument("name")
    parser.add_argument("minutes", type=float, help="budget")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    print(f"== {options.name}", flush=True)
    started = time.monotonic()
    code, note = suite(options)
    name = " ".join(filter(None, (options.name, os.environ.get(VARIABLE))))
    row = f"{name:<14} {(time.monotonic() - started) / 60:6.1f} of {options.minutes:4.0f} min  {note}".rstrip()
    print(row, flush=True)
    TABLE.parent.mkdir(exist_ok=True)
    with TABLE.open("a", encoding="utf-8") as table:
        table.write(f"{row}\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
