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
    """Request to the child: read these topics in addition. For a topic that it reads already, it opens a new reader."""

    topics: tuple[Topic, ...]


class Sync(_Line, frozen=True):
    """Request to the child: send `Synced` after delivery of all channel messages published before this request."""

    id: int


# --- from the child ----------------------------------------------------------------------------------------


class Beat(_Line, frozen=True):
    """Sent by the child every second while none of its reader threads hangs."""


class Opened(_Line, frozen=True):
    """The child has started a new reader. It reads the channel from its start, other topics from now on."""

    topic: Topic


class Live(_Line, frozen=True):
    """The child has delivered all existing messages of the topic; new ones follow as they are published."""

    topic: Topic


class Lost(_Line, frozen=True):
    """The child cannot read the topic now; `detail`: the reason. Sent again if the reason changes.

    Messages published meanwhile are lost, except those of the channel.
    """

    topic: Topic
    detail: str


class Message(_Line, frozen=True, kw_only=True):
    """One message of a topic, from the child. `data`: empty for a tombstone, None if `size` in bytes was too large."""

    topic: Topic
    key: str
    data: bytes | None
    size: int
    published_ms: int


class Synced(_Line, frozen=True):
    """The child's response to the `Sync` with this `id`."""

    id: int


ToChild = Setup | Follow | Sync
FromChild = Beat | Opened | Live | Lost | Message | Synced

_encoder = msgspec.json.Encoder()
decode_to_child: Final = msgspec.json.Decoder(ToChild).decode
decode_from_child: Final = msgspec.json.Decoder(FromChild).decode


def encode(line: ToChild | FromChild) -> bytes:
    """Encode one line, with its line feed."""
    return _encoder.encode(line) + b"\n"
