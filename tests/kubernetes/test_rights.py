"""Rights of the chart's accounts, as the API server answers for them, and the events that a sidecar creates."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from bundlekeel.ports.records import Notification
from bundlekeel.records.kubernetes_events import KubernetesEndpoint, KubernetesEvents
from dev.kubernetes.control_plane import CommandError
from tests.support.kubernetes import Namespace

Record = Callable[[str, Sequence[str]], None]

EVENTS = {"events.events.k8s.io": ("create",)}
# What Spark's driver needs for its executors (spark-kubernetes).
DRIVER_VERBS = ("create", "get", "list", "watch", "delete", "deletecollection", "patch")
DRIVER = {"pods": DRIVER_VERBS, "configmaps": DRIVER_VERBS}
REFUSED = {
    "secrets": ("get", "list"),
    "pods/exec": ("create",),
    "serviceaccounts/token": ("create",),
    "events.events.k8s.io": ("update", "delete"),
    "deployments.apps": ("patch",),
    "statefulsets.apps": ("patch",),
    "leases.coordination.k8s.io": ("create",),
    "nodes": ("list",),
    "rolebindings.rbac.authorization.k8s.io": ("create",),
    "users": ("impersonate",),
}
NOTICE = Notification(
    event="stops",
    severity="warning",
    reason="Paused",
    text="Bundlekeel is paused.",
    wall_ms=1_700_000_000_000,
    cluster="pulsar",
    member="keel-0",
)


def _may(namespace: Namespace, account: str, verb: str, resource: str) -> bool:
    who = f"--as=system:serviceaccount:{namespace.name}:{account}"
    kind, _, part = resource.partition("/")
    try:
        answer = namespace.kubectl("auth", "can-i", verb, kind, f"--subresource={part}", who)
    except CommandError as error:
        assert str(error).splitlines()[-1].startswith("no"), error
        return False
    assert answer.splitlines()[-1] == "yes", answer
    return True


@pytest.mark.parametrize(
    ("case", "account", "needed"),
    [
        ("default", "keel-bundlekeel", {}),
        ("spark-kubernetes", "keel-bundlekeel", EVENTS),
        ("spark-kubernetes", "keel-bundlekeel-recalibrate", DRIVER),
    ],
)
def test_accounts_may_do_what_they_need(
    case: str, account: str, needed: dict[str, Sequence[str]], namespace: Namespace, record: Record
) -> None:
    """And nothing else: neither the rights of the other account nor those that lead to more rights."""
    namespace.deploy("install", case)
    expected = _rights(needed)
    asked = _rights(REFUSED) | _rights(EVENTS) | _rights(DRIVER)
    assert {right for right in asked if _may(namespace, account, *right)} == expected
    record("rights", [case, account, _text(expected), _text(asked - expected)])


def _rights(verbs: Mapping[str, Sequence[str]]) -> set[tuple[str, str]]:
    return {(verb, resource) for resource, several in verbs.items() for verb in several}


def _text(rights: set[tuple[str, str]]) -> str:
    resources = sorted({resource for _, resource in rights})
    texts = [", ".join(sorted(verb for verb, of in rights if of == name)) + f" `{name}`" for name in resources]
    return "; ".join(texts) or "nothing"


async def test_a_sidecar_creates_events_with_its_own_token(namespace: Namespace, tmp_path: Path) -> None:
    """The API server accepts the event as the sidecar sends it, from the account of the chart."""
    namespace.deploy("install", "spark-kubernetes")
    (tmp_path / "token").write_text(namespace.kubectl("create", "token", "keel-bundlekeel"))
    (tmp_path / "namespace").write_text(namespace.name)
    place = KubernetesEndpoint(url=namespace.kubernetes.url, folder=tmp_path, namespace=namespace.name, pod="keel-0")
    tls = ssl.create_default_context(cafile=str(namespace.kubernetes.ca))
    events = KubernetesEvents(place, tls=tls)
    await events.send(NOTICE)
    await events.close()
    listed = json.loads(namespace.kubectl("get", "events.events.k8s.io", "-o", "json"))["items"]
    (event,) = [item for item in listed if item["reportingController"] == "bundlekeel.io/sidecar"]
    assert event["regarding"]["name"] == "keel-0"
    assert event["note"] == f"{NOTICE.cluster}: {NOTICE.text}"
