"""Requirements of generated clients and scripts on the OpenAPI document and on responses."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from bundlekeel.model.parameter_table import PLACEMENTS, STRATEGIES
from bundlekeel.wiring.openapi import openapi_document
from tests.support.apps import create_app
from tests.support.shop import BROKERS, BUNDLE, Shop

WHO = {"reason": "r", "by": "ann"}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """The document of all routes."""
    return openapi_document()


def changes(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        f"{method.upper()} {path}": operation
        for path, item in document["paths"].items()
        for method, operation in item.items()
        if "mutations" in operation["tags"]
    }


def test_every_change_lists_404(document: dict[str, Any]) -> None:
    """TCP without `api.auth` answers it; a client that does not know it took a pause that was refused for done."""
    changed = changes(document)
    assert len(changed) > 20 and [name for name, item in changed.items() if "404" not in item["responses"]] == []
    (server,) = document["servers"]
    (tag,) = (item for item in document["tags"] if item["name"] == "mutations")
    assert "404" in server["description"] and "404" in tag["description"]


def test_the_body_of_a_delete_may_be_left_out_and_is_of_one_type(document: dict[str, Any]) -> None:
    """A union with null let a generated client fail where no body was given."""
    bodies = {name: item["requestBody"] for name, item in changes(document).items() if name.startswith("DELETE")}
    assert len(bodies) >= 3
    assert {body["content"]["application/json"]["schema"]["$ref"] for body in bodies.values()} == {
        "#/components/schemas/ReasonBody"
    }
    assert [name for name, body in bodies.items() if body.get("required")] == []


def test_names_of_a_plan_are_listed(document: dict[str, Any]) -> None:
    """In a request as in an answer; a later release may have more."""
    fields = document["components"]["schemas"]["PlanBody"]["properties"]
    assert fields["strategy"]["x-extensible-enum"] == [*STRATEGIES]
    assert fields["placement"]["x-extensible-enum"] == [*PLACEMENTS]


async def run_request(
    method: str, path: str, body: dict[str, Any] | None = None, shop: Shop | None = None
) -> httpx.Response:
    """The answer of the unix socket."""
    app = create_app((shop or await Shop().open()).service, mutations=True)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://localhost") as http:
        return await http.request(method, f"/api/v1/{path}", json=body)


@pytest.mark.parametrize("query", ["limit=0&limit=3", "limit=3&limit=3", "broker=a&limit=3&broker=b"])
async def test_a_parameter_that_is_given_twice_is_refused(query: str) -> None:
    """The last one counted, and a wrong first one was not seen."""
    answer = await run_request("GET", f"bundles?{query}")
    assert (answer.status_code, answer.json()["field"]) == (422, query.partition("=")[0])
    assert answer.json()["errors"][0]["reason"] == "set more than once"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (f"bundles/{BUNDLE}/transfer", {"to": BROKERS[2], "execute": True}),
        (f"bundles/{BUNDLE}/unload", {"execute": True}),
        (f"bundles/{BUNDLE}/split", {"execute": True}),
        ("namespaces/shop/orders/unload", {"execute": True}),
        ("reviews/{hash}/approve", {}),
    ],
)
async def test_what_has_a_task_says_where_it_is(document: dict[str, Any], path: str, body: dict[str, Any]) -> None:
    shop = await Shop(review=not body).open()
    if not body:
        plan = await shop.plan(ignore_hit_counts=True)
        await shop.service.execute(plan.hash, reason="r", by="bob")
        path = path.format(hash=plan.hash)
    answer = await run_request("POST", path, WHO | body, shop)
    assert answer.status_code == 200, answer.text
    assert answer.headers.get("Location") == f"/api/v1/tasks/{answer.json()['task']}"
    if body:
        assert "Location" not in (await run_request("POST", path, WHO | body | {"execute": False}, shop)).headers
    (operation,) = (
        item for name, item in changes(document).items() if name.rpartition("/")[2] == path.rpartition("/")[2]
        and name.split("/")[3] == path.split("/", maxsplit=1)[0]
    )  # fmt: skip
    assert operation["responses"]["200"]["headers"]["Location"] == {"$ref": "#/components/headers/TaskAddress"}


@pytest.mark.parametrize("path", ["pause", f"brokers/{BROKERS[1]}/drain"])
async def test_a_missing_reason_is_told_in_one_form(path: str) -> None:
    response = (await run_request("POST", path, {"execute": True} if "drain" in path else {})).json()
    assert (response["field"], response.get("value")) == ("reason", None)
    assert response["detail"].startswith("reason: it is missing")
