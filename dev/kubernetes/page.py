"""Generate docs/reference/kubernetes.md from the records of the last run of `make kubernetes`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from dev.kubernetes.programs import KUBERNETES, version
from dev.markdown import table

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / ".run" / "kubernetes.jsonl"
PAGE = ROOT / "docs" / "reference" / "kubernetes.md"
_NOTE = "Made by `python -m dev.kubernetes table` after `make kubernetes`; do not edit."
# Title and columns of each table, by its name in the record.
TABLES = {
    "releases": (
        "Releases",
        "Every step succeeded in a namespace that enforces Pod Security `restricted`. "
        "Jobs: one from each CronJob. After `helm test` its pod stays.",
        ("values", "install", "Jobs", "upgrade to, and rollback", "stays after uninstall"),
    ),
    "rights": ("Rights", "Each right was asked for.", ("values", "account", "may", "may not")),
    "values": ("Refused values", "The message names the value; nothing is created.", ("value", "message")),
}


def page() -> str:
    """Return the text of the page. Raises FileNotFoundError if no run recorded anything."""
    rows = sorted({tuple(json.loads(line)) for line in RECORD.read_text(encoding="utf-8").splitlines()})
    versions = f"Kubernetes {KUBERNETES}, etcd {version('etcd', 'go.etcd.io/etcd/server/v3')}"
    lines = [
        *("# Kubernetes tests", "", f"<!-- {_NOTE} -->", ""),
        f"What `make kubernetes` did with the chart: {versions}, and nodes simulated by kwok",
        f"{version('kwok', 'sigs.k8s.io/kwok')}. No container ran there.",
    ]
    for name, (title, text, columns) in TABLES.items():
        lines += ["", f"## {title}", "", text, "", *table(columns, _of(name, rows))]
    return "\n".join(lines) + "\n"


def _of(name: str, rows: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    return [row[1:] for row in rows if row[0] == name]
