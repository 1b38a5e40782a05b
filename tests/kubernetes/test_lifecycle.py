"""Install, upgrade from the previous values file, roll back, uninstall: with every values file, in a real API server.

Every namespace enforces Pod Security `restricted`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest

from tests.support.chart import CASES, Object, pods
from tests.support.kubernetes import PATIENCE, Namespace, name_of

Record = Callable[[str, Sequence[str]], None]


def _claims(*cases: str) -> set[str]:
    volumes = [volume for case in cases for pod in pods(case) for volume in pod.spec["volumes"]]
    return {item["persistentVolumeClaim"]["claimName"] for item in volumes if "persistentVolumeClaim" in item}


def _kept(manifest: list[Object]) -> set[str]:
    return {
        name_of(item)
        for item in manifest
        if item["metadata"].get("annotations", {}).get("helm.sh/resource-policy") == "keep"
    }


def _run_cron_jobs(namespace: Namespace, manifest: list[Object]) -> list[str]:
    """Create a Job from each CronJob, and wait until it has completed."""
    names = [item["metadata"]["name"] for item in manifest if item["kind"] == "CronJob"]
    for name in names:
        namespace.kubectl("create", "job", f"{name}-now", f"--from=cronjob/{name}")
        namespace.kubectl("wait", f"job/{name}-now", "--for=condition=Complete", f"--timeout={PATIENCE}s")
    return names


@pytest.mark.parametrize("case", CASES)
def test_a_release_from_install_to_uninstall(case: str, namespace: Namespace, record: Record) -> None:
    """The next case is the upgrade, so that each case is installed once and upgraded to once."""
    following = CASES[(CASES.index(case) + 1) % len(CASES)]
    namespace.create_claims(_claims(case, following))
    before = namespace.names()

    namespace.deploy("install", case)
    first = namespace.manifest()
    names = {name_of(item) for item in first}
    assert namespace.of_release() == names
    jobs = _run_cron_jobs(namespace, first)

    # Without this flag and without values of its own (`default`) Helm keeps the previous ones.
    namespace.deploy("upgrade", following, "--reset-values")
    second = namespace.manifest()
    assert namespace.of_release() == {name_of(item) for item in second} | _kept(first)

    namespace.helm("rollback", "1", "--wait", "--wait-for-jobs", "--timeout", f"{PATIENCE}s")
    assert namespace.of_release() == names | _kept(second)
    assert namespace.manifest() == first

    namespace.helm("uninstall", "--wait", "--timeout", f"{PATIENCE}s")
    kept = _kept(first) | _kept(second) - names
    assert namespace.until_names(before | kept) == set()
    assert before | kept <= namespace.names()
    stays = ", ".join(sorted(f"`{name}`" for name in _kept(first))) or "nothing"
    record("releases", [case, f"{len(names)} objects", f"{len(jobs)}", following, stays])


def test_helm_test_and_its_pod(namespace: Namespace) -> None:
    """The pod of `helm test` is admitted. It alone stays after the uninstall, for its log."""
    before = namespace.names()
    namespace.deploy("install", "default")
    namespace.helm("test", "--timeout", f"{PATIENCE}s")
    namespace.helm("uninstall", "--wait", "--timeout", f"{PATIENCE}s")
    assert namespace.until_names(before | {"Pod keel-bundlekeel-test"}) == set()


def test_the_budget_protects_all_candidates(namespace: Namespace) -> None:
    """Kubernetes finds the pods of the Deployment by the selector of the budget."""
    namespace.deploy("install", "default")
    namespace.kubectl("wait", "pdb", "--all", "--for=jsonpath={.status.currentHealthy}=3", f"--timeout={PATIENCE}s")
    (budget,) = json.loads(namespace.kubectl("get", "pdb", "-o", "json"))["items"]
    assert (budget["status"]["expectedPods"], budget["status"]["disruptionsAllowed"]) == (3, 1)
