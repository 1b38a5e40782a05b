"""The pipe to Java: answers in order, errors as answers, and a clear word when it is gone."""

from __future__ import annotations

from typing import Any

import pytest

from dev.oracle import Oracle, OracleError

EMPTY: dict[str, Any] = {"brokers": {"b:80": {}}, "bundles": {}}


def test_many_lines_are_answered_in_their_order(oracle: Oracle) -> None:
    """More than a pipe holds, in both directions."""
    lines: list[object] = [{"reset": {"strategy": "overload", "config": {}}}]
    lines += [{"brokers": {f"b{number}-{'x' * 2000}:80": {}}} for number in range(500)]
    answers = oracle.ask_all(lines)
    assert [answer["brokers"][0].partition("-")[0] for answer in answers[1:]] == [f"b{n}" for n in range(500)]


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ({"reset": {"kind": "unheard"}}, "ClassNotFoundException"),
        ({"reset": {"strategy": "threshold", "config": {"noSuchKey": 1}}}, "NoSuchFieldException"),
        (b"{broken", "JsonParseException"),
        (b"[]", "expected an object"),
    ],
)
def test_a_bad_line_is_answered_with_an_error_and_the_rest_goes_on(oracle: Oracle, line: object, word: str) -> None:
    assert word in oracle.ask(line)["error"]
    assert oracle.ask({"reset": {"strategy": "threshold", "config": {}}}) == {}
    assert oracle.ask(EMPTY)["unload"] == {}


def test_a_bench_times_decoding_and_planning(oracle: Oracle) -> None:
    oracle.ask_all([{"reset": {"strategy": "overload", "config": {}}}, EMPTY])
    answer = oracle.ask({"bench": 4})
    assert (answer["bench"], answer["unloaded"]) == (4, 0)
    for part in ("decode", "plan"):
        least, median, most = (answer[f"{part}_ms_{name}"] for name in ("min", "median", "max"))
        assert 0 < least <= median <= most


def test_a_jvm_that_cannot_start_says_why() -> None:
    with Oracle("-XX:NoSuchOption") as broken, pytest.raises(OracleError, match="NoSuchOption"):
        broken.ask(EMPTY)


def test_an_oracle_that_is_closed_does_not_answer() -> None:
    with Oracle() as closed:
        assert closed.ask({"reset": {}}) == {}
    with pytest.raises(OracleError, match="does not run"):
        closed.ask(EMPTY)
