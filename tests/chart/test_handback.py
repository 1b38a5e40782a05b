"""The ways back to the brokers' own shedding that need no running sidecar: at the uninstall, and by hand."""

from __future__ import annotations

import pytest

from dev.chart import CHART, render
from tests.support.chart import CASES, Object, kinds, of_kind, rendered

ALONE = {"deadman-only", "recommend"}
COMMAND = ["handback", "--yes", "--reason", "job of the chart", "-c", "/etc/bundlekeel/settings.yaml"]


def _names(case: str, kind: str) -> set[str]:
    return {item["metadata"]["name"] for item in rendered(case) if item["kind"] == kind}


@pytest.mark.parametrize("case", sorted(set(CASES) - ALONE))
def test_an_uninstall_hands_back_first_and_does_not_hang(case: str) -> None:
    """Sidecars and failsafe end with the release. The job is over before Helm's own patience, five minutes, is."""
    job = of_kind(case, "Job", "keel-bundlekeel-uninstall")
    notes = job["metadata"]["annotations"]
    assert notes["helm.sh/hook"] == "pre-delete"
    assert notes["helm.sh/hook-delete-policy"] == "before-hook-creation,hook-succeeded"
    assert 0 < job["spec"]["activeDeadlineSeconds"] < 300
    pod = job["spec"]["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    assert pod["containers"][0]["args"] == COMMAND


def test_it_can_be_skipped_by_a_value() -> None:
    """For a cluster that another release takes over; `--no-hooks` needs nothing from us."""
    objects = render("keel", CHART / "ci" / "default-values.yaml", "--set", "handback.onUninstall=false")
    assert "Job" not in {item["kind"] for item in objects}


def test_a_release_without_sidecars_takes_nothing_away() -> None:
    """The sidecars of a release with only the failsafe run elsewhere."""
    assert "Job" not in kinds("deadman-only")
    assert _names("recommend", "Job") == {"keel-bundlekeel-recommend-1"}


def test_a_job_of_handback_can_be_made_when_no_pod_stays_up() -> None:
    """`kubectl create job --from=cronjob/…` copies it; by itself it never runs."""
    assert "CronJob" not in kinds("recommend")
    for case in sorted(set(CASES) - {"recommend"}):
        spec: Object = of_kind(case, "CronJob", "keel-bundlekeel-handback")["spec"]
        assert spec["suspend"] is True
        assert spec["jobTemplate"]["spec"]["ttlSecondsAfterFinished"] == 86400  # a day, to read its log
        assert spec["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["args"] == COMMAND
    notes = (CHART / "templates" / "NOTES.txt").read_text(encoding="utf-8")
    assert "create job $JOB --from=cronjob/{{ $name }}-handback &&\n" in notes
