"""The one decoder of numbers in text from outside."""

from __future__ import annotations

import math
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bundlekeel.model.errors import CodecError
from bundlekeel.model.numbers import MAX_INTEGER, MAX_NUMBER, integer, number

LONG = "9" * 5_000
WRONG = [
    "",
    " ",
    "x",
    "1_000",
    "\u0663",
    "\u00b2",
    "--1",
    "0x",
    LONG,
    "-" + LONG,
    "nan",
    "inf",
    "-Infinity",
    "1e999",
    "1e19",
]


@pytest.mark.parametrize(
    "value", [*WRONG, None, True, [], b"1", pytest.param(10**5_000, id="huge"), math.nan, math.inf, -1, "-1"]
)
def test_s03_the_one_error_names_field_and_value(value: object) -> None:
    for decode in (integer, number):
        with pytest.raises(CodecError) as caught:
            decode(value, field="statsUpdateFrequencyInSecs")
        assert caught.value.field == "statsUpdateFrequencyInSecs"
        assert str(caught.value).startswith("statsUpdateFrequencyInSecs ")
        assert len(str(caught.value)) < 200


@pytest.mark.parametrize("value", [60, "60", " 60\n", 60.0, "+60"])
def test_s03_a_number_is_decoded_however_it_is_written(value: object) -> None:
    assert integer(value, field="x") == number(value, field="x") == 60


def test_s03_the_limits_belong_to_the_range() -> None:
    assert integer("0xffffffff", field="x", base=16) == 0xFFFFFFFF
    assert integer(str(MAX_INTEGER), field="x") == MAX_INTEGER
    assert number("1e18", field="x") == MAX_NUMBER
    assert integer("-5", field="x", lowest=-5, highest=-5) == number("-5", field="x", lowest=-5, highest=-5) == -5
    assert number("2.2250738585072014e-308", field="x") > 0
    with pytest.raises(CodecError):
        integer("1.5", field="x")


@given(st.text(max_size=60) | st.floats() | st.integers() | st.none())
def test_s03_any_value_is_a_number_in_range_or_the_one_error(value: object) -> None:
    for decode, highest in ((integer, MAX_INTEGER), (number, MAX_NUMBER)):
        with suppress(CodecError):
            assert 0 <= decode(value, field="x") <= highest
