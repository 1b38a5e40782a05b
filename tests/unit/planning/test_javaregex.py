"""Java's regular expressions: the same meaning, or an honest None."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bundlekeel.model.codes import Code
from bundlekeel.model.policies import IsolationPolicy
from bundlekeel.planning.filters.isolation import host_of, isolate, matches
from bundlekeel.planning.filters.javaregex import java_pattern

# expression, text, whether Java's String.matches holds
SAME = [
    ("t/ns.*", "t/ns1", True),
    ("t/ns", "t/ns1", False),
    ("ns", "t/ns", False),
    ("10\\.0\\.0\\.[1-3]", "10.0.0.2", True),
    ("10\\.0\\.0\\.[1-3]", "10.0.0.4", False),
    ("broker-[^a-c]", "broker-d", True),
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
    ("x(?i)y", "xY", True),
    ("x(?i)y", "XY", False),
    ("a{2}", "aa", True),
    ("(?<x>a|b)-", "b-", True),
    ("a\\sb", "a\x0bb", True),
    ("[\\S]", "\x0b", False),
    ("ab?c|x", "x", True),
    ("ab*", "a", True),
    ("ab?", "ab", True),
    ("x(?:ab|c)d", "xabd", True),
    ("x(?:ab|c)d", "xbd", False),
    ("(ab|c)d", "abd", True),
    ("\\Q.\\Ea", ".a", True),
    ("\\Q.\\Ea", ".Ea", False),
    ("[^a]]", "b]", True),
    ("\\P{Digit}", "x", True),
    ("a\\x2db\\u002Dc", "a-b-c", True),
    ("a\\\x7fb", "a\x7fb", True),
    ("^a$", "a", True),
    ("\\Aa\\z", "a", True),
    ("", "", True),
]
# The same of expressions with look-around.
LOOK_AROUND = [
    ("(?!pay/).*", "shop/carts", True),
    ("(?!pay/).*", "pay/in", False),
    ("(?!b1|b2).*", "b3.x", True),
    ("(?!b1|b2).*", "b2.x", False),
    ("(?=x).*", "xy", True),
    ("(?=x).*", "yx", False),
    ("shop/(?!test$).*", "shop/test", False),
    ("shop/(?!test$).*", "shop/test2", True),
    ("((?!-test).)*", "shop/a-test-b", False),
    ("((?!-test).)*", "shop/a-tes", True),
    ("(?:(?!pay/).*|pay/in)", "pay/in", True),
    ("(?:(?!pay/).*|pay/in)", "pay/out", False),
    ("^(?!.*(?:dev|qa)).*$", "shop/qa-1", False),
    ("^(?!.*(?:dev|qa)).*$", "shop/prod", True),
    (".*(?<!-dev)", "shop/a-dev", False),
    (".*(?<!-dev)", "shop/dev", True),
    ("(?<=a)b", "b", False),
    ("a(?<=a)b", "ab", True),
    ("(?i)(?!PAY/)\\w+/x", "shop/X", True),
    ("(?i)(?!PAY/).*", "pay/x", False),
    ("(?!(?i)PAY/).*", "Pay/x", False),
    ("(?!\\Qa.b\\E).*", "axb", True),
    ("(?!\\Qa.b\\E).*", "a.bc", False),
    ("(?![\\d-])[a-z\\d-]{2,5}", "1ab", False),
    ("(?![\\d-])[a-z\\d-]{2,5}", "ab-1", True),
    ("(?!(?!a)).*", "ab", True),
    ("(?!(?!a)).*", "b", False),
    ("\\b(?!x)\\w+?/{1}y*", "a/yy", True),
]
# What Python would understand otherwise, or Java refuses.
UNREADABLE = [
    "[a-z&&[^b]]",
    "[a[bc]]",
    "[]a]",
    "[^]a]",
    "[a--b]",
    "[a~~b]",
    "[a||b]",
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
    "(?u)a",
    "(?P<n>a)",
    "(?#comment)",
    "\\0101",
    "[\\P{Digit}]",
    "a" * 5000,
    "\\ud800",
    "(?i)\u00e9",
    "(?:(?:a{99}){99}){99}",
]
# What no engine can match in time that grows with the text alone.
UNBOUNDED = [
    "(a|b)\\1",
    "(?<x>a|b)-\\k<x>",
    "a{2,}+b",
    "a*+a",
    "a++",
    "a?+",
    "(?>a|ab)c",
    "(?!x)a*+",
    "(?!(a)\\1).*",
    "(?>(?!x)a|ab)c",
    "(?<=a*)b",
]
# Look-around that is not valid Java, or deeper than is read.
BROKEN_LOOK_AROUND = [
    "(?!a",
    "(?!a)*)",
    "(?!*)",
    "(?!a)b{2,1}",
    "(?!a)b**",
    "(?=)[a",
    "(?!a)\\y",
    "(" * 60 + "(?!a)" + ")" * 60,
]


@pytest.mark.parametrize(("pattern", "text", "expected"), SAME)
def test_same_meaning(pattern: str, text: str, expected: bool) -> None:
    """`String.matches` of Java 17, run by hand for each of these."""
    compiled = java_pattern(pattern)
    assert compiled is not None
    assert compiled.matches(text) is expected


@pytest.mark.parametrize(("pattern", "text", "expected"), LOOK_AROUND)
def test_n_m_look_around_is_matched_as_java_does(pattern: str, text: str, expected: bool) -> None:
    """A policy for "all namespaces but these" is usual, and valid Java."""
    compiled = java_pattern(pattern)
    assert compiled is not None
    assert compiled.matches(text) is expected


@pytest.mark.parametrize("pattern", [*UNREADABLE, *UNBOUNDED, *BROKEN_LOOK_AROUND])
def test_what_cannot_be_said_is_refused(pattern: str) -> None:
    assert java_pattern(pattern) is None


def test_one_readable_match_is_enough() -> None:
    """Several expressions are alternatives; one that cannot be read matters only while no other one matches."""
    assert matches(("[", "t/.*"), "t/ns") is True
    assert matches(("[", "u/.*"), "t/ns") is None
    assert matches(("u/.*",), "t/ns") is False
    assert matches((), "t/ns") is False


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("pay/(a)\\1", "shop/carts", False),
        ("pay/(a)\\1", "pay/in", None),
        ("b\\d++", "b1", None),
        ("b\\d++", "c1", False),
        ("pay/(a)\\1|shop/.*", "shop/carts", None),
        ("ab*+", "a", None),
    ],
)
def test_n_m_an_unreadable_expression_concerns_what_begins_like_it(
    pattern: str, text: str, expected: bool | None
) -> None:
    """Texts with another beginning than all of its matches do not match."""
    assert matches((pattern,), text) is expected


@pytest.mark.parametrize(
    "pattern",
    [
        "([a-z0-9-]+)+/x",
        "(a|aa)+/x",
        "(.*)*(.*)*(.*)*/x",
        "(a?){400}a{400}/x",
        "(?!x)((((a{1,2}){1,2})+)+)+/x",
        "(?=(a|aa)+b)(a?){400}a{400}/x",
        "(?:(?:(?:(?!x)){99}){99}){99}/x",
    ],
)
def test_no_policy_holds_the_interpreter(pattern: str) -> None:
    """Each of these doubles its time with every character where an engine backtracks."""
    script = (
        "import sys; from bundlekeel.planning.filters.isolation import matches; "
        "print(matches(sys.argv[1:2], 'a' * 200))"
    )
    done = subprocess.run([sys.executable, "-c", script, pattern], check=True, capture_output=True, timeout=30)
    assert done.stdout.split() == [b"False"]


@pytest.mark.parametrize("pattern", UNBOUNDED)
def test_a_namespace_whose_policy_needs_backtracking_is_left_alone(pattern: str) -> None:
    """No broker is left to it, under the code of a policy that cannot be read."""
    isolated = isolate((IsolationPolicy(name="p", namespaces=(pattern,), primary=("b.*",)),), ("t/ns",), ("b1:8080",))
    assert isolated.unknown().all() and not isolated.matrix().any()
    assert isolated.code(0, 0) is Code.POLICY_UNREADABLE


@pytest.mark.parametrize(
    ("broker", "host"), [("b1:8080", "b1"), ("10.0.0.1:8080", "10.0.0.1"), ("[::1]:8080", "[::1]"), ("bare", "bare")]
)
def test_host_of_a_broker(broker: str, host: str) -> None:
    """Up to the last colon."""
    assert host_of(broker) == host
