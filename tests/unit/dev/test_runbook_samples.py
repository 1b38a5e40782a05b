"""Samples of output in the runbooks: they are what the commands print, in situations that can be."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from bundlekeel.api import service
from bundlekeel.requests import doctor, doctor_checks
from bundlekeel.views import readings
from dev.runbook_samples import with_samples
from dev.runbook_situations import SITUATIONS

RUNBOOKS = Path(__file__).resolve().parents[3] / "docs" / "operations" / "runbooks"
# What they look at is no output of a command: CPU and dashboards, the log of a disk, the log of a receiver, how a
# container ended.
WITHOUT = {
    *("BundlekeelEventLoopLags", "BundlekeelJournalNotWritten", "BundlekeelNotificationsLost"),
    "BundlekeelRestartsOften",
}


def test_runbooks_have_samples() -> None:
    """Of each alert that a command shows."""
    pages = RUNBOOKS.glob("Bundlekeel*.md")
    bare = {page.stem for page in pages if "<!-- sample: " not in page.read_text(encoding="utf-8")}
    assert bare == WITHOUT


def test_a_sample_is_renewed_and_nothing_else(tmp_path: Path) -> None:
    """An old one is replaced, one that is missing is written; a second time changes nothing."""
    page = tmp_path / "page.md"
    mark = "   <!-- sample: verdicts; error -->\n"
    page.write_text(f"1. Look.\n\n{mark}\n   ```text\n   old\n   ```\n\n2. Go on.\n\n{mark}\nEnd.\n", encoding="utf-8")
    once = with_samples(page)
    assert "old" not in once and once.count("InternalError") == 2
    assert (
        re.sub(r"\n   ```text\n.*?```\n", "", once, flags=re.DOTALL)
        == f"1. Look.\n\n{mark}\n2. Go on.\n\n{mark}\nEnd.\n"
    )
    page.write_text(once, encoding="utf-8")
    assert with_samples(page) == once


def test_only_the_lines_that_a_mark_names_are_shown(tmp_path: Path) -> None:
    """With those that continue them, and a mark where others are left out; a failing command with its exit code."""
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- sample: status; no leader; leader none, ready -->\n<!-- sample: doctor; no store; ERROR -->\n"
    )
    shown = with_samples(page).splitlines()
    assert shown[3:10] == [
        "$ bundlekeel status",
        "…",
        "leader      none",
        "…",
        "ready       no: metadata store zk:zk1:2181/pulsar does not answer; leadership no leader known",
        "            yet",
        "…",
    ]
    assert shown[-3:] == ["…", "(exit code 1)", "```"]


def test_a_finding_past_its_deadline_says_what_a_person_can_do(tmp_path: Path) -> None:
    """As the product does: before it one waits, and the alert fires after it."""
    page = tmp_path / "page.md"
    page.write_text("<!-- sample: channel; in flight -->\n", encoding="utf-8")
    shown = " ".join(with_samples(page).split())
    assert "→ restart the leader broker" in shown and "→ nothing" not in shown


def test_a_file_is_shown_as_it_is(tmp_path: Path) -> None:
    """After the mark with its path; a second time changes nothing."""
    page, path = tmp_path / "page.md", "deploy/systemd/bundlekeel.yaml"
    page.write_text(f"The settings:\n\n<!-- file: {path} -->\n\n```yaml\nold\n```\n\nEnd.\n", encoding="utf-8")
    once = with_samples(page)
    shown = (RUNBOOKS.parents[2] / path).read_text(encoding="utf-8")
    assert once == f"The settings:\n\n<!-- file: {path} -->\n\n```yaml\n{shown}```\n\nEnd.\n"
    page.write_text(once, encoding="utf-8")
    assert with_samples(page) == once


def test_a_situation_that_there_is_not_is_refused(tmp_path: Path) -> None:
    """Else a page could keep a sample of nothing."""
    page = tmp_path / "page.md"
    page.write_text("<!-- sample: status; misspelt -->\n", encoding="utf-8")
    with pytest.raises(KeyError):
        with_samples(page)


@pytest.mark.parametrize("name", sorted(SITUATIONS))
def test_checks_of_a_situation_are_those_of_the_product(name: str) -> None:
    """By name and remedy: the fake answers with what it is given."""
    modules = (doctor, doctor_checks, readings, service)
    source = re.sub(r'"\s+f?"', "", "".join(map(inspect.getsource, modules)))
    for check in SITUATIONS[name].checks:
        assert f'"{check.name}"' in source
        assert check.fix.partition(" zk:")[0] in source
