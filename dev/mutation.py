"""Mutation sampling: how many small changes of the code that moves bundles, and of its guards, a test notices.

A library does less here: cosmic-ray writes into the work tree and draws no sample, mutmut needs all tests to run once
and writes its copies beside the sources. This works on a copy of the tree, one mutant after the other.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from dev.mutants import Mutant, mutants_of

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "mutation.md"
CODE = "service/bundlekeel"
AIM = 0.85


@dataclass(frozen=True, slots=True)
class Group:
    """Modules by glob below service/bundlekeel, and the tests below tests/ that are to notice a change of them."""

    name: str
    modules: tuple[str, ...]
    tests: tuple[str, ...]


def matched(folder: Path, globs: tuple[str, ...]) -> list[Path]:
    """The files that match, each once; a glob without any is an error: what it stood for has another name now."""
    found = {glob: sorted(folder.glob(glob)) for glob in globs}
    if empty := [glob for glob, paths in found.items() if not paths]:
        raise FileNotFoundError(f"nothing below {folder.name} matches {', '.join(empty)}")
    return list(dict.fromkeys(path for paths in found.values() for path in paths))


def _each(pattern: str, words: str) -> tuple[str, ...]:
    return tuple(pattern.format(word) for word in words.split())


_UNIT, _LAWS, _TESTS_OF_CORE = "unit/*/test_{}.py", "property/test_{}_laws.py", "unit/core/test_{}.py"
_MOVES = _each(_UNIT, "executor* h_execution split_executor split_extensible split_settle move_record transfers rows")
_TERMS = _each(_UNIT, "leadership terms h_terms h_clocks cycle transitions")
GROUPS = (
    Group(
        "guard",
        ("core/guard/*.py",),
        (
            *_each(_TESTS_OF_CORE, "budgets guard holds scope outage rate drain"),
            *_each(_UNIT, "guard* rate_signals external_moves"),
            *_each(_LAWS, "guard outage"),
        ),
    ),
    Group(
        "planning",
        ("core/planning/*.py", "core/model/plan.py"),
        (
            *_each(
                _TESTS_OF_CORE, "engine draft ledger effects pressure whatif drain manual_moves allowed avg selection"
            ),
            *_each(_UNIT, "invariants alike holds split_rules transfer* worked_*"),
            *_each(_LAWS, "strategy"),
        ),
    ),
    Group(
        "strategies",
        _each("core/{}/*.py", "strategies filters"),
        (
            *_each(_TESTS_OF_CORE, "avg j08_avg_swap threshold_uniform overload_deviation transfer* selection"),
            *_each(_TESTS_OF_CORE, "allowed assign* engine javaregex alike"),
            *_each(_UNIT, "worked_*"),
            *_each(_LAWS, "strategy policy"),
        ),
    ),
    Group(
        "gate",
        _each("daemon/{}.py", "gate/* execution/leader_executor"),
        (
            *_each(_UNIT, "gate gate_requests guard_memory guard_windows outage* scopes pause splits move_record"),
            *_each(_UNIT, "executor* h_execution"),
            *_TERMS,
        ),
    ),
    Group(
        "execution",
        _each("daemon/execution/{}.py", "executor move transfer_methods splits intents"),
        _MOVES,
    ),
    Group("lease", _each("daemon/state/{}.py", "leadership"), _each(_UNIT, "leadership lease h_terms terms")),
    Group("auth", _each("api/{}.py", "auth shield"), _each("unit/api/test_{}.py", "auth_limits")),
)


@dataclass(slots=True)
class Result:
    """What became of one group's sample."""

    modules: int
    mutants: int
    killed: int = 0
    hung: int = 0
    survivors: list[Mutant] = field(default_factory=list)

    @property
    def sampled(self) -> int:
        """Mutants that were tried."""
        return self.killed + len(self.survivors)


class Copy:
    """A copy of the tree as it stands, without what git ignores, in which one file at a time is changed."""

    def __init__(self, root: Path) -> None:
        """Copy every file."""
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        files = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        tar = ["tar", "--create", "--null", "--files-from=-", "--ignore-failed-read"]
        packed = subprocess.run(tar, cwd=ROOT, input=files.encode(), capture_output=True, check=True).stdout
        subprocess.run(["tar", "--extract"], cwd=root, input=packed, check=True)
        self.root, self.said = root, ""
        self._env = {**os.environ, "PYTHONPATH": f"{root}/service:{root}"}
        # Bytecode is told by the source's hash: by time and size two mutants within a second would look alike.
        compiled = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode=checked-hash", str(root / CODE)]
        subprocess.run(compiled, check=True)

    def passes(self, tests: list[str], limit_s: float | None = None) -> bool | None:
        """Whether these test files pass; None: not within the limit."""
        # A busy machine makes tests slow: only the limit of the whole run ends them, with all that they started.
        options = ("-xq", "--timeout=0", "-mnot nightly", *_each("-pno:{}", "randomly cacheprovider schemathesis"))
        ended = ("timeout", "--signal=KILL", f"{limit_s or 0:.0f}")
        command = (*ended, sys.executable, "-m", "pytest", *options, *tests)
        done = subprocess.run(command, cwd=self.root, env=self._env, capture_output=True, text=True, check=False)
        self.said = done.stdout
        return None if done.returncode == -signal.SIGKILL else done.returncode == 0

    def tests_of(self, group: Group, module: str) -> list[str]:
        """The group's test files, those first whose name speaks of the module."""
        found = matched(self.root / "tests", group.tests)
        words = set(Path(module).stem.split("_")) - {""}
        near = sorted(found, key=lambda path: -len(words & set(path.stem.split("_"))))
        return [str(path.relative_to(self.root)) for path in near]

    def mutants(self, group: Group, only: str) -> list[Mutant]:
        """All mutants of a group's modules."""
        files = matched(self.root / CODE, group.modules)
        return [mutant for path in files if only in str(path) for mutant in mutants_of(path)]

    def where(self, mutant: Mutant) -> str:
        """File and line, and the change."""
        old, new = (" ".join(text.split())[:90] for text in (mutant.old, mutant.new))
        return f"{mutant.path.relative_to(self.root / CODE)}:{mutant.line}: `{old}` → `{new}`"


