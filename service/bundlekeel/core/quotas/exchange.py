"""What participants tell each other (PIP-82), memory in and memory out: who reports what when, and who takes part.

A participant reports a topic when its usage changed by 10 %, when it starts or ends, and every N cycles anyway. Beyond
the PIP it also reports when the topic comes to or leaves its limit: a change of less than 10 % would hide exactly the
topics that are held back. A topic that reports 0 claims nothing any more at once. One that vanishes (its bundle is on
its way to another broker, or its broker is gone) is told as gone. A participant whose ephemeral node is gone, or that
was silent for twice N cycles although nobody failed to reach it, takes no part.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from bundlekeel.core.load import Ints
from bundlekeel.core.quotas.columns import some
from bundlekeel.core.quotas.lines import Lines, found_in, joined, together
from bundlekeel.core.snapshot import Bools

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
    """What those who speak in one cycle (`told.participants`) tell, one message each. `told` replaces what they said of
    these topics before; `gone`: rows of topics that are no longer there."""

    told: Lines = field(default_factory=Lines)
    gone: Lines = field(default_factory=Lines)

    @property
    def messages(self) -> int:
        """How many have something to say; empty messages are not sent."""
        names = [table.participants[row] for table in (self.told, self.gone) for row in np.unique(table.participant)]
        return len(set(names))

    def wire_bytes(self) -> int:
        """The size of all messages by the thread's own estimate."""
        rows, gone = len(self.told), len(self.gone)
        return self.messages * PARTICIPANT_BYTES + rows * (KEY_BYTES + USAGE_BYTES) + gone * KEY_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What participants said last of each topic, and how many cycles ago."""

    lines: Lines = field(default_factory=Lines)
    age: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def only(self, participants: Collection[str]) -> Said:
        """Without those that are gone."""
        if all(name in participants for name in self.lines.participants):
            return self
        stays = np.array([name in participants for name in self.lines.participants], dtype=bool)
        return Said(lines=self.lines.only(participants), age=self.age[stays[self.lines.participant]])


def report(now: Lines, said: Said, manners: Manners) -> tuple[Report, Said]:
    """What to tell of this cycle, and what has then been said. `now.participants` are those who speak, also without
    any topic; what others said stays."""
    speakers = set(now.participants)
    now, last = together(now, said.lines)
    speaks = np.array([name in speakers for name in now.participants], dtype=bool)
    place, known = found_in(now.ids(), last.ids())
    age = np.zeros(len(now), dtype=np.int64)
    if len(last):
        age = np.where(known, said.age[place] + 1, 0)
    told = ~known | (age >= manners.every)
    if len(last) and not told.all():
        told |= _changed(last.take(place), now, manners)
    stays = np.zeros(len(last), dtype=bool)
    stays[place[known]] = True
    mine = speaks[last.participant]
    # Who speaks has said what is there now; where it was not told, what it had said before.
    current = now if told.all() else _recalled(now, last, np.flatnonzero(~told), place)
    ages = np.where(told, 0, age)
    rest = ~mine
    if rest.any():
        merged = joined(current, last.take(rest))
        order = np.argsort(np.concatenate([current.ids(), last.ids()[rest]]), kind="stable")
        current, ages = merged, np.concatenate([ages, said.age[rest]])[order]
    message = Report(told=now.take(told).only(speakers), gone=last.take(mine & ~stays).only(speakers))
    return message, Said(lines=current.trimmed(), age=ages)


def _recalled(now: Lines, last: Lines, rows: Ints, place: Ints) -> Lines:
    """What is there now, with the values said last in some of the rows."""
    columns = {}
    for name in ("usage", "peak", "pinched", "partitions"):
        column = getattr(now, name).copy()
        column[rows] = getattr(last, name).take(place[rows], axis=0)
        columns[name] = column
    return replace(now, **columns)


def _changed(before: Lines, now: Lines, manners: Manners) -> Bools:
    found: Bools = (before.partitions != now.partitions) | (some(before.usage != 0) != some(now.usage != 0))
    if manners.tell_limits:
        found |= some(before.pinched != now.pinched)
    for old, new in ((before.usage, now.usage), (before.peak, now.peak)):
        change = new - old
        found |= some(np.abs(change, out=change) > manners.change * old)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Book:
    """What every participant said last. `silent`: cycles since its last message."""

    lines: Lines = field(default_factory=Lines)
    silent: Mapping[str, int] = field(default_factory=dict)


def merge(book: Book, message: Report, alive: Collection[str], manners: Manners, mute: Collection[str] = ()) -> Book:
    """The book after one cycle. `alive`: participants whose ephemeral node exists; what others said is dropped. `mute`:
    those that were asked and did not answer: they still serve what they did, however long that lasts."""
    silent = {name: count + (name not in mute) for name, count in book.silent.items() if name in alive}
    silent |= {name: 0 for name in message.told.participants if name in alive}
    heard = {name for name, count in silent.items() if count <= 2 * manners.every}
    before, told = together(book.lines.only(heard), message.told.only(heard))
    stays = _without(before, told)
    if len(message.gone):
        before, gone = together(before, message.gone.only(heard))
        told = told.over(before.participants, before.keys)
        stays &= _without(before, gone)
    return Book(lines=joined(told, before.take(stays)).trimmed(), silent=silent)


def _without(lines: Lines, others: Lines) -> Bools:
    """The rows that are not among others (few, mostly), over the same names."""
    stays = np.ones(len(lines), dtype=bool)
    place, there = found_in(others.ids(), lines.ids())
    stays[place[there]] = False
    return stays
