"""The measurements of one run, as rows of a table: printed, and saved in the file that `QUOTA_FIGURES` names."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.quotas.stage import DISPATCH, PUBLISH, Figures, fair_parts

FILE = "QUOTA_FIGURES"
HALF = 0.5


def tell(story: str, who: str, figures: Mapping[str, float | int | str]) -> None:
    """A line for whoever runs this with -s, and for the page in the docs."""
    row = {"story": story, "who": who, **figures}
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()
    if os.environ.get(FILE):
        with Path(os.environ[FILE]).open("a", encoding="utf-8") as out:
            out.write(json.dumps(row) + "\n")


def in_words(figures: Figures) -> dict[str, str]:
    """Totals over their limits, and the worst topic's part of its fair share, of publishing and of delivery."""
    published, delivered = figures.totals
    publish, dispatch = fair_parts(figures)
    return {
        "published": f"{published / PUBLISH:.0%}",
        "delivered": f"{delivered / DISPATCH:.0%}",
        "least published": f"{min(publish.values()):.0%}",
        "least delivered": f"{min(dispatch.values()):.0%}",
    }


def cycles_under_half(windows: Sequence[Figures]) -> int:
    """In how many cycles the worst topic published, or delivered, less than half its fair share."""
    parts = [fair_parts(window) for window in windows]
    return max(sum(part[side][topic] < HALF for part in parts) for side in (0, 1) for topic in parts[0][side])


def cycles_until_used(windows: Sequence[Figures]) -> int:
    """After how many cycles both limits are used again, within 10 %, and stay so; all of them if they never are."""
    used = [min(window.totals[0] / PUBLISH, window.totals[1] / DISPATCH) for window in windows]
    low = [row for row, part in enumerate(used) if part < 0.9]
    return low[-1] + 1 if low else 0
