"""The routes of drains, moves by hand, pins, tasks and reviews: dry unless told otherwise, with person and reason."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import httpx
import pytest
from pydantic import TypeAdapter

from bundlekeel.leader.state.responses import TaskView
from bundlekeel.planning.splitting.algorithms import SplitAlgorithm, SplitOptions
from bundlekeel.requests.cordon import CordonedView, UncordonedView
from bundlekeel.requests.exclude import ExcludedView, IncludedView
from bundlekeel.requests.manual_moves import ManualMoveView
from bundlekeel.requests.operator_requests import OperationsView
from bundlekeel.requests.pause import PausedScopeView, ResumedScopeView
from bundlekeel.requests.pin import PinnedView, UnpinnedView
from bundlekeel.requests.relocation import RelocationView
from bundlekeel.requests.restart import RestartPlan
from bundlekeel.requests.review import ReviewView
from bundlekeel.requests.tasks import Stopping
from bundlekeel.requests.unload import NamespaceUnloadView
from tests.support.apps import create_app
from tests.support.shop import BROKERS, BUNDLE, BUNDLES, IN_BUNDLE, Shop
from tests.support.spied import Spied
from tests.unit.api.test_routes import client

WHO = {"reason": "r", "by": "ann"}
NO_OVERRIDE = {"override_cool_down": False}
READS: dict[str, Any] = {
    "operations": OperationsView,
    "restart-plan": RestartPlan,
    "tasks/{task}": TaskView,
    "reviews": list[ReviewView],
}


# method, path, further fields of the body, the call of the service with its arguments, the type of the response
CHANGES: list[tuple[str, str, dict[str, Any], tuple[str, dict[str, Any]], Any]] = [
    ("POST", f"brokers/{BROKERS[1]}/drain", {}, ("drain", {"broker": BROKERS[1], "dry_run": True}), RelocationView),
    (
        "POST",
        f"brokers/{BROKERS[1]}/drain",
        {"execute": True},
        ("drain", {"broker": BROKERS[1], "dry_run": False}),
        RelocationView,
    ),
    (
        "POST",
        f"brokers/{BROKERS[1]}/warm",
        {"execute": True},
        ("warm", {"broker": BROKERS[1], "dry_run": False}),
        RelocationView,
    ),
    ("POST", f"brokers/{BROKERS[1]}/cordon", {}, ("cordon", {"broker": BROKERS[1]}), CordonedView),
    ("POST", f"brokers/{BROKERS[2]}/uncordon", {}, ("uncordon", {"broker": BROKERS[2]}), UncordonedView),
    (
        "POST",
        f"bundles/{BUNDLE}/transfer",
        {"to": BROKERS[2]},
        ("transfer", {"name": BUNDLE, "to": BROKERS[2], "execute": False} | NO_OVERRIDE),
        ManualMoveView,
    ),
    (
        "POST",
        f"bundles/{quote(IN_BUNDLE, safe='')}/unload",
        {"execute": True, "override_cool_down": True},
        ("unload", {"name": IN_BUNDLE, "execute": True, "override_cool_down": True}),
        ManualMoveView,
    ),
    (
        "POST",
        "namespaces/shop/orders/unload",
        {"execute": True},
        ("unload_namespace", {"namespace": "shop/orders", "execute": True} | NO_OVERRIDE),
        NamespaceUnloadView,
    ),
    (
        "POST",
        f"bundles/{BUNDLE}/split",
        {"at": 0x8000000},
        ("split", {"name": BUNDLE, "options": SplitOptions(at=(0x8000000,)), "execute": False}),
        ManualMoveView,
    ),
    ("PUT", f"pins/{BUNDLE}", {"seconds": 60}, ("pin", {"bundle": BUNDLE, "seconds": 60.0}), PinnedView),
    ("DELETE", f"pins/{BUNDLES[3]}", {}, ("unpin", {"bundle": BUNDLES[3]}), UnpinnedView),
    ("PUT", "exclusions/n%3Ashop%2F%2A", {}, ("exclude", {"pattern": "n:shop/*", "seconds": None}), ExcludedView),
    ("DELETE", "exclusions/t:telemetry", {}, ("include", {"pattern": "t:telemetry"}), IncludedView),
    (
        "PUT",
        "pauses/namespace:shop/orders",
        {},
        ("pause_scope", {"scope": "namespace:shop/orders", "seconds": None}),
        PausedScopeView,
    ),
    (
        "DELETE",
        f"pauses/broker:{BROKERS[2]}",
        {},
        ("resume_scope", {"scope": f"broker:{BROKERS[2]}"}),
        ResumedScopeView,
    ),
]


async def make_requests(shop: Shop) -> None:
    """Let operators have requested what the changes end."""
    requests, who = shop.service.requests, {"reason": "before", "by": "bob"}
    await requests.cordon(BROKERS[2], **who)
    await requests.pin(BUNDLES[3], seconds=None, **who)
    await requests.exclude("t:telemetry", seconds=None, **who)
    await requests.pause_scope(f"broker:{BROKERS[2]}", seconds=None, **who)


@pytest.mark.parametrize("path", READS)
async def test_reads_answer_as_their_model_says(path: str) -> None:
    """With requests of every kind, a drain in progress, a task and a proposal."""
    shop = await Shop(review=True).open()
    await make_requests(shop)
    requests = shop.service.requests
    view = await requests.unload(BUNDLE, execute=True, **WHO)
    approved = await requests.approve(str(view.review), reason="r", by="bob")
    await requests.unload(BUNDLES[6], execute=True, **WHO)
    await requests.drain(BROKERS[1], dry_run=False, **WHO)
    await shop.turns(1)
    async with client(create_app(shop.service, mutations=True)) as http:
        answer = await http.get(f"/api/v1/{path.format(task=approved.task)}")
    assert answer.status_code == 200
    assert answer.json()
    TypeAdapter(READS[path]).validate_python(answer.json())


@pytest.mark.parametrize(("method", "path", "more", "call", "model"), CHANGES, ids=lambda item: str(item)[:30])
async def test_changes_reach_the_service(
    http: httpx.AsyncClient,
    service: Spied,
    shop: Shop,
    method: str,
    path: str,
    more: dict[str, Any],
    call: tuple[str, Any],
    model: Any,
) -> None:
    """With their names whole, the person and the reason; the answer is as documented."""
    await make_requests(shop)
    answer = await http.request(method, f"/api/v1/{path}", json=WHO | more)
    assert answer.status_code in (200, 202), answer.text
    name, arguments = call
    assert service.calls == [(f"requests.{name}", arguments | WHO)]
    TypeAdapter(model).validate_python(answer.json())


NEED_REASONS = {("POST", path) for path in ("pause", "resume", "plans/x/execute")} | {item[:2] for item in CHANGES}


@pytest.mark.parametrize(("method", "path"), sorted(NEED_REASONS))
async def test_no_change_without_a_reason_nor_where_mutations_are_off(
    http: httpx.AsyncClient, service: Spied, method: str, path: str
) -> None:
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
async def test_a_dry_run_needs_no_reason(http: httpx.AsyncClient, service: Spied, verb: str) -> None:
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


async def test_a_review_is_decided_by_a_second_person() -> None:
    """Approved or discarded; the responses are as documented."""
    shop = await Shop(review=True).open()
    async with client(create_app(shop.service, mutations=True)) as http:
        for bundle, verb in ((BUNDLE, "approve"), (BUNDLES[6], "discard")):
            response = (await http.post(f"/api/v1/bundles/{bundle}/unload", json=WHO | {"execute": True})).json()
            path = f"/api/v1/reviews/{response['review']}/{verb}"
            assert (await http.post(path, json=WHO)).status_code == (403 if verb == "approve" else 200)
            if verb == "approve":
                answer = await http.post(path, json={"reason": "fine", "by": "bob"})
                assert (answer.json()["reviewer"], answer.json()["remark"]) == ("bob", "fine")
                TypeAdapter(ReviewView).validate_python(answer.json())
        states = {row["id"]: row["state"] for row in (await http.get("/api/v1/reviews")).json()}
    assert sorted(states.values()) == ["discarded", "executing"]


async def test_a_task_is_stopped(http: httpx.AsyncClient, service: Spied) -> None:
    """202; its leader begins no further move."""
    response = (await http.post(f"/api/v1/bundles/{BUNDLE}/unload", json=WHO | {"execute": True})).json()
    answer = await http.post(f"/api/v1/tasks/{response['task']}/stop", json=WHO)
    assert answer.status_code == 202 and service.calls[-1] == ("requests.stop", {"task": response["task"]} | WHO)
    TypeAdapter(Stopping).validate_python(answer.json())


async def test_unknown_tasks_and_brokers_are_not_found(http: httpx.AsyncClient) -> None:
    """404 with a sentence."""
    assert (await http.get("/api/v1/tasks/nope")).status_code == 404
    answer = await http.post(f"/api/v1/brokers/{BROKERS[0]}/uncordon", json=WHO)
    assert (answer.status_code, "neither" in answer.json()["detail"]) == (404, True)
