"""Translation of Java's regular expressions to RE2, for isolation policies, which Pulsar matches with `String.matches`.

The author of a policy chooses the expression, so matching must not take exponential time: RE2 never backtracks.
Constructs with another spelling in RE2 are rewritten. `planning/filters/lookaround.py` matches expressions with
look-around. Expressions that neither RE2 nor this module supports (back-references, possessive quantifiers), and
invalid ones, are refused: a policy that cannot be parsed must not count as one that does not match.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final

import re2

from bundlekeel.model.errors import CodecError
from bundlekeel.model.numbers import integer
from bundlekeel.planning.filters.lookaround import (
    BOUNDARIES,
    Character,
    Either,
    Look,
    Part,
    Repeat,
    Sequence,
    fullmatch,
)

# Pulsar's names are short; a longer expression is a mistake or an attack.
MAX_CHARACTERS = 4096
# Memory of one compiled expression. Counted repetitions of counted repetitions need more, and are refused.
_MAX_BYTES: Final = 1 << 20

_POSIX = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "XDigit": "0-9a-fA-F",
    "ASCII": r"\x00-\x7f",
    "Graph": r"\x21-\x7e",
    "Print": r"\x20-\x7e",
    "Blank": r" \t",
    "Space": r" \t\n\x0b\f\r",
    "Cntrl": r"\x00-\x1f\x7f",
    "Punct": r"!-/:-@\[-`{-~",
}
_SAME_ESCAPES = frozenset("dDwWtnrfa")
# RE2's own `\s` does not contain the vertical tab.
_SPACES = {"s": r"\t\n\x0b\f\r ", "S": r"\x00-\x08\x0e-\x1f!-\x{10ffff}"}
# Java's `\Z` also matches before a line end, but names do not contain line ends.
_ANCHORS = {"A": r"\A", "z": r"\z", "Z": r"\z", "b": r"\b", "B": r"\B"}
_QUANTIFIER = re.compile(r"\{\d{1,4}(,\d{0,4})?\}")
_NAMED = re.compile(r"\(\?<([A-Za-z][A-Za-z0-9]*)>")
# In Java a quantifier after flags is an error; RE2 would apply it to the part before the flags.
_FLAGS = re.compile(r"\(\?([ims]+)(:|\)(?![*+?{]))")
_HEX = re.compile(r"\\(?:x[0-9A-Fa-f]{2}|u(?![dD][89a-fA-F])[0-9A-Fa-f]{4})")
_PROPERTY = re.compile(r"\\([pP])\{(\w+)\}")
# Common beginning of all matches, unless there are alternatives.
_PREFIX = re.compile(r"[A-Za-z0-9_/-]*(?![*?+{])")
_LOOK = re.compile(r"\(\?<?[=!]")
_QUOTED = re.compile(r"\\Q(.*?)(?:\\E|\Z)|\\.", re.DOTALL)
_REPEAT = re.compile(r"(?:([*+?])|\{(\d{1,4})(,(\d{0,4}))?\})\??(?![*+?{])")
_OPENING = re.compile(r"\((?:\?(?:(?P<look><?[=!])|:|<[A-Za-z][A-Za-z0-9]*>|(?P<flags>[ims]+)(?P<rest>[:)])))?(?!\?)")
# Maximum nesting of parentheses, because each level needs several stack frames of Python.
_MAX_DEPTH: Final = 50


class _Untranslatable(ValueError):
    """Raised if a Java expression is invalid, or has no equivalent in RE2."""


@dataclass(frozen=True, slots=True)
class JavaPattern:
    """A compiled Java expression.

    `prefix`: common beginning of all matches; it is compared first, because RE2 is ten times slower than this
    comparison.
    """

    prefix: str
    fullmatch: Callable[[str], bool]

    def matches(self, text: str) -> bool:
        """Return Java's `text.matches(expression)`, for strings without line ends."""
        return text.startswith(self.prefix) and self.fullmatch(text)


