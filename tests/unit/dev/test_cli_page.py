"""docs/reference/cli.md lists each command with its options and examples."""

from __future__ import annotations

import re

import pytest

from bundlekeel.cli.examples import EXAMPLES
from dev.cli_page import cli_page


@pytest.mark.parametrize("command", ["journal", "journal verify", "history export", "plan execute", "config check"])
def test_an_example_stands_below_its_command(command: str) -> None:
    """Not below the last one of the group."""
    (section,) = re.findall(
        rf"^### `bundlekeel {command}(?: [^a-z`][^`]*)?`$(.*?)^#", cli_page(), re.DOTALL | re.MULTILINE
    )
    assert [line.removeprefix("bundlekeel ") for line in section.split("```")[1].split("\n")[1:-1]] == [
        *EXAMPLES[command]
    ]


def test_the_interval_has_a_unit() -> None:
    """On the page, where the kind of a value is not shown."""
    assert "- `--interval`: Seconds between two outputs of --watch. Default: 2.0." in cli_page()


def test_the_reference_page_does_not_drift(pytestconfig: pytest.Config) -> None:
    """docs/reference/cli.md is what the code says."""
    assert (pytestconfig.rootpath / "docs" / "reference" / "cli.md").read_text(encoding="utf-8") == cli_page()
