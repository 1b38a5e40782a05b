"""What participants tell each other (PIP-82), memory in and memory out: who reports what when, and who takes part.

A participant reports a topic when its usage changed by 10 %, when it starts or ends, and every N cycles anyway. Beyond
the PIP it also reports when the topic comes to or leaves its limit: a change of less than 10 % would hide exactly the
topics that are held back. A topic that reports 0 claims nothing any more at once. One that vanishes (its bundle is on
its way to another broker, or its broker is gone) is told as gone. A participant whose ephemeral node is gone, or that
was silent for twice N cycles, takes no part.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from bundlekeel.core.quotas.usage import Key, Line

# The thread's own estimate: 16 bytes for messages and bytes of one direction, names of 80 and 40 bytes.
USAGE_BYTES: Final = 32
KEY_BYTES: Final = 80
PARTICIPANT_BYTES: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Manners:
    """`change`: from which part of the last reported usage on a change is told. `every`: cycles after which a topic
    is told anyway. `tell_limits`: also when a topic comes to or leaves its limit (not in the PIP)."""

    change: float = 0.10
    every: int = 5
    tell_limits: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One message of a participant. `lines` replace what it said of these topics before; `gone`: no longer there."""

    participant: str
    lines: Mapping[Key, Line] = field(default_factory=dict)
    gone: tuple[Key, ...] = ()

    @property
    def empty(self) -> bool:
        """Nothing to say: not sent."""
        return not self.lines and not self.gone

    def wire_bytes(self) -> int:
        """Its size by the thread's own estimate."""
        return PARTICIPANT_BYTES + len(self.lines) * (KEY_BYTES + USAGE_BYTES) + len(self.gone) * KEY_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a participant said last of each topic, and how many cycles ago."""

    lines: Mapping[Key, tuple[Line, int]] = field(default_factory=dict)


def report(participant: str, now: Mapping[Key, Line], said: Said, manners: Manners) -> tuple[Report, Said]:
    """What to tell of this cycle, and what has then been said."""
    told: dict[Key, Line] = {}
    remembered: dict[Key, tuple[Line, int]] = {}
    for key, line in now.items():
        last, age = said.lines.get(key, (None, 0))
        if last is None or age + 1 >= manners.every or _changed(last, line, manners):
            told[key] = line
            remembered[key] = (line, 0)
        else:
            remembered[key] = (last, age + 1)
    gone = tuple(sorted(key for key in said.lines if key not in now))
    return Report(participant=participant, lines=told, gone=gone), Said(lines=remembered)


def _changed(last: Line, now: Line, manners: Manners) -> bool:
    if last.partitions != now.partitions or last.idle != now.idle:
        return True
    if manners.tell_limits and last.pinched != now.pinched:
        return True
    pairs = (*zip(last.usage, now.usage, strict=True), *zip(last.peak, now.peak, strict=True))
    return any(abs(new - old) > manners.change * old for old, new in pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Book:
    """What every participant said last. `silent`: cycles since its last message."""

    lines: Mapping[str, Mapping[Key, Line]] = field(default_factory=dict)
    silent: Mapping[str, int] = field(default_factory=dict)


def merge(book: Book, reports: Iterable[Report], alive: Collection[str], manners: Manners) -> Book:
    """The book after one cycle. `alive`: participants whose ephemeral node exists; reports of others are dropped.

    Of two reports of one participant the later in the iterable wins; the order of participants makes no difference.
    """
    lines = {name: dict(rows) for name, rows in book.lines.items() if name in alive}
    silent = {name: count + 1 for name, count in book.silent.items() if name in alive}
    for message in reports:
        if message.participant not in alive:
            continue
        rows = lines.setdefault(message.participant, {})
        rows.update(message.lines)
        for key in message.gone:
            rows.pop(key, None)
        silent[message.participant] = 0
    for name, count in silent.items():
        if count > 2 * manners.every:
            lines.pop(name, None)
    return Book(lines={name: rows for name, rows in lines.items() if rows}, silent=silent)