@lru_cache(maxsize=10_000)
def java_pattern(text: str) -> JavaPattern | None:
    """Return the compiled expression; None if neither RE2 nor `lookaround` can match it as Java does."""
    if len(text) > MAX_CHARACTERS:
        return None
    try:
        whole = (
            partial(fullmatch, _Parser(text).parsed()) if _LOOK.search(text) else _compiled(_Translation(text).whole())
        )
    except (_Untranslatable, UnicodeEncodeError, re2.error):
        return None
    return JavaPattern(prefix_of(text), whole)


def prefix_of(text: str) -> str:
    """Return a common beginning of all matches of a Java expression; "" if there is no simple one."""
    prefix = _PREFIX.match(text)
    return prefix[0] if prefix and "|" not in text else ""


def _compiled(text: str) -> Callable[[str], bool]:
    """Compile an RE2 expression for full matches. Raises re2.error or UnicodeEncodeError if it is invalid."""
    options = re2.Options()
    options.log_errors, options.never_capture, options.max_mem = False, True, _MAX_BYTES
    expression = re2.compile(text, options)
    return lambda subject: bool(expression.fullmatch(subject.encode(errors="surrogatepass")))


class _Translation:
    """Translation of one Java expression to RE2, from left to right. `at`: index of the next character."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def whole(self) -> str:
        parts = []
        while self.at < len(self.text):
            parts.append(self._next())
        return "".join(parts)

    def _next(self) -> str:
        here = self.text[self.at]
        if here == "\\":
            return self._escape(in_class=False)
        if here == "[":
            return self._class()
        if here == "(":
            return self._group()
        if here == "{":
            return self._match(_QUANTIFIER)
        self.at += 1
        return here

    def _match(self, expression: re.Pattern[str]) -> str:
        match = expression.match(self.text, self.at)
        if match is None:
            raise _Untranslatable
        self.at = match.end()
        return match[0]

    def _group(self) -> str:
        rest = self.text[self.at :]
        if not rest.startswith("(?"):
            self.at += 1
            return "("
        if rest.startswith("(?:"):
            self.at += 3
            return "(?:"
        named = _NAMED.match(rest)
        if named is not None:
            self.at += named.end()
            return f"(?P<{named[1]}>"
        flags = _FLAGS.match(rest)
        # With this flag, RE2 ignores the case of all letters, and Java only the case of ASCII letters.
        if flags is None or ("i" in flags[1] and not self.text.isascii()):
            raise _Untranslatable
        self.at += flags.end()
        return flags[0]

    def _escape(self, *, in_class: bool) -> str:
        following = self.text[self.at + 1 : self.at + 2]
        if following == "Q":
            return self._quoted()
        if following in ("p", "P"):
            return self._property(in_class=in_class)
        if following in ("x", "u"):
            return f"\\x{{{self._match(_HEX)[2:]}}}"
        self.at += 2
        if following in _SPACES:
            return _SPACES[following] if in_class else f"[{_SPACES[following]}]"
        if following in _SAME_ESCAPES:
            return f"\\{following}"
        if following in _ANCHORS and not in_class:
            return _ANCHORS[following]
        if not following or following.isalnum() or ord(following) > 127:
            raise _Untranslatable
        return re.escape(following)

    def _quoted(self) -> str:
        end = self.text.find("\\E", self.at + 2)
        literal = self.text[self.at + 2 : end if end >= 0 else len(self.text)]
        self.at = end + 2 if end >= 0 else len(self.text)
        return re.escape(literal)

    def _property(self, *, in_class: bool) -> str:
        match = _PROPERTY.match(self.text, self.at)
        if match is None or match[2] not in _POSIX or (in_class and match[1] == "P"):
            raise _Untranslatable
        self.at = match.end()
        inside = _POSIX[match[2]]
        return inside if in_class else f"[{'^' if match[1] == 'P' else ''}{inside}]"

    def _class(self) -> str:
        """Translate a character class. Refuse unions, intersections and a leading `]`: RE2 treats them differently."""
        start, parts = self.at, ["["]
        self.at += 1
        if self.text[self.at : self.at + 1] == "^":
            parts.append("^")
            self.at += 1
        first = self.at
        while self.at < len(self.text):
            here = self.text[self.at]
            if here == "]" and self.at > first:
                self.at += 1
                return "".join((*parts, "]"))
            if here in "[]" or self.text[self.at : self.at + 2] in ("&&", "--", "~~", "||"):
                raise _Untranslatable
            if here == "\\":
                parts.append(self._escape(in_class=True))
            else:
                parts.append(here)
                self.at += 1
        raise _Untranslatable(f"no end of the class at {start}")


class _Parser(_Translation):
    """Parser of Java expressions with look-around. RE2 matches only their single characters."""

    def __init__(self, text: str) -> None:
        # Quotes are expanded here, because a quantifier after a quote applies to its last character.
        super().__init__(_QUOTED.sub(lambda match: match[0] if match[1] is None else re.escape(match[1]), text))
        self.depth = 0
        self.flags = ""
        # Whether this part is in a look-behind, whose length Java requires to be limited.
        self.behind = False

    def parsed(self) -> Part:
        """Parse the whole expression. Raises an error if it is not supported; `java_pattern` catches the error."""
        part = self._either()
        if self.at < len(self.text):
            raise _Untranslatable
        return part

    def _either(self) -> Part:
        parts = [self._sequence()]
        while self.text[self.at : self.at + 1] == "|":
            self.at += 1
            parts.append(self._sequence())
        return Either(tuple(parts))

    def _sequence(self) -> Part:
        parts = []
        while self.text[self.at : self.at + 1] not in ("", "|", ")"):
            part = self._atom()
            if part is not None:
                parts.append(self._repeated(part))
        return Sequence(tuple(parts))

    def _atom(self) -> Part | None:
        """Return one part without its quantifier; None for flags, which apply to the rest of the group."""
        for word in (self.text[self.at : self.at + 2], self.text[self.at]):
            if word in BOUNDARIES:
                self.at += len(word)
                return BOUNDARIES[word]
        if self.text[self.at] == "(":
            return self._parenthesis()
        if self.text[self.at] in "*+?{":
            raise _Untranslatable
        return Character(_compiled(f"{'(?i)' if 'i' in self.flags else ''}{self._next()}"))

    def _parenthesis(self) -> Part | None:
        opening = _OPENING.match(self.text, self.at)
        if opening is None or self.depth == _MAX_DEPTH:
            raise _Untranslatable
        self.at = opening.end()
        flags, look = opening["flags"] or "", opening["look"]
        if "i" in flags and not self.text.isascii():
            raise _Untranslatable
        if opening["rest"] == ")":
            self.flags += flags
            return None
        outside = self.depth, self.flags, self.behind
        self.depth, self.flags, self.behind = self.depth + 1, self.flags + flags, self.behind or look in ("<=", "<!")
        part = self._either()
        self.depth, self.flags, self.behind = outside
        if self.text[self.at : self.at + 1] != ")":
            raise _Untranslatable
        self.at += 1
        return part if look is None else Look(part, behind=look[0] == "<", negative=look[-1] == "!")

    def _repeated(self, part: Part) -> Part:
        if self.text[self.at : self.at + 1] not in ("*", "+", "?", "{"):
            return part
        match = _REPEAT.match(self.text, self.at)
        if match is None:
            raise _Untranslatable
        self.at = match.end()
        sign, count, comma, end = match.groups()
        try:
            least = integer(count, field="repetition") if count else int(sign == "+")
            last = integer(end, field="repetition") if end else None
        except CodecError:
            raise _Untranslatable from None
        most = 1 if sign == "?" else last if end else least if count and not comma else None
        if (most is None and self.behind) or (most is not None and most < least):
            raise _Untranslatable
        return Repeat(part, least, most)
