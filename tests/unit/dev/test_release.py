"""A tag is published only if the tree is that release, and no page asks users to install a foreign name."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from dev.release import ROOT, faults, notes

CHART = "deploy/helm/bundlekeel"
FILES = ("pyproject.toml", "CHANGELOG.md", "Dockerfile", "docker-compose.yml", f"{CHART}/Chart.yaml")
# What only an owner can give: addresses, and the digest of the base image.
OWNERS = {
    "pyproject.toml": (r'^(\w+) = "https://.*"', r'\1 = "https://keel.invalid/\1"'),
    f"{CHART}/Chart.yaml": (r"^(home: |sources: \[)https://[^]\s]+", r"\1https://keel.invalid/"),
    "Dockerfile": (r"^(ARG PYTHON_IMAGE=[^@\s]+).*", rf"\1@sha256:{'0' * 64}"),
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for name, (what, inputs) in OWNERS.items():
        text, count = re.subn(what, inputs, (tmp_path / name).read_text(encoding="utf-8"), flags=re.MULTILINE)
        assert count
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 0.1.0 - 2026-12-01\n\nThe first.\n", encoding="utf-8")
    return tmp_path


def change(tree: Path, name: str, old: str, new: str) -> None:
    """Replace text in a file."""
    text = (tree / name).read_text(encoding="utf-8")
    assert old in text
    (tree / name).write_text(text.replace(old, new), encoding="utf-8")


def test_a_tree_that_is_the_release_is_published_with_its_changes(tree: Path) -> None:
    """Version, section and addresses are there."""
    assert faults("v0.1.0", tree) == []
    assert notes("v0.1.0", tree) == "The first."


def test_what_is_in_the_way_is_named(tree: Path) -> None:
    """Another version, no section in the changelog, addresses that are placeholders."""
    assert faults("v0.2.0", tree)[0] == "pyproject.toml says 0.1.0, the tag v0.2.0"
    change(tree, "CHANGELOG.md", "## 0.1.0", "## Unreleased")
    change(tree, "pyproject.toml", "keel.invalid/Issues", "keel.example/Issues")
    section, unsaid, address = faults("v0.1.0", tree)
    assert "## 0.1.0" in section and "## Unreleased" in unsaid
    assert "project.urls.Issues" in address


def test_addresses_of_the_chart_and_the_day_of_the_release_are_looked_at(tree: Path) -> None:
    """Artifact Hub shows them; a changelog says when."""
    change(tree, f"{CHART}/Chart.yaml", "home: https://keel.invalid/", "home: https://keel.example/")
    change(tree, f"{CHART}/Chart.yaml", "[https://keel.invalid/", "[https://keel.example/")
    change(tree, "CHANGELOG.md", "0.1.0 - 2026-12-01", "0.1.0")
    home, sources, day = faults("v0.1.0", tree)
    assert home.startswith("home in Chart.yaml") and sources.startswith("sources in") and "YYYY-MM-DD" in day


def test_links_and_base_image_are_whole(tree: Path) -> None:
    """The workflow joins `home` and the path of the runbooks; an image of the same tag may be another one tomorrow."""
    change(tree, f"{CHART}/Chart.yaml", "home: https://keel.invalid/", "home: https://keel.invalid")
    change(tree, "Dockerfile", f"@sha256:{'0' * 64}", "")
    home, base = faults("v0.1.0", tree)
    assert "does not end with /" in home and base.startswith("PYTHON_IMAGE in Dockerfile has no digest")


def test_this_tree_lacks_only_what_an_owner_can_give() -> None:
    """Addresses. Version, changelog and chart are those of the release that is next, or was last."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    owners = (
        "`## Unreleased`, which",
        "which the release would make wrong",
        "project.urls.",
        "in Chart.yaml is a",
        "no date of",
        "PYTHON_IMAGE in Dockerfile has no digest",
    )
    assert [fault for fault in faults(f"v{version}") if not any(part in fault for part in owners)] == []


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("Dockerfile", 'image.version="0.1.0"', 'image.version="0.0.9"'),
        ("docker-compose.yml", "image: bundlekeel:0.1.0", "image: bundlekeel:0.0.9"),
        ("docker-compose.yml", "image: bundlekeel-spark:0.1.0", "image: bundlekeel-spark:0.0.9"),
    ],
)
def test_labels_and_tags_of_another_release_are_named(tree: Path, name: str, old: str, new: str) -> None:
    change(tree, name, old, new)
    assert faults("v0.1.0", tree) == [f"{name} names 0.0.9, the tag v0.1.0"]


@pytest.mark.parametrize("place", ["docs/operations/docker.md", f"{CHART}/README.md"])
@pytest.mark.parametrize(
    "text",
    [
        "No image is published yet. Build it",
        "Nothing is published yet: run",
        "no package, image or chart is published yet, and",
        "not released yet (version",
        "`helm install`, once the image is built and pushed",
        "of the new sources. Push its image first",
        "the default, `bundlekeel`, is in no registry.",
    ],
)
def test_what_says_that_nothing_is_published_is_named(tree: Path, place: str, text: str) -> None:
    """Pages and the chart's README go out with the release."""
    (tree / place).parent.mkdir(parents=True, exist_ok=True)
    (tree / place).write_text(f"# Title\n\n{text}\n", encoding="utf-8")
    (fault,) = faults("v0.1.0", tree)
    assert fault.startswith(f"{place} says ")
    (tree / place).write_text("History not published yet is kept.\n", encoding="utf-8")
    assert faults("v0.1.0", tree) == []


def test_changes_without_a_version_are_not_published_unsaid(tree: Path) -> None:
    change(tree, "CHANGELOG.md", "## 0.1.0", "## Unreleased\n\n- A change.\n\n## 0.1.0")
    assert ["## Unreleased" in fault for fault in faults("v0.1.0", tree)] == [True]
    change(tree, "CHANGELOG.md", "- A change.\n\n", "### Added\n\n### Fixed\n\n")
    assert faults("v0.1.0", tree) == []


def test_nobody_is_told_to_install_a_name_that_is_not_ours() -> None:
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    pattern = re.compile(r"(pip3? install [^\n#]*|\binstall )['\"]?bundlekeel(\[|==|['\"\s])")
    results = []
    for name in names.split("\0"):
        if name.endswith((".md", ".py", ".yaml", ".yml", ".txt", ".toml")) and "/unit/dev/" not in name:
            text = (ROOT / name).read_text(encoding="utf-8").replace("helm install bundlekeel", "")
            results += [f"{name}: {match[0]}" for match in pattern.finditer(text)]
    assert results == []
