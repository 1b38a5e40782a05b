"""Clients that publish more than their limit: `python -m tests.quotas.load` with a job as JSON on standard input.

Every topic has its own client and so its own connections: Pulsar throttles connections, and topics that share one slow
each other down. The numbers acknowledged and received so far are printed twice per second, one JSON line each. Ends
when its input ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections import Counter
from functools import partial
from typing import Any

import pulsar

from tests.quotas.stage import EVERY_SECONDS

PENDING = 30
# Sends are paced in steps of this; what does not pass is waited for, not made up later.
STEP_SECONDS = 0.05


class Load:
    """Topics by name with messages/s wanted."""

    def __init__(self, service_url: str, topics: dict[str, float], payload: int, *, consume: bool) -> None:
        self.acked: Counter[str] = Counter()
        self.received: Counter[str] = Counter()
        self._url, self._payload = service_url, b"x" * payload
        for topic, rate in topics.items():
            threading.Thread(target=self._publish, args=(topic, rate), daemon=True).start()
            if consume:
                threading.Thread(target=self._consume, args=(topic,), daemon=True).start()

    def _client(self) -> Any:
        logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        return pulsar.Client(self._url, logger=logger, io_threads=1, message_listener_threads=1)

    def _publish(self, topic: str, rate: float) -> None:
        producer = self._client().create_producer(
            topic,
            batching_enabled=False,
            block_if_queue_full=True,
            max_pending_messages=PENDING,
            message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution,
            send_timeout_millis=0,
        )
        debt, last = 0.0, time.monotonic()
        while True:
            time.sleep(STEP_SECONDS)
            now = time.monotonic()
            debt, last = min(debt + rate * (now - last), max(1.0, rate)), now
            while debt >= 1:
                debt -= 1
                with contextlib.suppress(pulsar.PulsarException):
                    producer.send_async(self._payload, partial(self._on_sent, topic))

    def _on_sent(self, topic: str, result: Any, _id: Any) -> None:
        if result == pulsar.Result.Ok:
            self.acked[topic] += 1

    def _consume(self, topic: str) -> None:
        consumer = self._client().subscribe(
            topic, f"all-{os.getpid()}", initial_position=pulsar.InitialPosition.Latest, receiver_queue_size=200
        )
        while True:
            message = consumer.receive()
            self.received[topic] += 1
            consumer.acknowledge(message)


def main() -> None:
    """Run one job until standard input ends."""
    job = json.loads(sys.stdin.readline())
    load = Load(job["service_url"], job["topics"], job["payload"], consume=job["consume"])
    threading.Thread(target=_end_with_input, daemon=True).start()
    while True:
        counts = {"at": time.monotonic(), "acked": dict(load.acked), "received": dict(load.received)}
        sys.stdout.write(json.dumps(counts) + "\n")
        sys.stdout.flush()
        time.sleep(EVERY_SECONDS)


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
