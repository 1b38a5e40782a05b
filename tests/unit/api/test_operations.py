"""The routes of drains, moves by hand, pins, tasks and reviews: dry unless told otherwise, with person and reason."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from pydantic import TypeAdapter

from bundlekeel.api import create_app
from bundlekeel.core.splitting.algorithms import SplitAlgorithm, SplitOptions
from bundlekeel.daemon.answers.operations import (
    CordonedView,
    ExcludedView,
    IncludedView,
    OperationsView,
    PausedScopeView,
    PinnedView,
    ResumedScopeView,
    UncordonedView,
    UnpinnedView,
)
from bundlekeel.daemon.answers.plans import (
    ManualMoveView,
    NamespaceUnloadView,
    RelocationView,
    ReviewView,
    Stopping,
    TaskView,
)
from tests.support.fake_service import BROKERS, FakeService

BUNDLE = "shop/orders/0x00000000_0x10000000"
WHO = {"reason": "r", "by": "ann"}


@pytest.fixture
def service() -> FakeService:
    """A fresh fake."""
    return FakeService()


@pytest.fixture
async def http(service: FakeService) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the app with every route."""
    app = create_app(service, mutations=True)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://localhost:8090") as made:
        yield made


READS: dict[str, Any] = {
    "operations": OperationsView,
    "tasks/req-0000000012": TaskView,
    "reviews": list[ReviewView],
}
# method, path, further fields of the body, what reaches the service, the answer's model
CHANGES: list[tuple[str, str, dict[str, Any], tuple[str, Any], Any]] = [
    ("POST", f"brokers/{BROKERS[1]}/drain", {}, ("drain", (BROKERS[1], True, "r", "ann")), RelocationView),
    (
        "POST",
        f"brokers/{BROKERS[1]}/drain",
        {"execute": True},
        ("drain", (BROKERS[1], False, "r", "ann")),
        RelocationView,
    ),
    (
        "POST",
        f"brokers/{BROKERS[1]}/warm",
        {"execute": True},
        ("warm", (BROKERS[1], False, "r", "ann")),
        RelocationView,
    ),
    ("POST", f"brokers/{BROKERS[1]}/cordon", {}, ("cordon", (BROKERS[1], "r", "ann")), CordonedView),
    ("POST", f"brokers/{BROKERS[1]}/uncordon", {}, ("uncordon", (BROKERS[1], "r", "ann")), UncordonedView),
    (
        "POST",
        f"bundles/{BUNDLE}/transfer",
        {"to": BROKERS[2]},
        ("manual_move", ("transfer", BUNDLE, BROKERS[2], False, False, "r", "ann")),
        ManualMoveView,
    ),
    (
        "POST",
        "bundles/persistent%3A%2F%2Fshop%2Forders%2Fa/unload",
        {"execute": True, "override_cool_down": True},
        ("manual_move", ("unload", "persistent://shop/orders/a", "", True, True, "r", "ann")),
        ManualMoveView,
    ),
    (
        "POST",
        "namespaces/shop/orders/unload",
        {"execute": True},
        ("unload_namespace", ("shop/orders", False, True, "r", "ann")),
        NamespaceUnloadView,
    ),
    (
        "POST",
        f"bundles/{BUNDLE}/split",
        {"at": 0x8000000},
        ("manual_move", ("split", BUNDLE, SplitOptions(at=(0x8000000,)), False, "r", "ann")),
        ManualMoveView,
    ),
    ("PUT", f"pins/{BUNDLE}", {"seconds": 60}, ("pin", (BUNDLE, 60.0, "r", "ann")), PinnedView),
    ("DELETE", f"pins/{BUNDLE}", {}, ("unpin", (BUNDLE, "r", "ann")), UnpinnedView),
    ("PUT", "exclusions/n%3Ashop%2F%2A", {}, ("exclude", ("n:shop/*", None, "r", "ann")), ExcludedView),
    ("DELETE", "exclusions/t:shop", {}, ("include", ("t:shop", "r", "ann")), IncludedView),
    ("PUT", "pauses/namespace:shop/orders", {}, ("pause_scope", ("namespace:shop/orders", None, "r", "ann")), None),
    ("DELETE", "pauses/broker:b-1:8080", {}, ("resume_scope", ("broker:b-1:8080", "r", "ann")), ResumedScopeView),
    ("POST", "tasks/req-0000000012/stop", {}, ("stop", ("req-0000000012", "r", "ann")), Stopping),
    ("POST", "reviews/feed/approve", {}, ("approve", ("feed", "r", "ann")), ReviewView),
    ("POST", "reviews/feed/discard", {}, ("discard", ("feed", "r", "ann")), ReviewView),
]