def run(given: argparse.Namespace, copy: Copy) -> dict[str, Result]:
    """Try the sample of each group."""
    groups = [group for group in GROUPS if given.group in ("", group.name)]
    drawn: list[tuple[Group, Mutant]] = []
    results = {}
    for group in groups:
        every = copy.mutants(group, given.only)
        results[group.name] = Result(len({item.path for item in every}), len(every))
        chance = random.Random(f"{given.seed} {group.name}")
        drawn += [(group, item) for item in chance.sample(every, min(given.sample, len(every)))]
    limits = {group.name: _limit(copy, group) for group in groups}
    started = time.monotonic()
    for number, (group, mutant) in enumerate(drawn, 1):
        began = time.monotonic()
        if began - started > given.minutes * 60:
            print(f"{given.minutes:g} minutes are over: {len(drawn) - number + 1} mutants were not tried")
            break
        word = _try(copy, group, mutant, limits[group.name], results[group.name])
        now = time.monotonic()
        left = min((now - started) / number * (len(drawn) - number) / 60, given.minutes - (now - started) / 60)
        print(f"[{number}/{len(drawn)}, {left:.0f} min left] {group.name} {copy.where(mutant)} {word}", flush=True)
    return results


def _limit(copy: Copy, group: Group) -> float:
    """Seconds that a mutant's tests may take: four times those of the code as it is, which has to pass."""
    began = time.monotonic()
    if not copy.passes(copy.tests_of(group, "")):
        sys.exit(f"the tests of {group.name} fail without any mutant:\n{copy.said[-3000:]}")
    took = time.monotonic() - began
    print(f"{group.name}: its tests take {took:.0f} s", flush=True)
    return 30 + 4 * took


def _try(copy: Copy, group: Group, mutant: Mutant, limit_s: float, result: Result) -> str:
    source = mutant.path.read_bytes()
    mutant.path.write_bytes(mutant.applied(source))
    try:
        passed = copy.passes(copy.tests_of(group, str(mutant.path)), limit_s)
    finally:
        mutant.path.write_bytes(source)
    if passed:
        result.survivors.append(mutant)
        return "SURVIVED"
    result.killed += 1
    result.hung += passed is None
    return "killed" if passed is False else "killed (hung)"


def page(results: dict[str, Result], given: argparse.Namespace, copy: Copy) -> str:
    """docs/reference/mutation.md."""
    lines = [
        "# Mutation: whether the tests notice\n",
        "Written by `make mutation`; do not edit.\n",
        "In a copy of the code one place at a time is changed (a comparison, a boundary, `and`/`or`, a constant,",
        "`min`/`max`, a call or an assignment left out), drawn by a seed; then the unit and property tests of the",
        f"group have to fail. The aim is {AIM:.0%}; some survivors make no difference that anybody could see.",
        f"Seed {given.seed}.\n",
        "| group | modules | possible mutants | tried | killed | share |",
        "|---|---|---|---|---|---|",
    ]
    for name, found in results.items():
        share = f"{found.killed / found.sampled:.0%}" if found.sampled else "-"
        row = (name, found.modules, f"{found.mutants:,}", found.sampled, found.killed, share)
        lines.append(f"| {' | '.join(map(str, row))} |")
    survivors = [f"- {name}: {copy.where(item)}" for name, found in results.items() for item in found.survivors]
    return "\n".join([*lines, "", "## Survivors\n", *(survivors or ["None."]), ""])


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m dev.mutation", description=__doc__)
    parser.add_argument("--group", default="", choices=("", *(group.name for group in GROUPS)), help="one group alone")
    parser.add_argument("--only", default="", help="modules whose path contains this")
    parser.add_argument("--sample", type=int, default=15, help="mutants a group (15)")
    parser.add_argument("--seed", type=int, default=1, help="which mutants are drawn (1)")
    parser.add_argument("--minutes", type=float, default=60, help="after these no further mutant is tried (60)")
    parser.add_argument("--write", action="store_true", help="renew docs/reference/mutation.md")
    given = parser.parse_args()
    print(f"seed {given.seed}, {given.sample} mutants a group", flush=True)
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        copy = Copy(Path(folder))
        results = run(given, copy)
        text = page(results, given, copy)
    print(f"\n{text}")
    if given.write:
        PAGE.write_text(text, encoding="utf-8")
    low = [name for name, found in results.items() if found.killed < AIM * found.sampled]
    sys.exit(f"below {AIM:.0%}: {', '.join(low)}" if low else 0)


if __name__ == "__main__":
    main()
