"""Pages written by hand lead on: whoever has read one knows what to open next. The format of scenarios is whole."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_args

import pytest

from bundlekeel.simulator import scenario
from dev.docs import ROOT
from dev.scenario_page import format_page

WRITTEN = [
    path
    for folder in ("", "concepts", "operations", "strategies")
    for path in sorted((ROOT / "docs" / folder).glob("*.md"))
    if path.name != "index.md"
]


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.stem)
def test_no_page_without_a_next_step(page: Path) -> None:
    """The last section links to another page."""
    last = page.read_text(encoding="utf-8").rpartition("\n## ")[2]
    assert re.search(r"\]\([^#)][^)]*\.md", last)


def test_the_pages_are_found() -> None:
    """Else the test above would hold for nothing."""
    assert len(WRITTEN) > 40


def test_blocks_of_a_list_are_inside_it_on_the_site() -> None:
    """Python-Markdown wants four spaces: with fewer an example ends the list, and the next step is number 1 again."""
    outside = []
    for path in sorted((ROOT / "docs").rglob("*.md")):
        text = re.sub(r"(?ms)^ *```.*?^ *```$", "", path.read_text(encoding="utf-8"))
        outside += [f"{path.relative_to(ROOT)}: {line.strip()}" for line in re.findall(r"\n\n {1,3}\S.*", text)]
    assert not outside


def test_every_field_and_event_of_a_scenario_has_a_row() -> None:
    classes = [item for item in vars(scenario).values() if isinstance(item, type) and is_dataclass(item)]
    assert len(classes) > 10
    for item in classes:
        section = format_page().partition(f"\n## {item.__name__}\n")[2].partition("\n## ")[0]
        expected_keys = [field.name for field in fields(item)]
        assert re.findall(r"(?m)^\| `(\w+)` \| ", section)[: len(expected_keys)] == expected_keys
    assert set(scenario.EVENTS) == set(get_args(scenario.EventKind))
