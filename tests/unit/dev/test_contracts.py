"""The import contracts of pyproject.toml: a forbidden import in a copy breaks its contract by name."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]
# First words of a contract, a module that it covers, and a module that this one must not import.
FORBIDDEN = (
    ("Layers", "settings.model", "bundlekeel.leader.runtime"),
    ("Layers", "requests.uninstall", "bundlekeel.quotas.enforcing.owned_limits"),
    ("Layers", "wiring.takeover", "bundlekeel.recalibration.feature"),
    ("Quotas know no other feature", "quotas.enforcing.rate_keeper", "bundlekeel.simulator.run"),
    ("No other feature knows quotas", "recalibration.commands", "bundlekeel.quotas.rules.groups"),
    ("Inside planning", "planning.guard.holds", "bundlekeel.planning.strategies.avg"),
    ("Inside leader", "leader.state.leadership", "bundlekeel.leader.cycle.cycle"),
    ("Only what executes decisions", "requests.doctor", "bundlekeel.ports.commands"),
    ("Only what executes decisions", "quotas.service", "bundlekeel.quotas.rate_commands"),
    ("Adapters never know each other", "pulsar.zookeeper.client", "bundlekeel.pulsar.admin.client"),
    ("Only wiring knows concrete adapters", "leader.gate.windows", "bundlekeel.pulsar.zookeeper.client"),
    ("model, planning and the rules of features are pure", "model.load", "time"),
    ("model, planning and the rules of features are pure", "quotas.rules.shares", "time"),
    ("The virtual cluster is pure", "simulator.run", "random"),
    ("Libraries live where", "requests.where", "httpx"),
    ("pulsar-client is loaded", "quotas.published.usage_feed", "pulsar"),
    ("Spark lives in", "cli.units", "bundlekeel.recalibration.jobs.options"),
    ("Only recalibration.jobs import pyspark", "recalibration.adopting.shadow", "pyspark"),
    ("Spark's jobs know no sidecar", "recalibration.jobs.rules", "bundlekeel.settings.load"),
    ("Spark's jobs know no sidecar", "recalibration.jobs.options", "bundlekeel.wiring.clock"),
)


def test_every_contract_has_an_example() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    names = [contract["name"] for contract in project["tool"]["importlinter"]["contracts"]]
    assert [name for name in names if not any(name.startswith(words) for words, _, _ in FORBIDDEN)] == []


def test_forbidden_imports_break_their_contracts(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "service", tmp_path / "service", ignore=shutil.ignore_patterns("__pycache__", "static"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for _, module, imported in FORBIDDEN:
        file = (tmp_path / "service/bundlekeel").joinpath(*module.split(".")).with_suffix(".py")
        file.write_text(f"{file.read_text(encoding='utf-8')}\nimport {imported}\n", encoding="utf-8")
    ran = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "service"), "COLUMNS": "400", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    # One part for each broken contract: its name, a line, and the imports that break it.
    _, _, details = ran.stdout.partition("Broken contracts")
    parts = re.split(r"\n(?=.+\n-{3,}\n)", details)
    for words, module, imported in FORBIDDEN:
        shown = [part for part in parts if part.startswith(words) and f"bundlekeel.{module} -> {imported}" in part]
        assert shown, (words, module, imported, details)
