"""What the command line asks for, with the real adapters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from functools import partial

import structlog

from bundlekeel.cli.wiring import Split
from bundlekeel.daemon.answers.channel import UnitView
from bundlekeel.daemon.answers.doc import Json
from bundlekeel.daemon.answers.picture import Check
from bundlekeel.daemon.operations.deadman import DeadManLimits
from bundlekeel.daemon.operations.doctor import examine
from bundlekeel.daemon.operations.where import where
from bundlekeel.daemon.sources.channel_tables import row_of
from bundlekeel.ports.history import HistoryStore
from bundlekeel.settings.load import LoadedSettings
from bundlekeel.settings.warnings import warnings_of
from bundlekeel.wiring.history import history_store
from bundlekeel.wiring.logs import configure_logging
from bundlekeel.wiring.oneoff import dead_man, hand_back, once, take_over
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


class Bootstrap:
    """`cli.wiring.Wiring`: what the command line needs, with the real adapters."""

    def __init__(self, opened: Callable[[LoadedSettings], Outside] | None = None) -> None:
        self._opened = opened or open_outside

    def run_daemon(self, settings: LoadedSettings) -> int:
        """Run the sidecar until SIGTERM or SIGINT."""
        # The other commands need neither the API nor the cycle.
        from bundlekeel.wiring.build import Build  # noqa: PLC0415

        configure_logging(settings.settings)
        for text in warnings_of(settings.settings):
            structlog.get_logger(__name__).warning("setting", warning=text)

        async def serve() -> int:
            return await Build(settings, self._opened(settings)).run()

        return asyncio.run(serve())

    def takeover(
        self,
        settings: LoadedSettings,
        *,
        split: Split,
        reason: str,
        by: str,
        dry_run: bool,
        namespaces: tuple[str, ...] = (),
    ) -> Json:
        """Turn the brokers' own shedding off and verify it on each of them; with `namespaces` only for those."""
        body = partial(take_over, settings, split=split, reason=reason, by=by, dry_run=dry_run, namespaces=namespaces)
        return once(settings, body)

    def handback(self, settings: LoadedSettings, *, reason: str, by: str, dry_run: bool) -> Json:
        """Restore what `takeover` found."""
        return once(settings, partial(hand_back, settings, reason=reason, by=by, dry_run=dry_run))

    def deadman(self, settings: LoadedSettings, *, after: float, confirm: float, by: str, dry_run: bool) -> Json:
        """Restore what `takeover` found when the sidecars are dead."""
        terms = DeadManLimits(after_seconds=after, confirm_seconds=confirm, by=by)
        return once(settings, partial(dead_man, settings, terms=terms, dry_run=dry_run))

    def doctor(self, settings: LoadedSettings) -> list[Check]:
        """Every connection and permission, tested by this process."""

        async def run() -> list[Check]:
            async with connected(settings) as out:
                await out.source.start()
                return await examine(context(settings.settings, out, watch(out, unrecorded, lambda: True)))

        return once(settings, run)

    def where(self, settings: LoadedSettings, name: str, listener: str) -> list[Json]:
        """Where a topic, bundle or namespace is, read from the stores."""

        async def run() -> list[Json]:
            async with connected(settings) as out:
                await until_connected(settings.settings, out)
                await settled(out)
                view = await out.channel.view() if out.channel.on else None

                def entry(bundle: str) -> UnitView | None:
                    return row_of(view, bundle, out.clock.wall_ms()) if view is not None else None

                found = await where(
                    name, metadata=out.metadata, ownership=out.ownership, entry=entry, listener=listener
                )
                return [asdict(row) for row in found]

        return once(settings, run)

    def history(self, settings: LoadedSettings, uri: str | None) -> HistoryStore:
        """The store of recorded history."""
        return history_store(settings, uri)
