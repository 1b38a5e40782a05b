"""Responses of a sidecar over fakes match the OpenAPI document, with its enumerations closed."""

from __future__ import annotations

import json
from typing import Any

import httpx
import jsonschema
import pytest

from bundlekeel.wiring.openapi import openapi_document
from tests.support.apps import create_app
from tests.support.builders import bundle_name
from tests.support.world import BROKERS, FakeCluster, FakeSidecar

OPEN = "x-extensible-enum"
BUNDLE = bundle_name(0)
# Streams; routes that need a channel or a group; responses that are not JSON.
LEFT_OUT = ("/events", "/channel", "/quotas/{name}", "/livez", "/readyz", "/metrics", "/reviews/")
NAMES = {"broker": BROKERS[0], "bundle": BUNDLE}


def closed(item: dict[str, Any]) -> dict[str, Any]:
    """A schema whose words are all there are, and null where it may be."""
    if OPEN not in item:
        return item
    if item.get("type") == "array" or "additionalProperties" in item:
        return item
    nullable = any(form.get("type") == "null" for form in item.get("anyOf", ()))
    return item | {"enum": [*item[OPEN], *([None] if nullable else [])]}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return dict(json.loads(json.dumps(openapi_document()), object_hook=closed))


async def test_live_answers_hold_to_the_lists_of_words(document: dict[str, Any]) -> None:
    """Also of moves that landed: their `code` was "", and a script took each good move for a failed one."""
    sidecar = await FakeSidecar(FakeCluster({BROKERS[0]: [0.3, 0.1], BROKERS[1]: [0.1], BROKERS[2]: [0.1]})).lead()
    await sidecar.cycle.turn()
    requests = sidecar.service.requests
    app = create_app(sidecar.service, mutations=True)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:

        async def ask(method: str, route: str, body: dict[str, Any] | None = None, **names: str) -> Any:
            path = route.format(**(NAMES | names))
            answer = await client.request(method, path, json=body)
            assert answer.status_code < 300, f"{method} {path} {answer.text}"
            text = document["paths"][route][method.lower()]["responses"]
            schema = text[str(answer.status_code)]["content"]["application/json"]["schema"]
            jsonschema.Draft202012Validator(schema | {"components": document["components"]}).validate(answer.json())
            return answer.json()

        bundle = (await ask("GET", "/api/v1/bundles"))[0]["bundle"]
        request = {"to": BROKERS[2], "execute": True, "reason": "r", "override_cool_down": True}
        task = (await ask("POST", "/api/v1/bundles/{bundle}/transfer", request, bundle=bundle))["task"]
        await sidecar.executions.serve()
        (move,) = (await ask("GET", "/api/v1/tasks/{task}", task=task))["moves"]
        assert (move["outcome"], move["code"]) == ("done", None)
        await requests.pause_scope("tenant:t", seconds=None, reason="r", by="ann")
        assignment = await ask("POST", "/api/v1/plans", {})
        names = {"hash": assignment["hash"], "task": task}
        for route, item in document["paths"].items():
            needed = [inputs for inputs in item.get("get", {}).get("parameters", ()) if inputs["required"]]
            asked_for = "get" in item and {inputs["in"] for inputs in needed} <= {"path"}
            if asked_for and not any(part in route for part in LEFT_OUT):
                await ask("GET", route, **names)
