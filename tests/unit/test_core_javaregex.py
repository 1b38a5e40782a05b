"""Java's regular expressions: the same meaning, or an honest None."""

from __future__ import annotations

import pytest

from bundlekeel.core.filters.isolation import host_of, matches
from bundlekeel.core.filters.javaregex import java_pattern

# expression, text, whether Java's String.matches holds
SAME = [
    ("t/ns.*", "t/ns1", True),
    ("t/ns", "t/ns1", False),
    ("ns", "t/ns", False),
    ("10\\.0\\.0\\.[1-3]", "10.0.0.2", True),
    ("10\\.0\\.0\\.[1-3]", "10.0.0.4", False),
    ("broker-[^a-c]", "broker-d", True),
    ("(a|b)\\1", "aa", True),
    ("(a|b)\\1", "ab", False),
    ("(?<x>a|b)-\\k<x>", "b-b", True),
    ("\\Qa.b\\E.*", "a.bc", True),
    ("\\Qa.b\\E.*", "axbc", False),
    ("\\Qa.b", "a.b", True),
    ("\\p{Alpha}+", "abc", True),
    ("\\P{Digit}", "7", False),
    ("[\\p{Lower}\\d]+", "a1", True),
    ("\\w+", "é", False),
    ("[a&|~]+", "a&~", True),
    ("(?i)TENANT/.*", "tenant/x", True),
    ("x(?i:Y)z", "xyz", True),
    ("a{2}", "aa", True),
    ("a{2,}+b", "aaab", True),
    ("a*+a", "aaa", False),
    ("(?>a|ab)c", "abc", False),
    ("(?!x).*", "y", True),
    ("a\\x2db\\u002Dc", "a-b-c", True),
    ("^a$", "a", True),
    ("\\Aa\\z", "a", True),
    ("", "", True),
]
# What Python would understand otherwise, or Java refuses.
UNREADABLE = [
    "[a-z&&[^b]]",
    "[a[bc]]",
    "[]a]",
    "[a",
    "(a",
    "a{,3}",
    "a{",
    "*a",
    "\\p{IsGreek}",
    "\\h",
    "\\R",
    "\\y",
    "a\\",
    "x(?i)y",
    "(?u)a",
    "(?P<n>a)",
    "(?#comment)",
    "\\0101",
    "[\\P{Digit}]",
    "a" * 5000,
]


@pytest.mark.parametrize(("pattern", "text", "expected"), SAME)
def test_same_meaning(pattern: str, text: str, expected: bool) -> None:
    """`String.matches` of Java 17, run by hand for each of these."""
    compiled = java_pattern(pattern)
    assert compiled is not None
    assert (compiled.fullmatch(text) is not None) is expected


@pytest.mark.parametrize("pattern", UNREADABLE)
def test_what_cannot_be_said_is_refused(pattern: str) -> None:
    """None, never a guess: a policy that is misread would let bundles go where they must not."""
    assert java_pattern(pattern) is None


def test_one_readable_match_is_enough() -> None:
    """Several expressions are alternatives; one that cannot be read matters only while no other one matches."""
    assert matches(("[", "t/.*"), "t/ns") is True
    assert matches(("[", "u/.*"), "t/ns") is None
    assert matches(("u/.*",), "t/ns") is False
    assert matches((), "t/ns") is False


@pytest.mark.parametrize(
    ("broker", "host"), [("b1:8080", "b1"), ("10.0.0.1:8080", "10.0.0.1"), ("[::1]:8080", "[::1]"), ("bare", "bare")]
)
def test_host_of_a_broker(broker: str, host: str) -> None:
    """Up to the last colon."""
    assert host_of(broker) == host
