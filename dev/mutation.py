"""Mutation sampling: how many small changes of the code that moves bundles, and of its guards, a test notices.

A library does less here: cosmic-ray writes into the work tree and draws no sample, mutmut needs all tests to run once
and writes its copies beside the sources. This works on a copy of the tree, one mutant after the other.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import psutil

from dev.markdown import table
from dev.mutants import Mutant, mutants_of

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "mutation.md"
CODE = "service/bundlekeel"
AIM = 0.85
# Below this share of the time tests are idle: an event loop that waits still looks at its timers.
IDLE_SHARE = 0.05


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


_UNIT, _LAWS, _TESTS_OF_CORE = "unit/**/test_{}.py", "property/test_{}_laws.py", "unit/core/test_{}.py"
_MOVES = _each(_UNIT, "*executor* split_extensible split_settle splits transfers rows")
_TERMS = _each(_UNIT, "leadership terms leases clocks cycle transitions")
GROUPS = (
    Group(
        "guard",
        ("core/guard/*.py",),
        (
            *_each(_TESTS_OF_CORE, "budgets guard holds scope outage rate drain"),
            *_each(_UNIT, "guard* rate_signals external_moves worked_draws"),
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
            *_each(_UNIT, "invariants names holds split_rules transfer* overload_deviation worked_*"),
            *_each(_LAWS, "strategy"),
        ),
    ),
    Group(
        "strategies",
        _each("core/{}/*.py", "strategies filters"),
        (
            *_each(_TESTS_OF_CORE, "avg avg_swap threshold_uniform overload_deviation transfer* selection"),
            *_each(_TESTS_OF_CORE, "allowed assign* engine javaregex names"),
            *_each(_UNIT, "worked_*"),
            *_each(_LAWS, "strategy policy"),
        ),
    ),
    Group(
        "gate",
        ("daemon/gate/*.py",),
        (
            *_each(_UNIT, "gate gate_requests guard_state guard_windows outage* scopes splits *executor*"),
            *_TERMS,
        ),
    ),
    Group(
        "execution",
        _each("daemon/execution/{}.py", "executor durations move splits intents"),
        (*_MOVES, *_TERMS),
    ),
    Group("lease", _each("daemon/state/{}.py", "leadership"), _each(_UNIT, "leadership leases terms")),
    Group("auth", _each("api/{}.py", "auth shield"), _each("unit/api/test_{}.py", "auth_limits")),
)


class Verdict(Enum):
    """How the tests of one mutant ended."""

    SURVIVED = "SURVIVED"
    KILLED = "killed"
    CPU_LIMIT = "killed (CPU limit)"
    IDLE = "killed (waits for ever)"
    NOT_JUDGED = "NOT JUDGED (wall-clock limit)"


@dataclass(slots=True)
class Result:
    """The verdicts on one group's sample."""

    modules: int
    mutants: int
    verdicts: list[tuple[Mutant, Verdict]] = field(default_factory=list)

    def having(self, *verdicts: Verdict) -> list[Mutant]:
        """The mutants with one of these verdicts."""
        return [mutant for mutant, verdict in self.verdicts if verdict in verdicts]

    @property
    def killed(self) -> int:
        """Mutants that a test noticed: it failed, needed far more CPU time than without the change, or hung."""
        return len(self.having(Verdict.KILLED, Verdict.CPU_LIMIT, Verdict.IDLE))


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run of tests may take: CPU time of each process, and seconds in which none of them runs or waits for a
    processor. A busy machine costs neither; `wall_s` is the last resort."""

    cpu_s: int
    wall_s: float
    idle_s: float = 60.0

    @classmethod
    def from_unmutated(cls, cpu_s: float) -> Limits:
        """Four times the CPU time of the code as it is."""
        limit = 30 + round(4 * cpu_s)
        return cls(limit, 600 + 10 * limit)


def judged(command: Sequence[str | Path], root: Path, env: dict[str, str], limits: Limits) -> tuple[Verdict, str]:
    """Run tests; each process that they start has the same limit of CPU time, and ends with them at the latest."""
    limited = ("sh", "-c", 'ulimit -c 0; ulimit -S -t "$0"; exec "$@"', str(limits.cpu_s), *command)
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(limited, cwd=root, env=env, stdout=output, start_new_session=True)
        try:
            verdict = _verdict(process, limits)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        return verdict, output.read()


def _verdict(process: subprocess.Popen[bytes], limits: Limits) -> Verdict:
    started = seen_at = time.monotonic()
    seen = 0.0
    while (now := time.monotonic()) - started < limits.wall_s:
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(min(limits.idle_s / 5, limits.wall_s))
            return {0: Verdict.SURVIVED, -signal.SIGXCPU: Verdict.CPU_LIMIT}.get(code, Verdict.KILLED)
        active = _active_s(process.pid)
        if active is None or abs(active - seen) > IDLE_SHARE * limits.idle_s:
            seen, seen_at = active or 0.0, now
        elif now - seen_at >= limits.idle_s:
            return Verdict.IDLE
    return Verdict.NOT_JUDGED


def _active_s(pid: int) -> float | None:
    """Seconds that the threads of a process and of those below it ran or waited for a processor; None: not told."""
    total = 0
    try:
        for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
            for thread in Path(f"/proc/{process.pid}/task").iterdir():
                ran, waited, _ = (thread / "schedstat").read_text().split()
                total += int(ran) + int(waited)
    except (OSError, psutil.NoSuchProcess):
        return None
    return total / 1e9


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

    def test(self, tests: list[str], limits: Limits) -> Verdict:
        """Run these test files."""
        options = ("-xq", "--timeout=0", "-mnot nightly", *_each("-pno:{}", "randomly cacheprovider schemathesis"))
        command = (sys.executable, "-m", "pytest", *options, *tests)
        verdict, self.said = judged(command, self.root, self._env, limits)
        return verdict

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
    limits = {group.name: _limits(copy, group) for group in groups}
    started = time.monotonic()
    for number, (group, mutant) in enumerate(drawn, 1):
        began = time.monotonic()
        if began - started > given.minutes * 60:
            print(f"{given.minutes:g} minutes are over: {len(drawn) - number + 1} mutants were not tried")
            break
        verdict = _try(copy, group, mutant, limits[group.name])
        results[group.name].verdicts.append((mutant, verdict))
        now = time.monotonic()
        left = min((now - started) / number * (len(drawn) - number) / 60, given.minutes - (now - started) / 60)
        print(
            f"[{number}/{len(drawn)}, {left:.0f} min left] {group.name} {copy.where(mutant)} {verdict.value}",
            flush=True,
        )
    return results


def _limits(copy: Copy, group: Group) -> Limits:
    """From the CPU time that the group's tests take on the code as it is, which has to pass."""
    before = _cpu_s()
    if copy.test(copy.tests_of(group, ""), Limits(cpu_s=3600, wall_s=36_000)) is not Verdict.SURVIVED:
        sys.exit(f"the tests of {group.name} fail without any mutant:\n{copy.said[-3000:]}")
    took = _cpu_s() - before
    limits = Limits.from_unmutated(took)
    print(f"{group.name}: its tests take {took:.0f} s of CPU time; the limit is {limits.cpu_s} s", flush=True)
    return limits


