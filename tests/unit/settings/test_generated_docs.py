"""Reference pages and the example of settings match the code."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from bundlekeel.model.codes import EXPLANATIONS, Code
from bundlekeel.model.parameters import BY_NAME
from bundlekeel.pulsar.channel.findings import FindingCode
from bundlekeel.settings.load import load_settings
from bundlekeel.settings.model import Settings
from bundlekeel.settings.schema import children, rows
from dev import docs

EXAMPLE = docs.ROOT / "config/bundlekeel.example.yaml"
BLOCK = re.compile(r"^(?P<indent> *)```yaml\n(?P<text>.*?)^(?P=indent)```", re.MULTILINE | re.DOTALL)
# A commented item of a list or mapping, below the line that it stands for.
ITEM = r"^(?P<indent> *)(?P<line>{name}: .*)\n(?P=indent)# {name}:  # instead of .*\n(?P<item>((?P=indent)#   .*\n)+)"


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
    text = re.sub(ITEM.format(name=r"\w+"), r"\g<indent>\g<line>\n", docs.example_settings(), flags=re.MULTILINE)
    for line in text.splitlines():
        bare = line.replace("# ", "", 1) if line.strip().startswith("# ") else line
        name = bare.strip().partition(":")[0]
        expected_keys = name in keys or bare.strip().startswith('"broker-') or name in BY_NAME
        lines.append(bare if expected_keys and not bare.strip().startswith("#") else "")
    tree = yaml.safe_load("\n".join(lines))
    pattern = tree["capacity"]["broker-*.example.com:8080"]
    assert set(pattern) == {row.key.rpartition(".")[2] for row in rows() if row.key.startswith("capacity.<")}
    for name in ("cpu", "bandwidth", "direct_memory"):
        del pattern[name]
    assert set(tree["parameters"]) | {"strategy", "placement", "compat"} == set(BY_NAME)
    for name in [name for name in tree["parameters"] if BY_NAME[name].instead in BY_NAME]:
        del tree["parameters"][name]
    load_settings(None, tree, environ={})


@pytest.mark.parametrize("key", ["windows", "notify.webhooks", "quotas.groups"])
def test_the_item_of_a_list_or_mapping_can_be_uncommented(key: str) -> None:
    """It is accepted instead of the line above it, and has all keys; of a webhook's two addresses the better one."""

    def uncommented(match: re.Match[str]) -> str:
        indent = match["indent"]
        return f"{indent}{name}:\n" + re.sub(rf"^{indent}# ", indent, match["item"], flags=re.MULTILINE)

    name = key.rpartition(".")[2]
    text, times = re.subn(ITEM.format(name=name), uncommented, docs.example_settings(), flags=re.MULTILINE)
    assert times == 1
    tree = yaml.safe_load(text)
    load_settings(None, tree, environ={})
    for part in key.split("."):
        tree = tree[part]
    (item,) = tree if isinstance(tree, list) else tree.values()
    assert set(item) == set(children((*key.split("."), "0"))) - {"url"}


def _settings_blocks() -> Iterator[Any]:
    """Yield the blocks of settings that a reader may copy."""
    for page in [docs.ROOT / "README.md", *sorted((docs.ROOT / "docs").rglob("*.md"))]:
        for number, finding in enumerate(BLOCK.finditer(page.read_text())):
            text = textwrap.dedent(finding["text"])
            if set(yaml.safe_load(text)) <= set(Settings.model_fields):
                yield pytest.param(text, id=f"{page.stem}-{number}")


@pytest.mark.parametrize("text", list(_settings_blocks()))
def test_each_block_of_settings_can_be_copied(text: str, tmp_path: Path) -> None:
    file = tmp_path / "bundlekeel.yaml"
    file.write_text(text)
    secrets = re.findall(r"in secrets: (\w+)", text)
    load_settings(file, environ={f"BUNDLEKEEL__{name.upper()}": "s" for name in secrets})


def test_what_has_to_be_set_stands_first() -> None:
    """Before all that may stay as it is."""
    keys = re.findall(r"^(?:# )?(\w+):(?: |$)", docs.example_settings(), flags=re.MULTILINE)
    assert keys[:2] == ["cluster", "metadata_store"]


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
