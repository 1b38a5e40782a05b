"""The import contracts of pyproject.toml: a forbidden import in a copy breaks its contract by name."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
# A module, the code added to it, and words of the contract that forbids it.
FORBIDDEN = (
    ("model/names.py", "from bundlekeel.planning.engine import plan", "Inside core"),
    ("planning/guard/holds.py", "from bundlekeel.planning.strategies.avg import shed", "Inside core"),
    ("model/load.py", "import time", "core is pure"),
    ("pulsar/sources/observer.py", "from bundlekeel.leader.cycle.cycle import Cycle", "Inside daemon"),
    (
        "requests/doctor.py",
        "from bundlekeel.ports.commands import BrokerCommands",
        "Only what executes decisions",
    ),
    ("leader/state/leadership.py", "from bundlekeel.pulsar.zookeeper.client import ZkClient", "Only wiring knows"),
    ("cli/session.py", "from bundlekeel.leader.gate.gate import Gate", "api and cli see"),
    ("settings/model.py", "from bundlekeel.leader.runtime import Runtime", "Layers"),
)


def test_forbidden_imports_break_their_contracts(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "service", tmp_path / "service", ignore=shutil.ignore_patterns("__pycache__", "static"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for module, line, _ in FORBIDDEN:
        file = tmp_path / "service/bundlekeel" / module
        text = file.read_text(encoding="utf-8")
        file.write_text(
            text.replace("from __future__ import annotations\n", f"from __future__ import annotations\n{line}\n", 1)
        )
    ran = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "service"), "COLUMNS": "400", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    broken = [line for line in ran.stdout.splitlines() if " BROKEN" in line]
    assert ran.returncode == 1, ran.stdout + ran.stderr
    for _, line, words in FORBIDDEN:
        assert any(name.startswith(words) for name in broken), (line, broken)
