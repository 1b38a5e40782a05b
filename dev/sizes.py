"""Small files, small functions: a file above 400 lines is told and above 600 refused; functions have up to 40 lines of
code (docstrings not counted), a folder of the service up to 20 modules.

`python -m dev.sizes --table [COMMIT]` prints figures of the code as it is, beside those at a commit, as Markdown.
"""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path

from dev.markdown import table

TOLD_LINES = 400
FILE_LINES = 600
FUNCTION_LINES = 40
FOLDER_MODULES = 20
ROOTS = ("service/bundlekeel", "dev", "evidence", "tests")


def faults(root: Path) -> list[str]:
    """What is too long, one line each."""
    found = []
    for folder in ROOTS:
        for path in sorted((root / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            lines = text.count("\n")
            name = path.relative_to(root)
            if FILE_LINES >= lines > TOLD_LINES:
                print(f"{name}: {lines} lines, better at most {TOLD_LINES}")
            if lines > FILE_LINES:
                found.append(f"{name}: {lines} lines, at most {FILE_LINES}")
            found += [f"{name}:{line}: {what}" for line, what in _long_functions(ast.parse(text))]
    folders = _folders((root / ROOTS[0]).rglob("*.py"))
    return found + [
        f"{folder.relative_to(root)}: {count} modules, at most {FOLDER_MODULES}"
        for folder, count in sorted(folders.items())
        if count > FOLDER_MODULES
    ]


def _folders(paths: Iterable[Path]) -> Counter[Path]:
    """Modules of each folder; what makes it a package is none."""
    return Counter(path.parent for path in paths if path.name != "__init__.py")


def _long_functions(tree: ast.Module) -> list[tuple[int, str]]:
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        first = node.body[0]
        documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
        start = (first.end_lineno or node.lineno) + 1 if documented else node.lineno
        length = (node.end_lineno or start) - start + 1
        if length > FUNCTION_LINES:
            found.append((node.lineno, f"{node.name} has {length} lines, at most {FUNCTION_LINES}"))
    return found


def figures(root: Path) -> dict[str, int | str]:
    """What a reader of the service meets: how much, how large, and how entangled."""
    service = root / "service/bundlekeel"
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(service.rglob("*.py"))}
    lines = {path: path.read_text(encoding="utf-8").count("\n") for path in trees}
    largest = max(lines, key=lambda path: lines[path])
    folders = _folders(trees)
    fullest = max(folders, key=lambda folder: folders[folder])
    classes = defaultdict(set)
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].add(path)
    importers = _importers(service, trees)
    frames = street(root)
    modules = [_module(service, path) for path in trees if path.name not in ("__init__.py", "__main__.py")]
    return {
        "modules of the service": len(modules),
        "lines of the service": sum(lines.values()),
        "lines of tests": _lines(root / "tests"),
        "lines of dev": _lines(root / "dev"),
        "lines of a file, 90th percentile": sorted(lines.values())[int(0.9 * len(lines))],
        "largest file": f"{lines[largest]} ({largest.relative_to(service)})",
        "most modules in a folder": f"{folders[fullest]} ({fullest.relative_to(service)})",
        "functions above 40 lines": sum(len(_long_functions(tree)) for tree in trees.values()),
        "broad excepts": sum(_broad(node) for tree in trees.values() for node in ast.walk(tree)),
        "public class names with two meanings": sum(len(paths) > 1 for paths in classes.values()),
        "frames from run to request": len(frames) or "not counted",
        "files from run to request": len({frame.split()[0] for frame in frames}) or "not counted",
        "modules with one importer": sum(len(importers[module]) == 1 for module in modules),
    }


def street(root: Path) -> list[str]:
    """The frames from `bundlekeel run` to an admin request, each with its file; none where the code cannot tell."""
    command = [sys.executable, "-m", "tests.support.street"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(root / "service"), str(root)))}
    ended = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False, timeout=120)
    return ended.stdout.splitlines()


def _lines(folder: Path) -> int:
    return sum(path.read_text(encoding="utf-8").count("\n") for path in folder.rglob("*.py"))


def _module(service: Path, path: Path) -> str:
    return ".".join(("bundlekeel", *path.relative_to(service).with_suffix("").parts)).removesuffix(".__init__")


def _importers(service: Path, trees: dict[Path, ast.Module]) -> dict[str, set[str]]:
    """Which modules import each module, by name."""
    found: dict[str, set[str]] = defaultdict(set)
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                    found[name].add(_module(service, path))
    return found


def _broad(node: ast.AST) -> bool:
    return isinstance(node, ast.ExceptHandler) and (
        node.type is None or (isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException"))
    )


def comparison(root: Path, commit: str | None) -> str:
    """The figures as Markdown, those at the commit first."""
    columns = {"now": figures(root)}
    if commit:
        with tempfile.TemporaryDirectory() as folder:
            packed = subprocess.run(["git", "archive", commit], cwd=root, capture_output=True, check=True).stdout
            with tarfile.open(fileobj=BytesIO(packed)) as tar:
                tar.extractall(folder, filter="data")
            columns = {f"at {commit}": figures(Path(folder)), **columns}
    names = list(columns["now"])
    return "\n".join(
        table(["figure", *columns], ([name, *(column[name] for column in columns.values())] for name in names))
    )


def main(arguments: list[str]) -> int:
    """The command; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m dev.sizes", description=__doc__)
    parser.add_argument(
        "--table", nargs="?", const="", metavar="COMMIT", help="print figures, beside those at a commit"
    )
    root = Path(__file__).resolve().parent.parent
    asked = parser.parse_args(arguments).table
    if asked is not None:
        print(comparison(root, asked or None))
        return 0
    problems = faults(root)
    print("\n".join(problems) or "sizes: every file and function is small")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
