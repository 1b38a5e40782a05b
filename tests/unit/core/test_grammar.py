"""Counts and figures in words."""

from __future__ import annotations

import pytest

from bundlekeel.core.model.text_format import figure, numbered


@pytest.mark.parametrize(
    ("value", "digits", "written"),
    [
        (1e7, 4, "10,000,000"),
        (-1234.5, 4, "-1,234"),
        (1800.0, 2, "1,800"),
        (999.6, 2, "1000"),
        (123.456, 4, "123.5"),
        (120.0, 4, "120"),
        (0.25, 4, "0.25"),
        (0.000123456, 3, "0.000123"),
        (-4.5e-06, 4, "-0.0000045"),
        (4.5e-07, 4, "0"),
        (0.0, 4, "0"),
    ],
)
def test_figures_have_no_exponent(value: float, digits: int, written: str) -> None:
    assert figure(value, digits) == written


def test_one_and_many() -> None:
    assert (numbered(1, "bundle", "leave"), numbered(2, "bundle", "leave")) == ("1 bundle leaves", "2 bundles leave")
