"""What the command line asks for, with the real adapters."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import TypeVar

import structlog

from bundlekeel.cli.wiring import Split
from bundlekeel.daemon.answers.channel import UnitView
from bundlekeel.daemon.answers.doc import Json
from bundlekeel.daemon.answers.picture import Check
from bundlekeel.daemon.channel_rows import row_of
from bundlekeel.daemon.operations.doctor import examine
from bundlekeel.daemon.operations.failsafe import FailsafeLimits, judge
from bundlekeel.daemon.operations.takeover import (
    BrokerRow,
    TakeoverContext,
    TakeoverResult,
    handback,
    last_takeover,
    nobody_balances,
    preview,
    read_record,
    takeover,
    unknown_namespaces,
)
from bundlekeel.daemon.operations.uninstall import uninstall
from bundlekeel.daemon.operations.where import where
from bundlekeel.daemon.quotas.restore import give_quotas_back, put_quotas_aside, quotas_owned
from bundlekeel.ports import BrokerEndpoint
from bundlekeel.ports.history import HistoryStore
from bundlekeel.settings.describe import warnings_of
from bundlekeel.settings.load import LoadedSettings, misnamed_variables
from bundlekeel.wiring.history import history_store
from bundlekeel.wiring.logs import configure_logging
from bundlekeel.wiring.outside import (
    Outside,
    connected,
    context,
    endpoints_of,
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
        for text in (*warnings_of(settings.settings), *misnamed_variables(os.environ)):
            structlog.get_logger(__name__).warning("setting", warning=text)

        build = Build(settings, self._opened(settings))

        def ready(urls: list[str]) -> None:
            build.ready(urls)
            # What is loaded by now stays; each full collection would look at all of it and hold the event loop.
            gc.collect()
            gc.freeze()

        with asyncio.Runner() as runner:
            return runner.run(build.runtime.run([build.server(runner.get_loop())], on_ready=ready))

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
        """Turn the brokers' own shedding off and verify it on each of them; with `namespaces` only for those."""
        how: Json = {"split": split, "reason": reason, "by": by, "dry_run": dry_run, "namespaces": namespaces}
        return once(settings, partial(take_over, settings, tell=tell, **how))

    def last_takeover(self, settings: LoadedSettings) -> tuple[Split, tuple[str, ...]]:
        """How the last takeover was asked for, in force or ended."""

        async def run() -> tuple[Split, tuple[str, ...]]:
            async with connected(settings) as out:
                await until_connected(settings.settings, out)
                split_off, namespaces = await last_takeover(out.coordination)
            return "off" if split_off else "brokers", namespaces

        return once(settings, run)

    def handback(
        self, settings: LoadedSettings, *, reason: str, by: str, dry_run: bool, tell: Callable[[str], None]
    ) -> Json:
        """Restore what `takeover` found."""
        return once(settings, partial(hand_back, settings, reason=reason, by=by, dry_run=dry_run, tell=tell))

    def deadman(self, settings: LoadedSettings, *, after: float, confirm: float, by: str, dry_run: bool) -> Json:
        """Restore what `takeover` found when the sidecars are dead."""
        terms = FailsafeLimits(after_seconds=after, confirm_seconds=confirm, by=by)
        return once(settings, partial(failsafe, settings, terms=terms, dry_run=dry_run))

    def uninstall(self, settings: LoadedSettings, *, dry_run: bool) -> list[str]:
        """Delete the shared state."""

        async def run() -> list[str]:
            async with connected(settings) as out:
                await until_connected(settings.settings, out)
                return await uninstall(out.coordination, dry_run=dry_run)

        return once(settings, run)

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
                await until_connected(settings.settings, out, configuration=True)
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


# Commands that work without a running sidecar: takeover, handback, doctor, where.


T = TypeVar("T")


def once(loaded: LoadedSettings, body: Callable[[], Awaitable[T]]) -> T:
    async def run() -> T:
        return await body()

    configure_logging(loaded.settings, "warning")
    logging.getLogger("kazoo").setLevel(logging.CRITICAL + 1)
    return asyncio.run(run())


async def take_over(
    loaded: LoadedSettings,
    *,
    split: Split,
    reason: str,
    by: str,
    dry_run: bool,
    namespaces: tuple[str, ...],
    tell: Callable[[str], None],
) -> Json:
    async with connected(loaded) as out:
        endpoints = await endpoints_of(loaded.settings, out)
        before = await _shedding_now(out, endpoints)
        context = replace(_context(out, endpoints), tell=tell)
        if dry_run:
            result = await preview(context, split=split == "off", namespaces=namespaces)
        else:
            result = await takeover(context, split=split == "off", reason=reason, by=by, namespaces=namespaces)
        answer = json_result(result, before)
        answer["warnings"] += await unknown_namespaces(out.metadata, namespaces)
        if why := await nobody_balances(out.coordination):
            answer["warnings"].append(f"nothing balances what is taken over: {why}")
        return answer


