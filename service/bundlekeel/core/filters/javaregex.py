"""Java's regular expressions in Python: isolation policies are matched by `String.matches`, that is fully.

What means the same in both is kept, what is spelled differently is rewritten, and what cannot be said (or is no
valid Java) is refused: a policy that cannot be read must not be taken for one that does not match.
"""

from __future__ import annotations

import re
from functools import lru_cache

# Pulsar's names are short; a longer expression is a mistake or an attack.
MAX_CHARACTERS = 4096

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
_SAME_ESCAPES = frozenset("dDsSwWtnrfa")
_ANCHORS = {"A": r"\A", "z": r"\Z", "Z": r"\Z", "b": r"\b", "B": r"\B"}
_QUANTIFIER = re.compile(r"\{\d{1,4}(,\d{0,4})?\}")
_GROUP_OPENINGS = ("(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>")
_NAMED = re.compile(r"\(\?<([A-Za-z][A-Za-z0-9]*)>")
_FLAGS = re.compile(r"\(\?([ims]+)(:|\))")
_HEX = re.compile(r"\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4})")
_PROPERTY = re.compile(r"\\([pP])\{(\w+)\}")
_BACK = re.compile(r"\\k<([A-Za-z][A-Za-z0-9]*)>|\\[1-9]")


class _Untranslatable(ValueError):
    """No Python expression says the same."""


@lru_cache(maxsize=10_000)
def java_pattern(text: str) -> re.Pattern[str] | None:
    """The expression for `fullmatch`, or None when Python cannot match it the way Java does."""
    if len(text) > MAX_CHARACTERS:
        return None
    try:
        return re.compile(_Translation(text).whole(), re.ASCII)
    except (_Untranslatable, re.error, OverflowError, RecursionError):
        return None


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
        opening = next((item for item in _GROUP_OPENINGS if rest.startswith(item)), "")
        if opening or not rest.startswith("(?"):
            self.at += len(opening) or 1
            return opening or "("
        named = _NAMED.match(rest)
        if named is not None:
            self.at += named.end()
            return f"(?P<{named[1]}>"
        # Python takes flags for the rest of a group only at the very beginning.
        flags = _FLAGS.match(rest)
        if flags is None or (flags[2] == ")" and self.at > 0):
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
            return self._taken(_HEX)
        if not in_class and (following == "k" or following.isdigit()):
            return self._taken(_BACK).replace("\\k<", "(?P=").replace(">", ")")
        self.at += 2
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
