"""Small files, small functions: a file above 400 lines is told and above 600 refused; functions have up to 40 lines of
code (docstrings not counted)."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

TOLD_LINES = 400
FILE_LINES = 600
FUNCTION_LINES = 40
ROOTS = ("service/bundlekeel", "dev", "tests")


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
    return found


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


if __name__ == "__main__":
    problems = faults(Path(__file__).resolve().parent.parent)
    print("\n".join(problems) or "sizes: every file and function is small")
    sys.exit(1 if problems else 0)