async def hand_back(
    loaded: LoadedSettings, *, reason: str, by: str, dry_run: bool, tell: Callable[[str], None]
) -> Json:
    async with connected(loaded) as out:
        endpoints = await endpoints_of(loaded.settings, out)
        before = await _shedding_now(out, endpoints)
        if dry_run:
            taken_over = await read_record(out.coordination) is not None
            return handback_preview(before, await quotas_owned(out.coordination), taken_over=taken_over)
        context = replace(_context(out, endpoints), tell=tell)
        result = await handback(context, reason=reason, by=by)
        aside: list[str] = []
        if result is None and (loaded.settings.quotas.enforcer != "off" or await quotas_owned(out.coordination)):
            # Before anything is given back: a running leader would write it again.
            aside = await put_quotas_aside(out.coordination, out.clock, reason=reason, by=by)
        quotas = aside + await give_quotas_back(
            out.admin.quotas, out.admin.quotas, out.config, out.coordination, out.clock
        )
        if result is None:
            return _nothing_to_undo(before, quotas, done=True)
        answer = json_result(result, before)
        return answer | {"warnings": [*answer["warnings"], *quotas]}


def handback_preview(before: Mapping[str, str], held: list[str], *, taken_over: bool) -> Json:
    """What a handback would do. `held`: warnings of quota groups."""
    if not taken_over:
        return _nothing_to_undo(before, held, done=False)
    rows = [
        _json_row(broker, value, "as before the takeover", ok=value != "unknown", detail="would be restored")
        for broker, value in before.items()
    ]
    return {"brokers": rows, "warnings": held, "split": "", "done": False}


_SHEDDING_TOLD = {"true": "sheds by itself", "false": "does not shed", "unknown": "could not be asked"}


def _nothing_to_undo(before: Mapping[str, str], quotas: list[str], *, done: bool) -> Json:
    """The answer of a handback without a takeover: as wanted is a broker that sheds, because something has to balance
    it. `before`: whether each broker sheds by itself."""
    rows = [
        _json_row(broker, value, value, ok=value == "true", detail=_SHEDDING_TOLD[value])
        for broker, value in before.items()
    ]
    warnings = ["there is no takeover to undo: the brokers' settings are left as they are"]
    if quiet := [broker for broker, value in before.items() if value == "false"]:
        warnings.append(
            f"{', '.join(quiet)}: no shedding, and no record says why; to turn it on, "
            "`pulsar-admin brokers update-dynamic-config --config loadBalancerSheddingEnabled --value true`"
        )
    return {"brokers": rows, "warnings": [*warnings, *quotas], "split": "", "done": done}


async def failsafe(loaded: LoadedSettings, *, terms: FailsafeLimits, dry_run: bool) -> Json:
    """Judge, and restore when the sidecars are dead. The brokers are asked only then."""
    async with connected(loaded) as out:
        await until_connected(loaded.settings, out)
        before: dict[str, str] = {}

        async def context() -> TakeoverContext:
            endpoints = await endpoints_of(loaded.settings, out)
            before.update(await _shedding_now(out, endpoints))
            return _context(out, endpoints)

        found = await judge(out.coordination, out.clock, terms, None if dry_run else context)
        empty: Json = {"brokers": [], "warnings": [], "split": "", "done": found.state != "dead"}
        return found.view() | (json_result(found.result, before) if found.result is not None else empty)


def _context(out: Outside, endpoints: Mapping[str, BrokerEndpoint]) -> TakeoverContext:
    return TakeoverContext(
        admin=out.admin,
        commands=out.admin,
        coordination=out.coordination,
        metadata=out.metadata,
        clock=out.clock,
        endpoints=endpoints,
    )


async def _shedding_now(out: Outside, endpoints: Mapping[str, BrokerEndpoint]) -> dict[str, str]:
    config = out.config
    await config.refresh(endpoints, force=True)
    words = {True: "true", False: "false", None: "unknown"}
    return {broker: words[config.sheds(broker)] for broker in sorted(endpoints)}


def json_result(result: TakeoverResult, before: Mapping[str, str]) -> Json:
    """The answer of the command. `before`: whether each broker shed by itself."""
    rows = [_json_broker(row, before.get(row.broker_id, "unknown")) for row in result.brokers]
    return {
        "brokers": rows,
        "warnings": list(result.warnings),
        "split": result.splits_by,
        "done": result.complete,
        "overrides_before": dict(asdict(result)["overrides"]),
    }


def _json_broker(row: BrokerRow, before: str) -> Json:
    after = row.values.get("loadBalancerSheddingEnabled", "unknown")
    return _json_row(row.broker_id, before, after, ok=row.verified, detail=row.detail)


def _json_row(broker: str, before: str, after: str, *, ok: bool, detail: str) -> Json:
    return {"broker": broker, "before": before, "after": after, "ok": ok, "detail": detail}
