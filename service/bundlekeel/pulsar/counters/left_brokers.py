"""Reads the counters of brokers that left the registry, because such a broker may still serve topics.

A broker whose session expired, for example after a long pause, leaves the registry. Other brokers then load its topics.
Until it notices that, its clients can still use the topics at this broker, and only its counters show it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bundlekeel.model.counters import CounterReading, measured
from bundlekeel.model.double_service import DoubleService
from bundlekeel.model.errors import AdminApiError, CodecError, ConnectionRefused, StoreError
from bundlekeel.model.load import BrokerEndpoint
from bundlekeel.ports import Clock, TopicCounters
from bundlekeel.pulsar.counters.demand import QUICK_REST, CounterOptions

# A broker that is paused does not respond, and may continue much later. Each sign of double service restarts it.
LEFT_SECONDS: Final = 600.0


@dataclass(slots=True, kw_only=True)
class _LeftBroker:
    """A broker that left the registry. Times in seconds are since the machine's boot."""

    endpoint: BrokerEndpoint
    left_at: float
    """When it left, or the last reading while it was reported."""
    due_at: float = float("-inf")
    """Earliest start of the next reading."""
    reading: CounterReading | None = None
    task: asyncio.Task[None] | None = None


class LeftBrokers:
    """The brokers that left the registry recently, and whose process may still run.

    `edges`: returns the bundle boundaries of namespaces.
    """

    def __init__(
        self,
        counters: TopicCounters,
        clock: Clock,
        double_service: DoubleService,
        edges: Callable[[set[str]], Awaitable[Mapping[str, Sequence[int]]]],
        options: CounterOptions,
    ) -> None:
        self._counters = counters
        self._clock = clock
        self._double_service = double_service
        self._edges = edges
        self._options = options
        self._brokers: dict[str, _LeftBroker] = {}

    def add(self, endpoint: BrokerEndpoint) -> None:
        """Start to read a broker that left the registry."""
        self._brokers[endpoint.broker_id] = _LeftBroker(endpoint=endpoint, left_at=self._clock.boot())

    def remove(self, endpoint: BrokerEndpoint) -> None:
        """Stop reading a broker that is registered again, perhaps with a new process."""
        broker = self._brokers.pop(endpoint.broker_id, None)
        if broker is None:
            return
        if broker.task is not None:
            broker.task.cancel()
        if broker.endpoint.start_timestamp == endpoint.start_timestamp:
            self._double_service.forget(endpoint.broker_id)
        else:
            self._double_service.end(endpoint.broker_id)

    def read_due(self) -> None:
        """Start the readings that are due, and drop the brokers that left long ago."""
        now = self._clock.boot()
        for broker in list(self._brokers.values()):
            if now >= broker.left_at + LEFT_SECONDS:
                self._drop(broker)
            elif broker.task is None and now >= broker.due_at:
                name = f"counters of {broker.endpoint.broker_id}, which left"
                broker.task = asyncio.create_task(self._read(broker), name=name)

    def clear(self) -> list[asyncio.Task[None]]:
        """Drop all brokers. Returns the cancelled readings."""
        tasks = [broker.task for broker in self._brokers.values() if broker.task is not None]
        for task in tasks:
            task.cancel()
        self._brokers = {}
        return tasks

    def _drop(self, broker: _LeftBroker) -> None:
        broker_id = broker.endpoint.broker_id
        if self._brokers.get(broker_id) is broker:
            del self._brokers[broker_id]
            self._double_service.end(broker_id)

    async def _read(self, broker: _LeftBroker) -> None:
        """Read one broker, and drop it if its host refuses connections: the process has ended."""
        started, pause = self._clock.boot(), self._options.interval
        try:
            reading = (await self._counters.counters(broker.endpoint))[-1]
            # A broker that was stopped during the reading seems slow.
            pause = min(pause, max(self._options.quick_interval, QUICK_REST * (self._clock.boot() - started)))
            if broker.reading is not None:
                edges = await self._edges(set(reading.namespaces))
                load = await asyncio.to_thread(measured, broker.reading, reading, edges)
                if load is not None:
                    self._double_service.add(broker.endpoint.broker_id, load.growth)
                if self._double_service.names(broker.endpoint.broker_id):
                    broker.left_at = started
            broker.reading = reading
        except ConnectionRefused:
            self._drop(broker)
        except (AdminApiError, CodecError, StoreError):
            broker.reading = None
        finally:
            broker.due_at, broker.task = self._clock.boot() + pause, None
