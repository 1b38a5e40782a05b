"""Compare our regular expressions of isolation policies with Java's: an accepted pattern matches as in Java."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bundlekeel.planning.filters.javaregex import java_pattern
from dev.oracle import Oracle
from tests.unit.planning.test_javaregex import LOOK_AROUND, SAME

# Pieces with a meaning alone or in combination, and short texts over few letters, so that many match. Texts are ASCII,
# like Pulsar's names. For other texts, Java's own `\b` depends on its release.
PIECES = r"""
    a b A k - / _ 1 é } , : # ~ . * + ? | ^ $ ( ) (?: (?<n> (?i) (?i: [ ] [^ [ab] [^a] [a-b] [a- && { {2} {1,2}
    {0,} {2,1} \d \D \w \W \s \S \. \- \_ \\ \t \v \x0b \x61 \u0062 \b \B \A \z \Z \Qa. \E \1 \k<n> \p{Alpha} \P{Digit}
    \p{Punct} (?= (?! (?<= (?<! (?!a) (?=b) (?<!b)
"""
TABLE = [*SAME, *LOOK_AROUND]
PATTERNS = st.lists(st.sampled_from([" ", *PIECES.split()]), max_size=7).map("".join)
TEXTS = ["", *"abAk-/_1. }\x0b\t", "aa", "ab", "ba", "bb", "aab", "a-b", "a/b", "a.b", "A1", "a\\", "a b", "a\x0bb"]


def test_the_table_is_javas(oracle: Oracle) -> None:
    """Each line of the unit test's table, by `Matcher.matches`."""
    oracle.ask({"reset": {"kind": "pattern"}})
    answers = oracle.ask_all([{"pattern": pattern, "texts": [text]} for pattern, text, _ in TABLE])
    assert [answer["matches"] for answer in answers] == [[expected] for _, _, expected in TABLE]


def test_what_is_read_is_matched_as_java_does(oracle: Oracle) -> None:
    """Drawn expressions; at least a third of the valid ones are read, or the comparison would say little."""
    oracle.ask({"reset": {"kind": "pattern"}})
    valid, read = [], []

    @given(pattern=PATTERNS)
    @settings(max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def compared(pattern: str) -> None:
        answer = oracle.ask({"pattern": pattern, "texts": TEXTS})
        ours = java_pattern(pattern)
        if answer["valid"]:
            valid.append(pattern)
        if ours is not None:
            assert answer["valid"], f"{pattern!r} is no Java"
            matched = [text for text in TEXTS if ours.matches(text)]
            assert matched == [text for text, matches in zip(TEXTS, answer["matches"], strict=True) if matches], repr(
                pattern
            )
            read.append(pattern)

    compared()
    assert len(read) > len(valid) / 3, (len(read), len(valid))
