"""The process that holds pulsar-client: one thread reads one topic, standard output says what came.

A crash or a hang of the native client ends or stills this process and nothing else. It ends when its standard input
does, so it never outlives the daemon, however that ended.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final

from bundlekeel.adapters.topics.wire import (
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
    # An optional package, and a wheel that does not load on this machine is as good as none.
    sys.stderr.write(f"{error}\n")
    sys.exit(EXIT_MISSING)

TOPICS: Final[dict[Topic, str]] = {
    "load": "non-persistent://pulsar/system/loadbalancer-broker-load-data",
    "bundles": "non-persistent://pulsar/system/loadbalancer-top-bundles-load-data",
    "channel": "persistent://pulsar/system/loadbalancer-service-unit-state",
    "usage": "non-persistent://pulsar/system/resource-usage",
}
# Lookups and answers of a broker; the client's own 30 s would hide for that long that a broker is gone.
OPERATION_SECONDS: Final = 5
CONNECT_MS: Final = 3_000
# How long one look for a message lasts, and so how late a question or a lost connection is noticed.
POLL_MS: Final = 50
# The client comes back to a broker by itself, ever more slowly; a new reader looks up where the topic is now.
REOPEN_SECONDS: Final = 2.0
FIRST_RETRY_SECONDS: Final = 0.25
LAST_RETRY_SECONDS: Final = 3.0
# A thread that is in the client for longer than any of its time limits is not going to come back.
HUNG_SECONDS: Final = 30.0


class OutputLines:
    """Standard output, one line at a time from any thread. Without a reader at its other end the process ends."""

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
    """Reads one topic for ever: opens, delivers, and opens anew after whatever goes wrong.

    `moved`: when the thread last showed that it is not stuck (monotonic).
    """

    def __init__(self, topic: Topic, client: pulsar.Client, out: OutputLines, setup: Setup) -> None:
        super().__init__(name=topic, daemon=True)
        self.moved = time.monotonic()
        self._topic: Topic = topic
        self._client = client
        self._out = out
        self._max_bytes = setup.max_bytes
        self._quiet_after = setup.quiet_after
        self._asked: list[int] = []
        self._anew = False
        self._live = False
        self._error = ""

    def ask(self, number: int) -> None:
        """Answer `Synced` when everything published so far was delivered."""
        self._asked.append(number)

    def begin_anew(self) -> None:
        """There is a new listener, which has not received what was read so far."""
        self._anew = True

    def run(self) -> None:
        """See the class."""
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
        """Deliver until the connection has been away for a while, or until it seems to lead nowhere."""
        self._out(Opened(self._topic))
        gone_since: float | None = None
        received = time.monotonic()
        while True:
            self.moved = time.monotonic()
            if self._anew:
                self._anew = False
                self._lost("it is opened anew for another listener")
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
                # A broker that is leader no more may still hold the topic, and no broker publishes there.
                if self._topic != "channel" and self.moved - received > self._quiet_after:
                    self._lost(f"nothing was received for {self._quiet_after:g} s, it is opened anew")
                    return

    def _settle(self, reader: pulsar.Reader) -> None:
        """Say that the reader is at the end of its topic, when that is asked or not known yet, and so."""
        asked = self._asked[:]
        if self._live and not asked:
            return
        # A non-persistent topic has no end to ask for: who is connected gets what comes.
        if self._topic == "channel" and reader.has_message_available():
            return
        if not self._live:
            self._live, self._error = True, ""
            self._out(Live(self._topic))
        for number in asked:
            self._out(Synced(number))
        del self._asked[: len(asked)]

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
    """The client asks for each connection anew: files of tokens are rotated."""

    def current() -> str:
        try:
            return Path(setup.token_file).read_text(encoding="utf-8").strip() if setup.token_file else setup.token
        except (OSError, ValueError) as error:
            # Raised into native code it would end the process; without a token the broker says no.
            sys.stderr.write(f"token file {setup.token_file}: {error}\n")
            return ""

    return current


def _authentication(setup: Setup) -> pulsar.Authentication | None:
    """A token names us; without one the certificate does. With both, TLS shows the certificate all the same."""
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
    """A hung thread stops the beat: its topic would be silent for ever, and only a new process helps."""
    while True:
        found = list(readers.values())
        if all(time.monotonic() - reader.moved < HUNG_SECONDS for reader in found):
            out(Beat())
        time.sleep(BEAT_SECONDS)


def main() -> None:
    """Do what the lines of standard input say, until it ends."""
    # Native code prints to descriptor 1 as well: that must not end up among the lines.
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
    # Closing the client waits for brokers; there is nothing to be lost.
    os._exit(0)


if __name__ == "__main__":
    main()
