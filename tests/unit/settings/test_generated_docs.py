"""Reference pages and the example of settings say what the code says."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from bundlekeel.core.channel.findings import FindingCode
from bundlekeel.core.model.codes import EXPLANATIONS, Code
from bundlekeel.core.model.parameters import BY_NAME
from bundlekeel.settings.load import load_settings
from bundlekeel.settings.model import Settings
from bundlekeel.settings.schema import rows
from dev import docs

EXAMPLE = docs.ROOT / "config/bundlekeel.example.yaml"


@pytest.mark.parametrize("page", docs.PAGES, ids=lambda page: page[0])
def test_no_drift(page: docs.Page) -> None:
    """Each page as committed is the page as generated."""
    assert docs.drift([page]) == []


def test_example_is_the_defaults() -> None:
    """It is accepted and means the same as no file at all."""
    assert load_settings(EXAMPLE, environ={}).settings == Settings()


def test_example_with_every_comment_taken_out() -> None:
    """Uncommenting its keys gives a valid file, apart from limits that contradict `ignore`."""
    keys = {part for row in rows() for part in row.key.split(".")}
    lines = []
    for line in docs.example_settings().splitlines():
        bare = line.replace("# ", "", 1) if line.strip().startswith("# ") else line
        name = bare.strip().partition(":")[0]
        known = name in keys or bare.strip().startswith('"broker-') or name in BY_NAME
        lines.append(bare if known and not bare.strip().startswith("#") else "")
    tree = yaml.safe_load("\n".join(lines))
    pattern = tree["capacity"]["broker-*.example.com:8080"]
    assert set(pattern) == {row.key.rpartition(".")[2] for row in rows() if row.key.startswith("capacity.<")}
    for name in ("cpu", "bandwidth", "direct_memory"):
        del pattern[name]
    assert set(tree["parameters"]) | {"strategy", "placement", "compat"} == set(BY_NAME)
    load_settings(None, tree, environ={})


def test_every_code_is_explained_once() -> None:
    """The page has a row for each member."""
    text = docs.codes_page()
    assert set(EXPLANATIONS) == set(Code)
    assert all(text.count(f"| `{code}` |") == 1 for code in (*Code, *FindingCode))


def test_drift_names_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A missing or changed page is reported with its path; written again it is clean."""
    pages = [("a/page.md", lambda: "text\n")]
    assert "a/page.md is out of date" in docs.drift(pages, tmp_path)[0]
    docs.write(pages, tmp_path)
    assert docs.drift(pages, tmp_path) == []
    (tmp_path / "a/page.md").write_text("other\n")
    assert "+text" in docs.drift(pages, tmp_path)[0]
    assert docs.main(["check", "everything"]) == 2
    assert "usage" in capsys.readouterr().err


def test_check_fails_on_drift(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code is what CI looks at."""
    monkeypatch.setattr(docs, "PAGES", [("no/such/page.md", lambda: "x")])
    assert docs.main(["check"]) == 1
    assert "no/such/page.md" in capsys.readouterr().err
