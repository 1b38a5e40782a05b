"""One control plane for all tests, one namespace for each. What a run did is recorded for the page."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Sequence

import pytest

from dev.gotools import ToolError
from dev.kubernetes.control_plane import ControlPlane, control_plane
from dev.kubernetes.page import RECORD
from dev.kubernetes.programs import cached
from tests.support.kubernetes import RESTRICTED, Namespace

PAGE_TEST = "test_the_page_is_what_this_run_recorded"
# The types of the Prometheus operator that the chart uses; any content is accepted.
_OPERATOR = {"PodMonitor": "podmonitors", "ServiceMonitor": "servicemonitors", "PrometheusRule": "prometheusrules"}


def _definition(kind: str, plural: str) -> dict[str, object]:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    group = "monitoring.coreos.com"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural},
            "scope": "Namespaced",
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Compare the page last, when everything is recorded."""
    items.sort(key=lambda item: item.name == PAGE_TEST)


@pytest.fixture(scope="session")
def kubernetes() -> Iterator[ControlPlane]:
    """The control plane."""
    try:
        cached()
    except ToolError as error:
        pytest.skip(str(error))
    RECORD.unlink(missing_ok=True)
    with control_plane() as plane:
        definitions = [_definition(kind, plural) for kind, plural in _OPERATOR.items()]
        plane.kubectl("create", "-f-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": definitions}))
        plane.kubectl("wait", "--for=condition=Established", "customresourcedefinitions", "--all")
        yield plane


@pytest.fixture
def namespace(kubernetes: ControlPlane) -> Namespace:
    """A namespace that admits only pods as Pod Security `restricted` demands. It goes with the control plane."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    kubernetes.create_namespace(name, RESTRICTED)
    return Namespace(kubernetes, name)


@pytest.fixture(scope="session")
def record() -> Callable[[str, Sequence[str]], None]:
    """A function that records one row of a table of the page."""

    def add(table: str, row: Sequence[str]) -> None:
        RECORD.parent.mkdir(exist_ok=True)
        with RECORD.open("a", encoding="utf-8") as file:
            file.write(json.dumps([table, *row]) + "\n")

    return add
