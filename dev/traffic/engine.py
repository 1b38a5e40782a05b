"""Pulsar clients and the pacer that feeds them. Imported only in the generator's own process:
the client library must never be forked after it was imported.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pulsar

from dev.traffic.meters import Latencies
from dev.traffic.report import TrafficReport
from dev.traffic.spec import DRAIN_AT_MOST_SECONDS, TopicPlan, TrafficError, TrafficSpec
from dev.traffic.topic import MAX_PENDING, TopicState

SUBSCRIPTION = "traffic-check"
TICK_SECONDS = 0.01
# After a pause the pacer sends the messages of at most this time; the others count as skipped.
CATCH_UP_SECONDS = 0.5
ACK_EVERY_SECONDS = 1.0
OPENERS = 4


class Engine:
    """The Pulsar clients of all topics, in one run of the traffic generator."""

    def __init__(self, spec: TrafficSpec, plans: Sequence[TopicPlan], client_log: str) -> None:
        """Prepare the clients without connecting; ``client_log`` is the file of the client library's own log."""
        self._spec = spec
        run = secrets.randbits(63)
        self._topics = [TopicState(plan, spec.least_rate or plan.rate, spec, run) for plan in plans]
        self._rates = [plan.rate for plan in plans]
        self._client: Any = pulsar.Client(
            spec.service_url,
            operation_timeout_seconds=10,
            connection_timeout_ms=3000,
            io_threads=1,
            message_listener_threads=1,
            stats_interval_in_seconds=0,
            logger=pulsar.FileLogger(pulsar.LoggerLevel.Warn, client_log),
            **_secured(spec),
        )
        self._producers: list[Any] = []
        self._halt = threading.Event()
        self._pacer: threading.Thread | None = None
        self._skipped = 0
        self._stall = 0.0
        self._began = self._ended = 0.0
        self._began_wall_ms = 0.0

    # --- life ------------------------------------------------------------------------------

    def start(self) -> None:
        """Open all clients, wait until each topic has delivered one message, then start steady traffic.

        Raises TrafficError if this takes longer than the spec's ``start_seconds``.
        """
        deadline = time.monotonic() + self._spec.start_seconds
        with ThreadPoolExecutor(OPENERS) as pool:
            self._producers = list(pool.map(partial(self._open, deadline=deadline), self._topics))
        for state, producer in zip(self._topics, self._producers, strict=True):
            self._send_new(state, producer)
        while waiting := [s.plan.topic for s in self._topics if not s.received.count or not s.acked.count]:
            if time.monotonic() > deadline:
                raise TrafficError(f"no first message through {len(waiting)} topics, such as {waiting[0]}")
            self._retry(time.monotonic())
            time.sleep(TICK_SECONDS)
        self._began, self._began_wall_ms = time.monotonic(), 1000 * time.time()
        for state in self._topics:
            state.restart_meters(self._began)
        self._pacer = threading.Thread(target=self._pace, name="pacer", daemon=True)
        self._pacer.start()

    def stop(self) -> TrafficReport:
        """Stop publishing, wait as long as messages still arrive, and return the final report."""
        self._halt.set()
        if self._pacer is not None:
            self._pacer.join()
        self._ended = now = time.monotonic()
        received, deadline = -1, now
        # Messages count as lost only when no more messages arrive, because a slow consumer loses none.
        while now <= deadline and any(s.unsettled or s.unconsumed for s in self._topics):
            if (count := sum(s.received.count for s in self._topics)) > received:
                received, deadline = count, min(now + self._spec.drain_seconds, self._ended + DRAIN_AT_MOST_SECONDS)
            self._retry(now)
            # Pause between two checks, because counting missing messages uses CPU that the consumers need.
            time.sleep(10 * TICK_SECONDS)
            now = time.monotonic()
        return self.report(final=True)

    def close(self) -> None:
        """Close the clients; this may take until their pending operations time out."""
        self._client.close()

    def _open(self, state: TopicState, deadline: float) -> Any:
        """Create a topic's consumer and then its producer, so that the consumer receives all messages."""
        self._persist(deadline, partial(self._subscribe, state))
        create = partial(
            self._client.create_producer,
            state.plan.topic,
            max_pending_messages=MAX_PENDING,
            block_if_queue_full=False,
            batching_enabled=self._spec.batching,
            batching_max_publish_delay_ms=self._spec.batch_delay_ms,
            batching_max_messages=self._spec.batch_messages,
        )
        return self._persist(deadline, create)

    def _subscribe(self, state: TopicState) -> Any:
        return self._client.subscribe(
            state.plan.topic,
            SUBSCRIPTION,
            # Not failover: there the broker holds back messages for 1 s after every reconnect
            # (activeConsumerFailoverDelayTimeMillis), which would hide how long a move takes.
            consumer_type=pulsar.ConsumerType.Exclusive,
            initial_position=pulsar.InitialPosition.Earliest,
            receiver_queue_size=500,
            message_listener=_Listener(state),
        )

    @staticmethod
    def _persist(deadline: float, operation: Callable[[], Any]) -> Any:
        """Repeat an operation until it succeeds, because brokers may not be ready yet. Raises TrafficError after the
        deadline.
        """
        while True:
            try:
                return operation()
            except pulsar.PulsarException as error:
                if time.monotonic() > deadline:
                    raise TrafficError(f"the Pulsar client cannot connect: {error}") from error
                time.sleep(0.25)

    def set_rates(self, rates: Mapping[str, float]) -> None:
        """Publish with these rates (messages/s by topic) from now on."""
        self._rates = [rates[state.plan.topic] for state in self._topics]

    # --- sending ---------------------------------------------------------------------------

    def _pace(self) -> None:
        """Send the messages that are due, every ``TICK_SECONDS``, until the engine is stopped."""
        rates = self._rates
        due = [self._began + index / len(rates) / rate for index, rate in enumerate(rates)]
        before = time.monotonic()
        while not self._halt.wait(TICK_SECONDS):
            now = time.monotonic()
            self._stall = max(self._stall, now - before - TICK_SECONDS)
            before = now
            self._retry(now)
            if rates is not self._rates:
                rates = self._rates
                due = [now + index / len(rates) / rate for index, rate in enumerate(rates)]
            for index, state in enumerate(self._topics):
                due[index] = self._send_due(state, self._producers[index], 1 / rates[index], due[index], now)

    def _send_due(self, state: TopicState, producer: Any, interval: float, due: float, now: float) -> float:
        if now - due > CATCH_UP_SECONDS + interval:
            behind = int((now - CATCH_UP_SECONDS - due) / interval)
            self._skipped += behind
            due += behind * interval
        while due <= now:
            due += interval
            if not self._send_new(state, producer):
                self._skipped += 1
        return due

    def _send_new(self, state: TopicState, producer: Any) -> bool:
        message = state.next_message()
        if message is None:
            return False
        self._send(state, producer, *message)
        return True

    def _retry(self, now: float) -> None:
        for state, producer in zip(self._topics, self._producers, strict=True):
            while (message := state.due_retry(now)) is not None:
                self._send(state, producer, *message)

    @staticmethod
    def _send(state: TopicState, producer: Any, seq: int, first_ns: int) -> None:
        sent = time.monotonic()

        def settled(result: Any, _: object) -> None:
            now = time.monotonic()
            if result == pulsar.Result.Ok:
                state.on_acked(seq, sent, now)
            else:
                state.on_failed(seq, first_ns, now, str(result).rpartition(".")[2])

        try:
            producer.send_async(state.payload(seq, first_ns), settled)
        except pulsar.PulsarException as error:
            state.on_failed(seq, first_ns, sent, type(error).__name__)

    # --- reporting -------------------------------------------------------------------------

    def acked(self) -> dict[str, int]:
        """Return the number of acknowledged messages of each topic so far. This can be called every second."""
        return {state.plan.topic: state.acked.count for state in self._topics}

    def report(self, final: bool = False) -> TrafficReport:
        """Return the measurements so far."""
        until = self._ended or time.monotonic()
        topics = [state.report(final) for state in self._topics]
        publish = Latencies.joined(s.publish for s in self._topics)
        end_to_end = Latencies.joined(s.end_to_end for s in self._topics)
        errors: Counter[str] = Counter()
        for state in self._topics:
            errors.update(dict(state.errors))
        gaps = [gap for state in self._topics for gap in state.gaps(until)]
        counts = (
            "sent",
            "acked",
            "consumed",
            "unconsumed",
            "lost",
            "duplicated",
            "redelivered",
            "failed_sends",
        )
        return TrafficReport(
            started_wall_ms=self._began_wall_ms,
            seconds=until - self._began,
            final=final,
            **{name: sum(getattr(topic, name) for topic in topics) for name in counts},
            skipped=self._skipped,
            errors=dict(errors),
            publish_gap_seconds=max(t.publish_gap_seconds for t in topics),
            consume_gap_seconds=max(t.consume_gap_seconds for t in topics),
            publish_p50_ms=publish.quantile(0.5),
            publish_p99_ms=publish.quantile(0.99),
            publish_max_ms=publish.max_ms,
            end_to_end_p50_ms=end_to_end.quantile(0.5),
            end_to_end_p99_ms=end_to_end.quantile(0.99),
            end_to_end_max_ms=end_to_end.max_ms,
            stall_seconds=self._stall,
            cpu_seconds=time.process_time(),
            topics=topics,
            gaps=sorted(gaps, key=lambda gap: gap.start_wall_ms),
        )


class _Listener:
    """Receives a topic's messages, and acknowledges all up to the newest once per second.

    One cumulative acknowledgement per second is much cheaper than one per message. Because of it, a move redelivers
    messages; their message ids distinguish these from real duplicates.
    """

    def __init__(self, state: TopicState) -> None:
        self._state = state
        self._acked_at = 0.0

    def __call__(self, consumer: Any, message: Any) -> None:
        now = time.monotonic()
        place = message.message_id()
        key = (place.ledger_id(), place.entry_id(), place.batch_index())
        self._state.on_message(message.data(), key, now)
        if now - self._acked_at < ACK_EVERY_SECONDS:
            return
        self._acked_at = now
        try:
            consumer.acknowledge_cumulative(message)
        except pulsar.PulsarException:
            # The client is disconnected now. The acknowledgement of the next message includes this one.
            self._acked_at = 0.0


def _secured(spec: TrafficSpec) -> dict[str, Any]:
    if spec.identity is None:
        return {}
    return {
        "authentication": pulsar.AuthenticationToken(spec.identity.token),
        "tls_trust_certs_file_path": spec.identity.ca_file,
        "tls_validate_hostname": True,
    }
