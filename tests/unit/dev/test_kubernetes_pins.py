"""The Go modules of the local Kubernetes are pinned as a whole."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dev.gotools import ToolError
from dev.kubernetes.programs import KUBERNETES, MODULES, cached


def test_every_staging_module_has_the_release_of_kubernetes() -> None:
    """A release that is changed in one line only would build a mixture."""
    text = (MODULES / "kubernetes" / "go.mod").read_text(encoding="utf-8")
    replaced = re.findall(r"^\t(\S+) => (\S+) v0(\S+)$", text, re.MULTILINE)
    assert len(replaced) > 30
    assert {(old == new, f"v1{rest}") for old, new, rest in replaced} == {(True, KUBERNETES)}


@pytest.mark.parametrize("module", ["etcd", "kubernetes", "kwok"])
def test_every_module_has_hashes(module: str) -> None:
    """Of its sources and of its go.mod; the build refuses other ones."""
    text = (MODULES / module / "go.mod").read_text(encoding="utf-8")
    hashed = set(re.findall(r"^(\S+ \S+) h1:", (MODULES / module / "go.sum").read_text(), re.MULTILINE))
    replaced = dict(re.findall(r"^\t(\S+) => \S+ (v\S+)$", text, re.MULTILINE))
    required = re.findall(r"^\t(\S+) (v\S+)(?: // indirect)?$", text, re.MULTILINE)
    assert required
    assert {f"{name} {replaced.get(name, release)}" for name, release in required} <= hashed


def test_without_a_build_the_command_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Suites show this line when they leave the tests out."""
    monkeypatch.setenv("BUNDLEKEEL_CACHE", str(tmp_path))
    with pytest.raises(ToolError, match="make kubernetes"):
        cached()
