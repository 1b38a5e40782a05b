"""Examples of the command `simulate` (cli/examples.py)."""

from __future__ import annotations

from typing import Final

# By the command before whose examples these are placed.
EXAMPLES: Final = {
    "run": {
        "simulate": (
            "simulate 03-step --against native --html report.html",
            "simulate --show 03-step > my-cluster.yaml",
            "simulate my-cluster.yaml --seeds 1-20 -o json",
        ),
    }
}
