"""Examples of the command `quota` (cli/examples.py)."""

from __future__ import annotations

from typing import Final

# Examples of this feature, by the command of the sidecar whose examples come after them.
EXAMPLES: Final = {
    "review approve": {
        "quota set": ('quota set acme --member t:acme --limit publish_bytes=10MB --reason "contract"',),
        "quota rm": ('quota rm acme --reason "the contract ended"',),
    }
}
