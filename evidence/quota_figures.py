"""Run the quota tests on real clusters and write their measurements to docs/reference/quotas.md.

`python -m evidence.quota_figures` measures everything in about half an hour. `--rows FILE` reads measurements of an
earlier run instead. `--scale FILE` reads the output of an earlier run of evidence.quota_scale instead.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dev.markdown import table
from evidence.quota_scale import report_lines

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "quotas.md"
FILE = "QUOTA_FIGURES"
HEAD = """# Quotas: measured

Written by `make quota-figures`; do not edit. How it works: [quotas](../concepts/quotas.md).

## A tenant offered four times its limit

Three real brokers, 2 namespaces of 8 topics, one of them in 4 partitions, demands skewed (rank to the power of -1.5),
report cycles of 10 s, 240 messages/s published and 200 delivered; measured at the clients. *At rest*: a minute from the
third cycle on. *A transfer*, *a broker killed*: the sixth cycle after. *Least*: the worst topic's part of its fair
share. *Under half*: in how many of six cycles the worst topic published or delivered less than half of it. *Until
used*: cycles after the kill from which on the others use what the dead broker had. *Skewed partitions*: all demand of
the partitioned topic sits in one partition; *reported lost* is what the sidecar says cannot pass because of that.

"""
COLUMNS = (
    "published",
    "delivered",
    "least published",
    "least delivered",
    "cycles under half",
    "cycles until used",
    "reported lost",
)
STORIES = ("at rest", "a transfer", "a broker killed", "skewed partitions")
CHANGED = ("cycles until within 10 %", "turns", "published")
SCALE = """
## The engine at the size of the PIP-82 thread

100 brokers, 100,000 namespaces in 1,000 groups, each with partitions at five brokers (500,000 rows a cycle), four times
the limit offered, demands that go up and down by 5 % and 200 partitions that move in every cycle;
`python -m evidence.quota_scale`. CPU seconds of one core. *Usage*: a table out of what brokers told; *claims*: topics
put together; *shares*: the limit shared out.

"""
CHANGES = """
## Limits that change, many new topics

The same tenant, limits in bytes. *Turns*: how often the rate of any one topic changed its direction; changes below
5 % do not count.

"""


def measured(extra: Sequence[str]) -> list[dict[str, Any]]:
    """Run the quota tests with the arguments `extra` and return their measurements, one row per situation."""
    with tempfile.TemporaryDirectory() as directory:
        rows = Path(directory) / "rows.jsonl"
        selection = ("-m", "", "-k", "not short")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", *selection, "tests/quotas", *extra]
        subprocess.run(command, cwd=ROOT, env={**os.environ, FILE: str(rows)}, check=False)
        return read(rows)


def read(path: Path) -> list[dict[str, Any]]:
    """Return the measurements in a file, one row per situation."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def story_table(first: str, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a Markdown table with one line per situation and rule. `first`: title of the first column."""
    cells = ([row.get(column, "") for column in ("story", "who", *columns)] for row in rows)
    return "\n".join(table(["story", first, *columns], cells)) + "\n"


def page(rows: Sequence[Mapping[str, Any]], scale: str) -> str:
    """Return the whole page. `scale`: the output of evidence.quota_scale."""
    changes = [row for row in rows if CHANGED[0] in row]
    rest = sorted((row for row in rows if CHANGED[0] not in row), key=lambda row: STORIES.index(row["story"]))
    text = HEAD + story_table("limit kept by", COLUMNS, rest)
    if changes:
        text += CHANGES + story_table("load manager", CHANGED, changes)
    return text + scale


def main() -> None:
    """Measure, and write docs/reference/quotas.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=Path, help="rows measured before, instead of a run")
    parser.add_argument("--scale", type=Path, help="what evidence.quota_scale has printed before, instead of a run")
    options, extra = parser.parse_known_args()
    rows = read(options.rows) if options.rows else measured(extra)
    if options.scale:
        scale = options.scale.read_text(encoding="utf-8")
    else:
        scale = "\n".join(report_lines(100, 100_000, 1000, 12)) + "\n"
    PAGE.write_text(page(rows, SCALE + scale), encoding="utf-8")


if __name__ == "__main__":
    main()
