"""One sidecar, wired: adapters below, daemon between, API on top."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from urllib.parse import urlsplit

import structlog

from bundlekeel import __version__
from bundlekeel.adapters.clock import SystemClock
from bundlekeel.adapters.files import FileJournal
from bundlekeel.adapters.peers import HttpPeers
from bundlekeel.api.server import ApiServer
from bundlekeel.bootstrap.outside import open_outside, patient, watch
from bundlekeel.core.errors import Forbidden
from bundlekeel.core.params import Parameters
from bundlekeel.daemon.attempt import ExecutorLimits, World
from bundlekeel.daemon.cycle import Cycle, CycleParts
from bundlekeel.daemon.executions import Executions
from bundlekeel.daemon.hand import LeaderHand, move_record
from bundlekeel.daemon.leadership import BENCH, Leadership
from bundlekeel.daemon.observer import Observer
from bundlekeel.daemon.planner import Planner
from bundlekeel.daemon.policies import PolicyBook
from bundlekeel.daemon.runtime import Runtime, RuntimeParts, restore_averages
from bundlekeel.daemon.settings import Settings
from bundlekeel.daemon.settings_load import LoadedSettings
from bundlekeel.daemon.settings_parameters import to_parameters
from bundlekeel.daemon.sharing import Sharing
from bundlekeel.daemon.sidecar import Sidecar, SidecarParts
from bundlekeel.ports import Member

WILDCARDS = ("0.0.0.0", "::")
# An intent outlives the longest call by the time it takes to see where the bundle landed.
CONFIRM_ALLOWANCE_SECONDS = 30.0
# Facts about the brokers rather than preferences: always taken from them unless the settings say otherwise.
ALWAYS_ADOPTED = ("statsUpdateFrequencyInSecs", "loadBalancerHostUsageCheckIntervalMinutes")


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
        self.loaded = loaded
        self.outside = open_outside(loaded, self._permit)
        self.journal = FileJournal(
            loaded.located(loaded.settings.journal.path),
            telemetry=self.outside.telemetry,
            max_bytes=loaded.settings.journal.max_bytes,
            backups=loaded.settings.journal.backups,
        )
        self.peers = HttpPeers()
        self.leadership = self._leadership(loaded.settings)
        self.sharing = Sharing(self.outside.coordination, self.leadership, self.outside.clock)
        self.hand = self._hand(loaded.settings)
        self.observer = Observer(
            self.outside.source, self.outside.clock, self.outside.telemetry, loaded.settings.capacity_overrides
        )
        self.config = self.outside.config
        self.policies = PolicyBook(self.outside.metadata, self.config)
        self.hand.forbids = self.policies.forbids
        self.channel = watch(self.outside, self.journal.append, lambda: self.leadership.role != BENCH)
        self.cycle = Cycle(self._cycle_parts())
        self.planner = Planner(self.cycle, self.outside.clock.wall_ms)
        self.leadership.on_won = self._on_won
        self.runtime = Runtime(self._runtime_parts())
        self.sidecar = Sidecar(self._sidecar_parts())

    def _leadership(self, settings: Settings) -> Leadership:
        return Leadership(
            self.outside.coordination,
            self.outside.clock,
            self.outside.telemetry,
            _member(settings, self.outside.clock),
            seats=settings.leadership.seats,
            heartbeat_seconds=settings.leadership.heartbeat,
            margin_ratio=settings.leadership.margin_ratio,
        )

    def _hand(self, settings: Settings) -> LeaderHand:
        out = self.outside
        world = World(
            admin=out.admin,
            coordination=out.coordination,
            ownership=out.ownership,
            metadata=out.metadata,
            clock=out.clock,
            mode=lambda: self.observer.picture.mode if self.observer.picture else "",
        )
        limits = ExecutorLimits(intent_seconds=settings.admin.read_timeout + CONFIRM_ALLOWANCE_SECONDS)
        return LeaderHand(world, self.leadership, self.sharing, limits)

    def _cycle_parts(self) -> CycleParts:
        return CycleParts(
            observer=self.observer,
            admin=self.outside.admin,
            config=self.config,
            policies=self.policies,
            hand=self.hand,
            term=self.sharing,
            journal=self.journal,
            telemetry=self.outside.telemetry,
            clock=self.outside.clock,
            mode=self.loaded.settings.mode,
            parameters=parameters_from(self.loaded),
            describe=move_record,
            channel=self.channel.unfit,
        )

    def _runtime_parts(self) -> RuntimeParts:
        out, ceiling = self.outside, self.loaded.settings.mode
        return RuntimeParts(
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
            executions=Executions(self.sharing, self.cycle, self.planner, self.config, ceiling=ceiling),
            interval_seconds=self.loaded.settings.cycle.interval,
            channel=self.channel,
        )

    def _sidecar_parts(self) -> SidecarParts:
        out, settings = self.outside, self.loaded.settings
        return SidecarParts(
            loaded=self.loaded,
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
            policies=self.policies,
            runtime=self.runtime,
            patient=lambda: patient(settings, out, self.channel),
            channel=self.channel,
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
        for outcome in (await self.hand.settle()).settled:
            self.cycle.book(outcome)
        self.runtime.hurry()

    async def run(self) -> int:
        """Run until told to stop; the exit code."""
        settings, socket_path = self.loaded.settings, self.loaded.located(self.loaded.settings.api.socket)
        self.outside.telemetry.gauge("build_info", 1.0, version=__version__)
        face = ApiServer(
            self.sidecar,
            settings.api.host,
            settings.api.port,
            socket_path,
            allowed_hosts=served_hosts(settings),
        )

        def announce(urls: list[str]) -> None:
            url = advertised(settings, urls[0])
            self.leadership.member = replace(self.leadership.member, url=url)
            structlog.get_logger(__name__).info("listening", url=urls[0], socket=str(socket_path or ""))

        if self.outside.configuration is not self.outside.store:
            self.outside.configuration.start()
        code = await self.runtime.run([face], on_ready=announce)
        if self.outside.configuration is not self.outside.store:
            await self.outside.configuration.close()
        return code


def advertised(settings: Settings, bound_url: str) -> str:
    """Where other sidecars reach us: as set, else as bound; bound to every address, by our host name."""
    if settings.api.advertised_url is None and settings.api.host in WILDCARDS:
        return f"http://{socket.gethostname()}:{urlsplit(bound_url).port}"
    return settings.api.advertised_url or bound_url


def served_hosts(settings: Settings) -> tuple[str, ...]:
    """Host headers the API takes: those named, and the one by which the other sidecars reach us."""
    own = settings.api.advertised_url
    by_name = [socket.gethostname()] if own is None and settings.api.host in WILDCARDS else []
    return (*settings.api.allowed_hosts, *([urlsplit(own).netloc] if own else by_name))


def _member(settings: Settings, clock: SystemClock) -> Member:
    name = settings.member_id or f"{socket.gethostname()}-{secrets.token_hex(3)}"
    return Member(id=name, version=__version__, started_ms=clock.wall_ms())


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
