"""Commands that a newcomer copies from the shell blocks of README.md and docs/operations/getting-started.md.

The tests parse each line without executing it: `bundlekeel ...` with the real command line, `make ...` with `make -n`.
Files must exist, or an earlier line must create them. tests/e2e/test_newcomer.py executes the lines on a real cluster.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator

import pytest

from bundlekeel.settings.model import Settings
from tests.support.newcomer import PAGES, ROOT, blocks, lines
from tests.support.printed_commands import parsed

# Of these only the files they name are looked at.
SHELL = {"python3", "pip", "cp", "sed", "kill", ".", "wait"}


def commands(page: str) -> Iterator[list[str]]:
    """Return their single commands without comments and `&`; programs of the virtual environment by their name."""
    for line in lines(page):
        words: list[str] = []
        for word in [*shlex.split(line, comments=True), "&&"]:
            words += [word.removesuffix(";")] if word not in ("&&", "&") else []
            if words and (word in ("&&", "&") or word.endswith(";")):
                yield [words[0].removeprefix(".venv/bin/"), *words[1:]]
                words = []


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_the_page_is_taken(page: str) -> None:
    """No option that is gone, none that is missing, no target and no file that does not exist."""
    result = {"bundlekeel.yaml", ".venv", ".venv/bin/activate"}
    request = []
    for words in commands(page):
        program, rest = words[0].rstrip(";"), words[1:]
        if program == "bundlekeel":
            parsed(rest)
            request.append(rest[0])
        elif program == "make":
            answer = subprocess.run(["make", "-n", *rest], cwd=ROOT, capture_output=True, text=True, check=False)
            assert answer.returncode == 0, answer.stderr
        else:
            assert program in SHELL, words
        for word in rest:
            if re.fullmatch(r"[\w./-]+\.(lock|yaml|txt)|\.venv\S*", word):
                assert word in result or (ROOT / word).exists(), word
    assert {"doctor", "run", "plan"} <= set(request)


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("pause", [r"bundlekeel run .*&", "# set "])
def test_a_block_may_be_pasted_whole(page: str, pause: str) -> None:
    """A sidecar answers only some seconds after its start, and a file has to be filled in: each ends its block."""
    result = [(line, block[-1]) for block in blocks(page) for line in block if re.search(pause, line)]
    assert result and [line for line, last in result if line != last] == []


@pytest.mark.parametrize("page", PAGES)
def test_what_the_reader_is_to_set_is_in_the_settings(page: str) -> None:
    """The comment after `cp` names keys of the file that it copies."""
    (output,) = [line.partition("# set ")[2] for line in lines(page) if "# set " in line]
    copied = (ROOT / "config/bundlekeel.minimal.yaml").read_text(encoding="utf-8")
    for key in re.findall(r"\w+", output):
        assert key in Settings.model_fields
        assert re.search(rf"^{key}: ", copied, re.MULTILINE), key


def test_the_mode_is_switched_in_the_file_as_it_is() -> None:
    """The page's `sed` finds the line it is to change."""
    (command,) = [words for words in commands(PAGES[1]) if words[0] == "sed"]
    (_, old, new, _) = command[2].split("/")
    copied = (ROOT / "config/bundlekeel.minimal.yaml").read_text(encoding="utf-8")
    assert len(re.findall(old, copied, re.MULTILINE)) == 1
    assert new == "mode: act"


@pytest.mark.parametrize(
    "line", ["plan --no-such-option", "pause -c x.yaml", "no-such-command", "mode sleep --reason x"]
)
def test_what_the_command_line_does_not_take_is_found(line: str) -> None:
    """Else the test above would hold for anything: an option that is gone, a reason that is required."""
    with pytest.raises(Exception, match=r"(?i)no such|missing|is not one of"):
        parsed(shlex.split(line))


def test_make_targets() -> None:
    """Every `make` command that the README or CONTRIBUTING names anywhere has a recipe."""
    pages = "".join((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "CONTRIBUTING.md"))
    named = sorted(set(re.findall(r"`make ([a-z]+)[^`]*`", pages)))
    assert len(named) > 4
    answer = subprocess.run(["make", "-n", *named], cwd=ROOT, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
