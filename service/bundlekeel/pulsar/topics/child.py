"""The process that runs pulsar-client: one thread per topic, and messages as lines on standard output.

If the native client crashes or hangs, only this process is affected. It ends when its standard input ends, so it never
outlives the sidecar.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final

from bundlekeel.pulsar.topics.wire import (
    BEAT_SECONDS,
    EXIT_MISSING,
    Beat,
    Follow,
    FromChild,
    Live,
    Lost,
    Message,
    Opened,
    Setup,
    Sync,
    Synced,
    Topic,
    decode_to_child,
    encode,
)

try:
    import pulsar
except ImportError as error:
    # The package pulsar-client is optional. If it cannot be loaded on this machine, it counts as missing.
    sys.stderr.write(f"{error}\n")
    sys.exit(EXIT_MISSING)

TOPICS: Final[dict[Topic, str]] = {
    "load": "non-persistent://pulsar/system/loadbalancer-broker-load-data",
    "bundles": "non-persistent://pulsar/system/loadbalancer-top-bundles-load-data",
    "channel": "persistent://pulsar/system/loadbalancer-service-unit-state",
    "usage": "non-persistent://pulsar/system/resource-usage",
}
# Time limit for lookups and other requests. With the client's default, a failed broker would be noticed after 30 s.
OPERATION_SECONDS: Final = 5
CONNECT_MS: Final = 3_000
# Time limit of one read. Requests and lost connections are noticed after at most this time.
POLL_MS: Final = 50
# After this long without a connection, open a new reader, which looks up the topic's current broker. The client itself
# reconnects to the old one, with growing pauses.
REOPEN_SECONDS: Final = 2.0
FIRST_RETRY_SECONDS: Final = 0.25
LAST_RETRY_SECONDS: Final = 3.0
# A call of the client that takes longer than all its time limits will not return.
HUNG_SECONDS: Final = 30.0


class OutputLines:
    """Writes lines to standard output, from any thread. The process ends if the sidecar no longer reads them."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def __call__(self, line: FromChild) -> None:
        """Write one line."""
        data = encode(line)
        try:
            with self._lock:
                self._stream.write(data)
                self._stream.flush()
        except OSError:
            os._exit(1)


class TopicReader(threading.Thread):
    """Reads one topic without end: opens it, delivers messages, and reopens it after any failure.

    `moved`: last time at which the thread made progress (monotonic, seconds).
    """

    def __init__(self, topic: Topic, client: pulsar.Client, out: OutputLines, setup: Setup) -> None:
        super().__init__(name=topic, daemon=True)
        self.moved = time.monotonic()
        self._topic: Topic = topic
        self._client = client
        self._out = out
        self._max_bytes = setup.max_bytes
        self._quiet_after = setup.quiet_after
        self._sync_requests: list[int] = []
        self._reopen = False
        self._live = False
        self._error = ""

    def ask(self, number: int) -> None:
        """Request the line `Synced(number)` after all messages published so far were delivered."""
        self._sync_requests.append(number)

    def begin_anew(self) -> None:
        """Reopen the topic for a new listener, which has not received the earlier messages."""
        self._reopen = True

    def run(self) -> None:
        """Open and read the topic without end."""
        pause = FIRST_RETRY_SECONDS
        while True:
            self.moved = time.monotonic()
            try:
                reader = self._open()
                pause = FIRST_RETRY_SECONDS
                try:
                    self._read(reader)
                finally:
                    reader.close()
            except pulsar.PulsarException as error:
                self._lost(f"{error}")
            time.sleep(pause)
            pause = min(2 * pause, LAST_RETRY_SECONDS)

    def _open(self) -> pulsar.Reader:
        channel = self._topic == "channel"
        return self._client.create_reader(
            TOPICS[self._topic],
            pulsar.MessageId.earliest if channel else pulsar.MessageId.latest,
            reader_name=f"bundlekeel-{self._topic}",
            is_read_compacted=channel,
        )

    def _read(self, reader: pulsar.Reader) -> None:
        """Deliver messages until the topic must be reopened (connection lost, long silence or a new listener)."""
        self._out(Opened(self._topic))
        gone_since: float | None = None
        received = time.monotonic()
        while True:
            self.moved = time.monotonic()
            if self._reopen:
                self._reopen = False
                self._lost("it is reopened for another listener")
                return
            if reader.is_connected():
                gone_since = None
                self._settle(reader)
            else:
                gone_since = gone_since or self.moved
                self._lost("the connection to the broker is lost")
                if self.moved - gone_since > REOPEN_SECONDS:
                    return
            try:
                self._deliver(reader.read_next(timeout_millis=POLL_MS))
                received = self.moved
            except pulsar.Timeout:
                # The topic may still be open at a former leader broker, to which no broker publishes any more.
                if self._topic != "channel" and self.moved - received > self._quiet_after:
                    self._lost(f"nothing was received for {self._quiet_after:g} s, it is reopened")
                    return

    def _settle(self, reader: pulsar.Reader) -> None:
        """If the reader is at the end of its topic, report that once (`Live`), and respond to sync requests."""
        requests = self._sync_requests[:]
        if self._live and not requests:
            return
        # A non-persistent topic has no end: a connected reader receives new messages.
        if self._topic == "channel" and reader.has_message_available():
            return
        if not self._live:
            self._live, self._error = True, ""
            self._out(Live(self._topic))
        for number in requests:
            self._out(Synced(number))
        del self._sync_requests[: len(requests)]

    def _deliver(self, message: pulsar.Message) -> None:
        data = message.data()
        self._out(
            Message(
                topic=self._topic,
                key=message.partition_key(),
                data=data if len(data) <= self._max_bytes else None,
                size=len(data),
                published_ms=message.publish_timestamp(),
            )
        )

    def _lost(self, error: str) -> None:
        if self._live or error != self._error:
            self._live, self._error = False, error
            self._out(Lost(self._topic, error))


