"""Check that files and functions are small: `python -m dev.sizes`.

It warns about files above 400 lines and refuses files above 600; functions have up to 40 lines of code without the
docstring. It warns about folders with more than 20 modules, which probably lack a concept. `--table COMMIT` compares
the structure of the code with that at a commit, as Markdown.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import Counter
from pathlib import Path

WARN_LINES = 400
FILE_LINES = 600
FUNCTION_LINES = 40
FOLDER_MODULES = 20
ROOTS = ("service/bundlekeel", "dev", "evidence", "tests")


def faults(root: Path) -> list[str]:
    """Return one line for each file and function that is too long; print a warning for large files and folders."""
    messages = []
    for folder in ROOTS:
        for path in sorted((root / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            lines = text.count("\n")
            name = path.relative_to(root)
            if FILE_LINES >= lines > WARN_LINES:
                print(f"{name}: {lines} lines, better at most {WARN_LINES}")
            if lines > FILE_LINES:
                messages.append(f"{name}: {lines} lines, at most {FILE_LINES}")
            messages += [f"{name}:{line}: {message}" for line, message in _long_functions(ast.parse(text))]
    modules = Counter(path.parent for path in (root / ROOTS[0]).rglob("*.py") if path.name != "__init__.py")
    for directory, count in sorted(modules.items()):
        if count > FOLDER_MODULES:
            print(f"{directory.relative_to(root)}: {count} modules; does the folder lack a concept?")
    return messages


def _long_functions(tree: ast.Module) -> list[tuple[int, str]]:
    messages = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        first = node.body[0]
        documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
        start = (first.end_lineno or node.lineno) + 1 if documented else node.lineno
        length = (node.end_lineno or start) - start + 1
        if length > FUNCTION_LINES:
            messages.append((node.lineno, f"{node.name} has {length} lines, at most {FUNCTION_LINES}"))
    return messages


def main(arguments: list[str]) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m dev.sizes", description=__doc__)
    parser.add_argument("--table", metavar="COMMIT", help="compare the structure with that at a commit (minutes)")
    options = parser.parse_args(arguments)
    root = Path(__file__).resolve().parent.parent
    if options.table:
        from evidence.structure import compare  # noqa: PLC0415

        print(compare(root, options.table))
        return 0
    problems = faults(root)
    print("\n".join(problems) or "sizes: every file and function is small")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
