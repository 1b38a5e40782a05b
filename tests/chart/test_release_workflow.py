"""What publishes a release is a workflow that its linter takes."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import yaml

from dev.chart import ROOT
from dev.gotools import ACTIONLINT, ensure

WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"


def _jobs() -> dict[str, Any]:
    jobs: dict[str, Any] = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"]
    return jobs


def test_the_workflow_has_no_mistake_that_can_be_seen() -> None:
    """Expressions, needs, permissions and keys."""
    answer = subprocess.run([str(ensure(ACTIONLINT)), str(WORKFLOW)], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_images_are_for_both_architectures() -> None:
    """And attested, as wheel and chart are."""
    steps = _jobs()["image"]["steps"]
    (build,) = [step["run"] for step in steps if "buildx build" in step.get("run", "")]
    assert "--platform linux/amd64,linux/arm64 " in build
    assert [step["with"]["push-to-registry"] for step in steps if "attest" in step.get("uses", "")] == [True]


def test_nothing_is_published_before_everything_passed() -> None:
    """The fast gate alone starts no cluster."""
    jobs = _jobs()
    assert [step["run"] for step in jobs["test"]["steps"] if "run" in step] == ["make test"]

    def before(name: str) -> set[str]:
        needs = jobs[name].get("needs", [])
        named = {needs} if isinstance(needs, str) else set(needs)
        return named.union(*(before(other) for other in named))

    for name in jobs.keys() - {"check", "test"}:
        assert before(name) >= {"check", "test"}, name
    assert before("site") >= {"wheel", "image", "chart"}


def test_actions_are_pinned_and_jobs_end() -> None:
    """A tag can be moved to other code; what pip installs has its hash in a lock."""
    text = WORKFLOW.read_text(encoding="utf-8")
    assert yaml.safe_load(text)["concurrency"]["group"]
    for job in _jobs().values():
        assert 0 < job["timeout-minutes"] <= 360
    uses = re.findall(r"uses: (.*)", text)
    assert uses
    assert [line for line in uses if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []
    assert all("--require-hashes" in line for line in text.splitlines() if "pip install" in line)