def _cpu_s() -> float:
    """CPU time of all processes that this one started and that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _try(copy: Copy, group: Group, mutant: Mutant, limits: Limits) -> Verdict:
    source = mutant.path.read_bytes()
    mutant.path.write_bytes(mutant.applied(source))
    try:
        return copy.test(copy.tests_of(group, str(mutant.path)), limits)
    finally:
        mutant.path.write_bytes(source)


def page(results: dict[str, Result], given: argparse.Namespace, copy: Copy) -> str:
    """docs/reference/mutation.md."""
    lines = [
        "# Mutation: whether tests fail when the code is wrong\n",
        "Written by `make mutation`; do not edit.\n",
        "In a copy of the code one place at a time is changed (a comparison, a boundary, `and`/`or`, a constant,",
        "`min`/`max`, a call or an assignment left out), drawn by a seed; then the unit and property tests of the",
        "group have to fail. A mutant is also killed where its tests need more than four times the CPU time of the",
        "unchanged code (and 30 s), or where for a minute none of their processes runs or waits for a processor; how",
        "busy the machine is does not matter. Where a wall-clock limit ends the tests, the mutant is not judged: it",
        "counts as tried and not as killed. Some survivors make no visible difference; the aim is",
        f"{AIM:.0%}. Seed {given.seed}.\n",
    ]
    rows = []
    for name, found in results.items():
        tried = len(found.verdicts)
        ends = [len(found.having(verdict)) for verdict in (Verdict.CPU_LIMIT, Verdict.IDLE, Verdict.NOT_JUDGED)]
        share = f"{found.killed / tried:.0%}" if tried else "-"
        rows.append((name, found.modules, f"{found.mutants:,}", tried, found.killed, *ends, share))
    head = ("group", "modules", "possible mutants", "tried", "killed", "by the CPU limit", "by waiting", "not judged")
    lines += table((*head, "share"), rows)
    for title, verdict in (("Survivors", Verdict.SURVIVED), ("Not judged", Verdict.NOT_JUDGED)):
        listed = [f"- {name}: {copy.where(item)}" for name, found in results.items() for item in found.having(verdict)]
        lines += [f"\n## {title}\n", *(listed or ["None."])]
    return "\n".join([*lines, ""])


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
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            # As Ctrl-C does: the tests under way, which have a session of their own, are ended, the copy is removed.
            signal.signal(number, lambda number, _: sys.exit(128 + number))
    print(f"seed {given.seed}, {given.sample} mutants a group", flush=True)
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        copy = Copy(Path(folder))
        results = run(given, copy)
        text = page(results, given, copy)
    print(f"\n{text}")
    if given.write:
        PAGE.write_text(text, encoding="utf-8")
    low = [name for name, found in results.items() if found.killed < AIM * len(found.verdicts)]
    sys.exit(f"below {AIM:.0%}: {', '.join(low)}" if low else 0)


if __name__ == "__main__":
    main()