def _token(setup: Setup) -> Callable[[], str]:
    """Return a function that returns the current token. pulsar-client calls it for each connection."""

    def current() -> str:
        try:
            return Path(setup.token_file).read_text(encoding="utf-8").strip() if setup.token_file else setup.token
        except (OSError, ValueError) as error:
            # Do not raise: an exception here would end the process. Without a token the broker rejects the connection.
            sys.stderr.write(f"token file {setup.token_file}: {error}\n")
            return ""

    return current


def _authentication(setup: Setup) -> pulsar.Authentication | None:
    """Return the authentication by token, or else by certificate; None: neither is set."""
    if setup.token or setup.token_file:
        return pulsar.AuthenticationToken(_token(setup))
    return pulsar.AuthenticationTLS(setup.cert, setup.key) if setup.cert else None


def _connect(setup: Setup) -> pulsar.Client:
    return pulsar.Client(
        setup.url,
        authentication=_authentication(setup),
        operation_timeout_seconds=OPERATION_SECONDS,
        connection_timeout_ms=CONNECT_MS,
        tls_trust_certs_file_path=setup.trust_certs or None,
        **({"tls_private_key_file_path": setup.key, "tls_certificate_file_path": setup.cert} if setup.cert else {}),
        tls_allow_insecure_connection=not setup.verify,
        tls_validate_hostname=setup.verify,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )


def _beat(readers: dict[Topic, TopicReader], out: OutputLines) -> None:
    """Send a `Beat` every second, but not while a thread hangs: then the sidecar replaces this process."""
    while True:
        running = list(readers.values())
        if all(time.monotonic() - reader.moved < HUNG_SECONDS for reader in running):
            out(Beat())
        time.sleep(BEAT_SECONDS)


def main() -> None:
    """Execute the sidecar's lines from standard input until it ends."""
    # Native code prints to descriptor 1 as well. Its output must not be mixed with the lines.
    out = OutputLines(os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)
    readers: dict[Topic, TopicReader] = {}
    setup = decode_to_child(sys.stdin.buffer.readline())
    assert isinstance(setup, Setup)
    client = _connect(setup)
    threading.Thread(target=_beat, args=(readers, out), name="beat", daemon=True).start()
    for line in sys.stdin.buffer:
        match decode_to_child(line):
            case Follow(topics):
                for topic in topics:
                    if topic in readers:
                        readers[topic].begin_anew()
                    else:
                        readers[topic] = TopicReader(topic, client, out, setup)
                        readers[topic].start()
            case Sync(number):
                readers["channel"].ask(number)
    # Closing the client waits for brokers, and there is nothing to save.
    os._exit(0)


if __name__ == "__main__":
    main()
