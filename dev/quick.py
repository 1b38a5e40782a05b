"""Check what changed since the branch began, within a minute: `make quick`.

It checks format, lint and types of the changed Python files, and runs the nearest tests: those that import a changed
module or are named after it. If there are no such tests, it runs the tests of the modules that import the changed
module. Run `make check` as well.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
BIN: Final = Path(sys.executable).parent
SECONDS: Final = 60.0
# At most this many test files run: the nearest ones.
MAX_TESTS: Final = 12
# How far from a changed module its tests are searched.
MAX_STEPS: Final = 3
_TESTS: Final = ("tests/unit/", "tests/property/")
_SOURCES: Final = ("service/bundlekeel", "dev", "evidence", "tests")


def changed_files(root: Path = ROOT) -> list[str]:
    """Return the Python files that differ from main, committed or not."""
    base = _git(root, "merge-base", "HEAD", "main").strip() or "HEAD"
    names = _git(root, "diff", "--name-only", "--diff-filter=d", base) + _git(
        root, "ls-files", "--others", "--exclude-standard"
    )
    return sorted({name for name in names.splitlines() if name.endswith(".py") and name.startswith(_SOURCES)})


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False).stdout


def module_name(path: str) -> str:
    """Return the dotted name by which a file is imported."""
    return path.removeprefix("service/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imports_of(source: str) -> set[str]:
    """Return the dotted names that a file imports. `from a import b` gives `a` and `a.b`, because `b` may be a
    module.
    """
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update((node.module, *(f"{node.module}.{alias.name}" for alias in node.names)))
    return names


def nearest_tests(changed: list[str], imports: Mapping[str, set[str]]) -> list[str]:
    """Return the test files for the changed files, the nearest first.

    `imports`: the dotted names that each file of the repository imports, by its path.
    """
    tests = {path: None for path in changed if _is_test(path)}
    for path in changed:
        if _is_test(path):
            continue
        modules, mirror = {module_name(path)}, f"/test_{Path(path).stem}.py"
        for _ in range(MAX_STEPS):
            importers = {file for file, names in imports.items() if names & modules}
            near = sorted(file for file in imports if _is_test(file) and (file in importers or file.endswith(mirror)))
            tests |= dict.fromkeys(sorted(near, key=lambda file: (not file.endswith(mirror), len(imports[file]))))
            if near:
                break
            modules = {module_name(file) for file in importers}
    return list(tests)


def _is_test(path: str) -> bool:
    return path.startswith(_TESTS) and Path(path).name.startswith("test_")


def all_imports() -> dict[str, set[str]]:
    """Return the dotted names that each Python file imports, by its path."""
    files = (path for source in _SOURCES for path in (ROOT / source).rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): imports_of(path.read_text(encoding="utf-8")) for path in files}


def commands(changed: list[str], tests: list[str]) -> Iterator[list[str]]:
    """Yield the commands that check the changed files and run the tests."""
    yield [str(BIN / "ruff"), "format", "--check", "-q", *changed]
    yield [str(BIN / "ruff"), "check", "-q", *changed]
    typed = [path for path in changed if not path.startswith("tests/") or path.startswith("tests/support/")]
    if typed:
        yield [str(BIN / "mypy"), "--no-error-summary", *typed]
    if tests:
        yield [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "--no-header", *tests]


def run(checks: list[list[str]], seconds: float = SECONDS) -> int:
    """Run all commands in parallel, and stop those that take longer than `seconds`. Return 1 if one failed, else 0."""
    deadline = time.monotonic() + seconds
    code = 0
    started = [(check, subprocess.Popen(check, cwd=ROOT)) for check in checks]
    for check, process in started:
        name = " ".join(Path(word).name for word in check[:3])
        try:
            if process.wait(max(0.0, deadline - time.monotonic())):
                print(f"FAILED: {name}")
                code = 1
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()
            print(f"stopped after {seconds:.0f} s: {name}; `make check` runs it to the end")
    return code


def main() -> int:
    """Run the command; return its exit code."""
    started = time.monotonic()
    changed = changed_files()
    if not changed:
        print("no Python file differs from main")
        return 0
    tests = nearest_tests(changed, all_imports())
    nearest = tests[:MAX_TESTS]
    print(f"{len(changed)} changed files, {len(nearest)} of {len(tests)} nearest test files: {' '.join(nearest)}")
    code = run(list(commands(changed, nearest)), SECONDS - (time.monotonic() - started))
    print(f"{'failed' if code else 'no failure'} after {time.monotonic() - started:.0f} s")
    return code


if __name__ == "__main__":
    sys.exit(main())
