"""Messages between the sidecar and the process that runs pulsar-client: JSON, one message per line."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

Topic = Literal["load", "bundles", "channel", "usage"]
BEAT_SECONDS: Final = 1.0
# Exit code of the child if pulsar-client cannot be imported.
EXIT_MISSING: Final = 3


class _Line(msgspec.Struct, frozen=True, tag_field="t", tag=str.lower, omit_defaults=True):
    pass


# --- to the child ------------------------------------------------------------------------------------------


class Setup(_Line, frozen=True, kw_only=True):
    """The first line to the child. `url`: one or several brokers. Payloads above `max_bytes` are omitted.

    Topics other than the channel are reopened after `quiet_after` seconds without a message."""

    url: str
    token: str = ""
    token_file: str = ""
    trust_certs: str = ""
    cert: str = ""
    key: str = ""
    verify: bool = True
    max_bytes: int
    quiet_after: float


class Follow(_Line, frozen=True):
    """Read these topics, too. A topic that is being read already is read again from its start."""

    topics: tuple[Topic, ...]


class Sync(_Line, frozen=True):
    """Send `Synced` after everything published to the channel before this line was delivered."""

    id: int


# --- from the child ----------------------------------------------------------------------------------------


class Beat(_Line, frozen=True):
    """Sent every second while no reader thread hangs."""


class Opened(_Line, frozen=True):
    """A new reader has started: at the start of the channel, or at new messages of other topics."""

    topic: Topic


class Live(_Line, frozen=True):
    """All existing messages of the topic have been delivered; new ones follow as they are published."""

    topic: Topic


class Lost(_Line, frozen=True):
    """The topic is not being read; `detail`: the reason. Sent again if the reason changes.

    Messages published meanwhile are lost, except those of the channel.
    """

    topic: Topic
    detail: str


class Message(_Line, frozen=True, kw_only=True):
    """One message of a topic. `data`: empty for a tombstone, None if its `size` in bytes was too large."""

    topic: Topic
    key: str
    data: bytes | None
    size: int
    published_ms: int


class Synced(_Line, frozen=True):
    """The response to the `Sync` with this `id`."""

    id: int


ToChild = Setup | Follow | Sync
FromChild = Beat | Opened | Live | Lost | Message | Synced

_encoder = msgspec.json.Encoder()
decode_to_child: Final = msgspec.json.Decoder(ToChild).decode
decode_from_child: Final = msgspec.json.Decoder(FromChild).decode


def encode(line: ToChild | FromChild) -> bytes:
    """Encode one line, with its line feed."""
    return _encoder.encode(line) + b"\n"
