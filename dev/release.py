"""Check whether a tag can be published (`python -m dev.release check TAG`), or print its notes (`… notes TAG`)."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent

# Places of a version besides the three that are compared by their key: labels and tags of our images.
_VERSION = re.compile(r"(?:\bbundlekeel(?:-spark)?:|image\.version=\"|/opt/bundlekeel/)(\d+\.\d+\.\d+)")
_UNPUBLISHED = re.compile(
    r"(?i)\b(?:no (?:image|package)\b[^.]*|nothing) is published yet|\bnot released yet"
    r"|\bonce the image is built|\bpush its image first|\bis in no registry"
)


def faults(tag: str, root: Path = ROOT) -> list[str]:
    """Return why the tree must not be published as this tag (such as `v0.1.0`), one line per reason."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    chart = yaml.safe_load((root / "deploy/helm/bundlekeel/Chart.yaml").read_text(encoding="utf-8"))
    versions = {"pyproject.toml": project["version"], "Chart.yaml": chart["version"], "appVersion": chart["appVersion"]}
    problems = [f"{place} says {version}, the tag {tag}" for place, version in versions.items() if f"v{version}" != tag]
    if not notes(tag, root):
        problems.append(f"CHANGELOG.md has no section `## {tag.removeprefix('v')}` with text: rename `## Unreleased`")
    if any(line and not line.startswith("#") for line in notes("vUnreleased", root).splitlines()):
        problems.append("CHANGELOG.md has text under `## Unreleased`, which the release's notes would not have")
    problems += [
        f"project.urls.{name} in pyproject.toml is a placeholder ({url}): set the address, also in Chart.yaml"
        for name, url in project["urls"].items()
        if ".example/" in url
    ]
    if not chart["home"].endswith("/"):
        problems.append(f"home in Chart.yaml does not end with / ({chart['home']}): links to runbooks are made from it")
    if not re.search(
        r"(?m)^ARG PYTHON_IMAGE=\S+@sha256:[0-9a-f]{64}$", (root / "Dockerfile").read_text(encoding="utf-8")
    ):
        problems.append("PYTHON_IMAGE in Dockerfile has no digest: pin it (docs/releasing.md)")
    addresses = [("home", chart["home"]), *(("sources", url) for url in chart["sources"])]
    problems += [f"{key} in Chart.yaml is a placeholder ({url})" for key, url in addresses if ".example/" in url]
    if notes(tag, root) and not re.search(
        rf"^## {re.escape(tag[1:])} - \d{{4}}-\d\d-\d\d$", _changelog(root), re.MULTILINE
    ):
        problems.append(f"CHANGELOG.md says no date of {tag[1:]}: `## {tag[1:]} - YYYY-MM-DD`")
    for path in _texts(root):
        text, place = path.read_text(encoding="utf-8"), path.relative_to(root)
        others = sorted({version for version in _VERSION.findall(text) if f"v{version}" != tag})
        problems += [f"{place} names {version}, the tag {tag}" for version in others]
        problems += [
            f'{place} says "{match[0]}", which the release would make wrong' for match in _UNPUBLISHED.finditer(text)
        ]
    return problems


def _texts(root: Path) -> list[Path]:
    """Return the files that users read or build from, and in which each version must be that of the release. The
    changelog is not among them.
    """
    chart = root / "deploy" / "helm" / "bundlekeel"
    named = (root / "Dockerfile", root / "docker-compose.yml", root / "README.md", root / "dev" / "chart.py")
    paths = (chart / "README.md", chart / "values-apache-chart.yaml", chart / "templates" / "NOTES.txt")
    return [path for path in (*named, *paths, *sorted((root / "docs").rglob("*.md"))) if path.is_file()]


def _changelog(root: Path) -> str:
    return (root / "CHANGELOG.md").read_text(encoding="utf-8")


def notes(tag: str, root: Path = ROOT) -> str:
    """Return the section of the changelog for this tag; empty if there is none."""
    sections = _changelog(root).split("\n## ")[1:]
    heads = {text.partition("\n")[0].split()[0]: text.partition("\n")[2].strip() for text in sections}
    return heads.get(tag.removeprefix("v"), "")


def main(arguments: list[str]) -> int:
    """Run the command and return the exit code."""
    if len(arguments) != 2 or arguments[0] not in ("check", "notes"):
        print("usage: python -m dev.release check|notes TAG", file=sys.stderr)
        return 2
    if arguments[0] == "notes":
        print(notes(arguments[1]))
        return 0
    problems = faults(arguments[1])
    print("\n".join(problems), file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
