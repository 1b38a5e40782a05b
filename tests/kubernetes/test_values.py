"""Wrong values are refused with their name, before or by the API server, and nothing of the release runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from dev.chart import CHART
from dev.kubernetes.control_plane import CommandError
from tests.support.kubernetes import Namespace

Record = Callable[[str, Sequence[str]], None]

BY_HELM = {
    "replicas=2": "replicas",
    "mode=dry-run": "/mode",
    "pulsar.metadataStore=etcd:http://e:2379": "pulsar.metadataStore",
    "podSecurityContext.runAsUser=0": "/podSecurityContext/runAsUser",
    "resources.limits.memory=lots": "/resources/limits/memory",
    "settings.parameters.max_move_per_hour=5": "max_move_per_hour",
    "settings.admin.token=abc": "settings.admin.token",
    "deadman.after=10s": "deadman.after",
    "recalibrate.out=/out,recalibrate.enabled=true": "recalibrate.out",
    "history.existingClaim=x": "history.existingClaim",
    "ingress.enabled=true": "ingress.hosts",
    "sidecar.runAsUser=0": "/sidecar/runAsUser",
    "sidecar.resources.limits.cpu=null": "/sidecar/resources/limits",
}


@pytest.mark.parametrize("value", BY_HELM)
def test_helm_refuses(value: str, namespace: Namespace, record: Record) -> None:
    """By the schema or by a check of the chart; no object is created."""
    kinds = ("get", "serviceaccounts,configmaps,secrets", "-o", "name")
    before = namespace.kubectl(*kinds)
    with pytest.raises(CommandError) as refusal:
        namespace.helm("install", str(CHART), "--set", value)
    lines = [line for line in str(refusal.value).splitlines() if BY_HELM[value] in line]
    assert lines, refusal.value
    assert namespace.kubectl(*kinds) == before
    record("values", [f"`{value}`", lines[-1].rpartition(":1:4): ")[2].removeprefix("- ")])
