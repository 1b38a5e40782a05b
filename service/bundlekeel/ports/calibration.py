"""Where the nightly job leaves its proposals.

`{root}/{date}/thresholds.json`, the date of the run as 2026-11-21 (UTC); the greatest date that holds one counts. A
`thresholds.json` in the root itself counts where there is no date. Blocks: called in a thread, never on the event loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

NAME: Final = "thresholds.json"
# A document has some ten kilobytes; whatever is larger is something else.
MAX_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundDocument:
    """A document as it lies there. `path` below the root; `data`: at most `MAX_BYTES` + 1 bytes of it."""

    path: str
    data: bytes


class CalibrationStore(Protocol):
    """A folder of proposals. Nothing is ever written to it."""

    def newest(self) -> FoundDocument | None:
        """The newest document, None when there is none. StoreError: the store does not answer."""
