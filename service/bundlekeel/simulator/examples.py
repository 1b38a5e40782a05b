"""Examples of the command `simulate` (cli/examples.py)."""

from __future__ import annotations

from typing import Final

# Those of `run` follow.
EXAMPLES: Final = {
    "run": {
        "simulate": (
            "simulate 03-step --against native --html report.html",
            "simulate --show 03-step > my-cluster.yaml",
            "simulate my-cluster.yaml --seeds 1-20 -o json",
        ),
    }
}
