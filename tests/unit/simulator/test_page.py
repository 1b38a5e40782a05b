"""Macros and plots that the HTML pages share."""

from __future__ import annotations

import re
from collections.abc import Sequence

from jinja2 import Environment, PackageLoader
from matplotlib.figure import Figure

from bundlekeel.simulator.page import svg


def macro(name: str, *arguments: object) -> str:
    """Return what a macro of the pages renders."""
    pages = Environment(
        loader=PackageLoader("bundlekeel.simulator"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    return str(getattr(pages.get_template("macros.html").module, name)(*arguments))


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    return macro("table", heads, rows)


def test_a_marked_column_is_aligned_to_the_right() -> None:
    text = table(["strategy", ">balanced min"], [["avg", "never"], ["threshold", "1.5"]])
    assert re.findall(r'class="number"[^>]*>(.*?)</t[dh]>', text) == ["balanced min", "never", "1.5"]


def test_a_head_of_two_lines_is_one_line_next_to_a_cell() -> None:
    """On a phone, where cells have their heads beside them."""
    text = table([">load jitter\n(moves)"], [["3"]])
    assert 'data-head="load jitter (moves)"' in text and ">load jitter<br><small>(moves)</small></th>" in text


def test_cells_are_escaped_and_may_have_small_lines_and_a_class() -> None:
    text = table(["a", "b", "c"], [["1\n0 to 2", ("<held>", "good"), "\nwhy"]])
    assert re.findall(r"<td[^>]*>(.*?)</td>", text) == [
        "1<br><small>0 to 2</small>",
        '<b class="good">&lt;held&gt;</b>',
        "<small>why</small>",
    ]


def test_a_table_without_rows_is_empty() -> None:
    assert table(["a"], []).strip() == ""


def test_text_between_backticks_is_code() -> None:
    assert macro("coded", "run `a <b>` or `c`").strip() == "run <code>a &lt;b&gt;</code> or <code>c</code>"


def test_the_same_figure_gives_the_same_text() -> None:
    """Without a date and without a prolog, so that it can be a part of a page."""

    def drawn() -> str:
        figure = Figure(figsize=(2, 2))
        figure.subplots().plot([1, 2], label="<a>")
        figure.legend()
        return svg(figure)

    assert drawn() == drawn()
    assert drawn().startswith("<svg ") and "metadata" not in drawn() and "&lt;a&gt;" in drawn()