@pytest.mark.parametrize("path", READS)
async def test_reads_answer_as_their_model_says(http: httpx.AsyncClient, path: str) -> None:
    """What OpenAPI promises is what comes."""
    answer = await http.get(f"/api/v1/{path}")
    assert answer.status_code == 200
    TypeAdapter(READS[path]).validate_python(answer.json())


@pytest.mark.parametrize(("method", "path", "more", "call", "model"), CHANGES, ids=lambda item: str(item)[:30])
async def test_changes_reach_the_service(
    http: httpx.AsyncClient,
    service: FakeService,
    method: str,
    path: str,
    more: dict[str, Any],
    call: tuple[str, Any],
    model: Any,
) -> None:
    """With their names whole, the person and the reason; the answer is as documented."""
    answer = await http.request(method, f"/api/v1/{path}", json=WHO | more)
    assert answer.status_code in (200, 202), answer.text
    assert service.calls[-1] == call
    TypeAdapter(model or PausedScopeView).validate_python(answer.json())


@pytest.mark.parametrize(("method", "path"), sorted({(item[0], item[1]) for item in CHANGES}))
async def test_no_change_without_a_reason_nor_where_mutations_are_off(
    http: httpx.AsyncClient, service: FakeService, method: str, path: str
) -> None:
    """What is carried out needs a reason that can be read; and without mutations none of these routes exists."""
    dry = path.rpartition("/")[2] in ("drain", "warm", "transfer", "unload", "split")
    needed: dict[str, Any] = {"by": "ann"} | ({"execute": True} if dry else {})
    needed |= {"to": BROKERS[2]} if path.endswith("/transfer") else {}
    for reason in (
        {},
        {"reason": ""},
        {"reason": "  \t"},
        {"reason": "a\x00b"},
        {"reason": "a\nb"},
        {"reason": "\x85"},
    ):
        answer = await http.request(method, f"/api/v1/{path}", json=needed | reason)
        assert (answer.status_code, answer.json()["field"]) == (422, "reason"), reason
    app = create_app(service, mutations=False)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://localhost:8090") as reading:
        answer = await reading.request(method, f"/api/v1/{path}", json=WHO)
    assert answer.status_code in (404, 405)
    assert service.calls == []


@pytest.mark.parametrize("verb", ["transfer", "unload", "split", "drain", "warm"])
async def test_a_dry_run_needs_no_reason(http: httpx.AsyncClient, service: FakeService, verb: str) -> None:
    """Nothing of it ends in the journal."""
    path = f"brokers/{BROKERS[1]}/{verb}" if verb in ("drain", "warm") else f"bundles/{BUNDLE}/{verb}"
    for body in ({}, {"execute": False}, {"reason": None}):
        more = {"to": BROKERS[2]} if verb == "transfer" else {}
        answer = await http.post(f"/api/v1/{path}", json=body | more)
        assert answer.status_code == 200 and answer.json()["dry_run"], answer.text
    assert len(service.calls) == 3


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (f"bundles/{BUNDLE}/transfer", {}, "to"),
        (f"bundles/{BUNDLE}/transfer", {"to": ""}, "to"),
        (f"bundles/{BUNDLE}/split", {"at": [0]}, "at.0"),
        (f"bundles/{BUNDLE}/split", {"at": "0x10"}, "at"),
        (f"brokers/{BROKERS[0]}/drain", {"execute": "yes"}, "execute"),
        (f"brokers/{BROKERS[0]}/drain", {"force": True}, "force"),
    ],
)
async def test_a_wrong_body_names_the_field(
    http: httpx.AsyncClient, path: str, body: dict[str, Any], field: str
) -> None:
    """Nothing is guessed, and nothing unknown is taken."""
    answer = await http.post(f"/api/v1/{path}", json=WHO | body)
    assert (answer.status_code, answer.json()["field"]) == (422, field)


async def test_a_wrong_algorithm_is_refused_with_those_there_are(http: httpx.AsyncClient) -> None:
    """422 with the field and Pulsar's four names."""
    answer = await http.post(f"/api/v1/bundles/{BUNDLE}/split", json=WHO | {"algorithm": "thirds"})
    assert (answer.status_code, answer.json()["field"]) == (422, "algorithm")
    assert all(f"'{name}'" in answer.text for name in SplitAlgorithm)


async def test_unknown_tasks_and_brokers_are_not_found(http: httpx.AsyncClient) -> None:
    """404 with a sentence."""
    assert (await http.get("/api/v1/tasks/nope")).status_code == 404
    answer = await http.post(f"/api/v1/brokers/{BROKERS[0]}/uncordon", json=WHO)
    assert (answer.status_code, "neither" in answer.json()["detail"]) == (404, True)
