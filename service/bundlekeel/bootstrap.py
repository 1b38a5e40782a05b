"""Puts a sidecar together: the only module that knows concrete adapters."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TypeVar

import structlog

from bundlekeel import __version__
from bundlekeel.adapters.admin import AdminOptions, AdminTls, HttpBrokerAdmin, TokenSource
from bundlekeel.adapters.clock import SystemClock
from bundlekeel.adapters.files import FileJournal
from bundlekeel.adapters.metrics import PrometheusTelemetry
from bundlekeel.adapters.peers import HttpPeers
from bundlekeel.adapters.zookeeper import (
    ZkClient,
    ZkCoordination,
    ZkLoadSource,
    ZkMetadata,
    ZkOwnership,
    parse_store_url,
)
from bundlekeel.api.server import ApiServer
from bundlekeel.cli.app import make_app
from bundlekeel.cli.wiring import Split
from bundlekeel.core.errors import Forbidden, SnapshotError, StoreError
from bundlekeel.core.params import Parameters
from bundlekeel.daemon.attempt import ExecutorLimits, World
from bundlekeel.daemon.brokerconfig import BrokerConfig
from bundlekeel.daemon.cycle import Cycle, CycleParts
from bundlekeel.daemon.doctor import Patient, examine
from bundlekeel.daemon.executions import Executions
from bundlekeel.daemon.hand import LeaderHand, move_record
from bundlekeel.daemon.leadership import Leadership
from bundlekeel.daemon.observer import Observer
from bundlekeel.daemon.planner import Planner
from bundlekeel.daemon.runtime import Runtime, RuntimeParts, restore_averages
from bundlekeel.daemon.settings import Settings
from bundlekeel.daemon.settings_load import LoadedSettings
from bundlekeel.daemon.settings_parameters import to_parameters
from bundlekeel.daemon.sharing import Sharing
from bundlekeel.daemon.sidecar import Sidecar, SidecarParts
from bundlekeel.daemon.takeover import BrokerRow, Desk, TakeoverResult, handback, takeover
from bundlekeel.daemon.views import Check, Json
from bundlekeel.daemon.where import where
from bundlekeel.ports import BrokerEndpoint, Member

T = TypeVar("T")

# Facts about the brokers rather than preferences: always taken from them unless the settings say otherwise.
ALWAYS_ADOPTED = ("statsUpdateFrequencyInSecs", "loadBalancerHostUsageCheckIntervalMinutes")


def main() -> None:
    """Entry point of the `bundlekeel` command."""
    make_app(Bootstrap())()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """The adapters of one process, connected to one cluster."""

    clock: SystemClock
    telemetry: PrometheusTelemetry
    store: ZkClient
    coordination: ZkCoordination
    source: ZkLoadSource
    ownership: ZkOwnership
    metadata: ZkMetadata
    configuration: ZkClient
    admin: HttpBrokerAdmin


def open_outside(settings: Settings, permit: Callable[[], None]) -> Outside:
    """Make the adapters; nothing is connected yet. `permit` is asked before every call that changes a broker."""
    clock, telemetry = SystemClock(), PrometheusTelemetry()
    store = _client(settings, settings.metadata_store, "metadata_store")
    other = settings.configuration_store
    configuration = store
    if other is not None and other != settings.metadata_store:
        configuration = _client(settings, other, "configuration_store")
    return Outside(
        clock=clock,
        telemetry=telemetry,
        store=store,
        coordination=ZkCoordination(store, root=settings.root_path, clock=clock),
        source=ZkLoadSource(
            store,
            batch_window_seconds=settings.store.batch_window,
            max_report_bytes=settings.store.max_report_bytes,
            clock=clock,
        ),
        ownership=ZkOwnership(store),
        metadata=ZkMetadata(store, configuration),
        configuration=configuration,
        admin=_admin(settings, telemetry, permit, clock),
    )


def _client(settings: Settings, address: str, field: str) -> ZkClient:
    hosts, chroot = parse_store_url(address, field=field)
    return ZkClient(
        hosts,
        chroot,
        session_seconds=settings.store.session_timeout,
        call_timeout_seconds=settings.store.call_timeout,
    )


def _admin(
    settings: Settings, telemetry: PrometheusTelemetry, permit: Callable[[], None], clock: SystemClock
) -> HttpBrokerAdmin:
    given = settings.admin
    token = None
    if given.token is not None or given.token_file is not None:
        token = TokenSource(given.token.get_secret_value() if given.token else None, file=given.token_file)
    return HttpBrokerAdmin(
        telemetry=telemetry,
        permit=permit,
        clock=clock,
        token=token,
        tls=AdminTls(trust_certs=given.tls_trust_certs_file, verify=given.tls_verify),
        options=AdminOptions(
            connect_timeout=given.connect_timeout,
            read_timeout=given.read_timeout,
            max_redirects=given.max_redirects,
            use_tls=given.prefer_tls,
        ),
    )


def parameters_from(loaded: LoadedSettings) -> Callable[[Mapping[str, str]], Parameters]:
    """Settings and what the brokers run with, merged; explicit settings win."""

    def merge(broker_settings: Mapping[str, str]) -> Parameters:
        adopted = dict(broker_settings)
        if not loaded.settings.adopt_broker_settings:
            adopted = {key: value for key, value in adopted.items() if key in ALWAYS_ADOPTED}
        return to_parameters(loaded.settings, adopted, origins=loaded.origins)[0]

    return merge


class Build:
    """One sidecar's parts, wired; `runtime` runs it and `sidecar` answers for it."""

    def __init__(self, loaded: LoadedSettings) -> None:
        settings = loaded.settings
        self.loaded = loaded
        self.outside = open_outside(settings, self._permit)
        out = self.outside
        self.journal = FileJournal(
            settings.journal.path,
            telemetry=out.telemetry,
            max_bytes=settings.journal.max_bytes,
            backups=settings.journal.backups,
        )
        self.peers = HttpPeers()
        self.leadership = Leadership(
            out.coordination,
            out.clock,
            out.telemetry,
            _member(settings, out.clock),
            seats=settings.leadership.seats,
            heartbeat_seconds=settings.leadership.heartbeat,
            margin_ratio=settings.leadership.margin_ratio,
        )
        self.sharing = Sharing(out.coordination, self.leadership, out.clock)
        world = World(
            admin=out.admin,
            coordination=out.coordination,
            ownership=out.ownership,
            metadata=out.metadata,
            clock=out.clock,
        )
        limits = ExecutorLimits(intent_seconds=settings.admin.read_timeout + 30.0)
        self.hand = LeaderHand(world, self.leadership, self.sharing, limits)
        self.observer = Observer(out.source, out.clock, out.telemetry, settings.capacity_overrides)
        self.config = BrokerConfig(out.admin, out.clock)
        self.cycle = Cycle(
            CycleParts(
                observer=self.observer,
                admin=out.admin,
                config=self.config,
                hand=self.hand,
                term=self.sharing,
                journal=self.journal,
                telemetry=out.telemetry,
                clock=out.clock,
                mode=settings.mode,
                parameters=parameters_from(loaded),
                describe=move_record,
            )
        )
        self.planner = Planner(self.cycle, out.clock.wall_ms)
        executions = Executions(self.sharing, self.cycle, self.planner, self.config, ceiling=settings.mode)
        self.leadership.on_won = self._on_won
        self.runtime = Runtime(
            RuntimeParts(
                clock=out.clock,
                coordination=out.coordination,
                source=out.source,
                admin=out.admin,
                journal=self.journal,
                telemetry=out.telemetry,
                peers=self.peers,
                leadership=self.leadership,
                sharing=self.sharing,
                observer=self.observer,
                hand=self.hand,
                cycle=self.cycle,
                executions=executions,
                interval_seconds=settings.cycle.interval,
            )
        )
        self.sidecar = Sidecar(
            SidecarParts(
                loaded=loaded,
                clock=out.clock,
                coordination=out.coordination,
                ownership=out.ownership,
                metadata=out.metadata,
                journal=self.journal,
                telemetry=out.telemetry,
                peers=self.peers,
                leadership=self.leadership,
                sharing=self.sharing,
                cycle=self.cycle,
                planner=self.planner,
                config=self.config,
                runtime=self.runtime,
                patient=lambda: patient(settings, out, self.config),
            )
        )

    def _permit(self) -> None:
        if self.loaded.settings.mode != "act":
            raise Forbidden(f"mode is {self.loaded.settings.mode}: nothing may be changed at the brokers")
        self.leadership.permit()

    async def _on_won(self, epoch: int) -> None:
        """The first fenced write, then what the last leader left: standing, averages, open intents."""
        self.hand.begin(epoch)
        await self.sharing.begin_term(epoch)
        restore_averages(self.observer, await self.sharing.read_averages(), self.outside.clock.wall_ms())
        await self.hand.settle()

    async def run(self) -> int:
        """Run until told to stop; the exit code."""
        settings = self.loaded.settings
        self.outside.telemetry.gauge("build_info", 1.0, version=__version__)
        face = ApiServer(
            self.sidecar,
            settings.api.host,
            settings.api.port,
            settings.api.socket,
            allowed_hosts=settings.api.allowed_hosts,
        )

        def announce(urls: list[str]) -> None:
            url = settings.api.advertised_url or urls[0]
            self.leadership.member = replace(self.leadership.member, url=url)
            structlog.get_logger(__name__).info("listening", url=urls[0], socket=str(settings.api.socket or ""))

        if self.outside.configuration is not self.outside.store:
            self.outside.configuration.start()
        code = await self.runtime.run([face], on_ready=announce)
        if self.outside.configuration is not self.outside.store:
            await self.outside.configuration.close()
        return code


