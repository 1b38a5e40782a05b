"""Compare the decision rule with Pulsar's own AvgShedder in simulated worlds: `python -m evidence.decision_figures`.

`--write` writes docs/reference/decision-figures.md. Each run stores its result in .run/decision-figures. `--resume`
uses the stored results and runs only what is missing. The seeds 41 to 50 were not used to choose a parameter of the
rule.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from evidence.decision_tables import TABLES, Results

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "decision-figures.md"
RESULTS = ROOT / ".run" / "decision-figures"


def page(tables: dict[str, Results]) -> str:
    """Return the text of docs/reference/decision-figures.md."""
    sections = ["\n".join(TABLES[name][1](results)) for name, results in tables.items() if results.stored]
    misses = [f"- {miss}" for results in tables.values() for miss in results.misses]
    lines = [
        "# Figures of the decision rule\n",
        "Written by `make decisions` (`python -m evidence.decision_figures --write`); do not edit. "
        "All values are simulated",
        "with the product's own planning, on seeds that were not used to choose a parameter. Two values are the median",
        "and the worst seed. AvgShedder: Pulsar's own class with Pulsar's defaults, in the same worlds. The rule:",
        "[When bundles move](../concepts/decision-rule.md).\n",
        "\n\n".join(sections),
        "\n## Goals that were not reached\n",
        *(misses or ["None."]),
    ]
    return "\n".join([*lines, ""])


def main() -> None:
    """Simulate and print the tables. With `--write`, also write docs/reference/decision-figures.md."""
    parser = argparse.ArgumentParser(prog="python -m evidence.decision_figures", description=__doc__)
    parser.add_argument("--seeds", default="41-50", help="first and last seed (41-50)")
    parser.add_argument("--only", choices=tuple(TABLES), action="append", help="this table; may be repeated")
    parser.add_argument("--cells", default="", help="run only cells whose name has this regular expression")
    parser.add_argument("--resume", action="store_true", help="keep the results of earlier runs")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    options = parser.parse_args()
    first, _, last = options.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    names, tables = options.only or list(TABLES), dict[str, Results]()
    for name, (cells, _) in TABLES.items():
        results = Results(RESULTS / f"{name}.json", seeds)
        if options.resume or name not in names:
            results.load()
        if name in names:
            results.run(cell for cell in cells() if re.search(options.cells, cell[0]))
        tables[name] = results
    text = page(tables)
    print(text)
    if options.write:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
