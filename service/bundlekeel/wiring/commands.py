"""Commands that connect to brokers and stores themselves: `run`, and the commands that need no running sidecar."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from functools import partial
from typing import TypeVar

import structlog

from bundlekeel.cli.wiring import Split
from bundlekeel.model.check import Check
from bundlekeel.model.response_fields import Json
from bundlekeel.pulsar.channel.responses import UnitView
from bundlekeel.requests.doctor import examine
from bundlekeel.requests.failsafe import FailsafeLimits
from bundlekeel.requests.takeover import last_takeover
from bundlekeel.requests.uninstall import uninstall
from bundlekeel.requests.where import where
from bundlekeel.settings.describe import warnings_of
from bundlekeel.settings.load import LoadedSettings
from bundlekeel.settings.sources import misnamed_variables
from bundlekeel.views.channel_rows import row_of
from bundlekeel.wiring.features import installed
from bundlekeel.wiring.logs import configure_logging
from bundlekeel.wiring.outside import (
    Outside,
    connected,
    context,
    open_outside,
    settled,
    unrecorded,
    until_connected,
    watch,
)
from bundlekeel.wiring.takeover import failsafe, hand_back, take_over

T = TypeVar("T")


class Bootstrap:
    """Implements `cli.wiring.Wiring` with connections to real brokers and stores."""

    def __init__(self, opened: Callable[[LoadedSettings], Outside] | None = None) -> None:
        self._opened = opened or open_outside

    def run_daemon(self, settings: LoadedSettings) -> int:
        """Run the sidecar until SIGTERM or SIGINT."""
        # Imported here because other commands need neither the API nor the cycle.
        from bundlekeel.wiring.sidecar import sidecar  # noqa: PLC0415

        configure_logging(settings.settings)
        for text in (*warnings_of(settings.settings), *misnamed_variables(os.environ)):
            structlog.get_logger(__name__).warning("setting is valid but probably a mistake", warning=text)

        serving = sidecar(settings, self._opened(settings))

        def ready(urls: list[str]) -> None:
            serving.ready(urls)
            # Exclude all objects created so far from garbage collection: they stay until the end, and checking them
            # in each full collection would block the event loop.
            gc.collect()
            gc.freeze()

        with asyncio.Runner() as runner:
            service = serving.off_loop(runner.get_loop())
            tasks = {"published": service.run}
            return runner.run(serving.runtime.run([serving.server(service)], tasks, on_ready=ready))

    def takeover(
        self,
        settings: LoadedSettings,
        *,
        split: Split,
        reason: str,
        by: str,
        dry_run: bool,
        namespaces: tuple[str, ...] = (),
        tell: Callable[[str], None],
    ) -> Json:
        """Turn the brokers' own shedding off and verify it on each broker; only for `namespaces` if there are any."""
        how: Json = {"split": split, "reason": reason, "by": by, "dry_run": dry_run, "namespaces": namespaces}
        return once(settings, partial(take_over, settings, tell=tell, **how))

    def last_takeover(self, settings: LoadedSettings) -> tuple[Split, tuple[str, ...]]:
        """Return `split` and `namespaces` of the last takeover, active or ended. Raises Conflict without a takeover."""

        async def run() -> tuple[Split, tuple[str, ...]]:
            async with connected(settings) as out:
                await until_connected(settings.settings, out)
                split_off, namespaces = await last_takeover(out.coordination)
            return "off" if split_off else "brokers", namespaces

        return once(settings, run)

    def handback(
        self, settings: LoadedSettings, *, reason: str, by: str, dry_run: bool, tell: Callable[[str], None]
    ) -> Json:
        """Restore the settings that `takeover` changed at the brokers."""
        return once(settings, partial(hand_back, settings, reason=reason, by=by, dry_run=dry_run, tell=tell))

    def deadman(self, settings: LoadedSettings, *, after: float, confirm: float, by: str, dry_run: bool) -> Json:
        """Restore the settings that `takeover` changed at the brokers, if no sidecar completes cycles any more."""
        terms = FailsafeLimits(after_seconds=after, confirm_seconds=confirm, by=by)
        return once(settings, partial(failsafe, settings, terms=terms, dry_run=dry_run))

    def uninstall(self, settings: LoadedSettings, *, dry_run: bool) -> list[str]:
        """Delete Bundlekeel's shared state in the metadata store, and return the names of its nodes."""

        async def run() -> list[str]:
            async with connected(settings) as out:
                await until_connected(settings.settings, out)
                forbid = [feature.forbid_uninstall for feature in installed()]
                return await uninstall(out.coordination, forbid, dry_run=dry_run)

        return once(settings, run)

    def doctor(self, settings: LoadedSettings) -> list[Check]:
        """Test each connection and permission from this process."""

        async def run() -> list[Check]:
            async with connected(settings) as out:
                await out.source.start()
                return await examine(context(settings.settings, out, watch(out, unrecorded, lambda: True)))

        return once(settings, run)

    def where(self, settings: LoadedSettings, name: str, listener: str) -> list[Json]:
        """Return one row per topic, partition or bundle with its owner, read directly from the metadata store."""

        async def run() -> list[Json]:
            async with connected(settings) as out:
                await until_connected(settings.settings, out, configuration=True)
                await settled(out)
                view = await out.channel.view() if out.channel.on else None

                def entry(bundle: str) -> UnitView | None:
                    return row_of(view, bundle, out.clock.wall_ms()) if view is not None else None

                rows = await where(name, metadata=out.metadata, ownership=out.ownership, entry=entry, listener=listener)
                return [asdict(row) for row in rows]

        return once(settings, run)


def once(loaded: LoadedSettings, body: Callable[[], Awaitable[T]]) -> T:
    """Run the body of a command that needs no running sidecar in a new event loop, and log only warnings."""

    async def run() -> T:
        return await body()

    configure_logging(loaded.settings, "warning")
    logging.getLogger("kazoo").setLevel(logging.CRITICAL + 1)
    return asyncio.run(run())