def _member(settings: Settings, clock: SystemClock) -> Member:
    name = settings.member_id or f"{socket.gethostname()}-{secrets.token_hex(3)}"
    return Member(id=name, version=__version__, started_ms=clock.wall_ms())


def patient(settings: Settings, out: Outside, config: BrokerConfig) -> Patient:
    """What `doctor` examines."""
    return Patient(
        coordination=out.coordination,
        source=out.source,
        metadata=out.metadata,
        admin=out.admin,
        config=config,
        clock=out.clock,
        mode=settings.mode,
        heartbeat_seconds=settings.leadership.heartbeat,
        store_address=settings.metadata_store,
        capacity=settings.capacity_overrides,
    )


@asynccontextmanager
async def connected(settings: Settings, permit: Callable[[], None]) -> AsyncIterator[Outside]:
    """Adapters of a one-off command, connected; closed at the end."""
    out = open_outside(settings, permit)
    await out.coordination.start()
    if out.configuration is not out.store:
        out.configuration.start()
    try:
        yield out
    finally:
        await out.source.close()
        await out.admin.close()
        await out.coordination.close()
        if out.configuration is not out.store:
            await out.configuration.close()


async def _endpoints(settings: Settings, out: Outside, within: float = 10.0) -> Mapping[str, BrokerEndpoint]:
    """The registered brokers, waiting a moment for the first picture. StoreError saying what was not reached."""
    await out.source.start()
    picture, deadline = None, out.clock.boot() + within
    while picture is None:
        try:
            picture = await out.source.picture()
        except (StoreError, SnapshotError) as error:
            if out.clock.boot() > deadline:
                raise StoreError(
                    f"{settings.metadata_store} did not show the brokers within {within:.0f} s ({error}); "
                    "`bundlekeel doctor` says more"
                ) from error
            await out.clock.sleep(0.05)
    if not picture.endpoints:
        raise StoreError(f"no broker is registered in {settings.metadata_store}; check its chroot")
    out.admin.set_endpoints(picture.endpoints)
    return picture.endpoints


