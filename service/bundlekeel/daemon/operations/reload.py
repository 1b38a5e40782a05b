"""The settings file while the sidecar runs: changed parameters hold from the next cycle, the rest after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import structlog

from bundlekeel.core.model.errors import ConfigError
from bundlekeel.daemon.state.effective_parameters import EffectiveParameters, merging
from bundlekeel.ports import Clock, Journal, Telemetry
from bundlekeel.settings.describe import differences, shared_digest, warnings_of
from bundlekeel.settings.load import LoadedSettings
from bundlekeel.settings.parameters import TOP_LEVEL

_log = structlog.get_logger(__name__)

# How often the file is looked at. Kubernetes itself takes up to a minute to renew a mounted ConfigMap.
EVERY_SECONDS: Final = 5.0


class Reload:
    """Reads the settings file again when it has changed, and when asked (SIGHUP). A file that would not do is refused
    whole and what ran goes on. Each sidecar reads its own file; the leader's parameters are those of the cluster.
    `announce`: is told the digest of the settings after each reading."""

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
        self._asked = asyncio.Event()
        self.every_seconds = EVERY_SECONDS
        self._announce = announce

    def ask(self) -> None:
        """Read the file now, changed or not."""
        self._asked.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                async with asyncio.timeout(self.every_seconds):
                    await self._asked.wait()
            except TimeoutError:
                pass
            path = self._running.path
            text = self._text if path is None else await asyncio.to_thread(_text_of, path)
            if self._asked.is_set() or text != self._text:
                self._asked.clear()
                self._text = text
                await self.read()

    async def read(self) -> None:
        """Read the file and let its parameters come into force; the journal says what became of it."""
        try:
            fresh = await asyncio.to_thread(self._last.again)
            _ = fresh.settings.store_url  # refused: a file that is empty for a moment, or half written
        except ConfigError as error:
            text = f"the settings file is refused, what ran goes on: {error}"
            self._record("refused", text, {"problems": str(error).splitlines()})
            return
        changed = differences(self._last, fresh)
        live = [key for key in changed if is_live(key)]
        # Of what this process was started with, however often the file changed since.
        later = [key for key in differences(self._running, fresh) if not is_live(key)]
        self._last = fresh
        self._effective_parameters.merge = merging(fresh, adopts=self._running.settings.adopt_broker_settings)
        self._announce(shared_digest(fresh.settings))
        self._telemetry.gauge("settings_restart_needed", float(len(later)))
        for warning in warnings_of(fresh.settings):
            _log.warning("setting", warning=warning)
        said = [f"{key} {before} -> {after}" for key, (before, after) in changed.items() if key in live]
        parts = [f"from the next cycle: {', '.join(said)}"] if said else []
        parts += [f"a restart is needed for {', '.join(later)}"] if later else []
        text = f"the settings file was read; {'; '.join(parts) or 'nothing changed'}"
        self._record("applied" if changed else "unchanged", text, {"applied": live, "restart_needed": later})

    def _record(self, outcome: str, sentence: str, more: dict[str, Any]) -> None:
        self._telemetry.count("settings_read_total", outcome=outcome)
        self._telemetry.gauge("settings_refused", float(outcome == "refused"))
        self._journal.append(
            {"kind": "settings", "wall_ms": self._clock.wall_ms(), "outcome": outcome, "sentence": sentence, **more}
        )
        (_log.error if outcome == "refused" else _log.info)("settings", sentence=sentence)


def is_live(key: str) -> bool:
    """Whether a setting comes into force without a restart: what plans run with."""
    return key.partition(".")[0] in ("parameters", *TOP_LEVEL)


def _text_of(path: Path) -> bytes:
    """The file as it is; empty when it cannot be read, which loading it reports."""
    try:
        return path.read_bytes()
    except OSError:
        return b""
