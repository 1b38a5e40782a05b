"""Commands printed in the docs, runbooks and the chart's notes are free of usage errors, including required options."""

from __future__ import annotations

import re
from typing import cast

import pytest
from typer.testing import CliRunner

from bundlekeel.cli.examples import EXAMPLES
from bundlekeel.cli.wiring import Wiring
from tests.support.apps import make_app
from tests.support.printed_commands import commands, pages, refusal


@pytest.mark.parametrize("page", pages())
def test_every_printed_command_is_accepted(page: str) -> None:
    """Each is parsed by the command line itself and not run; words in capitals stand for a value."""
    refused = {command: answer for command, typed in commands(page) if (answer := refusal(command, typed=typed))}
    assert refused == {}


@pytest.mark.parametrize("page", [page for page in pages() if "/runbooks/" in page])
def test_runbooks_answer_what_a_command_asks(page: str) -> None:
    asking = [command for command, _ in commands(page) if command.split()[0] in ("takeover", "handback")]
    assert [command for command in asking if not {"--yes", "--dry-run"} & set(command.split())] == []


@pytest.mark.parametrize("command", [line for lines in EXAMPLES.values() for line in lines])
def test_every_example_of_the_help_is_accepted(command: str) -> None:
    assert refusal(command, typed=True) == ""


@pytest.mark.parametrize("command", [*EXAMPLES, "history", "config"])
def test_the_help_ends_with_examples(command: str) -> None:
    """Each on a line of its own, below what takes most of the room; a group shows those of its commands too."""
    app = make_app(lambda: cast(Wiring, None))
    output = CliRunner().invoke(app, [*command.split(), "--help"], env={"COLUMNS": "80"}).stdout
    end = " ".join(output[output.index("Examples:") :].split())
    lines = [line for name, own in EXAMPLES.items() if f"{name} ".startswith(f"{command} ") for line in own]
    assert end == " ".join(["Examples:", *(f"bundlekeel {line}" for line in lines)])
    assert "BUNDLEKEEL_TLS_CA" not in output


@pytest.mark.parametrize(
    "command",
    [
        *("takeover --split --dry-run --reason x", "takeover --split off", "handback --yes"),
        *("mode act", "stop TASK", "plan execute HASH", "warm b --yes"),
    ],
)
def test_what_the_command_line_refuses_is_found(command: str) -> None:
    """Else the test above would hold for anything."""
    assert re.search(r"(?i)missing|is not one of", refusal(command, typed=True))


def test_commands_are_found_in_blocks_code_and_notes() -> None:
    """A page without its commands would pass as well."""
    assert ("doctor -c bundlekeel.yaml", True) in commands("README.md")
    assert ("journal --kind effect", False) in commands("docs/concepts/effects.md")
    assert ("journal --kind audit", True) in commands("docs/operations/runbooks/BundlekeelApiRefusesMany.md")
    notes = list(commands("deploy/helm/bundlekeel/templates/NOTES.txt"))
    assert [command.split()[0] for command, _ in notes] == ["doctor", "plan", "takeover", "takeover", "handback"]
