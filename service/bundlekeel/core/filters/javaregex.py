"""Java's regular expressions by RE2: isolation policies are matched by `String.matches`, that is fully.

The author of a policy chooses the expression, so matching time must grow with the text only: RE2 never backtracks.
What means the same in both is kept, what is spelled differently is rewritten, and what RE2 cannot express (look-around,
back-references, possessive quantifiers), or is not valid Java, is refused: a policy that cannot be read must not count
as one that does not match.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import re2

# Pulsar's names are short; a longer expression is a mistake or an attack.
MAX_CHARACTERS = 4096
# Of one compiled expression: counted repetitions of counted repetitions want more, and are refused.
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
# RE2's own `\s` has no vertical tabulator.
_SPACES = {"s": r"\t\n\x0b\f\r ", "S": r"\x00-\x08\x0e-\x1f!-\x{10ffff}"}
# Names hold no line ends, before which Java's `\Z` matches too.
_ANCHORS = {"A": r"\A", "z": r"\z", "Z": r"\z", "b": r"\b", "B": r"\B"}
_QUANTIFIER = re.compile(r"\{\d{1,4}(,\d{0,4})?\}")
_NAMED = re.compile(r"\(\?<([A-Za-z][A-Za-z0-9]*)>")
# Java repeats no flags; RE2 would repeat what stands before them.
_FLAGS = re.compile(r"\(\?([ims]+)(:|\)(?![*+?{]))")
_HEX = re.compile(r"\\(?:x[0-9A-Fa-f]{2}|u(?![dD][89a-fA-F])[0-9A-Fa-f]{4})")
_PROPERTY = re.compile(r"\\([pP])\{(\w+)\}")
# What every match begins with, unless there are alternatives.
_PREFIX = re.compile(r"[A-Za-z0-9_/-]*(?![*?+{])")


class _Untranslatable(ValueError):
    """No expression of RE2 says the same."""


@dataclass(frozen=True, slots=True)
class JavaPattern:
    """A compiled expression. `prefix`: what every match begins with, since asking RE2 takes ten times as long."""

    prefix: str
    expression: Any

    def matches(self, text: str) -> bool:
        """Java's `text.matches(expression)`, for texts without line ends."""
        return text.startswith(self.prefix) and bool(self.expression.fullmatch(text.encode(errors="surrogatepass")))


@lru_cache(maxsize=10_000)
def java_pattern(text: str) -> JavaPattern | None:
    """The expression, or None when RE2 cannot match it the way Java does."""
    if len(text) > MAX_CHARACTERS:
        return None
    options = re2.Options()
    options.log_errors, options.never_capture, options.max_mem = False, True, _MAX_BYTES
    prefix = _PREFIX.match(text)
    try:
        expression = re2.compile(_Translation(text).whole(), options)
    except (_Untranslatable, UnicodeEncodeError, re2.error):
        return None
    return JavaPattern(prefix[0] if prefix and "|" not in text else "", expression)


class _Translation:
    """One pass over the text; `at` is the next character."""

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
            return self._taken(_QUANTIFIER)
        self.at += 1
        return here

    def _taken(self, expression: re.Pattern[str]) -> str:
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
        # RE2 ignores the case of all letters, Java of ASCII's.
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
            return f"\\x{{{self._taken(_HEX)[2:]}}}"
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
        """A character class; unions, intersections and a leading `]` mean other things in Python."""
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
