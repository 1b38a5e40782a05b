"""Tables and axes of the HTML pages."""

from __future__ import annotations

import re

import pytest

from bundlekeel.sim.page import Axis, table


def test_a_column_of_figures_is_headed_at_the_right() -> None:
    """As its figures stand, and as the word for a figure that there is not."""
    made = table(["strategy", "balanced min"], [["avg", "never"], ["threshold", "<b>1.5</b>"]])
    assert re.findall(r'class="number"[^>]*>(.*?)</t[dh]>', made) == ["balanced min", "never", "<b>1.5</b>"]
    assert table(["limit"], [["not seen"], ["800 % of a core"]]).count('class="number"') == 2


def test_a_head_of_two_lines_is_one_beside_a_cell() -> None:
    """On a phone, where cells have their heads beside them."""
    assert 'data-head="load jitter (moves)"' in table(["load jitter<br>(moves)"], [["3"]])


@pytest.mark.parametrize(
    ("cell", "right"),
    [
        ("-222<br><small>-298 to -154</small>", True),
        ("1.001 (0.990-1.100), 2 never", True),
        ("2.5 to 50", True),
        ("0.5 %", True),
        ("2023-11-13", False),
        ("93.1% recorded, longest gap 45 min", False),
    ],
)
def test_figures_stand_at_the_right(cell: str, right: bool) -> None:
    """With their range, also where a line break parts the two; neither a date nor a sentence."""
    assert ('class="number"' in table(["difference"], [[cell]])) == right


@pytest.mark.parametrize(
    ("low", "high", "texts"),
    [
        (0.977, 3.91, ["1", "2", "3"]),
        (0.05, 0.31, ["0.1", "0.2", "0.3"]),
        (0.0757, 0.0848, ["0.076", "0.078", "0.080", "0.082", "0.084"]),
        (1.0, 1.0002, ["1.0000", "1.0001", "1.0002"]),
        (-0.3, 0.9, ["0.0", "0.5"]),
        (0.0, 2e7, ["0", "10,000,000", "20,000,000"]),
    ],
)
def test_an_axis_has_a_scale(low: float, high: float, texts: list[str]) -> None:
    """Two round figures at least, of any range, each as exact as they are apart."""
    ticks = Axis(low, high, 0, 100).ticks()
    assert [text for _, text in ticks] == texts
    assert [value for value, _ in ticks] == pytest.approx([float(text.replace(",", "")) for text in texts])