def _never() -> None:
    raise Forbidden("this command only reads")


def _always() -> None:
    """A person asked for it."""


class Bootstrap:
    """`cli.wiring.Wiring`: what the command line needs, with the real adapters."""

    def run_daemon(self, settings: LoadedSettings) -> int:
        """Run the sidecar until SIGTERM or SIGINT."""
        configure_logging(settings.settings)

        async def serve() -> int:
            return await Build(settings).run()

        return asyncio.run(serve())

    def takeover(self, settings: LoadedSettings, *, split: Split, reason: str, by: str, dry_run: bool) -> Json:
        """Turn the brokers' own shedding off and verify it on each of them."""
        return _once(partial(_takeover, settings.settings, split=split, reason=reason, by=by, dry_run=dry_run))

    def handback(self, settings: LoadedSettings, *, reason: str, by: str, dry_run: bool) -> Json:
        """Restore what `takeover` found."""
        return _once(partial(_handback, settings.settings, reason=reason, by=by, dry_run=dry_run))

    def doctor(self, settings: LoadedSettings) -> list[Check]:
        """Every connection and permission, tested by this process."""

        async def run() -> list[Check]:
            async with connected(settings.settings, _never) as out:
                await out.source.start()
                config = BrokerConfig(out.admin, out.clock)
                return await examine(patient(settings.settings, out, config))

        return _once(run)

    def where(self, settings: LoadedSettings, name: str) -> list[Json]:
        """Where a topic, bundle or namespace is, read from the stores."""

        async def run() -> list[Json]:
            async with connected(settings.settings, _never) as out:
                await _until_connected(settings.settings, out)
                return await where(name, metadata=out.metadata, ownership=out.ownership)

        return _once(run)


