"""Examples of the commands `history`, `replay` and `thresholds` (cli/examples.py)."""

from __future__ import annotations

from typing import Final

# By the sidecar's command before whose examples these are placed.
EXAMPLES: Final = {
    "review approve": {
        "history ls": ("history ls --since today",),
        "history show": ("history show 2026-11-21T18:05",),
        "history check": ("history check",),
        "history export": ("history export 812 --file cycle-812.json",),
        "history sql": ('history sql "FROM moves" --since 7d',),
        "replay": ("replay 812", "replay all --history /var/lib/bundlekeel/history"),
    },
    "stop": {
        "thresholds adopt": ('thresholds adopt --reason "checked with thresholds diff"',),
        "thresholds revert": ('thresholds revert --reason "too many moves"',),
    },
}
