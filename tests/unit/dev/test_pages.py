"""Pages written by hand lead on: whoever has read one knows what to open next."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dev.docs import ROOT

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