def _once(body: Callable[[], Awaitable[T]]) -> T:
    async def run() -> T:
        return await body()

    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    return asyncio.run(run())


async def _until_connected(settings: Settings, out: Outside, within: float = 10.0) -> None:
    waited = 0.0
    while not (out.coordination.connected and out.configuration.connected):
        if waited >= within:
            raise StoreError(f"{settings.metadata_store} did not answer within {within:.0f} s")
        await out.clock.sleep(0.05)
        waited += 0.05


async def _takeover(settings: Settings, *, split: Split, reason: str, by: str, dry_run: bool) -> Json:
    async with connected(settings, _never if dry_run else _always) as out:
        endpoints = await _endpoints(settings, out)
        before = await _shedding_now(out, endpoints)
        if dry_run:
            rows = [
                _json_row(broker, value, "false", ok=True, detail="would be set") for broker, value in before.items()
            ]
            return {"brokers": rows, "warnings": [], "split": split, "done": False}
        desk = Desk(admin=out.admin, coordination=out.coordination, clock=out.clock, endpoints=endpoints)
        result = await takeover(desk, split=split == "off", reason=reason, by=by)
        return _json_result(result, before)


async def _handback(settings: Settings, *, reason: str, by: str, dry_run: bool) -> Json:
    async with connected(settings, _never if dry_run else _always) as out:
        endpoints = await _endpoints(settings, out)
        before = await _shedding_now(out, endpoints)
        if dry_run:
            rows = [
                _json_row(broker, value, "as before the takeover", ok=True, detail="would be restored")
                for broker, value in before.items()
            ]
            return {"brokers": rows, "warnings": [], "split": "", "done": False}
        desk = Desk(admin=out.admin, coordination=out.coordination, clock=out.clock, endpoints=endpoints)
        result = await handback(desk)
        if result is None:
            rows = [_json_row(broker, value, value, ok=True, detail="unchanged") for broker, value in before.items()]
            return {"brokers": rows, "warnings": ["there is no takeover to undo"], "split": "", "done": True}
        return _json_result(result, before)


async def _shedding_now(out: Outside, endpoints: Mapping[str, BrokerEndpoint]) -> dict[str, str]:
    config = BrokerConfig(out.admin, out.clock)
    await config.refresh(endpoints, force=True)
    words = {True: "true", False: "false", None: "unknown"}
    return {broker: words[config.sheds(broker)] for broker in sorted(endpoints)}


def _json_result(result: TakeoverResult, before: Mapping[str, str]) -> Json:
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


def configure_logging(settings: Settings) -> None:
    """structlog to stderr: events with fields, JSON unless a person looks at a terminal. Libraries stay quiet."""
    wanted = settings.logging.format
    console = wanted == "console" or (wanted == "auto" and sys.stderr.isatty())
    renderer = (
        structlog.dev.ConsoleRenderer(colors="NO_COLOR" not in os.environ)
        if console
        else (structlog.processors.JSONRenderer())
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(settings.logging.level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
