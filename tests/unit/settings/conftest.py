"""Commands read the real environment: none of ours may leak into a test, nor the width of a terminal."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("BUNDLEKEEL") or name == "COLUMNS":
            monkeypatch.delenv(name)
