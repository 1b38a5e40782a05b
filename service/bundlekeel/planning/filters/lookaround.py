"""Full match of Java expressions with look-around, which RE2 does not have, in polynomial time.

Each part of an expression returns the places in the text at which a match of it can end, as bits of an integer. A part
is computed once for each place at which it can start, so there is no backtracking.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol


class Part(Protocol):
    """One part of a regular expression."""

    def ends(self, subject: Subject, at: int) -> int:
        """Return the places (bits) at which a match of the part that starts at `at` can end; 0: it does not match."""


class Subject:
    """A string to match, with the cached results of all parts."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._cache: dict[tuple[int, int], int] = {}

    def ends(self, part: Part, at: int) -> int:
        """Return the result of `part.ends`, which is computed only once for each place."""
        key = id(part), at
        if key not in self._cache:
            self._cache[key] = part.ends(self, at)
        return self._cache[key]

    def through(self, part: Part, places: int) -> int:
        """Return the places (bits) at which a match of the part can end if it starts at any of `places` (bits)."""
        result = 0
        for at in _bits(places):
            result |= self.ends(part, at)
        return result

    def is_word(self, at: int) -> bool:
        """Return whether the character at `at` belongs to a word (Java's \\w); False outside of the text."""
        here = self.text[at : at + 1] if at >= 0 else ""
        return here.isascii() and (here.isalnum() or here == "_")


def fullmatch(part: Part, text: str) -> bool:
    """Return whether the expression `part` matches the whole text."""
    return bool(Subject(text).ends(part, 0) >> len(text) & 1)


def _bits(places: int) -> Iterator[int]:
    while places:
        lowest = places & -places
        yield lowest.bit_length() - 1
        places ^= lowest


@dataclass(frozen=True, slots=True, eq=False)
class Character:
    """One character, if `accepts` is true for it. `accepts` is called once per different character."""

    accepts: Callable[[str], bool]
    _cache: dict[str, bool] = field(default_factory=dict)

    def ends(self, subject: Subject, at: int) -> int:
        """Return the place after the character, as a bit; 0 if it is not accepted."""
        here = subject.text[at : at + 1]
        if here and here not in self._cache:
            self._cache[here] = self.accepts(here)
        return 1 << at + 1 if here and self._cache[here] else 0


@dataclass(frozen=True, slots=True, eq=False)
class Boundary:
    """A condition on a place in the text, such as the start of a word. It matches no character."""

    holds: Callable[[Subject, int], bool]

    def ends(self, subject: Subject, at: int) -> int:
        """Return the same place, as a bit, if the condition is true there; 0: it is not."""
        return 1 << at if self.holds(subject, at) else 0


@dataclass(frozen=True, slots=True, eq=False)
class Sequence:
    """Parts that match one after the other."""

    parts: tuple[Part, ...]

    def ends(self, subject: Subject, at: int) -> int:
        """Return the places (bits) at which a match of all parts in a row can end."""
        places = 1 << at
        for part in self.parts:
            places = subject.through(part, places)
        return places


@dataclass(frozen=True, slots=True, eq=False)
class Either:
    """Alternative parts, of which one must match."""

    parts: tuple[Part, ...]

    def ends(self, subject: Subject, at: int) -> int:
        """Return the places (bits) at which a match of any of the parts can end."""
        result = 0
        for part in self.parts:
            result |= subject.ends(part, at)
        return result


@dataclass(frozen=True, slots=True, eq=False)
class Repeat:
    """A part that matches `least` to `most` times in a row; `most` None: any number of times."""

    part: Part
    least: int
    most: int | None

    def ends(self, subject: Subject, at: int) -> int:
        """Return the places (bits) at which the repeated matches can end."""
        places = 1 << at
        for _ in range(self.least):
            after = subject.through(self.part, places)
            if after == places:
                break
            places = after
        result, rest = places, -1 if self.most is None else self.most - self.least
        while places and rest:
            places = subject.through(self.part, places) & ~result
            result |= places
            rest -= 1
        return result


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """Look-ahead, or look-behind (`behind`): the part must match after (before) the place, or must not (`negative`)."""

    part: Part
    behind: bool
    negative: bool

    def ends(self, subject: Subject, at: int) -> int:
        """Return the same place, as a bit, if the condition is true there; 0: it is not."""
        if self.behind:
            matched = any(subject.ends(self.part, start) >> at & 1 for start in range(at + 1))
        else:
            matched = subject.ends(self.part, at) != 0
        return 1 << at if matched != self.negative else 0


_START: Final = Boundary(lambda _, at: at == 0)
_END: Final = Boundary(lambda subject, at: at == len(subject.text))
# In Java's spelling. Java's `$` and `\Z` also match before a line end, but names do not contain line ends.
BOUNDARIES: Final = {
    "^": _START,
    "\\A": _START,
    "$": _END,
    "\\z": _END,
    "\\Z": _END,
    "\\b": Boundary(lambda subject, at: subject.is_word(at - 1) != subject.is_word(at)),
    "\\B": Boundary(lambda subject, at: subject.is_word(at - 1) == subject.is_word(at)),
}
