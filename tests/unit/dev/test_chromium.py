"""Chromium is found, installed, or its lack said in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from dev.tools_chromium import ADVICE, INSTALL, ensure
from dev.tools_prometheus import ToolsMissing


def test_one_on_the_path_is_taken() -> None:
    jars = ensure(which={"google-chrome": "/opt/google-chrome"}.get, run=lambda command: pytest.fail(str(command)))
    assert jars == Path("/opt/google-chrome")


def test_a_missing_one_is_installed() -> None:
    there: dict[str, str] = {}

    def install(command: Sequence[str]) -> str:
        if tuple(command) == INSTALL:
            there["chromium"] = "/usr/bin/chromium"
        return ""

    assert ensure(which=there.get, run=install) == Path("/usr/bin/chromium")


def test_one_that_cannot_be_had_is_said() -> None:
    """With apt-get's own reason and what to do."""
    with pytest.raises(ToolsMissing) as caught:
        ensure(which=lambda _: None, run=lambda command: "E: are you root?" if command == INSTALL else "")
    expected = "chromium is missing and could not be installed (apt-get: E: are you root?): "
    assert str(caught.value) == expected + ADVICE
