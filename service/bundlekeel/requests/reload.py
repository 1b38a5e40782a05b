"""Reload of the settings file: new planning parameters apply from the next cycle, other settings after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import structlog

from bundlekeel.leader.state.effective_parameters import EffectiveParameters, merging
from bundlekeel.model.errors import ConfigError
from bundlekeel.ports import Clock, Journal, Telemetry
from bundlekeel.settings.describe import differences, shared_digest, warnings_of
from bundlekeel.settings.load import LoadedSettings
from bundlekeel.settings.parameters import TOP_LEVEL

_log = structlog.get_logger(__name__)

# Seconds between two checks of the file. Kubernetes itself takes up to a minute to update a mounted ConfigMap.
EVERY_SECONDS: Final = 5.0


class Reload:
    """Reads the settings file again if it has changed, and on request (SIGHUP).

    If the file is invalid, all previous settings stay in effect. Each sidecar reads its own file; the leader's
    parameters apply to the cluster. `announce`: called with the digest of the settings after each reading.
    """

    def __init__(
        self,
        loaded: LoadedSettings,
        effective_parameters: EffectiveParameters,
        journal: Journal,
        telemetry: Telemetry,
        clock: Clock,
        announce: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._running = self._last = loaded
        self._effective_parameters = effective_parameters
        self._journal = journal
        self._telemetry = telemetry
        self._clock = clock
        self._text = b"" if loaded.path is None else _text_of(loaded.path)
        self._requested = asyncio.Event()
        self.every_seconds = EVERY_SECONDS
        self._announce = announce

    def ask(self) -> None:
        """Make `run` read the file now, even if it has not changed."""
        self._requested.set()

    async def run(self) -> None:
        """Read the file whenever it changes, until cancelled."""
        while True:
            try:
                async with asyncio.timeout(self.every_seconds):
                    await self._requested.wait()
            except TimeoutError:
                pass
            path = self._running.path
            text = self._text if path is None else await asyncio.to_thread(_text_of, path)
            if self._requested.is_set() or text != self._text:
                self._requested.clear()
                self._text = text
                await self.read()

    async def read(self) -> None:
        """Read the file, apply its planning parameters, and add the result to the journal."""
        try:
            fresh = await asyncio.to_thread(self._last.again)
            _ = fresh.settings.store_url  # raises ConfigError if the file is incomplete, for example just being written
        except ConfigError as error:
            text = f"the settings file is not valid; the previous settings stay in effect: {error}"
            self._record("refused", text, {"problems": str(error).splitlines()})
            return
        changed = differences(self._last, fresh)
        live = [key for key in changed if is_live(key)]
        # Compare with the settings at the start of this process, because these stay in effect until a restart.
        later = [key for key in differences(self._running, fresh) if not is_live(key)]
        self._last = fresh
        self._effective_parameters.merge = merging(fresh, adopts=self._running.settings.adopt_broker_settings)
        self._announce(shared_digest(fresh.settings))
        self._telemetry.gauge("settings_restart_needed", float(len(later)))
        for warning in warnings_of(fresh.settings):
            _log.warning("setting is valid but probably a mistake", warning=warning)
        changes = [f"{key} {before} -> {after}" for key, (before, after) in changed.items() if key in live]
        parts = [f"from the next cycle: {', '.join(changes)}"] if changes else []
        parts += [f"a restart is needed for {', '.join(later)}"] if later else []
        text = f"the settings file was read; {'; '.join(parts) or 'nothing changed'}"
        self._record("applied" if changed else "unchanged", text, {"applied": live, "restart_needed": later})

    def _record(self, outcome: str, sentence: str, more: dict[str, Any]) -> None:
        self._telemetry.count("settings_read_total", outcome=outcome)
        self._telemetry.gauge("settings_refused", float(outcome == "refused"))
        self._journal.append(
            {"kind": "settings", "wall_ms": self._clock.wall_ms(), "outcome": outcome, "sentence": sentence, **more}
        )
        if outcome == "refused":
            _log.error("settings file is invalid, previous settings stay in effect", sentence=sentence)
        else:
            _log.info("settings file read", sentence=sentence)


def is_live(key: str) -> bool:
    """Return whether a changed setting applies without a restart, as only planning parameters do."""
    return key.partition(".")[0] in ("parameters", *TOP_LEVEL)


def _text_of(path: Path) -> bytes:
    """Return the content of the file; empty if it cannot be read: loading the settings then reports the error."""
    try:
        return path.read_bytes()
    except OSError:
        return b""
