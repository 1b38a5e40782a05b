"""Make small errors in the code that decides on moves, with mutmut, and count the errors that no test notices.

`python -m evidence.mutation [--number 1] [--only guard] [--functions '*'] [--tree DIRECTORY]` tries change number 1 of
each function whose name matches. A change is noticed if a test that calls the function fails. `--tree` measures another
checkout, such as an older commit, with the same rules. Strings are not changed, because no test compares wording.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from dev.markdown import table
from dev.wheels import program

ROOT: Final = Path(__file__).resolve().parent.parent
AIM: Final = 0.85
# Row of the table by pattern of files below `bundlekeel`. The first pattern that matches a file applies.
GROUPS: Final = {
    "guard": "*/guard/*.py",
    "strategies": "*/strategies/*.py",
    "filters": "*/filters/*.py",
    "planning": "*planning/*.py",
    "gate": "*/gate/*.py",
    "execution": "*/execution/*.py",
    "lease": "*/state/leadership.py",
    "auth": "*api/auth.py",
    "shield": "*api/shield.py",
}
# The tests of decisions, by their paths before and after packages were divided by feature. Other tests are too slow.
TESTS: Final = tuple(
    f"tests/{name}"
    for name in (
        *("unit/core", "unit/daemon", "unit/api", "unit/model", "unit/planning", "unit/compat", "unit/leader"),
        *("unit/pulsar", "unit/records", "unit/requests", "unit/views", "unit/quotas", "property"),
    )
)
# mutmut expects the packages in `src`. `service` remains, for tests that read the sources.
_CONFIG: Final[dict[str, list[str]]] = {
    "source_paths": ["src"],
    "do_not_mutate_patterns": ["[\"']", r"_log\."],
    # The ignored file compares the sources with a list. It would fail for each change, and before the first one.
    "pytest_add_cli_args": [
        *("-p", "no:cacheprovider", "--timeout=0", "-m", "not nightly", "--ignore-glob=*/test_commands_gated.py"),
        # This test locks /dev/full, so it fails during another test run on the same machine.
        *("-k", "not full_disk"),
    ],
}
NOTICED: Final = ("killed", "timeout", "caught by type check", "segfault", "suspicious")


def prepare(tree: Path, folder: Path, patterns: Sequence[str], tests: Sequence[str]) -> None:
    """Copy the files of a checkout to `folder`, in the layout that mutmut needs."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(listed, cwd=tree, capture_output=True, check=True).stdout
    pack = ["tar", "--create", "--null", "--files-from=-", "--ignore-failed-read"]
    packed = subprocess.run(pack, cwd=tree, input=files, capture_output=True, check=True).stdout
    # mutmut runs the tests in `mutants`, with its own copy of `src`.
    for target in (folder, folder / "mutants"):
        target.mkdir(exist_ok=True)
        subprocess.run(["tar", "--extract"], cwd=target, input=packed, check=True)
        (target / "service").rename(target / "src")
        (target / "service").symlink_to("src")
    subprocess.run(["rm", "-r", str(folder / "mutants" / "src")], check=True)
    only = [f"src/bundlekeel/{pattern}" for pattern in patterns]
    existing = [test for test in tests if (folder / test).exists()]
    config = {**_CONFIG, "only_mutate": only, "pytest_add_cli_args_test_selection": existing}
    with (folder / "pyproject.toml").open("a", encoding="utf-8") as file:
        file.write("\n[tool.mutmut]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in config.items()))


def run(folder: Path, mutmut: Path, changes: str) -> dict[str, str]:
    """Try the changes whose names match the pattern `changes`; return the status of each change by its name."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(("src", ".", os.environ.get("PYTHONPATH", "")))}
    command = [str(mutmut), "run", changes]
    subprocess.run(command, cwd=folder, env=environment, check=True)
    show = [str(mutmut), "results", "--all", "true"]
    lines = subprocess.run(show, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout
    statuses = (line.strip().rpartition(": ") for line in lines.splitlines() if ": " in line)
    return {name: status for name, _, status in statuses if fnmatch(name, changes)}


def group_of(name: str) -> str:
    """Return the group (a row of the table) of a changed function; "" if its name belongs to no group."""
    path = f"{name.partition('.x')[0].replace('.', '/')}.py"
    return next((group for group, pattern in GROUPS.items() if fnmatch(path, pattern)), "")


def page(statuses: Mapping[str, str], number: int) -> str:
    """Return a table of the changes by group, and the changes that no test noticed, as Markdown."""
    by_group: dict[str, list[str]] = defaultdict(list)
    for name, status in statuses.items():
        by_group[group_of(name)].append(status)
    rows = [_row(group, by_group[group]) for group in GROUPS if group in by_group]
    rows.append(_row("all", list(statuses.values())))
    head = ("group", "changes", "noticed", "of these by a time limit", "no test reaches it", "share")
    unnoticed = sorted(f"- `{name}`: {status}" for name, status in statuses.items() if status not in NOTICED)
    return "\n".join(
        [
            "# Mutation: whether tests fail when the code is wrong\n",
            f"Change {number} of each function.\n",
            "mutmut changes one place at a time in a copy of the code (an operator, a number, an argument, an",
            "assignment). The tests that reach the function have to fail. Some changes make no visible difference;",
            f"the aim is {AIM:.0%}. `mutmut show NAME` in the directory of a run prints a change.\n",
            *table(head, rows),
            "\n## Not noticed\n",
            *(unnoticed or ["None."]),
            "",
        ]
    )


def _row(group: str, statuses: Sequence[str]) -> tuple[str | int, ...]:
    noticed = sum(status in NOTICED for status in statuses)
    limited, unreached = statuses.count("timeout"), statuses.count("no tests")
    return group, len(statuses), noticed, limited, unreached, f"{noticed / len(statuses):.0%}"


def share(statuses: Mapping[str, str]) -> float:
    """Return the part of the changes that a test noticed, from 0 to 1."""
    return sum(status in NOTICED for status in statuses.values()) / len(statuses)


def main() -> None:
    """Try the changes and print the table."""
    parser = argparse.ArgumentParser(prog="python -m evidence.mutation", description=__doc__)
    parser.add_argument("--number", type=int, default=1, help="which change of each function is tried (1)")
    parser.add_argument("--only", choices=GROUPS, help="one group alone")
    parser.add_argument("--functions", default="*", help="names of functions, such as '*e' for a sample (*)")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="tests that are run (those of decisions)")
    parser.add_argument("--tree", type=Path, default=ROOT, help="checkout to measure (this one)")
    options = parser.parse_args()
    mutmut = program("mutmut", "mutation")
    if mutmut is None:
        sys.exit("mutmut is not installed: pip install -r requirements/mutation.lock")
    patterns = [GROUPS[options.only]] if options.only else list(GROUPS.values())
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        prepare(options.tree, Path(folder), patterns, options.tests)
        statuses = run(Path(folder), mutmut, f"{options.functions}__mutmut_{options.number}")
    print(page(statuses, options.number))
    if share(statuses) < AIM:
        sys.exit(f"below {AIM:.0%}")


if __name__ == "__main__":
    main()
