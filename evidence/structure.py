"""Compare the structure of the code at a commit with that of the working tree: `python -m dev.sizes --table COMMIT`.

The features are the packages that can be deleted without touching the sidecar: quotas, recalibration, simulator and
compat. Paths are traced by `evidence.paths`; that takes some minutes.
"""

from __future__ import annotations

import ast
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tokenize
from collections.abc import Iterable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Final

from dev.markdown import table
from evidence import paths

_SERVICE: Final = "service/bundlekeel"
# Paths below the service that belong to a feature: its package, and its files when packages were still layers.
_FEATURES: Final = re.compile(
    r"(?:quotas|recalibration|simulator|compat|sim|jobs|(?:core|daemon)/(?:quotas|calibration)|core/(?:compat|history)"
    r"|adapters/(?:history|calibration)|cli/offline)/"
    r"|(?:codec|daemon/answers|settings|ports|cli|api/routes)/quotas\w*\.py$|codec/compat\.py$|ports/history\.py$"
    r"|wiring/history\.py$|adapters/calibration\.py$|adapters/topics/feed\.py$|cli/intervene/thresholds\.py$"
    r"|daemon/records/(?:recorder|history_\w+)\.py$|daemon/state/owned_limits\.py$"
)
_SIDECAR_COMMANDS: Final = re.compile(r"cli/offline/(?:__init__|config)\.py$")
# Participles that name how a value came about and not what the value is.
_PARTICIPLES: Final = re.compile(
    "_*(found|given|made|told|said|kept|seen|held|known|wanted|asked|heard|shown|taken|chosen|begun|gone)_*"
)
_MIN_FIELDS, _MIN_SHARE = 5, 0.7


def compare(root: Path, commit: str) -> str:
    """Return a Markdown table that compares the structure of the code at a commit with that of the working tree."""
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", commit], cwd=root, capture_output=True, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(folder, filter="data")
        before = structure(Path(folder))
    after = structure(root)
    return "\n".join(table(["", f"at {commit}", "now"], ([name, before[name], after[name]] for name in after)))


def structure(root: Path) -> dict[str, str]:
    """Return the measurements of one checkout, by the name of their table row."""
    service = root / _SERVICE
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(service.rglob("*.py"))}
    trees = {path: ast.parse(text) for path, text in sources.items()}
    feature = sum(text.count("\n") for path, text in sources.items() if is_feature(str(path.relative_to(service))))
    total = sum(text.count("\n") for text in sources.values())
    tests, dev, evidence = (_lines(root / name) for name in ("tests", "dev", "evidence"))
    words, generated = words_of_docs(root / "docs")
    rows: dict[str, int | str] = {
        "lines of the sidecar": total - feature,
        "lines of the features": feature,
        "lines of the service": total,
        "lines of tests": tests,
        "lines of dev and evidence": f"{dev + evidence:,} ({dev:,} + {evidence:,})",
        "words of docs": f"{words + generated:,} ({generated:,} in generated pages)",
        "second headers in a file of the service": sum(map(second_headers, sources.values())),
        "pairs of dataclasses with 70 % of five fields": sum(1 for _ in mirrors(trees.values())),
        "participle names in the service": sum(map(participles, trees.values())),
    }
    cells = {name: f"{row:,}" if isinstance(row, int) else row for name, row in rows.items()}
    frames = street(root)
    run = (len(frames), len({frame.split()[0] for frame in frames})) if frames else None
    for name, count in {"`run` to the admin request": run, **paths.measure(root)}.items():
        cells[f"frames / files, {name}"] = "not measured" if count is None else f"{count[0]} / {count[1]}"
    return cells


def is_feature(path: str) -> bool:
    """Return whether a file belongs to a feature. `path`: path below service/bundlekeel."""
    return _FEATURES.match(path) is not None and _SIDECAR_COMMANDS.match(path) is None


def _lines(folder: Path) -> int:
    return sum(path.read_text(encoding="utf-8").count("\n") for path in folder.rglob("*.py"))


def words_of_docs(folder: Path) -> tuple[int, int]:
    """Return the number of words in written and in generated pages."""
    counts = [0, 0]
    for path in folder.rglob("*.md"):
        text = path.read_text(encoding="utf-8")
        counts["do not edit" in text[:400].lower()] += len(text.split())
    return counts[0], counts[1]


def second_headers(source: str) -> int:
    """Count the comments that introduce a second topic in a file: between two definitions, with a blank line below."""
    definitions = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    ends = [node.end_lineno or 0 for node in ast.parse(source).body if isinstance(node, definitions)]
    if not ends:
        return 0
    lines = source.splitlines()
    comments = {
        token.start[0]
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT and token.start[1] == 0
    }
    count = 0
    for begin in (line for line in comments if line > ends[0] and line - 1 not in comments):
        end = next(line for line in range(begin, len(lines) + 1) if line + 1 not in comments)
        count += end < len(lines) and not lines[end].strip()
    return count


def mirrors(trees: Iterable[ast.Module]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of dataclasses that share at least 70 % of the smaller one's fields, if it has at least five.

    Inherited fields count, except those of a class from which both inherit: these are defined once.
    """
    classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    bases = {node.name: {ast.unparse(base).partition("[")[0] for base in node.bases} for node in classes}
    own = {node.name: _fields(node) for node in classes}

    def lineage(name: str) -> set[str]:
        return {name}.union(*(lineage(base) for base in bases[name] if base in own and base != name))

    lines = [(node.name, lineage(node.name)) for node in classes if _is_dataclass(node)]
    for (one, above), (other, beyond) in combinations(lines, 2):
        once, first, second = (
            set[str]().union(*(own[name] for name in line)) for line in (above & beyond, above, beyond)
        )
        smaller = min(len(first - once), len(second - once))
        if smaller >= _MIN_FIELDS and len(first & second - once) >= _MIN_SHARE * smaller:
            yield one, other


def _is_dataclass(node: ast.ClassDef) -> bool:
    return any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)


def _fields(node: ast.ClassDef) -> set[str]:
    return {
        item.target.id
        for item in node.body
        if isinstance(item, ast.AnnAssign)
        and isinstance(item.target, ast.Name)
        and "ClassVar" not in ast.unparse(item.annotation)
    }


def participles(tree: ast.Module) -> int:
    """Count the values that are named for how they came about: `found`, `given`, `made`."""
    names = (
        node.arg if isinstance(node, ast.arg) else node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.arg) or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    )
    return sum(_PARTICIPLES.fullmatch(name) is not None for name in names)


def street(root: Path) -> list[str]:
    """Return the call stack from `bundlekeel run` to an admin request, each function with its file; empty if it cannot
    run.
    """
    command = [sys.executable, "-m", "tests.support.street"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(root / "service"), str(root)))}
    ended = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False, timeout=120)
    return ended.stdout.splitlines()
