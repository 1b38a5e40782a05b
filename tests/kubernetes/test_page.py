"""docs/reference/kubernetes.md is what the tests of this directory recorded."""

from __future__ import annotations

import pytest

from dev.kubernetes.page import PAGE, RECORD, TABLES, page
from tests.support.chart import CASES


def test_the_page_is_what_this_run_recorded() -> None:
    """It runs last. After a change: `python -m dev.kubernetes table`."""
    text = RECORD.read_text(encoding="utf-8") if RECORD.is_file() else ""
    if text.count('["releases"') < len(CASES) or not all(f'["{name}"' in text for name in TABLES):
        pytest.skip("this run did not include all tests that record")
    assert PAGE.read_text(encoding="utf-8") == page()
