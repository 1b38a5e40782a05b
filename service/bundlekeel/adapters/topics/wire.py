"""What the daemon and the process that holds pulsar-client say to each other: JSON, one message a line.

Secrets travel in `Setup` over the child's standard input, never as arguments or in the environment, which other
processes could read.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

Topic = Literal["load", "bundles", "channel", "usage"]
BEAT_SECONDS: Final = 1.0
# What the child exits with when pulsar-client cannot be imported.
EXIT_MISSING: Final = 3


class _Line(msgspec.Struct, frozen=True, tag_field="t", tag=str.lower, omit_defaults=True):
    pass


# --- to the child ------------------------------------------------------------------------------------------


class Setup(_Line, frozen=True, kw_only=True):
    """The first line. `url` may name several brokers. Payloads above `max_bytes` are not passed on. Any other
    topic than the channel from which nothing was received for `quiet_after` seconds is opened anew."""

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
    """Read these topics too, or again from their beginning."""

    topics: tuple[Topic, ...]


class Sync(_Line, frozen=True):
    """Answer `Synced` once everything published to the channel before this line was delivered."""

    id: int


# --- from the child ----------------------------------------------------------------------------------------


class Beat(_Line, frozen=True):
    """Every second, as long as all readers' threads move on."""


class Opened(_Line, frozen=True):
    """A new reader: the channel is read from its beginning, the others from now on."""

    topic: Topic


class Live(_Line, frozen=True):
    """Everything there was has been delivered, and what comes will be."""

    topic: Topic


class Lost(_Line, frozen=True):
    """The topic is not being read, and why; what is published meanwhile is missed, but for the channel. Said again for
    another reason."""

    topic: Topic
    detail: str


class Message(_Line, frozen=True, kw_only=True):
    """One message; `data` empty is a tombstone, None one of `size` bytes that was too large to pass on."""

    topic: Topic
    key: str
    data: bytes | None
    size: int
    published_ms: int


class Synced(_Line, frozen=True):
    """See `Sync`."""

    id: int


ToChild = Setup | Follow | Sync
FromChild = Beat | Opened | Live | Lost | Message | Synced

_encoder = msgspec.json.Encoder()
decode_to_child: Final = msgspec.json.Decoder(ToChild).decode
decode_from_child: Final = msgspec.json.Decoder(FromChild).decode


def encode(line: ToChild | FromChild) -> bytes:
    """One line with its end."""
    return _encoder.encode(line) + b"\n"
