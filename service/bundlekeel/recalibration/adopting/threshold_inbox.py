"""The newest thresholds that the nightly job proposes, as the sidecar last read them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import structlog

from bundlekeel.model.codes import Code
from bundlekeel.model.errors import StoreError, ThresholdsError
from bundlekeel.model.response_fields import Json
from bundlekeel.ports import Clock, Telemetry
from bundlekeel.recalibration.history.ports import MAX_BYTES, CalibrationStore, FoundDocument
from bundlekeel.recalibration.rules.thresholds import Objection, Thresholds
from bundlekeel.recalibration.rules.thresholds_json import digest_of, document_of, parsed

_log = structlog.get_logger(__name__)

# Longest wait for a read. A store that does not respond must not delay the check of the adopted thresholds.
READ_SECONDS: Final = 60.0


class ThresholdInbox:
    """Reads the newest proposed thresholds in a thread. `store` opens the store; after a StoreError it is called
    again."""

    def __init__(self, store: Callable[[], CalibrationStore], telemetry: Telemetry, clock: Clock) -> None:
        self._open = store
        self._telemetry = telemetry
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, "calibration")
        self._store: CalibrationStore | None = None
        self._reading: asyncio.Future[FoundDocument | None] | None = None
        self.found: FoundDocument | None = None
        self.document: Thresholds | None = None
        # Creation time of the last valid proposal, also after an invalid newer one, Unix ms; None: none yet.
        self.created_ms: int | None = None
        self.digest = ""
        self.unreadable: Objection | None = None
        self.error = ""
        self.read_ms = 0

    async def read(self) -> None:
        """Read the newest proposal. Never raises; if the store fails, `error` contains the reason.

        If a read has not returned yet, the next call waits for that read and does not start a second one.
        """
        if self._reading is None:
            self._reading = asyncio.get_running_loop().run_in_executor(self._thread, self._fetch)
        reading = self._reading
        try:
            async with asyncio.timeout(READ_SECONDS):
                document = await asyncio.shield(reading)
        except TimeoutError:
            self._trouble(f"no answer within {READ_SECONDS:g} s")
            return
        except StoreError as error:
            self._trouble(str(error))
            return
        finally:
            # Also after an unexpected error, so that the next call starts a new read.
            if reading.done() and self._reading is reading:
                self._reading = None
        self.error, self.read_ms = "", self._clock.wall_ms()
        if document != self.found:
            self.found = document
            self._take(document)

    def view(self) -> Json | None:
        """Return the newest proposal as JSON, with its path and digest; None: there is no proposal."""
        if self.document is None or self.found is None:
            return None
        proposal = document_of(self.document)
        del proposal["parameters"]
        named = {"digest": self.digest, "path": self.found.path}
        return proposal | named | {"values": self.document.values, "previous": self.document.previous}

    def close(self) -> None:
        """Release the thread without waiting, because a read may still be blocked in a store that does not respond."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _fetch(self) -> FoundDocument | None:
        if self._store is None:
            self._store = self._open()
        return self._store.newest()

    def _trouble(self, text: str) -> None:
        if not self.error:
            _log.warning("proposed thresholds could not be read; the next check reads them again", error=text)
        self.error = text
        self._telemetry.count("thresholds_store_errors_total")

    def _take(self, document: FoundDocument | None) -> None:
        self.document, self.digest, self.unreadable = None, "", None
        if document is None:
            return
        try:
            if len(document.data) > MAX_BYTES:
                raise ThresholdsError(f"larger than {MAX_BYTES} bytes", code=Code.IMPLAUSIBLE)
            self.document = parsed(document.data)
        except ThresholdsError as error:
            self.unreadable = Objection(code=Code(error.code), field=error.field, detail=str(error))
            return
        self.digest, self.created_ms = digest_of(self.document), self.document.created_ms
