"""Pages written by hand lead on: whoever has read one knows what to open next. The format of scenarios is whole."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_args

import pytest
from markdown import Markdown
from mkdocs.config import load_config

from bundlekeel.sim import scenario
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


def test_the_site_numbers_steps_as_they_are_written() -> None:
    """Also after an example between two steps; runbooks say "do step 4"."""
    config = load_config(str(ROOT / "mkdocs.yml"))
    made = Markdown(extensions=config.markdown_extensions, extension_configs=config.mdx_configs)
    assert '<ol start="2">' in made.convert("1. Look:\n\n   an example\n\n2. Go on.\n")


def test_every_field_and_event_of_a_scenario_has_a_row() -> None:
    """A field without a text beside its type would be left out."""
    classes = [item for item in vars(scenario).values() if isinstance(item, type) and is_dataclass(item)]
    assert len(classes) > 10
    for item in classes:
        section = format_page().partition(f"\n## {item.__name__}\n")[2].partition("\n## ")[0]
        known = [field.name for field in fields(item)]
        assert re.findall(r"(?m)^\| `(\w+)` \| ", section)[: len(known)] == known
    assert set(scenario.EVENTS) == set(get_args(scenario.EventKind))
