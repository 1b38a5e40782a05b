"""What publishes a release is a workflow that its linter takes."""

from __future__ import annotations

import subprocess

from dev.chart import ROOT
from dev.gotools import ACTIONLINT, ensure


def test_the_workflow_has_no_mistake_that_can_be_seen() -> None:
    """Expressions, needs, permissions and keys."""
    workflow = ROOT / ".github" / "workflows" / "release.yml"
    answer = subprocess.run([str(ensure(ACTIONLINT)), str(workflow)], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
