"""Plan recorded cycles again in other environments and compare the plans: `python -m evidence.fidelity [--write]`.

One environment is this Python without the processor features that numpy can use. The others are all other minor
versions of Python on this machine (in PATH, below ~/.pyenv/versions, or named with --python), each in a temporary
virtual environment with the locked dependencies. `--history` names the history to replay, for example that of a real
sidecar. Without it, a day of each strategy is generated. Plans are compared by their hashes. Exit code 1: a plan
differs, too few cycles moved a bundle, or there is no other Python.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__  # type: ignore[import-not-found]

from bundlekeel.model.parameter_table import STRATEGIES
from bundlekeel.model.parameters import Parameters
from bundlekeel.recalibration.parquet import ParquetStore
from dev.history_worlds import World, records
from dev.markdown import table

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "reference" / "fidelity.md"
LOCK: Final = ROOT / "requirements" / "runtime.lock"
OLDEST: Final = (3, 11)
# Required number of cycles that move a bundle. Equal plans without moves would prove little.
MOVING: Final = 30
# Unsteady traffic and a snapshot every ten minutes, so that the strategies move bundles.
BUSY: Final = World(days=1, brokers=5, bundles=60, period_seconds=600, noise=0.25, spiky=1, seed=4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of one replay: its environment, the number of cycles, how many plans were equal to the recorded ones, and
    how many moved a bundle.
    """

    where: str
    cycles: int
    same: int
    moved: int
    wrong: str = ""

    @property
    def held(self) -> bool:
        """Whether every plan equals the recorded one, and enough of them move a bundle."""
        return not self.wrong and self.same == self.cycles and self.moved >= MOVING


def features() -> str:
    """Return the optional processor features that numpy uses here, as a value of NPY_DISABLE_CPU_FEATURES."""
    return " ".join(name for name in __cpu_dispatch__ if __cpu_features__.get(name))


def made_up(folder: Path) -> str:
    """Write a generated day of history per strategy, each in its own epoch, and return the directory."""
    store = ParquetStore(folder)
    for epoch, strategy in enumerate(STRATEGIES, 1):
        world = replace(BUSY, params=Parameters(strategy=strategy))
        hours: dict[int, list[Any]] = {}
        for record in records(world):
            hours.setdefault(record.wall_ms // 3_600_000, []).append(replace(record, epoch=epoch))
        for seq, (_, together) in enumerate(sorted(hours.items()), 1):
            store.publish(epoch, seq, together)
    return str(folder)


def replayed(python: Path, history: str, where: str, **environment: str) -> Outcome:
    """Run `bundlekeel replay all` with this Python. `where`: name of this environment in the result."""
    command = [str(python), "-m", "bundlekeel", "replay", "all", "--history", history, "-o", "json"]
    env = os.environ | {"PYTHONPATH": str(ROOT / "service"), "PYTHONHASHSEED": "7"} | environment
    ran = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    try:
        outcome = json.loads(ran.stdout)
    except ValueError:
        return Outcome(where=where, cycles=0, same=0, moved=0, wrong=ran.stderr.strip()[-300:] or "no answer")
    return Outcome(where=where, cycles=outcome["cycles"], same=outcome["same"], moved=outcome["moved"])


def others(named: Sequence[str]) -> dict[tuple[int, int], Path]:
    """Return the Pythons of other supported minor versions, by version. `named`: paths from the command line, used
    instead of a search.
    """
    pyenv = sorted((Path.home() / ".pyenv" / "versions").glob("*/bin/python"))
    in_path = [shutil.which(f"python3.{minor}") for minor in range(OLDEST[1], 20)]
    places = [Path(name) for name in named] or [*pyenv, *(Path(name) for name in in_path if name)]
    pythons: dict[tuple[int, int], Path] = {}
    for place in places:
        version = _version(place)
        if version is not None and version >= OLDEST and version != sys.version_info[:2]:
            pythons.setdefault(version, place)
    return dict(sorted(pythons.items()))


def _version(python: Path) -> tuple[int, int] | None:
    command = [str(python), "-c", "import sys; print(*sys.version_info[:2])"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        major, minor = ran.stdout.split()
    except (OSError, ValueError):
        return None
    return int(major), int(minor)


def environment_of(python: Path, folder: Path) -> Path:
    """Create a virtual environment with the locked runtime dependencies and return its Python. Raises
    CalledProcessError if that fails.
    """
    subprocess.run([str(python), "-m", "venv", str(folder)], check=True)
    executable = folder / "bin" / "python"
    pip = [str(executable), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--require-hashes", "-r", str(LOCK)], check=True)
    return executable


def outcomes(history: str, named: Sequence[str], folder: Path) -> Iterator[Outcome]:
    """Yield the outcome of every replay, one at a time."""
    own = Path(sys.executable)
    here = f"Python {platform.python_version()}"
    yield replayed(own, history, here)
    yield replayed(own, history, f"{here}, numpy without {features()}", NPY_DISABLE_CPU_FEATURES=features())
    for version, python in others(named).items():
        executable = environment_of(python, folder / f"python{version[0]}.{version[1]}")
        script = "import platform, numpy; print(f'Python {platform.python_version()}, numpy {numpy.__version__}')"
        where = subprocess.run(
            [str(executable), "-c", script], capture_output=True, text=True, check=True
        ).stdout.strip()
        yield replayed(executable, history, where)


def main() -> int:
    """Replay the history and print the results. With `--write`, also write docs/reference/fidelity.md. Return the exit
    code.
    """
    parser = argparse.ArgumentParser(prog="python -m evidence.fidelity", description=__doc__)
    parser.add_argument("--history", help="recorded history; made up when it is not named")
    parser.add_argument("--python", action="append", default=[], help="another Python; may be repeated")
    parser.add_argument("--write", action="store_true", help=f"renew {PAGE.relative_to(ROOT)}")
    options = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        history = options.history or made_up(Path(folder) / "history")
        for item in outcomes(history, options.python, Path(folder)):
            results.append(item)
            print(f"{item.where}: {item.same} of {item.cycles} the same, {item.moved} move something{item.wrong}")
    if len(results) < 3:
        print(f"no other Python of {'.'.join(map(str, OLDEST))} or newer was found; name one with --python")
        return 1
    if options.write:
        write_page(results, "what a sidecar recorded" if options.history else "a made-up day of each strategy")
    return 0 if all(item.held for item in results) else 1


def write_page(outcomes: Sequence[Outcome], what: str) -> None:
    """Write docs/reference/fidelity.md. `what`: the replayed history, in words."""
    parts = [
        "# Replays elsewhere",
        "",
        "Written by `python -m evidence.fidelity --write`; do not edit.",
        "",
        f"Recorded cycles planned again ({what}), and how many plans have the recorded hash. What runs elsewhere is in",
        "`evidence/fidelity.py`; every other Python has a virtual environment of the locked dependencies.",
        "",
        *table(
            ["where", "cycles", "the same plan", "that move something"],
            ([item.where, f"{item.cycles:,}", f"{item.same:,}", f"{item.moved:,}"] for item in outcomes),
        ),
    ]
    PAGE.write_text("\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
