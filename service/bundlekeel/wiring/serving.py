"""Fourth stage of creating a sidecar: the runtime with its tasks, and the service with its API."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import cast

import structlog

from bundlekeel import __version__
from bundlekeel.api.off_loop import ServiceOffLoop
from bundlekeel.api.server import ApiServer
from bundlekeel.api.service import Service, ServiceParts
from bundlekeel.leader.runtime import Background, Runtime, RuntimeParts
from bundlekeel.pulsar.counters.network_sensor import NetworkSensor
from bundlekeel.requests.reload import Reload
from bundlekeel.wiring.features import routes
from bundlekeel.wiring.leading import Leading
from bundlekeel.wiring.outside import context
from bundlekeel.wiring.requests import Requests
from bundlekeel.wiring.security import advertised, protection, served_hosts


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """A whole sidecar: `runtime` runs it, and `service` serves its requests."""

    requests: Requests
    runtime: Runtime
    service: Service
    service_parts: ServiceParts

    def off_loop(self, loop: asyncio.AbstractEventLoop) -> ServiceOffLoop:
        """Return the service for the API's thread. `loop`: the event loop on which the sidecar runs."""
        return ServiceOffLoop(self.service, self.service_parts, loop)

    def server(self, service: ServiceOffLoop) -> ApiServer:
        """Return the API server, which calls `service` from its own thread."""
        reading = self.requests.leading.reading
        loaded, settings, out = reading.loaded, reading.loaded.settings, reading.outside
        return ApiServer(
            cast(Service, service),
            settings.api.host,
            settings.api.port,
            loaded.located(settings.api.socket),
            allowed_hosts=served_hosts(settings),
            protection=protection(loaded, out.telemetry, out.clock, reading.journal.append),
            features=routes(),
        )

    def ready(self, urls: list[str]) -> None:
        """Publish the API's address for the other sidecars. Called when the API listens, before the tasks start."""
        reading = self.requests.leading.reading
        loaded, out = reading.loaded, reading.outside
        reading.leadership.announce(url=advertised(loaded.settings, urls[0]))
        socket_path = loaded.located(loaded.settings.api.socket)
        structlog.get_logger(__name__).info("API listens", url=urls[0], socket=str(socket_path or ""))
        if out.configuration is not out.store:
            out.configuration.start()


def serving(requests: Requests) -> Serving:
    """Create the runtime and the service."""
    leading, reading = requests.leading, requests.leading.reading
    out, settings = reading.outside, reading.loaded.settings
    other_store = {"configuration store": out.configuration.close} if out.configuration is not out.store else {}
    reload = Reload(
        reading.loaded,
        leading.effective_parameters,
        reading.journal,
        out.telemetry,
        out.clock,
        lambda digest: reading.leadership.announce(settings=digest),
    )
    runtime = Runtime(
        RuntimeParts(
            coordination=out.coordination,
            source=out.source,
            leadership=reading.leadership,
            cycle=leading.cycle,
            execute_requests=requests.executions.serve,
            look_at_drains=leading.drain_tracker.look,
            on_hangup=reload.ask,
            interval_seconds=settings.cycle.interval,
            background=[Background("settings", reload.run), *_tasks(leading)],
            closers={
                "admin": out.admin.close,
                "peers": reading.peers.close,
                "metadata": out.metadata.close,
                **other_store,
                **({"traces": reading.traces.close} if reading.traces is not None else {}),
            },
        )
    )

    async def hurry(_epoch: int) -> None:
        runtime.hurry()

    reading.term_start.add(hurry)
    out.telemetry.gauge("build_info", 1.0, version=__version__)
    parts = _service_parts(requests, runtime)
    return Serving(requests=requests, runtime=runtime, service=Service(parts), service_parts=parts)


def _tasks(leading: Leading) -> list[Background]:
    """Return the tasks that run in parallel to the cycles, as far as the settings enable them."""
    reading = leading.reading
    tasks = [
        Background("channel", reading.channel.run, reading.channel.close),
        Background("outage", reading.outage.run),
        *leading.features.tasks,
    ]
    counters = reading.loaded.settings.counters
    network_file = reading.loaded.located(counters.network_file)
    if network_file is not None and counters.source != "off":
        sensor = NetworkSensor(network_file, reading.outside.clock, counters.interval, leading.load_signals.send)
        tasks.append(Background("network sensor", sensor.run))
    if leading.rate is not None:
        tasks.append(Background("rate", leading.rate.run))
    if reading.notifications is not None:
        tasks.append(Background("notifications", reading.notifications.run, reading.notifications.close))
    return tasks


def _service_parts(requests: Requests, runtime: Runtime) -> ServiceParts:
    leading, reading = requests.leading, requests.leading.reading
    out = reading.outside
    return ServiceParts(
        loaded=reading.loaded,
        clock=out.clock,
        coordination=out.coordination,
        ownership=out.ownership,
        metadata=out.metadata,
        journal=reading.journal,
        telemetry=out.telemetry,
        leadership=reading.leadership,
        shared_state=reading.shared_state,
        cycle=leading.cycle,
        config=out.config,
        policies=reading.policies,
        runtime=runtime,
        operator_requests=requests.operator_requests,
        plans=requests.plans,
        load_signals=leading.load_signals,
        effective_parameters=leading.effective_parameters,
        features=leading.features.services,
        context=partial(context, reading.loaded.settings, out, reading.channel),
        channel=reading.channel,
        outage=reading.outage,
    )
