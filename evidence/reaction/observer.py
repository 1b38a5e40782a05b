"""Measure the load of brokers during a run, once per second, from outside.

The load comes from the messages that brokers acknowledged to clients, and from the bundles that brokers list as their
own. The sidecar is not used. The brokers' statistics are not used either, because by default they are a minute old.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

import httpx

from dev.cluster import BrokerInfo
from dev.traffic import Traffic, TrafficError
from evidence.reaction.figures import Sample, loads_by_owner, owners_of, rates

POLL_SECONDS = 1.0
# The rate of a topic is its mean over the last half minute. So a move does not look like a loss of load, and clients
# that catch up do not look like more load. The owner is that of the current second. In runs whose load changes, the
# period is shorter.
RATE_SECONDS = 30.0
STEP_RATE_SECONDS = 5.0
_LEAST_SECONDS = 3.0
_TIMEOUT_SECONDS = 10.0


class Observer:
    """A context manager whose thread adds a sample to `samples` every second. `samples` can be read at any time."""

    def __init__(self, traffic: Traffic, brokers: Sequence[BrokerInfo], cluster: str) -> None:
        self.samples: list[Sample] = []
        # Set when the clients' counts cannot be read any more; the run then fails.
        self.failure: str = ""
        self._traffic = traffic
        self._cluster = cluster
        self._brokers = list(brokers)
        self._namespace = f"{traffic.spec.namespace}/"
        self._rate_seconds = STEP_RATE_SECONDS if traffic.spec.least_rate else RATE_SECONDS
        self._bundle_of = {plan.topic: plan.bundle for plan in traffic.prepare()}
        self._claims: dict[str, list[str]] = {broker.broker_id: [] for broker in brokers}
        self._counts: deque[tuple[float, dict[str, int]]] = deque()
        self._halt = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="observer", daemon=True)

    def __enter__(self) -> Observer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._halt.set()
        self._thread.join()

    def _watch(self) -> None:
        with ThreadPoolExecutor(len(self._brokers)) as pool, httpx.Client(timeout=_TIMEOUT_SECONDS) as http:
            due = time.monotonic()
            while not self._halt.wait(max(0.0, due - time.monotonic())):
                due = time.monotonic() + POLL_SECONDS
                try:
                    self._look(pool, http)
                except TrafficError as error:
                    self.failure = str(error)
                    return

    def _look(self, pool: ThreadPoolExecutor, http: httpx.Client) -> None:
        """Query clients and brokers. Add a sample if there are older message counts from which rates can be
        computed.
        """
        self._counts.append((time.monotonic(), self._traffic.acked()))
        for broker, bundles in pool.map(lambda info: (info.broker_id, self._owned(http, info)), self._brokers):
            # A broker that does not respond in time keeps the bundles of its last response.
            if bundles is not None:
                self._claims[broker] = bundles
        now, newest = self._counts[-1]
        while len(self._counts) > 2 and now - self._counts[1][0] >= self._rate_seconds:
            self._counts.popleft()
        then, oldest = self._counts[0]
        if now - then < _LEAST_SECONDS:
            return
        owners = owners_of(self._claims, self.samples[-1].owners if self.samples else {})
        per_topic = rates(newest, oldest, now - then)
        loads = loads_by_owner(per_topic, self._bundle_of, owners, self._claims)
        self.samples.append(Sample(at=time.monotonic(), loads=loads, owners=owners))

    def _owned(self, http: httpx.Client, broker: BrokerInfo) -> list[str] | None:
        path = f"/admin/v2/brokers/{self._cluster}/{broker.broker_id}/ownedNamespaces"
        try:
            answer = http.get(f"{broker.web_url}{path}")
        except httpx.ConnectError:
            # No process listens: a stopped broker owns nothing.
            return []
        except httpx.TransportError:
            return None
        if answer.status_code != 200:
            return None
        return [bundle for bundle in answer.json() if bundle.startswith(self._namespace)]
