"""`CalibrationStore` in memory; it passes the same contract tests as the real store."""

from __future__ import annotations

from bundlekeel.model.errors import StoreError
from bundlekeel.recalibration.history.ports import MAX_BYTES, NAME, FoundDocument


class MemoryCalibration:
    """`CalibrationStore` as a dictionary of paths. `away`: the store does not respond."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}
        self.away = False

    def put(self, path: str, data: bytes) -> None:
        """Store a file at this path."""
        self.held[path] = data

    def newest(self) -> FoundDocument | None:
        """Return the document of the latest time, or the root's document if there is none."""
        if self.away:
            raise StoreError("the store of calibrations does not answer")
        dated = sorted(path for path in self.held if path.endswith(f"Z/{NAME}"))
        for path in (*reversed(dated), NAME):
            if path in self.held:
                return FoundDocument(path=path, data=self.held[path][: MAX_BYTES + 1])
        return None
